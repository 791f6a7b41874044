"""What a client knows of a server's tools from their list: output schemas, wrappers, headers, idempotence.

A tool whose result is not an object has it wrapped as ``{"result": …}`` in revisions that require an object, and its
output schema shows that; it is unwrapped here, so that a caller sees the same value in every revision.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from trunkline.errors import LocalProtocolError, RemoteProtocolError, ToolError
from trunkline.protocol.headers import HeaderParameter, build, header_parameters
from trunkline.types import CallToolResult, ContentBlock, TextContent, Tool

__all__ = ["CallResult", "ToolFacts", "looks_wrapped"]

log = logging.getLogger("trunkline")
# An annotation that some servers put on such schemas.
_WRAP_MARK = "x-fastmcp-wrap-result"


class CallResult(Struct, frozen=True, kw_only=True):
    """The result of a tool call."""

    #: The structured value, unwrapped; None if there is none.
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


class _Fact:
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
        found = None if self._validator is None else self._validator.first_problem(value)
        return None if found is None else f"{found.path or 'the root'}: {found.message}"


class ToolFacts:
    """The tools of one server, as far as they were listed."""

    __slots__ = ("_facts", "asked", "complete", "epoch")

    def __init__(self) -> None:
        """Start empty."""
        self._facts: dict[str, _Fact] = {}
        #: Whether the whole list was seen: a tool that is not here has no schema to learn.
        self.complete = False
        #: Whether the list was requested, with or without success, to learn what a call needs.
        self.asked = False
        #: How often the cache was cleared.
        self.epoch = 0

    def learn(self, tools: Iterable[Tool]) -> None:
        """Add a page of the list."""
        for tool in tools:
            known = self._facts.get(tool.name)
            # A cached page contains the same objects again, and a compiled schema is worth keeping.
            if known is None or known.tool is not tool:
                self._facts[tool.name] = _Fact(tool)

    def forget(self) -> None:
        """Clear the cache: the list changed."""
        self._facts.clear()
        self.complete = False
        self.asked = False
        self.epoch += 1

    def knows(self, name: str) -> bool:
        """Return True if the list has nothing more to say about a tool."""
        return self.complete or name in self._facts

    def repeatable(self, name: str) -> bool:
        """Return True if the server declared the tool idempotent or read-only, so that repeating a call is safe."""
        fact = self._facts.get(name)
        return fact is not None and fact.repeatable

    def usable(self, tools: Sequence[Tool]) -> list[Tool]:
        """Filter out the tools whose header annotations are invalid.

        Streamable HTTP, Schema Extension: a client must leave them out of the list, and should log that.
        """
        return [tool for tool in tools if not isinstance(self._facts[tool.name].headers, ValueError)]

    def mirrored(self, name: str, arguments: Raw | None) -> dict[str, str] | None:
        """Build the headers of a call that mirrors arguments in them; None if it mirrors none.

        Raises:
            LocalProtocolError: an argument cannot be sent in a header, or the tool's annotations are invalid.
        """
        fact = self._facts.get(name)
        parameters = () if fact is None else fact.headers
        if not parameters:
            return None
        try:
            if isinstance(parameters, ValueError):
                raise parameters
            values = None if arguments is None else msgspec.json.decode(arguments)
            return build("tools/call", name, arguments=values, parameters=parameters)
        except ValueError as error:
            raise LocalProtocolError(f"The tool {name!r} cannot be called over HTTP: {error}") from error

    def read(self, name: str, result: CallToolResult, *, validate: bool) -> CallResult:
        """Convert a tool's result for the caller.

        Raises:
            RemoteProtocolError: the structured value violates the tool's output schema, or is missing.
        """
        structured = None if result.structured_content is UNSET else result.structured_content
        is_error = result.is_error is True
        fact = self._facts.get(name)
        data = structured
        if fact is not None and fact.schema is not None and not is_error:
            if validate:
                _check(name, fact, result.structured_content)
            if fact.wrapped and isinstance(structured, dict) and looks_wrapped(structured):
                data = structured["result"]
        return CallResult(
            data=data, content=result.content, structured_content=structured, is_error=is_error, meta=result.meta
        )


def looks_wrapped(structured: Any) -> bool:
    """Return True if a structured value could be a wrapped one; only the tool's schema can tell for sure."""
    return type(structured) is dict and len(structured) == 1 and "result" in structured


def _wraps(schema: dict[str, Any]) -> bool:
    if schema.get(_WRAP_MARK) is True:
        return True
    properties = schema.get("properties")
    only_result = isinstance(properties, dict) and list(properties) == ["result"]
    return schema.get("type") == "object" and only_result and schema.get("required") == ["result"]


def _check(name: str, fact: _Fact, structured: Any) -> None:
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
