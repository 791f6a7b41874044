"""Results and requests of a server: typed answers, requests that the user's callbacks answer, and pages of lists.

The kind of a result is checked after it was decoded as the answer it nearly always is, so that the common answer is
decoded once and never searched.

Requests of a server are answered by the user's callbacks, whether they came as requests or inside a result. Only what
can be answered is declared: a capability is present only if its callback is. The return value of a callback is
converted to the protocol's result, and a filled-in form is validated before it leaves. Nothing here knows connections;
the code that passes a request in decides what an error means there.

``all_pages`` collects all pages of a list, and stops at servers whose pages never end. It knows neither methods nor
caches: the caller passes a function that fetches one page.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Raw, Struct

import trunkline.types as t
from trunkline.client.options import ClientSettings
from trunkline.errors import InvalidParams, LocalProtocolError, MethodNotFound, RemoteProtocolError, RequestFailed
from trunkline.protocol.caller import supports
from trunkline.protocol.downgrade import adapt_params
from trunkline.protocol.extensions import extensions_in
from trunkline.protocol.input_required import check_result_type
from trunkline.protocol.methods import MISNAMED_METHODS, Method, decode_params, decode_result
from trunkline.protocol.revisions import Feature, Revision
from trunkline.types import InputRequiredResult

__all__ = [
    "UNREADABLE",
    "ExtensionResult",
    "RequestHandlers",
    "UndeclaredCapability",
    "all_pages",
    "extra_capabilities",
    "progress_reporter",
    "read_result",
    "to_root",
]

#: The exceptions of a decoder for bytes that do not have the expected form.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


class ExtensionResult(Struct, frozen=True):
    """A result of a kind that an extension adds, undecoded."""

    kind: str
    raw: Raw

    @property
    def result_type(self) -> str:
        """The kind."""
        return self.kind


def read_result(row: Method, raw: Raw, revision: Revision, kinds: Container[tuple[str, str]] = ()) -> Any:
    """Decode the result of a method, or the ``InputRequiredResult`` that came instead.

    ``kinds`` are the further kinds of results, with their methods, that extensions add.

    Raises:
        RemoteProtocolError: it cannot be decoded, or its kind does not exist in this revision.
    """
    try:
        result = _decoder(row.result).decode(raw)
    except UNREADABLE:
        # A request for input lacks members that the answer must have.
        return _read_unusual(row, raw, revision, kinds)
    kind = result.result_type
    if kind is None or kind == "complete":
        return result
    return _read_unusual(row, raw, revision, kinds)


def _read_unusual(row: Method, raw: Raw, revision: Revision, kinds: Container[tuple[str, str]]) -> Any:
    try:
        kind = _decoder(t.Result).decode(raw).result_type
        if kind is not None and (row.name, kind) in kinds:
            return ExtensionResult(kind, raw)
        result = decode_result(row, raw)
    except UNREADABLE as error:
        raise RemoteProtocolError(f"The result of {row.name} cannot be decoded: {error}") from error
    if isinstance(result, InputRequiredResult):
        if Feature.INPUT_REQUIRED not in revision.features:
            raise RemoteProtocolError(f"The server asked for input, but {revision.name} has no such result.")
        return result
    # Where results have no kinds, the member is a custom one.
    return check_result_type(result) if revision.result_type else result


class UndeclaredCapability(RequestFailed):
    """A request that needs a capability this client did not declare."""

    def __init__(self, failure: RequestFailed, capability: str) -> None:
        """Store the error to answer with, and the capability as a dotted path."""
        super().__init__(failure.message, code=failure.code, data=failure.data)
        self.capability = capability


class RequestHandlers:
    """The server requests that one client can handle in one revision."""

    __slots__ = ("_methods", "_revision", "_settings", "capabilities")

    def __init__(self, settings: ClientSettings, revision: Revision, methods: Mapping[str, Method]) -> None:
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
            hint = f"; it is called {MISNAMED_METHODS[method]}" if method in MISNAMED_METHODS else ""
            raise MethodNotFound(f"Method not found: {method}{hint}", data={"method": method})
        if row.capability is not None and not supports(self.capabilities, row.capability):
            failure = MethodNotFound(
                f"Method not found: {method}; this client did not declare {row.capability}", data={"method": method}
            )
            raise UndeclaredCapability(failure, row.capability)
        try:
            question = decode_params(row, params)
        except UNREADABLE as error:
            raise InvalidParams(f"Invalid params: {error}") from error
        for needed in extra_capabilities(method, question):
            if not supports(self.capabilities, needed):
                raise UndeclaredCapability(
                    InvalidParams(f"Invalid params: this client did not declare {needed}"), needed
                )
        return question

    async def answer(self, method: str, question: Any) -> Struct:
        """Call the callback for a validated request and return its result as this revision may see it."""
        if method == "sampling/createMessage":
            answer: Struct = _sampling_result(await _call_back(self._settings.sampling, question), self._settings)
        elif method == "elicitation/create":
            answer = _elicitation_result(await _call_back(self._settings.elicitation, question), question)
        elif method == "roots/list":
            answer = t.ListRootsResult(roots=[to_root(root) for root in await self._roots()])
        else:
            answer = t.EmptyResult()
        shaped: Struct = adapt_params(answer, self._revision)
        return shaped

    async def _roots(self) -> list[Any]:
        roots = self._settings.roots
        return list(await _call_back(roots) if callable(roots) else roots)


async def _call_back(callback: Any, *question: Any) -> Any:
    outcome = callback(*question)
    return await outcome if hasattr(outcome, "__await__") else outcome


def _capabilities(settings: ClientSettings, revision: Revision) -> dict[str, Any]:
    """Return the capabilities that have a callback, as the revision names them."""
    sampling = elicitation = roots = None
    if settings.sampling is not None:
        sampling = t.SamplingCapability(tools={} if settings.sampling_tools else None)
    if settings.elicitation is not None:
        elicitation = t.ElicitationCapability(form={}, url={} if settings.elicitation_urls else None)
    if settings.roots is not None:
        roots = t.RootsCapability(list_changed=True)
    declared = t.ClientCapabilities(
        experimental=settings.experimental,
        sampling=sampling,
        elicitation=elicitation,
        roots=roots,
        tasks=_tasks_capability(settings),
        extensions=extensions_in(revision, settings.extensions, settings.extension_objects) or None,
    )
    capabilities: dict[str, Any] = msgspec.to_builtins(adapt_params(declared, revision))
    return capabilities


def _tasks_capability(settings: ClientSettings) -> dict[str, Any] | None:
    """Return the requests of the server that may become tasks here, for revisions with tasks in their core."""
    requests: dict[str, Any] = {}
    if settings.sampling is not None:
        requests["sampling"] = {"createMessage": {}}
    if settings.elicitation is not None:
        requests["elicitation"] = {"create": {}}
    if not requests or not settings.received_tasks:
        return None
    return {"list": {}, "cancel": {}, "requests": requests}


def _wants_page(question: t.ElicitRequestParams) -> bool:
    return question.mode == "url"


def _wants_tools(question: t.CreateMessageRequestParams) -> bool:
    return question.tools is not None or question.tool_choice is not None


def extra_capabilities(method: str, question: Any) -> list[str]:
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


def _sampling_result(given: Any, settings: ClientSettings) -> t.CreateMessageResult:
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


def _elicitation_result(given: Any, question: t.ElicitRequestParams) -> t.ElicitResult:
    if isinstance(given, t.ElicitResult):
        result = given
    elif given is None or given is False:
        result = t.ElicitResult(action="decline")
    else:
        content = None if given is True and not _is_yes_or_no(question) else _content(given, question)
        result = t.ElicitResult(action="accept", content=content)
    if result.action != "accept" or question.mode == "url":
        return t.ElicitResult(action=result.action, meta=result.meta)
    content = _validated_form(result.content or {}, question.requested_schema or {})
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


def _validated_form(content: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    from trunkline.protocol.json_schema import SchemaError, apply_defaults, compile_schema

    try:
        validator = compile_schema(schema)
    except SchemaError as error:
        raise InvalidParams(f"Invalid params: requestedSchema: {error}") from error
    filled: dict[str, Any] = apply_defaults(schema, content)
    problem = validator.first_violation(filled)
    if problem is not None:
        raise LocalProtocolError(
            f"The answer does not match the form at {problem.path or 'the root'}: {problem.message}"
        )
    return filled


# --- roots -----------------------------------------------------------------------------------------------------------


def to_root(root: Any) -> t.Root:
    """Convert a path or a ``file:`` URI to a ``Root``."""
    if isinstance(root, t.Root):
        return root
    if isinstance(root, str) and root.startswith("file:"):
        return t.Root(uri=root)
    from pathlib import Path

    path = Path(root).absolute()
    return t.Root(uri=path.as_uri(), name=path.name or None)


def progress_reporter(
    notify: Callable[..., None], callback: Callable[..., Any]
) -> Callable[[t.ProgressNotificationParams], None]:
    """Return a function that passes progress to a callback, the same progress once: a task's status repeats it."""
    last: tuple[Any, ...] | None = None

    def report(params: t.ProgressNotificationParams) -> None:
        nonlocal last
        progress = (params.progress, params.total, params.message)
        if progress != last:
            last = progress
            notify(callback, *progress)

    return report


async def all_pages(fetch: Callable[[str | None], Awaitable[Any]], member: str, *, limit: int) -> list[Any]:
    """Fetch page after page until one has no cursor, and concatenate their lists, found under ``member``.

    Raises:
        RemoteProtocolError: a cursor was repeated, or there are more pages than the limit.
    """
    found: list[Any] = []
    seen: set[str] = set()
    cursor: str | None = None
    for _ in range(limit):
        page = await fetch(cursor)
        found += getattr(page, member)
        cursor = page.next_cursor
        # Only absence ends a list: the empty string is a cursor like any other.
        if cursor is None:
            return found
        if cursor in seen:
            raise RemoteProtocolError(f"The server repeated the cursor {cursor!r}: its list would never end.")
        seen.add(cursor)
    raise RemoteProtocolError(f"The server's list has more than {limit} pages, which is the limit.")
