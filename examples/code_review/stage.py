"""The environment of the review: the GitHub server as a process, and stand-ins for the real services."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from examples.code_review.github_double import BUTTON_AFTER, BUTTON_PATH
from trunkline import ConfigError

__all__ = ["check_out", "github_server"]

_START_SECONDS = 20.0
_STOP_SECONDS = 5.0


def check_out(folder: Path) -> Path:
    """Put the files of the stand-in's pull request into a folder, as a checkout would."""
    path = folder / BUTTON_PATH
    path.parent.mkdir(parents=True)
    path.write_text(BUTTON_AFTER, encoding="utf-8")
    return folder


@asynccontextmanager
async def github_server(environ: Mapping[str, str]) -> AsyncIterator[dict[str, str]]:
    """Run the GitHub server over HTTP, with a random token; yield the variables of the configuration.

    Raises:
        ConfigError: the server did not start; the message has the reason.
    """
    token = secrets.token_urlsafe(32)
    words = ["-m", "trunkline_servers.github", "--http", "127.0.0.1:0", "--tokens-env", "CODE_REVIEW_GITHUB_TOKEN"]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *words,
        env={**os.environ, **environ, "CODE_REVIEW_GITHUB_TOKEN": token},
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        url = await _address(process)
        # Its stderr is read to the end: it would block when the pipe is full.
        rest = asyncio.create_task(_read_to_the_end(process))
        yield {"CODE_REVIEW_GITHUB_URL": url, "CODE_REVIEW_GITHUB_TOKEN": token}
        rest.cancel()
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    said = []
    with suppress(TimeoutError):
        async with asyncio.timeout(_START_SECONDS):
            while line := (await process.stderr.readline()).decode(errors="replace"):
                said.append(line.strip())
                _, served, url = line.partition(" is served at ")
                if served:
                    return url.split()[0]
    raise ConfigError(f"the GitHub server did not start: {' '.join(said) or 'it printed nothing'}")


async def _read_to_the_end(process: asyncio.subprocess.Process) -> None:
    assert process.stderr is not None
    while await process.stderr.read(4096):
        pass
