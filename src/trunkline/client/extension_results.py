"""Kinds of results that extensions add: which a server may send, and how they become the final result of a method."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

import trunkline.types as t
from trunkline.client.request_handlers import ExtensionResult
from trunkline.errors import RemoteProtocolError
from trunkline.protocol.methods import METHODS

if TYPE_CHECKING:
    from trunkline.client.client import Client

__all__ = ["UnknownKinds", "final_result"]

#: The methods of the protocol that may have further kinds of results, with the type of their own.
_FINAL: Mapping[str, Any] = MappingProxyType(
    {
        "tools/call": t.CallToolResult,
        "prompts/get": t.GetPromptResult,
        "resources/read": t.ReadResourceResult,
        "completion/complete": t.CompleteResult,
    }
)
_CLOSED = frozenset(row.name for row in METHODS) - _FINAL.keys()


class UnknownKinds:
    """The kinds of results if an extension was declared by its identifier alone: any, of methods that may have some."""

    def __init__(self, known: frozenset[tuple[str, str]]) -> None:
        """Accept these kinds, and any that belongs to no extension of ours."""
        self._known = known

    def __contains__(self, each: object) -> bool:
        """Return True if a method may be answered with a kind of result."""
        if each in self._known:
            return True
        method, kind = each if isinstance(each, tuple) else ("", "")
        # Requests for input are a kind of the protocol itself. The tasks extension reserves its kind, and answers no
        # other method with it.
        return method not in _CLOSED and kind not in ("input_required", "task")


async def final_result(client: Client, method: str, result: Any) -> Any:
    """Return the final result of a method: as it is, or converted by the extension that has this kind of result.

    Raises:
        RemoteProtocolError: no extension of the client reads it.
    """
    if not isinstance(result, ExtensionResult):
        return result
    for extension in client._settings.extension_objects:
        kind = extension.result_kinds.get(result.kind)
        if kind is not None and kind.method == method and kind.function is not None:
            final = kind.function(client, msgspec.json.decode(result.raw))
            final = await final if hasattr(final, "__await__") else final
            return msgspec.convert(final, _FINAL[method])
    raise RemoteProtocolError(
        f"The server returned a result of the kind {result.kind!r}, but no declared extension reads it."
    )
