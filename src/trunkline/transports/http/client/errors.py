"""Exceptions for failed HTTP requests, with messages that say what to do.

There are two sources: a response with an error status, and the network itself. Both name the server by its address
alone, since the query of a URL may hold a secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

import aiohttp
from yarl import URL

from trunkline.errors import AuthRequired, ConnectionLost, HttpError, RemoteProtocolError, TrunklineError

__all__ = ["NETWORK_ERRORS", "network_error", "printable_url", "status_error"]

#: The exceptions of the network, TLS and the HTTP parser.
NETWORK_ERRORS = (aiohttp.ClientError, OSError, TimeoutError)

# How many characters of a body are shown.
_SHOWN = 200

_FIXES: Mapping[int, str] = MappingProxyType(
    {
        400: "it did not accept the request",
        401: "it needs authorization: set auth= (--token) to a token, or headers= (--header) to what it requires",
        403: "it refuses access: to these credentials, or because of the Host or Origin it was called with",
        404: "is the path of the URL right (often /mcp)?",
        405: "there is something else at this URL; is its path right (often /mcp)?",
        406: "it does not offer what MCP servers offer; is the path of the URL right (often /mcp)?",
        407: "the proxy needs authorization: give proxy= with user and password",
        413: "the message is larger than it accepts",
        415: "it does not accept JSON; is the path of the URL right (often /mcp)?",
        421: "it does not know the host name it was called by",
        429: "it receives too many requests",
        502: "the server behind it cannot be reached",
        503: "it is not available now",
        504: "the server behind it did not answer in time",
    }
)


def printable_url(url: URL) -> str:
    """Return a URL for messages: without query and user."""
    return str(url.origin().with_path(url.raw_path, encoded=True))


def status_error(response: aiohttp.ClientResponse, method: str, *, body: bytes = b"", advice: str = "") -> HttpError:
    """Return the exception for a response with an error status."""
    status, reason, headers = response.status, response.reason or "", response.headers
    text = _text(body)
    challenge, retry_after = headers.get("WWW-Authenticate"), headers.get("Retry-After")
    advice = advice or _FIXES.get(status, "")
    message = f"{printable_url(response.url)} answered {method} with {status} {reason}".rstrip()
    if advice:
        message += f": {advice}"
    if retry_after is not None and status in (429, 503):
        message += f"; retry after: {retry_after[:40]}"
    if text and "<" not in text[:1]:
        message += f' (it said "{text}")'
    kind = AuthRequired if status == 401 or (status == 403 and challenge is not None) else HttpError
    return kind(message, status=status, reason=reason, body=text, challenge=challenge, retry_after=retry_after)


def _text(body: bytes) -> str:
    text = " ".join(body[: 4 * _SHOWN].decode(errors="replace").split())
    text = "".join(char if char.isprintable() else "�" for char in text)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def network_error(error: BaseException, url: URL, *, proxy: URL | None = None) -> TrunklineError:
    """Return the exception for an error of the network."""
    where = f"{url.host}:{url.port}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", None) or str(error.certificate_error)
        return ConnectionLost(
            f"The certificate of {where} is not trusted: {why}. If it comes from an authority of your own, give "
            "ca_file= (--ca-file) with that authority's certificate."
        )
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return ConnectionLost(
            f"TLS with {where} failed: {error.os_error}. Does the server speak https there? If it has a certificate "
            "of your own authority, give ca_file= (--ca-file)."
        )
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return ConnectionLost(f"The proxy {_proxy(proxy)} did not connect to {where}: {error.status} {error.message}")
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return ConnectionLost(f"The proxy {_proxy(proxy)} cannot be reached: {_reason(error.os_error)}")
    if isinstance(error, aiohttp.ClientConnectorError):
        return ConnectionLost(f"Cannot connect to {where}: {_reason(error.os_error)}")
    if isinstance(error, aiohttp.ClientResponseError):
        return RemoteProtocolError(f"{where} does not speak HTTP as it should: {error.message}")
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return ConnectionLost(f"{where} closed the connection before it answered")
    if isinstance(error, TimeoutError):
        return ConnectionLost(f"{where} took too long: {str(error) or 'no connection'}")
    return ConnectionLost(f"The connection to {where} broke: {str(error) or type(error).__name__}")


def _reason(error: OSError) -> str:
    # An event loop replaces the system's words by its own; the number is plain and unambiguous.
    known = error.errno is not None and error.errno > 0 and os.strerror(error.errno)
    return known or error.strerror or str(error) or type(error).__name__


def _proxy(proxy: URL | None) -> str:
    return "in between" if proxy is None else f"{proxy.host}:{proxy.port}"
