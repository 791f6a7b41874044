"""The writer of recordings: redacted, line by line, bounded, and without disturbing the recorded traffic.

Each line is written before the next message is handled, so a recorder that is killed loses at most the line it was
writing. A full disk or a reached size limit ends the recording and nothing else: the recorded sides do not notice.
Secrets are hidden before they are written; the traffic itself is not changed.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from trunkline.errors import ConfigError
from trunkline.host.record.recording import Entry, Head, Sender
from trunkline.host.secrecy.redaction import HIDDEN, Redaction

__all__ = ["MAX_BYTES", "MessageRedaction", "RecordingFile"]

#: The default size limit of a recording.
MAX_BYTES = 64 * 1024 * 1024

_WHOLE = 2**62
# Members of the protocol whose names look like credentials, but are not.
_OPEN = frozenset({"progressToken"})
# Inside these, names are those of properties, not of values.
_SCHEMAS = frozenset({"inputSchema", "outputSchema", "requestedSchema"})
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_LONGEST_NOTE = 500
_BEGINNING = b'{"format":"trunkline-recording"'


class MessageRedaction:
    """Redacts credentials in messages, but keeps what the protocol needs: ids, progress tokens, schemas."""

    def __init__(self, secrets: frozenset[str] = frozenset()) -> None:
        """Hide credentials by name and by look, and these secrets wherever they occur."""
        self._rules = Redaction(secrets=secrets, text_length=_WHOLE)

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
        if value is None or isinstance(value, bool) or name in _OPEN:
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


class RecordingFile:
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
        self._fd: int | None = _begin(self._path)
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        shown = None if target is None else self.redaction.text(target)
        self._put(msgspec.json.encode(Head(target=shown, transport=transport, started=started)))

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
        self._entry(Entry(sender, Raw(clean), exchange=exchange, headers=kept, status=status))

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
        self._entry(Entry(sender, note=shown, exchange=exchange, headers=kept, status=status))

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _entry(self, entry: Entry) -> None:
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
        last = Entry("recorder", note=why, at=round(self._clock() - self._began, 4))
        self._put(msgspec.json.encode(last))
        self._give_up(why)

    def _give_up(self, why: str) -> None:
        if self._fd is not None:
            self.close()
            if self._on_stop is not None:
                self._on_stop(why)


def _begin(path: str) -> int:
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
