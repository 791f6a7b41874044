"""Caches of a client: results that the server allowed to be cached, and what the list of its tools says of each tool.

A result is kept for as long as the server declared it fresh. It is stored under its method and the one parameter that
matters (a cursor or a URI). Public and private results are stored alike, since one client is one authorization context.
A change notification invalidates what it concerns at once, including results still on their way: an answer requested
before the notification is not stored. Time comes in as an argument.

Of each tool its output schema, wrapper, headers and idempotence are known from the list. A tool whose result is not an
object has it wrapped as ``{"result": …}`` in revisions that require an object, and its output schema shows that; it is
unwrapped here, so that a caller sees the same value in every revision.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from trunkline.errors import LocalProtocolError, RemoteProtocolError, ToolError
from trunkline.protocol.downgrade import WRAP_MARK
from trunkline.protocol.headers import HeaderParameter, build_headers, header_parameters
from trunkline.types import CallToolResult, ContentBlock, TextContent, Tool

__all__ = ["INVALIDATED_BY", "CallResult", "ResponseCache", "ToolCache", "looks_wrapped", "names_tasks"]

#: By notification: the methods whose cached results it invalidates.
INVALIDATED_BY = MappingProxyType(
    {
        "notifications/tools/list_changed": ("tools/list",),
        "notifications/prompts/list_changed": ("prompts/list",),
        "notifications/resources/list_changed": (
            "resources/list",
            "resources/templates/list",
            # The extension has no notification of its own: its files are resources.
            "skills/list",
            "skills/get",
        ),
        "notifications/resources/updated": ("resources/read",),
    }
)


class _Entry(Struct):
    result: Any
    until: float


class ResponseCache:
    """The fresh results of one client, oldest first."""

    __slots__ = ("_entries", "_epochs", "_limit")

    def __init__(self, limit: int) -> None:
        """Store at most ``limit`` results; a limit of 0 disables the cache."""
        self._limit = limit
        self._entries: dict[tuple[str, str | None], _Entry] = {}
        self._epochs: dict[str, int] = {}

    def get(self, method: str, key: str | None, *, now: float) -> Any:
        """Return a result that is still fresh, or None."""
        entry = self._entries.get((method, key))
        if entry is None:
            return None
        if now >= entry.until:
            del self._entries[method, key]
            return None
        return entry.result

    def epoch(self, method: str) -> int:
        """Return how often the results of a method were invalidated; ``put`` needs the value before the request."""
        return self._epochs.get(method, 0)

    def put(self, method: str, key: str | None, result: Any, *, epoch: int, now: float) -> None:
        """Store a result for its declared lifetime, unless it was invalidated on its way."""
        ttl_ms = getattr(result, "ttl_ms", None)
        if not ttl_ms or ttl_ms < 0 or self._limit <= 0 or epoch != self.epoch(method):
            return
        self._entries.pop((method, key), None)
        if len(self._entries) >= self._limit:
            del self._entries[next(iter(self._entries))]
        self._entries[method, key] = _Entry(result, now + ttl_ms / 1000)

    def forget(self, method: str, key: str | None = None) -> None:
        """Invalidate the results of a method: the one under ``key``, or all."""
        self._epochs[method] = self.epoch(method) + 1
        stale = [kept for kept in self._entries if kept[0] == method and key in (None, kept[1])]
        for kept in stale:
            del self._entries[kept]

    def invalidate_for(self, notification: str, uri: str | None = None) -> None:
        """Invalidate the results that a notification concerns."""
        for method in INVALIDATED_BY.get(notification, ()):
            self.forget(method, uri)

    def has(self, method: str) -> bool:
        """Return True if any result of the method is cached."""
        return any(kept[0] == method for kept in self._entries)

    def clear(self) -> None:
        """Invalidate everything: the server was restarted."""
        self._entries.clear()
        for method in {method for methods in INVALIDATED_BY.values() for method in methods}:
            self._epochs[method] = self.epoch(method) + 1

    def __len__(self) -> int:
        """Return the number of stored results, including expired ones not yet evicted."""
        return len(self._entries)


log = logging.getLogger("trunkline")
# How the text of an object, an array, a number or a boolean begins; a text in quotation marks is left alone.
_JSON_STARTS = ("{", "[", "-", "true", "false", *"0123456789")


class CallResult(Struct, frozen=True, kw_only=True):
    """The result of a tool call."""

    #: The structured value, unwrapped; None if there is none. In revisions without structured content it is read from
    #: the text, if that is one block of JSON.
    data: Any
    content: list[ContentBlock]
    #: The structured value as received; None if there is none.
    structured_content: Any
    is_error: bool
    meta: dict[str, Any] | None

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))

    def raise_for_error(self) -> CallResult:
        """Return the result unless the tool reported a failure.

        Raises:
            ToolError: it did; the text of the result is the message.
        """
        if self.is_error:
            raise ToolError(self.text, result=self)
        return self


class _CachedTool:
    __slots__ = ("_headers", "_validator", "repeatable", "schema", "tool", "wrapped")

    def __init__(self, tool: Tool) -> None:
        hints = tool.annotations
        self.tool = tool
        self.schema = tool.output_schema
        self.wrapped = tool.output_schema is not None and _wraps(tool.output_schema)
        self.repeatable = hints is not None and (hints.idempotent_hint is True or hints.read_only_hint is True)
        self._validator: Any = UNSET
        self._headers: Any = UNSET

    @property
    def headers(self) -> tuple[HeaderParameter, ...] | ValueError:
        """The arguments that headers mirror, or the error in the schema that declares them."""
        if self._headers is UNSET:
            try:
                self._headers = header_parameters(self.tool.input_schema)
            except ValueError as error:
                self._headers = error
                log.warning("the tool %r cannot be used over HTTP: %s", self.tool.name, error)
        found: tuple[HeaderParameter, ...] | ValueError = self._headers
        return found

    def problem(self, value: Any) -> str | None:
        """Return where a value violates the output schema; an unusable schema has no violations."""
        if self._validator is UNSET:
            self._validator = _compile(self.schema)
        found = None if self._validator is None else self._validator.first_violation(value)
        return None if found is None else f"{found.path or 'the root'}: {found.message}"


class ToolCache:
    """The tools of one server, as far as they were listed."""

    __slots__ = ("_tools", "asked", "complete", "epoch")

    def __init__(self) -> None:
        """Start empty."""
        self._tools: dict[str, _CachedTool] = {}
        #: Whether the whole list was seen: a tool that is not here has no schema to learn.
        self.complete = False
        #: Whether the list was requested, with or without success, to learn what a call needs.
        self.asked = False
        #: How often the cache was cleared.
        self.epoch = 0

    def add(self, tools: Iterable[Tool]) -> None:
        """Add a page of the list."""
        for tool in tools:
            known = self._tools.get(tool.name)
            # A cached page contains the same objects again, and a compiled schema is worth keeping.
            if known is None or known.tool is not tool:
                self._tools[tool.name] = _CachedTool(tool)

    def forget(self) -> None:
        """Clear the cache: the list changed."""
        self._tools.clear()
        self.complete = False
        self.asked = False
        self.epoch += 1

    def has(self, name: str) -> bool:
        """Return True if the list has nothing more to say about a tool."""
        return self.complete or name in self._tools

    def repeatable(self, name: str) -> bool:
        """Return True if the server declared the tool idempotent or read-only, so that repeating a call is safe."""
        fact = self._tools.get(name)
        return fact is not None and fact.repeatable

    def allows_task(self, name: str) -> bool:
        """Return True if the server declared that the tool may be called as a task."""
        return self._task_support(name) in ("optional", "required")

    def needs_task(self, name: str) -> bool:
        """Return True if the server declared that the tool must be called as a task."""
        return self._task_support(name) == "required"

    def _task_support(self, name: str) -> str | None:
        fact = self._tools.get(name)
        execution = None if fact is None else fact.tool.execution
        return None if execution is None else execution.task_support

    def usable(self, tools: Sequence[Tool]) -> list[Tool]:
        """Filter out the tools whose header annotations are invalid.

        Streamable HTTP, Schema Extension: a client must leave them out of the list, and should log that.
        """
        return [tool for tool in tools if not isinstance(self._tools[tool.name].headers, ValueError)]

    def mirrored_headers(self, name: str, arguments: Raw | None) -> dict[str, str] | None:
        """Build the headers of a call that mirrors arguments in them; None if it mirrors none.

        Raises:
            LocalProtocolError: an argument cannot be sent in a header, or the tool's annotations are invalid.
        """
        fact = self._tools.get(name)
        parameters = () if fact is None else fact.headers
        if not parameters:
            return None
        try:
            if isinstance(parameters, ValueError):
                raise parameters
            values = None if arguments is None else msgspec.json.decode(arguments)
            return build_headers("tools/call", name, arguments=values, parameters=parameters)
        except ValueError as error:
            raise LocalProtocolError(f"The tool {name!r} cannot be called over HTTP: {error}") from error

    def read(self, name: str, result: CallToolResult, *, validate: bool, structured_content: bool = True) -> CallResult:
        """Convert a tool's result for the caller; ``structured_content`` says whether the revision has it.

        Raises:
            RemoteProtocolError: the structured value violates the tool's output schema, or is missing.
        """
        structured = None if result.structured_content is UNSET else result.structured_content
        is_error = result.is_error is True
        fact = self._tools.get(name)
        data = structured
        if fact is not None and fact.schema is not None and not is_error:
            if validate:
                _check(name, fact, result.structured_content)
            if fact.wrapped and isinstance(structured, dict) and looks_wrapped(structured):
                data = structured["result"]
        if not structured_content and structured is None and not is_error:
            data = _value_of_text(result.content)
        return CallResult(
            data=data, content=result.content, structured_content=structured, is_error=is_error, meta=result.meta
        )


def _value_of_text(content: Sequence[ContentBlock]) -> Any:
    """Return the JSON value that a tool returned as text, as servers do in revisions without structured content.

    A text that is no JSON is no structured value.
    """
    only = content[0] if len(content) == 1 else None
    if not isinstance(only, TextContent) or not only.text.startswith(_JSON_STARTS):
        return None
    try:
        return msgspec.json.decode(only.text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def looks_wrapped(structured: Any) -> bool:
    """Return True if a structured value could be a wrapped one; only the tool's schema can tell for sure."""
    return type(structured) is dict and len(structured) == 1 and "result" in structured


def names_tasks(result: CallToolResult) -> bool:
    """Return True if the text of a result mentions tasks.

    In this way the official SDKs 1.x report that a tool must be called as a task, each in its own words; the
    specification requires an error response.
    """
    return any(isinstance(each, TextContent) and "task" in each.text.lower() for each in result.content)


def _wraps(schema: dict[str, Any]) -> bool:
    if schema.get(WRAP_MARK) is True:
        return True
    properties = schema.get("properties")
    only_result = isinstance(properties, dict) and list(properties) == ["result"]
    return schema.get("type") == "object" and only_result and schema.get("required") == ["result"]


def _check(name: str, fact: _CachedTool, structured: Any) -> None:
    if structured is UNSET:
        raise RemoteProtocolError(f"The tool {name!r} has an output schema but returned no structured content.")
    problem = fact.problem(structured)
    if problem is not None:
        raise RemoteProtocolError(f"The result of the tool {name!r} does not match its output schema: {problem}")


def _compile(schema: dict[str, Any] | None) -> Any:
    from trunkline.protocol.json_schema import SchemaError, compile_schema

    try:
        return None if schema is None else compile_schema(schema)
    except SchemaError as error:
        log.warning("an output schema is unusable, so results are not validated: %s", error)
        return None
