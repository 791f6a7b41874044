"""Plain async functions are called by position, which is cheaper; all others by name. Both see the same arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from trunkline import Client, Server


async def plain(a: int, b: str = "x", c: list[int] | None = None) -> dict[str, Any]:
    return {"a": a, "b": b, "c": c}


async def with_keyword_only(a: int, *, b: str = "x", c: list[int] | None = None) -> dict[str, Any]:
    return {"a": a, "b": b, "c": c}


@functools.wraps(plain)
async def wrapped(*args: Any, **kwargs: Any) -> dict[str, Any]:
    assert not args
    return await plain(**kwargs)


class Holder:
    """Has a method that is a tool."""

    async def method(self, a: int, b: str = "x", c: list[int] | None = None) -> dict[str, Any]:
        """Return the arguments."""
        return {"a": a, "b": b, "c": c}


@pytest.mark.parametrize("function", [plain, with_keyword_only, wrapped, Holder().method])
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"a": 1}, {"a": 1, "b": "x", "c": None}),
        ({"c": [2], "a": 1}, {"a": 1, "b": "x", "c": [2]}),
        ({"b": "y", "c": None, "a": "7"}, {"a": 7, "b": "y", "c": None}),
    ],
)
async def test_arguments_arrive_in_their_parameters(
    function: Callable[..., Any], arguments: dict[str, Any], expected: dict[str, Any]
) -> None:
    server = Server("test")
    server.tool(name="tool")(function)
    async with Client(server) as client:
        assert (await client.call_tool("tool", arguments)).data == expected


async def test_a_mounted_tool_with_no_middleware_on_its_way_is_called_directly() -> None:
    outer, middle, inner = Server("outer"), Server("middle"), Server("inner")
    inner.tool(name="tool")(plain)
    middle.mount(inner, "in")
    outer.mount(middle, "mid")
    assert outer.table.calls_directly
    async with Client(outer) as client:
        assert (await client.call_tool("mid_in_tool", {"a": 1})).data == {"a": 1, "b": "x", "c": None}
        seen: list[str] = []

        async def note(request: Any, call_next: Any) -> Any:
            seen.append(request.params.name)
            return await call_next(request)

        middle.add_middleware(note)
        assert (await client.call_tool("mid_in_tool", {"a": 2})).data == {"a": 2, "b": "x", "c": None}
        assert len(seen) == 1
