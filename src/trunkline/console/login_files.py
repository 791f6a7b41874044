"""Files that log a browser in to the console, so that its token is never on a command line.

The arguments of a process can be read by every user of the machine, and an address with a token stays in the history of
the browser. So the browser is started with the path of a file that only its owner can read. The file redirects to the
console with a one-time code in the fragment, and the page exchanges the code for the token. A code is valid once, for a
minute; its file is deleted with it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import suppress
from hashlib import sha256
from html import escape
from pathlib import Path

from trunkline.host.state_files import private_folder

__all__ = ["LoginFiles"]

_SECONDS = 60.0  # A browser that has to be started first takes a few seconds; a slow machine has a minute.
_PAGE = """<!doctype html>
<meta charset="utf-8"><meta http-equiv="refresh" content="0;url={url}"><title>Trunkline</title>
<a href="{url}">Open the console</a>
"""


class LoginFiles:
    """The codes of one console that can still be exchanged for its token."""

    def __init__(self, token: str, *, seconds: float = _SECONDS) -> None:
        """Create it without codes."""
        self._token = token
        self._seconds = seconds
        # By digest, so that a lookup does not reveal by its time how much of a code is right.
        self._files: dict[bytes, Path] = {}

    async def create(self, folder: Path, origin: str) -> Path:
        """Write a file with a new code into a folder that only its owner can read, and return its path."""
        code = secrets.token_urlsafe(32)
        path = folder / f"open-{secrets.token_hex(8)}.html"
        content = _PAGE.format(url=escape(f"{origin}/#code={code}"))
        await asyncio.to_thread(_write, path, content)
        self._files[_digest(code)] = path
        asyncio.get_running_loop().call_later(self._seconds, self.exchange, code)
        return path

    def exchange(self, code: str) -> str | None:
        """Return the token for a code that is still valid, and None for any other; the code is used up by it."""
        path = self._files.pop(_digest(code), None)
        if path is None:
            return None
        _delete(path)
        return self._token

    def close(self) -> None:
        """Revoke all codes."""
        for path in self._files.values():
            _delete(path)
        self._files.clear()


def _write(path: Path, content: str) -> None:
    private_folder(path.parent)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(content)


def _delete(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _digest(code: str) -> bytes:
    return sha256(code.encode()).digest()
