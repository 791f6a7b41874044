"""One tool has one shape: its result and its output schema are the same in every revision that has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jsonschema_rs
import pytest

from trunkline import Client, Server, ToolResult
from trunkline.protocol.revisions import NEWEST, REVISIONS, Feature

#: The revisions with structured results: of the handshake era first, the stateless one last.
STRUCTURED = [each.name for each in REVISIONS if Feature.STRUCTURED_CONTENT in each.features]
ONE = pytest.mark.parametrize("revision", STRUCTURED)


@dataclass
class Point:
    x: int


async def number() -> int:
    return 3


async def text() -> str:
    return "yes"


async def points() -> list[Point]:
    return [Point(1)]


async def either(first: bool = True) -> Point | int:
    return Point(1) if first else 2


async def maybe(there: bool = True) -> Point | None:
    return Point(1) if there else None


async def point() -> Point:
    return Point(1)


async def by_hand() -> list[int]:
    return [1]


async def untyped() -> Any:
    return ToolResult(structured_content=[1, 2])


CASES: list[tuple[Any, dict[str, Any], Any]] = [
    (number, {}, {"result": 3}),
    (text, {}, {"result": "yes"}),
    (points, {}, {"result": [{"x": 1}]}),
    (either, {}, {"result": {"x": 1}}),
    (either, {"first": False}, {"result": 2}),
    (maybe, {}, {"result": {"x": 1}}),
    (maybe, {"there": False}, {"result": None}),
    (point, {}, {"x": 1}),
    (untyped, {}, {"result": [1, 2]}),
]
IDS = [f"{function.__name__}{'-other' if arguments else ''}" for function, arguments, _ in CASES]


async def seen(server: Server, revision: str, arguments: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return the output schema, the structured content and the value in it, as a client of a revision sees them."""
    async with Client(server, revision=revision) as client:
        (tool,) = await client.list_tools()
        result = await client.call_tool(tool.name, arguments)
        return tool.output_schema, result.structured_content, result.data


@ONE
@pytest.mark.parametrize(("function", "arguments", "structured"), CASES, ids=IDS)
async def test_a_result_has_one_shape_in_every_revision(
    revision: str, function: Any, arguments: dict[str, Any], structured: Any
) -> None:
    server = Server("s", tools=[function])
    schema, content, data = await seen(server, revision, arguments)
    assert (content, data) == (structured, structured.get("result", structured) if schema else structured)
    # An untyped tool has no schema; every other schema describes what is sent, and is the same in both eras.
    assert schema is None or jsonschema_rs.is_valid(schema, content)
    assert schema == (await seen(server, NEWEST.name, arguments))[0]


@ONE
async def test_a_given_schema_is_wrapped_like_its_value(revision: str) -> None:
    server = Server("s")
    server.add_tool(by_hand, output_schema={"type": "array", "items": {"type": "integer"}})
    schema, content, data = await seen(server, revision, {})
    assert (schema["type"], content, data) == ("object", {"result": [1]}, [1])


@pytest.mark.parametrize("how", ["tool", "server"])
async def test_the_bare_form_is_an_option_where_the_revision_has_it(how: str) -> None:
    server = Server("s", wrap_results=how == "tool")
    server.add_tool(either, wrap_result=False if how == "tool" else None)
    *older, newest = STRUCTURED
    schema, content, data = await seen(server, newest, {})
    assert (schema.get("type"), content, data) == (None, {"x": 1}, {"x": 1})
    assert (await seen(server, newest, {"first": False}))[1] == 2
    for revision in older:
        # These revisions demand an object, whatever the option says.
        schema, content, _ = await seen(server, revision, {})
        assert (schema["type"], content) == ("object", {"result": {"x": 1}})


async def test_a_tool_may_wrap_on_a_server_that_does_not() -> None:
    server = Server("s", wrap_results=False)
    server.add_tool(number, wrap_result=True)
    assert (await seen(server, NEWEST.name, {}))[1] == {"result": 3}


@ONE
async def test_a_mounted_tool_keeps_the_shape_of_its_own_server(revision: str) -> None:
    outer = Server("outer", wrap_results=False)
    outer.mount(Server("inner", tools=[number]), prefix="in")
    assert (await seen(outer, revision, {}))[1] == {"result": 3}


@ONE
async def test_an_error_with_structured_details_is_wrapped_only_if_they_are_not_an_object(revision: str) -> None:
    async def fails(kind: str) -> int:
        details: Any = {"code": 1} if kind == "object" else [1]
        return ToolResult("no", structured_content=details, is_error=True)  # type: ignore[return-value]

    async with Client(Server("s", tools=[fails]), revision=revision) as client:
        for kind, sent in (("object", {"code": 1}), ("list", {"result": [1]})):
            result = await client.call_tool("fails", {"kind": kind}, raise_on_error=False)
            assert (result.is_error, result.structured_content) == (True, sent)
