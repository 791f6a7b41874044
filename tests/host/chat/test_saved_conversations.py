"""A conversation in a file, and a turn for programs."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.host.chat.support import calls, consistent, policy, results, talking, text_in
from tests.support import run_async
from trunkline import Server
from trunkline.errors import ConfigError
from trunkline.host.chat.conversation import ask
from trunkline.host.chat.history import load_conversation
from trunkline.host.host import Host
from trunkline.host.models.interface import ModelError
from trunkline.host.models.scripted import ScriptedModel, ScriptedTurn


def shop() -> Server:
    """Make a server with one tool."""
    server = Server("shop")

    @server.tool
    async def price(of: str) -> str:
        return f"{of} costs 3"

    @server.tool
    async def log() -> str:
        return "entry\n" * 20_000

    return server


async def test_a_conversation_that_was_saved_goes_on_with_what_was_said_and_what_was_kept(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"

    async with talking(tmp_path, {"shop": shop()}, [calls("log"), "ok"]) as talk:
        await talk.say("The log?")
        talk.conversation.save(path)
        saved = load_conversation(path)
        model = ScriptedModel([calls(("read_output", {"id": "out-1", "limit": 5})), "done"])
        again = talk.host.conversation(model, saved=saved)
        before = (talk.conversation.messages, talk.conversation.usage, talk.conversation.cost)
        same = (again.messages, again.usage, again.cost) == before
        [event async for event in again.say("Read it.")]
        page = text_in(results(again)[-1])
    assert same
    assert page.endswith("\nentry")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_what_an_untrusted_server_said_taints_the_session_in_which_it_goes_on(tmp_path: Path) -> None:
    async with talking(tmp_path, {"shop": shop()}, [calls(("price", {"of": "tea"})), "ok"]) as talk:
        await talk.say()
        session = talk.host.session()
        talk.host.conversation(talk.model, session=session, saved=talk.conversation.snapshot())
    assert session.tainted


async def test_a_file_that_ends_within_a_turn_is_completed(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"

    script = [calls(("price", {"of": "tea"})), "ok"]
    async with talking(tmp_path, {"shop": shop()}, script) as talk:
        await talk.say()
        talk.conversation.save(path)
    content = json.loads(path.read_text())
    content["messages"] = content["messages"][:2]
    path.write_text(json.dumps(content))
    messages = [each.message for each in load_conversation(path).messages]
    assert consistent(messages)
    assert "The result is lost." in str(messages[-1])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param("{", "not a saved conversation", id="cut-off"),
        pytest.param("[]", "not a saved conversation", id="something-else"),
        pytest.param('{"format": 2, "model": "a:b", "outputs": "0123abcd"}', "format 2", id="of-the-future"),
    ],
)
def test_a_file_that_is_no_conversation_is_named(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "talk.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=problem):
        load_conversation(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.json: the conversation cannot be read"):
        load_conversation(tmp_path / "none.json")


# --- for programs ----------------------------------------------------------------------------------------------------


async def test_a_reply_has_the_text_after_the_calls_and_the_calls(tmp_path: Path) -> None:
    script = [calls(("price", {"of": "tea"}), ("price", {}), says="I look."), "Tea costs 3."]
    async with talking(tmp_path, {"shop": shop()}, script) as talk:
        reply = await ask(talk.conversation, "How much?")
    assert (reply.text, reply.stop, reply.model) == ("Tea costs 3.", "end", "scripted:script")
    assert sorted((call.tool, call.outcome) for call in reply.calls) == [("price", "error"), ("price", "ok")]
    assert reply.usage.output_tokens > 0


async def test_a_denied_call_is_marked_in_the_reply(tmp_path: Path) -> None:
    script = [calls(("price", {"of": "tea"}), says="I cannot."), ""]
    async with talking(tmp_path, {"shop": shop()}, script, rules=policy()) as talk:
        reply = await ask(talk.conversation, "How much?")
    assert [call.outcome for call in reply.calls] == ["denied"]
    assert reply.text == "I cannot."


async def test_a_host_chats_with_a_model_by_its_name(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(
        json.dumps({"turn": [{"calls": [{"tool": "price", "arguments": {"of": "tea"}}]}, {"says": "{result}."}]})
    )

    async with Host.open({"shop": shop()}, folder=tmp_path / "state", policy=policy("shop")) as host:
        reply = await host.chat("How much?", model=f"scripted:{script}")
    assert reply.text == "tea costs 3."


def test_a_model_that_fails_is_an_error_to_a_program(tmp_path: Path) -> None:
    async def main() -> None:
        async with Host.open({}, folder=tmp_path, policy=policy()) as host:
            await host.chat("Hello?", model=ScriptedModel([ScriptedTurn(fails="refused key")]))

    with pytest.raises(ModelError) as failure:
        run_async(main())
    assert failure.value.fault == "refused key"
