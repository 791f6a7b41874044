"""The official TypeScript SDK over HTTP, both its versions: its clients of our server, its servers for our client."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import trunkline.types as t
from tests.interop.peers import ALL, ASKING, HANDSHAKE, NEWEST, NEWEST_HANDSHAKE
from tests.interop.web import listening, node, node_json, our_url
from tests.support import run_async
from trunkline import Client, ToolError
from trunkline.client.changes import Change

SEEN = {
    "sum": "42",
    "failed": [True, "out of paper"],
    "note": "as it was",
    "prompt": "Greet Ann in a kind tone.",
    "completed": ["kind", "keen"],
    "refused": -32602,
    "many": [str(number + 1) for number in range(20)],
    "stopped": "true",
    "told": "note://fixed",
}
ASKED = ["you?, 7", "parrot: Say hello.", '["file:///home/ann"]']


def part(seen: dict[str, Any]) -> dict[str, Any]:
    """Give what every client sees alike."""
    return {name: seen.get(name) for name in SEEN}


# --- their clients ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", HANDSHAKE[1:])
def test_the_first_client_sees_our_server(revision: str) -> None:
    asks = revision in ASKING
    command = node("ts1_client.mjs")
    with our_url(revision) as url:
        seen = node_json([*command, f"{url}/mcp", "asked" if asks else "plain"])
    assert (part(seen), len(seen["tools"]), seen["progress"]) == (SEEN, 20, [1, 2, 3])
    assert seen.get("asked") == (ASKED if asks else None)


@pytest.mark.parametrize("revision", [HANDSHAKE[0], NEWEST_HANDSHAKE])
@pytest.mark.parametrize("program", [("ts1_client.mjs",), ("ts2_client.mjs", "legacy")], ids=["first", "second"])
def test_either_client_sees_our_server_over_the_old_transport(program: tuple[str, ...], revision: str) -> None:
    name, *mode = program
    command = node(name)
    with our_url(revision) as url:
        seen = node_json([*command, f"{url}/mcp/sse", *mode, "plain"])
    # These clients lose progress that comes in one piece with the answer.
    assert (part(seen), len(seen["tools"])) == (SEEN, 20)


@pytest.mark.parametrize(("mode", "agreed"), [("auto", NEWEST), (NEWEST, NEWEST), ("legacy", NEWEST_HANDSHAKE)])
def test_the_second_client_sees_our_server(mode: str, agreed: str) -> None:
    command = node("ts2_client.mjs")
    with our_url() as url:
        seen = node_json([*command, f"{url}/mcp", mode, "asked"])
    assert (part(seen), len(seen["tools"]), seen["progress"]) == (SEEN, 20, [1, 2, 3])
    assert (seen["asked"], seen["version"]) == (ASKED, agreed)


def test_the_second_client_falls_back_to_an_older_server_of_ours() -> None:
    command = node("ts2_client.mjs")
    with our_url(*HANDSHAKE) as url:
        seen = node_json([*command, f"{url}/mcp", "auto", "plain"])
    assert (part(seen), seen["version"]) == (SEEN, NEWEST_HANDSHAKE)


# --- their servers ---------------------------------------------------------------------------------------------------


def fill_in(question: t.ElicitRequestParams) -> Any:
    return {"name": "Ann"}


@pytest.fixture(scope="module")
def first() -> Iterator[dict[str, str]]:
    """A server on the first version, with sessions, and over the old transport."""
    with listening(node("ts1_server_http.mjs")) as urls:
        yield json.loads(urls)


@pytest.fixture(scope="module")
def second() -> Iterator[dict[str, str]]:
    """A server on the second version, for both eras."""
    with listening(node("ts2_server_http.mjs")) as urls:
        yield json.loads(urls)


#: Which server, at which of its addresses, in which revision.
WAYS = [
    *(("first", "http", revision) for revision in HANDSHAKE[1:]),
    ("first", "json", NEWEST_HANDSHAKE),
    ("first", "sse", HANDSHAKE[0]),
    ("first", "sse", NEWEST_HANDSHAKE),
    *(("second", "http", revision) for revision in ALL[1:]),
]
EVERY_WAY = pytest.mark.parametrize("way", WAYS, ids="-".join)
STREAMED = pytest.mark.parametrize(
    "way",
    [
        ("first", "http", NEWEST_HANDSHAKE),
        ("first", "sse", NEWEST_HANDSHAKE),
        ("second", "http", NEWEST),
    ],
    ids="-".join,
)


@pytest.fixture
def visit(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Do something with a client of ours."""

    def run(way: tuple[str, str, str], work: Callable[[Client], Any], **options: Any) -> Any:
        server, kind, revision = way
        url = request.getfixturevalue(server)[kind]

        async def main() -> Any:
            async with Client(url, revision=revision, **options) as client:
                return await work(client)

        return run_async(main())

    return run


@EVERY_WAY
def test_our_client_calls_lists_and_reads(visit: Callable[..., Any], way: tuple[str, str, str]) -> None:
    async def work(client: Client) -> tuple[Any, ...]:
        tools = [tool.name for tool in await client.list_tools()]
        [note] = await client.read_resource("note://fixed")
        prompt = await client.get_prompt("greet", {"name": "Ann"})
        added = await client.call_tool("add", {"a": 19, "b": 23})
        return client.revision, "add" in tools, note.text, len(prompt.messages), added.text

    assert visit(way, work) == (way[-1], True, "as it was", 1, "42")


@EVERY_WAY
def test_our_client_calls_side_by_side_and_hears_of_failures(
    visit: Callable[..., Any], way: tuple[str, str, str]
) -> None:
    async def work(client: Client) -> list[str]:
        with pytest.raises(ToolError, match="out of paper"):
            await client.call_tool("fail")
        calls = [client.call_tool("add", {"a": number, "b": 1}) for number in range(20)]
        return [result.text for result in await asyncio.gather(*calls)]

    assert visit(way, work) == [str(number + 1) for number in range(20)]


@STREAMED
def test_our_client_hears_of_progress(visit: Callable[..., Any], way: tuple[str, str, str]) -> None:
    heard: list[float] = []

    async def work(client: Client) -> None:
        await client.call_tool("count", {"steps": 3}, on_progress=lambda *news: heard.append(news[0]))

    visit(way, work)
    assert heard == [1, 2, 3]


@STREAMED
def test_our_client_gives_up_a_call(visit: Callable[..., Any], way: tuple[str, str, str]) -> None:
    async def work(client: Client) -> str:
        began = asyncio.Event()
        call = asyncio.ensure_future(client.call_tool("wait", on_progress=lambda *news: began.set()))
        await began.wait()
        call.cancel()
        return (await client.call_tool("was_stopped")).text

    assert visit(way, work) == "true"


@STREAMED
def test_our_client_is_asked(visit: Callable[..., Any], way: tuple[str, str, str]) -> None:
    async def work(client: Client) -> str:
        return (await client.call_tool("ask_person")).text

    assert visit(way, work, elicitation=fill_in) == "accept: Ann"


@STREAMED
def test_our_client_hears_of_changes(visit: Callable[..., Any], way: tuple[str, str, str]) -> None:
    async def work(client: Client) -> Change:
        async with client.listen(tools=True) as changes:
            await client.call_tool("grow")
            return await anext(changes)

    assert visit(way, work) == Change("tools")


@pytest.mark.parametrize(
    ("server", "kind", "agreed"),
    [("first", "http", NEWEST_HANDSHAKE), ("first", "sse", NEWEST_HANDSHAKE), ("second", "http", NEWEST)],
)
def test_our_client_finds_out_what_it_is(visit: Callable[..., Any], server: str, kind: str, agreed: str) -> None:
    async def work(client: Client) -> str | None:
        return client.revision

    assert visit((server, kind, "auto"), work) == agreed


def test_our_client_opens_a_new_session_when_the_server_forgot_the_old(first: dict[str, str]) -> None:
    async def main() -> str:
        async with Client(first["http"], revision=NEWEST_HANDSHAKE) as client:
            await client.call_tool("add", {"a": 1, "b": 2})
            await asyncio.to_thread(urllib.request.urlopen, first["forget"])
            return (await client.call_tool("add", {"a": 3, "b": 4})).text

    assert run_async(main()) == "7"
