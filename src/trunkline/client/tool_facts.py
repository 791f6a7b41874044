"""What a client has learnt of a server's tools from their list: output schemas, wrappers, headers, what is repeatable.

A tool whose result is no object has it wrapped as ``{"result": …}`` by revisions that want an object, and its output
schema shows that; here it is taken out again, so that a caller sees the same value whatever the revision.
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
# A mark some servers put on such schemas.
_WRAP_MARK = "x-fastmcp-wrap-result"


class CallResult(Struct, frozen=True, kw_only=True):
    """What a tool answered."""

    #: The structured value, taken out of its wrapper; None if there is none.
    data: Any
    content: list[ContentBlock]
    #: The structured value as it came; None if there is none.
    structured_content: Any
    is_error: bool
    meta: dict[str, Any] | None

    @property
    def text(self) -> str:
        """The text blocks, joined by line breaks."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))

    def raise_for_error(self) -> CallResult:
        """Give the result back unless the tool says that it failed.

        Raises:
            ToolError: it does; the text is its message.
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
        """The arguments that headers repeat, or why the schema that says so is no good."""
        if self._headers is UNSET:
            try:
                self._headers = header_parameters(self.tool.input_schema)
            except ValueError as error:
                self._headers = error
                log.warning("the tool %r cannot be used over HTTP: %s", self.tool.name, error)
        found: tuple[HeaderParameter, ...] | ValueError = self._headers
        return found

    def problem(self, value: Any) -> str | None:
        """Say where a value does not fit the output schema; a schema that cannot be used finds no fault."""
        if self._validator is UNSET:
            self._validator = _compile(self.schema)
        found = None if self._validator is None else self._validator.first_problem(value)
        return None if found is None else f"{found.path or 'the whole'}: {found.message}"


class ToolFacts:
    """The tools of one server, as far as they were listed."""

    __slots__ = ("_facts", "asked", "complete", "epoch")

    def __init__(self) -> None:
        """Know nothing."""
        self._facts: dict[str, _Fact] = {}
        #: Whether the whole list was seen: a tool without a fact has none to learn.
        self.complete = False
        #: Whether the list was asked for, with or without success, to learn what a call needs.
        self.asked = False
        #: How often all was forgotten.
        self.epoch = 0

    def learn(self, tools: Iterable[Tool]) -> None:
        """Take in a page of the list."""
        for tool in tools:
            known = self._facts.get(tool.name)
            # A page that was kept brings the same objects again, and a compiled schema is worth keeping.
            if known is None or known.tool is not tool:
                self._facts[tool.name] = _Fact(tool)

    def forget(self) -> None:
        """Know nothing again: the list changed."""
        self._facts.clear()
        self.complete = False
        self.asked = False
        self.epoch += 1

    def knows(self, name: str) -> bool:
        """Tell whether there is nothing more to learn of a tool."""
        return self.complete or name in self._facts

    def repeatable(self, name: str) -> bool:
        """Tell whether the server marked a tool as one that may be called twice with the effect of once."""
        fact = self._facts.get(name)
        return fact is not None and fact.repeatable

    def usable(self, tools: Sequence[Tool]) -> list[Tool]:
        """Leave out the tools whose header annotations break the rules.

        Streamable HTTP, Schema Extension: a client must leave them out of the list, and should say so in its log.
        """
        return [tool for tool in tools if not isinstance(self._facts[tool.name].headers, ValueError)]

    def mirrored(self, name: str, arguments: Raw | None) -> dict[str, str] | None:
        """Make the headers of a call that repeats arguments in them; None if it repeats none.

        Raises:
            LocalProtocolError: an argument cannot travel in a header, or the tool's annotations break the rules.
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
        """Give a tool's answer as its caller wants it.

        Raises:
            RemoteProtocolError: the structured value does not fit the tool's output schema, or is missing.
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
    """Tell whether a structured value could be one in a wrapper; only the tool's schema can say for sure."""
    return type(structured) is dict and len(structured) == 1 and "result" in structured


def _wraps(schema: dict[str, Any]) -> bool:
    if schema.get(_WRAP_MARK) is True:
        return True
    properties = schema.get("properties")
    only_result = isinstance(properties, dict) and list(properties) == ["result"]
    return schema.get("type") == "object" and only_result and schema.get("required") == ["result"]


def _check(name: str, fact: _Fact, structured: Any) -> None:
    if structured is UNSET:
        raise RemoteProtocolError(f"The tool {name!r} has an output schema but answered without a structured value.")
    problem = fact.problem(structured)
    if problem is not None:
        raise RemoteProtocolError(f"The answer of the tool {name!r} does not fit its output schema: {problem}")


def _compile(schema: dict[str, Any] | None) -> Any:
    from trunkline.protocol.json_schema import SchemaError, compile_schema

    try:
        return None if schema is None else compile_schema(schema)
    except SchemaError as error:
        log.warning("an output schema cannot be used, so results are not checked: %s", error)
        return None
