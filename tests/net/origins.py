"""Small local servers to fetch from: each path has the bytes of its response, or a function that writes them."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec import Struct

from trunkline.net import Resolve

__all__ = ["Answer", "Got", "Origin", "always", "answer", "make_certificate", "origin", "redirect", "serving"]

Answer = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


class Got(Struct):
    """A request as it was received."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Origin:
    """A server, its responses, and the requests it received."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        """Store the responses by path; any other path is not found."""
        self.answers = dict(answers)
        self.got: list[Got] = []
        self.connections = 0
        self.names: list[str | None] = []
        self.port = 0

    @property
    def url(self) -> str:
        """Its URL, over plain http."""
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close."""
        self.connections += 1
        got = await _read(reader)
        self.got.append(got)
        found = self.answers.get(got.path.partition("?")[0], answer(b"", status=404))
        if isinstance(found, bytes):
            writer.write(found.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if got.method == "HEAD" else found)
        else:
            await found(writer)


async def _read(reader: asyncio.StreamReader) -> Got:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Got(method, path, headers, body)


def answer(body: bytes = b"", *headers: str, status: int = 200) -> bytes:
    """Encode a response."""
    lines = [f"HTTP/1.1 {status} Reason", f"Content-Length: {len(body)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def redirect(location: str, status: int = 302) -> bytes:
    """Encode a redirect."""
    return answer(b"elsewhere", f"Location: {location}", status=status)


@asynccontextmanager
async def origin(
    answers: Mapping[str, Answer] | None = None,
    *,
    certificate: Path | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
) -> AsyncIterator[Origin]:
    """Run a server for the duration of the block."""
    made = Origin(answers or {})
    context = None
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
        context.sni_callback = lambda _, name, __: made.names.append(name)
    async with serving(made.serve, host=host, port=port, tls=context) as made.port:
        yield made


@asynccontextmanager
async def serving(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Listen for the duration of the block, yield the port, and leave no connection behind."""
    tasks: set[asyncio.Task[None]] = set()

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
            writer.close()
            await writer.wait_closed()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(
        lambda reader, writer: tasks.add(asyncio.create_task(run(reader, writer))), host, port, ssl=tls
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # One iteration of the loop for the transports to close their sockets.
        await asyncio.sleep(0)


def make_certificate(path: Path, name: str, *, password: bytes | None = None) -> Path:
    """Write a self-signed certificate for a name or an IPv4 address, with its key in the same file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    alternative = x509.IPAddress(ip_address(name)) if name[-1].isdigit() else x509.DNSName(name)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    locked = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


def always(*addresses: str) -> Resolve:
    """Return a resolver that resolves every name to these addresses."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses

    return resolve
