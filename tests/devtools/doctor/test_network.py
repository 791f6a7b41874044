"""The way to a URL, step by step: the first that fails is named, with the fix."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.net.origins import Answer as Bytes
from tests.net.origins import answer, make_certificate, origin, redirect
from tests.support import run_async
from trunkline.devtools.doctor.checks import Check, CheckRecorder
from trunkline.devtools.doctor.remote import ProbeResponse, check_network

JSON = "Content-Type: application/json\r\nConnection: close"
CLOSE = "Connection: close"
HTML = "Content-Type: text/html"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


async def _went(url: str, **options: Any) -> tuple[ProbeResponse | None, dict[str, Check]]:
    recorder = CheckRecorder()
    said = await check_network(recorder, url, headers={}, seconds=2.0, **options)
    return said, {check.id: check for check in recorder.checks}


def way(answers: dict[str, Bytes], path: str = "/mcp", **options: Any) -> tuple[ProbeResponse | None, dict[str, Check]]:
    """Go the way to a server that answers so."""

    async def main() -> tuple[ProbeResponse | None, dict[str, Check]]:
        async with origin(answers) as server:
            return await _went(f"{server.url}{path}", **options)

    return run_async(main())


def test_a_server_that_answers_is_reached() -> None:
    said, checks = way({"/mcp": answer(b"{}", JSON)})
    assert said == ProbeResponse(200)
    assert (checks["tcp"].status, checks["http"].status) == ("ok", "ok")


def test_what_a_server_demands_is_kept() -> None:
    said, checks = way(
        {"/mcp": answer(b"", 'WWW-Authenticate: Bearer resource_metadata="https://x"', CLOSE, status=401)}
    )
    assert said == ProbeResponse(401, ('Bearer resource_metadata="https://x"',))
    assert (checks["http"].status, checks["origin"].status) == ("ok", "ok")


@pytest.mark.parametrize(
    ("reply", "id", "words"),
    [
        pytest.param(answer(b"", HTML, status=404), "http", "nothing at this path", id="404"),
        pytest.param(answer(b"", HTML), "http", "a web page", id="page"),
        pytest.param(answer(b"", status=502), "http", "a proxy in front of it, fails", id="502"),
        pytest.param(answer(b"", status=429), "http", "too many requests", id="429"),
        pytest.param(answer(b"", status=421), "http", "Host name", id="421"),
        pytest.param(answer(b"", status=407), "http", "proxy", id="407"),
        pytest.param(redirect("https://elsewhere.example/mcp", 308), "redirect", "not followed", id="elsewhere"),
        pytest.param(b"SSH-2.0-x\r\n\r\n", "http", "", id="not-http"),
    ],
)
def test_an_unusable_response_is_a_failed_check_with_a_fix(reply: bytes, id: str, words: str) -> None:
    said, checks = way({"/mcp": reply})
    assert said is None
    assert (checks[id].status, words in checks[id].detail, bool(checks[id].fix)) == ("fail", True, True)


def test_a_server_that_moved_is_a_warning() -> None:
    said, checks = way({"/old": answer(b"", "Location: /mcp", CLOSE, status=308), "/mcp": answer(b"{}", JSON)}, "/old")
    assert said == ProbeResponse(200)
    assert (checks["redirect"].status, "/mcp" in checks["redirect"].detail) == ("warn", True)


def test_a_server_of_the_oldest_revision_takes_no_post() -> None:
    said, checks = way({"/sse": answer(b"", status=405)}, "/sse", sse=True)
    assert (said, checks["http"].status) == (ProbeResponse(405), "ok")
    assert way({"/sse": answer(b"", status=405)}, "/sse")[1]["http"].status == "warn"


def test_a_proxy_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    said, checks = run_async(_went("https://mcp.example.com/mcp"))
    assert (said, checks["proxy"].detail.startswith("using 127.0.0.1:9")) == (None, True)
    assert ("dns" in checks, checks["http"].status) == (False, "fail")


def test_a_refusal_may_be_about_the_host() -> None:
    said, checks = way({"/mcp": answer(b"", status=403)})
    assert said == ProbeResponse(403)
    assert "--allowed-host" in (checks["http"].fix or "")


def test_a_local_server_that_accepts_foreign_origins_is_reported() -> None:
    assert way({"/mcp": answer(b"{}", JSON)})[1]["origin"].status == "warn"


def test_a_refused_connection_is_a_failed_check() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        _, checks = run_async(_went(f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"))
    assert (checks["tcp"].status, "Connection refused" in checks["tcp"].detail) == ("fail", True)


def test_an_unknown_host_is_named_in_the_failed_check() -> None:
    _, checks = run_async(_went("https://no-such-host.invalid/mcp"))
    assert (checks["dns"].status, "no-such-host.invalid" in checks["dns"].detail) == ("fail", True)


@pytest.mark.parametrize("url", ["ftp://example.com/", "http://a b/", "https://user:pw@example.com/"])
def test_what_is_no_url_is_told(url: str) -> None:
    _, checks = run_async(_went(url))
    assert (checks["url"].status, "pw" in checks["url"].detail) == ("fail", False)


def test_a_server_that_never_answers_is_given_up() -> None:
    async def silent(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(5)

    _, checks = way({"/mcp": silent})
    assert (checks["http"].status, "no response in 2 s" in checks["http"].detail) == ("fail", True)


# --- TLS -------------------------------------------------------------------------------------------------------------


def secure(folder: Path, *, trusted: bool, port_speaks_tls: bool = True) -> dict[str, Check]:
    """Go the way to a server with a certificate of its own."""
    certificate = make_certificate(folder / "certificate.pem", "localhost")

    async def main() -> dict[str, Check]:
        served = certificate if port_speaks_tls else None
        async with origin({"/mcp": answer(b"{}", JSON)}, certificate=served) as server:
            url = f"https://localhost:{server.port}/mcp"
            return (await _went(url, ca_file=str(certificate) if trusted else None))[1]

    return run_async(main())


def test_a_certificate_that_is_trusted_is_dated(tmp_path: Path) -> None:
    checks = secure(tmp_path, trusted=True)
    assert "certificate" in checks["tls"].detail
    assert checks["http"].status == "ok"


def test_a_self_signed_certificate_is_explained(tmp_path: Path) -> None:
    found = secure(tmp_path, trusted=False)["tls"]
    assert (found.status, "--ca-file" in (found.fix or "")) == ("fail", True)


def test_a_port_without_tls_is_explained(tmp_path: Path) -> None:
    found = secure(tmp_path, trusted=True, port_speaks_tls=False)["tls"]
    assert (found.status, "http://" in (found.fix or "")) == ("fail", True)
