"""Detection of the transport and era of a URL, redirects and proxies."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from tests.net.origins import make_certificate
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


async def connected(script: HttpScript, **options: Any) -> str | None:
    async with script, Client(script.url, **options) as client:
        return client.revision


async def failed(script: HttpScript, **options: Any) -> Any:
    """Return the error of a connection that cannot be made."""
    with pytest.raises(TrunklineError) as failure:
        await connected(script, **options)
    return failure.value


# --- eras ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        *[Status(400, b"Bad Request: no session"), Status(404), Status(405), Status(415), HTML, Status(202)],
        *[refusal(-32601, 404), refusal(-32600), refusal(-32000, 200)],
        refusal(-32022, supported=[NEWEST_HANDSHAKE.name]),
    ],
    ids=["400", "404", "405", "415", "html", "202", "method", "invalid", "error", "revisions"],
)
async def test_a_server_that_does_not_know_the_probe_is_sent_initialize(reply: Any) -> None:
    script = handshake_script({"server/discover": reply})
    assert await connected(script) == NEWEST_HANDSHAKE.name
    assert script.names[:3] == ["server/discover", "initialize", "notifications/initialized"]


@pytest.mark.parametrize(
    ("reply", "revision", "error"),
    [
        *[(Status(status), "auto", HttpError) for status in (403, 429, 500, 503)],
        pytest.param(Status(401), "auto", AuthRequired, id="401"),
        pytest.param(refusal(-32021), "auto", MissingClientCapability, id="a capability is missing"),
        pytest.param(Status(404), NEWEST.name, HttpError, id="404 to a pinned revision"),
        pytest.param(HTML, NEWEST.name, RevisionMismatch, id="HTML to a pinned revision"),
    ],
)
async def test_an_answer_to_the_probe_that_does_not_indicate_the_era_raises(
    reply: Any, revision: str, error: type[Exception]
) -> None:
    script = handshake_script({"server/discover": reply})
    problem = await failed(script, revision=revision)
    assert not isinstance(problem, HttpError) or problem.status == reply.status
    assert type(problem) is error
    assert script.names == ["server/discover"]


async def test_the_era_of_a_url_is_remembered_under_a_digest() -> None:
    memory: dict[str, str] = {}
    script = handshake_script()
    async with script:
        for _ in range(2):
            async with Client(script.url, era_memory=memory):
                pass
    assert not any(script.url in key for key in memory)
    assert (script.names.count("server/discover"), script.names.count("initialize")) == (1, 2)
    assert list(memory.values()) == [NEWEST_HANDSHAKE.name]


async def changed_era(status: int) -> tuple[HttpScript, str | None]:
    """Connect to a server that was remembered as a handshake one and now refuses that with a status."""
    memory: dict[str, str] = {}
    script = handshake_script()
    async with script, Client(script.url, era_memory=memory):
        pass
    script.table["server/discover"] = stateless_script().table["server/discover"]
    script.table["initialize"] = Status(status)
    script.requests.clear()
    async with script, Client(script.url, era_memory=memory) as client:
        return script, client.revision


async def test_a_remembered_era_that_is_outdated_is_detected_again() -> None:
    script, revision = await changed_era(400)
    assert revision == NEWEST.name
    assert script.names == ["initialize", "server/discover"]


async def test_a_remembered_era_is_kept_when_the_server_fails_temporarily() -> None:
    with pytest.raises(HttpError, match="500"):
        await changed_era(500)


# --- the transport of the first revision -----------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 404, 405])
async def test_a_server_of_neither_era_is_tried_with_http_sse(status: int) -> None:
    script = old_script(refusal=Status(status, b"nope"))
    error = await failed(script)
    assert (type(error), error.status, "nope" in str(error)) == (HttpError, status, True)
    assert "HTTP+SSE" in error.__notes__[0]
    assert script.names == ["server/discover", "initialize", "GET"]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        *[(Status(status), HttpError) for status in (406, 500)],
        *[(refusal(code, status), RequestFailed) for code, status in ((-32601, 404), (-32020, 400), (-32600, 200))],
        (HTML, RemoteProtocolError),
    ],
    ids=["406", "500", "method", "headers", "invalid", "html"],
)
async def test_other_failures_of_the_handshake_do_not_lead_to_http_sse(reply: Any, error: type[Exception]) -> None:
    script = handshake_script({"initialize": reply})
    assert isinstance(await failed(script), error)
    assert script.names == ["server/discover", "initialize"]


async def test_a_jsonrpc_error_with_such_a_status_does_not_indicate_a_stateless_server() -> None:
    script = handshake_script({"server/discover": refusal(-32600, 405), "initialize": refusal(-32600, 405)})
    error = await failed(script)
    assert isinstance(error, RequestFailed)
    assert (error.code, error.status) == (-32600, 405)
    assert script.names == ["server/discover", "initialize", "GET"]


async def test_an_entry_of_type_http_is_not_tried_with_http_sse() -> None:
    async with old_script() as script:
        with pytest.raises(HttpError):
            await Client({"url": script.url, "type": "streamable-http"}).__aenter__()
        assert script.names == ["server/discover", "initialize"]


# --- redirects -------------------------------------------------------------------------------------------------------


def redirected(status: int, location: str, *, times: int = 1) -> HttpScript:
    script = stateless_script()
    there = Status(status, headers={"Location": location})
    script.table["server/discover"] = [*[there] * times, script.table["server/discover"]]
    return script


@pytest.mark.parametrize(("status", "then"), [(307, "/mcp"), (308, "/mcp/")])
async def test_a_redirect_on_the_same_server_is_followed_and_a_permanent_one_kept(status: int, then: str) -> None:
    script = redirected(status, "/mcp/")
    async with script, Client(script.url) as client:
        await client.list_tools()
    assert script.requests[0].body == script.requests[1].body
    assert [got.path for got in script.requests] == ["/mcp", "/mcp/", then]


@pytest.mark.parametrize(
    ("status", "location"),
    [
        *[(307, there) for there in ("http://127.0.0.1:1/mcp", "http://localhost/mcp", "//example.com/", "http://[/")],
        *[(308, "https://127.0.0.1/mcp"), (307, "http://user@127.0.0.1/"), (303, "/mcp/"), (304, "")],
    ],
)
async def test_a_redirect_elsewhere_or_of_another_kind_is_not_followed(status: int, location: str) -> None:
    script = redirected(status, location)
    error = await failed(script)
    assert (type(error), error.status, location in str(error)) == (HttpError, status, True)
    assert len(script.requests) == 1


async def test_an_endless_redirect_raises() -> None:
    script = redirected(307, "/mcp", times=9)
    assert "redirects too often" in str(await failed(script))
    assert len(script.requests) == 4


async def test_a_get_follows_the_older_redirects_too() -> None:
    script = handshake_script({"GET": [Status(302, headers={"Location": "/other"}), Status(405)]})
    async with script, Client(script.url):
        pass
    assert [got.path for got in script.of("GET")] == ["/mcp", "/other"]


# --- the login -------------------------------------------------------------------------------------------------------


async def test_a_proxy_is_asked_for_the_whole_url() -> None:
    script = stateless_script()
    async with script, Client("http://server.invalid/mcp", proxy=script.url.removesuffix("/mcp")):
        pass
    assert script.requests[0].path == "http://server.invalid/mcp"


async def test_the_environment_names_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    script = stateless_script()
    async with script:
        monkeypatch.setenv("http_proxy", f"127.0.0.1:{script.port}")
        monkeypatch.setenv("no_proxy", "other.invalid")
        async with Client("http://server.invalid/mcp"):
            pass
    assert script.requests[0].path == "http://server.invalid/mcp"


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
async def test_a_proxy_of_the_environment_is_not_used_for_this_machine(
    url: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = stateless_script()
    async with script:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{script.port}")
        monkeypatch.setenv("no_proxy", "other.invalid")
        with pytest.raises(ConnectionLost):
            await Client(url, **options).__aenter__()
    assert script.requests == []


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
    """A self-signed certificate for this machine."""
    return make_certificate(tmp_path_factory.mktemp("tls") / "here.pem", "127.0.0.1")


async def over_tls(certificate: Path, **options: Any) -> str | None:
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


async def test_a_certificate_of_a_private_authority_is_trusted_by_its_ca_file(certificate: Path) -> None:
    assert await over_tls(certificate, ca_file=certificate) == NEWEST.name


async def test_an_ssl_context_of_the_user_is_used_unchanged(certificate: Path) -> None:
    assert await over_tls(certificate, ssl=ssl.create_default_context(cafile=str(certificate))) == NEWEST.name


async def test_a_certificate_that_is_not_trusted_names_the_option(certificate: Path) -> None:
    with pytest.raises(ConnectionLost, match="ca_file="):
        await over_tls(certificate)


async def test_an_invalid_certificate_file_is_a_config_error(certificate: Path) -> None:
    with pytest.raises(ConfigError, match="ca_file="):
        await over_tls(certificate, ca_file=certificate.with_name("absent"))
