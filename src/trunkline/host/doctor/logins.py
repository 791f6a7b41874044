"""Checks the authorization of a server at a URL: its metadata, its authorization server, and the stored login.

No token is requested and no browser is opened. Documents are fetched as a login would fetch them: bounded, and from
this machine or its network only if the server itself is there.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence

from trunkline.auth.addresses import canonical, may_carry_secrets, origin
from trunkline.auth.client import guarded_fetch
from trunkline.auth.demands import Demand, read_demand
from trunkline.auth.discovery import discover_server
from trunkline.auth.drive import Fetching, drive
from trunkline.auth.metadata import ResourceMetadata, read_resource, resource_urls
from trunkline.auth.oauth import OAuth
from trunkline.auth.steps import Fetch
from trunkline.errors import AuthError, FetchError
from trunkline.host.doctor.checks import Sheet
from trunkline.host.doctor.network import Answer
from trunkline.host.entries import ServerEntry
from trunkline.host.supervision.clients import Logins, says_who_asks

__all__ = ["check_login", "login_command"]


def login_command(entry: ServerEntry) -> str:
    """Return the command that logs in to a server."""
    named = entry.source.file is not None
    return f"trunkline auth login {shlex.quote(entry.name if named else entry.url or '')}"


async def check_login(
    sheet: Sheet, entry: ServerEntry, answer: Answer, *, logins: Logins, ca_file: str | None = None
) -> bool:
    """Check metadata and logins, if the server requires one; return False if going on makes no sense."""
    assert entry.url is not None
    if answer.status not in (401, 403):
        sheet.ok("login", "not required" if not says_who_asks(entry) else "a header of the entry has the credentials")
        return True
    if answer.status == 403 and not answer.challenges:
        return True
    demand = read_demand(answer.challenges)
    if says_who_asks(entry):
        why = f" ({demand.error})" if demand.error else ""
        fix = f"use another token, or remove the header and run: {login_command(entry)}"
        sheet.fail("login", f"the Authorization header is rejected ({answer.status}){why}", fix=fix)
        return False
    await _check_documents(sheet, entry.url, demand, guarded_fetch(entry.url, OAuth(), ca_file=ca_file))
    return await _check_kept(sheet, entry, logins)


# --- documents -------------------------------------------------------------------------------------------------------


async def _check_documents(sheet: Sheet, url: str, demand: Demand, fetch: Fetching) -> None:
    if not may_carry_secrets(url):
        fix = "use https; over http a token could be intercepted"
        sheet.fail("resource-metadata", "no login over plain http, except on this machine", fix=fix)
        return
    try:
        said = await _resource(url, demand, fetch)
    except (AuthError, FetchError) as error:
        fix = "the operator of the server has to correct it"
        sheet.fail("resource-metadata", str(error), fix=fix)
        return
    if said is None:
        fix = "required since the revision of June 2025; the server is assumed to be its own authorization server"
        sheet.warn("resource-metadata", f"not found at {' or '.join(resource_urls(url))}", fix=fix)
    else:
        sheet.ok("resource-metadata", f"names {', '.join(said.authorization_servers[:3])}")
    await _check_server(sheet, origin(url) if said is None else said.authorization_servers[0], fetch)


async def _resource(url: str, demand: Demand, fetch: Fetching) -> ResourceMetadata | None:
    places: Sequence[str] = resource_urls(url) if demand.resource_metadata is None else [demand.resource_metadata]
    for place in places:
        answer = await fetch(Fetch("GET", place, {"Accept": "application/json"}))
        if answer.status == 200 and not answer.headers.get("content-type", "").startswith("text/html"):
            return read_resource(answer, url=place, server=canonical(url))
        if demand.resource_metadata is not None:
            raise AuthError(f"The server names {place} for its metadata, but the response there is {answer.status}")
    return None


async def _check_server(sheet: Sheet, issuer: str, fetch: Fetching) -> None:
    try:
        said = await drive(discover_server(issuer), fetch=fetch, options=OAuth())
    except AuthError as error:
        fix = "the operator of the authorization server has to correct it"
        sheet.fail("authorization-server", str(error), fix=fix)
        return
    ways = ["client ID metadata documents"] if said.client_id_metadata_document_supported else []
    ways += ["dynamic registration"] if said.registration_endpoint else []
    if ways:
        sheet.ok("authorization-server", f"{issuer} accepts new clients by {' and by '.join(ways)}")
    else:
        fix = "register a client there manually, and log in with --client-id"
        sheet.warn("authorization-server", f"{issuer} accepts only registered clients", fix=fix)


# --- logins ----------------------------------------------------------------------------------------------------------


async def _check_kept(sheet: Sheet, entry: ServerEntry, logins: Logins) -> bool:
    kept = await logins.kept(entry)
    fix = f"run: {login_command(entry)}"
    if not kept:
        sheet.fail("login", "the server requires a login, and none is stored", fix=fix)
        return False
    login = kept[-1]
    late = login.expires_at is not None and login.expires_at <= time.time()
    if late and not login.renewable:
        sheet.fail("login", f"the stored login from {login.issuer} has expired and cannot be renewed", fix=fix)
        return False
    when = "it is renewed on next use" if late else _lasting(login.expires_at)
    sheet.ok("login", f"stored, from {login.issuer}; {when}")
    return True


def _lasting(expires_at: float | None) -> str:
    if expires_at is None:
        return "it does not expire"
    return f"it is valid for {max(0, int((expires_at - time.time()) / 60))} more minutes"
