"""The messages of network errors."""

from __future__ import annotations

import pytest
from yarl import URL

from trunkline.transports.http.client.errors import network_error


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ConnectionResetError(), "broke: ConnectionResetError"),
        (ConnectionResetError("reset by peer"), "broke: reset by peer"),
        (TimeoutError(), "took too long: no connection"),
    ],
    ids=repr,
)
def test_an_error_that_says_nothing_is_named(error: Exception, says: str) -> None:
    assert says in str(network_error(error, URL("http://127.0.0.1:1/")))
