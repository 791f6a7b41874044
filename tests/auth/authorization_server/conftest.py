"""The tests of an authorization server run twice: with a store of its own, and with that of a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.auth.authorization_server.support import FILES, SHARED, OpenFile, Start, make_server
from tests.support import run_async
from trunkline.auth.authorization_server.server import AuthorizationServer


@pytest.fixture(params=["own", "shared"], autouse=True)
def records(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let ``make_server`` make servers of one kind."""
    token = SHARED.set(request.param == "shared")
    yield
    SHARED.reset(token)


@pytest.fixture(params=list(FILES))
def open_file(request: pytest.FixtureRequest) -> OpenFile:
    """Return what ``store=`` is for a file."""
    return FILES[request.param]


@pytest.fixture
def start(records: None) -> Iterator[Start]:
    """Make servers, and close them after the test."""
    servers: list[AuthorizationServer] = []

    def make(**options: Any) -> AuthorizationServer:
        servers.append(make_server(**options))
        return servers[-1]

    yield make
    for server in servers:
        run_async(server.aclose())


@pytest.fixture
def server(start: Start) -> AuthorizationServer:
    """A server with the usual settings."""
    return start()
