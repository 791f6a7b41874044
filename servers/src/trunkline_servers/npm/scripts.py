"""Running one script of a project with npm: what exactly would run, the process, its output and its end.

npm is started with an argument list, never through a shell; the shell that runs the script's own line is npm's. The
process has its own group, which is terminated as a whole, an environment of listed variables only, and an output of
which the beginning and the end are kept.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from msgspec import Struct

from trunkline.errors import ToolError
from trunkline_servers.npm.project import Project
from trunkline_servers.untrusted import printable

__all__ = ["ScriptPlan", "ScriptResult", "plan_script", "run_script_plan", "script_environment"]

_NAME_CHARS = 100
_LINE_CHARS = 4000
_MOST_ARGUMENTS = 50
_ARGUMENT_CHARS = 1000
_GRACE_SECONDS = 2.0
_PIECE = 65536
#: Characters that count as printable but are invisible.
_INVISIBLE = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
_BLANKS = re.compile(r" {20,}")
#: What a program needs to find its tools and files; everything else, above all credentials, is not passed.
_PASSED = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM"}
    | {"SYSTEMROOT", "COMSPEC", "PATHEXT", "TEMP", "TMP", "APPDATA", "LOCALAPPDATA", "USERPROFILE", "PROGRAMFILES"}
)


class ScriptPlan(Struct, frozen=True):
    """What would run: the command, the folder, and the script lines from ``package.json``."""

    command: tuple[str, ...]
    folder: str
    #: The script with its pre and post scripts, in order.
    lines: tuple[tuple[str, str], ...]

    def shown(self) -> str:
        """Return the text for the user who is asked for consent."""
        lines = "\n".join(f"  {name}: {_for_consent(line)}" for name, line in self.lines)
        folder, command = _for_consent(self.folder), _for_consent(shlex.join(self.command))
        return f"Run this in {folder}?\n\n  {command}\n\nwhich runs\n\n{lines}"


class ScriptResult(Struct, frozen=True):
    """The exit code and output of a script."""

    command: str
    exit_code: int | None
    timed_out: bool
    output: str
    #: Bytes omitted from the middle of the output.
    left_out: int


def plan_script(project: Project, name: str, arguments: Sequence[str]) -> ScriptPlan:
    """Return what npm would run.

    Raises:
        ToolError: there is no such script, or it cannot be shown or passed safely.
    """
    scripts = project.scripts()
    if not name or name.startswith("-") or len(name) > _NAME_CHARS or not name.isprintable():
        raise ToolError(f"{name[:100]!r} cannot be the name of a script: it must not be empty or begin with a hyphen")
    if name not in scripts:
        known = ", ".join(sorted(scripts)[:30]) or "none"
        raise ToolError(f"package.json has no script {name!r}; it has: {known}")
    if len(arguments) > _MOST_ARGUMENTS or any(len(each) > _ARGUMENT_CHARS for each in arguments):
        raise ToolError(f"Give at most {_MOST_ARGUMENTS} arguments of {_ARGUMENT_CHARS} characters")
    if any(not each.isprintable() for each in arguments):
        raise ToolError("An argument holds control characters, which cannot be shown to the user for approval")
    lines = tuple((each, scripts[each]) for each in (f"pre{name}", name, f"post{name}") if each in scripts)
    if any(len(line) > _LINE_CHARS for _, line in lines):
        raise ToolError(f"The script is longer than {_LINE_CHARS} characters, too long for a user to approve")
    tail = ("--", *arguments) if arguments else ()
    # Otherwise a project's .npmrc could make npm run the scripts of its workspaces instead of the one shown.
    return ScriptPlan(("npm", "run-script", "--workspaces=false", name, *tail), str(project.folder), lines)


def script_environment(source: Mapping[str, str], passed: Sequence[str] = ()) -> dict[str, str]:
    """Return the environment of a script: allowed variables, and npm settings without side effects."""
    names = _PASSED | set(passed)
    chosen = {name: value for name, value in source.items() if name in names or name.startswith("LC_")}
    settings = {"update_notifier": "false", "fund": "false", "audit": "false", "color": "false"}
    # A project's .npmrc could run code that the user did not approve: preloaded into node, or as the shell.
    settings["node_options"] = "null"
    if sys.platform != "win32":
        settings["script_shell"] = "/bin/sh"
    return {**chosen, **{f"npm_config_{name}": value for name, value in settings.items()}, "NO_COLOR": "1"}


async def run_script_plan(
    plan: ScriptPlan, *, npm: str, env: Mapping[str, str], seconds: float, most_bytes: int
) -> ScriptResult:
    """Run a plan until it exits or times out; its whole process group is terminated.

    Raises:
        ToolError: npm cannot be started.
    """
    output = _Output(most_bytes)
    async with _pipe() as (reader, write_end):
        try:
            process = await _start(plan, npm, env, write_end)
        finally:
            os.close(write_end)
        reading = asyncio.ensure_future(output.read(reader))
        timed_out = False
        try:
            async with asyncio.timeout(seconds):
                await process.wait()
        except TimeoutError:
            timed_out = True
        finally:
            await _end(process)
            # A process that left the group may hold the pipe open: the output so far is used.
            await asyncio.wait([reading], timeout=_GRACE_SECONDS)
            reading.cancel()
    text, left_out = output.text()
    return ScriptResult(shlex.join(plan.command), None if timed_out else process.returncode, timed_out, text, left_out)


@asynccontextmanager
async def _pipe() -> AsyncIterator[tuple[asyncio.StreamReader, int]]:
    """Open a pipe and close its reading end afterwards; the caller closes the writing end."""
    read_end, write_end = os.pipe()
    reader = asyncio.StreamReader(limit=_PIECE)
    loop = asyncio.get_running_loop()
    file = os.fdopen(read_end, "rb", 0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    try:
        yield reader, write_end
    finally:
        transport.close()


async def _start(plan: ScriptPlan, npm: str, env: Mapping[str, str], output: int) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            _absolute(npm),
            *plan.command[1:],
            cwd=Path(plan.folder),
            env=dict(env),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    except OSError as error:
        raise ToolError(f"npm cannot be started ({error.strerror}): install Node.js, or give --npm PATH") from error


def _absolute(npm: str) -> str:
    """Return the path of npm as an absolute one: a relative path would be resolved in the project folder."""
    return os.path.abspath(npm)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Terminate the whole group: SIGTERM if its leader still runs, then SIGKILL, even if cancelled."""
    try:
        if process.returncode is None:
            _signal(process.pid, signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(_GRACE_SECONDS):
                    await process.wait()
    finally:
        _signal(process.pid, signal.SIGKILL)
    await process.wait()


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


class _Output:
    """Keeps the beginning and the end of the output, within a limit."""

    def __init__(self, most: int) -> None:
        self._half = max(1, most // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    async def read(self, stream: asyncio.StreamReader) -> None:
        """Read to the end, keeping what fits."""
        while piece := await stream.read(_PIECE):
            room = self._half - len(self._head)
            self._head += piece[:room]
            self._tail += piece[room:]
            over = max(0, len(self._tail) - self._half)
            del self._tail[:over]
            self._left_out += over

    def text(self) -> tuple[str, int]:
        """Return the kept text and the number of omitted bytes."""
        gap = f"\n... {self._left_out} bytes left out ...\n".encode() if self._left_out else b""
        return bytes(self._head + gap + self._tail).decode(errors="replace"), self._left_out


def _for_consent(text: str) -> str:
    """Escape invisible characters and count long runs of blanks: what is shown must be exactly what runs."""
    shown = printable(text, replacement="python", invisible=_INVISIBLE)
    return _BLANKS.sub(lambda found: f"[{len(found[0])} blanks]", shown)
