"""Checks the connection to a server: connects, negotiates, lists everything, and disconnects; no tool is called.

What a server process prints to stdout by mistake is logged by the link, and detected here through that log, also if the
connection fails.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

from trunkline.client.client import Client
from trunkline.devtools.doctor.checks import CheckRecorder
from trunkline.errors import (
    HttpError,
    LinkError,
    RemoteProtocolError,
    RequestFailed,
    RequestTimeout,
    RevisionMismatch,
    ServerExited,
    TrunklineError,
)
from trunkline.host.upstreams.catalog.items import Offering
from trunkline.host.upstreams.supervision.clients import list_offering, requires_login
from trunkline.protocol.caller import supports
from trunkline.protocol.revisions import REVISION_NAMES, Feature, find_revision
from trunkline.transports.process import STRAY_OUTPUT

__all__ = ["check_connection"]

_SLOW_START = 10.0  # Some clients give up after ten seconds.
_SLOW_LIST = 3.0  # A person who opens a client notices it.
_TAIL = 5  # A message and what led to it.
_LONGEST_TRACEBACK = 40  # Lines; the last ones name the cause.
#: The line of an exception, such as ``SyntaxError: invalid syntax``.
_EXCEPTION = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception)): ", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last):"
#: The lists: the method of each, the capability it needs, and the part of an offering that it fills.
_LISTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "tools": ("tools/list", "tools"),
        "prompts": ("prompts/list", "prompts"),
        "resources": ("resources/list", "resources"),
        "templates": ("resources/templates/list", "resources"),
    }
)


class _StdoutNoiseHandler(logging.Handler):
    """Detects log records about lines on stdout that were not messages."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.heard = False

    def emit(self, record: logging.LogRecord) -> None:
        self.heard = self.heard or record.msg == STRAY_OUTPUT


class _TimedClient:
    """A client that counts pages and measures their time, by method."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.pages: dict[str, int] = {}
        self.seconds: dict[str, float] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def list_page(self, method: str, cursor: str | None = None) -> Any:
        began = time.monotonic()
        try:
            return await self._client.list_page(method, cursor)
        finally:
            self.pages[method] = self.pages.get(method, 0) + 1
            self.seconds[method] = self.seconds.get(method, 0.0) + time.monotonic() - began


async def check_connection(
    recorder: CheckRecorder, client: Client, *, process: bool, seconds: float, login: str = ""
) -> Offering | None:
    """Connect, list and disconnect; return what the server offers, or None if that failed.

    ``seconds`` bounds the lists; the client's own limits bound the connection. ``login`` is the login command.
    """
    noise, log = _StdoutNoiseHandler(), logging.getLogger("trunkline")
    began, connected = time.monotonic(), False
    log.addHandler(noise)
    try:
        async with client:
            connected = True
            _check_start(recorder, client, process=process, took=time.monotonic() - began)
            offering = await _list(recorder, client, seconds)
            _check_noise(recorder, process=process, noisy=noise.heard)
            return offering
    except TrunklineError as error:
        if connected:
            recorder.fail("server", f"it disconnected: {error}", fix="see the log of the server")
        else:
            _check_noise(recorder, process=process and noise.heard, noisy=True)
            _explain(recorder, error, process=process, login=login)
        return None
    finally:
        log.removeHandler(noise)


# --- connecting ------------------------------------------------------------------------------------------------------


def _check_start(recorder: CheckRecorder, client: Client, *, process: bool, took: float) -> None:
    if process:
        slow = took > _SLOW_START
        fix = "install its packages beforehand, so that they need not be downloaded"
        (recorder.warn("spawn", f"it took {took:.1f} s", fix=fix) if slow else recorder.ok("spawn", f"in {took:.1f} s"))
    name = client.revision or ""
    revision = find_revision(name)
    era = "stateless" if revision is not None and Feature.ENVELOPE in revision.features else "handshake"
    handshake = "completed" if era == "handshake" else "not needed: the server answered server/discover"
    recorder.ok("handshake", handshake)
    recorder.ok("revision", f"{name} ({era})")
    info = client.server_info
    if info is None or not info.name:
        recorder.warn("server", "no name in its server info", fix="the author of the server should set it")
    else:
        # The version is not checked: a server may have none, and no client depends on it.
        recorder.ok("server", f"{info.title or info.name} {info.version or ''}".rstrip())


def _check_noise(recorder: CheckRecorder, *, process: bool, noisy: bool) -> None:
    if process and noisy:
        fix = "log to stderr instead: many clients end the connection on such a line"
        recorder.warn("stdout", "it printed lines that are not messages", fix=fix)
    elif process:
        recorder.ok("stdout", "only messages")


def _explain(recorder: CheckRecorder, error: TrunklineError, *, process: bool, login: str) -> None:
    """Record why the connection failed."""
    if requires_login(error):
        recorder.fail("login", f"access denied by the server: {error}", fix=f"run: {login}")
    elif isinstance(error, ServerExited):
        tail = _stderr_tail(error.stderr)
        output = f"; last lines of stderr:\n{tail}" if tail else "; it wrote nothing to stderr"
        sandbox = f" in {error.sandbox}" if error.sandbox else ""
        recorder.fail(
            "spawn",
            f"it exited with status {error.status} before it responded{sandbox}{output}",
            fix=_exit_fix(error.status, tail) if not sandbox else _sandbox_fix(error.sandbox),
        )
    elif isinstance(error, RequestTimeout):
        fix = "is it an MCP server? If it is only slow, increase --timeout or startTimeout"
        recorder.fail("handshake", f"no response in {error.seconds:g} s", fix=fix)
    elif isinstance(error, RevisionMismatch):
        fix = f"use another client or update the server; revisions supported here: {', '.join(REVISION_NAMES)}"
        recorder.fail("revision", str(error), fix=fix)
    elif isinstance(error, RemoteProtocolError):
        recorder.fail(
            "handshake", str(error), fix="check that it is an MCP server; if it is, report the error to its author"
        )
    elif isinstance(error, RequestFailed):
        recorder.fail("handshake", f"it returned an error: {error}", fix="see the log of the server")
    elif isinstance(error, LinkError) and process:
        recorder.fail("spawn", str(error), fix="run the command manually to see more")
    else:
        wrong_path = isinstance(error, HttpError) and error.status in (404, 405)
        recorder.fail(
            "handshake", str(error), fix="is the path correct (often /mcp)?" if wrong_path else "is the server running?"
        )


def _exit_fix(status: int | None, tail: str) -> str:
    """Return what to do about a server that exited, judging by the exception that it ends with."""
    raised = _EXCEPTION.findall(tail)
    if "ModuleNotFoundError" in raised:
        return "install the package for the Python that runs the server"
    if raised:
        return "correct the line that is shown above"
    if status == 0 and not tail:
        return "the program has to run its server, with server.run() for example"
    return "run the command manually to see more; often a variable, an argument or a package is missing"


def _sandbox_fix(sandbox: str) -> str:
    """Return what to do about a server that exited in its sandbox."""
    if "allow it" in sandbox:
        return 'add what is shown above to the "sandbox" of its entry'
    return (
        "if it starts without its sandbox, it misses a path or a variable: compare it with what it can reach, shown "
        'above, and list that under "read" or "env" in its "sandbox"'
    )


def _stderr_tail(stderr: str) -> str:
    """Return the last traceback as Python wrote it, with the line before it; without one, the last lines."""
    lines = stderr.rstrip().splitlines()
    starts = [at for at, line in enumerate(lines) if line.strip() == _TRACEBACK]
    if not starts:
        return "\n".join(lines[-_TAIL:])
    return "\n".join(lines[max(starts[0] - 1, 0) :][-_LONGEST_TRACEBACK:])


# --- lists -----------------------------------------------------------------------------------------------------------


async def _list(recorder: CheckRecorder, client: Client, seconds: float) -> Offering | None:
    watched = _TimedClient(client)
    try:
        async with asyncio.timeout(seconds):
            offering = await list_offering(cast("Client", watched))
    except TimeoutError:
        recorder.fail("tools", f"the lists did not arrive in {seconds:g} s", fix="increase --timeout")
        return None
    for part, (method, capability) in _LISTS.items():
        failure = offering.failures.get(method)
        if not supports(client.server_capabilities, capability):
            continue
        if failure is not None:
            recorder.fail(part, f"cannot be listed: {failure}", fix="see the log of the server")
            continue
        took, pages = watched.seconds.get(method, 0.0), watched.pages.get(method, 0)
        size = f"{len(getattr(offering, part))}, {pages} page{'' if pages == 1 else 's'}, {took * 1000:.0f} ms"
        if took > _SLOW_LIST:
            recorder.warn(part, size, fix="every client waits for that; the server should cache its lists")
        else:
            recorder.ok(part, size)
    return offering
