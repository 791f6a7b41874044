"""Whole conversations as text files: written down while they happen, kept beside the tests, played again.

A recording is a file of JSON lines, one message a line in the order they were sent: ``{"from": "client", "message":
{...}, "note": "..."}``. Lines that start with ``#`` and empty lines are comments; those at the head are the title.
Messages stay the bytes they were, so whatever a peer sent, known to us or not, is still there when it is played.

A ``Recorder`` stands between a Link and its owner and changes nothing. It sees messages alone, so a recording made over
one transport plays over any other (``replays.py``). It holds everything that was said: look for secrets before you
share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from trunkline.errors import ConfigError
from trunkline.protocol.caller import Origin
from trunkline.protocol.jsonrpc import Batch, Incoming, Malformed, Outbound, decode, encode
from trunkline.transports.link import Link, Receiver
from trunkline.types import RequestId

__all__ = ["Entry", "Recorder", "Recording", "Side"]

Side = Literal["client", "server"]


class Entry(Struct, frozen=True, omit_defaults=True):
    """One line of a recording: who sent which message, and what a reader should know about it."""

    sender: Side = msgspec.field(name="from")
    message: Raw | UnsetType = UNSET
    note: str | None = None

    @property
    def json(self) -> Any:
        """The message as plain JSON, or None when something came that was no message."""
        return None if self.message is UNSET else msgspec.json.decode(self.message)

    @property
    def decoded(self) -> Incoming | None:
        """The message as the package reads it."""
        return None if self.message is UNSET else decode(bytes(self.message))


class Recording(Struct, frozen=True):
    """A conversation: its entries in the order they were sent, under a title."""

    entries: tuple[Entry, ...] = ()
    title: str = ""

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """Read a recording from a file.

        Raises:
            ConfigError: a line is neither a comment nor an entry; the error names file and line.
        """
        return cls.parse(Path(path).read_text(encoding="utf-8"), name=str(path))

    @classmethod
    def parse(cls, text: str, *, name: str = "recording") -> Recording:
        """Read a recording from text; ``name`` is what errors call it.

        Raises:
            ConfigError: a line is neither a comment nor an entry; the error names it.
        """
        title: list[str] = []
        entries: list[Entry] = []
        for number, line in enumerate(text.split("\n"), 1):
            if line.startswith("#") and not entries:
                title.append(line[1:].strip())
            elif line.strip() and not line.startswith("#"):
                entries.append(_parse_entry(line, f"{name}, line {number}"))
        return cls(tuple(entries), "\n".join(title))

    def dump(self) -> str:
        """Write the recording as text, one message a line."""
        lines = [f"# {line}".rstrip() for line in self.title.split("\n")] if self.title else []
        lines += [msgspec.json.encode(entry).decode() for entry in self.entries]
        return "".join(f"{line}\n" for line in lines)

    def save(self, path: str | Path) -> None:
        """Write the recording to a file, over whatever was there."""
        Path(path).write_text(self.dump(), encoding="utf-8", newline="\n")

    def sent_by(self, sender: Side) -> tuple[Entry, ...]:
        """Give one side's entries."""
        return tuple(entry for entry in self.entries if entry.sender == sender)


def _parse_entry(line: str, where: str) -> Entry:
    try:
        return msgspec.json.decode(line, type=Entry)
    except msgspec.DecodeError as error:
        raise ConfigError(f'{where}: {error}; expected {{"from": "client" or "server", "message": {{...}}}}') from error


class Recorder:
    """A Link around a Link that keeps what crosses it, both ways; give it to whoever would own the inner one."""

    def __init__(self, link: Link, *, side: Side, title: str = "") -> None:
        """Record a link whose owner plays ``side``."""
        self._link = link
        self._side = side
        self._other: Side = "server" if side == "client" else "client"
        self._title = title
        self._entries: list[Entry] = []
        self._receiver: Receiver | None = None

    @property
    def recording(self) -> Recording:
        """What has crossed the link so far."""
        return Recording(tuple(self._entries), self._title)

    # As a Link, for the owner.

    def attach(self, receiver: Receiver) -> None:
        """Start to deliver to this receiver."""
        self._receiver = receiver
        self._link.attach(self)

    def send(self, batch: Sequence[Outbound]) -> None:
        """Keep these messages and send them."""
        self._entries.extend(Entry(self._side, Raw(encode(outbound.message))) for outbound in batch)
        self._link.send(batch)

    async def drain(self) -> None:
        """Wait until the inner link has room."""
        await self._link.drain()

    async def aclose(self) -> None:
        """End the inner link."""
        await self._link.aclose()

    # As a Receiver, for the inner link.

    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        """Keep what came and hand it on."""
        self._entries.append(_entry(self._other, incoming))
        if self._receiver is not None:
            self._receiver.message_received(incoming, origin)

    def eof_received(self, error: Exception | None = None, *, about: RequestId | None = None) -> None:
        """Hand on that nothing more can arrive."""
        if self._receiver is not None:
            self._receiver.eof_received(error, about=about)


def _entry(sender: Side, incoming: Incoming) -> Entry:
    if isinstance(incoming, Malformed):
        return Entry(sender, note=incoming.message)
    if isinstance(incoming, Batch):
        messages = tuple(item for item in incoming.items if not isinstance(item, Malformed))
        return Entry(sender, Raw(encode(messages)))
    return Entry(sender, Raw(encode(incoming)))
