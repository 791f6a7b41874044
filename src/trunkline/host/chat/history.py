"""The messages of a conversation, in a form that every provider accepts, and the file that they are saved to.

Every tool call has its result in the message right after it, whatever happened in between: ``settle`` adds missing
results. Each block has the server that it came from and its size in tokens. The file is readable by its owner alone.
"""

from __future__ import annotations

import binascii
import os
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.errors import ConfigError
from trunkline.host.models.interface import (
    AudioBlock,
    Block,
    ImageBlock,
    ModelMessage,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
)
from trunkline.host.state_files import write_private
from trunkline.host.upstreams.catalog.items import estimate_tokens

__all__ = [
    "MAX_IMAGE_BYTES",
    "MAX_IMAGE_EDGE",
    "History",
    "HistoryEntry",
    "ImageHeader",
    "InvalidImage",
    "SavedConversation",
    "block_tokens",
    "image_tokens",
    "load_conversation",
    "read_image",
    "repair_history",
    "save_conversation",
    "text_of",
]

#: Limits that hold for all providers: bytes of an image, and pixels along an edge.
MAX_IMAGE_BYTES = 3_750_000
MAX_IMAGE_EDGE = 8_000  # Providers reject larger images.
_TOKENS_A_PICTURE = 1600  # What providers charge at most for one image after scaling it down.
# One provider's rule, in pixels per token; the others' results are of the same order.
_PIXELS_A_TOKEN = 750
_HEAD = 64 * 1024  # Characters of base64 that contain the header of nearly every image.
_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})


class InvalidImage(ValueError):
    """The bytes are not a valid image; the message says why."""


class ImageHeader(Struct, frozen=True):
    """The header of an image; the type is None if models do not support it, an unknown dimension is 0."""

    mime_type: str | None
    width: int = 0
    height: int = 0

    @property
    def fits(self) -> bool:
        """Whether providers accept its type and dimensions."""
        return self.mime_type is not None and max(self.width, self.height) <= MAX_IMAGE_EDGE


def read_image(data: str) -> tuple[ImageHeader, bytes]:
    """Decode a base64 image, and return its header and bytes.

    Raises:
        InvalidImage: it is empty, not base64, or truncated before its dimensions.
    """
    try:
        content = b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidImage("it is not valid base64") from error
    if not content:
        raise InvalidImage("it is empty")
    return _read_header(content), content


def _read_header(content: bytes) -> ImageHeader:
    try:
        if content.startswith(b"\x89PNG\r\n\x1a\n"):
            if content[12:16] != b"IHDR":
                raise InvalidImage("it is a PNG without a header")
            return _sized("image/png", _big(content, 16, 4), _big(content, 20, 4))
        if content.startswith((b"GIF87a", b"GIF89a")):
            return _sized("image/gif", _little(content, 6, 2), _little(content, 8, 2))
        if content.startswith(b"\xff\xd8"):
            return _jpeg(content)
        if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
            return _webp(content)
    except IndexError:
        raise InvalidImage("it is truncated in its header") from None
    return ImageHeader(None)


def _sized(mime_type: str, width: int, height: int) -> ImageHeader:
    if not width or not height:
        raise InvalidImage("it has no pixels")
    return ImageHeader(mime_type, width, height)


def _jpeg(content: bytes) -> ImageHeader:
    """Walk from marker to marker up to the one with the dimensions."""
    place = 2
    while True:
        while content[place] != 0xFF:
            place += 1
        while content[place] == 0xFF:
            place += 1
        marker = content[place]
        if marker in _FRAMES:
            return _sized("image/jpeg", _big(content, place + 6, 2), _big(content, place + 4, 2))
        place += 1 if 0xD0 <= marker <= 0xD9 or marker == 1 else 1 + max(2, _big(content, place + 1, 2))


def _webp(content: bytes) -> ImageHeader:
    kind = content[12:16]
    if kind == b"VP8X":
        return ImageHeader("image/webp", _little(content, 24, 3) + 1, _little(content, 27, 3) + 1)
    if kind == b"VP8L":
        bits = _little(content, 21, 4)
        return ImageHeader("image/webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8 ":
        return _sized("image/webp", _little(content, 26, 2) & 0x3FFF, _little(content, 28, 2) & 0x3FFF)
    raise InvalidImage("it is an unknown kind of WebP")


def _big(content: bytes, place: int, size: int) -> int:
    return int.from_bytes(_part(content, place, size), "big")


def _little(content: bytes, place: int, size: int) -> int:
    return int.from_bytes(_part(content, place, size), "little")


def _part(content: bytes, place: int, size: int) -> bytes:
    part = content[place : place + size]
    if len(part) < size:
        raise IndexError(place)
    return part


def image_tokens(data: str) -> int:
    """Estimate the tokens of a base64 image."""
    try:
        # The header is in the first bytes of all but odd files, whose dimensions then stay unknown.
        picture = _read_header(b64decode(data[:_HEAD]))
    except (InvalidImage, ValueError):
        return _TOKENS_A_PICTURE
    if picture.mime_type is None:
        return _TOKENS_A_PICTURE
    return min(_TOKENS_A_PICTURE, picture.width * picture.height // _PIXELS_A_TOKEN + 85)


_NO_SERVERS: Mapping[str, str] = MappingProxyType({})
# Audio is some tens of tokens per second in any encoding; this is a lower bound of base64 bytes per token.
_SOUND_BYTES_A_TOKEN = 60


class HistoryEntry(Struct, frozen=True):
    """A message, and the server of each block; None for the person, the model and the host."""

    message: ModelMessage
    servers: tuple[str | None, ...]
    tokens: tuple[int, ...]


def block_tokens(block: Block) -> int:
    """Estimate the tokens of a block."""
    if isinstance(block, ImageBlock):
        return image_tokens(block.data)
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

    def __init__(self, entries: Iterable[HistoryEntry] = ()) -> None:
        """Start with earlier entries, if any."""
        self._entries: list[HistoryEntry] = list(entries)
        self._ids = {use.id for each in self._entries for use in each.message.tool_uses}
        #: How many of the oldest messages are no longer sent.
        self.left_out: int = 0

    @property
    def messages(self) -> tuple[ModelMessage, ...]:
        """All messages."""
        return tuple(each.message for each in self._entries)

    @property
    def entries(self) -> tuple[HistoryEntry, ...]:
        """All entries: the messages with their servers and sizes."""
        return tuple(self._entries)

    @property
    def sent(self) -> tuple[ModelMessage, ...]:
        """The messages that are sent to the model."""
        return tuple(each.message for each in self._entries[self.left_out :])

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self._entries)

    def clear(self) -> None:
        """Delete all messages."""
        self._entries.clear()
        self._ids.clear()
        self.left_out = 0

    # --- adding ------------------------------------------------------------------------------------------------------

    def add(self, message: ModelMessage, *, servers: Sequence[str | None] | None = None) -> ModelMessage:
        """Add a message and return it as stored; calls with empty or reused ids get new ones."""
        if not message.content:
            return message
        message = replace(message, content=tuple(self._own_ids(message.content)))
        named = tuple(servers) if servers is not None else (None,) * len(message.content)
        self._entries.append(HistoryEntry(message, named, tuple(block_tokens(block) for block in message.content)))
        return message

    def say(self, text: str, *, role: Any = "user") -> None:
        """Add a text message, unless it is empty."""
        if text.strip():
            self.add(ModelMessage(role, (TextBlock(text),)))

    def answer(self, results: Mapping[str, ToolResultBlock], servers: Mapping[str, str], *, missing: str) -> None:
        """Add the results of the calls in the last message; ``missing`` is the text for those without one."""
        uses = self.open_calls()
        if uses:
            blocks = [results.get(use.id) or _no_result(use.id, missing) for use in uses]
            self.add(ModelMessage("user", tuple(blocks)), servers=[servers.get(use.id) for use in uses])

    def open_calls(self) -> tuple[ToolUseBlock, ...]:
        """Return the calls of the last message, which have no results yet."""
        return self._entries[-1].message.tool_uses if self._entries else ()

    def settle(self, missing: str) -> None:
        """Add a result to every call that has none."""
        self.answer({}, _NO_SERVERS, missing=missing)

    def _own_ids(self, content: Iterable[Block]) -> Iterator[Block]:
        for block in content:
            if isinstance(block, ToolUseBlock):
                name, number = block.id or "call", 2
                wanted = block.id or "call-1"
                while wanted in self._ids:
                    wanted, number = f"{name}-{number}", number + 1
                self._ids.add(wanted)
                yield _encodable(block if wanted == block.id else replace(block, id=wanted))
            else:
                yield _encodable(block)

    # --- sizes -------------------------------------------------------------------------------------------------------

    @property
    def tokens(self) -> int:
        """The estimated size of what is sent."""
        return sum(sum(each.tokens) for each in self._entries[self.left_out :])

    def shares(self) -> tuple[int, dict[str, int]]:
        """Return the size of the messages, and of what came from each server."""
        talk, servers = 0, dict[str, int]()
        for each in self._entries[self.left_out :]:
            for server, tokens in zip(each.servers, each.tokens, strict=True):
                if server is None:
                    talk += tokens
                else:
                    servers[server] = servers.get(server, 0) + tokens
        return talk, servers

    # --- making room -------------------------------------------------------------------------------------------------

    def results(self) -> Iterator[tuple[int, int, ToolResultBlock]]:
        """Yield the results that are sent, oldest first, with their positions, except those of the last message."""
        last = len(self._entries) - 1
        for number in range(self.left_out, last):
            for place, block in enumerate(self._entries[number].message.content):
                if isinstance(block, ToolResultBlock):
                    yield number, place, block

    def shorten(self, number: int, place: int, text: str) -> int:
        """Replace the content of a result by a text; return the tokens that this saves."""
        entry = self._entries[number]
        block = entry.message.content[place]
        assert isinstance(block, ToolResultBlock)
        shorter = replace(block, content=(TextBlock(text),))
        content = (*entry.message.content[:place], shorter, *entry.message.content[place + 1 :])
        cost = block_tokens(shorter)
        tokens = (*entry.tokens[:place], cost, *entry.tokens[place + 1 :])
        self._entries[number] = HistoryEntry(replace(entry.message, content=content), entry.servers, tokens)
        return entry.tokens[place] - cost

    def drop_oldest(self, tokens: int) -> int:
        """Drop the oldest exchanges from what is sent, down to this many tokens; return how many messages."""
        before = self.left_out
        starts = [
            number
            for number in range(self.left_out + 1, len(self._entries))
            if self._entries[number].message.role == "user" and not _is_answer(self._entries[number].message)
        ]
        while starts and self.tokens > tokens:
            self.left_out = starts.pop(0)
        return self.left_out - before


def repair_history(entries: Iterable[HistoryEntry]) -> list[HistoryEntry]:
    """Return loaded messages in a form that a provider accepts: each call with a result, no result without a call."""
    history = History()
    for each in entries:
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
    return list(history.entries)


def _encodable(block: Block) -> Block:
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


def _is_answer(message: ModelMessage) -> bool:
    return any(isinstance(block, ToolResultBlock) for block in message.content)


def _no_result(call_id: str, text: str) -> ToolResultBlock:
    return ToolResultBlock(call_id, (TextBlock(text),), is_error=True)


_FORMAT = 1  # A file of another format is not read.
_MOST_BYTES = 256 * 1024 * 1024  # Conversations with many images have tens of megabytes.


class SavedConversation(Struct, frozen=True, kw_only=True):
    """A saved conversation."""

    format: int = _FORMAT
    #: The model that was used last, as ``provider:model``.
    model: str
    #: The name of the folder with its spilled outputs.
    outputs: str
    messages: tuple[HistoryEntry, ...] = ()
    usage: Usage = Usage()
    cost: float | None = None
    #: How many of the oldest messages are no longer sent to the model.
    left_out: int = 0
    #: The ids of outputs with whole results, by the id of the call.
    kept_as: dict[str, str] = {}
    #: Why the last turn failed; None if it did not.
    problem: str | None = None


def save_conversation(saved: SavedConversation, path: str | os.PathLike[str]) -> None:
    """Save a conversation to a file, atomically."""
    write_private(os.path.abspath(path), msgspec.json.format(msgspec.json.encode(saved), indent=1))


def load_conversation(path: str | os.PathLike[str]) -> SavedConversation:
    """Load a conversation; one that ends within a turn is completed, so that it can continue.

    Raises:
        ConfigError: the file cannot be read, or is not a saved conversation.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES)
        saved = msgspec.json.decode(content, type=SavedConversation)
    except OSError as error:
        raise ConfigError(f"{os.fspath(path)}: the conversation cannot be read: {error.strerror}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{os.fspath(path)}: not a saved conversation: {error}") from error
    if saved.format != _FORMAT:
        raise ConfigError(f"{os.fspath(path)}: saved in format {saved.format}; this version reads format {_FORMAT}.")
    messages = tuple(repair_history(saved.messages))
    return msgspec.structs.replace(saved, messages=messages, left_out=_within(saved.left_out, messages))


def _within(left_out: int, messages: tuple[HistoryEntry, ...]) -> int:
    """Return ``left_out`` if it is at a message of the person, as every request must begin; otherwise 0."""
    fits = 0 <= left_out < len(messages) and messages[left_out].message.role == "user"
    return left_out if fits else 0
