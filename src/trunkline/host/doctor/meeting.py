"""Checks the connection to a server: connects, negotiates, lists everything, and disconnects; no tool is called.

What a server process prints to stdout by mistake is logged by the link, and detected here through that log, also if the
connection fails.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

from trunkline.client.client import Client
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
from trunkline.host.catalog.offerings import Offering
from trunkline.host.doctor.checks import Sheet
from trunkline.host.supervision.clients import wants_login
from trunkline.host.supervision.listing import list_offering
from trunkline.protocol.caller import supports
from trunkline.protocol.revisions import ALL_NAMES, Feature, find

__all__ = ["meet"]

_SLOW_START = 10.0
_SLOW_LIST = 3.0
_TAIL = 5
_NOISE = "wrote to stdout"
#: The lists: the method of each, the capability it needs, and the part of an offering that it fills.
_LISTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "tools": ("tools/list", "tools"),
        "prompts": ("prompts/list", "prompts"),
        "resources": ("resources/list", "resources"),
        "templates": ("resources/templates/list", "resources"),
    }
)


class _Noise(logging.Handler):
    """Detects log records about lines on stdout that were not messages."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.heard = False

    def emit(self, record: logging.LogRecord) -> None:
        self.heard = self.heard or _NOISE in record.getMessage()


class _Watched:
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


async def meet(sheet: Sheet, client: Client, *, process: bool, seconds: float, login: str = "") -> Offering | None:
    """Connect, list and disconnect; return what the server offers, or None if that failed.

    ``seconds`` bounds the lists; the client's own limits bound the connection. ``login`` is the login command.
    """
    noise, log = _Noise(), logging.getLogger("trunkline")
    began, connected = time.monotonic(), False
    log.addHandler(noise)
    try:
        async with client:
            connected = True
            _check_start(sheet, client, process=process, took=time.monotonic() - began)
            offering = await _list(sheet, client, seconds)
            _check_noise(sheet, process=process, noisy=noise.heard)
            return offering
    except TrunklineError as error:
        if connected:
            sheet.fail("server", f"it disconnected: {error}", fix="see the log of the server")
        else:
            _check_noise(sheet, process=process and noise.heard, noisy=True)
            _explain(sheet, error, process=process, login=login)
        return None
    finally:
        log.removeHandler(noise)


# --- connecting ------------------------------------------------------------------------------------------------------


def _check_start(sheet: Sheet, client: Client, *, process: bool, took: float) -> None:
    if process:
        slow = took > _SLOW_START
        fix = "install its packages beforehand, so that they need not be downloaded"
        (sheet.warn("spawn", f"it took {took:.1f} s", fix=fix) if slow else sheet.ok("spawn", f"in {took:.1f} s"))
    sheet.ok("handshake", "completed")
    name = client.revision or ""
    revision = find(name)
    era = "stateless" if revision is not None and Feature.ENVELOPE in revision.features else "handshake"
    sheet.ok("revision", f"{name} ({era})")
    info = client.server_info
    said = {"name": info.name if info else "", "version": info.version if info else ""}
    missing = " and ".join(what for what, value in said.items() if not value)
    if info is None or missing:
        sheet.warn("server", f"no {missing} in its server info", fix="the author of the server should set it")
    else:
        sheet.ok("server", f"{info.title or info.name} {info.version}")


def _check_noise(sheet: Sheet, *, process: bool, noisy: bool) -> None:
    if process and noisy:
        fix = "log to stderr instead: many clients end the connection on such a line"
        sheet.warn("stdout", "it printed lines that are not messages", fix=fix)
    elif process:
        sheet.ok("stdout", "only messages")


def _explain(sheet: Sheet, error: TrunklineError, *, process: bool, login: str) -> None:
    """Record why the connection failed."""
    if wants_login(error):
        sheet.fail("login", f"access denied by the server: {error}", fix=f"run: {login}")
    elif isinstance(error, ServerExited):
        tail = " | ".join(error.stderr.strip().splitlines()[-_TAIL:])
        said = f"; last lines of stderr: {tail}" if tail else "; it wrote nothing to stderr"
        fix = "run the command manually to see more; often a variable, an argument or a package is missing"
        sheet.fail("spawn", f"it exited with status {error.status} before it responded{said}", fix=fix)
    elif isinstance(error, RequestTimeout):
        fix = "is it an MCP server? If it is only slow, increase --timeout or startTimeout"
        sheet.fail("handshake", f"no response in {error.seconds:g} s", fix=fix)
    elif isinstance(error, RevisionMismatch):
        fix = f"use another client or update the server; revisions supported here: {', '.join(ALL_NAMES)}"
        sheet.fail("revision", str(error), fix=fix)
    elif isinstance(error, RemoteProtocolError):
        sheet.fail("handshake", str(error), fix="this is not an MCP server, or a broken one")
    elif isinstance(error, RequestFailed):
        sheet.fail("handshake", f"it returned an error: {error}", fix="see the log of the server")
    elif isinstance(error, LinkError) and process:
        sheet.fail("spawn", str(error), fix="run the command manually to see more")
    else:
        path = isinstance(error, HttpError) and error.status in (404, 405)
        sheet.fail(
            "handshake", str(error), fix="is the path correct (often /mcp)?" if path else "is the server running?"
        )


# --- lists -----------------------------------------------------------------------------------------------------------


async def _list(sheet: Sheet, client: Client, seconds: float) -> Offering | None:
    watched = _Watched(client)
    try:
        async with asyncio.timeout(seconds):
            offering = await list_offering(cast("Client", watched))
    except TimeoutError:
        sheet.fail("tools", f"the lists did not arrive in {seconds:g} s", fix="increase --timeout")
        return None
    for part, (method, capability) in _LISTS.items():
        failure = offering.failures.get(method)
        if not supports(client.server_capabilities, capability):
            continue
        if failure is not None:
            sheet.fail(part, f"cannot be listed: {failure}", fix="see the log of the server")
            continue
        took, pages = watched.seconds.get(method, 0.0), watched.pages.get(method, 0)
        size = f"{len(getattr(offering, part))}, {pages} page{'' if pages == 1 else 's'}, {took * 1000:.0f} ms"
        if took > _SLOW_LIST:
            sheet.warn(part, size, fix="every client waits for that; the server should cache its lists")
        else:
            sheet.ok(part, size)
    return offering
