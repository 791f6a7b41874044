"""Recordings: whole conversations as text files, one JSON object per line, in the order the messages were sent.

A file may begin with comments (``#``), which are its title, and with a header that says what was recorded: ``{"format":
"trunkline-recording", "version": 1, "target": "...", "transport": "stdio", "started": "..."}``. Each line after that is
an entry, ``{"from": "client", "at": 0.25, "message": {...}}``: the sender, the seconds since the start, and the message
as it was; over HTTP also the MCP headers, the status, and the number of the HTTP exchange it came on. What was not a
message, and remarks of the recorder, are entries with a ``note``. Messages keep the bytes they were written as, so that
everything a peer sent, known to us or not, is still there when it is replayed.

A file whose writer was killed is valid up to its last complete line. Nothing here does I/O beyond reading and writing
one file; ``writer`` records, ``exchanges`` and its siblings use recordings.

The writer redacts, and never disturbs the recorded traffic. Each line is written before the next message is handled, so
a recorder that is killed loses at most the line it was writing. A full disk or a reached size limit ends the recording
and nothing else: the recorded sides do not notice. Secrets are hidden before they are written; the traffic itself is
not changed.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from trunkline.errors import ConfigError
from trunkline.host.secrets.registry import HIDDEN, Redaction, SecretRegistry
from trunkline.protocol.jsonrpc import Incoming, decode
from trunkline.types import META_PROTOCOL_VERSION

__all__ = [
    "MAX_BYTES",
    "VERSION",
    "MessageRedaction",
    "Recording",
    "RecordingEntry",
    "RecordingHeader",
    "RecordingWriter",
    "Sender",
    "Side",
]

#: The version of the format that is written here; later ones are rejected.
VERSION = 1

Side: TypeAlias = Literal["client", "server"]
#: The two sides, and the recorder between them.
Sender: TypeAlias = Literal["client", "server", "recorder"]

_FORMAT: Literal["trunkline-recording"] = "trunkline-recording"
_EXPECTED = 'expected {"from": "client" or "server", "message": {...}}'


class RecordingHeader(Struct, frozen=True, kw_only=True):
    """The header of a file: what was recorded, and when."""

    format: Literal["trunkline-recording"] = _FORMAT
    version: int = VERSION
    #: What was recorded, redacted.
    target: str | None = None
    #: The transport of the recorded client.
    transport: str | None = None
    #: When it began, in UTC.
    started: str | None = None


class RecordingEntry(Struct, frozen=True, omit_defaults=True):
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

    entries: tuple[RecordingEntry, ...] = ()
    title: str = ""
    head: RecordingHeader | None = None
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
        entries: list[RecordingEntry] = []
        head: RecordingHeader | None = None
        lines = text.split("\n")
        for number, line in enumerate(lines, 1):
            if line.startswith("#") and not entries and head is None:
                title.append(line[1:].strip())
            elif line.strip() and not line.startswith("#"):
                try:
                    found = _parse_line(line, f"{name}, line {number}", first=not entries and head is None)
                except ConfigError:
                    if number == len(lines) and (entries or head) and _is_truncated(line):
                        return cls(tuple(entries), "\n".join(title), head, cut=True)
                    raise
                if isinstance(found, RecordingHeader):
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

    def sent_by(self, sender: Sender) -> tuple[RecordingEntry, ...]:
        """Return the entries of one sender."""
        return tuple(entry for entry in self.entries if entry.sender == sender)

    @property
    def revision(self) -> str | None:
        """The last revision in use: negotiated by a handshake, or named by a request; None if there is none."""
        found: str | None = None
        for entry in self.entries:
            for message in _messages(entry.json):
                found = _revision_in(message) or found
        return found


def _parse_line(line: str, where: str, *, first: bool) -> RecordingHeader | RecordingEntry:
    data = line.encode("utf-8", "surrogateescape")
    if first and b'"trunkline-recording"' in data:
        try:
            head = msgspec.json.decode(data, type=RecordingHeader)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{where}: {error}; this is not a valid header of a recording") from error
        if head.version > VERSION:
            raise ConfigError(
                f"{where}: this recording has format version {head.version}, but only versions up to {VERSION} are "
                "supported here; use the version of trunkline that wrote it"
            )
        return head
    try:
        return msgspec.json.decode(data, type=RecordingEntry)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: {error}; {_EXPECTED}") from error


def _is_truncated(line: str) -> bool:
    """Return True if a line is not valid JSON, as one that was not completely written."""
    try:
        msgspec.json.decode(line.encode("utf-8", "surrogateescape"))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True
    return False


def _messages(value: Any) -> list[dict[str, Any]]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, dict)]


def _revision_in(message: dict[str, Any]) -> str | None:
    """Return the revision that a message settles; ``initialize`` only proposes one, its response decides."""
    params, result = message.get("params"), message.get("result")
    meta = params.get("_meta") if isinstance(params, dict) else None
    said = meta.get(META_PROTOCOL_VERSION) if isinstance(meta, dict) else None
    if isinstance(result, dict) and "serverInfo" in result:
        said = result.get("protocolVersion")
    return said if isinstance(said, str) else None


#: The default size limit of a recording.
MAX_BYTES = 64 * 1024 * 1024

_UNLIMITED = 2**62  # A recording keeps texts whole, unlike the audit trail.
# Members of the protocol whose names look like credentials, but are not.
_NEVER_HIDDEN = frozenset({"progressToken"})
# Inside these, names are those of properties, not of values.
_SCHEMAS = frozenset({"inputSchema", "outputSchema", "requestedSchema"})
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_LONGEST_NOTE = 500  # A few lines, enough to recognize what was printed.
_BEGINNING = b'{"format":"trunkline-recording"'


class MessageRedaction:
    """Redacts credentials in messages, but keeps what the protocol needs: ids, progress tokens, schemas."""

    def __init__(self, secrets: frozenset[str] = frozenset(), *, registry: SecretRegistry | None = None) -> None:
        """Create the filter: hides credentials by name and by form, and the given secrets or those of a registry."""
        own = None if registry is None else registry.redaction(text_length=_UNLIMITED)
        self._rules = own or Redaction(secrets=secrets, text_length=_UNLIMITED)

    def apply(self, value: Any) -> Any:
        """Return a redacted copy of a message or of a part of one."""
        if isinstance(value, str):
            return self._rules.text(value)
        if isinstance(value, list):
            return [self.apply(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {self._rules.text(name): self._member(value, name, each) for name, each in value.items()}

    def text(self, text: str) -> str:
        """Return a redacted text."""
        return self._rules.text(text)

    def headers(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return redacted headers; a session id grants access, so it is hidden too."""
        return {name: HIDDEN if self._rules.hides(name) else self._rules.text(text) for name, text in given.items()}

    def _member(self, around: Mapping[str, Any], name: str, value: Any) -> Any:
        if isinstance(value, str) and _is_encoded(around, name):
            return value
        if name in _SCHEMAS and isinstance(value, dict):
            return self._schema(value)
        if value is None or isinstance(value, bool) or name in _NEVER_HIDDEN:
            return value
        # A completion argument has its name beside its value.
        named = around.get("name") if name == "value" else None
        if self._rules.hides(name) or (isinstance(named, str) and self._rules.hides(named)):
            return HIDDEN
        return self.apply(value)

    def _schema(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._rules.text(value)
        if isinstance(value, list):
            return [self._schema(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {name: self._schema(each) for name, each in value.items()}


def _is_encoded(around: Mapping[str, Any], name: str) -> bool:
    """Return True if a member is Base64 data, in which secrets cannot be found and anything may look like one."""
    return (name == "data" and around.get("type") in ("image", "audio")) or (name == "blob" and "uri" in around)


class RecordingWriter:
    """A recording that is being written."""

    def __init__(
        self,
        path: str | Path,
        *,
        target: str | None = None,
        transport: str | None = None,
        max_bytes: int = MAX_BYTES,
        secrets: frozenset[str] = frozenset(),
        on_stop: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start a file; ``on_stop`` is called once with the reason when recording stops early.

        Raises:
            ConfigError: the file cannot be written, is not a recording, or is being written by another recorder.
        """
        self.redaction = MessageRedaction(secrets)
        self._path = str(path)
        self._clock = clock
        self._began = clock()
        self._left = max_bytes
        self._max_bytes = max_bytes
        self._on_stop = on_stop
        self._fd: int | None = _open_exclusive(self._path)
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        shown = None if target is None else self.redaction.text(target)
        self._put(msgspec.json.encode(RecordingHeader(target=shown, transport=transport, started=started)))

    @property
    def writing(self) -> bool:
        """Whether messages are still recorded."""
        return self._fd is not None

    def message(
        self,
        sender: Sender,
        data: bytes,
        *,
        exchange: int | None = None,
        headers: Mapping[str, str] | None = None,
        status: int | None = None,
    ) -> None:
        """Record a message with the bytes it was sent as; data that is not JSON becomes a note."""
        if self._fd is None:
            return
        try:
            clean = self._redacted(data)
        except _UNREADABLE as error:
            text = f"not a message ({error}): {data[: 4 * _LONGEST_NOTE].decode('utf-8', 'replace')}"
            self.note(sender, text, exchange=exchange, headers=headers, status=status)
            return
        except Exception as error:  # noqa: BLE001 - an error in the recorder must not stop the traffic
            self._give_up(f"{self._path}: internal error: {error!r}; nothing more is recorded")
            return
        kept = None if headers is None else self.redaction.headers(headers)
        self._entry(RecordingEntry(sender, Raw(clean), exchange=exchange, headers=kept, status=status))

    def _redacted(self, data: bytes) -> bytes:
        value = msgspec.json.decode(data)
        redacted = self.redaction.apply(value)
        # Without redaction the bytes stay as they were; a line break between values is only white space.
        clean = data if redacted == value else msgspec.json.encode(redacted)
        return clean.replace(b"\n", b" ").replace(b"\r", b" ")

    def note(
        self,
        sender: Sender,
        text: str,
        *,
        exchange: int | None = None,
        headers: Mapping[str, str] | None = None,
        status: int | None = None,
    ) -> None:
        """Record a note."""
        kept = None if headers is None else self.redaction.headers(headers)
        shown = self.redaction.text(text)[:_LONGEST_NOTE]
        self._entry(RecordingEntry(sender, note=shown, exchange=exchange, headers=kept, status=status))

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _entry(self, entry: RecordingEntry) -> None:
        if self._fd is None:
            return
        timed = msgspec.structs.replace(entry, at=round(self._clock() - self._began, 4))
        line = msgspec.json.encode(timed)
        if len(line) >= self._left:
            self._stop(f"{self._path} has reached the limit of {self._max_bytes} bytes: nothing more is recorded")
        else:
            self._put(line)

    def _put(self, line: bytes) -> None:
        assert self._fd is not None
        data = memoryview(line + b"\n")
        self._left -= len(data)
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            self._give_up(f"cannot write {self._path}: {error.strerror or error}; nothing more is recorded")

    def _stop(self, why: str) -> None:
        """End the recording with a note in the file, and report the reason."""
        # Only this line may exceed the limit: a reader must be able to tell that something is missing.
        last = RecordingEntry("recorder", note=why, at=round(self._clock() - self._began, 4))
        self._put(msgspec.json.encode(last))
        self._give_up(why)

    def _give_up(self, why: str) -> None:
        if self._fd is not None:
            self.close()
            if self._on_stop is not None:
                self._on_stop(why)


def _open_exclusive(path: str) -> int:
    """Open a file for one recorder, readable by its owner only, and truncate it if it was a recording."""
    import fcntl

    try:
        if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
            raise ConfigError(f"{path} is not a regular file: choose a file to record to")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        beginning = os.pread(fd, len(_BEGINNING), 0)
        if beginning not in (b"", _BEGINNING):
            raise ConfigError(f"{path} is not a recording and is not overwritten: choose another file")
        os.fchmod(fd, 0o600)
        os.ftruncate(fd, 0)
    except BlockingIOError as error:
        os.close(fd)
        raise ConfigError(f"{path} is being written by another recorder: choose another file") from error
    except (OSError, ConfigError) as error:
        os.close(fd)
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error
    return fd
