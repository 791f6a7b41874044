"""The raw other side: a client that speaks plain JSON to a server of ours, in one revision, over one transport.

A ``Wire`` is one leg of a test. Servers are modules in ``servers``: inside the process their ``make()`` is served,
over pipes the same file runs as a program. The raw client knows how each era opens a conversation, says who calls and
answers questions, so that one test body runs in all revisions; everything it hears is kept as it came.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from tests.interaction.rows import STATELESS
from tests.interaction.schemas import misfits
from tests.interaction.script import Script
from tests.interaction.web import OldPair, Streamable, served
from tests.interaction.web_script import PairScript, WebScript
from trunkline import Server
from trunkline.protocol.caller import MEMORY
from trunkline.protocol.jsonrpc import Outbound, decode, encode
from trunkline.transports.link import Link, Receiver

__all__ = ["Conversation", "Peer", "Wire", "end_threads", "make", "program"]

PROGRAMS = Path(__file__).parent / "servers"
INFO = {"name": "raw", "version": "1"}
META = "io.modelcontextprotocol/"


def program(name: str) -> list[str]:
    """Return the command that runs one of the programs in ``servers``."""
    return [sys.executable, str(PROGRAMS / f"{name}.py")]


class Wire(Struct, frozen=True):
    """One leg of a test: a transport and a revision."""

    transport: str
    revision: str

    @property
    def stateless(self) -> bool:
        """Whether the revision has no handshake."""
        return self.revision in STATELESS

    @asynccontextmanager
    async def open(
        self, server: str | Server, *, capabilities: Mapping[str, Any] | None = None, greet: bool = True, **options: Any
    ) -> AsyncIterator[Peer]:
        """Reach a server (the name of a program, or but for pipes a server object) and open a conversation."""
        carrier = await self._carrier(server, options)
        peer = Peer(carrier, revision=self.revision, capabilities=dict(capabilities or {}))
        carrier.start(peer)
        try:
            if greet and not self.stateless:
                await peer.shake_hands()
            yield peer
            assert misfits(self.revision, peer.sent, peer.heard) == []
        finally:
            await carrier.close()

    async def _carrier(self, server: str | Server, options: Mapping[str, Any]) -> _Carrier:
        if self.transport == "stdio":
            assert isinstance(server, str)
            return await _Pipes.spawn(program(server))
        made = make(server) if isinstance(server, str) else server
        if self.transport == "memory":
            return _Inside(made)
        carrier = (Streamable if self.transport == "http" else OldPair)(made, self.revision, **options)
        await carrier.open()
        return carrier

    @asynccontextmanager
    async def serve(self, server: str) -> AsyncIterator[Any]:
        """Start a server and return the target for our client."""
        if self.transport == "stdio":
            yield program(server)
        elif self.transport == "memory":
            yield make(server)
        else:
            async with served(make(server)) as (url, _):
                yield url if self.transport == "http" else {"type": "sse", "url": f"{url}/sse"}

    def script(self, table: Mapping[str, Any] | None = None, **setting: Any) -> Script:
        """Return a server that is scripted by a table, for our client."""
        kinds = {"http": WebScript, "sse": PairScript}
        return kinds.get(self.transport, Script)(self.revision, table or {}, **setting)


def make(name: str) -> Server:
    """Return the server of a program inside this process."""
    server: Server = import_module(f"tests.interaction.servers.{name}").make()
    return server


class Conversation(Struct, frozen=True):
    """One call with all that was asked on the way: the last answer, the questions, and each request as it was sent."""

    answer: Any
    questions: list[dict[str, Any]]
    requests: list[dict[str, Any]]

    @property
    def result(self) -> Any:
        """The result of the call, which did not fail."""
        assert "result" in self.answer, self.answer
        return self.answer["result"]

    @property
    def text(self) -> str:
        """The text of a tool's answer."""
        text: str = self.result["content"][0]["text"]
        return text


class Peer:
    """A raw client."""

    def __init__(self, carrier: _Carrier, *, revision: str, capabilities: dict[str, Any]) -> None:
        self.carrier = carrier
        self.revision = revision
        self.capabilities = capabilities
        #: Everything that was said as JSON, in order.
        self.sent: list[Any] = []
        #: Everything that came, in order.
        self.heard: list[Any] = []
        #: What came while an answer was waited for, and is not that answer.
        self.aside: list[Any] = []
        self.ended = asyncio.Event()
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._last = 0
        self._met: Any = None

    def take(self, data: bytes) -> None:
        """Handle what the server wrote; anything that is not a message is recorded too, so that the test fails."""
        try:
            message = json.loads(data)
        except ValueError:
            message = {"no message": data}
        self.heard.append(message)
        self._queue.put_nowait(message)

    # --- saying ------------------------------------------------------------------------------------------------------

    async def say(self, message: object) -> None:
        """Send JSON, or text or bytes as they are."""
        text = message if isinstance(message, str | bytes) else json.dumps(message)
        self.sent += message if isinstance(message, list) else [message]
        await self.carrier.write(text if isinstance(text, bytes) else text.encode())

    async def tell(self, method: str, params: Any = None) -> None:
        """Send a notification."""
        await self.say({"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params}))

    async def send(
        self, method: str, params: Mapping[str, Any] | None = None, *, id: Any = None, meta: Any = None
    ) -> Any:
        """Send a request as the revision has it, and give its id."""
        self._last += 1
        request = self.request_of(method, params, id=self._last if id is None else id, meta=meta)
        await self.say(request)
        return request["id"]

    def request_of(self, method: str, params: Mapping[str, Any] | None, *, id: Any, meta: Any = None) -> dict[str, Any]:
        """Return a request in the form of the revision: with an envelope if there is no handshake."""
        whole = {**self.envelope(), **(meta or {})}
        members = {**(params or {}), **({"_meta": whole} if whole else {})}
        return {"jsonrpc": "2.0", "id": id, "method": method} | ({"params": members} if members else {})

    def envelope(self) -> dict[str, Any]:
        """Return what each request says about its caller."""
        if self.revision not in STATELESS:
            return {}
        return {
            f"{META}protocolVersion": self.revision,
            f"{META}clientInfo": INFO,
            f"{META}clientCapabilities": self.capabilities,
        }

    async def shake_hands(self) -> None:
        """Open a session."""
        self._met = await self.result("initialize", self.hello())
        await self.tell("notifications/initialized")

    async def met(self) -> Any:
        """Return the result of ``initialize`` or ``server/discover``."""
        return await self.result("server/discover") if self.revision in STATELESS else self._met

    def hello(self) -> dict[str, Any]:
        """Return the params of ``initialize``."""
        return {"protocolVersion": self.revision, "capabilities": self.capabilities, "clientInfo": INFO}

    # --- hearing -----------------------------------------------------------------------------------------------------

    async def hear(self) -> Any:
        """Wait for the next message."""
        return await self._queue.get()

    async def answer(self, id: Any) -> Any:
        """Wait for the answer to a request; what else comes is put aside."""
        for message in self.aside:
            if isinstance(message, dict) and _answers(message, id):
                self.aside.remove(message)
                return message
        while True:
            message = await self.hear()
            if isinstance(message, dict) and _answers(message, id):
                return message
            self.aside.append(message)

    async def answers(self, *ids: Any) -> dict[Any, Any]:
        """Wait for the answers to several requests, in whatever order they come."""
        found: dict[Any, Any] = {}
        while len(found) < len(ids):
            message = await self.hear()
            if message.get("id") in ids and "method" not in message:
                found[message["id"]] = message
            else:
                self.aside.append(message)
        return found

    async def notice(self, method: str) -> Any:
        """Wait for a notification and give its params; what else comes is put aside."""
        for message in self.aside:
            if isinstance(message, dict) and message.get("method") == method:
                self.aside.remove(message)
                return message.get("params")
        while True:
            message = await self.hear()
            if message.get("method") == method:
                return message.get("params")
            self.aside.append(message)

    async def settle(self) -> list[Any]:
        """Wait until everything in flight has arrived, and return the messages that were not awaited."""
        for _ in range(2):
            await self.request("server/discover" if self.revision in STATELESS else "ping")
        unheard, self.aside = self.aside, []
        return unheard

    def notices(self, method: str) -> list[Any]:
        """Return the params of all received notifications of a kind."""
        return [message.get("params") for message in self.heard if message.get("method") == method]

    # --- asking ------------------------------------------------------------------------------------------------------

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, id: Any = None, meta: Any = None
    ) -> Any:
        """Send a request and wait for its answer."""
        return await self.answer(await self.send(method, params, id=id, meta=meta))

    async def result(self, method: str, params: Mapping[str, Any] | None = None, *, meta: Any = None) -> Any:
        """Send a request and give its result."""
        answer = await self.request(method, params, meta=meta)
        assert "result" in answer, answer
        return answer["result"]

    async def error(self, method: str, params: Mapping[str, Any] | None = None, *, meta: Any = None) -> Any:
        """Send a request and give the error it was answered with."""
        answer = await self.request(method, params, meta=meta)
        assert "error" in answer, answer
        return answer["error"]

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None, *, meta: Any = None) -> Any:
        """Call a tool and give its result."""
        return await self.result("tools/call", {"name": name, "arguments": arguments or {}}, meta=meta)

    async def converse(
        self, method: str, params: Mapping[str, Any], answers: Mapping[str, Any] | None = None
    ) -> Conversation:
        """Make a call and answer the server's requests by method, in the way of the revision."""
        if self.revision in STATELESS:
            return await self._in_rounds(method, params, answers or {})
        return await self._in_requests(method, params, answers or {})

    async def converse_tool(
        self, name: str, answers: Mapping[str, Any] | None = None, **arguments: Any
    ) -> Conversation:
        """Call a tool and answer what it asks."""
        return await self.converse("tools/call", {"name": name, "arguments": arguments}, answers)

    async def _in_requests(self, method: str, params: Mapping[str, Any], answers: Mapping[str, Any]) -> Conversation:
        questions: list[dict[str, Any]] = []
        id = await self.send(method, params)
        while True:
            message = await self.hear()
            if "method" not in message and message.get("id") == id:
                return Conversation(message, questions, [])
            if "id" not in message or "method" not in message:
                self.aside.append(message)
                continue
            questions.append({"method": message["method"], "params": message.get("params", {})})
            await self.say({"jsonrpc": "2.0", "id": message["id"], "result": _reply(answers, questions)})

    async def _in_rounds(self, method: str, params: Mapping[str, Any], answers: Mapping[str, Any]) -> Conversation:
        questions: list[dict[str, Any]] = []
        requests: list[dict[str, Any]] = []
        again: dict[str, Any] = {}
        while True:
            self._last += 1
            requests.append(self.request_of(method, {**params, **again}, id=self._last))
            await self.say(requests[-1])
            answer = await self.answer(self._last)
            result = answer.get("result", {})
            if result.get("resultType") != "input_required":
                return Conversation(answer, questions, requests)
            responses = {}
            for key, question in result.get("inputRequests", {}).items():
                questions.append({"method": question["method"], "params": question.get("params", {})})
                responses[key] = _reply(answers, questions)
            again = {"inputResponses": responses, "requestState": result["requestState"]}


def _answers(message: Mapping[str, Any], id: Any) -> bool:
    return "method" not in message and type(message.get("id")) is type(id) and message.get("id") == id


def _reply(answers: Mapping[str, Any], questions: Sequence[dict[str, Any]]) -> Any:
    question = questions[-1]
    answer = answers[question["method"]]
    return answer(question["params"]) if callable(answer) else answer


class _Carrier(Protocol):
    """Carries bytes between the raw client and a server."""

    def start(self, peer: Peer) -> None: ...
    async def write(self, data: bytes) -> None: ...
    async def end(self) -> None: ...
    async def close(self) -> None: ...


class _Inside(Link):
    """A server in this process; this is the Link it is given."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._receiver: Receiver | None = None
        self._peer: Peer | None = None

    def attach(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def send(self, batch: Sequence[Outbound]) -> None:
        assert self._peer is not None
        for outbound in batch:
            self._peer.take(encode(outbound.message))

    async def drain(self) -> None:
        return

    async def aclose(self) -> None:
        assert self._peer is not None
        self._peer.ended.set()

    def start(self, peer: Peer) -> None:
        self._peer = peer
        self.connection = self.server.accept(self)

    async def write(self, data: bytes) -> None:
        assert self._receiver is not None
        self._receiver.message_received(decode(data, self.server.limits), MEMORY)

    async def end(self) -> None:
        assert self._receiver is not None
        self._receiver.eof_received()

    async def close(self) -> None:
        await self.connection.aclose()
        await self.connection.ended()
        end_threads(self.server)


def end_threads(server: Server) -> None:
    """End the worker threads of a server; its tasks go on."""
    for runtime in server._served_by():
        if runtime.pool is not None:
            runtime.pool.close()


class _Pipes:
    """A server as a program of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.stderr = b""

    @classmethod
    async def spawn(cls, command: list[str]) -> _Pipes:
        pipe = asyncio.subprocess.PIPE
        # What a program prints before it serves can be kept off the wire only while it is in the buffer.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, limit=64 * 1024 * 1024
        )
        return cls(process)

    def start(self, peer: Peer) -> None:
        self._tasks = [asyncio.create_task(self._read(peer)), asyncio.create_task(self._drain())]

    async def _read(self, peer: Peer) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            peer.take(line)
        peer.ended.set()

    async def _drain(self) -> None:
        assert self.process.stderr is not None
        self.stderr = await self.process.stderr.read()

    async def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data + b"\n")
        await self.process.stdin.drain()

    async def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    async def close(self) -> None:
        await self.end()
        try:
            async with asyncio.timeout(120):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
        await asyncio.gather(*self._tasks)
