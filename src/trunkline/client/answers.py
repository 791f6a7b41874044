"""Answers the requests of a server with the user's callbacks, whether they came as requests or inside a result.

Only what can be answered is declared: a capability is present only if its callback is. The return value of a callback
is converted to the protocol's result, and a filled-in form is validated before it leaves. Nothing here knows
connections; the code that passes a request in decides what an error means there.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Raw, Struct

import trunkline.types as t
from trunkline.client.options import Settings
from trunkline.client.reading import UNREADABLE
from trunkline.errors import InvalidParams, LocalProtocolError, MethodNotFound, RequestFailed
from trunkline.protocol.caller import supports
from trunkline.protocol.methods import LOOSE_NAMES, Method, decode_params
from trunkline.protocol.revisions import Revision
from trunkline.protocol.shaping import shape_params

__all__ = ["Answers", "Undeclared", "as_root", "further_needs"]


class Undeclared(RequestFailed):
    """A request that needs a capability this client did not declare."""

    def __init__(self, failure: RequestFailed, capability: str) -> None:
        """Store the error to answer with, and the capability as a dotted path."""
        super().__init__(failure.message, code=failure.code, data=failure.data)
        self.capability = capability


class Answers:
    """The server requests that one client can handle in one revision."""

    __slots__ = ("_methods", "_revision", "_settings", "capabilities")

    def __init__(self, settings: Settings, revision: Revision, methods: Mapping[str, Method]) -> None:
        """Store the callbacks, and the requests that the revision has."""
        self._settings = settings
        self._revision = revision
        self._methods = methods
        #: The capabilities to declare, as a plain JSON object.
        self.capabilities = _capabilities(settings, revision)

    def check(self, method: str, params: Raw | None) -> Any:
        """Parse and validate a request.

        Raises:
            UndeclaredCapability: it needs a capability that was not declared.
            RequestFailed: it does not exist in this revision, or its params are wrong.
        """
        row = self._methods.get(method)
        if row is None:
            hint = f"; it is called {LOOSE_NAMES[method]}" if method in LOOSE_NAMES else ""
            raise MethodNotFound(f"Method not found: {method}{hint}", data={"method": method})
        if row.capability is not None and not supports(self.capabilities, row.capability):
            failure = MethodNotFound(
                f"Method not found: {method}; this client did not declare {row.capability}", data={"method": method}
            )
            raise Undeclared(failure, row.capability)
        try:
            question = decode_params(row, params)
        except UNREADABLE as error:
            raise InvalidParams(f"Invalid params: {error}") from error
        for needed in further_needs(method, question):
            if not supports(self.capabilities, needed):
                raise Undeclared(InvalidParams(f"Invalid params: this client did not declare {needed}"), needed)
        return question

    async def answer(self, method: str, question: Any) -> Struct:
        """Call the callback for a validated request and return its result as this revision may see it."""
        if method == "sampling/createMessage":
            answer: Struct = _sampled(await _given(self._settings.sampling, question), self._settings)
        elif method == "elicitation/create":
            answer = _elicited(await _given(self._settings.elicitation, question), question)
        elif method == "roots/list":
            answer = t.ListRootsResult(roots=[as_root(root) for root in await self._roots()])
        else:
            answer = t.EmptyResult()
        shaped: Struct = shape_params(answer, self._revision)
        return shaped

    async def _roots(self) -> list[Any]:
        roots = self._settings.roots
        return list(await _given(roots) if callable(roots) else roots)


async def _given(callback: Any, *question: Any) -> Any:
    outcome = callback(*question)
    return await outcome if hasattr(outcome, "__await__") else outcome


def _capabilities(settings: Settings, revision: Revision) -> dict[str, Any]:
    """Return the capabilities that have a callback, as the revision names them."""
    sampling = elicitation = roots = None
    if settings.sampling is not None:
        sampling = t.SamplingCapability(tools={} if settings.sampling_tools else None)
    if settings.elicitation is not None:
        elicitation = t.ElicitationCapability(form={}, url={} if settings.elicitation_urls else None)
    if settings.roots is not None:
        roots = t.RootsCapability(list_changed=True)
    declared = t.ClientCapabilities(
        experimental=settings.experimental, sampling=sampling, elicitation=elicitation, roots=roots
    )
    capabilities: dict[str, Any] = msgspec.to_builtins(shape_params(declared, revision))
    return capabilities


def _wants_page(question: t.ElicitRequestParams) -> bool:
    return question.mode == "url"


def _wants_tools(question: t.CreateMessageRequestParams) -> bool:
    return question.tools is not None or question.tool_choice is not None


def further_needs(method: str, question: Any) -> list[str]:
    """Return the capabilities that a request needs besides the one of its method."""
    return [needed for needed, asked in _NEEDS.get(method, ()) if asked(question)]


#: By method: the capabilities that a request needs besides the method's own, and when.
_NEEDS: Mapping[str, tuple[tuple[str, Any], ...]] = MappingProxyType(
    {
        "elicitation/create": (("elicitation.url", _wants_page),),
        "sampling/createMessage": (("sampling.tools", _wants_tools),),
    }
)


# --- sampling --------------------------------------------------------------------------------------------------------


def _sampled(given: Any, settings: Settings) -> t.CreateMessageResult:
    if isinstance(given, t.CreateMessageResult):
        return given
    content = t.TextContent(text=given) if isinstance(given, str) else given
    if all(isinstance(block, Struct) for block in (content if isinstance(content, list) else [content])):
        return t.CreateMessageResult(
            role="assistant",
            content=content,
            model=settings.client_info.name,
            stop_reason="endTurn",
        )
    raise LocalProtocolError(
        f"The sampling callback returned a {type(given).__name__}; return a string, a content block, a list of them, "
        "or a CreateMessageResult."
    )


# --- elicitation -----------------------------------------------------------------------------------------------------


def _elicited(given: Any, question: t.ElicitRequestParams) -> t.ElicitResult:
    if isinstance(given, t.ElicitResult):
        result = given
    elif given is None or given is False:
        result = t.ElicitResult(action="decline")
    else:
        content = None if given is True and not _is_yes_or_no(question) else _content(given, question)
        result = t.ElicitResult(action="accept", content=content)
    if result.action != "accept" or question.mode == "url":
        return t.ElicitResult(action=result.action, meta=result.meta)
    content = _filled_in(result.content or {}, question.requested_schema or {})
    return t.ElicitResult(action="accept", content=content, meta=result.meta)


def _is_yes_or_no(question: t.ElicitRequestParams) -> bool:
    """Return True if the form is a single boolean field, which True answers."""
    fields = list(((question.requested_schema or {}).get("properties") or {}).values())
    return len(fields) == 1 and isinstance(fields[0], dict) and fields[0].get("type") == "boolean"


def _content(given: Any, question: t.ElicitRequestParams) -> dict[str, Any]:
    """Return the form content: fields by name, a record, or the value of the only field."""
    plain = msgspec.to_builtins(given)
    if isinstance(plain, dict):
        return plain
    fields = list((question.requested_schema or {}).get("properties") or {})
    if len(fields) != 1:
        raise LocalProtocolError(
            f"The elicitation callback returned a {type(given).__name__}, but the form has the fields "
            f"{', '.join(fields) or '(none)'}: return them by name."
        )
    return {fields[0]: plain}


def _filled_in(content: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    from trunkline.protocol.json_schema import SchemaError, compile_schema, with_defaults

    try:
        validator = compile_schema(schema)
    except SchemaError as error:
        raise InvalidParams(f"Invalid params: requestedSchema: {error}") from error
    filled: dict[str, Any] = with_defaults(schema, content)
    problem = validator.first_problem(filled)
    if problem is not None:
        raise LocalProtocolError(
            f"The answer does not match the form at {problem.path or 'the root'}: {problem.message}"
        )
    return filled


# --- roots -----------------------------------------------------------------------------------------------------------


def as_root(root: Any) -> t.Root:
    """Convert a path or a ``file:`` URI to a ``Root``."""
    if isinstance(root, t.Root):
        return root
    if isinstance(root, str) and root.startswith("file:"):
        return t.Root(uri=root)
    from pathlib import Path

    path = Path(root).absolute()
    return t.Root(uri=path.as_uri(), name=path.name or None)
