"""Servers of the official Python SDK over HTTP, as servers of our client: with sessions, without, the old transport."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import trunkline.types as t
from tests.interop.peers import ALL, HANDSHAKE, NEWEST, NEWEST_HANDSHAKE, program
from tests.interop.test_official_server import fill_in, model
from tests.interop.web import listening
from tests.support import run_async
from trunkline import Client, ToolError
from trunkline.client.changes import Change

#: A kind of server, and the revision that the client speaks.
WAYS = [*(("http", revision) for revision in ALL[1:]), ("json", NEWEST_HANDSHAKE), ("sse", NEWEST_HANDSHAKE)]
EVERY_WAY = pytest.mark.parametrize(("kind", "revision"), WAYS)
STREAMED = pytest.mark.parametrize(
    ("kind", "revision"), [("http", NEWEST_HANDSHAKE), ("http", NEWEST), ("sse", NEWEST_HANDSHAKE)]
)


class Visit:
    """Their servers, by kind, and clients of ours."""

    def __init__(self, urls: dict[str, str]) -> None:
        """Know where the servers are."""
        self.urls = urls

    def __call__(self, kind: str, revision: str, work: Callable[[Client], Any], **options: Any) -> Any:
        """Do something with a client of its own."""

        async def main() -> Any:
            async with Client(self.urls[kind], revision=revision, **options) as client:
                return await work(client)

        return run_async(main())


@pytest.fixture(scope="module")
def visit() -> Iterator[Visit]:
    """Servers that the tests share."""
    with listening(program("official_http.py")) as urls:
        yield Visit(json.loads(urls))


@pytest.mark.parametrize(("kind", "agreed"), [("http", NEWEST), ("json", NEWEST), ("sse", NEWEST_HANDSHAKE)])
def test_what_a_url_speaks_is_found_out_by_itself(visit: Visit, kind: str, agreed: str) -> None:
    async def work(client: Client) -> tuple[str | None, Any]:
        return client.revision, (await client.call_tool("add", {"a": 19, "b": 23})).data

    assert visit(kind, "auto", work) == (agreed, 42)


@EVERY_WAY
def test_a_revision_can_be_pinned_and_a_tool_called(visit: Visit, kind: str, revision: str) -> None:
    async def work(client: Client) -> tuple[str | None, str]:
        return client.revision, (await client.call_tool("add", {"a": 19, "b": 23})).text

    assert visit(kind, revision, work) == (revision, "42")


@EVERY_WAY
def test_everything_is_listed_and_read(visit: Visit, kind: str, revision: str) -> None:
    async def work(client: Client) -> tuple[bool, str | None, int]:
        tools, prompt = await client.list_tools(), await client.get_prompt("greet", {"name": "Ann"})
        [note] = await client.read_resource("note://fixed")
        return "add" in [tool.name for tool in tools], note.text, len(prompt.messages)

    assert visit(kind, revision, work) == (True, "as it was", 2)


@EVERY_WAY
def test_a_failing_tool_raises(visit: Visit, kind: str, revision: str) -> None:
    async def work(client: Client) -> str:
        with pytest.raises(ToolError) as caught:
            await client.call_tool("fail")
        return str(caught.value)

    assert "out of paper" in visit(kind, revision, work)


@EVERY_WAY
def test_calls_run_side_by_side(visit: Visit, kind: str, revision: str) -> None:
    async def work(client: Client) -> list[str]:
        calls = [client.call_tool("add", {"a": number, "b": 1}) for number in range(20)]
        return [result.text for result in await asyncio.gather(*calls)]

    assert visit(kind, revision, work) == [str(number + 1) for number in range(20)]


@STREAMED
def test_progress_is_heard(visit: Visit, kind: str, revision: str) -> None:
    heard: list[float] = []

    async def work(client: Client) -> None:
        await client.call_tool("count", {"steps": 3}, on_progress=lambda *news: heard.append(news[0]))

    visit(kind, revision, work)
    assert heard == [1, 2, 3]


@STREAMED
def test_giving_up_a_call_stops_its_tool(visit: Visit, kind: str, revision: str) -> None:
    async def work(client: Client) -> Any:
        began = asyncio.Event()
        call = asyncio.ensure_future(client.call_tool("wait", on_progress=lambda *news: began.set()))
        await began.wait()
        call.cancel()
        return (await client.call_tool("was_stopped")).data

    assert visit(kind, revision, work) is True


@STREAMED
def test_the_user_the_model_and_the_folders_are_asked(visit: Visit, kind: str, revision: str) -> None:
    async def work(client: Client) -> list[str]:
        return [(await client.call_tool(name)).text for name in ("ask_person", "ask_model", "ask_roots")]

    person, said, roots = visit(kind, revision, work, elicitation=fill_in, sampling=model, roots=["/"])
    assert (person, said, roots) == ("Who are you? I am Ann., 30", "parrot: heard 'Say hello.'", "file:///")


def test_everything_is_asked_in_one_call(visit: Visit) -> None:
    async def work(client: Client) -> str:
        return (await client.call_tool("ask_all")).text

    said = visit("http", NEWEST, work, elicitation=fill_in, sampling=model, roots=["/"])
    assert said == "Who are you? I am Ann. parrot 1"


@pytest.mark.parametrize("revision", [NEWEST_HANDSHAKE, NEWEST])
def test_changes_are_told_to_a_listener(visit: Visit, revision: str) -> None:
    async def work(client: Client) -> Change:
        async with client.listen(uris=["note://fixed"]) as changes:
            await client.call_tool("change")
            return await anext(changes)

    assert visit("low", revision, work) == Change("resource", "note://fixed")


@pytest.mark.parametrize("revision", [*HANDSHAKE[1:], NEWEST])
def test_a_lower_server_gives_every_kind_of_content(visit: Visit, revision: str) -> None:
    async def work(client: Client) -> list[type]:
        return [type(block) for block in (await client.call_tool("raw")).content]

    assert visit("low", revision, work) == [t.TextContent, t.AudioContent, t.EmbeddedResource, t.ResourceLink]
