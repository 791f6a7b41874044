"""A server played by a table, on a link of its own: what a client of ours meets, down to the bytes.

A request is looked up by its method: a dictionary is its result, a ``Failure`` its error, a function is given the
params and says one of these, ``SILENCE`` leaves it unanswered. How the revision opens a conversation is in the table
from the start; a test may write over it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from tests.interaction.rows import STATELESS
from trunkline import Client
from trunkline.protocol.caller import MEMORY
from trunkline.protocol.jsonrpc import Outbound, decode, encode
from trunkline.transports.link import Link, Receiver

__all__ = ["CAPABILITIES", "SILENCE", "Failure", "Script"]

#: Everything a server can declare.
CAPABILITIES: Mapping[str, Any] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}
SILENCE = object()
SERVER_INFO = {"name": "scripted", "version": "1"}


class Failure(Struct, frozen=True):
    """An error to answer with."""

    code: int
    message: str = "no"
    data: Any = None


class Script(Link):
    """A server that a test writes; given to a client as its link."""

    def __init__(
        self, revision: str, table: Mapping[str, Any], *, capabilities: Mapping[str, Any] | None = None
    ) -> None:
        self.revision = revision
        declared = CAPABILITIES if capabilities is None else capabilities
        self.table: dict[str, Any] = {**_opening(revision, declared), **table}
        #: Everything the client sent, in order.
        self.received: list[Any] = []
        self.closed = asyncio.Event()
        self._changed = asyncio.Event()
        self._receiver: Receiver | None = None

    def client(self, **options: Any) -> Client:
        """Return a client of this server, with the script's revision by default."""
        return Client(self, **{"revision": self.revision, **options})

    # --- as the client's link ----------------------------------------------------------------------------------------

    def attach(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def send(self, batch: Sequence[Outbound]) -> None:
        for outbound in batch:
            message = json.loads(encode(outbound.message))
            self.received.append(message)
            if isinstance(message, dict) and "method" in message and "id" in message:
                asyncio.get_running_loop().call_soon(self._requested, message)
        self._changed.set()

    async def drain(self) -> None:
        return

    async def aclose(self) -> None:
        self.closed.set()

    # --- as the test's own side --------------------------------------------------------------------------------------

    def say(self, message: object) -> None:
        """Send JSON, or text or bytes as they are."""
        text = message if isinstance(message, str | bytes) else json.dumps(message)
        assert self._receiver is not None
        self._receiver.message_received(decode(text if isinstance(text, bytes) else text.encode()), MEMORY)

    def tell(self, method: str, params: Any = None) -> None:
        """Send a notification."""
        self.say({"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params}))

    async def ask(self, method: str, params: Any = None, *, id: Any = "from-server") -> Any:
        """Send a request and wait for its answer."""
        self.say({"jsonrpc": "2.0", "id": id, "method": method} | ({} if params is None else {"params": params}))
        return await self.until(lambda message: "method" not in message and message.get("id") == id)

    def answer(self, request: Mapping[str, Any], result: Any) -> None:
        """Answer a request that the table left open."""
        self.say({"jsonrpc": "2.0", "id": request["id"], "result": self._stamped(result)})

    def end(self) -> None:
        """Go away."""
        assert self._receiver is not None
        self._receiver.eof_received()

    async def until(self, wanted: Any) -> Any:
        """Wait for a message of the client's that is wanted."""
        while True:
            for message in self.received:
                if wanted(message):
                    return message
            self._changed.clear()
            await self._changed.wait()

    async def heard(self, method: str, *, count: int = 1) -> Any:
        """Wait until so many messages with a method came, and give the last of them."""
        await self.until(lambda _: len(self.all(method)) >= count)
        return self.all(method)[count - 1]

    def all(self, method: str) -> list[Any]:
        """Return all received messages with a method."""
        return [message for message in self.received if message.get("method") == method]

    @property
    def methods(self) -> list[str]:
        """The methods of all that came, in order; an answer is ``answer``."""
        return [message.get("method", "answer") for message in self.received]

    @property
    def declared(self) -> Any:
        """The capabilities that the client declared last."""
        for message in reversed(self.received):
            params = message.get("params", {})
            if "capabilities" in params:
                return params["capabilities"]
            if "_meta" in params:
                return params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        raise AssertionError("nothing was declared")

    # --- answering ---------------------------------------------------------------------------------------------------

    def _requested(self, request: dict[str, Any]) -> None:
        answer = self.table.get(request["method"], Failure(-32601, "Method not found"))
        if callable(answer):
            answer = answer(request.get("params", {}))
        if isinstance(answer, Failure):
            self._fail(request, answer)
        elif answer is not SILENCE:
            self.answer(request, answer)

    def _fail(self, request: Mapping[str, Any], failure: Failure) -> None:
        error = {"code": failure.code, "message": failure.message}
        if failure.data is not None:
            error["data"] = failure.data
        self.say({"jsonrpc": "2.0", "id": request["id"], "error": error})

    def _stamped(self, result: Any) -> Any:
        if self.revision in STATELESS and isinstance(result, dict) and "resultType" not in result:
            return {"resultType": "complete", **result}
        return result


def _opening(revision: str, capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Answer what opens a conversation in a revision; the other era's opening is unknown there."""
    if revision in STATELESS:
        return {
            "server/discover": {
                "supportedVersions": [revision],
                "capabilities": capabilities,
                "ttlMs": 0,
                "cacheScope": "private",
                "_meta": {"io.modelcontextprotocol/serverInfo": SERVER_INFO},
            }
        }
    return {
        "initialize": {"protocolVersion": revision, "capabilities": capabilities, "serverInfo": SERVER_INFO},
        "ping": {},
    }
