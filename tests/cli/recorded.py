"""What the tests of recordings share: a client that uses everything once, and commands to point it at."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trunkline
from tests.cli.support import SECONDS, kill_if_silent
from tests.support import run_async
from trunkline import Client

__all__ = ["ERAS", "TALKER", "said_by", "trunkline_command", "use_everything", "watched"]

TALKER = str(Path(__file__).with_name("talker.py"))
#: A revision of each era.
ERAS = ("2025-11-25", "2026-07-28")
_SOURCE = os.pathsep.join([str(Path(trunkline.__file__).parents[1]), str(Path(__file__).parents[2])])


def trunkline_command(*arguments: str) -> list[str]:
    """Give the words that start the command as a server."""
    return [sys.executable, "-m", "trunkline", *arguments]


async def _use(target: Any, revision: str) -> list[Any]:
    seen: list[Any] = []
    options: dict[str, Any] = {} if isinstance(target, str) else {"env": {"PYTHONPATH": _SOURCE}}
    async with (
        Client(target, revision=revision, elicitation=lambda question: {"value": 3}, **options) as client,
        client.listen(tools=True) as changes,
    ):
        seen.append(len(await client.list_tools()))
        seen.append((await client.call_tool("order", {"dish": "fish"})).text)
        seen.append((await client.call_tool("work", on_progress=lambda *step: seen.append(step[0]))).text)
        began = asyncio.Event()
        call = asyncio.ensure_future(client.call_tool("hang", on_progress=lambda *step: began.set()))
        await began.wait()
        call.cancel()
        await asyncio.wait([call])
        seen.append((await client.call_tool("grow")).text)
        seen.append((await anext(changes)).kind)
        seen.append(len(await client.list_tools()))
        seen.append((await client.call_tool("login", {"user": "ann", "password": "hunter22"})).data["user"])
    return seen


def use_everything(target: Any, revision: str) -> list[Any]:
    """Ask, be asked, cancel, hear of progress and of a change; give what was seen."""
    return run_async(_use(target, revision), seconds=SECONDS)


#: What whoever uses everything sees of the talker, in either era.
said_by = (5, "accept 3", 1, 2, "worked", "grown", "tools", 6, "ann")


@contextmanager
def watched(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the command, which serves HTTP, as a process; give it and the URL it tells."""
    with subprocess.Popen(
        trunkline_command(*arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": _SOURCE},
    ) as process:
        assert process.stderr is not None
        try:
            with kill_if_silent(process):
                line = process.stderr.readline()
            found = re.search(r"is served at (\S+?)(?:;| )", line)
            assert found is not None, line
            yield process, found.group(1)
        finally:
            process.kill()
