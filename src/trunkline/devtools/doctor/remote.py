"""Checks a server at a URL: proxy, DNS, TCP, TLS, HTTP, redirects, foreign origins, OAuth metadata, login.

Each step is made separately, so that the one that fails is named. The user named the URL, so any address may be
reached; everything is bounded in time and size. HTTP goes through the client's own stack, so the findings are what a
client would meet. No token is requested and no browser is opened.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from trunkline.auth.client import guarded_fetch
from trunkline.auth.discovery import (
    ResourceMetadata,
    discover_server,
    find_server,
    parse_resource_metadata,
    resource_metadata_urls,
)
from trunkline.auth.driver import FetchFunction, drive
from trunkline.auth.oauth import OAuth, canonical_url, may_carry_secrets, origin
from trunkline.auth.steps import Fetch
from trunkline.auth.www_authenticate import TokenChallenge, parse_token_challenge
from trunkline.devtools.doctor.checks import CheckRecorder
from trunkline.errors import AuthError, ConfigError, FetchError, HttpError, TrunklineError
from trunkline.host.config.model import ServerEntry
from trunkline.host.upstreams.supervision.clients import StoredLogins, has_authorization_header
from trunkline.net.addresses import special_range
from trunkline.net.urls import ParsedURL, parse_url
from trunkline.protocol.limits import Limits

__all__ = ["ProbeResponse", "check_login", "check_network", "login_command"]

if TYPE_CHECKING:
    from trunkline.transports.http.client.http_client import HttpClient


_STEP_SECONDS = 10.0  # Each step is one request that a sound server answers in milliseconds.
_SOON_DAYS = 14  # Certificates that renew by themselves do so 30 days before their end.
_DAY = 86_400.0  # In seconds.
_BODY = b'{"jsonrpc":"2.0","id":"doctor","method":"ping"}'
# One connection per request: reusing one that was just closed would fail through no fault of the server.
_HEAD: Mapping[str, str] = MappingProxyType(
    {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Connection": "close",
    }
)
_FOREIGN_ORIGIN = "http://stranger.invalid"
_CERTIFICATES = (
    (("expired",), "the operator of the server has to renew it; is the clock of this machine correct?"),
    (("not yet valid",), "is the clock of this machine correct?"),
    (("mismatch", "doesn't match", "not valid for"), "use the host name in the certificate"),
    (("self-signed", "self signed"), "pass the certificate with --ca-file, if it is yours"),
    (("local issuer", "unable to get", "unable to verify"), "the chain is incomplete, or its CA is not known "
     "here: the server has to send the intermediate certificates, or pass the CA with --ca-file"),
)  # fmt: skip


class ProbeResponse(Struct, frozen=True):
    """The response of a server to a request without a login."""

    status: int
    #: The WWW-Authenticate headers.
    challenges: tuple[str, ...] = ()


async def check_network(
    recorder: CheckRecorder,
    url: str,
    *,
    headers: Mapping[str, str],
    ca_file: str | None = None,
    sse: bool = False,
    seconds: float = _STEP_SECONDS,
) -> ProbeResponse | None:
    """Check the network path to a URL; return the response of the server, or None if it cannot be reached.

    ``sse``: the entry is for the HTTP+SSE transport, which takes no POST at this URL.
    """
    from trunkline.transports.http.client.http_client import HttpClient, HttpClientOptions

    try:
        target = parse_url(url)
        web = HttpClient(HttpClientOptions(url=url, headers=headers, ca_file=ca_file), Limits(connect_seconds=seconds))
    except (FetchError, ConfigError, ValueError) as error:
        recorder.fail("url", str(error), fix="expected http:// or https://, the host, and the path (often /mcp)")
        return None
    try:
        if web.proxy is not None:
            recorder.ok("proxy", f"using {web.proxy.host}:{web.proxy.port}, set by the environment")
        elif not await _direct(recorder, target, ca_file=ca_file, seconds=seconds):
            return None
        return await _check_http(recorder, web, target, headers=headers, sse=sse, seconds=seconds)
    finally:
        await web.aclose()


async def _direct(recorder: CheckRecorder, target: ParsedURL, *, ca_file: str | None, seconds: float) -> bool:
    addresses = await _check_dns(recorder, target, seconds)
    if not addresses or not await _check_tcp(recorder, target, addresses, seconds):
        return False
    if target.scheme == "https":
        return await _check_tls(recorder, target, ca_file=ca_file, seconds=seconds)
    if not target.is_local:
        recorder.warn("tls", "not used: traffic can be read and changed on the way", fix="use https")
    return True


async def _check_dns(recorder: CheckRecorder, target: ParsedURL, seconds: float) -> list[str]:
    loop = asyncio.get_running_loop()
    began = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except TimeoutError:
        recorder.fail("dns", f"{target.host}: no response in {seconds:g} s", fix="is this machine online?")
        return []
    except OSError as error:
        fix = "is the name correct, and is this machine online (VPN, proxy)?"
        recorder.fail("dns", f"{target.host} cannot be resolved: {error.strerror or error}", fix=fix)
        return []
    addresses = list(dict.fromkeys(str(each[0]) for *_, each in found))
    kinds = {kind for address in addresses if (kind := special_range(address))}
    special = f" ({', '.join(sorted(kinds))})" if kinds else ""
    if not target.is_address:
        recorder.ok("dns", f"{', '.join(addresses[:4])}{special}, in {_since(began)}")
    return addresses


async def _check_tcp(recorder: CheckRecorder, target: ParsedURL, addresses: list[str], seconds: float) -> bool:
    """Connect to the first address that accepts; record which ones did not."""
    failures: list[str] = []
    for address in addresses[:4]:
        began = time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                _, writer = await asyncio.open_connection(address, target.port)
        except TimeoutError:
            failures.append(f"{address}: no response in {seconds:g} s")
            continue
        except OSError as error:
            failures.append(f"{address}: {_reason(error)}")
            continue
        writer.close()
        if failures:
            fix = "clients that try that address first are slow or fail: remove it from DNS, or serve it"
            recorder.warn("tcp", f"not reachable at {'; '.join(failures)}", fix=fix)
        else:
            recorder.ok("tcp", f"{address} port {target.port}, in {_since(began)}")
        return True
    fix = "is the server running at this port? Is there a firewall in between?"
    recorder.fail("tcp", f"port {target.port} cannot be reached: {'; '.join(failures)}", fix=fix)
    return False


async def _check_tls(recorder: CheckRecorder, target: ParsedURL, *, ca_file: str | None, seconds: float) -> bool:
    try:
        context = await asyncio.to_thread(ssl.create_default_context, cafile=ca_file)
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(target.host, target.port, ssl=context)
    except ssl.SSLCertVerificationError as error:
        said = error.verify_message or str(error)
        recorder.fail("tls", f"the certificate is not trusted: {said}", fix=_certificate_fix(said))
        return False
    except TimeoutError:
        recorder.fail("tls", f"no response in {seconds:g} s", fix="does this port use TLS? If not, use http://")
        return False
    except (OSError, ValueError) as error:
        said = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        recorder.fail("tls", f"failed: {said}", fix="does this port use TLS? If not, use http://")
        return False
    session = writer.get_extra_info("ssl_object")
    certificate: dict[str, Any] = session.getpeercert() or {}
    version = session.version()
    writer.close()
    _check_expiry(recorder, certificate, version)
    return True


def _certificate_fix(said: str) -> str:
    lowered = said.lower()
    found = (fix for words, fix in _CERTIFICATES if any(word in lowered for word in words))
    return next(found, "pass the CA that signed it with --ca-file, if you trust it")


def _check_expiry(recorder: CheckRecorder, certificate: Mapping[str, Any], version: str | None) -> None:
    until = certificate.get("notAfter")
    days = int((ssl.cert_time_to_seconds(until) - time.time()) / _DAY) if isinstance(until, str) else None
    if days is not None and days < _SOON_DAYS:
        fix = "the operator of the server has to renew it"
        recorder.warn("tls", f"{version}; the certificate expires in {days} days", fix=fix)
    else:
        lasting = "" if days is None else f"; the certificate is valid for {days} more days"
        recorder.ok("tls", f"{version}{lasting}")


# --- HTTP ------------------------------------------------------------------------------------------------------------


async def _check_http(
    recorder: CheckRecorder,
    web: HttpClient,
    target: ParsedURL,
    *,
    headers: Mapping[str, str],
    sse: bool,
    seconds: float,
) -> ProbeResponse | None:
    began, before = time.monotonic(), web.url
    try:
        async with asyncio.timeout(seconds):
            answer, kind = await _post(web, headers)
    except TimeoutError:
        recorder.fail(
            "http", f"no response in {seconds:g} s", fix="is the server busy, or is something else at this port?"
        )
        return None
    except HttpError as error:
        recorder.fail("redirect", str(error), fix="use the URL that it points to, if you trust it")
        return None
    except TrunklineError as error:
        recorder.fail("http", str(error), fix="http or https? Is the port correct?")
        return None
    if web.url != before:
        recorder.warn("redirect", f"the server has moved to {web.url.path}", fix="use that path in the URL")
    if sse and answer.status == 405:
        recorder.ok("http", f"it responds, in {_since(began)}, and takes no POST here, as expected")
    elif not _check_status(recorder, answer.status, kind, took=_since(began)):
        return None
    if target.is_local or special_range(target.host) is not None:
        await _check_origin(recorder, web, headers, seconds=seconds)
    return answer


async def _post(web: HttpClient, headers: Mapping[str, str]) -> tuple[ProbeResponse, str]:
    """Send a request that changes nothing; the body of the response is ignored."""
    response = await web.open("POST", {**_HEAD, **headers}, body=_BODY)
    challenges = tuple(response.headers.getall("WWW-Authenticate", []))
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    response.close()
    return ProbeResponse(response.status, challenges), kind


def _check_status(recorder: CheckRecorder, status: int, kind: str, *, took: str) -> bool:
    """Record what a status means; return False if going on makes no sense."""
    if status == 401:
        recorder.ok("http", f"it responds, in {took}, and requires authentication (401)")
    elif status in (403, 421):
        return _check_forbidden(recorder, status)
    elif status == 407:
        recorder.fail("http", "the proxy requires authentication (407)", fix="put user and password into HTTPS_PROXY")
        return False
    elif status == 404 and kind != "application/json":
        recorder.fail("http", "there is nothing at this path (404)", fix="is the path correct (often /mcp)?")
        return False
    elif status == 405:
        fix = 'is the path correct (often /mcp)? A server with the HTTP+SSE transport needs "type": "sse"'
        recorder.warn("http", "it takes no POST at this path (405)", fix=fix)
    elif status == 429 or status >= 500:
        what = "too many requests" if status == 429 else "the server, or a proxy in front of it, fails"
        recorder.fail("http", f"{what} ({status})", fix="try again later; if it persists, ask the operator")
        return False
    elif kind == "text/html":
        recorder.fail("http", f"there is a web page at this path ({status})", fix="is the path correct (often /mcp)?")
        return False
    else:
        recorder.ok("http", f"it responds, in {took} ({status})")
    return True


def _check_forbidden(recorder: CheckRecorder, status: int) -> bool:
    if status == 421:
        fix = "the operator has to allow this name (trunkline: --allowed-host NAME)"
        recorder.fail("http", "it does not accept this Host name (421)", fix=fix)
        return False
    fix = "are the credentials correct? If it needs none, it may have to allow this Host name (--allowed-host NAME)"
    recorder.warn("http", "access denied (403): for these credentials, or for this Host name", fix=fix)
    return True


async def _check_origin(
    recorder: CheckRecorder, web: HttpClient, headers: Mapping[str, str], *, seconds: float
) -> None:
    """Check whether any web page could use a server on this machine or network through a browser."""
    try:
        async with asyncio.timeout(seconds):
            answer, _ = await _post(web, {**headers, "Origin": _FOREIGN_ORIGIN})
    except (TimeoutError, TrunklineError):
        recorder.skip("origin", "no response")
        return
    if answer.status in (401, 403, 421):
        recorder.ok("origin", "requests from foreign web pages are rejected")
    else:
        fix = "the operator has to check Origin; until then any web page you visit may be able to use the server"
        recorder.warn("origin", f"a request with a foreign Origin is accepted ({answer.status})", fix=fix)


def _reason(error: OSError) -> str:
    # An event loop replaces the text of the system with its own.
    known = error.errno is not None and error.errno > 0 and os.strerror(error.errno)
    return known or error.strerror or str(error)


def _since(began: float) -> str:
    return f"{(time.monotonic() - began) * 1000:.0f} ms"


def login_command(entry: ServerEntry) -> str:
    """Return the command that logs in to a server."""
    named = entry.source.file is not None
    return f"trunkline auth login {shlex.quote(entry.name if named else entry.url or '')}"


async def check_login(
    recorder: CheckRecorder,
    entry: ServerEntry,
    answer: ProbeResponse,
    *,
    logins: StoredLogins,
    ca_file: str | None = None,
) -> bool:
    """Check metadata and logins, if the server requires one; return False if going on makes no sense."""
    assert entry.url is not None
    if answer.status not in (401, 403):
        recorder.ok(
            "login",
            "not required" if not has_authorization_header(entry) else "a header of the entry has the credentials",
        )
        return True
    if answer.status == 403 and not answer.challenges:
        return True
    challenge = parse_token_challenge(answer.challenges)
    if has_authorization_header(entry):
        _report_rejected(recorder, entry, answer.status, challenge)
        return False
    fetch = guarded_fetch(entry.url, OAuth(), ca_file=ca_file)
    if await _check_documents(recorder, entry.url, challenge, fetch) or await logins.stored(entry):
        return await _check_kept(recorder, entry, logins)
    recorder.fail(
        "login",
        "the server requires a token, and names no login",
        fix=f"{_token_option(entry)}; if it has a login, run: {login_command(entry)}",
    )
    return False


def _report_rejected(recorder: CheckRecorder, entry: ServerEntry, status: int, challenge: TokenChallenge) -> None:
    """Report that a server rejects the credentials of the command line, or of the entry."""
    value = next(value for name, value in entry.headers.items() if name.lower() == "authorization")
    credentials = "token" if value[:7].lower() == "bearer " else "Authorization header"
    option = "--token" if credentials == "token" else "--header"
    fix = f"pass another one with {option}" if entry.source.file is None else "replace it in the entry"
    if challenge.resource_metadata is not None:
        fix += f"; to log in instead, leave it out and run: {login_command(entry)}"
    why = f" ({challenge.error})" if challenge.error else ""
    recorder.fail("login", f"the {credentials} is rejected ({status}){why}", fix=fix)


def _token_option(entry: ServerEntry) -> str:
    """Return how a user passes the token of a server."""
    if entry.source.file is None:
        return "pass its token with --token TOKEN or --token @FILE"
    return 'add its token to the entry: "headers": {"Authorization": "Bearer ${secret:NAME}"}'


# --- documents -------------------------------------------------------------------------------------------------------


async def _check_documents(recorder: CheckRecorder, url: str, challenge: TokenChallenge, fetch: FetchFunction) -> bool:
    """Check the documents that name a login; return False if there are none."""
    if not may_carry_secrets(url):
        fix = "use https; over http a token could be intercepted"
        recorder.fail("resource-metadata", "no login over plain http, except on this machine", fix=fix)
        return True
    try:
        said = await _resource(url, challenge, fetch)
    except (AuthError, FetchError) as error:
        fix = "the operator of the server has to correct it"
        recorder.fail("resource-metadata", str(error), fix=fix)
        return True
    if said is None:
        if await _has_no_server(origin(url), fetch):
            recorder.skip("resource-metadata", "none is published: the server names no login")
            return False
        fix = "required since the revision of June 2025; the server is assumed to be its own authorization server"
        recorder.warn("resource-metadata", f"not found at {' or '.join(resource_metadata_urls(url))}", fix=fix)
    else:
        recorder.ok("resource-metadata", f"names {', '.join(said.authorization_servers[:3])}")
    await _check_server(recorder, origin(url) if said is None else said.authorization_servers[0], fetch)
    return True


async def _has_no_server(issuer: str, fetch: FetchFunction) -> bool:
    try:
        return await drive(find_server(issuer), fetch=fetch, options=OAuth()) is None
    except AuthError:
        # What is there is invalid, which the check of the authorization server reports.
        return False


async def _resource(url: str, challenge: TokenChallenge, fetch: FetchFunction) -> ResourceMetadata | None:
    places: Sequence[str] = (
        resource_metadata_urls(url) if challenge.resource_metadata is None else [challenge.resource_metadata]
    )
    for place in places:
        answer = await fetch(Fetch("GET", place, {"Accept": "application/json"}))
        if answer.status == 200 and not answer.headers.get("content-type", "").startswith("text/html"):
            return parse_resource_metadata(answer, url=place, server=canonical_url(url))
        if challenge.resource_metadata is not None:
            raise AuthError(f"The server names {place} for its metadata, but the response there is {answer.status}")
    return None


async def _check_server(recorder: CheckRecorder, issuer: str, fetch: FetchFunction) -> None:
    try:
        said = await drive(discover_server(issuer), fetch=fetch, options=OAuth())
    except AuthError as error:
        fix = "the operator of the authorization server has to correct it"
        recorder.fail("authorization-server", str(error), fix=fix)
        return
    ways = ["client ID metadata documents"] if said.client_id_metadata_document_supported else []
    ways += ["dynamic registration"] if said.registration_endpoint else []
    if ways:
        recorder.ok("authorization-server", f"{issuer} accepts new clients by {' and by '.join(ways)}")
    else:
        fix = "register a client there manually, and log in with --client-id"
        recorder.warn("authorization-server", f"{issuer} accepts only registered clients", fix=fix)


# --- logins ----------------------------------------------------------------------------------------------------------


async def _check_kept(recorder: CheckRecorder, entry: ServerEntry, logins: StoredLogins) -> bool:
    kept = await logins.stored(entry)
    fix = f"run: {login_command(entry)}"
    if not kept:
        recorder.fail("login", "the server requires a login, and none is stored", fix=fix)
        return False
    login = kept[-1]
    late = login.expires_at is not None and login.expires_at <= time.time()
    if late and not login.renewable:
        recorder.fail("login", f"the stored login from {login.issuer} has expired and cannot be renewed", fix=fix)
        return False
    when = "it is renewed on next use" if late else _lasting(login.expires_at)
    recorder.ok("login", f"stored, from {login.issuer}; {when}")
    return True


def _lasting(expires_at: float | None) -> str:
    if expires_at is None:
        return "it does not expire"
    return f"it is valid for {max(0, int((expires_at - time.time()) / 60))} more minutes"
