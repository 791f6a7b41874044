"""Secrets that a command gives, such as that of a password manager: which command is in the user's ``secrets.toml``.

::

    [commands]
    github = ["op", "read", "op://Private/GitHub/token"]

A command is a list of words and never goes through a shell. No project's file can name one: it can only use a name that
stands here. What the command writes to stderr is not repeated, since nobody knows what is in it.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from trunkline.errors import ConfigError

__all__ = ["ask_command", "read_commands"]

_SECONDS = 10.0
_LAST_SECONDS = 1.0
_MOST_BYTES = 64 * 1024


def read_commands(path: Path) -> dict[str, tuple[str, ...]]:
    """Read the commands by the names of their secrets; without a file there are none.

    Raises:
        ConfigError: the file cannot be used; says where and why.
    """
    import tomllib

    from trunkline.host.state_files import read_private

    content = read_private(str(path), what="the commands")
    if content is None:
        return {}
    try:
        document = tomllib.loads(content.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: it is no TOML: {error}") from error
    unknown = ", ".join(sorted(document.keys() - {"commands"}))
    if unknown:
        raise ConfigError(f"{path}: {unknown}: not known; the only table is [commands]")
    commands = document.get("commands", {})
    if not isinstance(commands, dict):
        raise ConfigError(f"{path}: commands: expected a table of names and commands")
    return {name: _words(path, name, words) for name, words in commands.items()}


def _words(path: Path, name: str, words: object) -> tuple[str, ...]:
    good = isinstance(words, list) and words and all(isinstance(word, str) for word in words) and words[0]
    if not good or not isinstance(words, list) or any("\x00" in word for word in words):
        raise ConfigError(f'{path}: commands.{name}: expected a list of words, such as ["pass", "show", "{name}"]')
    return tuple(words)


async def ask_command(
    name: str, words: tuple[str, ...], *, environ: Mapping[str, str], seconds: float = _SECONDS
) -> str:
    """Run a command and give what it prints, without the line end.

    Raises:
        ConfigError: it cannot be run, fails, takes too long, or prints nothing or too much.
    """
    shown = shlex.quote(words[0])
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=dict(environ),
            start_new_session=sys.platform != "win32",
        )
    except OSError as error:
        raise ConfigError(
            f"the command for the secret {name} cannot be run: {shown}: {error.strerror or error}"
        ) from error
    try:
        async with asyncio.timeout(seconds):
            text = await _output(process)
            status = await process.wait()
    except TimeoutError:
        # It may have left others behind that hold its output.
        _kill(process)
        raise ConfigError(f"the command for the secret {name} ({shown}) took over {seconds:g} s") from None
    finally:
        await _end(process)
    return _checked(name, shown, text, status)


async def _output(process: asyncio.subprocess.Process) -> bytes:
    """Read what is printed, no more of it than is needed to know that it is too much."""
    assert process.stdout is not None
    text = b""
    while len(text) <= _MOST_BYTES and (more := await process.stdout.read(_MOST_BYTES)):
        text += more
    if len(text) > _MOST_BYTES:
        _kill(process)
        await _drain(process)
    return text


def _checked(name: str, shown: str, text: bytes, status: int) -> str:
    about = f"the command for the secret {name} ({shown})"
    if len(text) > _MOST_BYTES:
        raise ConfigError(f"{about} prints over {_MOST_BYTES // 1024} KiB, which is no secret")
    if status != 0:
        raise ConfigError(f"{about} ended with status {status}; run it yourself to see why")
    try:
        secret = text.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise ConfigError(f"{about} prints what is no UTF-8") from None
    if not secret:
        raise ConfigError(f"{about} prints nothing")
    return secret


async def _end(process: asyncio.subprocess.Process) -> None:
    """Leave nothing of it running, and nothing of it open."""
    if process.returncode is None:
        _kill(process)
        await process.wait()
    with suppress(TimeoutError):
        # Whatever else it started and did not take with it may hold its output for as long as it likes.
        async with asyncio.timeout(_LAST_SECONDS):
            await _drain(process)


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Read the output to its end: a process whose output nobody reads is not over for the loop."""
    assert process.stdout is not None
    while await process.stdout.read(_MOST_BYTES):
        pass


def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
