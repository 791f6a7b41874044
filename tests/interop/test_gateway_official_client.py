"""The official Python client in front of the gateway, servers of the SDKs behind it: each pair of eras."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import mcp
import mcp_types as theirs
import pytest
from mcp.client.stdio import stdio_client
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged

from tests.interop.gateway_stage import FRONTS, Fronts, Served, configured, fleet, served, visit_gateway
from tests.interop.peers import NEWEST, NEWEST_HANDSHAKE, is_handshake, program
from tests.interop.test_official_client import Heard, only_text, refusal
from tests.interop.test_official_client_asked import accept, choose, folders, model
from tests.support import run_async

pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")

T = TypeVar("T")

PYTHON = ["py-old", "py-new", "py-web-old", "py-web-new"]
TYPESCRIPT = ["ts1", "ts1-sse", "ts2-old", "ts2-new"]
EVERY_SERVER = pytest.mark.parametrize("server", [*PYTHON, *TYPESCRIPT])
#: Over HTTP the TypeScript SDK 2.x serves handshake clients request by request, and asks none of them.
ASKING_SERVERS = pytest.mark.parametrize("server", [each for each in (*PYTHON, *TYPESCRIPT) if each != "ts2-old"])
PYTHON_SERVERS = pytest.mark.parametrize("server", PYTHON)
OURS = ["our-old", "our-new"]
OUR_SERVERS = pytest.mark.parametrize("server", OURS)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One gateway over HTTP, with all servers behind it: the first list waits until they have started."""
    with fleet() as servers, served(configured(servers, tmp_path_factory.mktemp("gateway")), servers) as found:
        tools = visit_gateway(found, NEWEST, lambda client: client.list_tools()).tools
        assert {tool.name.partition("__")[0] for tool in tools} == {*servers}
        yield found


@pytest.fixture(scope="module")
def plain(gateway: Served) -> Iterator[Fronts]:
    """Clients that cannot be asked anything."""
    with Fronts(gateway) as fronts:
        yield fronts


@pytest.fixture(scope="module")
def asked(gateway: Served) -> Iterator[Fronts]:
    """Clients that can be asked everything."""
    with Fronts(gateway, elicitation_callback=accept, sampling_callback=model, list_roots_callback=folders) as fronts:
        yield fronts


# --- waiting for what comes in its own time ---------------------------------------------------------------------------


async def failure(call: Awaitable[theirs.CallToolResult]) -> str:
    """Have a call fail, by an error or a result that says so, and give the reason."""
    try:
        result = await call
    except mcp.MCPError as error:
        return str(error)
    assert result.is_error
    return only_text(result)


async def until_told(client: mcp.Client, server: str, told: Callable[[], bool]) -> None:
    """Change a resource until somebody heard: the gateway listens to the server soon after it was asked to."""
    tool, arguments = ("change", {}) if server.startswith("low") else ("touch", {"uri": "note://fixed"})
    while not told():
        await client.call_tool(f"{server}__{tool}", arguments)
        await asyncio.sleep(0.05)


async def until_other(look: Callable[[], Awaitable[T]], before: T) -> T:
    """Look until there is something else to see."""
    while (found := await look()) == before:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.05)
    return found


# --- who is there ----------------------------------------------------------------------------------------------------


@FRONTS
def test_the_client_and_the_gateway_agree(plain: Fronts, front: str) -> None:
    async def work(client: mcp.Client) -> tuple[str, str | None, str | None]:
        info = client.server_info
        return client.protocol_version, None if info is None else info.name, client.instructions

    agreed, name, instructions = plain(front, work)
    assert (agreed, name) == (front, "trunkline")
    assert "## py-old\nBe kind." in instructions


# --- lists, calls, results -------------------------------------------------------------------------------------------


@FRONTS
@EVERY_SERVER
def test_tools_prompts_and_resources_are_listed(plain: Fronts, front: str, server: str) -> None:
    plain.gateway.needs(server)

    async def work(client: mcp.Client) -> tuple[set[str], set[str], set[str]]:
        tools, prompts, resources = (
            await client.list_tools(),
            await client.list_prompts(),
            await client.list_resources(),
        )
        return (
            {tool.name for tool in tools.tools},
            {prompt.name for prompt in prompts.prompts},
            {str(resource.uri) for resource in resources.resources},
        )

    tools, prompts, resources = plain(front, work)
    assert {f"{server}__{name}" for name in ("add", "fail", "count", "wait", "ask_person")} <= tools
    assert f"{server}__greet" in prompts
    assert f"note://{server}/fixed" in resources


@FRONTS
@EVERY_SERVER
def test_a_tool_that_fails_says_so(plain: Fronts, front: str, server: str) -> None:
    plain.gateway.needs(server)
    result = plain(front, lambda client: client.call_tool(f"{server}__fail"))
    assert result.is_error
    assert "out of paper" in only_text(result)


@FRONTS
@PYTHON_SERVERS
def test_structured_results_pass_the_clients_check(plain: Fronts, front: str, server: str) -> None:
    async def work(client: mcp.Client) -> theirs.CallToolResult:
        await client.list_tools()
        return await client.call_tool(f"{server}__forecast", {"city": "Oslo"})

    assert plain(front, work).structured_content == {"city": "Oslo", "degrees": 21.5}


@FRONTS
@pytest.mark.parametrize("server", [*PYTHON, *OURS])
def test_a_plain_number_is_wrapped_and_passes_the_clients_check(plain: Fronts, front: str, server: str) -> None:
    async def work(client: mcp.Client) -> theirs.CallToolResult:
        await client.list_tools()
        return await client.call_tool(f"{server}__add", {"a": 1, "b": 2})

    assert plain(front, work).structured_content == {"result": 3}


@FRONTS
@pytest.mark.parametrize("server", ["low-old", "low-new"])
def test_every_kind_of_content_arrives_under_its_own_server(plain: Fronts, front: str, server: str) -> None:
    result = plain(front, lambda client: client.call_tool(f"{server}__raw"))
    text, audio, embedded, link = result.content
    assert (text.annotations.priority, audio.mime_type) == (0.5, "audio/wav")
    assert (embedded.resource.uri, link.uri) == (f"note://{server}/inside", f"note://{server}/fixed")
    assert (result.structured_content, result.meta["example.com/mark"]) == ({"ok": True}, 7)


@FRONTS
@EVERY_SERVER
def test_calls_run_side_by_side(plain: Fronts, front: str, server: str) -> None:
    plain.gateway.needs(server)

    async def work(client: mcp.Client) -> list[str]:
        calls = [client.call_tool(f"{server}__add", {"a": number, "b": 1}) for number in range(20)]
        return [only_text(result) for result in await asyncio.gather(*calls)]

    assert plain(front, work) == [str(number + 1) for number in range(20)]


# --- resources, prompts, completion ----------------------------------------------------------------------------------


@FRONTS
@EVERY_SERVER
def test_a_resource_is_read(plain: Fronts, front: str, server: str) -> None:
    plain.gateway.needs(server)
    read = plain(front, lambda client: client.read_resource(f"note://{server}/fixed"))
    assert (only_text(read), str(read.contents[0].uri)) == ("as it was", f"note://{server}/fixed")


@FRONTS
@PYTHON_SERVERS
def test_a_template_is_listed_and_read(plain: Fronts, front: str, server: str) -> None:
    async def work(client: mcp.Client) -> tuple[set[str], str]:
        found = await client.list_resource_templates()
        read = await client.read_resource(f"city://{server}/Oslo/map")
        return {each.uri_template for each in found.resource_templates}, only_text(read)

    templates, text = plain(front, work)
    assert f"city://{server}/{{name}}/map" in templates
    assert text == "the map of Oslo"


@pytest.mark.parametrize(("front", "code"), [(NEWEST_HANDSHAKE, -32002), (NEWEST, theirs.INVALID_PARAMS)])
@PYTHON_SERVERS
def test_an_unknown_resource_is_an_error_of_the_clients_era(plain: Fronts, front: str, code: int, server: str) -> None:
    assert plain(front, lambda client: refusal(client.read_resource(f"note://{server}/missing"))).code == code


@FRONTS
@EVERY_SERVER
def test_a_prompt_is_filled_in(plain: Fronts, front: str, server: str) -> None:
    plain.gateway.needs(server)
    prompt = plain(front, lambda client: client.get_prompt(f"{server}__greet", {"name": "Ann"}))
    assert prompt.messages[0].content.text.startswith("Greet Ann")


@FRONTS
@PYTHON_SERVERS
def test_arguments_are_completed(plain: Fronts, front: str, server: str) -> None:
    async def work(client: mcp.Client) -> list[list[str]]:
        prompt = theirs.PromptReference(name=f"{server}__greet")
        template = theirs.ResourceTemplateReference(uri=f"city://{server}/{{name}}/map")
        return [
            (await client.complete(prompt, {"name": "tone", "value": "k"})).completion.values,
            (await client.complete(template, {"name": "name", "value": "O"}, {"country": "Norway"})).completion.values,
        ]

    assert plain(front, work) == [["kind", "keen"], ["Oslo"]]


# --- progress, logging, giving up ------------------------------------------------------------------------------------


@FRONTS
@EVERY_SERVER
def test_progress_is_heard_before_the_result(plain: Fronts, front: str, server: str) -> None:
    plain.gateway.needs(server)
    heard: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    call = plain(
        front, lambda client: client.call_tool(f"{server}__count", {"steps": 3}, progress_callback=on_progress)
    )
    assert (only_text(call), heard) == ("3", [1, 2, 3])


@FRONTS
@EVERY_SERVER
def test_giving_up_a_call_stops_its_tool(plain: Fronts, front: str, server: str) -> None:
    plain.gateway.needs(server)

    async def work(client: mcp.Client) -> str:
        begun = asyncio.Event()

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            begun.set()

        call = asyncio.create_task(client.call_tool(f"{server}__wait", progress_callback=on_progress))
        await begun.wait()
        call.cancel()
        await asyncio.wait([call])
        return only_text(await client.call_tool(f"{server}__was_stopped"))

    assert plain(front, work) == "true"


@pytest.mark.parametrize("server", ["py-old", "py-web-old", "py-new", "our-old", "our-new"])
def test_a_session_hears_log_messages_from_its_level_on(gateway: Served, server: str) -> None:
    heard = Heard()

    async def work(client: mcp.Client) -> list[Any]:
        await client.set_logging_level("error")
        await client.call_tool(f"{server}__talk")
        return await heard.until(lambda items: len(items) == 1)

    found = visit_gateway(gateway, NEWEST_HANDSHAKE, work, logging_callback=heard)
    assert [(each.level, each.data) for each in found] == [("error", "an error")]


@pytest.mark.parametrize("server", ["py-old", "py-web-old", "py-new", "our-old", "our-new"])
def test_a_request_hears_log_messages_from_its_level_on(gateway: Served, server: str) -> None:
    heard = Heard()

    async def work(client: mcp.Client) -> list[Any]:
        await client.call_tool(f"{server}__talk")
        return await heard.until(lambda items: len(items) == 1)

    found = visit_gateway(gateway, NEWEST, work, logging_callback=heard, log_level="error")
    assert [(each.level, each.data) for each in found] == [("error", "an error")]


# --- questions -------------------------------------------------------------------------------------------------------


@FRONTS
@ASKING_SERVERS
def test_the_user_is_asked(asked: Fronts, front: str, server: str) -> None:
    asked.gateway.needs(server)
    text = only_text(asked(front, lambda client: client.call_tool(f"{server}__ask_person")))
    assert text in ("you?, 7", "accept: Who?")


#: What a tool asks, and what it makes of the answers, for the servers that have it.
QUESTIONS = [
    *((server, "ask_model", "parrot: [None] Say hello.") for server in PYTHON),
    *((server, "ask_roots", "file:///home/ann") for server in PYTHON),
    *((server, "ask_all", "you? parrot 1") for server in PYTHON),
    *((server, "ask_in_turn", "[None] Greet 1? and 2?.: 1?, 2?") for server in OURS),
    *((server, "ask_at_once", "[None] Say hello.: you?") for server in OURS),
    *((server, "ask_page", "accept") for server in OURS),
]


@FRONTS
@pytest.mark.parametrize(("server", "tool", "answer"), QUESTIONS)
def test_the_client_is_asked(asked: Fronts, front: str, server: str, tool: str, answer: str) -> None:
    called = only_text(asked(front, lambda client: client.call_tool(f"{server}__{tool}")))
    assert called == answer.replace("None", f"[{server}] This request is made by the MCP server {server}.")


@pytest.mark.parametrize("server", ["py-old", "our-old"])
def test_a_session_hears_that_a_page_was_finished(gateway: Served, server: str) -> None:
    heard = Heard()

    async def work(client: mcp.Client) -> tuple[str, list[Any]]:
        text = only_text(await client.call_tool(f"{server}__ask_page"))
        return text, await heard.until(lambda items: len(items) == 1)

    text, [notice] = visit_gateway(gateway, NEWEST_HANDSHAKE, work, elicitation_callback=accept, message_handler=heard)
    assert (text, notice.method) == ("accept", "notifications/elicitation/complete")


@FRONTS
@OUR_SERVERS
def test_prompts_and_resources_may_ask(asked: Fronts, front: str, server: str) -> None:
    async def work(client: mcp.Client) -> tuple[str, str]:
        prompt = await client.get_prompt(f"{server}__personal")
        assert isinstance(prompt.messages[0].content, theirs.TextContent)
        return prompt.messages[0].content.text, only_text(await client.read_resource(f"secret://{server}/door"))

    assert asked(front, work) == ("Write to whom?.", "opened for knocks?")


@FRONTS
@pytest.mark.parametrize("server", PYTHON)
def test_the_model_may_choose_a_tool(gateway: Served, front: str, server: str) -> None:
    text = visit_gateway(
        gateway,
        front,
        lambda client: client.call_tool(f"{server}__ask_model_with_tools"),
        sampling_callback=choose,
        sampling_capabilities=theirs.SamplingCapability(tools=theirs.SamplingToolsCapability()),
    )
    assert only_text(text) == "toolUse: clock"


@FRONTS
@EVERY_SERVER
def test_a_client_that_cannot_be_asked_is_told(plain: Fronts, front: str, server: str) -> None:
    plain.gateway.needs(server)
    assert "elicitation" in plain(front, lambda client: failure(client.call_tool(f"{server}__ask_person")))


@FRONTS
def test_a_call_waits_for_an_answer_where_the_server_can_ask(gateway: Served, front: str) -> None:
    """Only a handshake client can be asked by ``ctx.elicit``, directly and through the gateway."""
    expected = "you?" if front == NEWEST_HANDSHAKE else "back-channel"

    async def work(client: mcp.Client, name: str) -> str:
        try:
            return only_text(await client.call_tool(name))
        except mcp.MCPError as error:
            return str(error)

    async def direct() -> str:
        command, *arguments = program("official_asking.py")
        mode = "legacy" if is_handshake(front) else "auto"
        target: Any = stdio_client(mcp.StdioServerParameters(command=command, args=arguments))
        async with mcp.Client(target, mode=mode, elicitation_callback=accept) as client:
            return await work(client, "ask_in_the_middle")

    assert expected in run_async(direct())
    through = visit_gateway(
        gateway, front, lambda client: work(client, "py-both__ask_in_the_middle"), elicitation_callback=accept
    )
    assert expected in through


# --- changes ---------------------------------------------------------------------------------------------------------


@OUR_SERVERS
def test_a_changed_list_is_told_to_a_session(gateway: Served, server: str) -> None:
    heard = Heard()

    async def work(client: mcp.Client) -> set[str]:
        await client.call_tool(f"{server}__grow")
        await heard.until(lambda items: "notifications/tools/list_changed" in {item.method for item in items})
        return {tool.name for tool in (await client.list_tools()).tools}

    assert f"{server}__sprout" in visit_gateway(gateway, NEWEST_HANDSHAKE, work, message_handler=heard)


@pytest.mark.parametrize("server", ["ts1", "ts1-sse"])
@FRONTS
def test_a_changed_list_is_read_anew(gateway: Served, front: str, server: str) -> None:
    gateway.needs(server)

    async def tools(client: mcp.Client) -> set[str]:
        return {tool.name for tool in (await client.list_tools()).tools}

    async def work(client: mcp.Client) -> set[str]:
        before = await tools(client)
        await client.call_tool(f"{server}__grow")
        return await until_other(lambda: tools(client), before) - before

    [grown] = visit_gateway(gateway, front, work, cache=None)
    assert "sprout" in grown


@pytest.mark.parametrize("server", ["our-old", "our-new", "low-old", "low-new"])
def test_a_subscribed_resource_is_told_to_a_session(gateway: Served, server: str) -> None:
    heard = Heard()
    uri = f"note://{server}/fixed"

    async def work(client: mcp.Client) -> None:
        await client.subscribe_resource(uri)
        await until_told(client, server, lambda: any(item.method.endswith("updated") for item in heard.items))

    visit_gateway(gateway, NEWEST_HANDSHAKE, work, message_handler=heard)
    assert uri in {str(item.params.uri) for item in heard.items if item.method.endswith("resources/updated")}


@pytest.mark.parametrize("server", ["our-old", "our-new", "low-old", "low-new"])
def test_a_subscribed_resource_is_told_to_a_listener(gateway: Served, server: str) -> None:
    uri = f"note://{server}/fixed"

    async def work(client: mcp.Client) -> Any:
        async with client.listen(resource_subscriptions=[uri]) as changes:
            told = asyncio.ensure_future(anext(changes))
            await until_told(client, server, told.done)
            return await told

    assert visit_gateway(gateway, NEWEST, work) == ResourceUpdated(uri=uri)


def test_a_changed_list_is_told_to_a_listener(gateway: Served) -> None:
    gateway.needs("ts1")

    async def work(client: mcp.Client) -> Any:
        async with client.listen(tools_list_changed=True) as changes:
            await client.call_tool("ts1__grow")
            return await anext(changes)

    assert visit_gateway(gateway, NEWEST, work) == ToolsListChanged()
