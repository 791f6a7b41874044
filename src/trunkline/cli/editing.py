"""Lets the user edit a text: in their editor if one is set, otherwise by typing it again."""

from __future__ import annotations

import asyncio
import os
import shlex

from trunkline.cli.terminal import Terminal

__all__ = ["edit", "has_editor"]


def has_editor() -> bool:
    """Return True if ``VISUAL`` or ``EDITOR`` is set."""
    return bool(os.environ.get("VISUAL") or os.environ.get("EDITOR"))


async def edit(terminal: Terminal, text: str, *, suffix: str, prompt: str) -> str:
    """Return a text as edited by the user; the file is readable by them only and deleted afterwards.

    Raises:
        ValueError: the editor failed.
        OSError: it cannot be run.
        EndOfInput: the input ended.
    """
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        return await terminal.ask(prompt)
    import tempfile

    with tempfile.TemporaryDirectory(prefix="trunkline-") as folder:
        path = os.path.join(folder, f"review{suffix}")
        _write(path, text)
        process = await asyncio.create_subprocess_exec(*shlex.split(editor), path)
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        if code != 0:
            raise ValueError(f"the editor exited with status {code}")
        return _read(path)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8", errors="surrogatepass") as file:
        file.write(text)


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read().removesuffix("\n")
