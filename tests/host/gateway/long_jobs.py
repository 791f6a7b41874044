"""Long jobs on both sides: a server whose jobs a test steers, and raw clients that take long calls in each way."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

from tests.interaction.wire import Peer
from trunkline import Context, Server
from trunkline.extensions import TASKS
from trunkline.protocol.revisions import uses_handshake
from trunkline.server.runtime import runtime_for

__all__ = ["ASKED", "DIGGING", "FOUND", "Caller", "Site", "capabilities_of", "make_caller", "polled"]

T = TypeVar("T")

#: What a job reports before it may go on, what it asks then, and its result.
DIGGING, ASKED, FOUND = "digging", "Where?", "found in the garden"
_QUESTIONS: Mapping[str, Any] = {
    "elicitation/create": {"action": "accept", "content": {"value": "in the garden"}},
    "sampling/createMessage": {
        "role": "assistant",
        "content": {"type": "text", "text": "in the garden"},
        "model": "small",
    },
}


class Site:
    """Where jobs are done: a server with a tool of each kind, and what its jobs wait for."""

    def __init__(self, *revisions: str, **options: Any) -> None:
        """Make a server with these revisions."""
        #: Set when a job has begun; when it may go on to its question; when it was cancelled.
        self.begun, self.go, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.server = Server("site", **{"revisions": revisions or None, **options})
        self.server.tool(name="never")(self.dig)
        self.server.tool(name="optional", task=True)(self.dig)
        self.server.tool(name="required", task="required")(self.dig)

    async def dig(self, ctx: Context) -> str:
        """Dig until the test lets it go on, and ask the caller where."""
        self.begun.set()
        try:
            await ctx.report_progress(1, 2, DIGGING)
            await self.go.wait()
            await ctx.report_progress(2, 2, "thinking")
            # The oldest revisions have no forms, but they have models.
            if ctx.client.supports("elicitation"):
                where = (await ctx.elicit(ASKED, str)).data
            else:
                where = (await ctx.sample(ASKED, max_tokens=9)).text
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return f"found {where}"

    async def tasks(self) -> int:
        """Return how many calls were tasks here."""
        tasks: Any = runtime_for(self.server).tasks
        # Of callers in this process, and of those over HTTP.
        pages = [await tasks.records.page(None, after=None, limit=10, address=each) for each in (None, "127.0.0.1")]
        return sum(map(len, pages))


def capabilities_of(way: str, revision: str) -> dict[str, Any]:
    """Return what a client declares that takes long calls in one way, and can be asked."""
    extensions: dict[str, Any] = {"extensions": {TASKS: {}}} if way == "task" and not uses_handshake(revision) else {}
    return {"elicitation": {"form": {}}, "sampling": {}, **extensions}


async def polled(look: Callable[[], Awaitable[T]], true: Callable[[T], object]) -> T:
    """Look until something holds, and return what was seen; the test's own bound ends a wait for what never will."""
    while not true(seen := await look()):  # noqa: ASYNC110 - what is waited for has no event of its own
        await asyncio.sleep(0.002)
    return seen


def make_caller(way: str, peer: Peer, tool: str) -> Caller:
    """Return the caller of a tool that takes long calls in one way."""
    if way == "task":
        return _CoreTask(peer, tool) if uses_handshake(peer.revision) else _ExtensionTask(peer, tool)
    return _HeldCall(peer, tool) if way == "plain" else _PolledJob(peer, tool)


class Caller(Protocol):
    """A raw client that calls one tool and sees to its job; each step asserts the form on the wire."""

    #: The connection; another one if the client left and came back.
    peer: Peer
    #: What the client was asked.
    questions: list[dict[str, Any]]

    async def start(self) -> None:
        """Call the tool."""

    async def status(self) -> str:
        """Wait until the job says how far it is."""

    async def finish(self) -> Any:
        """Answer the questions of the job and return its result."""

    async def cancel(self) -> None:
        """Cancel the job."""


class _Base:
    """What the callers share."""

    def __init__(self, peer: Peer, tool: str) -> None:
        self.peer = peer
        self.tool = tool
        self.questions: list[dict[str, Any]] = []

    def answered(self, method: str, params: dict[str, Any]) -> Any:
        """Return the answer to a question."""
        self.questions.append({"method": method, "params": params})
        return _QUESTIONS[method]

    async def conversation(self, id: Any) -> Any:
        """Wait for the answer to a request, and answer the questions that come as requests meanwhile."""
        while True:
            message = await self.peer.hear()
            if message.get("id") == id and "method" not in message:
                return message["result"]
            if "id" in message and "method" in message:
                answer = self.answered(message["method"], message["params"])
                await self.peer.say({"jsonrpc": "2.0", "id": message["id"], "result": answer})
            else:
                self.peer.aside.append(message)

    async def rounds(self, method: str, params: dict[str, Any], id: Any) -> Any:
        """Wait for the answer to a request; repeat it with the answers as long as it ends with questions."""
        while True:
            result = await self.conversation(id)
            if result.get("resultType") != "input_required":
                return result
            answers = {
                key: self.answered(each["method"], each["params"]) for key, each in result["inputRequests"].items()
            }
            again = {**params, "inputResponses": answers, "requestState": result["requestState"]}
            id = await self.peer.send(method, again)


class _HeldCall(_Base):
    """Waits for its call."""

    async def start(self) -> None:
        self.params = {"name": self.tool, "arguments": {}}
        self.id = await self.peer.send("tools/call", self.params, meta={"progressToken": "p"})

    async def status(self) -> str:
        news = await self.peer.notice("notifications/progress")
        assert news["progressToken"] == "p"
        return str(news.get("message", DIGGING))

    async def finish(self) -> Any:
        return await self.rounds("tools/call", self.params, self.id)

    async def cancel(self) -> None:
        await self.peer.tell("notifications/cancelled", {"requestId": self.id})


class _CoreTask(_Base):
    """Asks for a task, in the revision that has them in its core."""

    async def start(self) -> None:
        created = await self.peer.result("tools/call", {"name": self.tool, "arguments": {}, "task": {"ttl": 60_000}})
        assert set(created) <= {"task", "_meta"}
        assert created["task"]["status"] == "working"
        self.params = {"taskId": created["task"]["taskId"]}

    async def status(self) -> str:
        state = await polled(lambda: self.peer.result("tasks/get", self.params), lambda state: "statusMessage" in state)
        assert state["status"] == "working"
        return str(state["statusMessage"])

    async def finish(self) -> Any:
        result = await self.conversation(await self.peer.send("tasks/result", self.params))
        assert result["_meta"]["io.modelcontextprotocol/related-task"] == self.params
        assert (await self.peer.result("tasks/get", self.params))["status"] == "completed"
        return result

    async def cancel(self) -> None:
        assert (await self.peer.result("tasks/cancel", self.params))["status"] == "cancelled"


class _ExtensionTask(_Base):
    """Declares the extension, and is given a task."""

    async def start(self) -> None:
        created = await self.peer.result("tools/call", {"name": self.tool, "arguments": {}})
        assert (created["resultType"], created["status"]) == ("task", "working")
        self.params = {"taskId": created["taskId"]}

    async def status(self) -> str:
        state = await polled(lambda: self.peer.result("tasks/get", self.params), lambda state: "statusMessage" in state)
        assert state["status"] == "working"
        return str(state["statusMessage"])

    async def finish(self) -> Any:
        while (state := await self.peer.result("tasks/get", self.params))["status"] != "completed":
            asked = state.get("inputRequests", {})
            if asked and not self.questions:
                answers = {key: self.answered(each["method"], each["params"]) for key, each in asked.items()}
                await self.peer.result("tasks/update", {**self.params, "inputResponses": answers})
            await asyncio.sleep(0.002)
        return state["result"]

    async def cancel(self) -> None:
        await self.peer.result("tasks/cancel", self.params)
        assert (await self.peer.result("tasks/get", self.params))["status"] == "cancelled"


class _PolledJob(_Base):
    """Is given a job, and calls two tools for it."""

    async def start(self) -> None:
        call = {"name": self.tool, "arguments": {}}
        self.id = await self.peer.send("tools/call", call, meta={"progressToken": "p"})

    async def _job(self) -> dict[str, Any]:
        if not hasattr(self, "job"):
            handle = await self.conversation(self.id)
            # As a model reads it: the oldest revisions have no structured content.
            found = re.search(r'call job_result with (\{"job": "[^"]+"\})', handle["content"][0]["text"])
            assert found is not None, handle
            self.job: dict[str, Any] = json.loads(found[1])
            self.heard = len(self.peer.heard)
        return self.job

    async def status(self) -> str:
        job = await self._job()
        state = await polled(lambda: self._call("job_status", job), lambda state: state["message"] is not None)
        assert state["status"] == "working"
        return str(state["message"])

    async def _call(self, name: str, arguments: dict[str, Any]) -> Any:
        return json.loads((await self.peer.call(name, arguments))["content"][0]["text"])

    async def finish(self) -> Any:
        params = {"name": "job_result", "arguments": await self._job()}
        result = await self.rounds("tools/call", params, await self.peer.send("tools/call", params))
        # The call that had a progress token is over.
        assert not [each for each in self.peer.heard[self.heard :] if each.get("method") == "notifications/progress"]
        return result

    async def cancel(self) -> None:
        await self.peer.tell("notifications/cancelled", {"requestId": self.id})


def _serve(revision: str) -> None:
    """Serve jobs that finish without a signal from the test."""
    site = Site(revision)
    site.go.set()
    site.server.run()


if __name__ == "__main__":
    _serve(sys.argv[1])
