"""``trunkline console``, its socket, and the console of a gateway."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.pages import Page, address_in, showing, started
from tests.cli.support import DEMO, SECONDS, Cli, in_a_terminal
from tests.host.supervised import ROOT
from trunkline.cli.console_socket import console_socket, find_console


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the files of the user."""
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TRUNKLINE_MODEL", raising=False)
    return tmp_path


def _config(folder: Path, **servers: Any) -> Path:
    demo = {"command": sys.executable, "args": ["-m", "trunkline", "run", DEMO]}
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers or {"demo": demo}}))
    return file


def test_the_configured_servers_are_shown_until_ctrl_c(home: Path) -> None:
    config = _config(home)
    with showing("console", "-c", str(config), "--no-open") as page:
        state = page.until("/state", lambda found: found["servers"][0]["state"] == "ready")
        assert (state["mode"], state["title"]) == ("console", str(config))
        assert state["configuration"] == {"files": [str(config)]}
        assert state["servers"][0]["tools"] > 0
        assert page.stop() == 0
        assert page.process.stdout is not None
        assert page.process.stdout.read() == ""


def test_the_progress_of_a_first_start_is_printed(home: Path) -> None:
    go = home / "go"
    command = {"command": sys.executable, "args": ["-S", "-m", "tests.host.servers.slow_start", str(go)]}
    slow = {**command, "env": {"PYTHONPATH": str(ROOT)}, "era": "handshake"}
    config = _config(home, **dict.fromkeys("abcd", slow))
    with showing("console", "-c", str(config), "--no-open") as page:
        go.touch()
        page.until("/state", lambda found: all(server["state"] == "ready" for server in found["servers"]))
        assert page.stop() == 0
        printed = page.process.communicate(timeout=SECONDS)[1]
    assert "first start of 4 servers: their tools are listed as they come" in printed
    assert "first start: 4 of 4 servers done, 4 tools" in printed


def test_a_port_that_is_taken_is_an_error(home: Path, cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = cli("console", "-c", str(_config(home)), "--port", port, "--no-open")
    assert (ended.code, port in ended.err) == (2, True)


def test_without_any_configuration_it_opens_empty(home: Path) -> None:
    empty = home / "empty"
    empty.mkdir()
    with showing("console", "--no-open", cwd=empty) as page:
        assert page.get("/state")["servers"] == []
        added = page.post("/servers", {"name": "demo", "entry": {"command": "x", "disabled": True}})
        assert added["server"]["state"] == "disabled"
        assert page.stop(signal.SIGTERM) == 0
    assert "demo" in (home / "home" / "mcp.json").read_text()


def test_a_second_console_of_the_same_configuration_shows_the_first(home: Path, cli: Cli) -> None:
    config = _config(home)
    with showing("console", "-c", str(config), "--no-open") as page:
        again = cli("console", "-c", str(config), "--no-open")
        assert again.code == 0
        assert address_in(again.out) == (page.origin, page.token)
        assert page.stop() == 0
    assert list((home / "home" / "consoles").glob("*.sock")) == []


def test_a_gateway_shows_its_console_when_it_is_asked_for(home: Path, cli: Cli) -> None:
    config = _config(home)
    with started("serve", "-c", str(config), "--http", "0", "--no-auth") as gateway:
        lines = [gateway.stderr.readline() for _ in range(2)]
        done = cli("console", "-c", str(config), "--no-open")
        assert (done.code, done.err) == (0, ""), lines
        page = Page(gateway, *address_in(done.out))
        state = page.until("/state", lambda found: found["servers"][0]["state"] == "ready")
        assert state["mode"] == "gateway"
        view = page.post("/servers/demo/stop")["server"]
        assert view["state"] == "stopped"
        gateway.send_signal(signal.SIGTERM)
        assert gateway.wait(timeout=SECONDS) == 0


def test_a_gateway_over_stdio_prints_the_address_of_its_console_on_stderr(home: Path) -> None:
    with started("serve", "-c", str(_config(home)), "--console") as gateway:
        page = Page(gateway, *address_in(gateway.stderr.readline()))
        assert page.get("/state")["mode"] == "gateway"
        gateway.stdin.close()
        assert gateway.wait(timeout=SECONDS) == 0
        assert gateway.stdout.read() == ""
        gateway.stdin = None


def test_a_gateway_does_not_load_the_console_before_it_is_asked_for(home: Path) -> None:
    source = (
        "import sys; from trunkline.cli.main import main; main(); "
        "sys.stderr.write(' '.join(name for name in sys.modules if name.startswith('trunkline.console')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", source, "serve", "-c", str(_config(home))],
        input="",
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "trunkline.console" not in done.stderr


def test_the_browser_is_started_with_a_file_and_never_sees_the_token_in_its_arguments(home: Path) -> None:
    browser = home / "browser.sh"
    browser.write_text(f'#!/bin/sh\nprintf \'%s\\n\' "$@" > {home}/arguments\nsed -n p "${{1#file://}}"\necho opened\n')
    browser.chmod(0o700)
    seen = in_a_terminal(
        "console", "-c", str(_config(home)), env={"BROWSER": f"{browser} %s"}, interrupt_at="\nopened", columns=200
    )
    origin, token = address_in(seen.out)
    arguments = (home / "arguments").read_text()
    assert arguments.startswith(f"file://{home}/home/consoles/open-")
    assert token not in arguments
    assert f"{origin}/#code=" in seen.out
    assert seen.out.count(token) == 1


# --- the socket ------------------------------------------------------------------------------------------------------


def _exists(path: Path) -> bool:
    return path.exists()


def _short(path: Path) -> str:
    return os.path.relpath(path)


async def _address() -> str:
    return "http://127.0.0.1:1/#token=t"


async def test_the_socket_is_the_owners_alone_and_ends_with_its_host(tmp_path: Path) -> None:
    async with console_socket(tmp_path, "one", _address) as bound:
        assert bound
        path = tmp_path / "consoles" / "one.sock"
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(path.parent).st_mode) == 0o700
        assert await find_console(tmp_path, "one") == await _address()
        assert await find_console(tmp_path, "other") is None
    assert not _exists(path)
    assert await find_console(tmp_path, "one") is None


async def test_the_first_host_keeps_the_socket_and_a_stale_one_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "consoles"
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(_short(folder / "one.sock"))
    async with console_socket(tmp_path, "one", _address) as first, console_socket(tmp_path, "one", _address) as second:
        assert (first, second) == (True, False)
        assert await find_console(tmp_path, "one") == await _address()


async def test_a_long_path_and_a_folder_that_others_can_read(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    async with console_socket(deep, "one", _address) as bound:
        assert bound
        assert await find_console(deep, "one") == await _address()
        os.chmod(deep / "consoles", 0o755)
        assert await find_console(deep, "one") is None


async def test_an_address_elsewhere_is_not_opened_and_other_requests_get_no_answer(tmp_path: Path) -> None:
    async def elsewhere() -> str:
        return "https://evil.example/#token=t"

    async with console_socket(tmp_path, "one", elsewhere):
        assert await find_console(tmp_path, "one") is None
        reader, writer = await asyncio.open_unix_connection(_short(tmp_path / "consoles" / "one.sock"))
        writer.write(b"GET / HTTP/1.1\n")
        async with asyncio.timeout(120):
            assert await reader.read() == b""
        writer.close()
