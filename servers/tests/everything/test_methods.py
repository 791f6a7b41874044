"""Every method of the protocol, in every revision, both ways: this server uses it, or a reason is given."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

import trunkline.types as t
from servers.tests.everything.support import ROOT, forms, model
from trunkline import Client, memory_pair
from trunkline.protocol.methods import METHODS
from trunkline.protocol.revisions import REVISIONS, Revision
from trunkline.testing import Recorder
from trunkline_servers.everything import make_server
from trunkline_servers.everything.notification_tools import NOTE_URI

#: Who sends it, or "inside" for a question that travels in a result; and its name.
Seen = tuple[str, str]

#: What is not shown, and why.
EXEMPT: Mapping[Seen, str] = {
    **{
        ("client", method): "skills are an extension that this server does not have"
        for method in ("skills/list", "skills/get", "resources/directory/read")
    },
    ("server", "tasks/cancel"): "no task of the client is given up",
    ("server", "tasks/list"): "the server knows the tasks that it has asked for",
    ("client", "notifications/tasks/status"): "our client leaves it to the server to look, as it must anyway",
    ("server", "ping"): "a server that is asked something all the time need not ask whether anybody is there",
    ("server", "notifications/cancelled"): "sent when the server gives a question or a stream up, at its end",
    ("client", "notifications/progress"): "no question of this server takes so long that progress is wanted",
}


async def _cancel(client: Client) -> None:
    waiting = asyncio.Event()
    call = client.call_tool("observe-cancellation", on_progress=lambda *_: waiting.set())
    work = asyncio.ensure_future(call)
    await waiting.wait()
    work.cancel()
    await asyncio.wait([work])


async def _listen(client: Client) -> None:
    async with client.listen(tools=True, prompts=True, resources=True, uris=[NOTE_URI]) as changes:
        for what in ("tool", "prompt", "resource"):
            await client.call_tool("change-lists", {"what": what, "action": "add", "name": "x"})
            await anext(changes)
        await client.call_tool("write-note", {"text": "x"})
        await anext(changes)


async def _subscribe(client: Client) -> None:
    await client.subscribe(NOTE_URI)
    await client.unsubscribe(NOTE_URI)


async def _run_task(client: Client) -> None:
    arguments = {"topic": "Python", "ambiguous": True}
    task = await client.start_task("simulate-research-query", arguments)
    await task.result()
    task = await client.start_task("simulate-research-query", arguments)
    await task.cancel()


async def _listen_to_task(client: Client) -> None:
    task = await client.start_task("simulate-research-query", {"topic": "Python", "ambiguous": True})
    listening = asyncio.ensure_future(client.request("subscriptions/listen", {"notifications": {"taskIds": [task.id]}}))
    await task.result()
    listening.cancel()


def _tool(name: str, **arguments: Any) -> Callable[[Client], Awaitable[Any]]:
    return lambda client: client.call_tool(name, arguments)


def _complete(client: Client) -> Awaitable[Any]:
    return client.complete(t.PromptReference(name="completable-prompt"), {"name": "department", "value": "S"})


#: What is done, and the method without which it is left out.
STEPS: tuple[tuple[str, Callable[[Client], Awaitable[Any]]], ...] = (
    ("tools/list", lambda client: client.list_tools()),
    ("prompts/list", lambda client: client.list_prompts()),
    ("resources/list", lambda client: client.list_resources()),
    ("resources/templates/list", lambda client: client.list_resource_templates()),
    ("prompts/get", lambda client: client.get_prompt("simple-prompt")),
    ("resources/read", lambda client: client.read_resource(NOTE_URI)),
    ("completion/complete", _complete),
    ("tools/call", _tool("echo", message="x")),
    ("ping", lambda client: client.ping()),
    ("logging/setLevel", lambda client: client.set_logging_level("debug")),
    ("resources/subscribe", _subscribe),
    ("roots/list", _tool("get-roots-list")),
    ("sampling/createMessage", _tool("trigger-sampling-request", prompt="x")),
    ("elicitation/create", _tool("trigger-elicitation-request")),
    ("notifications/elicitation/complete", _tool("visit-page", url="https://example.com/")),
    ("notifications/roots/list_changed", lambda client: client.notify_roots_changed()),
    ("notifications/message", _tool("toggle-simulated-logging")),
    ("notifications/cancelled", _cancel),
    ("notifications/resources/updated", _listen),
    ("tasks/get", _run_task),
    ("tasks/list", lambda client: client.request("tasks/list")),
    ("tasks/result", _tool("trigger-sampling-request-async", prompt="x")),
    ("notifications/tasks", _listen_to_task),
)


def table(revision: Revision) -> set[Seen]:
    """Return every method of a revision with its sender."""
    ways = (("client", "to_server"), ("server", "to_client"), ("inside", "embedded"))
    spans = ((who, row.name, getattr(row, way)) for row in METHODS for who, way in ways)
    return {(who, name) for who, name, span in spans if span is not None and span.covers(revision)}


async def tour(revision: Revision) -> set[Seen]:
    """Do everything with the server and give the methods that crossed the link."""
    ours, theirs = memory_pair()
    server = make_server(numbered=0, stage=0)
    recorder = Recorder(ours, side="client")
    names = {name for _, name in table(revision)}
    able: dict[str, Any] = {
        "elicitation": forms,
        "elicitation_urls": True,
        "sampling": model,
        "sampling_tools": True,
        "roots": [ROOT],
    }
    server.accept(theirs)
    async with Client(recorder, revision=revision.name, logging=lambda message: None, **able) as client:
        for method, step in STEPS:
            if method in names:
                await step(client)
    return {seen for entry in recorder.recording.entries for seen in _methods(entry.sender, entry.json)}


def _methods(sender: str, message: Any) -> list[Seen]:
    result = message.get("result") or {}
    inside = [("inside", question["method"]) for question in (result.get("inputRequests") or {}).values()]
    return [*inside, *([(sender, message["method"])] if "method" in message else [])]


@pytest.mark.parametrize("revision", REVISIONS, ids=lambda revision: revision.name)
async def test_every_method_is_shown_or_has_a_reason_for_its_absence(revision: Revision) -> None:
    shown = await tour(revision)
    assert table(revision) - shown - set(EXEMPT) == set()
    assert shown & set(EXEMPT) == set()


def test_every_reason_is_about_a_method_that_exists() -> None:
    everything = set().union(*(table(revision) for revision in REVISIONS))
    assert set(EXEMPT) <= everything
