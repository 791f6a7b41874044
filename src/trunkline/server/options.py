"""From the keyword arguments of a decorator to an options record, other frameworks' names understood.

What cannot be honoured is refused with a sentence that says what to do instead; what makes no difference here is
accepted in silence, so that a server moves by changing its import line.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from trunkline.protocol.access import read_scopes
from trunkline.server.mismatch import did_you_mean
from trunkline.server.tools import ToolOptions

if TYPE_CHECKING:
    from trunkline.server.prompts import PromptOptions
    from trunkline.server.resources import ResourceOptions

__all__ = ["prompt_options", "resource_options", "tool_options"]

T = TypeVar("T", bound=Struct)

#: Names that others give to options of ours.
_SAME: Mapping[str, str] = MappingProxyType(
    {"run_in_thread": "thread", "inputSchema": "input_schema", "outputSchema": "output_schema", "mimeType": "mime_type"}
)
#: Options of others that change nothing here, and why.
_WITHOUT_EFFECT: Mapping[str, str] = MappingProxyType(
    {
        "enabled": "everything registered is offered",
        "version": "components have no versions of their own",
        "serializer": "results are encoded by their type",
        "security": "template values are always checked for traversal",
        "resource_security": "template values are always checked for traversal",
    }
)


#: Options of others for what is not here yet; switched off they change nothing.
_COMING: Mapping[str, str] = MappingProxyType(
    {
        "task": "tasks are not there yet",
        "app": "apps are not there yet",
    }
)


def tool_options(given: dict[str, Any]) -> ToolOptions:
    """Read the options of a tool."""
    structured = given.pop("structured_output", None)
    if structured is False:
        given["output_schema"] = None
    return _read(ToolOptions, given, "tool")


def prompt_options(given: dict[str, Any]) -> PromptOptions:
    """Read the options of a prompt."""
    from trunkline.server.prompts import PromptOptions

    return _read(PromptOptions, given, "prompt")


def resource_options(given: dict[str, Any]) -> ResourceOptions:
    """Read the options of a resource."""
    from trunkline.server.resources import ResourceOptions

    return _read(ResourceOptions, given, "resource")


def _read(kind: type[T], given: Mapping[str, Any], what: str) -> T:
    known = set(kind.__struct_fields__)
    options: dict[str, Any] = {}
    for name, value in given.items():
        own = _SAME.get(name, name)
        if name == "enabled" and value is False:
            # Silently offering what its author switched off would be worse than an error.
            raise TypeError("option 'enabled': what is registered is offered; leave it out, or hide it with visible=")
        if own in known:
            options[own] = value
        elif name == "auth" and value:
            raise TypeError("option 'auth': say which scopes are needed, scopes=[...], or hide it with visible=")
        elif name in _COMING and value:
            raise TypeError(f"option {name!r}: {_COMING[name]}")
        elif name not in _WITHOUT_EFFECT and name not in _COMING and name != "auth":
            raise TypeError(_unknown(name, known, what))
    if options.get("tags") is not None:
        options["tags"] = frozenset(options["tags"])
    if options.get("scopes") is not None:
        options["scopes"] = read_scopes(options["scopes"], "scopes")
    return kind(**{name: value for name, value in options.items() if value is not None or name == "output_schema"})


def _unknown(name: str, known: set[str], what: str) -> str:
    hint = did_you_mean(name, known) or f"; a {what} takes {', '.join(sorted(known))}"
    return f"unknown option {name!r}{hint}"
