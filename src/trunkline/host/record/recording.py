"""Recordings: whole conversations as text files, one JSON object per line, in the order the messages were sent.

A file may begin with comments (``#``), which are its title, and with a header that says what was recorded:
``{"format": "trunkline-recording", "version": 1, "target": "...", "transport": "stdio", "started": "..."}``. Each line
after that is an entry, ``{"from": "client", "at": 0.25, "message": {...}}``: the sender, the seconds since the start,
and the message as it was; over HTTP also the MCP headers, the status, and the number of the HTTP exchange it came on.
What was not a message, and remarks of the recorder, are entries with a ``note``. Messages keep the bytes they were
written as, so that everything a peer sent, known to us or not, is still there when it is replayed.

A file whose writer was killed is valid up to its last complete line. Nothing here does I/O beyond reading and writing
one file; ``writer`` records, ``exchanges`` and its siblings use recordings.
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

#: The version of the format that is written here; later ones are rejected.
VERSION = 1

Side: TypeAlias = Literal["client", "server"]
#: The two sides, and the recorder between them.
Sender: TypeAlias = Literal["client", "server", "recorder"]

_FORMAT: Literal["trunkline-recording"] = "trunkline-recording"
_EXPECTED = 'expected {"from": "client" or "server", "message": {...}}'


class Head(Struct, frozen=True, kw_only=True):
    """The header of a file: what was recorded, and when."""

    format: Literal["trunkline-recording"] = _FORMAT
    version: int = VERSION
    #: What was recorded, redacted.
    target: str | None = None
    #: The transport of the recorded client.
    transport: str | None = None
    #: When it began, in UTC.
    started: str | None = None


class Entry(Struct, frozen=True, omit_defaults=True):
    """One line of a recording: a message or a note, with its sender and details."""

    sender: Sender = msgspec.field(name="from")
    message: Raw | UnsetType = UNSET
    note: str | None = None
    #: Seconds since the recording began.
    at: float | None = None
    #: Over HTTP: the number of the HTTP exchange, its MCP headers, and the status of a response.
    exchange: int | None = None
    headers: dict[str, str] | None = None
    status: int | None = None

    @property
    def json(self) -> Any:
        """The message as plain JSON; None for a note."""
        return None if self.message is UNSET else msgspec.json.decode(self.message)

    @property
    def decoded(self) -> Incoming | None:
        """The message as decoded by the package."""
        return None if self.message is UNSET else decode(bytes(self.message))


class Recording(Struct, frozen=True):
    """A conversation: its entries in the order they were sent, with a title and a header."""

    entries: tuple[Entry, ...] = ()
    title: str = ""
    head: Head | None = None
    #: The file ends in the middle of a line: its writer was killed.
    cut: bool = False

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """Load a recording from a file.

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
        """Parse a recording; ``name`` identifies it in errors.

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
        """Return the recording as text, one message per line."""
        lines = [f"# {line}".rstrip() for line in self.title.split("\n")] if self.title else []
        lines += [] if self.head is None else [msgspec.json.encode(self.head).decode()]
        lines += [msgspec.json.encode(entry).decode() for entry in self.entries]
        return "".join(f"{line}\n" for line in lines)

    def save(self, path: str | Path) -> None:
        """Write the recording to a file, replacing it."""
        Path(path).write_text(self.dump(), encoding="utf-8", newline="\n")

    def sent_by(self, sender: Sender) -> tuple[Entry, ...]:
        """Return the entries of one sender."""
        return tuple(entry for entry in self.entries if entry.sender == sender)

    @property
    def revision(self) -> str | None:
        """The last revision in use: negotiated by a handshake, or named by a request; None if there is none."""
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
            raise ConfigError(f"{where}: {error}; this is not a valid header of a recording") from error
        if head.version > VERSION:
            raise ConfigError(
                f"{where}: this recording has format version {head.version}, but only versions up to {VERSION} are "
                "supported here; use the version of trunkline that wrote it"
            )
        return head
    try:
        return msgspec.json.decode(data, type=Entry)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: {error}; {_EXPECTED}") from error


def _broken(line: str) -> bool:
    """Return True if a line is not valid JSON, as one that was not completely written."""
    try:
        msgspec.json.decode(line.encode("utf-8", "surrogateescape"))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True
    return False


def _messages(value: Any) -> list[dict[str, Any]]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, dict)]


def _spoken(message: dict[str, Any]) -> str | None:
    """Return the revision that a message settles; ``initialize`` only proposes one, its response decides."""
    params, result = message.get("params"), message.get("result")
    meta = params.get("_meta") if isinstance(params, dict) else None
    said = meta.get(META_PROTOCOL_VERSION) if isinstance(meta, dict) else None
    if isinstance(result, dict) and "serverInfo" in result:
        said = result.get("protocolVersion")
    return said if isinstance(said, str) else None
