"""The messages of a conversation, always in a form that a provider accepts.

Every tool call has its result in the message right after it, whatever happened in between: ``settle`` adds missing
results. Each block has the server that it came from, and its size in tokens. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.host.catalog.items import estimate_tokens
from trunkline.host.chat.pictures import picture_tokens
from trunkline.host.models.interface import (
    AudioBlock,
    Block,
    ImageBlock,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)

__all__ = ["History", "Kept", "block_tokens", "consistent", "text_of"]

_NOBODY: Mapping[str, str] = MappingProxyType({})
# Audio is some tens of tokens per second in any encoding; this is a lower bound of base64 bytes per token.
_SOUND_BYTES_A_TOKEN = 60


class Kept(Struct, frozen=True):
    """A message, and the server of each block; None for the person, the model and the host."""

    message: Message
    servers: tuple[str | None, ...]
    tokens: tuple[int, ...]


def block_tokens(block: Block) -> int:
    """Estimate the tokens of a block."""
    if isinstance(block, ImageBlock):
        return picture_tokens(block.data)
    if isinstance(block, AudioBlock):
        return len(block.data) // _SOUND_BYTES_A_TOKEN + 1
    if isinstance(block, ToolResultBlock):
        return 8 + sum(block_tokens(each) for each in block.content)
    if isinstance(block, ToolUseBlock):
        return 8 + estimate_tokens([block.name, block.arguments if block.raw is None else block.raw])
    return estimate_tokens(block.text)


def text_of(block: ToolResultBlock) -> str:
    """Return the text of a result."""
    return "\n".join(each.text for each in block.content if isinstance(each, TextBlock))


class History:
    """The messages, oldest first."""

    def __init__(self, kept: Iterable[Kept] = ()) -> None:
        """Start with earlier entries, if any."""
        self._kept: list[Kept] = list(kept)
        self._ids = {use.id for each in self._kept for use in each.message.tool_uses}
        #: How many of the oldest messages are no longer sent.
        self.left_out = 0

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages."""
        return tuple(each.message for each in self._kept)

    @property
    def kept(self) -> tuple[Kept, ...]:
        """All entries: the messages with their servers and sizes."""
        return tuple(self._kept)

    @property
    def sent(self) -> tuple[Message, ...]:
        """The messages that are sent to the model."""
        return tuple(each.message for each in self._kept[self.left_out :])

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self._kept)

    def clear(self) -> None:
        """Delete all messages."""
        self._kept.clear()
        self._ids.clear()
        self.left_out = 0

    # --- adding ------------------------------------------------------------------------------------------------------

    def add(self, message: Message, *, servers: Sequence[str | None] | None = None) -> Message:
        """Add a message and return it as stored; calls with empty or reused ids get new ones."""
        if not message.content:
            return message
        message = replace(message, content=tuple(self._own_ids(message.content)))
        named = tuple(servers) if servers is not None else (None,) * len(message.content)
        self._kept.append(Kept(message, named, tuple(block_tokens(block) for block in message.content)))
        return message

    def say(self, text: str, *, role: Any = "user") -> None:
        """Add a text message, unless it is empty."""
        if text.strip():
            self.add(Message(role, (TextBlock(text),)))

    def answer(self, results: Mapping[str, ToolResultBlock], servers: Mapping[str, str], *, missing: str) -> None:
        """Add the results of the calls in the last message; ``missing`` is the text for those without one."""
        uses = self.open_calls()
        if uses:
            blocks = [results.get(use.id) or _no_result(use.id, missing) for use in uses]
            self.add(Message("user", tuple(blocks)), servers=[servers.get(use.id) for use in uses])

    def open_calls(self) -> tuple[ToolUseBlock, ...]:
        """Return the calls of the last message, which have no results yet."""
        return self._kept[-1].message.tool_uses if self._kept else ()

    def settle(self, missing: str) -> None:
        """Add a result to every call that has none."""
        self.answer({}, _NOBODY, missing=missing)

    def _own_ids(self, content: Iterable[Block]) -> Iterator[Block]:
        for block in content:
            if isinstance(block, ToolUseBlock):
                name, number = block.id or "call", 2
                wanted = block.id or "call-1"
                while wanted in self._ids:
                    wanted, number = f"{name}-{number}", number + 1
                self._ids.add(wanted)
                yield _sound(block if wanted == block.id else replace(block, id=wanted))
            else:
                yield _sound(block)

    # --- sizes -------------------------------------------------------------------------------------------------------

    @property
    def tokens(self) -> int:
        """The estimated size of what is sent."""
        return sum(sum(each.tokens) for each in self._kept[self.left_out :])

    def shares(self) -> tuple[int, dict[str, int]]:
        """Return the size of the messages, and of what came from each server."""
        talk, servers = 0, dict[str, int]()
        for each in self._kept[self.left_out :]:
            for server, tokens in zip(each.servers, each.tokens, strict=True):
                if server is None:
                    talk += tokens
                else:
                    servers[server] = servers.get(server, 0) + tokens
        return talk, servers

    # --- making room -------------------------------------------------------------------------------------------------

    def results(self) -> Iterator[tuple[int, int, ToolResultBlock]]:
        """Yield the results that are sent, oldest first, with their positions, except those of the last message."""
        last = len(self._kept) - 1
        for number in range(self.left_out, last):
            for place, block in enumerate(self._kept[number].message.content):
                if isinstance(block, ToolResultBlock):
                    yield number, place, block

    def shorten(self, number: int, place: int, text: str) -> int:
        """Replace the content of a result by a text; return the tokens that this saves."""
        kept = self._kept[number]
        block = kept.message.content[place]
        assert isinstance(block, ToolResultBlock)
        shorter = replace(block, content=(TextBlock(text),))
        content = (*kept.message.content[:place], shorter, *kept.message.content[place + 1 :])
        cost = block_tokens(shorter)
        tokens = (*kept.tokens[:place], cost, *kept.tokens[place + 1 :])
        self._kept[number] = Kept(replace(kept.message, content=content), kept.servers, tokens)
        return kept.tokens[place] - cost

    def leave_out(self, tokens: int) -> int:
        """Drop the oldest exchanges from what is sent, down to this many tokens; return how many messages."""
        before = self.left_out
        starts = [
            number
            for number in range(self.left_out + 1, len(self._kept))
            if self._kept[number].message.role == "user" and not _is_answer(self._kept[number].message)
        ]
        while starts and self.tokens > tokens:
            self.left_out = starts.pop(0)
        return self.left_out - before


def consistent(kept: Iterable[Kept]) -> list[Kept]:
    """Return loaded messages in a form that a provider accepts: each call with a result, no result without a call."""
    history = History()
    for each in kept:
        results = {block.id: block for block in each.message.content if isinstance(block, ToolResultBlock)}
        open_calls = history.open_calls()
        if open_calls:
            named = {
                block.id: server
                for block, server in zip(each.message.content, each.servers, strict=False)
                if isinstance(block, ToolResultBlock) and server is not None
            }
            history.answer(results, named, missing="The result is lost.")
        rest = [
            (block, server)
            for block, server in zip(each.message.content, each.servers, strict=False)
            if not isinstance(block, ToolResultBlock)
        ]
        content = tuple(block for block, _ in rest)
        if content:
            history.add(replace(each.message, content=content), servers=[server for _, server in rest])
    history.settle("The result is lost.")
    return list(history.kept)


def _sound(block: Block) -> Block:
    """Return a block that can be encoded: a model may write lone surrogates."""
    if isinstance(block, TextBlock) and not block.text.isascii():
        return TextBlock(block.text.encode("utf-8", "replace").decode())
    if isinstance(block, ToolUseBlock):
        try:
            msgspec.json.encode([block.name, block.arguments, block.raw])
        except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
            name = block.name.encode("ascii", "replace").decode()
            return replace(block, name=name, arguments=None, raw="(not encodable as JSON)")
    return block


def _is_answer(message: Message) -> bool:
    return any(isinstance(block, ToolResultBlock) for block in message.content)


def _no_result(call_id: str, text: str) -> ToolResultBlock:
    return ToolResultBlock(call_id, (TextBlock(text),), is_error=True)
