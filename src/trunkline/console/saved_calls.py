"""Saved calls: the user can run them again, and see the difference to the last result.

They are stored in one file of the host's state folder, readable by its owner only. Secrets in arguments and results are
masked; a call with a masked argument can be run only after the user has entered the secret again.
"""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.console.routing import ApiError
from trunkline.errors import ConfigError
from trunkline.host.state_files import locked, read_private, write_private

__all__ = ["LastResult", "SavedCall", "SavedCalls", "holds_mask"]

_MOST_CALLS = 200  # Saved calls.
_LONGEST_NAME = 200  # Characters of a name: two lines of a list.
_MOST_ARGUMENT_BYTES = 256 * 1024  # Bytes of the arguments; only an attached file has more.
_MOST_KEPT_BYTES = 64 * 1024  # Bytes of a result that are stored for the comparison.
_MOST_LINES = 2000  # Lines that are compared; the time grows quadratically.
_MOST_SHOWN = 400  # Lines of the difference that a page shows.
_SUMMARY = 120  # Characters of a result in a list.
_MASK = "***"


class LastResult(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of the last run."""

    at: float
    digest: str
    summary: str
    #: The result as indented JSON, cut if it is long.
    text: str = ""


class SavedCall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A saved call and its last result."""

    id: str
    name: str
    kind: str
    target: str
    arguments: dict[str, Any] = {}
    last: LastResult | None = None

    def view(self) -> dict[str, Any]:
        """Return it for a page, without the text of the last result."""
        last = self.last
        shown = None if last is None else {"at": last.at, "digest": last.digest, "summary": last.summary}
        return {
            "id": self.id,
            "name": self.name,
            "kind": self.kind,
            "target": self.target,
            "arguments": self.arguments,
            "last": shown,
        }


class _SavedFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the file."""

    version: Literal[1] = 1
    calls: list[SavedCall] = []


class SavedCalls:
    """The saved calls of a user, in a file that several processes may write."""

    def __init__(self, path: Path, hide: Callable[[Any], Any]) -> None:
        """Use the file at this path; ``hide`` masks the secrets in a JSON value."""
        self._path = str(path)
        self._hide = hide

    def all(self) -> list[SavedCall]:
        """Return the saved calls, in the order in which they were saved.

        Raises:
            ConfigError: the file cannot be read.
        """
        content = read_private(self._path, what="the saved calls")
        try:
            return [] if content is None else msgspec.json.decode(content, type=_SavedFile).calls
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"{self._path} is not a file of saved calls ({error}); move or delete it.") from error

    def get(self, id: str) -> SavedCall:
        """Return a saved call.

        Raises:
            ApiError: there is none of this id.
        """
        found = next((call for call in self.all() if call.id == id), None)
        if found is None:
            raise ApiError(404, "not_found", "There is no such saved call; it may have been removed.")
        return found

    def add(self, name: str, kind: str, target: str, arguments: Mapping[str, Any], result: bytes | None) -> SavedCall:
        """Save a call, with its last result if there is one.

        Raises:
            ApiError: there are too many, or it is too large.
        """
        masked = self._hide(dict(arguments))
        if len(msgspec.json.encode(masked)) > _MOST_ARGUMENT_BYTES:
            message = f"The arguments are larger than {_MOST_ARGUMENT_BYTES} bytes, so the call was not saved."
            raise ApiError(413, "too_large", message)
        call = SavedCall(
            id=os.urandom(8).hex(),
            name=name.strip()[:_LONGEST_NAME] or target,
            kind=kind,
            target=target,
            arguments=masked,
            last=None if result is None else self._last(result),
        )

        def change(calls: list[SavedCall]) -> list[SavedCall]:
            if len(calls) >= _MOST_CALLS:
                raise ApiError(409, "full", f"At most {_MOST_CALLS} calls can be saved; remove one first.")
            return [*calls, call]

        self._change(change)
        return call

    def remove(self, id: str) -> None:
        """Remove a saved call; do nothing if it does not exist."""
        self._change(lambda calls: [call for call in calls if call.id != id])

    def compare(self, id: str, result: bytes) -> dict[str, Any] | None:
        """Store the result of a run, and return the difference to the previous one; None for the first run."""
        now = self._last(result)
        before: list[LastResult | None] = [None]

        def change(calls: list[SavedCall]) -> list[SavedCall]:
            before[:] = [call.last for call in calls if call.id == id] or [None]
            return [replace(call, last=now) if call.id == id else call for call in calls]

        self._change(change)
        return None if before[0] is None else _compared(before[0], now)

    def _last(self, result: bytes) -> LastResult:
        value = self._hide(msgspec.json.decode(result))
        if isinstance(value, dict):
            # Metadata about the server and the time is not compared.
            value = {name: each for name, each in value.items() if name != "_meta"}
        plain = msgspec.json.encode(value, order="sorted")
        text = msgspec.json.format(plain, indent=2).decode()
        return LastResult(
            at=time.time(),
            digest=sha256(plain).hexdigest(),
            summary=_summary(value),
            text=text.encode()[:_MOST_KEPT_BYTES].decode(errors="ignore"),
        )

    def _change(self, change: Callable[[list[SavedCall]], list[SavedCall]]) -> None:
        with locked(self._path):
            write_private(self._path, msgspec.json.encode(_SavedFile(calls=change(self.all()))))


def holds_mask(value: Any) -> bool:
    """Return True if a saved value contains a masked secret."""
    return _MASK in msgspec.json.encode(value).decode()


def _compared(before: LastResult, now: LastResult) -> dict[str, Any]:
    if before.digest == now.digest:
        return {"same": True, "lines": []}
    old, new = before.text.splitlines()[:_MOST_LINES], now.text.splitlines()[:_MOST_LINES]
    lines = [line for line in difflib.unified_diff(old, new, n=2, lineterm="") if not line.startswith(("---", "+++"))]
    if not lines:
        lines = ["The difference is in a part that is too long to be stored."]
    return {"same": False, "lines": lines[:_MOST_SHOWN]}


def _summary(value: Any) -> str:
    """Return the beginning of the first text of a result as one line."""
    text = _first_text(value) or msgspec.json.encode(value)[: 4 * _SUMMARY].decode(errors="ignore")
    line = " ".join(text[: 4 * _SUMMARY].split())
    return line if len(line) <= _SUMMARY else f"{line[: _SUMMARY - 1]}…"


def _first_text(value: Any) -> str | None:
    if not isinstance(value, dict):
        return None
    for name in ("content", "contents", "messages"):
        for each in value.get(name) or ():
            inner = each.get("content", each) if isinstance(each, dict) else None
            if isinstance(inner, dict) and isinstance(inner.get("text"), str):
                text: str = inner["text"]
                return text
    text_of_skill = value.get("text")
    return text_of_skill if isinstance(text_of_skill, str) else None
