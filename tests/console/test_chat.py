"""Chats of the console: real conversations with a scripted model, over the API and its events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trunkline.types as t
from tests.console.support import ApiClient, OpenConsole, library, on_console, policy, refused
from trunkline import Context
from trunkline.console.api.chat import ChatPart
from trunkline.host.chat.history import load_conversation

ALLOW = policy('[[rule]]\neffect = "allow"\nserver = "library"\n')
TOOL = "library__find"


def script(folder: Path, turns: Sequence[Mapping[str, Any]], *, piece: int = 12) -> str:
    """Write a script; return the name of its model."""
    file = folder / "script.json"
    file.write_text(json.dumps({"turn": list(turns), "piece": piece}))
    return f"scripted:{file}"


def calling(tool: str = TOOL, **arguments: Any) -> dict[str, Any]:
    return {"says": "Let me look.", "calls": [{"tool": tool, "arguments": arguments}]}


@asynccontextmanager
async def chatting(
    folder: Path, turns: Sequence[Mapping[str, Any]], *, piece: int = 12, **options: Any
) -> AsyncIterator[tuple[OpenConsole, ApiClient, str]]:
    """Open a console whose model follows a script, a window, and a chat."""
    environ = {"TRUNKLINE_MODEL": script(folder, turns, piece=piece)} if turns else {}
    async with on_console({"library": library()}, folder, environ=environ, **options) as console:
        page = console.client()
        async with page.listen():
            chat = (await page.post("/chats"))["chat"]
            yield console, page, chat["id"]


async def ended(page: ApiClient, chat: str, count: int = 1) -> None:
    """Wait until so many turns of a chat have ended and are saved."""

    def is_saved(event: dict[str, Any]) -> bool:
        return bool(event["type"] == "chat" and event["chat"] == chat and event["event"]["kind"] == "saved")

    await page.event("chat", lambda event: sum(map(is_saved, page.events)) >= count)


def kinds(page: ApiClient) -> list[str]:
    return [event["event"]["kind"] for event in page.events if event["type"] == "chat"]


def said(page: ApiClient) -> str:
    events = [event["event"] for event in page.events if event["type"] == "chat"]
    return "".join(event["text"] for event in events if event["kind"] == "said")


async def test_a_message_is_answered_in_events_and_kept_in_the_chat(tmp_path: Path) -> None:
    turns = [calling(title="Emma"), {"says": "It stands on {result}."}]
    async with chatting(tmp_path, turns, policy=ALLOW) as (_, page, chat):
        await page.post(f"/chats/{chat}/messages", {"text": "Where is Emma?"})
        await ended(page, chat)
        found = await page.get(f"/chats/{chat}")
        assert kinds(page) == [
            *("user", "said", "proposed", "began", "ended", "said", "turn_over", "saved"),
        ]
        assert said(page) == "Let me look.It stands on shelf 7: Emma."
        user, model = found["messages"]
        assert user == {"role": "user", "parts": [{"type": "text", "text": "Where is Emma?"}]}
        first, call, last = model["parts"]
        assert (first["text"], last["text"]) == ("Let me look.", "It stands on shelf 7: Emma.")
        assert (call["server"], call["tool"], call["arguments"]) == ("library", "find", {"title": "Emma"})
        assert (call["state"], call["preview"]) == ("done", "shelf 7: Emma")
        assert call["seconds"] >= 0
        assert found["running"] is False
        assert found["title"] == "Where is Emma?"
        assert found["model"].startswith("scripted:")
        assert found["usage"]["input"] > 0
        assert found["cost"] == 0.0
        assert found["context"]["window"] > found["context"]["used"] > 0
        assert "library" in {part["server"] for part in found["context"]["parts"]}
        listed = await page.get("/chats")
        assert [(row["id"], row["title"]) for row in listed["chats"]] == [(chat, "Where is Emma?")]


async def test_a_call_that_needs_approval_is_asked_beside_its_call(tmp_path: Path) -> None:
    turns = [calling("library__lend", title="Emma"), {"says": "Done: {result}"}]
    async with chatting(tmp_path, turns) as (_, page, chat):
        await page.post(f"/chats/{chat}/messages", {"text": "Lend Emma."})
        item = await page.item("approval")
        assert (item["caller"], item["name"], item["arguments"]) == ("chat", "lend", {"title": "Emma"})
        running = await page.get(f"/chats/{chat}")
        call = running["messages"][-1]["parts"][-1]
        assert running["running"] is True
        assert (call["call_id"], call["state"], call["item"]) == (item["call"], "running", item["id"])
        await page.post(f"/inbox/{item['id']}", {"allow": True})
        await ended(page, chat)
        parts = (await page.get(f"/chats/{chat}"))["messages"][-1]["parts"]
        assert parts[1]["state"] == "done"
        assert "item" not in parts[1]


async def test_what_is_remembered_for_one_call_holds_for_the_next_of_the_same_answer(tmp_path: Path) -> None:
    two: dict[str, Any] = {
        "calls": [
            {"tool": "library__lend", "arguments": {"title": "Emma"}},
            {"tool": "library__lend", "arguments": {"title": "Persuasion"}},
        ]
    }
    async with chatting(tmp_path, [two, {"says": "Both."}]) as (_, page, chat):
        await page.post(f"/chats/{chat}/messages", {"text": "Lend both."})
        item = await page.item("approval")
        await page.post(f"/inbox/{item['id']}", {"allow": True, "remember": "session"})
        await ended(page, chat)
        assert [each["type"] for each in page.events].count("inbox") == 1
        calls = (await page.get(f"/chats/{chat}"))["messages"][-1]["parts"][:2]
        assert [call["state"] for call in calls] == ["done", "done"]


async def test_text_is_joined_to_at_most_twenty_events_a_second(tmp_path: Path) -> None:
    async with chatting(tmp_path, [{"says": "word " * 2000}], piece=1) as (_, page, chat):
        started = asyncio.get_running_loop().time()
        await page.post(f"/chats/{chat}/messages", {"text": "Talk."})
        await ended(page, chat)
        took = asyncio.get_running_loop().time() - started
        events = [e["event"] for e in page.events if e["type"] == "chat" and e["event"]["kind"] == "said"]
        assert "".join(event["text"] for event in events) == "word " * 2000
        # Of ten thousand pieces, however long they took.
        assert len(events) <= took * 20 + 2


async def test_a_turn_is_cancelled_and_the_chat_goes_on(tmp_path: Path) -> None:
    turns: list[dict[str, Any]] = [{"says": "Half of it", "hangs": True}, {"says": "Whole."}]
    async with chatting(tmp_path, turns) as (_, page, chat):
        await page.post(f"/chats/{chat}/messages", {"text": "Tell me."})
        await page.event("chat", lambda each: each["event"]["kind"] == "said")
        failed = await refused(page.post(f"/chats/{chat}/messages", {"text": "And now?"}))
        assert (failed.status, failed.code) == (409, "running")
        await page.post(f"/chats/{chat}/cancel")
        await ended(page, chat)
        over = next(e["event"] for e in page.events if e["type"] == "chat" and e["event"]["kind"] == "turn_over")
        assert over["reason"] == "cancelled"
        await page.post(f"/chats/{chat}/messages", {"text": "Again."})
        await ended(page, chat, 2)
        texts = [part["text"] for each in (await page.get(f"/chats/{chat}"))["messages"] for part in each["parts"]]
        assert texts == ["Tell me.", "Half of it", "Again.", "Whole."]


async def test_resources_are_attached_and_prompts_are_picked_without_a_question(tmp_path: Path) -> None:
    turns = [{"says": "I read: {said}"}, {"expects": "Recommend a novel", "says": "Emma."}]
    async with chatting(tmp_path, turns) as (_, page, chat):
        message = {"text": "Read it.", "attachments": [{"id": "library/book://1"}]}
        await page.post(f"/chats/{chat}/messages", message)
        await ended(page, chat)
        prompt = {"id": "library/recommend", "arguments": {"genre": "novel"}}
        await page.post(f"/chats/{chat}/messages", {"prompt": prompt})
        await ended(page, chat, 2)
        messages = (await page.get(f"/chats/{chat}"))["messages"]
        assert messages[0]["parts"] == [
            {"type": "attachment", "server": "library", "uri": "book://1", "name": "1"},
            {"type": "text", "text": "Read it."},
        ]
        assert messages[2] == {
            "role": "user",
            "parts": [{"type": "text", "text": "Recommend a novel", "server": "library"}],
        }
        assert messages[3]["parts"] == [{"type": "text", "text": "Emma."}]
        assert not [each for each in page.events if each["type"] == "inbox"]


async def test_what_does_not_exist_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    async with chatting(tmp_path, [{"says": "Hi."}]) as (_, page, chat):
        for body, status in (
            ({"text": " "}, 400),
            ({"text": "x", "attachments": ["library/book://1"]}, 400),
            ({"prompt": {"id": "library/none"}}, 404),
            ({"text": "x", "attachments": [{"id": "library/book://1"}] * 21}, 413),
            ({"text": "x", "attachments": [{"id": "nobody/book://1"}]}, 404),
        ):
            failed = await refused(page.post(f"/chats/{chat}/messages", body))
            assert failed.status == status
        for path in ("/chats/none", "/chats/..%2Fsecrets", "/chats/a.b"):
            failed = await refused(page.get(path))
            assert failed.status == 404


async def test_an_attachment_that_cannot_be_read_is_said_and_the_chat_goes_on(tmp_path: Path) -> None:
    async with chatting(tmp_path, [{"says": "Hi."}]) as (_, page, chat):
        message = {"text": "Read.", "attachments": [{"id": "library/shelf://none"}]}
        await page.post(f"/chats/{chat}/messages", message)
        await ended(page, chat)
        assert kinds(page) == ["user", "failed", "saved"]
        found = await page.get(f"/chats/{chat}")
        assert found["problem"]
        # Nothing of the message is lost.
        assert [part["type"] for part in found["messages"][0]["parts"]] == ["attachment", "text"]
        assert found["retriable"]
        await page.post(f"/chats/{chat}/messages", {"text": "Hello."})
        await ended(page, chat, 2)
        assert (await page.get(f"/chats/{chat}"))["problem"] is None


async def test_without_a_model_a_message_is_refused_with_the_fix(tmp_path: Path) -> None:
    async with chatting(tmp_path, []) as (_, page, chat):
        assert (await page.get("/state"))["model"] is None
        listed = await page.get("/chats")
        assert (listed["model"], listed["models"]) == (None, [])
        failed = await refused(page.post(f"/chats/{chat}/messages", {"text": "Hello."}))
        assert (failed.status, failed.code) == (409, "no_model")
        assert "TRUNKLINE_MODEL" in (failed.fix or "")
        model = script(tmp_path, [{"says": "Hello."}])
        await page.post(f"/chats/{chat}/model", {"model": model})
        await page.post(f"/chats/{chat}/messages", {"text": "Hello."})
        await ended(page, chat)
        assert said(page) == "Hello."


async def test_an_unknown_model_is_named(tmp_path: Path) -> None:
    async with chatting(tmp_path, [{"says": "Hi."}]) as (_, page, chat):
        failed = await refused(page.post(f"/chats/{chat}/model", {"model": "nobody:x"}))
        assert failed.code == "model_unavailable"
        assert "nobody:x" in (failed.message or "")


async def test_a_chat_is_saved_as_the_terminal_saves_it_and_goes_on_after_it_did(tmp_path: Path) -> None:
    async with chatting(tmp_path, [{"says": "One."}, {"says": "Three."}], policy=ALLOW) as (console, page, chat):
        await page.post(f"/chats/{chat}/messages", {"text": "First."})
        await ended(page, chat)
        file = console.console.core.folder / "conversations" / f"{chat}.json"
        assert file.stat().st_mode & 0o777 == 0o600
        # The terminal continues it: the same conversation, saved to the same file.
        saved = load_conversation(file)
        model = await console.console.part(ChatPart).chats._model(None)
        conversation = console.host.conversation(model, saved=saved)
        conversation._prompt.history.say("Second.")
        conversation._prompt.history.say("Two.", role="assistant")
        conversation.save(file)
        found = await page.get(f"/chats/{chat}")
        assert [m["parts"][0]["text"] for m in found["messages"]] == ["First.", "One.", "Second.", "Two."]
        await page.post(f"/chats/{chat}/messages", {"text": "Third."})
        await ended(page, chat, 2)
        assert load_conversation(file).messages[-1].message.text == "Three."


async def test_a_chat_is_listed_and_continued_by_another_console(tmp_path: Path) -> None:
    async with chatting(tmp_path, [{"says": "One."}]) as (_, page, chat):
        await page.post(f"/chats/{chat}/messages", {"text": "First."})
        await ended(page, chat)
    async with chatting(tmp_path, [{"says": "Two."}]) as (_, page, _):
        assert [row["id"] for row in (await page.get("/chats"))["chats"]] == [chat]
        await page.post(f"/chats/{chat}/messages", {"text": "Second."})
        await ended(page, chat)
        texts = [part["text"] for each in (await page.get(f"/chats/{chat}"))["messages"] for part in each["parts"]]
        assert texts == ["First.", "One.", "Second.", "Two."]
        await page.delete(f"/chats/{chat}")
        assert (await page.get("/chats"))["chats"] == []
        await refused(page.get(f"/chats/{chat}"))


async def test_closing_the_console_cancels_what_runs_and_saves_it(tmp_path: Path) -> None:
    async with chatting(tmp_path, [{"says": "Half", "hangs": True}]) as (console, page, chat):
        await page.post(f"/chats/{chat}/messages", {"text": "Go."})
        await page.event("chat", lambda each: each["event"]["kind"] == "said")
        file = console.console.core.folder / "conversations" / f"{chat}.json"
    assert [entry.message.text for entry in load_conversation(file).messages] == ["Go.", "Half"]


async def test_a_result_with_a_page_is_kept_for_it(tmp_path: Path) -> None:
    server = library()
    server.add_app("ui://library/shelf", "<!doctype html><title>Shelf</title>")

    @server.tool(app="ui://library/shelf", annotations=t.ToolAnnotations(read_only_hint=True))
    async def show(title: str) -> dict[str, str]:
        return {"title": title}

    environ = {"TRUNKLINE_MODEL": script(tmp_path, [calling("library__show", title="Emma"), {"says": "There."}])}
    async with on_console({"library": server}, tmp_path, environ=environ, policy=ALLOW, apps=True) as console:
        page = console.client()
        async with page.listen():
            chat = (await page.post("/chats"))["chat"]["id"]
            await page.post(f"/chats/{chat}/messages", {"text": "Show Emma."})
            await ended(page, chat)
            call = (await page.get(f"/chats/{chat}"))["messages"][-1]["parts"][1]
            assert call["app"] == "ui://library/shelf"
            view = await page.post("/apps", {"tool": "library/show", "chat": chat, "call": call["call_id"]})
            started = {"jsonrpc": "2.0", "method": "ui/notifications/initialized"}
            sent = (await page.post(f"/apps/{view['view']}/message", {"message": started}))["messages"]
            assert [each["method"] for each in sent] == [
                "ui/notifications/tool-input",
                "ui/notifications/tool-result",
            ]
            assert sent[0]["params"] == {"arguments": {"title": "Emma"}}
            assert sent[1]["params"]["structuredContent"] == {"title": "Emma"}


async def test_the_calls_of_a_chat_are_in_the_log_of_calls(tmp_path: Path) -> None:
    turns = [calling(title="Emma"), {"says": "There."}]
    async with chatting(tmp_path, turns, policy=ALLOW) as (_, page, chat):
        await page.post(f"/chats/{chat}/messages", {"text": "Where is Emma?"})
        await ended(page, chat)
        [row] = (await page.get("/calls"))["calls"]
        assert (row["by"], row["target"], row["state"]) == ("chat", "library/find", "done")
        assert row["arguments"] == {"title": "Emma"}
        whole = (await page.get(f"/calls/{row['id']}"))["call"]
        assert whole["result"]["content"][0]["text"] == "shelf 7: Emma"
        states = [event["call"]["state"] for event in page.events if event["type"] == "call"]
        assert (states[0], states[-1]) == ("running", "done")


async def test_a_denied_call_of_a_chat_is_shown_and_is_in_the_log_with_its_reason(tmp_path: Path) -> None:
    ask = policy('[[rule]]\neffect = "ask"\nserver = "library"\n')
    turns = [calling(title="Emma"), {"says": "Never mind."}]
    async with chatting(tmp_path, turns, policy=ask) as (_, page, chat):
        await page.post(f"/chats/{chat}/messages", {"text": "Where is Emma?"})
        item = await page.item("approval")
        await page.post(f"/inbox/{item['id']}", {"allow": False})
        await ended(page, chat)
        [row] = (await page.get("/calls"))["calls"]
        assert (row["by"], row["state"], row["error"]["code"]) == ("chat", "denied", "denied")
        assert "library/find" in row["error"]["message"]
        assert (await page.get(f"/chats/{chat}"))["messages"][-1]["parts"][1]["state"] == "denied"


async def test_a_call_of_a_chat_has_the_arguments_that_the_user_edited(tmp_path: Path) -> None:
    ask = policy('[[rule]]\neffect = "ask"\nserver = "library"\n')
    async with chatting(tmp_path, [calling(title="Emma"), {"says": "Ok."}], policy=ask) as (_, page, chat):
        await page.post(f"/chats/{chat}/messages", {"text": "Where is Emma?"})
        item = await page.item("approval")
        running = await page.event("call")
        failure = await refused(page.post(f"/calls/{running['call']['id']}/cancel"))
        assert failure.code == "not_cancellable"
        await page.post(f"/inbox/{item['id']}", {"allow": True, "arguments": {"title": "Persuasion"}})
        await ended(page, chat)
        [row] = (await page.get("/calls"))["calls"]
        assert (row["state"], row["arguments"]) == ("done", {"title": "Persuasion"})


async def test_a_cancelled_turn_leaves_no_running_call(tmp_path: Path) -> None:
    ask = policy('[[rule]]\neffect = "ask"\nserver = "library"\n')
    async with chatting(tmp_path, [calling(title="Emma"), {"says": "Ok."}], policy=ask) as (_, page, chat):
        await page.post(f"/chats/{chat}/messages", {"text": "Where is Emma?"})
        await page.item("approval")
        await page.post(f"/chats/{chat}/cancel")
        await ended(page, chat)
        [row] = (await page.get("/calls"))["calls"]
        assert row["state"] == "cancelled"


async def test_a_question_of_a_server_belongs_to_the_call_of_the_chat(tmp_path: Path) -> None:
    server = library()

    @server.tool
    async def order(title: str, ctx: Context) -> str:
        answer = await ctx.elicit("How many copies?", int)
        return f"{answer.data} copies of {title}"

    environ = {"TRUNKLINE_MODEL": script(tmp_path, [calling("library__order", title="Emma"), {"says": "{result}"}])}
    async with on_console({"library": server}, tmp_path, environ=environ, policy=ALLOW) as console:
        page = console.client()
        async with page.listen():
            chat = (await page.post("/chats"))["chat"]["id"]
            await page.post(f"/chats/{chat}/messages", {"text": "Order Emma."})
            item = await page.item("form")
            call = (await page.get(f"/chats/{chat}"))["messages"][-1]["parts"][1]
            assert (item["call"], call["item"]) == (call["call_id"], item["id"])
            await page.post(f"/inbox/{item['id']}", {"action": "accept", "content": {"value": 2}})
            await ended(page, chat)
            assert said(page).endswith("2 copies of Emma")


async def test_a_turn_that_failed_is_kept_with_its_reason_and_can_be_repeated(tmp_path: Path) -> None:
    turns = [{"fails": "down"}, {"says": "Here I am."}]
    async with chatting(tmp_path, turns) as (_, page, chat):
        await page.post(f"/chats/{chat}/messages", {"text": "Hello?"})
        await ended(page, chat)
        view = await page.get(f"/chats/{chat}")
        assert ("down" in view["problem"], view["retriable"], len(view["messages"])) == (True, True, 1)
    # Another console shows it as well; the model begins its script again.
    async with chatting(tmp_path, turns[1:]) as (_, page, _):
        assert "down" in (await page.get(f"/chats/{chat}"))["problem"]
        await page.post(f"/chats/{chat}/messages", {"retry": True})
        await ended(page, chat)
        view = await page.get(f"/chats/{chat}")
        assert (view["problem"], view["retriable"]) == (None, False)
        assert [message["role"] for message in view["messages"]] == ["user", "model"]
        assert "no failed turn" in (
            (await refused(page.post(f"/chats/{chat}/messages", {"retry": True}))).message or ""
        )
