"""A store that cannot be reached is waited for, and not for ever."""

from __future__ import annotations

import pytest

from trunkline.errors import StoreUnavailable
from trunkline.server.tasks.records import when_reachable


async def test_what_cannot_be_stored_for_a_long_time_is_dropped_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("trunkline.server.tasks.records._PATIENCE_SECONDS", 0.5)
    attempts: list[int] = []

    async def work() -> None:
        attempts.append(1)
        raise StoreUnavailable("Redis did not answer")

    with pytest.raises(StoreUnavailable):
        await when_reachable(work)
    assert len(attempts) > 1
    assert "could not be stored for 0.5 s and is dropped: Redis did not answer" in caplog.text


async def test_what_can_be_stored_again_is_stored() -> None:
    attempts: list[int] = []

    async def work() -> int:
        attempts.append(1)
        if len(attempts) < 3:
            raise StoreUnavailable("Redis did not answer")
        return len(attempts)

    assert await when_reachable(work) == 3
