"""Examines one server: runs all checks in order, and stops where going on makes no sense.

Approvals, logins and secrets are passed in by the caller. A server that is not approved is neither started nor
contacted, and none of its secrets is looked up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from trunkline.errors import AuthError, ConfigError
from trunkline.host.config.records import Provenance
from trunkline.host.doctor.checks import Check, Diagnosis, Sheet
from trunkline.host.doctor.linting import lint, tokens_of
from trunkline.host.doctor.meeting import meet
from trunkline.host.doctor.preparing import (
    check_approval,
    check_entry,
    check_program,
    check_sandboxes,
    fill_secrets,
)
from trunkline.host.entries import ServerEntry
from trunkline.host.secrecy.filling import Read
from trunkline.host.supervision.clients import Logins, make_client, start_seconds
from trunkline.host.trust.book import TrustBook

__all__ = ["Means", "examine", "examine_machine"]

_STEP_SECONDS = 10.0
_LIST_SECONDS = 30.0
_NOTHING = Provenance()


class Means(Struct, frozen=True, kw_only=True):
    """What the checks may use."""

    book: TrustBook
    logins: Logins
    #: Looks up a secret of the user.
    secret: Read
    #: Seconds for each step; None for the defaults.
    seconds: float | None = None
    ca_file: str | None = None
    #: Additional options for the client.
    options: Mapping[str, Any] = {}


async def examine(entry: ServerEntry, means: Means, *, written: Provenance = _NOTHING) -> Diagnosis:
    """Run all checks on a server."""
    sheet = Sheet(entry.redact)
    tokens = await _examined(sheet, _timed(entry, means), means, written)
    return Diagnosis(
        name=entry.name,
        # A broken entry may have no command; a valid one without command and URL is a server object in this process.
        target=entry.shown if entry.problem is None or entry.command or entry.url else "(no command or URL)",
        source=str(entry.source) if entry.source.file else None,
        checks=sheet.checks,
        tokens=tokens,
    )


async def examine_machine() -> tuple[Check, ...]:
    """Run the checks on this machine, which concern all servers."""
    from trunkline.host.sandbox.machine import capabilities

    sheet = Sheet()
    check_sandboxes(sheet, await asyncio.to_thread(capabilities))
    return sheet.checks


def _timed(entry: ServerEntry, means: Means) -> ServerEntry:
    if means.seconds is None:
        return entry
    settings = replace(entry.settings, start_timeout=means.seconds, timeout=means.seconds)
    return replace(entry, settings=settings)


async def _examined(sheet: Sheet, entry: ServerEntry, means: Means, written: Provenance) -> int | None:
    if not check_entry(sheet, entry, written) or not await check_approval(sheet, entry, means.book):
        sheet.skip("handshake", "not tried: the server was not started")
        return None
    filled = await fill_secrets(sheet, entry, means.secret)
    if filled is None:
        sheet.skip("handshake", "not tried: the server was not started")
        return None
    sheet.hide = filled.redact
    if filled.command is not None and not check_program(sheet, filled, seconds=start_seconds(filled)):
        sheet.skip("handshake", "not tried: the server cannot be started")
        return None
    if filled.url is not None and not await _reached(sheet, filled, means):
        sheet.skip("handshake", "not tried: the server cannot be reached or used")
        return None
    return await _met(sheet, filled, means)


async def _reached(sheet: Sheet, entry: ServerEntry, means: Means) -> bool:
    from trunkline.host.doctor.logins import check_login
    from trunkline.host.doctor.network import check_way

    assert entry.url is not None
    seconds = _STEP_SECONDS if means.seconds is None else means.seconds
    answer = await check_way(
        sheet,
        entry.url,
        headers=entry.headers,
        ca_file=means.ca_file,
        sse=entry.type == "sse",
        seconds=seconds,
    )
    if answer is None:
        return False
    return await check_login(sheet, entry, answer, logins=means.logins, ca_file=means.ca_file)


async def _met(sheet: Sheet, entry: ServerEntry, means: Means) -> int | None:
    options, login = dict(means.options), ""
    try:
        auth = None
        if entry.url is not None:
            from trunkline.host.doctor.logins import login_command

            login = login_command(entry)
            auth = await means.logins.find(entry)
            options |= {"ca_file": means.ca_file}
        client = make_client(entry, options, auth=auth, on_remark=lambda remark: _remark(sheet, remark))
    except ConfigError as error:
        sheet.fail("config", str(error))
        return None
    except AuthError as error:
        sheet.fail("login", str(error), fix=f"run: {login}")
        return None
    seconds = _LIST_SECONDS if means.seconds is None else means.seconds
    offering = await meet(sheet, client, process=entry.command is not None, seconds=seconds, login=login)
    if offering is None:
        return None
    lint(sheet, offering)
    return tokens_of(offering)


def _remark(sheet: Sheet, remark: str | None) -> None:
    """Record the result of sandboxing the server."""
    if remark is None:
        sheet.ok("sandbox", "runs in the sandbox that its entry asks for")
    else:
        sheet.warn("sandbox", remark)
