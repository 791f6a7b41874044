"""Servers of the official SDKs over HTTP, as servers of our client: with sessions, without, the old transport."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import trunkline.types as t
from tests.interop.peers import ALL, HANDSHAKE, NEWEST, NEWEST_HANDSHAKE, program
from tests.interop.test_official_server import fill_in, model
from tests.interop.web import listening, node
from tests.support import run_async
from trunkline import Client, ToolError
from trunkline.client.changes import Change


@pytest.fixture(scope="module")
def python() -> Iterator[dict[str, str]]:
    """Servers of the Python SDK, one of each kind, for both eras."""
    with listening(program("official_http.py")) as urls:
        yield json.loads(urls)


@pytest.fixture(scope="module")
def first() -> Iterator[dict[str, str]]:
    """A server on the first version of the TypeScript SDK, with sessions, and over the old transport."""
    with listening(node("ts1_server_http.mjs")) as urls:
        yield json.loads(urls)


@pytest.fixture(scope="module")
def second() -> Iterator[dict[str, str]]:
    """A server on the second version of the TypeScript SDK, for both eras."""
    with listening(node("ts2_server_http.mjs")) as urls:
        yield json.loads(urls)


#: Which server, at which of its addresses, in which revision.
WAYS = [
    *(("python", "http", revision) for revision in ALL[1:]),
    ("python", "json", NEWEST_HANDSHAKE),
    ("python", "sse", NEWEST_HANDSHAKE),
    *(("first", "http", revision) for revision in HANDSHAKE[1:]),
    ("first", "json", NEWEST_HANDSHAKE),
    ("first", "sse", HANDSHAKE[0]),
    ("first", "sse", NEWEST_HANDSHAKE),
    *(("second", "http", revision) for revision in ALL[1:]),
]
PYTHON_STREAMED = [
    ("python", "http", NEWEST_HANDSHAKE),
    ("python", "http", NEWEST),
    ("python", "sse", NEWEST_HANDSHAKE),
]
TYPESCRIPT_STREAMED = [
    ("first", "http", NEWEST_HANDSHAKE),
    ("first", "sse", NEWEST_HANDSHAKE),
    ("second", "http", NEWEST),
]
EVERY_WAY = pytest.mark.parametrize("way", WAYS, ids="-".join)
STREAMED = pytest.mark.parametrize("way", [*PYTHON_STREAMED, *TYPESCRIPT_STREAMED], ids="-".join)


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


@pytest.mark.parametrize(
    ("server", "kind", "agreed"),
    [
        ("python", "http", NEWEST),
        ("python", "json", NEWEST),
        ("python", "sse", NEWEST_HANDSHAKE),
        ("first", "http", NEWEST_HANDSHAKE),
        ("first", "sse", NEWEST_HANDSHAKE),
        ("second", "http", NEWEST),
    ],
)
def test_what_a_url_speaks_is_found_out_by_itself(
    visit: Callable[..., Any], server: str, kind: str, agreed: str
) -> None:
    async def work(client: Client) -> tuple[str | None, str]:
        return client.revision, (await client.call_tool("add", {"a": 19, "b": 23})).text

    assert visit((server, kind, "auto"), work) == (agreed, "42")


@EVERY_WAY
def test_our_client_calls_lists_and_reads(visit: Callable[..., Any], way: tuple[str, str, str]) -> None:
    async def work(client: Client) -> tuple[Any, ...]:
        tools = [tool.name for tool in await client.list_tools()]
        [note] = await client.read_resource("note://fixed")
        prompt = await client.get_prompt("greet", {"name": "Ann"})
        assert isinstance(prompt.messages[0].content, t.TextContent)
        added = await client.call_tool("add", {"a": 19, "b": 23})
        return client.revision, "add" in tools, note.text, prompt.messages[0].content.text[:9], added.text

    assert visit(way, work) == (way[-1], True, "as it was", "Greet Ann", "42")


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


@pytest.mark.parametrize("way", PYTHON_STREAMED, ids="-".join)
def test_the_user_the_model_and_the_folders_are_asked(visit: Callable[..., Any], way: tuple[str, str, str]) -> None:
    async def work(client: Client) -> list[str]:
        return [(await client.call_tool(name)).text for name in ("ask_person", "ask_model", "ask_roots")]

    person, said, roots = visit(way, work, elicitation=fill_in, sampling=model, roots=["/"])
    assert (person, said, roots) == ("Who are you? I am Ann., 30", "parrot: heard 'Say hello.'", "file:///")


def test_everything_is_asked_in_one_call(visit: Callable[..., Any]) -> None:
    async def work(client: Client) -> str:
        return (await client.call_tool("ask_all")).text

    said = visit(("python", "http", NEWEST), work, elicitation=fill_in, sampling=model, roots=["/"])
    assert said == "Who are you? I am Ann. parrot 1"


@pytest.mark.parametrize("way", TYPESCRIPT_STREAMED, ids="-".join)
def test_the_user_is_asked(visit: Callable[..., Any], way: tuple[str, str, str]) -> None:
    async def work(client: Client) -> str:
        return (await client.call_tool("ask_person")).text

    assert visit(way, work, elicitation=lambda question: {"name": "Ann"}) == "accept: Ann"


@pytest.mark.parametrize(
    ("way", "wanted", "tool", "change"),
    [
        *((way, {"tools": True}, "grow", Change("tools")) for way in TYPESCRIPT_STREAMED),
        *(
            (("python", "low", revision), {"uris": ["note://fixed"]}, "change", Change("resource", "note://fixed"))
            for revision in (NEWEST_HANDSHAKE, NEWEST)
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_our_client_hears_of_changes(
    visit: Callable[..., Any], way: tuple[str, str, str], wanted: dict[str, Any], tool: str, change: Change
) -> None:
    async def work(client: Client) -> Change:
        async with client.listen(**wanted) as changes:
            await client.call_tool(tool)
            return await anext(changes)

    assert visit(way, work) == change


@pytest.mark.parametrize("revision", ALL[1:])
def test_a_lower_server_gives_every_kind_of_content(visit: Callable[..., Any], revision: str) -> None:
    async def work(client: Client) -> list[type]:
        return [type(block) for block in (await client.call_tool("raw")).content]

    found = visit(("python", "low", revision), work)
    assert found == [t.TextContent, t.AudioContent, t.EmbeddedResource, t.ResourceLink]


async def test_our_client_opens_a_new_session_when_the_server_forgot_the_old(first: dict[str, str]) -> None:
    async with Client(first["http"], revision=NEWEST_HANDSHAKE) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
        await asyncio.to_thread(urllib.request.urlopen, first["forget"])
        assert (await client.call_tool("add", {"a": 3, "b": 4})).text == "7"
