"""Keeps what a model reasoned before it called a tool, and returns it to the provider with the results of the call.

The host's conversation has no place for it, and nothing else can read it: it is signed or encrypted. So an adapter
keeps it under a key made of everything sent before and of the model's answer. If anything earlier has changed since (a
result was cut, a tool is gone), the key differs and nothing is returned: providers refuse reasoning that is put in
another place. Bounded, in memory only; a conversation goes on without it. No I/O.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

from msgspec import Struct

from trunkline.host.models.interface import ModelMessage, ModelRequest, ToolSpec, Traits, encode_json

__all__ = ["ConversationDigest", "ReasoningStore", "RequestFormat", "build_request"]

_MOST_ENTRIES = 1024  # Calls whose reasoning is kept: more than a long conversation has.
_MOST_BYTES = 16 * 1024 * 1024  # Reasoning has about 10 KB for each call.


class ConversationDigest:
    """A digest of what was sent so far, in order."""

    def __init__(self, *start: Any) -> None:
        """Start with what precedes all messages."""
        self._digest = sha256()
        for each in start:
            self.add(each)

    def add(self, sent: Any) -> None:
        """Add something that was sent."""
        data = encode_json(sent)
        self._digest.update(b"%d:" % len(data))
        self._digest.update(data)

    def key(self, said: Any) -> bytes:
        """Return the key of the answer that follows what was sent."""
        digest = self._digest.copy()
        digest.update(encode_json(said))
        return digest.digest()


class ReasoningStore:
    """Whole answers in the provider's own form, by key; the least recently used are evicted first."""

    def __init__(self) -> None:
        """Start empty."""
        self._kept: OrderedDict[bytes, tuple[int, list[Any]]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, key: bytes, answer: list[Any]) -> None:
        """Store an answer."""
        self._drop(key)
        size = len(encode_json(answer))
        self._kept[key] = (size, answer)
        self._size += size
        while self._kept and (len(self._kept) > _MOST_ENTRIES or self._size > _MOST_BYTES):
            self._drop(next(iter(self._kept)))

    def recall(self, key: bytes) -> list[Any] | None:
        """Return a stored answer, or None."""
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[1]

    def forget(self) -> None:
        """Clear the store."""
        self._kept.clear()
        self._size = 0

    def _drop(self, key: bytes) -> None:
        size, _ = self._kept.pop(key, (0, []))
        self._size -= size


class RequestFormat(Struct, frozen=True, kw_only=True):
    """One provider's names and forms."""

    #: The names of the members with the conversation, the instructions, and the limit of the answer.
    messages: str
    system: str
    limit: str
    #: The smallest limit that the provider accepts.
    least_tokens: int
    write_tool: Callable[[ToolSpec], dict[str, Any]]
    #: Writes ``auto``, ``any``, ``none`` or the name of a tool.
    write_choice: Callable[[str], Any]
    #: Writes the items of a message; for an answer of the model, its stored form in the provider's words is passed, if
    #: any.
    write_message: Callable[[ModelMessage, list[Any] | None, Traits], Iterable[Any]]
    most_temperature: float | None = None


def build_request(
    request: ModelRequest, request_format: RequestFormat, *, model: str, traits: Traits, reasoning: ReasoningStore
) -> tuple[dict[str, Any], ConversationDigest]:
    """Build the request body, and the digest under which its answer is remembered."""
    tools = [request_format.write_tool(tool) for tool in request.tools]
    digest = ConversationDigest(model, request.system, tools)
    body: dict[str, Any] = {
        "model": model,
        request_format.limit: max(request_format.least_tokens, min(request.max_tokens, traits.output_tokens)),
        request_format.messages: _conversation(
            request.messages, digest, request_format, traits=traits, reasoning=reasoning
        ),
    }
    if request.system:
        body[request_format.system] = request.system
    if tools:
        body["tools"] = tools
        body["tool_choice"] = request_format.write_choice(request.tool_choice)
    if request.temperature is not None and traits.temperature:
        most = request_format.most_temperature
        body["temperature"] = request.temperature if most is None else min(request.temperature, most)
    return body, digest


def _conversation(
    messages: tuple[ModelMessage, ...],
    digest: ConversationDigest,
    request_format: RequestFormat,
    *,
    traits: Traits,
    reasoning: ReasoningStore,
) -> list[Any]:
    written: list[Any] = []
    for message in messages:
        own = reasoning.recall(digest.key(message.content)) if message.role == "assistant" else None
        for one in request_format.write_message(message, own, traits):
            digest.add(one)
            written.append(one)
    return written
