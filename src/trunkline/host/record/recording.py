"""Recordings: whole conversations as text files, one JSON object a line, in the order the messages were sent.

A file may begin with comments (``#``), which are its title, and with a head that says what was recorded:
``{"format": "trunkline-recording", "version": 1, "target": "...", "transport": "stdio", "started": "..."}``. Each line
after that is an entry, ``{"from": "client", "at": 0.25, "message": {...}}``: who sent it, how many seconds after the
start, and the message as it was; over HTTP also the MCP headers, the status, and the number of the HTTP exchange it
came on. What was no message, and what the recorder has to say itself, is an entry with a ``note``. Messages stay the
bytes they were written as, so whatever a peer sent, known to us or not, is still there when it is played.

A file whose writer was killed is good up to its last whole line. Nothing here does I/O beyond reading and writing one
file; how a recording comes to be is in ``writing``, what is made of it in ``pairs`` and its siblings.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from trunkline.errors import ConfigError
from trunkline.protocol.jsonrpc import Incoming, decode
from trunkline.types import META_PROTOCOL_VERSION

__all__ = ["VERSION", "Entry", "Head", "Recording", "Sender", "Side"]

#: The version of the format that is written here; later ones are refused.
VERSION = 1

Side: TypeAlias = Literal["client", "server"]
#: The two sides, and whoever stood between them.
Sender: TypeAlias = Literal["client", "server", "recorder"]

_FORMAT: Literal["trunkline-recording"] = "trunkline-recording"
_EXPECTED = 'expected {"from": "client" or "server", "message": {...}}'


class Head(Struct, frozen=True, kw_only=True):
    """The first line of a file: what was recorded, and when."""

    format: Literal["trunkline-recording"] = _FORMAT
    version: int = VERSION
    #: What was recorded, as it may be shown.
    target: str | None = None
    #: How whoever was recorded reached it.
    transport: str | None = None
    #: When it began, in UTC.
    started: str | None = None


class Entry(Struct, frozen=True, omit_defaults=True):
    """One line of a recording: who sent which message, and what a reader should know about it."""

    sender: Sender = msgspec.field(name="from")
    message: Raw | UnsetType = UNSET
    note: str | None = None
    #: Seconds since the recording began.
    at: float | None = None
    #: Over HTTP: the number of the exchange, its MCP headers, and the status of an answer.
    exchange: int | None = None
    headers: dict[str, str] | None = None
    status: int | None = None

    @property
    def json(self) -> Any:
        """The message as plain JSON, or None when something came that was no message."""
        return None if self.message is UNSET else msgspec.json.decode(self.message)

    @property
    def decoded(self) -> Incoming | None:
        """The message as the package reads it."""
        return None if self.message is UNSET else decode(bytes(self.message))


class Recording(Struct, frozen=True):
    """A conversation: its entries in the order they were sent, under a title and a head."""

    entries: tuple[Entry, ...] = ()
    title: str = ""
    head: Head | None = None
    #: The file ends in the middle of a line: whoever wrote it was stopped.
    cut: bool = False

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """Read a recording from a file.

        Raises:
            ConfigError: it cannot be read, or a line is neither a comment nor an entry; the error names file and line.
        """
        try:
            text = Path(path).read_text(encoding="utf-8", errors="surrogateescape")
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror or error}") from error
        return cls.parse(text, name=str(path))

    @classmethod
    def parse(cls, text: str, *, name: str = "recording") -> Recording:
        """Read a recording from text; ``name`` is what errors call it.

        Raises:
            ConfigError: a line is neither a comment nor an entry; the error names it.
        """
        title: list[str] = []
        entries: list[Entry] = []
        head: Head | None = None
        lines = text.split("\n")
        for number, line in enumerate(lines, 1):
            if line.startswith("#") and not entries and head is None:
                title.append(line[1:].strip())
            elif line.strip() and not line.startswith("#"):
                try:
                    found = _parse_line(line, f"{name}, line {number}", first=not entries and head is None)
                except ConfigError:
                    if number == len(lines) and (entries or head) and _broken(line):
                        return cls(tuple(entries), "\n".join(title), head, cut=True)
                    raise
                if isinstance(found, Head):
                    head = found
                else:
                    entries.append(found)
        return cls(tuple(entries), "\n".join(title), head)

    def dump(self) -> str:
        """Write the recording as text, one message a line."""
        lines = [f"# {line}".rstrip() for line in self.title.split("\n")] if self.title else []
        lines += [] if self.head is None else [msgspec.json.encode(self.head).decode()]
        lines += [msgspec.json.encode(entry).decode() for entry in self.entries]
        return "".join(f"{line}\n" for line in lines)

    def save(self, path: str | Path) -> None:
        """Write the recording to a file, over whatever was there."""
        Path(path).write_text(self.dump(), encoding="utf-8", newline="\n")

    def sent_by(self, sender: Sender) -> tuple[Entry, ...]:
        """Give one side's entries."""
        return tuple(entry for entry in self.entries if entry.sender == sender)

    @property
    def revision(self) -> str | None:
        """The revision that was spoken at last: agreed on by a handshake, or said by a request; None if none was."""
        found: str | None = None
        for entry in self.entries:
            for message in _messages(entry.json):
                found = _spoken(message) or found
        return found


def _parse_line(line: str, where: str, *, first: bool) -> Head | Entry:
    data = line.encode("utf-8", "surrogateescape")
    if first and b'"trunkline-recording"' in data:
        try:
            head = msgspec.json.decode(data, type=Head)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{where}: {error}; this is no head of a recording") from error
        if head.version > VERSION:
            raise ConfigError(
                f"{where}: this recording has version {head.version} of the format, and version {VERSION} is the last "
                "that is understood here; use the trunkline that wrote it"
            )
        return head
    try:
        return msgspec.json.decode(data, type=Entry)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: {error}; {_EXPECTED}") from error


def _broken(line: str) -> bool:
    """Tell whether a line is no JSON at all, as one is that was not written to its end."""
    try:
        msgspec.json.decode(line.encode("utf-8", "surrogateescape"))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True
    return False


def _messages(value: Any) -> list[dict[str, Any]]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, dict)]


def _spoken(message: dict[str, Any]) -> str | None:
    """Find a revision that a message settles: one is asked for by ``initialize``, but the answer says which it is."""
    params, result = message.get("params"), message.get("result")
    meta = params.get("_meta") if isinstance(params, dict) else None
    said = meta.get(META_PROTOCOL_VERSION) if isinstance(meta, dict) else None
    if isinstance(result, dict) and "serverInfo" in result:
        said = result.get("protocolVersion")
    return said if isinstance(said, str) else None
