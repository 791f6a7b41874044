"""A real nginx with the configuration of ``deploy/nginx.conf``, in front of servers on loopback."""

from __future__ import annotations

import datetime
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["CONFIGURATION", "Front", "free_port", "needs_nginx", "nginx_front"]

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "nginx.conf"
NGINX = shutil.which("nginx", path="/usr/local/sbin:/usr/sbin:/usr/local/bin:/usr/bin:/opt/homebrew/bin")
_STARTED_SECONDS = 120.0

needs_nginx = pytest.mark.skipif(NGINX is None, reason="nginx is not installed; run: make services")


class Front:
    """What clients connect to."""

    def __init__(self, port: int, certificate: Path) -> None:
        self.port = port
        self.url = f"https://localhost:{port}/mcp"
        self.certificate = certificate

    @property
    def trust(self) -> ssl.SSLContext:
        """Return a context that accepts the certificate of this nginx."""
        return ssl.create_default_context(cafile=str(self.certificate))


@contextmanager
def nginx_front(folder: Path, machines: Sequence[str]) -> Iterator[Front]:
    """Run nginx in front of two machines, ``HOST:PORT`` each."""
    assert NGINX is not None
    certificate, key = _certificate(folder)
    port = free_port()
    places = " ".join(
        f"{each}_temp_path {folder}/{each};" for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    written = folder / "nginx.conf"
    written.write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log;\nevents {{}}\nhttp {{ access_log off; {places}\n"
        f"{_adapted(port, machines, certificate, key)}\n}}\n",
        encoding="utf-8",
    )
    # It says on stderr that it may not write its usual log, before it reads where to log instead.
    command = [NGINX, "-c", str(written), "-p", str(folder)]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False, timeout=120)
    assert checked.returncode == 0, checked.stderr
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        _wait(port, process)
        yield Front(port, certificate)
    finally:
        process.terminate()
        process.wait(120)


def _adapted(port: int, machines: Sequence[str], certificate: Path, key: Path) -> str:
    """Return the configuration of the repository with the addresses and files of a test; nothing else differs."""
    text = CONFIGURATION.read_text(encoding="utf-8")
    changes = {
        "listen 443 ": f"listen 127.0.0.1:{port} ",
        "server_name mcp.example.com;": "server_name mcp.example.com localhost; add_header X-Machine $upstream_addr;",
        "10.0.0.11:8000": machines[0],
        "10.0.0.12:8000": machines[1],
        "/etc/nginx/tls/server.crt": str(certificate),
        "/etc/nginx/tls/server.key": str(key),
    }
    for old, new in changes.items():
        assert old in text, f"{old} is not in {CONFIGURATION.name}"
        text = text.replace(old, new)
    return text


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _STARTED_SECONDS
    while True:
        assert process.poll() is None, "nginx ended"
        assert time.monotonic() < deadline, "nginx did not start in time"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def _certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for the names of the tests that signs itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName(each) for each in ("localhost", "mcp.example.com", "other.example.com")]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "server.crt", folder / "server.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, private
