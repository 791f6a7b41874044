"""Types that people write and that msgspec alone does not read as they come: accepted, or refused with a reason."""

import collections
import collections.abc
import datetime
import enum
import typing
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.server.kinds import First, Second
from trunkline import Client, Server


class Mixed(enum.Enum):
    NAME = "a"
    NUMBER = 1


class Plain:
    x: int
    y: str

    def __init__(self, x: int) -> None:
        self.x, self.y = x, "why"


async def bound(annotation: Any, sent: Any) -> Any:
    """Return what a tool is given for an argument of this type."""
    given: list[Any] = []

    def tool(a: Any) -> None:
        given.append(a)

    tool.__annotations__ = {"a": annotation}
    server = Server("types")
    server.add_tool(tool)
    async with Client(server) as client:
        await client.list_tools()
        await client.call_tool("tool", {"a": sent})
    return given[0]


@pytest.mark.parametrize(
    ("annotation", "sent", "expected"),
    [
        (typing.List, [1, "a"], [1, "a"]),  # noqa: UP006 - what people write
        (typing.Dict, {"a": 1}, {"a": 1}),  # noqa: UP006
        (typing.Tuple, [1, 2], (1, 2)),  # noqa: UP006
        (typing.Optional[typing.List], None, None),  # noqa: UP006, UP045
        (str | Path, "a/b", "a/b"),
        (str | Path | None, None, None),
        (str | datetime.datetime, "soon", "soon"),
        (str | uuid.UUID, "x", "x"),
        (str | bytes, "x", "x"),
        (bytes | bytearray | memoryview | str | int, "x", "x"),
        (list[str] | list[int], [1, 2], [1, 2]),
        (list[str] | list[int], ["a"], ["a"]),
        (Mixed, "a", Mixed.NAME),
        (Mixed, 1, Mixed.NUMBER),
        (First | Second, {"b": 2}, Second(2)),
        (collections.OrderedDict[str, int], {"a": 1}, collections.OrderedDict(a=1)),
        (collections.deque, [1], collections.deque([1])),
        (datetime.timedelta, 90, datetime.timedelta(seconds=90)),
        (datetime.timedelta, 0.5, datetime.timedelta(seconds=0.5)),
        (bool, 1, True),
        (bool, 0, False),
        (int | bool, 1, 1),
    ],
)
async def test_what_every_peer_accepts_is_accepted(annotation: Any, sent: Any, expected: Any) -> None:
    found = await bound(annotation, sent)

    assert (found, type(found)) == (expected, type(expected))


async def test_an_iterable_can_be_iterated() -> None:
    assert list(await bound(collections.abc.Iterable[int], [1, 2])) == [1, 2]


@pytest.mark.parametrize(
    ("annotation", "name"),
    [(Plain, "Plain"), (collections.abc.Coroutine[Any, Any, int], "Coroutine"), (type, "type")],
)
def test_what_cannot_be_sent_is_refused_at_registration_with_the_functions_own_line(annotation: Any, name: str) -> None:
    def tool(thing: Any) -> None: ...

    tool.__annotations__ = {"thing": annotation}

    with pytest.raises(TypeError, match=f"'thing': {name} cannot be read from JSON") as caught:
        Server("types").add_tool(tool)

    assert caught.value.__notes__ == [f"defined in {__file__}, line {tool.__code__.co_firstlineno}"]


async def returned(value: Any, annotation: Any = None) -> Any:
    def tool() -> Any:
        return value

    tool.__annotations__ = {} if annotation is None else {"return": annotation}
    server = Server("types")
    server.add_tool(tool)
    async with Client(server) as client:
        listed = (await client.list_tools())[0]
        return listed.output_schema, await client.call_tool("tool")


async def test_an_object_of_an_annotated_class_is_a_record_of_its_attributes() -> None:
    schema, result = await returned(Plain(1), Plain)

    assert schema["properties"] == {"x": {"type": "integer"}, "y": {"type": "string"}}
    assert result.data == {"x": 1, "y": "why"}


async def test_an_awaited_annotation_describes_what_it_gives() -> None:
    schema, result = await returned(3, collections.abc.Coroutine[Any, Any, int])

    assert (schema["properties"], result.data) == ({"result": {"type": "integer"}}, 3)


async def test_keys_that_are_no_text_become_text() -> None:
    assert (await returned({(1, 2): 3}, dict))[1].data == {"1,2": 3}
    assert (await returned({(1, 2): 3}))[1].data == {"1,2": 3}


async def test_a_number_that_json_lacks_is_null_where_nothing_is_promised() -> None:
    assert (await returned({"a": float("nan")}))[1].data == {"a": None}
