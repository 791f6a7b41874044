"""A secret that a server was given is in nothing that the host shows or keeps, however the server fails."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from tests.host.gateway.support import allow
from tests.support import run_async
from trunkline.errors import TrunklineError
from trunkline.host.config.loading import explain
from trunkline.host.host import Host
from trunkline.host.secrets.vault import Vault, open_stores

ROOT = Path(__file__).parents[3]
RULES = allow("serves", "crashes", "dies", "web", more='[[rule]]\neffect = "deny"\nserver = "denied"\ntool = "*"\n')
#: Every character that some format writes otherwise.
SECRET = "zq8abcXYZ-_.~!@#%&*()+=:;,/<>?[]{}|^'\"\\` äß日$qz"


class Sinks(logging.Handler):
    """Collects all that a host lets out."""

    def __init__(self) -> None:
        """Begin with nothing."""
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record as a program's own handler would write it, and all that it holds."""
        self.texts += [self.format(record), repr(vars(record))]

    def take(self, value: object) -> None:
        """Take anything that can be seen."""
        self.texts += [str(value), repr(value)]

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear the log while the block runs."""
        root = logging.getLogger()
        before = root.level
        root.addHandler(self)
        root.setLevel(logging.DEBUG)
        logging.getLogger("asyncio").setLevel(logging.INFO)
        try:
            yield
        finally:
            root.setLevel(before)
            root.removeHandler(self)

    def holding(self, secret: str) -> list[str]:
        """Give the texts in which a secret can be found, in whatever form."""
        forms = {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], quote(secret), quote(secret, safe="")}
        return [text for text in self.texts if any(form in text for form in forms)]


# --- ways in ---------------------------------------------------------------------------------------------------------

Way = Callable[[Path, str], Awaitable[tuple[dict[str, Any], dict[str, str]]]]


async def by_variable(folder: Path, secret: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Have it in the environment."""
    return {"env": {"LEAK": "${GIVEN}"}}, {"GIVEN": secret}


async def by_vault(folder: Path, secret: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Have it kept by the user."""
    await Vault(open_stores(folder)).put("leak", secret)
    return {"env": {"LEAK": "secret://leak"}}, {}


async def by_file(folder: Path, secret: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Have it in a file beside the configuration."""
    quoted = secret.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    (folder / "given.env").write_text(f'LEAK="{quoted}"\n', encoding="utf-8")
    return {"envFile": str(folder / "given.env")}, {}


def entry(mode: str, given: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Make the entry of the server that says its secret everywhere."""
    env = {"PYTHONPATH": str(ROOT), **given.get("env", {})}
    return {
        "command": sys.executable,
        "args": ["-S", "-m", "tests.host.servers.leaky", mode],
        "era": "handshake",
        **given,
        "env": env,
        **more,
    }


# --- ways to fail ----------------------------------------------------------------------------------------------------


@contextmanager
def refusing() -> Iterator[str]:
    """Serve a page that lets nobody in, and says to everybody what he sent; give its address."""

    class Page(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            said = f"wrong: {self.headers.get('Authorization')} at {self.path}".encode("latin-1", "replace")
            self.send_response(401)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


async def call(host: Host, name: str, secret: str, sinks: Sinks) -> None:
    """Call a tool with the secret as an argument, and keep what comes of it."""
    try:
        result = await host.call_tool(name, {"guess": secret}, raise_on_error=False)
    except TrunklineError as error:
        sinks.take(error)
        sinks.take(vars(error))
    else:
        sinks.take(result)


def files(folder: Path) -> Iterator[str]:
    """Read all that a host keeps, but for the configuration that the secret came from."""
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "given.env":
            yield path.read_bytes().decode("utf-8", "replace")


async def fail_in_every_way(folder: Path, secret: str, way: Way, sinks: Sinks) -> str:
    """Run servers that fail; give what the one that knows the secret says when asked whether it has the right one."""
    given, environ = await way(folder, secret)
    vault = Vault(open_stores(folder))
    servers = {
        "serves": entry("serve", given, timeout=0.5),
        "dies": entry("serve", given),
        "denied": entry("serve", given),
        "crashes": entry("crash", given, crashes=1),
        "lacks": entry("serve", given, command="/nowhere/${GIVEN:-program}"),
    }
    host = Host.open(servers, folder=folder, policy=RULES, environ=environ, vault=vault, wait_seconds=15)
    known = ""
    async with host, host.events() as events:
        known = (await host.call_tool("serves/know", {"guess": secret})).text
        for name in ("serves/fail", "serves/refuse", "serves/hang", "denied/die", "crashes/know", "dies/die"):
            await call(host, name, secret, sinks)
        for status in host.status():
            sinks.take(status)
        sinks.take(explain(host.configuration))
        sinks.take([upstream.stderr for upstream in host._open.core.supervisor.upstreams.values()])
    async for event in events:
        sinks.take(event)
    return known


@pytest.mark.parametrize("way", [by_variable, by_vault, by_file])
def test_the_errors_of_a_failing_server_contain_no_secret(way: Way, tmp_path: Path) -> None:
    sinks = Sinks()
    with sinks.listening():
        known = run_async(fail_in_every_way(tmp_path, SECRET, way, sinks), seconds=120)
    sinks.texts += files(tmp_path)
    assert known == "yes"
    assert len(sinks.texts) > 30
    assert sinks.holding(SECRET) == []


async def be_refused(folder: Path, url: str, secret: str, sinks: Sinks) -> None:
    """Reach a page that lets nobody in, with the secret in a header and in the URL."""
    vault = Vault(open_stores(folder))
    await vault.put("leak", secret)
    await vault.put("path", quote(secret, safe=""))
    entry = {"url": f"{url}/${{secret:path}}", "type": "http", "headers": {"Authorization": "Bearer ${secret:leak}"}}
    async with Host.open({"web": entry}, folder=folder, environ={}, vault=vault, wait_seconds=15) as host:
        sinks.take(host.status())
        sinks.take(explain(host.configuration))
        await call(host, "web/any", secret, sinks)


def test_a_token_repeated_by_a_page_is_not_disclosed(tmp_path: Path) -> None:
    sinks, secret = Sinks(), SECRET.encode("ascii", "ignore").decode()
    with sinks.listening(), refusing() as url:
        run_async(be_refused(tmp_path, url, secret, sinks))
    sinks.texts += files(tmp_path)
    assert any("needs login" in text for text in sinks.texts)
    assert sinks.holding(secret) == []


async def test_a_catalog_with_a_secret_in_it_is_not_kept(tmp_path: Path) -> None:
    servers = {"serves": entry("serve", {"env": {"LEAK": "${GIVEN}"}}), "bare": entry("serve", {})}
    environ = {"GIVEN": "a-very-secret-word"}
    async with Host.open(servers, folder=tmp_path, environ=environ, wait_seconds=15) as host:
        assert {status.state for status in host.status()} == {"ready"}
    assert len(list((tmp_path / "catalogs").iterdir())) == 1


async def test_two_hosts_hide_their_own_secrets_in_the_log_and_then_no_more(tmp_path: Path) -> None:
    sinks, log = Sinks(), logging.getLogger("trunkline.host")

    def host(secret: str) -> Host:
        one = entry("crash", {"env": {"LEAK": "${GIVEN}"}}, crashes=1)
        return Host.open({"one": one}, folder=tmp_path / secret, environ={"GIVEN": secret}, wait="none")

    with sinks.listening():
        async with host("first-secret-word"), host("second-secret-word"):
            log.warning("both: %s %s", "first-secret-word", "second-secret-word")
        log.warning("later: %s", "first-secret-word")
    assert [text for text in sinks.texts if text.startswith(("both", "later"))] == [
        "both: *** ***",
        "later: first-secret-word",
    ]


@pytest.mark.parametrize("pad", [0, 8, 16])
async def test_of_a_long_stderr_not_even_half_a_secret_is_shown(tmp_path: Path, pad: int) -> None:
    environ = {"GIVEN": f'{"-" * pad}first-half-SECOND"HALF'}
    servers = {"one": entry("crash", {"env": {"LEAK": "${GIVEN}"}}, crashes=1)}
    async with Host.open(servers, folder=tmp_path, environ=environ, wait_seconds=15) as host:
        upstream = host._open.core.supervisor.upstreams["one"]
        shown = f"{upstream.status.reason}\n{upstream.stderr}"
        encoded = msgspec.json.encode(host.status())
    assert "cannot use ***" in shown
    assert "HALF" not in shown
    assert b"HALF" not in encoded
