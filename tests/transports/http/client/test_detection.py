"""Detection of the transport and era of a URL, redirects and proxies."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from pathlib import Path
from typing import Any

import pytest

from tests.support import run_async
from tests.transports.http.scripted_http import (
    Got,
    HttpScript,
    Status,
    Writer,
    handshake_script,
    old_script,
    stateless_script,
)
from trunkline.client.client import Client
from trunkline.errors import (
    AuthRequired,
    ConfigError,
    ConnectionLost,
    HttpError,
    MissingClientCapability,
    RemoteProtocolError,
    RequestFailed,
    RevisionMismatch,
    TrunklineError,
)
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE

HTML = Status(200, b"<html>", type="text/html")


def refusal(code: int, status: int = 400, **data: Any) -> Any:
    async def reply(got: Got, writer: Writer) -> None:
        error = {"code": code, "message": "refused", **({"data": data} if data else {})}
        writer.json({"jsonrpc": "2.0", "id": got.id, "error": error}, status)

    return reply


def connected(script: HttpScript, **options: Any) -> str | None:
    async def main() -> str | None:
        async with script, Client(script.url, **options) as client:
            return client.revision

    return run_async(main())


def failed(script: HttpScript, **options: Any) -> Exception:
    with pytest.raises(TrunklineError) as failure:
        connected(script, **options)
    return failure.value


# --- eras ------------------------------------------------------------------------------------------------------------


def test_a_stateless_server_is_detected_with_one_request() -> None:
    script = stateless_script()
    assert connected(script) == NEWEST.name
    assert script.names == ["server/discover"]


@pytest.mark.parametrize(
    "reply",
    [
        Status(400, b"Bad Request: no session"),
        Status(404),
        Status(405),
        Status(415),
        HTML,
        Status(202),
        refusal(-32601, 404),
        refusal(-32600),
        refusal(-32000, 200),
    ],
    ids=["400", "404", "405", "415", "html", "202", "method", "invalid", "error"],
)
def test_a_server_that_does_not_know_the_probe_is_sent_initialize(reply: Any) -> None:
    script = handshake_script({"server/discover": reply})
    assert connected(script) == NEWEST_HANDSHAKE.name
    assert script.names[:3] == ["server/discover", "initialize", "notifications/initialized"]


def test_a_server_that_names_its_supported_revisions_is_asked_again() -> None:
    script = stateless_script()
    discovered = {**script.table["server/discover"], "capabilities": {}}
    script.table["server/discover"] = [refusal(-32022, supported=[NEWEST.name]), discovered]
    assert connected(script) == NEWEST.name
    assert script.names == ["server/discover", "server/discover"]


def test_a_server_that_supports_only_handshake_revisions_is_sent_initialize() -> None:
    script = handshake_script({"server/discover": refusal(-32022, supported=[NEWEST_HANDSHAKE.name])})
    assert connected(script) == NEWEST_HANDSHAKE.name


def test_a_stateless_server_that_needs_a_capability_is_not_treated_as_old() -> None:
    script = handshake_script({"server/discover": refusal(-32021)})
    assert isinstance(failed(script), MissingClientCapability)
    assert script.names == ["server/discover"]


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_a_status_that_does_not_indicate_the_era_raises(status: int) -> None:
    script = handshake_script({"server/discover": Status(status)})
    error = failed(script)
    assert isinstance(error, HttpError)
    assert error.status == status
    assert isinstance(error, AuthRequired) is (status == 401)
    assert script.names == ["server/discover"]


def test_a_refused_handshake_raises() -> None:
    assert isinstance(failed(handshake_script({"initialize": refusal(-32602)})), RequestFailed)


def test_a_handshake_answered_with_html_raises() -> None:
    assert isinstance(failed(handshake_script({"initialize": HTML})), RemoteProtocolError)


def test_a_pinned_stateless_revision_is_required() -> None:
    script = handshake_script({"server/discover": Status(404)})
    error = failed(script, revision=NEWEST.name)
    assert isinstance(error, HttpError)
    assert "/mcp" in str(error)
    assert script.names == ["server/discover"]


def test_a_pinned_stateless_revision_with_an_invalid_answer_raises() -> None:
    assert isinstance(failed(handshake_script({"server/discover": HTML}), revision=NEWEST.name), RevisionMismatch)


def test_the_era_of_a_url_is_remembered_under_a_digest() -> None:
    memory: dict[str, str] = {}

    async def main() -> list[str]:
        script = handshake_script()
        async with script:
            async with Client(script.url, era_memory=memory):
                pass
            async with Client(script.url, era_memory=memory):
                pass
        assert not any(script.url in key for key in memory)
        return [name for name in script.names if name in ("server/discover", "initialize")]

    assert run_async(main()) == ["server/discover", "initialize", "initialize"]
    assert list(memory.values()) == [NEWEST_HANDSHAKE.name]


def changed_era(status: int) -> tuple[HttpScript, Any]:
    """Connect to a server that was remembered as a handshake one and now refuses that with a status."""

    async def main() -> Any:
        memory: dict[str, str] = {}
        async with script, Client(script.url, era_memory=memory):
            pass
        script.table["server/discover"] = stateless_script().table["server/discover"]
        script.table["initialize"] = Status(status)
        script.requests.clear()
        async with script, Client(script.url, era_memory=memory) as client:
            return client.revision

    script = handshake_script()
    return script, run_async(main())


def test_a_remembered_era_that_is_outdated_is_detected_again() -> None:
    script, revision = changed_era(400)
    assert revision == NEWEST.name
    assert script.names == ["initialize", "server/discover"]


def test_a_remembered_era_is_kept_when_the_server_fails_temporarily() -> None:
    with pytest.raises(HttpError, match="500"):
        changed_era(500)


# --- the transport of the first revision -----------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 404, 405])
def test_a_server_of_neither_era_is_tried_with_http_sse(status: int) -> None:
    script = old_script(refusal=Status(status, b"nope"))
    error = failed(script)
    assert isinstance(error, HttpError)
    assert error.status == status
    assert "nope" in str(error)
    assert "HTTP+SSE" in error.__notes__[0]
    assert script.names == ["server/discover", "initialize", "GET"]


@pytest.mark.parametrize("status", [406, 500])
def test_other_failures_of_the_handshake_do_not_lead_to_http_sse(status: int) -> None:
    script = handshake_script({"initialize": Status(status)})
    error = failed(script)
    assert isinstance(error, HttpError)
    assert error.status == status
    assert script.names == ["server/discover", "initialize"]


def test_a_jsonrpc_error_with_such_a_status_does_not_indicate_a_stateless_server() -> None:
    script = handshake_script({"server/discover": refusal(-32600, 405), "initialize": refusal(-32600, 405)})
    error = failed(script)
    assert isinstance(error, RequestFailed)
    assert (error.code, error.status) == (-32600, 405)
    assert script.names == ["server/discover", "initialize", "GET"]


@pytest.mark.parametrize(("code", "status"), [(-32601, 404), (-32020, 400), (-32600, 200)])
def test_a_jsonrpc_error_of_a_stateless_server_ends_the_detection(code: int, status: int) -> None:
    script = handshake_script({"initialize": refusal(code, status)})
    assert isinstance(failed(script), RequestFailed)
    assert script.names == ["server/discover", "initialize"]


def test_an_entry_of_type_http_is_not_tried_with_http_sse() -> None:
    async def main() -> list[str]:
        async with old_script() as script:
            with pytest.raises(HttpError):
                await Client({"url": script.url, "type": "streamable-http"}).__aenter__()
            return script.names

    assert run_async(main()) == ["server/discover", "initialize"]


# --- redirects -------------------------------------------------------------------------------------------------------


def redirected(status: int, location: str, *, times: int = 1) -> HttpScript:
    script = stateless_script()
    there = Status(status, headers={"Location": location})
    script.table["server/discover"] = [*[there] * times, script.table["server/discover"]]
    return script


@pytest.mark.parametrize(("status", "then"), [(307, "/mcp"), (308, "/mcp/")])
def test_a_redirect_on_the_same_server_is_followed_and_a_permanent_one_kept(status: int, then: str) -> None:
    async def main() -> list[str]:
        script = redirected(status, "/mcp/")
        async with script, Client(script.url) as client:
            await client.list_tools()
        assert script.requests[0].body == script.requests[1].body
        return [got.path for got in script.requests]

    assert run_async(main()) == ["/mcp", "/mcp/", then]


@pytest.mark.parametrize(
    ("status", "location"),
    [
        (307, "http://127.0.0.1:1/mcp"),
        (307, "http://localhost/mcp"),
        (308, "https://127.0.0.1/mcp"),
        (307, "//example.com/"),
        (307, "http://user@127.0.0.1/"),
        (307, "http://[/"),
        (301, "/mcp/"),
        (302, "/mcp/"),
        (303, "/mcp/"),
        (304, ""),
    ],
)
def test_a_redirect_elsewhere_or_of_another_kind_is_not_followed(status: int, location: str) -> None:
    script = redirected(status, location)
    error = failed(script)
    assert isinstance(error, HttpError)
    assert error.status == status
    assert location in str(error)
    assert len(script.requests) == 1


def test_an_endless_redirect_raises() -> None:
    script = redirected(307, "/mcp", times=9)
    error = failed(script)
    assert isinstance(error, HttpError)
    assert "redirects too often" in str(error)
    assert len(script.requests) == 4


def test_a_get_follows_the_older_redirects_too() -> None:
    async def main() -> list[str]:
        script = handshake_script({"GET": [Status(302, headers={"Location": "/other"}), Status(405)]})
        async with script, Client(script.url):
            pass
        return [got.path for got in script.of("GET")]

    assert run_async(main()) == ["/mcp", "/other"]


# --- the login -------------------------------------------------------------------------------------------------------


def test_a_proxy_is_asked_for_the_whole_url() -> None:
    async def main() -> str:
        script = stateless_script()
        async with script, Client("http://server.invalid/mcp", proxy=script.url.removesuffix("/mcp")):
            pass
        return script.requests[0].path

    assert run_async(main()) == "http://server.invalid/mcp"


def test_the_environment_names_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> str:
        script = stateless_script()
        async with script:
            monkeypatch.setenv("http_proxy", f"127.0.0.1:{script.port}")
            monkeypatch.setenv("no_proxy", "other.invalid")
            async with Client("http://server.invalid/mcp"):
                pass
        return script.requests[0].path

    assert run_async(main()) == "http://server.invalid/mcp"


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("http://server.invalid/mcp", {"proxy": ""}),
        ("http://other.invalid/mcp", {}),
        ("http://127.0.0.1:1/mcp", {}),
        ("http://x.localhost:1/mcp", {}),
    ],
    ids=["none", "bypassed", "loopback", "localhost"],
)
def test_a_proxy_of_the_environment_is_not_used_for_this_machine(
    url: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> list[Got]:
        script = stateless_script()
        async with script:
            monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{script.port}")
            monkeypatch.setenv("no_proxy", "other.invalid")
            with pytest.raises(ConnectionLost):
                await Client(url, **options).__aenter__()
        return script.requests

    assert run_async(main()) == []


async def test_an_unreachable_proxy_is_named() -> None:
    with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1"):
        await Client("http://server.invalid/mcp", proxy="http://127.0.0.1:1").__aenter__()


async def test_a_proxy_that_does_not_connect_is_named() -> None:
    script = HttpScript({"CONNECT": Status(407)})
    async with script:
        with pytest.raises(ConnectionLost, match=f"127.0.0.1:{script.port}.*407"):
            await Client("https://server.invalid/mcp", proxy=f"http://127.0.0.1:{script.port}").__aenter__()


async def test_a_proxy_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="only http and https"):
        await Client("http://server.invalid/mcp", proxy="socks5://user:secret@127.0.0.1:1").__aenter__()


# --- TLS -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a self-signed certificate for this machine, with its key in the same file."""
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "here")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "here.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


def over_tls(certificate: Path, **options: Any) -> str | None:
    async def main() -> str | None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
        script = stateless_script()
        async with script:
            server = await asyncio.start_server(script._serve, "127.0.0.1", 0, ssl=context)
            port = server.sockets[0].getsockname()[1]
            try:
                async with Client(f"https://127.0.0.1:{port}/mcp", **options) as client:
                    return client.revision
            finally:
                server.close()

    return run_async(main())


def test_a_certificate_of_a_private_authority_is_trusted_by_its_ca_file(certificate: Path) -> None:
    assert over_tls(certificate, ca_file=certificate) == NEWEST.name


def test_an_ssl_context_of_the_user_is_used_unchanged(certificate: Path) -> None:
    assert over_tls(certificate, ssl=ssl.create_default_context(cafile=str(certificate))) == NEWEST.name


def test_a_certificate_that_is_not_trusted_names_the_option(certificate: Path) -> None:
    with pytest.raises(ConnectionLost, match="ca_file="):
        over_tls(certificate)


def test_an_invalid_certificate_file_is_a_config_error(certificate: Path) -> None:
    with pytest.raises(ConfigError, match="ca_file="):
        over_tls(certificate, ca_file=certificate.with_name("absent"))
