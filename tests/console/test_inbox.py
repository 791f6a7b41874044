"""The inbox: approvals, reviews and forms in all pages, where the first answer counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from tests.console.support import ApiClient, OpenConsole, library, on_console, policy, refused
from tests.host.gateway.support import NEW, OLD, revisions_of
from tests.host.server_requests.test_sampling import model
from tests.support import BOUND
from trunkline import Client, Context, Server
from trunkline.console import inbox as inbox_module
from trunkline.console.masking import restore_masked
from trunkline.host.gateway.sessions import GatewayOptions

ASK = '[[rule]]\neffect = "ask"\nserver = "*"\ntool = "*"\n'


@asynccontextmanager
async def asking(folder: Path, server: Server | None = None, **options: Any) -> AsyncIterator[OpenConsole]:
    """Open a console where every tool is asked about."""
    async with on_console({"lib": server or library()}, folder, policy=policy(ASK), **options) as stage:
        yield stage


async def started(page: ApiClient, title: str = "Emma", tool: str = "lib/lend") -> str:
    call = await page.post("/calls", {"kind": "tool", "id": tool, "arguments": {"title": title}})
    id: str = call["call"]["id"]
    return id


def _belongs_to(call: str, item: dict[str, Any]) -> bool:
    return bool(item["call"] == call)


# --- approvals --------------------------------------------------------------------------------------------------------


async def test_what_a_rule_wants_asked_waits_in_the_inbox(tmp_path: Path) -> None:
    async with asking(tmp_path) as stage, stage.client().listen() as page:
        call = await started(page)
        item = await page.item("approval")
        assert (item["act"], item["name"], item["item"], item["server"]) == ("tool", "lend", "lib/lend", "lib")
        assert (item["caller"], item["call"]) == ("you", call)
        assert item["arguments"] == {"title": "Emma"}
        assert (item["editable"], item["rule"]) == (True, "policy.toml:1")
        assert item["deadline"] > item["created"]
        scopes = [choice["scope"] for choice in item["remember"]]
        assert scopes == ["once", "session", "always", "read-only", "server", "alike"]
        assert all(choice["label"] and choice["detail"] for choice in item["remember"])
        assert (await page.get("/state"))["inbox"] == (await page.get("/inbox"))["inbox"] == [item]
        await page.post(f"/inbox/{item['id']}", {"allow": True})
        view = await page.finished(call)
        closed = await page.event("inbox_closed")
    assert view["state"] == "done"
    assert closed == {
        "type": "inbox_closed",
        "id": item["id"],
        "outcome": "allowed",
        "text": "lib/lend was allowed.",
        "window": page.window,
    }


async def test_a_denial_denies_the_call(tmp_path: Path) -> None:
    async with asking(tmp_path) as stage, stage.client().listen() as page:
        call = await started(page)
        item = await page.item("approval")
        await page.post(f"/inbox/{item['id']}", {"allow": False})
        view = await page.finished(call)
        assert (await page.event("inbox_closed"))["outcome"] == "denied"
    assert view["state"] == "denied"
    assert "the user declined" in view["error"]["message"]


async def test_all_questions_are_shown_at_once(tmp_path: Path) -> None:
    async with asking(tmp_path) as stage, stage.client().listen() as page:
        calls = [await started(page, title) for title in ("one", "two", "three")]
        items = [await page.item("approval", partial(_belongs_to, call)) for call in calls]
        await page.post(f"/inbox/{items[2]['id']}", {"allow": True})
        assert (await page.finished(calls[2]))["state"] == "done"
        assert [item["id"] for item in (await page.get("/inbox"))["inbox"]] == [items[0]["id"], items[1]["id"]]
        # What one answer covers is not asked any more.
        await page.post(f"/inbox/{items[0]['id']}", {"allow": True, "remember": "session"})
        assert (await page.finished(calls[1]))["state"] == "done"
        closed = await page.event("inbox_closed", lambda event: event["id"] == items[1]["id"])
    assert closed["outcome"] == "withdrawn"


async def test_the_first_answer_counts_and_the_other_window_is_told(tmp_path: Path) -> None:
    async with asking(tmp_path) as stage, stage.client().listen() as one, stage.client().listen() as two:
        call = await started(one)
        item = await two.item("approval")
        assert item == await one.item("approval")
        await two.post(f"/inbox/{item['id']}", {"allow": True})
        late = await refused(one.post(f"/inbox/{item['id']}", {"allow": False}))
        assert (late.status, late.code, late.message) == (409, "answered", "lib/lend was allowed.")
        assert (await one.event("inbox_closed"))["window"] == two.window
        assert (await one.finished(call))["state"] == "done"
        unknown = await refused(one.post("/inbox/none", {"allow": True}))
        assert unknown.status == 404


async def test_a_question_whose_call_is_cancelled_is_withdrawn(tmp_path: Path) -> None:
    async with asking(tmp_path) as stage, stage.client().listen() as page:
        call = await started(page)
        item = await page.item("approval")
        await page.post(f"/calls/{call}/cancel")
        assert (await page.event("inbox_closed"))["outcome"] == "withdrawn"
        late = await refused(page.post(f"/inbox/{item['id']}", {"allow": True}))
    assert (late.status, late.code) == (409, "withdrawn")


async def test_a_question_without_an_answer_expires(tmp_path: Path) -> None:
    async with asking(tmp_path, consent_seconds=0.3) as stage, stage.client().listen() as page:
        view = await page.finished(await started(page))
        assert (await page.event("inbox_closed"))["outcome"] == "expired"
    assert view["state"] == "denied"


async def test_edited_arguments_are_used(tmp_path: Path) -> None:
    async with asking(tmp_path) as stage, stage.client().listen() as page:
        call = await started(page)
        item = await page.item("approval")
        await page.post(f"/inbox/{item['id']}", {"allow": True, "arguments": {"title": "Persuasion", "days": 2}})
        view = await page.finished(call)
    assert view["result"]["structuredContent"] == {"Persuasion": 2}


async def test_masked_arguments_keep_their_values(tmp_path: Path) -> None:
    async with asking(tmp_path) as stage, stage.client().listen() as page:
        stage.console.core.secrets.add(["hunter2-secret"])
        call = await started(page, "my hunter2-secret", "lib/find")
        item = await page.item("approval")
        assert item["arguments"] == {"title": "my ***"}
        await page.post(f"/inbox/{item['id']}", {"allow": True, "arguments": {"title": "my ***"}})
        view = await page.finished(call)
        assert stage.console.calls.get(call).result is not None
        assert b"hunter2-secret" in (stage.console.calls.get(call).result or b"")
    assert view["result"]["content"][0]["text"] == "shelf 7: my ***"


def test_only_what_was_masked_is_restored() -> None:
    def hide(text: str) -> str:
        return text.replace("secret", "***")

    original = {"a": "secret", "b": ["x secret", "y"], "secret": 1}
    assert restore_masked({"a": "***", "b": ["x ***", "***", "z"], "***": 2}, original, hide) == {
        "a": "secret",
        "b": ["x secret", "***", "z"],
        "secret": 2,
    }
    assert restore_masked({"c": "***"}, original, hide) == {"c": "***"}
    assert restore_masked(["***"], original, hide) == ["***"]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        {"allow": "yes"},
        {"allow": True, "remember": "forever"},
        {"allow": True, "arguments": []},
        {"allow": True, "vary": 1},
    ],
)
async def test_an_answer_that_does_not_fit_changes_nothing(answer: Any, tmp_path: Path) -> None:
    async with asking(tmp_path) as stage, stage.client().listen() as page:
        await started(page)
        item = await page.item("approval")
        failure = await refused(page.post(f"/inbox/{item['id']}", answer))
        assert (failure.status, failure.code) == (400, "invalid_answer")
        assert len((await page.get("/inbox"))["inbox"]) == 1


async def test_there_cannot_be_any_number_of_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "_MOST_ITEMS", 1)
    async with asking(tmp_path) as stage, stage.client().listen() as page:
        await started(page, "one")
        await page.item("approval")
        view = await page.finished(await started(page, "two"))
    assert view["state"] == "denied"


# --- questions of servers ---------------------------------------------------------------------------------------------


class Person(Struct):
    """What a form asks for."""

    name: str
    age: int


def questioner(revision: str) -> Server:
    made = Server("lib", revisions=revisions_of(revision))

    @made.tool
    async def sign_up(ctx: Context) -> str:
        answer = await ctx.elicit("Your name?", Person)
        return f"{answer.action}: {answer.data}"

    @made.tool
    async def think(ctx: Context) -> str:
        answer = await ctx.sample("What is it like?", max_tokens=50)
        return str(answer.text)

    return made


ERAS = pytest.mark.parametrize("revision", [OLD, NEW], ids=["handshake", "stateless"])


@ERAS
async def test_a_form_is_filled_in(revision: str, tmp_path: Path) -> None:
    async with on_console({"lib": questioner(revision)}, tmp_path) as stage, stage.client().listen() as page:
        call = (await page.post("/calls", {"kind": "tool", "id": "lib/sign_up"}))["call"]["id"]
        item = await page.item("form")
        assert (item["server"], item["message"]) == ("lib", "Your name?")
        assert set(item["schema"]["properties"]) == {"name", "age"}
        misfits: list[Any] = [{"name": "Jane"}, {"name": "Jane", "age": "x"}, {"name": "Jane", "age": 1, "x": 2}, []]
        for content in misfits:
            failure = await refused(page.post(f"/inbox/{item['id']}", {"action": "accept", "content": content}))
            assert failure.code == "invalid_answer"
        await refused(page.post(f"/inbox/{item['id']}", {"action": "perhaps"}))
        await page.post(f"/inbox/{item['id']}", {"action": "accept", "content": {"name": "Jane", "age": 41}})
        view = await page.finished(call)
        assert (await page.event("inbox_closed"))["outcome"] == "answered"
    assert "Jane" in view["result"]["content"][0]["text"]


@ERAS
async def test_a_form_is_declined(revision: str, tmp_path: Path) -> None:
    async with on_console({"lib": questioner(revision)}, tmp_path) as stage, stage.client().listen() as page:
        call = (await page.post("/calls", {"kind": "tool", "id": "lib/sign_up"}))["call"]["id"]
        item = await page.item("form")
        await page.post(f"/inbox/{item['id']}", {"action": "decline"})
        view = await page.finished(call)
    assert view["result"]["content"][0]["text"].startswith("decline")


@ERAS
async def test_sampling_is_edited_and_reviewed(revision: str, tmp_path: Path) -> None:
    said = model({"expects": "sweet", "says": "it is sour"})
    async with (
        on_console({"lib": questioner(revision)}, tmp_path, models=[said]) as stage,
        stage.client().listen() as page,
    ):
        call = (await page.post("/calls", {"kind": "tool", "id": "lib/think"}))["call"]["id"]
        item = await page.item("sampling_request")
        assert (item["model"], item["models"], item["max_tokens"]) == ("scripted:one", ["scripted:one"], 50)
        assert item["request"]["messages"][0]["content"]["text"] == "What is it like?"
        request = {**item["request"]}
        request["messages"] = [{"role": "user", "content": {"type": "text", "text": "Is it sweet?"}}]
        await refused(page.post(f"/inbox/{item['id']}", {"allow": True, "request": {"messages": 1}}))
        await refused(page.post(f"/inbox/{item['id']}", {"allow": True, "model": "other:one"}))
        await page.post(f"/inbox/{item['id']}", {"allow": True, "request": request})
        review = await page.item("sampling_response")
        assert review["response"]["content"]["text"] == "it is sour"
        assert review["usage"]["output_tokens"] > 0
        edited = {**review["response"], "content": {"type": "text", "text": "it is fine"}}
        await page.post(f"/inbox/{review['id']}", {"allow": True, "response": edited})
        view = await page.finished(call)
    assert view["result"]["content"][0]["text"] == "it is fine"


async def test_sampling_is_denied(tmp_path: Path) -> None:
    async with (
        on_console({"lib": questioner(NEW)}, tmp_path, models=[model()]) as stage,
        stage.client().listen() as page,
    ):
        call = (await page.post("/calls", {"kind": "tool", "id": "lib/think"}))["call"]["id"]
        item = await page.item("sampling_request")
        await page.post(f"/inbox/{item['id']}", {"allow": False})
        view = await page.finished(call)
    assert view["is_error"]


async def test_a_page_to_open_is_shown_in_parts(tmp_path: Path) -> None:
    made = Server("lib")

    @made.tool
    async def pay(ctx: Context) -> str:
        answer = await ctx.elicit_url("Please pay", "https://user@pay.example.com:8443/x", done=lambda: True)
        return str(answer.action)

    async with on_console({"lib": made}, tmp_path) as stage, stage.client().listen() as page:
        call = (await page.post("/calls", {"kind": "tool", "id": "lib/pay"}))["call"]["id"]
        item = await page.item("url")
        assert (item["before"], item["host"], item["after"]) == ("https://user@", "pay.example.com", ":8443/x")
        assert item["warnings"]
        await page.post(f"/inbox/{item['id']}", {"action": "accept"})
        assert (await page.finished(call))["state"] == "done"


# --- a gateway --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["console", "client"])
async def test_at_a_gateway_console_and_client_are_asked(first: str, tmp_path: Path) -> None:
    asked, proceed, withdrawn = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def elicit(question: Any) -> Any:
        asked.set()
        try:
            await proceed.wait()
        except asyncio.CancelledError:
            withdrawn.set()
            raise
        return {"decision": "allow once"}

    async with asking(tmp_path) as stage, stage.client().listen() as page:
        gateway = stage.host.gateway(GatewayOptions(approval="ask"))
        async with Client(gateway, revision=OLD, elicitation=elicit) as client, asyncio.timeout(BOUND):
            calling = asyncio.create_task(client.call_tool("lib__lend", {"title": "Emma"}))
            item = await page.item("approval")
            await asked.wait()
            assert item["caller"] == "gateway"
            if first == "console":
                await page.post(f"/inbox/{item['id']}", {"allow": True})
                await withdrawn.wait()
            else:
                proceed.set()
            assert (await calling).data == {"Emma": 7}
            closed = await page.event("inbox_closed")
        await gateway.aclose()
    assert closed["outcome"] == ("allowed" if first == "console" else "withdrawn")


async def test_a_stateless_client_that_can_be_asked_is_asked_alone(tmp_path: Path) -> None:
    async def elicit(question: Any) -> Any:
        return {"decision": "allow once"}

    async with asking(tmp_path) as stage, stage.client().listen() as page:
        gateway = stage.host.gateway(GatewayOptions(approval="ask"))
        async with Client(gateway, revision=NEW, elicitation=elicit) as client:
            assert (await client.call_tool("lib__lend", {"title": "Emma"})).data == {"Emma": 7}
        await gateway.aclose()
        assert not any(event["type"] == "inbox" for event in page.events)


async def test_a_client_that_cannot_be_asked_is_answered_in_the_console(tmp_path: Path) -> None:
    async with asking(tmp_path) as stage, stage.client().listen() as page:
        gateway = stage.host.gateway(GatewayOptions(approval="ask"))
        async with Client(gateway, revision=NEW) as client:
            calling = asyncio.create_task(client.call_tool("lib__lend", {"title": "Emma"}))
            item = await page.item("approval")
            await page.post(f"/inbox/{item['id']}", {"allow": True})
            assert (await calling).data == {"Emma": 7}
        await gateway.aclose()
