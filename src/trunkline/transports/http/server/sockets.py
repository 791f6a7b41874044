"""Sockets and certificates of an HTTP server, checked before anything is started.

It knows addresses and files, no HTTP. Every problem with them (a port in use, a name that does not resolve, a key that
belongs to another certificate) is a `ConfigError` of one sentence that names the fix.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from collections.abc import Sequence

from trunkline.errors import ConfigError

__all__ = ["bind", "check_certificate", "close_all", "url_of"]

#: How many ports are tried when the system chooses one that must be free for several addresses.
ATTEMPTS = 8

_Address = tuple[int, tuple[str, int] | tuple[str, int, int, int]]


async def bind(host: str, port: int, *, backlog: int, unacknowledged_seconds: float) -> list[socket.socket]:
    """Listen on every address of a host; with port 0 the system chooses one port for all of them.

    Where it can, the system drops a connection whose client acknowledges nothing for ``unacknowledged_seconds``: a
    client that vanished does not hold an event stream open.

    Raises:
        ConfigError: the port is in use or not permitted, or the host is not one of this machine.
    """
    if not 0 <= port <= 65535:
        raise ConfigError(f"Invalid port {port}: use 0 to 65535 (0 picks a free port).")
    addresses = await _resolve(host, port)
    for attempt in range(ATTEMPTS):
        try:
            sockets = _bind_all(addresses, port, host=host)
            _listen(sockets, backlog, unacknowledged_seconds)
        except OSError as exc:
            if port == 0 and exc.errno == errno.EADDRINUSE and attempt < ATTEMPTS - 1:
                continue
            raise ConfigError(_bind_error(exc, host, port)) from exc
        break
    return sockets


async def _resolve(host: str, port: int) -> list[_Address]:
    if host == "localhost":
        # RFC 6761, 6.3: always the loopback addresses. Browsers use both, whatever the hosts file says, so another
        # program must not be able to listen on the one that the file leaves out.
        return [(socket.AF_INET, ("127.0.0.1", port)), (socket.AF_INET6, ("::1", port, 0, 0))]
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as exc:
        raise ConfigError(
            f'The host "{host}" is not known here; give an address of this machine, e.g. 127.0.0.1 or 0.0.0.0.'
        ) from exc
    wanted = (socket.AF_INET, socket.AF_INET6)
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found if family in wanted))  # type: ignore[misc]


def _bind_all(addresses: Sequence[_Address], port: int, *, host: str) -> list[socket.socket]:
    """Bind each address; one that this machine does not have is skipped if another can be bound."""
    bound: list[socket.socket] = []
    absent: OSError | None = None
    try:
        for family, address in addresses:
            try:
                bound.append(_bind_one(family, (address[0], port, *address[2:]), dual=host == "::"))
            except OSError as exc:
                if exc.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                absent = exc
            else:
                port = bound[-1].getsockname()[1]
        if absent is not None and not bound:
            raise absent
    except OSError:
        close_all(bound)
        raise
    return bound


def _bind_one(family: int, address: tuple[str | int, ...], *, dual: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":
            # On Windows it would let another program take the port over.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual else 1)
        sock.setblocking(False)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def _listen(sockets: Sequence[socket.socket], backlog: int, unacknowledged_seconds: float) -> None:
    # Right after binding: two programs may both bind a port that neither listens on yet.
    try:
        for sock in sockets:
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                # Accepted connections inherit it.
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(unacknowledged_seconds * 1000))
            sock.listen(backlog)
    except OSError:
        close_all(sockets)
        raise


def close_all(sockets: Sequence[socket.socket]) -> None:
    """Close sockets; those already closed are ignored."""
    for sock in sockets:
        sock.close()


def _bind_error(exc: OSError, host: str, port: int) -> str:
    match exc.errno:
        case errno.EADDRINUSE:
            other = port + 1 if port < 65535 else 0
            return (
                f"Port {port} on {host} is in use by another program; "
                f"give another one, e.g. --http {other} or port={other} (0: any free one)."
            )
        case errno.EACCES | errno.EPERM:
            return f"Port {port} on {host} needs more rights than this program has; give one above 1023, e.g. 8000."
        case errno.EADDRNOTAVAIL | errno.EAFNOSUPPORT:
            return f"This machine has no address {host}; give one it has, e.g. 127.0.0.1 or 0.0.0.0."
    return f"Port {port} on {host} cannot be served ({exc.strerror}); give another host or port."


def url_of(sock: socket.socket, *, host: str | None, tls: bool) -> str:
    """Return the URL of a socket: with the host as it was given, and the actual port."""
    scheme = "https" if tls else "http"
    name = sock.getsockname()
    if isinstance(name, (str, bytes)):
        return f"unix:{os.fsdecode(name)}"
    shown = host or str(name[0])
    return f"{scheme}://[{shown}]:{name[1]}" if ":" in shown else f"{scheme}://{shown}:{name[1]}"


# --- certificates -----------------------------------------------------------------------------------------------------


def check_certificate(certfile: str, keyfile: str | None, password: str | None) -> None:
    """Load a certificate and its key once, so that an error names the file and the problem.

    Raises:
        ConfigError: a file cannot be read, is not PEM, needs a password, or the two do not belong together.
    """
    _check_readable(certfile, "certificate")
    if keyfile is not None:
        _check_readable(keyfile, "key")
    import ssl  # 10 ms; plain HTTP does not need it

    asked: list[bool] = []

    def get_password() -> str:
        # Without this OpenSSL would ask on the terminal.
        asked.append(True)
        return password or ""

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certfile, keyfile, get_password)
    except (ssl.SSLError, OSError, ValueError) as exc:
        raise ConfigError(_certificate_error(exc, certfile, keyfile, bool(asked), password)) from exc


def _check_readable(path: str, what: str) -> None:
    try:
        with open(path, "rb") as file:
            file.read(1)
    except OSError as exc:
        raise ConfigError(
            f"The {what} file {path} cannot be read ({exc.strerror}); check its path and rights."
        ) from exc


def _certificate_error(exc: Exception, certfile: str, keyfile: str | None, asked: bool, password: str | None) -> str:
    key = keyfile or certfile
    reason = getattr(exc, "reason", None) or ""
    if reason == "KEY_VALUES_MISMATCH":
        return f"The key in {key} does not belong to the certificate in {certfile}; give the two made together."
    if asked and password:
        return f"The password does not open the key in {key}; check keyfile_password."
    if asked:
        return f"The key in {key} is locked with a password; give it as keyfile_password."
    if keyfile is None:
        return f"{certfile} does not hold a certificate and its key in PEM form; give the key's file as keyfile."
    return f"{certfile} and {key} are not a certificate and a key in PEM form ({reason or exc}); check both files."
