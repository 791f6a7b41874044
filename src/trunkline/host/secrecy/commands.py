"""Secrets from a command, such as a password manager's; the commands are in the user's ``secrets.toml``.

::

    [commands]
    github = ["op", "read", "op://Private/GitHub/token"]

A command is a list of words and never goes through a shell. No project file can define one: it can only refer to a name
that is defined here. The command's stderr is not repeated, since it may contain anything.
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
    """Load the commands by the names of their secrets; without a file there are none.

    Raises:
        ConfigError: the file is not valid; the message says where and why.
    """
    import tomllib

    from trunkline.host.state_files import read_private

    content = read_private(str(path), what="the commands")
    if content is None:
        return {}
    try:
        document = tomllib.loads(content.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    unknown = ", ".join(sorted(document.keys() - {"commands"}))
    if unknown:
        raise ConfigError(f"{path}: {unknown}: unknown; the only table is [commands]")
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
    """Run a command and return its output without surrounding white space.

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
            f"cannot run the command for the secret {name}: {shown}: {error.strerror or error}"
        ) from error
    try:
        async with asyncio.timeout(seconds):
            text = await _output(process)
            status = await process.wait()
    except TimeoutError:
        # Processes that it started may still hold its output.
        _kill(process)
        raise ConfigError(f"the command for the secret {name} ({shown}) took over {seconds:g} s") from None
    finally:
        await _end(process)
    return _checked(name, shown, text, status)


async def _output(process: asyncio.subprocess.Process) -> bytes:
    """Read the output, up to the point at which it is known to be too long."""
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
        raise ConfigError(f"{about} printed more than {_MOST_BYTES // 1024} KiB, which cannot be a secret")
    if status != 0:
        raise ConfigError(f"{about} exited with status {status}; run it yourself to see why")
    try:
        secret = text.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise ConfigError(f"{about} printed text that is not UTF-8") from None
    if not secret:
        raise ConfigError(f"{about} printed nothing")
    return secret


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the process if it still runs, and close its output."""
    if process.returncode is None:
        _kill(process)
        await process.wait()
    with suppress(TimeoutError):
        # Processes that it started and left behind may hold its output for any time.
        async with asyncio.timeout(_LAST_SECONDS):
            await _drain(process)


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Read the output to its end: asyncio does not finish a process whose output is not read."""
    assert process.stdout is not None
    while await process.stdout.read(_MOST_BYTES):
        pass


def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
