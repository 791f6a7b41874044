"""Each story about an authorization server is told twice: with its own records, and with those of a backplane."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.auth.authorization_server.support import SHARED


@pytest.fixture(params=["own", "shared"], autouse=True)
def records(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let ``make_server`` make servers of one kind."""
    token = SHARED.set(request.param == "shared")
    yield
    SHARED.reset(token)
