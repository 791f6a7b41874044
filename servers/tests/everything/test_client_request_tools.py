"""The tools that send requests to the client: as requests in one era, and inside the result in the other."""

from __future__ import annotations

from typing import Any

import pytest

import trunkline.types as t
from servers.tests.everything.support import (
    ERAS,
    HANDSHAKE,
    MIDDLE,
    ROOT,
    STATELESS,
    Heard,
    call,
    connected,
    everything,
)
from tests.support import run_async
from trunkline import Client, RequestFailed, ToolError
from trunkline.errors import UrlElicitationRequired

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
def test_a_client_that_can_be_asked_everything_sees_every_tool_that_asks(revision: str) -> None:
    async def main() -> set[str]:
        async with connected(revision) as client:
            return await _names(client)

    assert run_async(main()) >= ASKING


@pytest.mark.parametrize("revision", ERAS)
def test_a_client_that_can_be_asked_nothing_sees_none_of_them(revision: str) -> None:
    async def main() -> set[str]:
        async with Client(everything(), revision=revision) as client:
            return await _names(client)

    assert run_async(main()) & ASKING == set()


@pytest.mark.parametrize("revision", ERAS)
def test_a_hidden_tool_cannot_be_called_by_its_client(revision: str) -> None:
    async def main() -> None:
        async with Client(everything(), revision=revision) as client:
            await client.call_tool("trigger-sampling-request", {"prompt": "x"})

    with pytest.raises(RequestFailed, match="Unknown tool"):
        run_async(main())


def test_a_revision_without_pages_has_no_tool_that_opens_one() -> None:
    async def main() -> set[str]:
        async with connected(MIDDLE) as client:
            return await _names(client)

    assert run_async(main()) & {"trigger-url-elicitation", "visit-page", "sample-with-tools"} == set()


# --- the official tools ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ERAS)
def test_the_roots_of_the_client_are_listed(revision: str) -> None:
    async def main() -> str:
        async with connected(revision) as client:
            return str((await call(client, "get-roots-list")).text)

    text = run_async(main())
    assert text.startswith("Current MCP Roots (1 total):\n\n1. ")
    assert f"\n   URI: {ROOT}" in text


@pytest.mark.parametrize("revision", ERAS)
def test_a_client_without_roots_is_reported(revision: str) -> None:
    async def main() -> str:
        async with connected(revision, roots=[]) as client:
            return str((await call(client, "get-roots-list")).text)

    assert run_async(main()) == "The client supports roots but no roots are currently configured."


def test_roots_that_changed_are_seen_at_the_next_call() -> None:
    folders = ["/srv/one"]

    async def main() -> str:
        async with connected(HANDSHAKE, roots=lambda: folders) as client:
            await call(client, "get-roots-list")
            folders.append("/srv/two")
            await client.notify_roots_changed()
            return str((await call(client, "get-roots-list")).text)

    assert run_async(main()).startswith("Current MCP Roots (2 total):")


@pytest.mark.parametrize("revision", ERAS)
def test_the_model_is_asked_with_a_system_prompt_and_a_bound(revision: str) -> None:
    heard = Heard()

    async def main() -> str:
        async with connected(revision, heard=heard) as client:
            return str((await call(client, "trigger-sampling-request", prompt="Pack?", maxTokens=7)).text)

    text = run_async(main())
    (asked,) = heard.sampled
    assert text.startswith("LLM sampling result: \n{\n")
    assert '"text": "a lantern"' in text
    assert (asked.max_tokens, asked.temperature, asked.system_prompt) == (7, 0.7, "You are a helpful test server.")


@pytest.mark.parametrize("revision", ERAS)
def test_the_form_has_every_kind_of_field(revision: str) -> None:
    heard = Heard()

    async def main() -> list[str]:
        async with connected(revision, heard=heard) as client:
            return [block.text for block in (await call(client, "trigger-elicitation-request")).content]

    told, inputs, raw = run_async(main())
    assert told == "✅ User provided the requested information!"
    assert (
        inputs == "User inputs:\n- Name: Ann\n- Agreed to terms: true\n- Favorite Integer: 42\n- Favorite Number: 2.5"
    )
    assert '"action": "accept"' in raw
    fields = (heard.asked[0].requested_schema or {})["properties"]
    assert {each["type"] for each in fields.values()} == {"string", "boolean", "integer", "number", "array"}


@pytest.mark.parametrize("revision", ERAS)
@pytest.mark.parametrize(("action", "told"), [("decline", "❌ User declined"), ("cancel", "⚠️ User cancelled")])
def test_a_form_that_was_not_filled_in_is_reported(action: Any, told: str, revision: str) -> None:
    async def main() -> str:
        async with connected(revision, answers=lambda question: t.ElicitResult(action=action)) as client:
            return str((await call(client, "trigger-elicitation-request")).content[0].text)

    assert run_async(main()).startswith(told)


@pytest.mark.parametrize("revision", BOTH)
def test_the_user_is_sent_to_a_page(revision: str) -> None:
    heard = Heard()

    async def main() -> str:
        async with connected(revision, heard=heard) as client:
            result = await call(client, "trigger-url-elicitation", url=PAGE, message="Go", elicitationId="e-1")
            return str(result.content[0].text)

    assert run_async(main()) == f"✅ User completed the URL elicitation flow.\nElicitation ID: e-1\nURL: {PAGE}"
    assert (heard.asked[0].url, heard.asked[0].message) == (PAGE, "Go")


def test_a_url_elicitation_has_the_requested_id() -> None:
    heard = Heard()

    async def main() -> None:
        async with connected(HANDSHAKE, heard=heard) as client:
            await call(client, "trigger-url-elicitation", url=PAGE, elicitationId="e-1")

    run_async(main())
    assert heard.asked[0].elicitation_id == "e-1"


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "file:///etc/passwd", "https://me:pw@example.com/", "https://["]
)
def test_an_invalid_page_url_is_refused(url: str) -> None:
    async def main() -> None:
        async with connected(HANDSHAKE) as client:
            await call(client, "trigger-url-elicitation", url=url)

    with pytest.raises(ToolError, match="https://example"):
        run_async(main())


def test_the_error_path_asks_once_for_a_page_and_then_goes_on() -> None:
    async def main() -> tuple[Any, str, int]:
        async with connected(HANDSHAKE) as client:
            arguments: dict[str, Any] = {"url": PAGE, "errorPath": True}
            with pytest.raises(UrlElicitationRequired) as first:
                await client.call_tool("trigger-url-elicitation", arguments)
            second = (await call(client, "trigger-url-elicitation", **arguments)).content[0].text
            with pytest.raises(UrlElicitationRequired) as third:
                await client.call_tool("trigger-url-elicitation", arguments)
            return first.value.data, second, third.value.code

    data, second, code = run_async(main())
    assert [page["mode"] for page in data["elicitations"]] == ["url"]
    assert second.startswith("✅ User completed")
    assert code == -32042


def test_the_error_path_of_one_session_is_not_another_session_s() -> None:
    server = everything()

    async def refused(client: Client) -> int:
        with pytest.raises(UrlElicitationRequired) as error:
            await call(client, "trigger-url-elicitation", url=PAGE, errorPath=True)
        return error.value.code

    async def main() -> tuple[int, int]:
        async with connected(HANDSHAKE, server) as one, connected(HANDSHAKE, server) as other:
            return await refused(one), await refused(other)

    assert run_async(main()) == (-32042, -32042)


def test_in_the_stateless_era_the_error_path_is_one_more_question() -> None:
    heard = Heard()

    async def main() -> str:
        async with connected(STATELESS, heard=heard) as client:
            return str((await call(client, "trigger-url-elicitation", url=PAGE, errorPath=True)).content[0].text)

    assert run_async(main()).startswith("✅ User completed")
    assert [question.url for question in heard.asked] == ["https://example.com/prerequisite", PAGE]


# --- what the official server lacks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ERAS)
def test_the_second_question_knows_the_first_answer(revision: str) -> None:
    async def main() -> str:
        async with connected(revision) as client:
            return str((await call(client, "ask-twice")).text)

    assert run_async(main()) == "Ann travels with 2 bags and eats fish."


@pytest.mark.parametrize("revision", ERAS)
def test_declining_the_first_question_skips_the_second(revision: str) -> None:
    heard = Heard()

    async def main() -> str:
        async with connected(revision, heard=heard, answers=lambda question: None) as client:
            return str((await call(client, "ask-twice")).text)

    assert "decline" in run_async(main())
    assert len(heard.asked) == 1


@pytest.mark.parametrize("revision", ERAS)
def test_one_handler_asks_the_user_the_model_and_for_roots(revision: str) -> None:
    async def main() -> Any:
        async with connected(revision) as client:
            return (await call(client, "ask-everything")).text

    assert run_async(main()) == (f'{{"traveller":"Ann","action":"accept","packing":"a lantern","roots":["{ROOT}"]}}')


@pytest.mark.parametrize("revision", BOTH)
def test_the_model_may_use_a_tool_while_it_answers(revision: str) -> None:
    heard = Heard()

    async def main() -> str:
        async with connected(revision, heard=heard) as client:
            return str((await call(client, "sample-with-tools")).text)

    assert run_async(main()) == "The model used 1 tool calls and says: a lantern"
    assert len(heard.sampled[-1].messages) == 3


@pytest.mark.parametrize("revision", BOTH)
def test_a_finished_page_is_announced_where_the_revision_has_the_notification(revision: str) -> None:
    heard = Heard()

    async def main() -> str:
        async with connected(revision, heard=heard) as client:
            return str((await call(client, "visit-page", url=PAGE)).text)

    assert run_async(main()) == "The page was answered with accept."
    told = len(heard.of("notifications/elicitation/complete"))
    assert told == {HANDSHAKE: 1, STATELESS: 0}[revision]


@pytest.mark.parametrize("revision", ERAS)
def test_a_prompt_may_ask_before_it_is_made(revision: str) -> None:
    async def main() -> Any:
        async with connected(revision) as client:
            return (await client.get_prompt("asking-prompt")).messages[0].content

    assert run_async(main()).text == "Write a sentence about rails."


@pytest.mark.parametrize("revision", ERAS)
def test_a_resource_may_ask_what_it_should_say(revision: str) -> None:
    async def main() -> Any:
        async with connected(revision) as client:
            return (await client.read_resource("demo://resource/asked"))[0].text

    assert run_async(main()) == "good morning"
