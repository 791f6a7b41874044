"""What was said in a conversation, in a form that a provider accepts at any moment that it is asked.

Every call that the model asked for has its result in the message right after, whatever happened in between: ``settle``
writes those that are missing. Each block knows which server it came from, and what it costs. No I/O.
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
# Sound is some tens of tokens a second, whatever its coding; a second is at least this many bytes of base64.
_SOUND_BYTES_A_TOKEN = 60


class Kept(Struct, frozen=True):
    """A message, and where its blocks came from: a server, or None for the person, the model and the host."""

    message: Message
    servers: tuple[str | None, ...]
    tokens: tuple[int, ...]


def block_tokens(block: Block) -> int:
    """Estimate what a block costs."""
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
    """Give the text of a result."""
    return "\n".join(each.text for each in block.content if isinstance(each, TextBlock))


class History:
    """The messages, oldest first."""

    def __init__(self, kept: Iterable[Kept] = ()) -> None:
        """Take up what was said before."""
        self._kept: list[Kept] = list(kept)
        self._ids = {use.id for each in self._kept for use in each.message.tool_uses}
        #: How many of the oldest are not sent any more.
        self.left_out = 0

    @property
    def messages(self) -> tuple[Message, ...]:
        """All of them."""
        return tuple(each.message for each in self._kept)

    @property
    def kept(self) -> tuple[Kept, ...]:
        """All of them, with where they came from."""
        return tuple(self._kept)

    @property
    def sent(self) -> tuple[Message, ...]:
        """Those that are sent."""
        return tuple(each.message for each in self._kept[self.left_out :])

    def __len__(self) -> int:
        """Count them."""
        return len(self._kept)

    def clear(self) -> None:
        """Forget all of it."""
        self._kept.clear()
        self._ids.clear()
        self.left_out = 0

    # --- adding ------------------------------------------------------------------------------------------------------

    def add(self, message: Message, *, servers: Sequence[str | None] | None = None) -> Message:
        """Add a message; calls whose ids are empty or were used before get others. Gives the message as it is kept."""
        if not message.content:
            return message
        message = replace(message, content=tuple(self._own_ids(message.content)))
        named = tuple(servers) if servers is not None else (None,) * len(message.content)
        self._kept.append(Kept(message, named, tuple(block_tokens(block) for block in message.content)))
        return message

    def say(self, text: str, *, role: Any = "user") -> None:
        """Add a text, if there is any."""
        if text.strip():
            self.add(Message(role, (TextBlock(text),)))

    def answer(self, results: Mapping[str, ToolResultBlock], servers: Mapping[str, str], *, missing: str) -> None:
        """Add the results of the calls that the last message asks for; a text stands for each that is missing."""
        uses = self.open_calls()
        if uses:
            blocks = [results.get(use.id) or _no_result(use.id, missing) for use in uses]
            self.add(Message("user", tuple(blocks)), servers=[servers.get(use.id) for use in uses])

    def open_calls(self) -> tuple[ToolUseBlock, ...]:
        """Give the calls of the last message, which have no result yet."""
        return self._kept[-1].message.tool_uses if self._kept else ()

    def settle(self, missing: str) -> None:
        """See to it that no call is without a result."""
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

    # --- what it costs -----------------------------------------------------------------------------------------------

    @property
    def tokens(self) -> int:
        """What sending it costs, estimated."""
        return sum(sum(each.tokens) for each in self._kept[self.left_out :])

    def shares(self) -> tuple[int, dict[str, int]]:
        """Say what the talk costs, and what came from each server."""
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
        """Give the results that are sent, oldest first, with their places; those that nobody answered yet are left."""
        last = len(self._kept) - 1
        for number in range(self.left_out, last):
            for place, block in enumerate(self._kept[number].message.content):
                if isinstance(block, ToolResultBlock):
                    yield number, place, block

    def shorten(self, number: int, place: int, text: str) -> int:
        """Put a text in the place of what a call gave; gives the tokens that this saves."""
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
        """Send no more of the oldest exchanges than leaves so many tokens; the last one stays. Gives how many went."""
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
    """Give messages back from a file as a provider accepts them: each call with its result, no result without one."""
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
    """Give a block that can be written down: a model may write halves of characters."""
    if isinstance(block, TextBlock) and not block.text.isascii():
        return TextBlock(block.text.encode("utf-8", "replace").decode())
    if isinstance(block, ToolUseBlock):
        try:
            msgspec.json.encode([block.name, block.arguments, block.raw])
        except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
            name = block.name.encode("ascii", "replace").decode()
            return replace(block, name=name, arguments=None, raw="(what cannot be written as JSON)")
    return block


def _is_answer(message: Message) -> bool:
    return any(isinstance(block, ToolResultBlock) for block in message.content)


def _no_result(call_id: str, text: str) -> ToolResultBlock:
    return ToolResultBlock(call_id, (TextBlock(text),), is_error=True)
