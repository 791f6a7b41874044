"""Lists the folder of saved conversations, which it shares with ``trunkline chat``.

Only the fields that a list shows are decoded, and a file is read again only if it changed.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from trunkline.console.chat_messages import first_line

__all__ = ["SavedChats", "is_chat_id"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_MOST_LISTED = 200  # The latest conversations; older ones stay in the folder.
_MOST_OUTLINE = 64 * 1024 * 1024  # Bytes; a larger file is listed without its title.


def is_chat_id(text: str) -> bool:
    """Return True if a text can be the id of a chat: a file name without a path."""
    return _NAME.fullmatch(text) is not None


class _Outline(Struct, frozen=True):
    """The fields of a saved conversation that a list shows."""

    title: str
    messages: int


class _BlockOutline(Struct, frozen=True):
    type: str = ""
    text: str | None = None


class _MessageOutline(Struct, frozen=True):
    role: str = ""
    content: tuple[_BlockOutline, ...] = ()


class _EntryOutline(Struct, frozen=True):
    message: _MessageOutline = _MessageOutline()
    servers: tuple[str | None, ...] = ()


class _FileOutline(Struct, frozen=True):
    messages: tuple[_EntryOutline, ...] = ()


class SavedChats:
    """Lists the conversations of a folder."""

    def __init__(self, folder: Path) -> None:
        """Create the list of a folder, which need not exist."""
        self._folder = folder
        self._outlines: dict[Path, tuple[tuple[int, int], _Outline]] = {}

    def rows(self) -> list[dict[str, Any]]:
        """Return the latest conversations, newest first; blocks while it reads changed files."""
        found = []
        with suppress(OSError):
            for file in self._folder.glob("*.json"):
                with suppress(OSError):
                    if is_chat_id(file.stem):
                        stat = file.stat()
                        found.append((stat.st_mtime, file, (stat.st_mtime_ns, stat.st_size)))
        found.sort(key=lambda each: each[0], reverse=True)
        outlines = {file: self._outline(file, stamp) for _, file, stamp in found[:_MOST_LISTED]}
        self._outlines = {file: (stamp, outlines[file]) for _, file, stamp in found[:_MOST_LISTED]}
        return [
            {"id": file.stem, "title": outlines[file].title, "at": at, "messages": outlines[file].messages}
            for at, file, _ in found[:_MOST_LISTED]
        ]

    def _outline(self, file: Path, stamp: tuple[int, int]) -> _Outline:
        known = self._outlines.get(file)
        if known is not None and known[0] == stamp:
            return known[1]
        if stamp[1] > _MOST_OUTLINE:
            return _Outline(file.stem, 0)
        try:
            read = msgspec.json.decode(file.read_bytes(), type=_FileOutline)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _Outline(f"{file.stem} (not readable)", 0)
        return _Outline(_first_words(read) or file.stem, len(read.messages))


def _first_words(read: _FileOutline) -> str:
    for entry in read.messages:
        if entry.message.role == "user":
            for block, server in zip(entry.message.content, entry.servers, strict=False):
                if block.type == "text" and server is None and block.text and not block.text.startswith("["):
                    return first_line(block.text)
    return ""
