"""The official Python client, as client of our server over HTTP: every revision, and the old transport."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import mcp
import mcp_types as theirs
import pytest
from mcp.client.subscriptions import PromptsListChanged, ResourcesListChanged, ToolsListChanged
from msgspec import Struct

from tests.interop.peers import ALL, HANDSHAKE, NEWEST, NEWEST_HANDSHAKE
from tests.interop.test_official_client import Heard, only_text, refusal
from tests.interop.test_official_client_asked import accept, folders, model
from tests.interop.web import official_web_client, our_url
from tests.support import run_async

pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")


class Way(Struct, frozen=True):
    """A transport and a revision."""

    transport: str
    revision: str

    @property
    def stateless(self) -> bool:
        """Whether the revision has no handshake."""
        return self.revision == NEWEST


STREAMABLE = [Way("http", revision) for revision in ALL[1:]]
PAIR = [Way("sse", HANDSHAKE[0]), Way("sse", NEWEST_HANDSHAKE)]
EVERY_WAY = pytest.mark.parametrize("way", STREAMABLE + PAIR, ids=lambda way: f"{way.transport}-{way.revision}")
NEWEST_WAYS = pytest.mark.parametrize(
    "way",
    [Way("http", NEWEST_HANDSHAKE), Way("http", NEWEST), Way("sse", NEWEST_HANDSHAKE)],
    ids=lambda way: f"{way.transport}-{way.revision}",
)
SESSIONS = pytest.mark.parametrize(
    "way",
    [Way("http", NEWEST_HANDSHAKE), Way("sse", NEWEST_HANDSHAKE)],
    ids=lambda way: f"{way.transport}-{way.revision}",
)


class Visit:
    """Our servers, one process for each revision, and official clients of them."""

    def __init__(self, stack: ExitStack) -> None:
        """Start without any."""
        self._stack = stack
        self._urls: dict[str, str] = {}

    def url(self, way: Way) -> str:
        """Give where a server is reached that serves one revision."""
        if way.revision not in self._urls:
            self._urls[way.revision] = self._stack.enter_context(our_url(way.revision))
        base = self._urls[way.revision]
        return f"{base}/mcp/sse" if way.transport == "sse" else f"{base}/mcp"

    def __call__(self, way: Way, work: Callable[[mcp.Client], Any], **options: Any) -> Any:
        """Do something with a client of its own."""
        url = self.url(way)

        async def main() -> Any:
            async with official_web_client(url, way.revision, **options) as client:
                return await work(client)

        return run_async(main())


@pytest.fixture(scope="module")
def visit() -> Iterator[Visit]:
    """Servers that the tests share."""
    with ExitStack() as stack:
        yield Visit(stack)


@EVERY_WAY
def test_client_and_server_agree_and_a_tool_is_called(visit: Visit, way: Way) -> None:
    async def work(client: mcp.Client) -> tuple[str, str]:
        return client.protocol_version, only_text(await client.call_tool("add", {"a": 19, "b": 23}))

    assert visit(way, work) == (way.revision, "42")


@EVERY_WAY
def test_resources_and_prompts_are_read(visit: Visit, way: Way) -> None:
    async def work(client: mcp.Client) -> tuple[str, str]:
        prompt = await client.get_prompt("greet", {"name": "Ann"})
        assert isinstance(prompt.messages[0].content, theirs.TextContent)
        return only_text(await client.read_resource("city://Oslo/map")), prompt.messages[0].content.text

    assert visit(way, work) == ("the map of Oslo", "Greet Ann in a kind tone.")


@EVERY_WAY
def test_refusals_arrive(visit: Visit, way: Way) -> None:
    async def work(client: mcp.Client) -> tuple[int, bool]:
        failed = await client.call_tool("fail")
        return (await refusal(client.get_prompt("no such prompt"))).code, bool(failed.is_error)

    assert visit(way, work) == (theirs.INVALID_PARAMS, True)


@EVERY_WAY
def test_progress_is_heard_before_the_result(visit: Visit, way: Way) -> None:
    heard: list[float] = []

    async def told(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    visit(way, lambda client: client.call_tool("count", {"steps": 3}, progress_callback=told))
    assert heard == [1, 2, 3]


@EVERY_WAY
def test_calls_run_side_by_side(visit: Visit, way: Way) -> None:
    async def work(client: mcp.Client) -> list[str]:
        calls = [client.call_tool("add", {"a": number, "b": 1}) for number in range(20)]
        return [only_text(result) for result in await asyncio.gather(*calls)]

    assert visit(way, work) == [str(number + 1) for number in range(20)]


@NEWEST_WAYS
def test_giving_up_a_call_stops_its_tool(visit: Visit, way: Way) -> None:
    async def work(client: mcp.Client) -> str:
        began = asyncio.Event()

        async def told(progress: float, total: float | None, message: str | None) -> None:
            began.set()

        call = asyncio.create_task(client.call_tool("wait", progress_callback=told))
        await began.wait()
        call.cancel()
        return only_text(await client.call_tool("was_stopped"))

    assert visit(way, work) == "true"


@NEWEST_WAYS
def test_the_user_the_model_and_the_folders_are_asked(visit: Visit, way: Way) -> None:
    async def work(client: mcp.Client) -> list[str]:
        names = ("ask_person", "ask_model", "ask_roots")
        return [only_text(await client.call_tool(name)) for name in names]

    callbacks = {"elicitation_callback": accept, "sampling_callback": model, "list_roots_callback": folders}
    person, said, roots = visit(way, work, **callbacks)
    assert (person, said, "file:///home/ann" in roots) == ("you?, 7", "parrot: [Be brief.] Say hello.", True)


@NEWEST_WAYS
def test_questions_come_one_after_the_other_and_at_once(visit: Visit, way: Way) -> None:
    async def work(client: mcp.Client) -> list[str]:
        return [only_text(await client.call_tool(name)) for name in ("ask_in_turn", "ask_at_once")]

    turns, at_once = visit(way, work, elicitation_callback=accept, sampling_callback=model)
    assert (turns.endswith("1?, 2?"), at_once.endswith("you?")) == (True, True)


@SESSIONS
def test_changes_are_told_to_a_session(visit: Visit, way: Way) -> None:
    heard = Heard()

    async def work(client: mcp.Client) -> list[Any]:
        await client.subscribe_resource("note://fixed")
        await client.call_tool("touch", {"uri": "note://fixed"})
        return list(await heard.until(lambda items: len(items) >= 1))

    [notice] = visit(way, work, message_handler=heard)
    assert (notice.method, str(notice.params.uri)) == ("notifications/resources/updated", "note://fixed")


def test_changes_are_told_to_a_listener(visit: Visit) -> None:
    async def work(client: mcp.Client) -> set[Any]:
        async with client.listen(
            tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
        ) as changes:
            await client.call_tool("grow")
            return {await anext(changes) for _ in range(3)}

    assert visit(Way("http", NEWEST), work) == {ToolsListChanged(), PromptsListChanged(), ResourcesListChanged()}


@pytest.mark.parametrize("mode", ["auto", "legacy", NEWEST])
def test_one_url_serves_both_eras(mode: str) -> None:
    async def main(url: str) -> tuple[str, str]:
        async with mcp.Client(f"{url}/mcp", mode=mode, read_timeout_seconds=10) as client:
            return client.protocol_version, only_text(await client.call_tool("add", {"a": 1, "b": 2}))

    with our_url() as url:
        agreed = NEWEST_HANDSHAKE if mode == "legacy" else NEWEST
        assert run_async(main(url)) == (agreed, "3")
