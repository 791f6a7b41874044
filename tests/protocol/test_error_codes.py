"""The table of error codes."""

from __future__ import annotations

import pytest

from trunkline import errors
from trunkline.protocol.error_codes import CODES
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE


def test_every_code_has_an_exception_of_its_own() -> None:
    failures = [errors.request_failed(row.code, "no") for row in CODES]
    assert [failure.code for failure in failures] == [row.code for row in CODES]
    assert len({type(failure) for failure in failures} - {errors.RequestFailed}) == len(CODES) == 12


@pytest.mark.parametrize(
    ("code", "handshake", "stateless"),
    [
        pytest.param(-32602, True, True, id="invalid params"),
        pytest.param(-32002, True, False, id="resource not found"),
        pytest.param(-32042, True, False, id="URL elicitation required"),
        pytest.param(-32020, False, True, id="header mismatch"),
        pytest.param(-32021, False, True, id="missing client capability"),
        pytest.param(-32022, False, True, id="unsupported protocol version"),
    ],
)
def test_a_code_is_sent_only_in_the_revisions_that_have_it(code: int, *, handshake: bool, stateless: bool) -> None:
    spans = {row.code: row.span for row in CODES}
    assert spans[code].covers(NEWEST_HANDSHAKE) is handshake
    assert spans[code].covers(NEWEST) is stateless
