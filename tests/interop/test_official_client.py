"""The official Python client, as client of our server over stdio: what it lists, calls, reads and hears."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import mcp
import mcp_types as theirs
import pytest
from mcp.client.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated, ToolsListChanged

from tests.interop.peers import ALL, BOTH_ERAS, HANDSHAKE, NEWEST, NEWEST_HANDSHAKE, Visits, official_client
from tests.support import run_async

# Half of the handshake era is deprecated by the official SDK, and says so at every call.
pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")

EVERY_REVISION = pytest.mark.parametrize("revision", ALL)
EACH_ERA = pytest.mark.parametrize("revision", BOTH_ERAS)
STRUCTURED = pytest.mark.parametrize("revision", ALL[2:])
WITHOUT_STRUCTURE = pytest.mark.parametrize("revision", ALL[:2])


def with_client(revision: str, work: Callable[[mcp.Client], Any], **options: Any) -> Any:
    async def main() -> Any:
        async with official_client(revision, **options) as client:
            return await work(client)

    return run_async(main())


@pytest.fixture(scope="module")
def visit() -> Iterator[Visits]:
    """Clients that many tests share: one for each revision, each with a server process of its own."""
    with Visits() as visits:
        yield visits


async def refusal(call: Awaitable[Any]) -> theirs.ErrorData:
    """Have a call refused; an error that leaves the official client's block would be wrapped in groups."""
    with pytest.raises(mcp.MCPError) as caught:
        await call
    return caught.value.error


async def all_pages(method: Callable[..., Any]) -> list[Any]:
    """Read a list to its end: the official client gives one page at a time."""
    pages = [await method()]
    while pages[-1].next_cursor is not None:
        pages.append(await method(cursor=pages[-1].next_cursor))
    return pages


def only_text(result: theirs.CallToolResult | theirs.ReadResourceResult) -> str:
    [block] = result.content if isinstance(result, theirs.CallToolResult) else result.contents
    assert isinstance(block, theirs.TextContent | theirs.TextResourceContents)
    return block.text


class Heard:
    """Collects what a callback hears, and lets a test wait for it."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._more = asyncio.Condition()

    async def __call__(self, item: Any) -> None:
        async with self._more:
            self.items.append(item)
            self._more.notify_all()

    async def until(self, enough: Callable[[list[Any]], bool]) -> list[Any]:
        async with self._more:
            await asyncio.wait_for(self._more.wait_for(lambda: enough(self.items)), 10)
        return self.items


# --- agreeing on a revision


@pytest.mark.parametrize(
    ("served", "mode", "agreed"),
    [
        pytest.param(ALL, "auto", NEWEST, id="both-eras-auto"),
        pytest.param(ALL, "legacy", NEWEST_HANDSHAKE, id="both-eras-handshake"),
        pytest.param(ALL, NEWEST, NEWEST, id="both-eras-pinned"),
        pytest.param(HANDSHAKE, "auto", NEWEST_HANDSHAKE, id="handshake-server-auto"),
        pytest.param(HANDSHAKE[:1], "auto", HANDSHAKE[0], id="oldest-server-auto"),
        pytest.param([NEWEST], "auto", NEWEST, id="stateless-server-auto"),
    ],
)
async def test_the_client_and_our_server_agree(served: list[str], mode: str, agreed: str) -> None:
    async with official_client(*served, mode=mode) as client:
        assert (client.protocol_version, only_text(await client.call_tool("add", {"a": 19, "b": 23}))) == (agreed, "42")


@EVERY_REVISION
def test_our_server_says_who_it_is(visit: Visits, revision: str) -> None:
    async def work(client: mcp.Client) -> tuple[str, theirs.Implementation | None, str | None]:
        return client.protocol_version, client.server_info, client.instructions

    agreed, info, instructions = visit(revision, work)
    assert (agreed, instructions) == (revision, "Ask politely.")
    assert info is not None
    assert (info.name, info.version) == ("ours", "1.2.3")


@EVERY_REVISION
def test_the_client_says_who_it_is(revision: str) -> None:
    me = theirs.Implementation(name="visitor", version="9")
    result = with_client(revision, lambda client: client.call_tool("caller"), client_info=me)
    assert {"visitor", revision} <= set(only_text(result).split('"'))


def test_our_server_declares_what_it_has(visit: Visits) -> None:
    async def work(client: mcp.Client) -> theirs.ServerCapabilities:
        return client.server_capabilities

    found = visit(NEWEST_HANDSHAKE, work)
    assert found.tools is not None
    assert found.prompts is not None
    assert found.resources is not None
    assert (found.tools.list_changed, found.prompts.list_changed) == (True, True)
    assert (found.resources.list_changed, found.resources.subscribe) == (True, True)
    assert found.completions is not None
    assert found.logging is not None


@pytest.mark.parametrize("revision", HANDSHAKE)
def test_a_ping_is_answered(visit: Visits, revision: str) -> None:
    assert isinstance(visit(revision, lambda client: client.send_ping()), theirs.EmptyResult)


# --- lists


@EVERY_REVISION
def test_all_tools_are_listed_in_pages(visit: Visits, revision: str) -> None:
    pages = visit(revision, lambda client: all_pages(client.list_tools))
    names = [tool.name for page in pages for tool in page.tools]
    assert [len(page.tools) for page in pages] == [5, 5, 5, 5]
    assert names[0] == "add"
    assert len(set(names)) == 20


@EVERY_REVISION
def test_resources_templates_and_prompts_are_listed(visit: Visits, revision: str) -> None:
    async def work(client: mcp.Client) -> tuple[list[str], list[str], list[str]]:
        resources, templates = await client.list_resources(), await client.list_resource_templates()
        prompts = await client.list_prompts()
        return (
            [str(resource.uri) for resource in resources.resources],
            [template.uri_template for template in templates.resource_templates],
            [prompt.name for prompt in prompts.prompts],
        )

    resources, templates, prompts = visit(revision, work)
    assert resources == ["secret://door", "note://fixed", "blob://dot"]
    assert templates == ["city://{name}/map"]
    assert prompts == ["personal", "greet"]


# --- calls


@STRUCTURED
def test_structured_results_pass_the_clients_check(visit: Visits, revision: str) -> None:
    async def work(client: mcp.Client) -> theirs.CallToolResult:
        await all_pages(client.list_tools)
        return await client.call_tool("forecast", {"city": "Oslo"})

    assert visit(revision, work).structured_content == {"city": "Oslo", "degrees": 21.5}


@WITHOUT_STRUCTURE
def test_older_revisions_get_the_structured_result_as_text(visit: Visits, revision: str) -> None:
    result = visit(revision, lambda client: client.call_tool("forecast", {"city": "Oslo"}))
    assert result.structured_content is None
    assert only_text(result) == '{"city":"Oslo","degrees":21.5}'


@pytest.mark.parametrize("revision", [NEWEST_HANDSHAKE, NEWEST])
def test_a_plain_number_is_wrapped_in_every_revision(visit: Visits, revision: str) -> None:
    async def work(client: mcp.Client) -> theirs.CallToolResult:
        await all_pages(client.list_tools)
        return await client.call_tool("add", {"a": 19, "b": 23})

    assert visit(revision, work).structured_content == {"result": 42}


@EVERY_REVISION
def test_a_picture_arrives(visit: Visits, revision: str) -> None:
    [image] = visit(revision, lambda client: client.call_tool("picture")).content
    assert isinstance(image, theirs.ImageContent)
    assert (base64.b64decode(image.data), image.mime_type) == (b"\x89PNG\r\n\x1a\n", "image/png")


@STRUCTURED
def test_a_resource_link_arrives(visit: Visits, revision: str) -> None:
    [link] = visit(revision, lambda client: client.call_tool("link")).content
    assert isinstance(link, theirs.ResourceLink)
    assert str(link.uri) == "note://fixed"


@EVERY_REVISION
def test_a_failing_tool_is_a_result(visit: Visits, revision: str) -> None:
    result = visit(revision, lambda client: client.call_tool("fail"))
    assert (result.is_error, only_text(result)) == (True, "out of paper")


@EVERY_REVISION
def test_an_unknown_tool_is_an_error(visit: Visits, revision: str) -> None:
    assert visit(revision, lambda client: refusal(client.call_tool("nothing"))).code == theirs.INVALID_PARAMS


@EACH_ERA
def test_calls_run_side_by_side(visit: Visits, revision: str) -> None:
    async def work(client: mcp.Client) -> list[str]:
        calls = [client.call_tool("add", {"a": number, "b": 0}) for number in range(30)]
        return [only_text(result) for result in await asyncio.gather(*calls)]

    assert visit(revision, work) == [str(number) for number in range(30)]


# --- resources, prompts, completion


@EVERY_REVISION
def test_resources_are_read(visit: Visits, revision: str) -> None:
    async def work(client: mcp.Client) -> tuple[str, Any, str]:
        text, blob = await client.read_resource("note://fixed"), await client.read_resource("blob://dot")
        return only_text(text), blob.contents[0], only_text(await client.read_resource("city://Oslo/map"))

    text, blob, city = visit(revision, work)
    assert (text, city) == ("as it was", "the map of Oslo")
    assert base64.b64decode(blob.blob) == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(("revision", "code"), [(NEWEST_HANDSHAKE, -32002), (NEWEST, theirs.INVALID_PARAMS)])
def test_an_unknown_resource_is_an_error(visit: Visits, revision: str, code: int) -> None:
    assert visit(revision, lambda client: refusal(client.read_resource("note://missing"))).code == code


@EVERY_REVISION
def test_a_prompt_is_filled_in(visit: Visits, revision: str) -> None:
    prompt = visit(revision, lambda client: client.get_prompt("greet", {"name": "Ann", "tone": "keen"}))
    assert [message.role for message in prompt.messages] == ["user", "assistant"]
    assert prompt.messages[0].content.text == "Greet Ann in a keen tone."


@EVERY_REVISION
def test_arguments_are_completed(visit: Visits, revision: str) -> None:
    async def work(client: mcp.Client) -> list[list[str]]:
        prompt = theirs.PromptReference(name="greet")
        template = theirs.ResourceTemplateReference(uri="city://{name}/map")
        return [
            (await client.complete(prompt, {"name": "tone", "value": "k"})).completion.values,
            (await client.complete(template, {"name": "name", "value": "Os"})).completion.values,
        ]

    assert visit(revision, work) == [["kind", "keen"], ["Oslo", "Osaka"]]


@STRUCTURED
def test_what_was_filled_in_before_narrows_the_completion(visit: Visits, revision: str) -> None:
    async def work(client: mcp.Client) -> list[str]:
        template = theirs.ResourceTemplateReference(uri="city://{name}/map")
        answer = await client.complete(template, {"name": "name", "value": "Os"}, {"country": "Japan"})
        return answer.completion.values

    assert visit(revision, work) == ["Osaka"]


# --- progress, logging, cancellation


@EVERY_REVISION
def test_progress_is_heard_before_the_result(revision: str) -> None:
    heard: list[tuple[float, float | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total))

    with_client(revision, lambda client: client.call_tool("count", {"steps": 3}, progress_callback=on_progress))
    assert heard == [(1, 3), (2, 3), (3, 3)]


def test_the_log_level_of_a_session_is_kept() -> None:
    heard = Heard()

    async def work(client: mcp.Client) -> list[Any]:
        await client.set_logging_level("warning")
        await client.call_tool("talk")
        return await heard.until(lambda items: len(items) == 2)

    found = with_client(NEWEST_HANDSHAKE, work, logging_callback=heard)
    assert [(each.level, each.data, each.logger) for each in found] == [
        ("warning", "a warning", "mouth"),
        ("error", "an error", None),
    ]


def test_the_log_level_of_a_request_is_kept() -> None:
    heard = Heard()

    async def work(client: mcp.Client) -> list[Any]:
        await client.call_tool("talk")
        return await heard.until(lambda items: len(items) == 1)

    found = with_client(NEWEST, work, logging_callback=heard, log_level="error")
    assert [(each.level, each.data) for each in found] == [("error", "an error")]


@EACH_ERA
def test_giving_up_a_call_stops_its_tool(revision: str) -> None:
    async def work(client: mcp.Client) -> str:
        begun = asyncio.Event()

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            begun.set()

        call = asyncio.create_task(client.call_tool("wait", progress_callback=on_progress))
        await begun.wait()
        call.cancel()
        await asyncio.wait([call])
        return only_text(await client.call_tool("was_stopped"))

    assert with_client(revision, work) == "true"


@EACH_ERA
def test_a_call_that_takes_too_long_times_out_and_stops(revision: str) -> None:
    async def work(client: mcp.Client) -> str:
        with pytest.raises(mcp.MCPError, match=r"[Tt]imed out"):
            await client.call_tool("wait", read_timeout_seconds=0.3)
        return only_text(await client.call_tool("was_stopped"))

    assert with_client(revision, work) == "true"


# --- changes


def test_changed_lists_are_told_to_a_session() -> None:
    heard = Heard()
    wanted = {"notifications/tools/list_changed", "notifications/prompts/list_changed"}
    wanted |= {"notifications/resources/list_changed"}

    async def work(client: mcp.Client) -> list[Any]:
        await client.call_tool("grow")
        return await heard.until(lambda items: wanted <= {item.method for item in items})

    assert {item.method for item in with_client(NEWEST_HANDSHAKE, work, message_handler=heard)} == wanted


def test_a_subscribed_resource_is_told_to_a_session() -> None:
    heard = Heard()

    async def work(client: mcp.Client) -> list[Any]:
        await client.subscribe_resource("note://fixed")
        await client.call_tool("touch", {"uri": "blob://dot"})
        await client.call_tool("touch", {"uri": "note://fixed"})
        return list(await heard.until(lambda items: len(items) == 1))

    [notice] = with_client(NEWEST_HANDSHAKE, work, message_handler=heard)
    assert (notice.method, str(notice.params.uri)) == ("notifications/resources/updated", "note://fixed")


def test_changes_are_told_to_a_listener() -> None:
    async def work(client: mcp.Client) -> tuple[theirs.SubscriptionFilter, set[Any]]:
        async with client.listen(
            tools_list_changed=True,
            prompts_list_changed=True,
            resources_list_changed=True,
            resource_subscriptions=["note://fixed"],
        ) as changes:
            await client.call_tool("grow")
            await client.call_tool("touch", {"uri": "note://fixed"})
            return changes.honored, {await anext(changes) for _ in range(4)}

    honored, seen = with_client(NEWEST, work)
    assert (honored.tools_list_changed, honored.resource_subscriptions) == (True, ["note://fixed"])
    assert seen == {
        ToolsListChanged(),
        PromptsListChanged(),
        ResourcesListChanged(),
        ResourceUpdated(uri="note://fixed"),
    }


def test_two_listeners_hear_only_what_they_asked_for() -> None:
    async def work(client: mcp.Client) -> tuple[Any, Any]:
        async with (
            client.listen(prompts_list_changed=True) as prompts,
            client.listen(resource_subscriptions=["note://fixed"]) as notes,
        ):
            await client.call_tool("touch", {"uri": "note://fixed"})
            await client.call_tool("grow")
            return await anext(prompts), await anext(notes)

    assert with_client(NEWEST, work) == (PromptsListChanged(), ResourceUpdated(uri="note://fixed"))


def test_a_listener_that_was_closed_leaves_the_connection_alive() -> None:
    async def work(client: mcp.Client) -> str:
        async with client.listen(tools_list_changed=True):
            pass
        return only_text(await client.call_tool("add", {"a": 1, "b": 2}))

    assert with_client(NEWEST, work) == "3"
