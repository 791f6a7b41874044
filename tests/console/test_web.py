"""The console's HTTP side: who is let in, what a page may do, and what leaves."""

from __future__ import annotations

import asyncio
import io
import json
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.console.support import OpenConsole, library, on_console, refused, write_page
from tests.host.gateway.support import until
from tests.support import BOUND
from trunkline.console import web
from trunkline.console.login_files import LoginFiles
from trunkline.console.web import page_policy
from trunkline.errors import ConfigError

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src data: blob:; "
    "connect-src 'self'; frame-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


@asynccontextmanager
async def stage(folder: Path, **options: Any) -> AsyncIterator[OpenConsole]:
    async with on_console({"lib": library()}, folder, static=write_page(folder / "static"), **options) as opened:
        yield opened


async def send(
    opened: OpenConsole, path: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, data: Any = None
) -> tuple[int, dict[str, str], bytes]:
    """Send a request with these headers and no others."""
    url = f"{opened.address.origin}{path}"
    given = dict(headers or {})
    async with opened.http.request(method, url, headers=given, data=data, allow_redirects=False) as response:
        return response.status, {name.lower(): value for name, value in response.headers.items()}, await response.read()


def bearer(opened: OpenConsole) -> dict[str, str]:
    return {"Authorization": f"Bearer {opened.address.token}"}


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/tools", "/tools/lib%2Flend", "/servers/lib", "/inbox?x=1", "/apiary"])
async def test_every_view_is_the_page(path: str, tmp_path: Path) -> None:
    async with stage(tmp_path) as opened:
        status, headers, body = await send(opened, path)
    assert (status, b"<title>Console" in body) == (200, True)
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["content-security-policy"] == POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert "set-cookie" not in headers


def test_only_the_origin_of_apps_may_be_framed() -> None:
    assert "frame-src http://127.0.0.1:9;" in page_policy("http://127.0.0.1:9")


async def test_the_policy_names_the_origin_of_apps_once_it_is_known(tmp_path: Path) -> None:
    async with stage(tmp_path) as opened:
        opened.console.apps_origin = "http://127.0.0.1:9"
        headers = (await send(opened, "/"))[1]
        state = await opened.client().get("/state")
    assert headers["content-security-policy"] == page_policy("http://127.0.0.1:9")
    assert state["apps"] == {"origin": "http://127.0.0.1:9"}


async def test_files_have_their_type(tmp_path: Path) -> None:
    async with stage(tmp_path) as opened:
        status, headers, body = await send(opened, "/static/js/main.js")
    assert (status, body, headers["content-type"]) == (200, b"export {}", "text/javascript; charset=utf-8")


async def test_head_has_the_headers_alone(tmp_path: Path) -> None:
    async with stage(tmp_path) as opened:
        status, headers, body = await send(opened, "/", method="HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 0


@pytest.mark.parametrize(
    "path",
    [
        "/static/../secret.txt",
        "/static/%2e%2e/secret.txt",
        "/static/..%2fsecret.txt",
        "/static/js/../../secret.txt",
        "/static//etc/passwd",
        "/static/.hidden.js",
        "/static/js",
        "/static/",
        "/static/none.js",
        "/static/js/main.js%00.css",
        "/static/js\\main.js",
        "/static/secret",
    ],
)
async def test_no_other_file_can_be_read(path: str, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("treasure")
    async with stage(tmp_path) as opened:
        (tmp_path / "static" / ".hidden.js").write_text("treasure")
        (tmp_path / "static" / "secret").write_text("treasure")
        # As it is: a client library would remove the dots.
        answer = await raw(opened, f"GET {path} HTTP/1.1\r\nHost: {netloc(opened)}\r\nConnection: close\r\n\r\n")
    assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400"))
    assert b"treasure" not in answer


async def test_the_page_and_its_files_are_only_read(tmp_path: Path) -> None:
    async with stage(tmp_path) as opened:
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            status, headers, _ = await send(opened, "/", method=method)
            assert (status, headers["allow"]) == (405, "GET, HEAD")


# --- who is let in ----------------------------------------------------------------------------------------------------


async def test_the_api_needs_the_token(tmp_path: Path) -> None:
    async with stage(tmp_path) as opened:
        token = opened.address.token
        refused: list[dict[str, str]] = [
            {},
            {"Authorization": "Bearer"},
            {"Authorization": "Bearer "},
            {"Authorization": f"Bearer {token}x"},
            {"Authorization": f"Bearer {token[:-1]}"},
            {"Authorization": f"Basic {token}"},
            {"Authorization": token},
            {"Cookie": f"token={token}"},
            {"X-Token": token},
        ]
        for headers in refused:
            status, answered, body = await send(opened, "/api/state", headers=headers)
            assert (status, answered["www-authenticate"]) == (401, "Bearer")
            assert b'"unauthorized"' in body
        for path in (f"/api/state?token={token}", f"/api/state?access_token={token}", f"/api/events?token={token}"):
            assert (await send(opened, path))[0] == 401
        assert (await send(opened, "/api/state", headers=bearer(opened)))[0] == 200


async def test_two_tokens_are_none(tmp_path: Path) -> None:
    async with stage(tmp_path) as opened:
        field = f"Authorization: Bearer {opened.address.token}\r\n"
        answer = await raw(
            opened, f"GET /api/state HTTP/1.1\r\nHost: {netloc(opened)}\r\n{field}{field}Connection: close\r\n\r\n"
        )
    assert answer.startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost.evil.example", "10.0.0.1", ""])
@pytest.mark.parametrize("path", ["/", "/api/state", "/static/js/main.js"])
async def test_another_host_is_refused(host: str, path: str, tmp_path: Path) -> None:
    async with stage(tmp_path) as opened:
        status, _, body = await send(opened, path, headers={**bearer(opened), "Host": host})
    assert status in (400, 403)
    assert b'"lib"' not in body


async def test_the_console_is_reached_as_localhost_too(tmp_path: Path) -> None:
    async with stage(tmp_path) as opened:
        port = urlsplit(opened.address.origin).port
        headers = {**bearer(opened), "Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"}
        assert (await send(opened, "/api/state", headers=headers))[0] == 200


async def test_another_origin_is_refused(tmp_path: Path) -> None:
    async with stage(tmp_path) as opened:
        port = urlsplit(opened.address.origin).port
        assert port is not None
        foreign = ["http://evil.example", "null", f"https://127.0.0.1:{port}", f"http://localhost:{port}"]
        # Other programs of this machine, among them the listener of the Apps.
        for origin in [*foreign, f"http://127.0.0.1:{port + 1}", "http://127.0.0.1"]:
            for method in ("GET", "POST", "OPTIONS"):
                headers = {**bearer(opened), "Origin": origin}
                status, answered, _ = await send(opened, "/api/state", method=method, headers=headers)
                assert status == 403, origin
                assert "access-control-allow-origin" not in answered
        own = {**bearer(opened), "Origin": opened.address.origin}
        assert (await send(opened, "/api/state", headers=own))[0] == 200


async def test_a_request_that_another_site_caused_is_refused(tmp_path: Path) -> None:
    async with stage(tmp_path) as opened:
        for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
            headers = {**bearer(opened), "Sec-Fetch-Site": site}
            assert (await send(opened, "/api/state", headers=headers))[0] == status


# --- the API ----------------------------------------------------------------------------------------------------------


async def test_unknown_paths_and_methods_of_the_api_are_errors(tmp_path: Path) -> None:
    async with stage(tmp_path) as opened:
        for path in ("/api", "/api/", "/api/none", "/api/state/more", "/api/../state"):
            answer = await raw(
                opened,
                f"GET {path} HTTP/1.1\r\nHost: {netloc(opened)}\r\nAuthorization: Bearer {opened.address.token}\r\n"
                "Connection: close\r\n\r\n",
            )
            assert answer.startswith(b"HTTP/1.1 404"), path
            assert b'"not_found"' in answer
        for method in ("HEAD", "OPTIONS", "DELETE"):
            status, headers, _ = await send(opened, "/api/state", method=method, headers=bearer(opened))
            assert (status, headers["allow"]) == (405, "GET")


async def test_a_body_is_json(tmp_path: Path) -> None:
    async with stage(tmp_path) as opened:
        token = bearer(opened)
        plain = await send(opened, "/api/inbox/x", method="POST", headers=token, data=b"{}")
        broken = await send(
            opened, "/api/inbox/x", method="POST", headers={**token, "Content-Type": "application/json"}, data=b"{"
        )
        deep = await send(
            opened,
            "/api/inbox/x",
            method="POST",
            headers={**token, "Content-Type": "application/json"},
            data=b"[" * 100_000,
        )
    assert (plain[0], broken[0], deep[0]) == (415, 400, 400)


async def test_a_body_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async with stage(tmp_path) as opened:
        headers = {**bearer(opened), "Content-Type": "application/json"}
        fits = await send(
            opened, "/api/inbox/x", method="POST", headers=headers, data=io.BytesIO(b'"%s"' % (b"x" * 2**22))
        )
        assert fits[0] == 404
        refused = b"too_large"
        # The connection may be closed before the client has sent the rest of the body, which is not read.
        with suppress(aiohttp.ClientError):
            body = io.BytesIO(b'"%s"' % (b"x" * 2**23))
            refused = (await send(opened, "/api/inbox/x", method="POST", headers=headers, data=body))[2]
        assert b"too_large" in refused


async def test_secrets_are_masked_in_whatever_leaves(tmp_path: Path) -> None:
    async with stage(tmp_path) as opened:
        opened.console.core.secrets.add(['pass"word-1234'])
        asking = asyncio.create_task(
            opened.inbox.ask("note", "lib", 'say pass"word-1234', read=lambda body: pytest.fail("not answered"))
        )
        async with opened.client().listen() as page:
            [item] = (await page.get("/inbox"))["inbox"]
            assert item["title"] == "say ***"
            opened.console.events.publish("notice", text='it is pass"word-1234')
            assert (await page.event("notice"))["text"] == "it is ***"
        failure = await refused(opened.client().get('/items/tool/pass"word-1234'))
        assert "word-1234" not in str(failure)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


# --- event streams ----------------------------------------------------------------------------------------------------


async def test_a_stream_ends_with_its_page(tmp_path: Path) -> None:
    async with stage(tmp_path) as opened:
        async with opened.client().listen():
            assert opened.console.events.watched
        await until(lambda: not opened.console.events.watched)


async def test_a_quiet_stream_is_kept_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_KEEP_ALIVE_SECONDS", 0.05)
    async with stage(tmp_path) as opened:
        url = f"{opened.address.origin}/api/events"
        async with opened.http.get(url, headers=bearer(opened)) as response, asyncio.timeout(BOUND):
            assert response.headers["content-type"] == "text/event-stream"
            assert await response.content.readuntil(b"\n\n") == b'data: {"type":"hello"}\n\n'
            assert await response.content.readuntil(b"\n\n") == b":\n\n"


async def test_closing_the_console_ends_its_streams(tmp_path: Path) -> None:
    async with aiohttp.ClientSession() as http:
        async with stage(tmp_path) as opened:
            response = await http.get(f"{opened.address.origin}/api/events", headers=bearer(opened))
        async with asyncio.timeout(BOUND):
            assert (await response.content.read()).startswith(b"data: ")


async def test_a_port_in_use_is_an_error_with_a_fix(tmp_path: Path) -> None:
    from trunkline.console.serve import serving

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        async with stage(tmp_path) as opened:
            with pytest.raises(ConfigError, match="in use"):
                async with serving(opened.console, port=taken.getsockname()[1]):
                    pass


# --- the real page ----------------------------------------------------------------------------------------------------


async def test_the_page_loads_everything_that_it_names(tmp_path: Path) -> None:
    async with on_console({"lib": library()}, tmp_path) as opened:
        status, _, body = await send(opened, "/")
        assert status == 200
        named = re.findall(rb'(?:href|src)="(/[^"]+)"', body)
        assert named
        for path in named:
            found, headers, content = await send(opened, path.decode())
            assert (found, headers["content-type"].startswith("text/html"), bool(content)) == (200, False, True), path


# --- helpers ----------------------------------------------------------------------------------------------------------


def netloc(opened: OpenConsole) -> str:
    return urlsplit(opened.address.origin).netloc


async def raw(opened: OpenConsole, text: str) -> bytes:
    """Send bytes as they are, and return everything that comes back."""
    parts = urlsplit(opened.address.origin)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(text.encode("latin-1"))
        await writer.drain()
        async with asyncio.timeout(BOUND):
            return await reader.read()
    finally:
        writer.close()


# --- login files -----------------------------------------------------------------------------------------------------


async def code_in(opened: OpenConsole) -> tuple[Path, str]:
    """Request a login file; return its path and the code in it."""
    file = Path((await opened.client().post("/login-file"))["file"])
    content = await asyncio.to_thread(file.read_text)
    code = re.search(rf'url={re.escape(opened.address.origin)}/#code=([\w-]+)"', content)
    assert code is not None, content
    return file, code.group(1)


async def test_a_login_file_is_its_owners_and_its_code_is_exchanged_for_the_token_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))
    async with stage(tmp_path) as opened:
        file, code = await code_in(opened)
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert opened.address.token not in file.read_text()
        login: dict[str, Any] = {"method": "POST", "headers": {"Authorization": f"Bearer {code}"}}
        status, _, content = await send(opened, "/api/login", **login)
        assert (status, json.loads(content)) == (200, {"token": opened.address.token})
        assert not file.exists()
        status, _, content = await send(opened, "/api/login", **login)
        assert (status, json.loads(content)["error"]["code"]) == (401, "unauthorized")
        unused, _ = await code_in(opened)
    assert not unused.exists()


async def test_a_login_file_needs_the_token_and_a_code_the_page_of_the_console(tmp_path: Path) -> None:
    async with stage(tmp_path) as opened:
        status, _, _ = await send(opened, "/api/login-file", method="POST")
        assert status == 401
        foreign = {"Authorization": "Bearer x", "Sec-Fetch-Site": "cross-site"}
        status, _, _ = await send(opened, "/api/login", method="POST", headers=foreign)
        assert status == 403


async def test_a_code_that_is_too_old_is_worth_nothing(tmp_path: Path) -> None:
    files = LoginFiles("the-token", seconds=0.01)
    path = await files.create(tmp_path, "http://127.0.0.1:1")
    code = path.read_text().split("#code=")[1].split('"')[0]
    await until(lambda: not path.exists())
    assert files.exchange(code) is None


# --- Markdown --------------------------------------------------------------------------------------------------------

LONG_TEXTS = """
import { Markdown } from "./markdown.js";
const beginnings = ["[a](", "[a](b ", "**", "- ", "1. a\\n", "> ", "|", "`", "~~a", "a|b\\n-|-\\n", "![", "# "];
const texts = beginnings.flatMap((text) => [
  text + "b".repeat(100_000), text + " ".repeat(100_000) + "\\rb", text.repeat(100_000 / text.length),
]);
const slowest = texts.map((text) => {
  const began = performance.now();
  Markdown({ text });
  return [performance.now() - began, text.slice(0, 20)];
}).sort((a, b) => b[0] - a[0])[0];
console.log(JSON.stringify(slowest));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not here")
def test_no_markdown_of_a_hundred_thousand_characters_takes_seconds(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "ui.js").write_text("export const html = (...parts) => parts; export const Icon = null;")
    shutil.copy(web.STATIC / "js" / "markdown.js", tmp_path)
    (tmp_path / "run.js").write_text(LONG_TEXTS)
    done = subprocess.run(["node", "run.js"], cwd=tmp_path, capture_output=True, timeout=120, check=True)
    milliseconds, text = json.loads(done.stdout)
    assert milliseconds < 2000, text


async def test_connections_that_send_no_request_lock_nobody_out(tmp_path: Path) -> None:
    async with stage(tmp_path) as opened:
        origin = urlsplit(opened.address.origin)
        streams = [await asyncio.open_connection(origin.hostname, origin.port) for _ in range(300)]
        for _, writer in streams:
            writer.write(b"POST /api/login HTTP/1.1\r\nHost: ")
        status, _, _ = await send(opened, "/api/state", headers=bearer(opened))
        assert status == 200
        # Nor those that were answered, and whose body never ends.
        head = f"POST /api/login HTTP/1.1\r\nHost: {origin.netloc}\r\nContent-Length: 9\r\n\r\n".encode()
        others = [await asyncio.open_connection(origin.hostname, origin.port) for _ in range(300)]
        for _, writer in others:
            writer.write(head)
        async with aiohttp.ClientSession() as another:
            status, _, _ = await send(
                OpenConsole(opened.console, opened.address, another), "/api/state", headers=bearer(opened)
            )
        assert status == 200
        for _, writer in (*streams, *others):
            writer.close()
