"""Checks the network path to a server at a URL: proxy, DNS, TCP, TLS, HTTP, redirects, and foreign origins.

Each step is made separately, so that the one that fails is named. The user named the URL, so any address may be
reached; everything is bounded in time and size. HTTP uses the client's own stack, so findings are what a client meets.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from trunkline.errors import ConfigError, FetchError, HttpError, TrunklineError
from trunkline.host.doctor.checks import Sheet
from trunkline.net.addresses import special_range
from trunkline.net.urls import Target, parse_target
from trunkline.protocol.limits import Limits

if TYPE_CHECKING:
    from trunkline.transports.http.client_web import Web

__all__ = ["Answer", "check_way"]

_STEP_SECONDS = 10.0
_SOON_DAYS = 14
_DAY = 86_400.0
_BODY = b'{"jsonrpc":"2.0","id":"doctor","method":"ping"}'
# One connection per request: reusing one that was just closed would fail through no fault of the server.
_HEAD: Mapping[str, str] = MappingProxyType(
    {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Connection": "close",
    }
)
_STRANGER = "http://stranger.invalid"
_CERTIFICATES = (
    (("expired",), "the operator of the server has to renew it; is the clock of this machine correct?"),
    (("not yet valid",), "is the clock of this machine correct?"),
    (("mismatch", "doesn't match", "not valid for"), "use the host name in the certificate"),
    (("self-signed", "self signed"), "pass the certificate with --ca-file, if it is yours"),
    (("local issuer", "unable to get", "unable to verify"), "the chain is incomplete, or its CA is not known "
     "here: the server has to send the intermediate certificates, or pass the CA with --ca-file"),
)  # fmt: skip


class Answer(Struct, frozen=True):
    """The response of a server to a request without a login."""

    status: int
    #: The WWW-Authenticate headers.
    challenges: tuple[str, ...] = ()


async def check_way(
    sheet: Sheet,
    url: str,
    *,
    headers: Mapping[str, str],
    ca_file: str | None = None,
    sse: bool = False,
    seconds: float = _STEP_SECONDS,
) -> Answer | None:
    """Check the network path to a URL; return the response of the server, or None if it cannot be reached.

    ``sse``: the entry is for the HTTP+SSE transport, which takes no POST at this URL.
    """
    from trunkline.transports.http.client_web import Web, WebOptions

    try:
        target = parse_target(url)
        web = Web(WebOptions(url=url, headers=headers, ca_file=ca_file), Limits(connect_seconds=seconds))
    except (FetchError, ConfigError, ValueError) as error:
        sheet.fail("url", str(error), fix="expected http:// or https://, the host, and the path (often /mcp)")
        return None
    try:
        if web.proxy is not None:
            sheet.ok("proxy", f"using {web.proxy.host}:{web.proxy.port}, set by the environment")
        elif not await _direct(sheet, target, ca_file=ca_file, seconds=seconds):
            return None
        return await _ask(sheet, web, target, headers=headers, sse=sse, seconds=seconds)
    finally:
        await web.aclose()


async def _direct(sheet: Sheet, target: Target, *, ca_file: str | None, seconds: float) -> bool:
    addresses = await _resolve(sheet, target, seconds)
    if not addresses or not await _connect(sheet, target, addresses, seconds):
        return False
    if target.scheme == "https":
        return await _shake(sheet, target, ca_file=ca_file, seconds=seconds)
    if not target.is_here:
        sheet.warn("tls", "not used: traffic can be read and changed on the way", fix="use https")
    return True


async def _resolve(sheet: Sheet, target: Target, seconds: float) -> list[str]:
    loop = asyncio.get_running_loop()
    began = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except TimeoutError:
        sheet.fail("dns", f"{target.host}: no response in {seconds:g} s", fix="is this machine online?")
        return []
    except OSError as error:
        fix = "is the name correct, and is this machine online (VPN, proxy)?"
        sheet.fail("dns", f"{target.host} cannot be resolved: {error.strerror or error}", fix=fix)
        return []
    addresses = list(dict.fromkeys(str(each[0]) for *_, each in found))
    kinds = {kind for address in addresses if (kind := special_range(address))}
    special = f" ({', '.join(sorted(kinds))})" if kinds else ""
    if not target.is_address:
        sheet.ok("dns", f"{', '.join(addresses[:4])}{special}, in {_since(began)}")
    return addresses


async def _connect(sheet: Sheet, target: Target, addresses: list[str], seconds: float) -> bool:
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
            sheet.warn("tcp", f"not reachable at {'; '.join(failures)}", fix=fix)
        else:
            sheet.ok("tcp", f"{address} port {target.port}, in {_since(began)}")
        return True
    fix = "is the server running at this port? Is there a firewall in between?"
    sheet.fail("tcp", f"port {target.port} cannot be reached: {'; '.join(failures)}", fix=fix)
    return False


async def _shake(sheet: Sheet, target: Target, *, ca_file: str | None, seconds: float) -> bool:
    try:
        context = await asyncio.to_thread(ssl.create_default_context, cafile=ca_file)
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(target.host, target.port, ssl=context)
    except ssl.SSLCertVerificationError as error:
        said = error.verify_message or str(error)
        sheet.fail("tls", f"the certificate is not trusted: {said}", fix=_certificate_fix(said))
        return False
    except TimeoutError:
        sheet.fail("tls", f"no response in {seconds:g} s", fix="does this port use TLS? If not, use http://")
        return False
    except (OSError, ValueError) as error:
        said = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        sheet.fail("tls", f"failed: {said}", fix="does this port use TLS? If not, use http://")
        return False
    session = writer.get_extra_info("ssl_object")
    certificate: dict[str, Any] = session.getpeercert() or {}
    version = session.version()
    writer.close()
    _check_expiry(sheet, certificate, version)
    return True


def _certificate_fix(said: str) -> str:
    lowered = said.lower()
    found = (fix for words, fix in _CERTIFICATES if any(word in lowered for word in words))
    return next(found, "pass the CA that signed it with --ca-file, if you trust it")


def _check_expiry(sheet: Sheet, certificate: Mapping[str, Any], version: str | None) -> None:
    until = certificate.get("notAfter")
    days = int((ssl.cert_time_to_seconds(until) - time.time()) / _DAY) if isinstance(until, str) else None
    if days is not None and days < _SOON_DAYS:
        fix = "the operator of the server has to renew it"
        sheet.warn("tls", f"{version}; the certificate expires in {days} days", fix=fix)
    else:
        lasting = "" if days is None else f"; the certificate is valid for {days} more days"
        sheet.ok("tls", f"{version}{lasting}")


# --- HTTP ------------------------------------------------------------------------------------------------------------


async def _ask(
    sheet: Sheet, web: Web, target: Target, *, headers: Mapping[str, str], sse: bool, seconds: float
) -> Answer | None:
    began, before = time.monotonic(), web.url
    try:
        async with asyncio.timeout(seconds):
            answer, kind = await _post(web, headers)
    except TimeoutError:
        sheet.fail(
            "http", f"no response in {seconds:g} s", fix="is the server busy, or is something else at this port?"
        )
        return None
    except HttpError as error:
        sheet.fail("redirect", str(error), fix="use the URL that it points to, if you trust it")
        return None
    except TrunklineError as error:
        sheet.fail("http", str(error), fix="http or https? Is the port correct?")
        return None
    if web.url != before:
        sheet.warn("redirect", f"the server has moved to {web.url.path}", fix="use that path in the URL")
    if sse and answer.status == 405:
        sheet.ok("http", f"it responds, in {_since(began)}, and takes no POST here, as expected")
    elif not _judge(sheet, answer.status, kind, took=_since(began)):
        return None
    if target.is_here or special_range(target.host) is not None:
        await _check_origin(sheet, web, headers, seconds=seconds)
    return answer


async def _post(web: Web, headers: Mapping[str, str]) -> tuple[Answer, str]:
    """Send a request that changes nothing; the body of the response is ignored."""
    response = await web.open("POST", {**_HEAD, **headers}, body=_BODY)
    challenges = tuple(response.headers.getall("WWW-Authenticate", []))
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    response.close()
    return Answer(response.status, challenges), kind


def _judge(sheet: Sheet, status: int, kind: str, *, took: str) -> bool:
    """Record what a status means; return False if going on makes no sense."""
    if status == 401:
        sheet.ok("http", f"it responds, in {took}, and requires authentication (401)")
    elif status in (403, 421):
        return _judge_refusal(sheet, status)
    elif status == 407:
        sheet.fail("http", "the proxy requires authentication (407)", fix="put user and password into HTTPS_PROXY")
        return False
    elif status == 404 and kind != "application/json":
        sheet.fail("http", "there is nothing at this path (404)", fix="is the path correct (often /mcp)?")
        return False
    elif status == 405:
        fix = 'is the path correct (often /mcp)? A server with the HTTP+SSE transport needs "type": "sse"'
        sheet.warn("http", "it takes no POST at this path (405)", fix=fix)
    elif status == 429 or status >= 500:
        what = "too many requests" if status == 429 else "the server, or a proxy in front of it, fails"
        sheet.fail("http", f"{what} ({status})", fix="try again later; if it persists, ask the operator")
        return False
    elif kind == "text/html":
        sheet.fail("http", f"there is a web page at this path ({status})", fix="is the path correct (often /mcp)?")
        return False
    else:
        sheet.ok("http", f"it responds, in {took} ({status})")
    return True


def _judge_refusal(sheet: Sheet, status: int) -> bool:
    if status == 421:
        fix = "the operator has to allow this name (trunkline: --allowed-host NAME)"
        sheet.fail("http", "it does not accept this Host name (421)", fix=fix)
        return False
    fix = "are the credentials correct? If it needs none, it may have to allow this Host name (--allowed-host NAME)"
    sheet.warn("http", "access denied (403): for these credentials, or for this Host name", fix=fix)
    return True


async def _check_origin(sheet: Sheet, web: Web, headers: Mapping[str, str], *, seconds: float) -> None:
    """Check whether any web page could use a server on this machine or network through a browser."""
    try:
        async with asyncio.timeout(seconds):
            answer, _ = await _post(web, {**headers, "Origin": _STRANGER})
    except (TimeoutError, TrunklineError):
        sheet.skip("origin", "no response")
        return
    if answer.status in (401, 403, 421):
        sheet.ok("origin", "requests from foreign web pages are rejected")
    else:
        fix = "the operator has to check Origin; until then any web page you visit may be able to use the server"
        sheet.warn("origin", f"a request with a foreign Origin is accepted ({answer.status})", fix=fix)


def _reason(error: OSError) -> str:
    # An event loop replaces the text of the system with its own.
    known = error.errno is not None and error.errno > 0 and os.strerror(error.errno)
    return known or error.strerror or str(error)


def _since(began: float) -> str:
    return f"{(time.monotonic() - began) * 1000:.0f} ms"
