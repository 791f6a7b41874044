"""The functions of an extension's notifications: called by the receiving side with validated arguments."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

from tests.extensions.alarm_program import ALARMS, SEEN, SET, alarms, server
from trunkline import Client, Context, Extension, Server
from trunkline.protocol.limits import Limits

REVISIONS = ["2024-11-05", "2025-11-25", "2026-07-28"]
each_revision = pytest.mark.parametrize("revision", REVISIONS)
PAIRS = [("2024-11-05", "sync"), ("2025-11-25", "async"), ("2026-07-28", "sync")]
PROGRAM = [sys.executable, "-m", "tests.extensions.alarm_program"]
PATIENCE = 60  # Seconds; a busy machine needs a while to start a process.


class Place(msgspec.Struct):
    """A record among the arguments."""

    room: str
    floor: int


class Person(pydantic.BaseModel):
    """The same, with pydantic."""

    name: str


@pytest.mark.parametrize(
    ("revision", "kind", "target"),
    [("2024-11-05", "async", "memory"), ("2025-11-25", "sync", "memory"), ("2026-07-28", "async", "stdio")],
)
async def test_the_client_calls_the_function(revision: str, kind: str, target: str) -> None:
    rung: asyncio.Queue[Any] = asyncio.Queue()
    extension = alarms()

    def rang(item: str, times: int = 1) -> None:
        rung.put_nowait((item, times))

    async def rang_later(item: str, times: int = 1) -> None:
        await asyncio.sleep(0)
        rang(item, times)

    extension.notification(SET, act="resource")(rang if kind == "sync" else rang_later)
    async with Client(server() if target == "memory" else PROGRAM, revision=revision, extensions=[extension]) as client:
        items = [{"item": "tea"}, {"item": "egg", "times": 3, "_meta": {"a": 1}}]
        await client.request("alarms/ring", {"items": items})
        async with asyncio.timeout(PATIENCE):
            assert [await rung.get(), await rung.get()] == [("tea", 1), ("egg", 3)]


@each_revision
async def test_arguments_have_the_annotated_types(revision: str) -> None:
    rung: list[Any] = []
    extension = alarms()

    @extension.notification(SET)
    def rang(place: Place, people: list[Person], anything, **rest: Any) -> None:  # type: ignore[no-untyped-def]
        rung.append((place, people, anything, rest))

    async with Client(server(), revision=revision, extensions=[extension]) as client:
        params = {"place": {"room": "hall", "floor": 2}, "people": [{"name": "Ada"}], "anything": [1], "more": True}
        await client.request("alarms/ring", {"items": [params]})
    assert rung == [(Place("hall", 2), [Person(name="Ada")], [1], {"more": True})]


async def test_a_function_may_take_the_params_as_a_whole_and_others_ignore_unknown_members() -> None:
    rung: list[Any] = []
    whole, positional, nothing = alarms(), alarms(), alarms()

    @whole.notification(SET)
    def all_of_it(params: dict[str, Any]) -> None:
        rung.append(params)

    positional.notification(SET)(lambda item, /: rung.append(item))
    nothing.notification(SET)(lambda: rung.append(None))
    for extension in (whole, positional, nothing):
        async with Client(server(), extensions=[extension]) as client:
            await client.request("alarms/ring", {"items": [{"item": "tea", "other": 1}]})
    assert rung == [{"item": "tea", "other": 1}, "tea", None]


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({}, "item"),
        ({"item": 5}, "item: Expected `str`, got `int`"),
        ({"item": "tea", "place": {"room": "hall", "floor": "two"}}, r"place: Expected `int`, got `str`"),
        ({"item": "tea", "person": {"name": 5}}, "person"),
        ({"item": 5, "x" * 10_000: 1}, "item"),
    ],
    ids=["missing", "wrong", "nested", "pydantic", "long"],
)
async def test_invalid_params_are_ignored_with_a_log_line(
    params: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    rung: list[str] = []
    extension = alarms()

    @extension.notification(SET)
    def rang(item: str, place: Place | None = None, person: Person | None = None) -> None:
        rung.append(item)

    async with Client(server(), extensions=[extension]) as client:
        await client.request("alarms/ring", {"items": [params, {"item": "egg"}]})
    assert rung == ["egg"]
    lines = [each.getMessage() for each in caplog.records if SET in each.getMessage()]
    assert [("ignored" in line, reason in line, len(line) < 1_000, "\n" in line) for line in lines] == [
        (True, True, True, False)
    ]


@pytest.mark.parametrize(("revision", "kind"), PAIRS)
async def test_a_function_that_raises_does_not_end_the_connection(
    revision: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    extension = alarms()
    calls: asyncio.Queue[str] = asyncio.Queue()

    def fail(item: str) -> None:
        calls.put_nowait(item)
        raise ValueError(f"no alarm for {item}")

    async def fail_later(item: str) -> None:
        fail(item)

    extension.notification(SET)(fail if kind == "sync" else fail_later)
    async with Client(server(), revision=revision, extensions=[extension]) as client:
        await client.request("alarms/ring", {"items": [{"item": "tea"}]})
        assert (await client.request("alarms/ring", {"items": [{"item": "egg"}]}))["rang"] == 1
        async with asyncio.timeout(PATIENCE):
            assert [await calls.get(), await calls.get()] == ["tea", "egg"]
        await client.ping()
    assert "no alarm for tea" in caplog.text


@each_revision
async def test_unfinished_functions_are_bounded(revision: str) -> None:
    extension = alarms()
    started: list[str] = []

    @extension.notification(SET)
    async def rang(item: str) -> None:
        started.append(item)
        await asyncio.Event().wait()

    async with Client(server(), revision=revision, extensions=[extension], limits=Limits(notices=2)) as client:
        await client.request("alarms/ring", {"items": [{"item": str(number)} for number in range(5)]})
        await client.ping()
        assert client.dropped == 3
    assert started == ["0", "1"]


@each_revision
async def test_only_a_server_that_declared_the_extension_calls_it(revision: str) -> None:
    rung: list[str] = []
    heard: list[str] = []
    extension = alarms()
    extension.notification(SET)(lambda item: rung.append(item))
    plain = Server("plain")

    @plain.tool
    async def ring(ctx: Context) -> str:
        """Send the notification without the extension."""
        await ctx.notify(SET, {"item": "tea"})
        return "rang"

    hear: Any = {"on_notification": lambda method, params: heard.append(method)}
    async with Client(plain, revision=revision, extensions=[extension], **hear) as client:
        await client.call_tool("ring")
    assert SET in heard
    assert rung == []


@each_revision
async def test_it_is_not_called_in_a_revision_before_the_first_one(revision: str) -> None:
    rung: list[str] = []
    extension = alarms(since="2025-11-25")
    extension.notification(SET)(lambda item: rung.append(item))
    # The server declares it in every revision.
    made = server(alarms())

    @made.tool
    async def ring(ctx: Context) -> str:
        """Send the notification as a server does that checks no declarations."""
        ctx._exchange.notify(SET, {"item": "tea"})
        return "rang"

    async with Client(made, revision=revision, extensions=[extension]) as client:
        await client.call_tool("ring")
    assert rung == ([] if revision < "2025-11-25" else ["tea"])


async def test_functions_of_the_servers_side_are_not_called_in_the_client() -> None:
    rung: list[str] = []
    extension = alarms()
    extension.notification(SET, receiver="server")(lambda item: rung.append(item))
    async with Client(server(), extensions=[extension]) as client:
        await client.request("alarms/ring", {"items": [{"item": "tea"}]})
    assert rung == []


async def test_both_the_function_and_on_notification_are_called() -> None:
    order: list[str] = []
    extension = alarms()
    extension.notification(SET)(lambda item: order.append(item))
    hear: Any = {"on_notification": lambda method, params: order.append(f"{method} {params['item']}")}
    async with Client(server(), extensions=[extension], **hear) as client:
        await client.request("alarms/ring", {"items": [{"item": "tea"}]})
    assert order == [f"{SET} tea", "tea"]


def unknown_annotation(item: Missing) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Never called."""


def annotation_without_json(item: Place | Client) -> None:
    """Never called."""


@pytest.mark.parametrize(("function", "error"), [(unknown_annotation, NameError), (annotation_without_json, TypeError)])
def test_an_annotation_that_cannot_be_validated_is_reported_when_the_client_is_created(
    function: Any, error: type[Exception]
) -> None:
    extension = Extension(ALARMS)
    extension.notification(SET)(function)
    with pytest.raises(error) as raised:
        Client(Server("s"), extensions=[extension])
    assert SET in raised.value.__notes__[0]


class Siren:
    """An object that can be called."""

    def __init__(self) -> None:
        """Start silent."""
        self.rang: list[Any] = []

    def __call__(self, times: int, item: Annotated[str, msgspec.Meta(max_length=9)] = "") -> None:
        """Ring."""
        self.rang.append((times, item))


async def test_partial_functions_and_callable_objects_are_validated_too(caplog: pytest.LogCaptureFixture) -> None:
    siren = Siren()
    for function in (siren, partial(siren, item="tea")):
        extension = alarms()
        extension.notification(SET)(function)
        async with Client(server(), extensions=[extension]) as client:
            await client.request("alarms/ring", {"items": [{"times": "two"}, {"times": 2}]})
    assert siren.rang == [(2, ""), (2, "tea")]
    assert caplog.text.count("times: Expected `int`, got `str`") == 2


class Fragile(pydantic.BaseModel):
    """A model whose validator has a bug."""

    name: str

    @pydantic.field_validator("name")
    @classmethod
    def look_up(cls, value: str) -> str:
        """Fail with an error that is no validation error."""
        return {"Ada": "Ada"}[value]


@each_revision
async def test_a_validator_that_raises_does_not_end_the_connection(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    rung: list[str] = []
    extension = alarms()

    @extension.notification(SET)
    def rang(who: Fragile) -> None:
        rung.append(who.name)

    async with Client(server(), revision=revision, extensions=[extension]) as client:
        await client.request("alarms/ring", {"items": [{"who": {"name": "Bob"}}, {"who": {"name": "Ada"}}]})
    assert rung == ["Ada"]
    assert f"{SET} was ignored: who: 'Bob'" in caplog.text


# --- from the client to the server -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("revision", "kind"), PAIRS)
async def test_the_server_calls_the_function_with_validated_arguments(
    revision: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen: asyncio.Queue[Any] = asyncio.Queue()
    extension = alarms()

    def saw(place: Place, times: int = 1) -> None:
        seen.put_nowait((place, times))

    async def saw_later(place: Place, times: int = 1) -> None:
        saw(place, times)

    extension.notification(SEEN, receiver="server")(saw if kind == "sync" else saw_later)
    async with Client(server(extension), revision=revision, extensions=[extension]) as client:
        await client.notify(SEEN, {"place": {"room": "hall", "floor": "two"}})
        await client.notify(SEEN, {"place": {"room": "hall", "floor": 2}, "unknown": 1})
        async with asyncio.timeout(PATIENCE):
            assert await seen.get() == (Place("hall", 2), 1)
        await client.ping()
    assert seen.empty()
    assert caplog.text.count(f"notification {SEEN} was ignored: place: Expected `int`, got `str`") == 1
