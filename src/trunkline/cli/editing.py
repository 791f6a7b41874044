"""Has a person change a text: in their editor if they have one, else by typing it anew."""

from __future__ import annotations

import asyncio
import os
import shlex

from trunkline.cli.terminal import Terminal

__all__ = ["edit", "has_editor"]


def has_editor() -> bool:
    """Tell whether the person has said which editor is theirs."""
    return bool(os.environ.get("VISUAL") or os.environ.get("EDITOR"))


async def edit(terminal: Terminal, text: str, *, suffix: str, prompt: str) -> str:
    """Give a text as the person changed it; the file they edit is theirs alone, and gone afterwards.

    Raises:
        ValueError: the editor failed.
        OSError: it cannot be run.
        InputEnded: the input ended.
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
            raise ValueError(f"the editor ended with {code}")
        return _read(path)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8", errors="surrogatepass") as file:
        file.write(text)


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read().removesuffix("\n")
