"""A server that is killed in the middle of its tasks; ``kill.py`` does the same for longer."""

from __future__ import annotations

import pytest

from tests.server.tasks.kill import kill_many_times
from tests.store.redis_server import needs_redis
from tests.support import run_async


@pytest.mark.parametrize("times", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_no_task_is_lost_or_runs_too_often_however_often_its_server_is_killed(times: int) -> None:
    report = run_async(kill_many_times(times, seed=7), seconds=120.0)
    assert report.faults == [], str(report)
    assert (report.kills, report.tasks > 0) == (times, True)


@needs_redis
@pytest.mark.slow
def test_no_task_is_lost_or_runs_too_often_however_often_workers_on_one_redis_are_killed() -> None:
    report = run_async(kill_many_times(5, seed=7, backend="redis"), seconds=240.0)
    assert report.faults == [], str(report)
    assert (report.kills, report.restarts, report.tasks > 0) == (5, 1, True)
