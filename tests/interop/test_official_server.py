"""A server of the official Python SDK over stdio, as server of our client, in both eras."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

import trunkline.types as t
from tests.interop.peers import ALL, ASKING, BOTH_ERAS, NEWEST, NEWEST_HANDSHAKE, SharedClient, program, shared
from tests.support import run_async
from trunkline import Client, Limits, RequestFailed, RequestTimeout, ServerExited, ToolError
from trunkline.client.changes import Change
from trunkline.errors import InvalidParams, MissingClientCapability

OFFICIAL = program("official.py")


def fill_in(question: t.ElicitRequestParams) -> Any:
    return True if question.mode == "url" else {"name": f"{question.message} I am Ann."}


def model(question: t.CreateMessageRequestParams) -> t.CreateMessageResult:
    """Repeat what was said, or choose the tool that is there."""
    [message] = question.messages
    assert isinstance(message.content, t.TextContent)
    said = t.TextContent(text=f"heard {message.content.text!r}")
    uses = [t.ToolUseContent(id="1", name=tool.name, input={}) for tool in question.tools or []]
    return t.CreateMessageResult(
        role="assistant", content=list(uses) or said, model="parrot", stop_reason="toolUse" if uses else "endTurn"
    )


def open_client(revision: str) -> AbstractContextManager[SharedClient]:
    """Start a server for a client that can answer everything."""
    return shared(
        OFFICIAL,
        revision=revision,
        elicitation=fill_in,
        elicitation_urls=True,
        sampling=model,
        sampling_tools=True,
        roots=["/"],
    )


@pytest.fixture(scope="module")
def handshake() -> Iterator[SharedClient]:
    """A server process whose client speaks the newest handshake revision."""
    with open_client(NEWEST_HANDSHAKE) as client:
        yield client


@pytest.fixture(scope="module")
def stateless() -> Iterator[SharedClient]:
    """A server process whose client speaks the stateless revision."""
    with open_client(NEWEST) as client:
        yield client


@pytest.fixture(params=["handshake", "stateless"])
def server(request: pytest.FixtureRequest) -> SharedClient:
    """Each of the two."""
    client: SharedClient = request.getfixturevalue(request.param)
    return client


# --- agreeing on a revision


async def test_the_newest_revision_is_found_by_itself() -> None:
    async with Client(OFFICIAL) as client:
        revision, info, instructions = client.revision, client.server_info, client.instructions
    assert (revision, instructions) == (NEWEST, "Be kind.")
    assert info is not None
    assert (info.name, info.version, info.title) == ("official", "4.5.6", "Their server")


async def test_a_server_that_is_slow_to_start_is_not_taken_for_an_older_one() -> None:
    # The probe is given up long before the server is up; it then refuses the handshake that follows.
    async with Client(OFFICIAL, limits=Limits(probe_seconds=0.05)) as client:
        assert (client.revision, (await client.call_tool("add", {"a": 19, "b": 23})).data) == (NEWEST, 42)


@pytest.mark.parametrize("revision", ALL)
def test_every_revision_can_be_pinned(revision: str) -> None:
    async def main() -> tuple[str | None, str, list[str]]:
        async with Client(OFFICIAL, revision=revision, sampling=model) as client:
            tools = [tool.name for tool in await client.list_tools()]
            return client.revision, (await client.call_tool("ask_model")).text, tools

    agreed, text, tools = run_async(main())
    assert (agreed, text) == (revision, "parrot: heard 'Say hello.'")
    assert tools[:2] == ["add", "forecast"]


@pytest.mark.parametrize("revision", ASKING[:-2])
async def test_an_older_revision_asks_the_user(revision: str) -> None:
    async with Client(OFFICIAL, revision=revision, elicitation=fill_in) as client:
        assert (await client.call_tool("ask_person")).text == "Who are you? I am Ann., 30"


# --- lists and calls


def test_everything_is_listed(server: SharedClient) -> None:
    async def work(client: Client) -> tuple[list[str], list[str], list[str]]:
        return (
            [resource.uri for resource in await client.list_resources()],
            [template.uri_template for template in await client.list_resource_templates()],
            [prompt.name for prompt in await client.list_prompts()],
        )

    assert server.run(work) == (["note://fixed", "blob://dot"], ["city://{name}/map"], ["greet"])


def test_a_tool_tells_its_title_hints_and_schemas(server: SharedClient) -> None:
    add = server.run(lambda client: client.list_tools())[0]
    assert (add.title, add.description) == ("Add two numbers", "Add two numbers.")
    assert add.annotations is not None
    assert add.annotations.read_only_hint is True
    assert sorted(add.input_schema["properties"]) == ["a", "b"]
    assert add.output_schema is not None


def test_a_wrapped_number_is_unwrapped(server: SharedClient) -> None:
    result = server.run(lambda client: client.call_tool("add", {"a": 19, "b": 23}))
    assert (result.data, result.text) == (42, "42")


def test_a_structured_result_arrives(server: SharedClient) -> None:
    result = server.run(lambda client: client.call_tool("forecast", {"city": "Oslo"}))
    assert result.data == {"city": "Oslo", "degrees": 21.5}


def test_a_picture_arrives(server: SharedClient) -> None:
    [image] = server.run(lambda client: client.call_tool("picture")).content
    assert isinstance(image, t.ImageContent)
    assert (image.data, image.mime_type) == ("iVBORw0KGgo=", "image/png")


def test_a_failing_tool_raises(server: SharedClient) -> None:
    with pytest.raises(ToolError, match="out of paper"):
        server.run(lambda client: client.call_tool("fail"))


def test_wrong_arguments_raise(server: SharedClient) -> None:
    with pytest.raises(ToolError, match="validation error"):
        server.run(lambda client: client.call_tool("add", {"a": "many"}))


def test_an_unknown_tool_raises(server: SharedClient) -> None:
    # The official server answers with a result that says so, not with -32602.
    with pytest.raises(ToolError, match="Unknown tool: nothing"):
        server.run(lambda client: client.call_tool("nothing"))


def test_calls_run_side_by_side(server: SharedClient) -> None:
    async def work(client: Client) -> list[Any]:
        calls = [client.call_tool("add", {"a": number, "b": 0}) for number in range(30)]
        return [result.data for result in await asyncio.gather(*calls)]

    assert server.run(work) == list(range(30))


def test_a_sign_of_life_is_given(server: SharedClient) -> None:
    assert server.run(lambda client: client.ping()) is None


# --- resources, prompts, completion


def test_resources_are_read(server: SharedClient) -> None:
    async def work(client: Client) -> list[t.ResourceContents]:
        uris = ("note://fixed", "blob://dot", "city://Oslo/map")
        return [(await client.read_resource(uri))[0] for uri in uris]

    text, blob, city = server.run(work)
    assert (text.text, blob.blob, city.text) == ("as it was", "iVBORw0KGgo=", "the map of Oslo")


def test_an_unknown_resource_raises(server: SharedClient) -> None:
    # The official server uses the stateless era's code in both.
    with pytest.raises(InvalidParams, match="note://missing"):
        server.run(lambda client: client.read_resource("note://missing"))


def test_a_prompt_is_filled_in(server: SharedClient) -> None:
    prompt = server.run(lambda client: client.get_prompt("greet", {"name": "Ann"}))
    assert [message.role for message in prompt.messages] == ["user", "assistant"]
    assert isinstance(prompt.messages[0].content, t.TextContent)
    assert prompt.messages[0].content.text == "Greet Ann in a kind tone."


def test_an_unknown_prompt_raises(server: SharedClient) -> None:
    with pytest.raises(RequestFailed):
        server.run(lambda client: client.get_prompt("nothing"))


def test_an_argument_is_completed(server: SharedClient) -> None:
    async def work(client: Client) -> list[str]:
        return (await client.complete(t.PromptReference(name="greet"), {"name": "tone", "value": "k"})).values

    assert server.run(work) == ["kind", "keen"]


def test_what_was_filled_in_before_is_told(server: SharedClient) -> None:
    async def work(client: Client) -> list[str]:
        ref = t.ResourceTemplateReference(uri="city://{name}/map")
        found = await client.complete(ref, {"name": "name", "value": ""}, context={"country": "Norway"})
        return found.values

    assert server.run(work) == ["Oslo"]


# --- progress, logging, cancellation


def test_progress_is_heard(server: SharedClient) -> None:
    heard: list[Any] = []

    async def work(client: Client) -> None:
        await client.call_tool("count", {"steps": 3}, on_progress=lambda *news: heard.append(news))

    server.run(work)
    assert heard == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


def test_giving_up_a_call_stops_its_tool(server: SharedClient) -> None:
    async def work(client: Client) -> Any:
        begun = asyncio.Event()
        call = asyncio.create_task(client.call_tool("wait", on_progress=lambda *news: begun.set()))
        await begun.wait()
        call.cancel()
        await asyncio.wait([call])
        return (await client.call_tool("was_stopped")).data

    assert server.run(work) is True


def test_a_silent_call_times_out(server: SharedClient) -> None:
    async def work(client: Client) -> None:
        await client.call_tool("wait", timeout=0.2)

    with pytest.raises(RequestTimeout) as caught:
        server.run(work)
    assert caught.value.clock == "idle"


def test_a_log_message_is_heard_where_it_was_asked_for(stateless: SharedClient) -> None:
    async def work(client: Client) -> None:
        await client.set_logging_level("warning")
        await client.call_tool("talk")

    stateless.heard.clear()
    stateless.run(work)
    message = {"level": "error", "data": "an error", "logger": "mouth"}
    assert stateless.heard == [("notifications/message", message)]


# --- questions


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("ask_person", "Who are you? I am Ann., 30"),
        ("ask_model", "parrot: heard 'Say hello.'"),
        ("ask_model_with_tools", "toolUse: clock"),
        ("ask_roots", "file:///"),
        ("ask_all", "Who are you? I am Ann. parrot 1"),
    ],
)
def test_the_client_is_asked(server: SharedClient, tool: str, text: str) -> None:
    assert server.run(lambda client: client.call_tool(tool)).text == text


def test_a_session_sends_the_user_to_a_page_and_says_when_it_is_finished(handshake: SharedClient) -> None:
    handshake.heard.clear()
    assert handshake.run(lambda client: client.call_tool("ask_page")).text == "accept"
    assert handshake.heard == [("notifications/elicitation/complete", {"elicitationId": "page-1"})]


def test_a_session_answers_the_servers_ping(handshake: SharedClient) -> None:
    assert handshake.run(lambda client: client.call_tool("ask_whether_alive")).text == "EmptyResult"


@pytest.mark.parametrize("revision", BOTH_ERAS)
async def test_a_client_that_answers_nothing_is_not_asked(revision: str) -> None:
    async with Client(OFFICIAL, revision=revision) as client:
        # The official server uses the stateless era's code in both.
        with pytest.raises(MissingClientCapability, match="elicitation"):
            await client.call_tool("ask_person")


# --- changes


def test_changes_are_told_to_a_listener(stateless: SharedClient) -> None:
    async def work(client: Client) -> set[Change]:
        async with client.listen(tools=True, prompts=True, resources=True, uris=["note://fixed"]) as changes:
            await client.call_tool("change", {"uri": "note://fixed"})
            return {await anext(changes) for _ in range(4)}

    assert stateless.run(work) == {
        Change("tools"),
        Change("prompts"),
        Change("resources"),
        Change("resource", "note://fixed"),
    }


# --- a server that dies


@pytest.mark.parametrize("revision", BOTH_ERAS)
async def test_a_server_that_dies_in_a_call_fails_it_and_is_started_again(revision: str) -> None:
    async with Client(OFFICIAL, revision=revision) as client:
        with pytest.raises(ServerExited) as caught:
            await client.call_tool("exit_now", {"status": 3})
        error, after = caught.value, (await client.call_tool("add", {"a": 1, "b": 2})).data
    assert (error.status, after) == (3, 3)
    assert "the last words" in error.stderr
