"""Tests of both: a function fills in the form instead of a user."""

import asyncio
import html
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from examples.protected import client as library_client
from trunkline import OAuth

pytest.importorskip("joserfc")
PASSWORD = "only for this test"


@pytest.fixture
def url() -> Iterator[str]:
    """Start the server on a free port, and stop it after the test."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = [sys.executable, str(Path(__file__).with_name("server.py"))]
    environment = {**os.environ, "PORT": str(port), "TRUNKLINE_DEV_PASSWORD": PASSWORD}
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        yield process.stdout.readline().removeprefix("serving ").strip()
        process.terminate()
        assert process.wait(20) == 0


def sign_in(page: str) -> None:
    """Do what a user does in a browser: open the page, sign in, consent, and follow the redirect to the client."""
    browser = build_opener(HTTPCookieProcessor(CookieJar()))
    with browser.open(page) as response:
        shown = response.read().decode()
    assert "asks for access to The library" in shown
    sealed = re.search(r'name="request" value="([^"]+)"', shown)
    assert sealed is not None
    form = {
        "request": html.unescape(sealed[1]),
        "decision": "allow",
        "name": "developer",
        "password": PASSWORD,
    }
    with browser.open(page.partition("?")[0], urlencode(form).encode()) as response:
        assert response.status == 200


def test_a_client_logs_in_and_borrows_a_book(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The server gets the user from the sign-in page, not from the client."""

    async def open_page(page: str) -> None:
        await asyncio.to_thread(sign_in, page)

    asyncio.run(library_client.main(url, OAuth(store="memory", open_browser=open_page)))
    assert capsys.readouterr().out.splitlines() == ["['Emma', 'Momo']", "Momo is lent to developer"]
