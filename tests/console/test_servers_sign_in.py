"""Signing in to a server from the console, with a real authorization server and a stand-in for the browser."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.cli.support import PROTECTED, Served, serving
from tests.console.support import library, on_console, refused
from tests.console.test_servers import write_config

pytest.importorskip("joserfc")


@pytest.fixture(scope="module")
def protected() -> Iterator[Served]:
    """A server that one has to log in at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROTECTED_PORT", str(port))
        with serving(PROTECTED, "--http") as served:
            yield served


def _visit(url: str) -> None:
    with urlopen(url, timeout=120) as response:
        response.read()


async def test_a_person_signs_in_and_the_server_becomes_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protected: Served
) -> None:
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))
    entry = {"url": protected.url, "auth": {"client_id": "known"}}
    config = write_config(tmp_path, {"guarded": entry})
    async with on_console(str(config), tmp_path) as stage, stage.client().listen() as page:
        [view] = (await page.get("/servers"))["servers"]
        assert (view["state"], view["fix"]) == ("needs login", "Sign in.")
        assert "trunkline auth" not in view["reason"]
        assert "login" in view["actions"]
        url = (await page.post("/servers/guarded/login"))["url"]
        assert url.startswith(protected.url.rpartition("/")[0])
        await asyncio.to_thread(_visit, url)
        await page.event("notice", lambda each: each["text"] == "Logged in to guarded")
        await page.event("server", lambda each: each["server"]["state"] == "ready")
        assert await page.delete("/servers/guarded/login") == {"ended": 1}
        await page.event("server", lambda each: each["server"]["state"] == "starting")


async def test_a_second_login_replaces_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protected: Served
) -> None:
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))
    config = write_config(tmp_path, {"guarded": {"url": protected.url, "auth": {"client_id": "known"}}})
    async with on_console(str(config), tmp_path) as stage, stage.client().listen() as page:
        first = (await page.post("/servers/guarded/login"))["url"]
        second = (await page.post("/servers/guarded/login"))["url"]
        assert first != second
        await asyncio.to_thread(_visit, second)
        await page.event("server", lambda each: each["server"]["state"] == "ready")


async def test_a_server_that_is_not_at_a_url_has_no_login(tmp_path: Path) -> None:
    async with on_console({"lib": library()}, tmp_path) as stage:
        failure = await refused(stage.client().post("/servers/lib/login"))
    assert (failure.status, failure.code) == (409, "no_login")
