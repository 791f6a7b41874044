"""The official TypeScript server ``everything`` over stdio, as server of our client: nearly all that it can do."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest

import trunkline.types as t
from tests.interop.peers import HANDSHAKE, NEWEST, NEWEST_HANDSHAKE, SharedClient, npm_server, shared
from tests.support import run_async
from trunkline import Client, Limits, ToolError
from trunkline.client.changes import Change
from trunkline.errors import InternalError, InvalidParams, RevisionMismatch, UrlElicitationRequired

TEXT_TEMPLATE = "demo://resource/dynamic/text/{resourceId}"


def fill_in(question: t.ElicitRequestParams) -> Any:
    return True if question.mode == "url" else {"name": "Ann", "check": True, "number": 2.5}


def model(question: t.CreateMessageRequestParams) -> str:
    return f"{question.system_prompt} {question.max_tokens}"


@pytest.fixture(scope="module")
def everything() -> Iterator[SharedClient]:
    """One server process, with a client that can answer everything."""
    command = npm_server("everything")
    with shared(command, elicitation=fill_in, elicitation_urls=True, sampling=model, roots=["/srv/data"]) as client:
        yield client


def call(server: SharedClient, tool: str, **arguments: Any) -> Any:
    return server.run(lambda client: client.call_tool(tool, arguments))


# --- agreeing on a revision


def test_the_handshake_is_found_by_itself(everything: SharedClient) -> None:
    client = everything.client
    assert client.revision == NEWEST_HANDSHAKE
    assert client.server_info is not None
    assert client.server_info.title == "Everything Reference Server"
    assert client.instructions is not None


async def test_a_server_that_is_slow_to_start_still_shakes_hands() -> None:
    async with Client(npm_server("everything"), limits=Limits(probe_seconds=0.01)) as client:
        assert (client.revision, (await client.call_tool("echo", {"message": "up"})).text) == (
            NEWEST_HANDSHAKE,
            "Echo: up",
        )


@pytest.mark.parametrize("revision", HANDSHAKE)
async def test_every_handshake_revision_can_be_pinned(revision: str) -> None:
    async with Client(npm_server("everything"), revision=revision) as client:
        assert (client.revision, (await client.call_tool("get-sum", {"a": 19, "b": 23})).text) == (
            revision,
            "The sum of 19 and 23 is 42.",
        )


def test_a_pinned_revision_that_the_server_does_not_speak_is_an_error() -> None:
    async def main() -> None:
        async with Client(npm_server("everything"), revision=NEWEST):
            pytest.fail("it connected")

    with pytest.raises(RevisionMismatch, match=NEWEST):
        run_async(main())


def test_the_era_is_remembered_for_the_next_client() -> None:
    memory: dict[str, str] = {}

    async def main() -> str | None:
        async with Client(npm_server("everything"), era_memory=memory):
            pass
        async with Client(npm_server("everything"), era_memory=memory) as again:
            return again.revision

    assert run_async(main()) == NEWEST_HANDSHAKE
    assert list(memory.values()) == [NEWEST_HANDSHAKE]


# --- tools


def test_what_the_client_can_answer_decides_which_tools_there_are(everything: SharedClient) -> None:
    names = {tool.name for tool in everything.run(lambda client: client.list_tools())}
    assert len(names) == 19
    assert {"trigger-sampling-request-async", "trigger-elicitation-request-async"} <= names
    assert {"get-roots-list", "trigger-sampling-request", "trigger-url-elicitation"} <= names


def test_a_large_text_is_echoed(everything: SharedClient) -> None:
    assert call(everything, "echo", message="x" * 1_000_000).text == "Echo: " + "x" * 1_000_000


def test_annotations_arrive(everything: SharedClient) -> None:
    text, image = call(everything, "get-annotated-message", messageType="success", includeImage=True).content
    assert text.annotations == t.Annotations(priority=0.7, audience=["user"])
    assert (image.mime_type, image.annotations.priority) == ("image/png", 0.5)


def test_the_environment_is_a_minimal_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> dict[str, str]:
        async with Client(npm_server("everything"), env={"GIVEN": "yes"}) as client:
            seen: dict[str, str] = json.loads((await client.call_tool("get-env")).text)
            return seen

    monkeypatch.setenv("A_SECRET_OF_OURS", "hidden")
    seen = run_async(main())
    assert seen["GIVEN"] == "yes"
    assert "A_SECRET_OF_OURS" not in seen


def test_resource_links_can_be_followed(everything: SharedClient) -> None:
    async def work(client: Client) -> list[str | None]:
        links = (await client.call_tool("get-resource-links", {"count": 2})).content[1:]
        return [(await client.read_resource(link.uri))[0].uri for link in links if isinstance(link, t.ResourceLink)]

    assert everything.run(work) == ["demo://resource/dynamic/blob/1", "demo://resource/dynamic/text/2"]


@pytest.mark.parametrize(("kind", "member"), [("Text", "text"), ("Blob", "blob")])
def test_an_embedded_resource_arrives(everything: SharedClient, kind: str, member: str) -> None:
    _, embedded, _ = call(everything, "get-resource-reference", resourceType=kind, resourceId=3).content
    assert embedded.resource.uri == f"demo://resource/dynamic/{member}/3"
    assert getattr(embedded.resource, member)


def test_a_resource_made_by_a_tool_can_be_read(everything: SharedClient) -> None:
    async def work(client: Client) -> bytes:
        [link] = (await client.call_tool("gzip-file-as-resource", {"name": "a.gz", "data": "data:,hello"})).content
        assert isinstance(link, t.ResourceLink)
        [contents] = await client.read_resource(link.uri)
        return gzip.decompress(base64.b64decode(contents.blob or ""))

    assert everything.run(work) == b"hello"


def test_wrong_arguments_raise(everything: SharedClient) -> None:
    with pytest.raises(ToolError, match="Input validation error"):
        call(everything, "echo")


def test_an_unknown_tool_raises(everything: SharedClient) -> None:
    # The TypeScript SDK answers with a result that says so, not with an error.
    with pytest.raises(ToolError, match="nothing not found"):
        call(everything, "nothing")


def test_a_tool_that_must_be_a_task_is_called_as_one(everything: SharedClient) -> None:
    report = call(everything, "simulate-research-query", topic="rivers").text
    assert report.startswith("# Research Report: rivers\n")


# --- questions


def test_the_user_fills_in_a_form_of_every_kind_of_field(everything: SharedClient) -> None:
    text = call(everything, "trigger-elicitation-request").text
    assert "- Name: Ann\n- Agreed to terms: true" in text
    assert "- Favorite Number: 2.5" in text
    # What the user left out, the form's own defaults fill in.
    assert "- Favorite Integer: 42" in text


@pytest.mark.parametrize(("answer", "action"), [(None, "decline"), (t.ElicitResult(action="cancel"), "cancel")])
def test_the_user_does_not_answer(answer: Any, action: str) -> None:
    async def main() -> str:
        async with Client(npm_server("everything"), elicitation=lambda question: answer) as client:
            return (await client.call_tool("trigger-elicitation-request")).text

    assert f'"action": "{action}"' in run_async(main())


def test_the_user_is_sent_to_a_page(everything: SharedClient) -> None:
    text = call(everything, "trigger-url-elicitation", url="https://example.com/a").text
    assert "User completed the URL elicitation flow" in text


def test_a_page_that_must_be_visited_first_is_an_error(everything: SharedClient) -> None:
    with pytest.raises(UrlElicitationRequired) as caught:
        call(everything, "trigger-url-elicitation", url="https://example.com/b", errorPath=True)
    assert caught.value.data["elicitations"][0]["url"] == "https://modelcontextprotocol.io"


def test_the_model_is_asked(everything: SharedClient) -> None:
    text = call(everything, "trigger-sampling-request", prompt="Hello?", maxTokens=77).text
    assert "You are a helpful test server. 77" in text


def test_the_roots_are_asked_for(everything: SharedClient) -> None:
    assert "URI: file:///srv/data" in call(everything, "get-roots-list").text


def test_changed_roots_are_asked_for_again() -> None:
    roots = ["/srv/before"]
    logs: asyncio.Queue[t.LoggingMessageNotificationParams] = asyncio.Queue()

    async def main() -> str:
        async with Client(npm_server("everything"), roots=lambda: roots, logging=logs.put_nowait) as client:
            await client.call_tool("get-roots-list")
            await logs.get()
            roots[:] = ["/srv/after"]
            await client.notify_roots_changed()
            await logs.get()
            return (await client.call_tool("get-roots-list")).text

    assert "file:///srv/after" in run_async(main())


# --- resources, prompts, completion


def test_resources_and_templates_are_listed(everything: SharedClient) -> None:
    async def work(client: Client) -> tuple[list[str], list[str]]:
        resources, templates = await client.list_resources(), await client.list_resource_templates()
        return [resource.uri for resource in resources], [template.uri_template for template in templates]

    resources, templates = everything.run(work)
    assert "demo://resource/static/document/features.md" in resources
    assert TEXT_TEMPLATE in templates


def test_a_document_is_read(everything: SharedClient) -> None:
    [contents] = everything.run(lambda client: client.read_resource("demo://resource/static/document/features.md"))
    assert (contents.mime_type, bool(contents.text)) == ("text/markdown", True)


def test_an_unknown_resource_raises(everything: SharedClient) -> None:
    # The TypeScript SDK says -32602 where its revision has -32002.
    with pytest.raises(InvalidParams, match="not found"):
        everything.run(lambda client: client.read_resource("demo://nothing"))


def test_a_resource_that_fails_raises(everything: SharedClient) -> None:
    with pytest.raises(InternalError, match="Unknown resource"):
        everything.run(lambda client: client.read_resource("demo://resource/dynamic/text/none"))


@pytest.mark.parametrize(
    ("prompt", "arguments", "text"),
    [
        ("simple-prompt", None, "This is a simple prompt without arguments."),
        ("args-prompt", {"city": "Oslo", "state": "Norway"}, "What's weather in Oslo, Norway?"),
        ("completable-prompt", {"department": "Sales", "name": "Eve"}, "Please promote Eve to the head of the Sales"),
    ],
)
def test_a_prompt_is_filled_in(everything: SharedClient, prompt: str, arguments: Any, text: str) -> None:
    [message] = everything.run(lambda client: client.get_prompt(prompt, arguments)).messages
    assert isinstance(message.content, t.TextContent)
    assert message.content.text.startswith(text)


def test_a_prompt_with_a_resource_arrives(everything: SharedClient) -> None:
    arguments = {"resourceType": "Text", "resourceId": 5}
    messages = everything.run(lambda client: client.get_prompt("resource-prompt", arguments)).messages
    assert isinstance(messages[1].content, t.EmbeddedResource)
    assert messages[1].content.resource.uri == "demo://resource/dynamic/text/5"


def test_a_prompt_without_its_argument_raises(everything: SharedClient) -> None:
    with pytest.raises(InvalidParams, match="args-prompt"):
        everything.run(lambda client: client.get_prompt("args-prompt", {}))


@pytest.mark.parametrize(
    ("ref", "argument", "before", "values"),
    [
        (t.PromptReference(name="completable-prompt"), ("department", "S"), None, ["Sales", "Support"]),
        (t.PromptReference(name="completable-prompt"), ("name", "A"), {"department": "Engineering"}, ["Alice"]),
        (t.ResourceTemplateReference(uri=TEXT_TEMPLATE), ("resourceId", "7"), None, ["7"]),
    ],
    ids=["prompt", "prompt-in-context", "template"],
)
def test_an_argument_is_completed(
    everything: SharedClient, ref: Any, argument: tuple[str, str], before: Any, values: list[str]
) -> None:
    name, value = argument
    found = everything.run(lambda client: client.complete(ref, {"name": name, "value": value}, context=before))
    assert found.values == values


# --- logging, changes, life


async def test_log_messages_follow_the_level() -> None:
    heard: list[t.LoggingMessageNotificationParams] = []
    async with Client(npm_server("everything"), logging=heard.append) as client:
        await client.set_logging_level("info")
        await client.subscribe("demo://resource/dynamic/text/1")
        await client.set_logging_level("error")
        await client.subscribe("demo://resource/dynamic/text/2")
    assert [(each.level, "text/1" in str(each.data)) for each in heard] == [("info", True)]


async def test_updates_of_a_subscribed_resource_are_heard() -> None:
    uri = "demo://resource/dynamic/text/1"
    async with Client(npm_server("everything")) as client, client.listen(uris=[uri]) as changes:
        await client.call_tool("toggle-subscriber-updates")
        assert await anext(changes) == Change("resource", uri)


def test_a_changed_list_of_resources_is_heard_and_read_anew() -> None:
    async def main() -> tuple[Change, list[str]]:
        async with Client(npm_server("everything")) as client, client.listen(resources=True) as changes:
            await client.list_resources()
            await client.call_tool("gzip-file-as-resource", {"name": "b.gz", "data": "data:,b"})
            change = await anext(changes)
            return change, [resource.name for resource in await client.list_resources()]

    change, names = run_async(main())
    assert change == Change("resources")
    assert "b.gz" in names
