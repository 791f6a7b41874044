"""The tools that send requests to the client: as requests in one era, and inside the result in the other."""

from __future__ import annotations

from typing import Any

import pytest

import trunkline.types as t
from servers.tests.everything.support import (
    HANDSHAKE,
    MIDDLE,
    ROOT,
    STATELESS,
    Heard,
    call,
    connected,
    everything,
)
from trunkline import Client, RequestFailed, ToolError
from trunkline.errors import UrlElicitationRequired
from trunkline_servers.everything.state import ServerState

PAGE = "https://example.com/form"
BOTH = (HANDSHAKE, STATELESS)
ASKING = {
    "get-roots-list",
    "trigger-elicitation-request",
    "trigger-url-elicitation",
    "trigger-sampling-request",
    "ask-twice",
    "ask-everything",
    "sample-with-tools",
    "visit-page",
}


# --- who sees what ---------------------------------------------------------------------------------------------------


async def _names(client: Client) -> set[str]:
    return {tool.name for tool in await client.list_tools()}


@pytest.mark.parametrize("revision", BOTH)
async def test_a_client_sees_only_the_tools_that_ask_what_it_can_answer(revision: str) -> None:
    async with connected(revision) as client:
        assert await _names(client) >= ASKING
    async with Client(everything(), revision=revision) as client:
        assert await _names(client) & ASKING == set()


async def test_a_hidden_tool_cannot_be_called_by_its_client() -> None:
    async with Client(everything(), revision=STATELESS) as client:
        with pytest.raises(RequestFailed, match="Unknown tool"):
            await client.call_tool("trigger-sampling-request", {"prompt": "x"})


async def test_a_revision_without_pages_has_no_tool_that_opens_one() -> None:
    async with connected(MIDDLE) as client:
        assert await _names(client) & {"trigger-url-elicitation", "visit-page", "sample-with-tools"} == set()


# --- the official tools ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", BOTH)
async def test_the_roots_of_the_client_are_listed(revision: str) -> None:
    async with connected(revision) as client:
        text = (await call(client, "get-roots-list")).text
    assert text.startswith("Current MCP Roots (1 total):\n\n1. ")
    assert f"\n   URI: {ROOT}" in text


async def test_a_client_without_roots_is_reported() -> None:
    async with connected(STATELESS, roots=[]) as client:
        assert (
            await call(client, "get-roots-list")
        ).text == "The client supports roots but no roots are currently configured."


@pytest.mark.parametrize("revision", BOTH)
async def test_the_model_is_asked_with_a_system_prompt_and_a_bound(revision: str) -> None:
    heard = Heard()
    async with connected(revision, heard=heard) as client:
        text = (await call(client, "trigger-sampling-request", prompt="Pack?", maxTokens=7)).text
    (asked,) = heard.sampled
    assert text.startswith("LLM sampling result: \n{\n")
    assert '"text": "a lantern"' in text
    assert (asked.max_tokens, asked.temperature, asked.system_prompt) == (7, 0.7, "You are a helpful test server.")


@pytest.mark.parametrize("revision", BOTH)
async def test_the_form_has_every_kind_of_field(revision: str) -> None:
    heard = Heard()
    async with connected(revision, heard=heard) as client:
        told, inputs, raw = [block.text for block in (await call(client, "trigger-elicitation-request")).content]
    assert told == "✅ User provided the requested information!"
    assert (
        inputs == "User inputs:\n- Name: Ann\n- Agreed to terms: true\n- Favorite Integer: 42\n- Favorite Number: 2.5"
    )
    assert '"action": "accept"' in raw
    fields = (heard.asked[0].requested_schema or {})["properties"]
    assert {each["type"] for each in fields.values()} == {"string", "boolean", "integer", "number", "array"}


@pytest.mark.parametrize("revision", BOTH)
@pytest.mark.parametrize(("action", "told"), [("decline", "❌ User declined"), ("cancel", "⚠️ User cancelled")])
async def test_a_form_that_was_not_filled_in_is_reported(action: Any, told: str, revision: str) -> None:
    async with connected(revision, answers=lambda question: t.ElicitResult(action=action)) as client:
        assert (await call(client, "trigger-elicitation-request")).content[0].text.startswith(told)


@pytest.mark.parametrize("revision", BOTH)
async def test_the_user_is_sent_to_a_page(revision: str) -> None:
    heard = Heard()
    async with connected(revision, heard=heard) as client:
        result = await call(client, "trigger-url-elicitation", url=PAGE, message="Go", elicitationId="e-1")
        assert (
            result.content[0].text == f"✅ User completed the URL elicitation flow.\nElicitation ID: e-1\nURL: {PAGE}"
        )
    assert (heard.asked[0].url, heard.asked[0].message) == (PAGE, "Go")


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "file:///etc/passwd", "https://me:pw@example.com/", "https://["]
)
async def test_an_invalid_page_url_is_refused(url: str) -> None:
    async with connected(HANDSHAKE) as client:
        with pytest.raises(ToolError, match="https://example"):
            await call(client, "trigger-url-elicitation", url=url)


async def test_the_error_path_asks_once_for_a_page_and_then_goes_on() -> None:
    async with connected(HANDSHAKE) as client:
        arguments: dict[str, Any] = {"url": PAGE, "errorPath": True}
        with pytest.raises(UrlElicitationRequired) as first:
            await client.call_tool("trigger-url-elicitation", arguments)
        second = (await call(client, "trigger-url-elicitation", **arguments)).content[0].text
        with pytest.raises(UrlElicitationRequired) as third:
            await client.call_tool("trigger-url-elicitation", arguments)
        data, code = first.value.data, third.value.code
    assert [page["mode"] for page in data["elicitations"]] == ["url"]
    assert second.startswith("✅ User completed")
    assert code == -32042


async def test_the_error_path_of_one_session_is_not_another_session_s() -> None:
    server = everything()

    async def refused(client: Client) -> int:
        with pytest.raises(UrlElicitationRequired) as error:
            await call(client, "trigger-url-elicitation", url=PAGE, errorPath=True)
        return error.value.code

    async with connected(HANDSHAKE, server) as one, connected(HANDSHAKE, server) as other:
        assert (await refused(one), await refused(other)) == (-32042, -32042)


async def test_in_the_stateless_era_the_error_path_is_one_more_question() -> None:
    heard = Heard()
    async with connected(STATELESS, heard=heard) as client:
        assert (
            (await call(client, "trigger-url-elicitation", url=PAGE, errorPath=True))
            .content[0]
            .text.startswith("✅ User completed")
        )
    assert [question.url for question in heard.asked] == ["https://example.com/prerequisite", PAGE]


# --- what the official server lacks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", BOTH)
async def test_the_second_question_knows_the_first_answer(revision: str) -> None:
    async with connected(revision) as client:
        assert (await call(client, "ask-twice")).text == "Ann travels with 2 bags and eats fish."


@pytest.mark.parametrize("revision", BOTH)
async def test_declining_the_first_question_skips_the_second(revision: str) -> None:
    heard = Heard()
    async with connected(revision, heard=heard, answers=lambda question: None) as client:
        assert "decline" in (await call(client, "ask-twice")).text
    assert len(heard.asked) == 1


@pytest.mark.parametrize("revision", BOTH)
async def test_one_handler_asks_the_user_the_model_and_for_roots(revision: str) -> None:
    async with connected(revision) as client:
        assert (await call(client, "ask-everything")).text == (
            f'{{"traveller":"Ann","action":"accept","packing":"a lantern","roots":["{ROOT}"]}}'
        )


@pytest.mark.parametrize("revision", BOTH)
async def test_the_model_may_use_a_tool_while_it_answers(revision: str) -> None:
    heard = Heard()
    async with connected(revision, heard=heard) as client:
        assert (await call(client, "sample-with-tools")).text == "The model used 1 tool calls and says: a lantern"
    assert len(heard.sampled[-1].messages) == 3


@pytest.mark.parametrize("revision", BOTH)
async def test_a_finished_page_is_announced_where_the_revision_has_the_notification(revision: str) -> None:
    heard = Heard()
    async with connected(revision, heard=heard) as client:
        assert (await call(client, "visit-page", url=PAGE)).text == "The page was answered with accept."
    told = len(heard.of("notifications/elicitation/complete"))
    assert told == {HANDSHAKE: 1, STATELESS: 0}[revision]


@pytest.mark.parametrize("revision", BOTH)
async def test_a_prompt_may_ask_before_it_is_made(revision: str) -> None:
    async with connected(revision) as client:
        (message,) = (await client.get_prompt("asking-prompt")).messages
        assert message.content == t.TextContent(text="Write a sentence about rails.")


@pytest.mark.parametrize("revision", BOTH)
async def test_a_resource_may_ask_what_it_should_say(revision: str) -> None:
    async with connected(revision) as client:
        assert (await client.read_resource("demo://resource/asked"))[0].text == "good morning"


@pytest.mark.parametrize(
    "given",
    [{"elicitationId": "x" * 257}, {"elicitationId": "a\nb"}, {"url": "https://example.com/" + "x" * 2_000}],
    ids=["id", "unseen-id", "url"],
)
async def test_the_remembered_pages_are_bounded(given: dict[str, str]) -> None:
    async with connected(HANDSHAKE) as client:
        with pytest.raises(ToolError, match="characters"):
            await call(client, "trigger-url-elicitation", **{"url": PAGE, "errorPath": True, **given})


def test_the_oldest_pages_that_must_be_visited_are_dropped() -> None:
    state = ServerState(interval=1, files=1, file_bytes=1)

    assert all(state.issue_once(number) for number in range(257))
    assert (state.issue_once(0), state.issue_once(256)) == (True, False)


async def test_a_url_elicitation_has_the_requested_id() -> None:
    heard = Heard()
    async with connected(HANDSHAKE, heard=heard) as client:
        await call(client, "trigger-url-elicitation", url=PAGE, elicitationId="e-1")
    assert heard.asked[0].elicitation_id == "e-1"
