"""Metrics: calls, errors, percentiles and tokens of each server, step by step."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.console.support import library, on_console, policy, refused
from trunkline.console.api.metrics import MetricsPart
from trunkline.console.metrics import LONGEST_WINDOW, Metrics
from trunkline.host.events import ActCompleted

NOON = 1_700_000_000.0 - 1_700_000_000 % 3600


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


def act(seconds: float = 0.01, outcome: str = "ok", server: str = "a", bytes: int | None = 360) -> ActCompleted:
    """A call that ended."""
    return ActCompleted(server, "tool", "tool", outcome, seconds, bytes)


def one(report: dict[str, Any], name: str = "a") -> dict[str, Any]:
    """Return the numbers of one server."""
    found: dict[str, Any] = next(each for each in report["servers"] if each["name"] == name)
    return found


def test_calls_are_counted_in_steps_of_a_minute() -> None:
    clock = Clock()
    metrics = Metrics(clock)
    for outcome in ("ok", "tool-error", "error", "lost", "cancelled", "denied"):
        metrics.add(act(outcome=outcome))
    clock.now += 60
    metrics.add(act())
    report = metrics.report(3600, ["a", "idle"])
    assert (report["at"], report["step"]) == (clock.now, 60)
    found = one(report)
    assert found["calls"][-2:] == [5, 1]
    assert found["errors"][-2:] == [3, 0]
    assert found["tokens"][-1] == 101
    assert len(found["calls"]) == 60
    assert found["totals"]["denied"] == 1
    assert found["p50"][0] is None
    assert one(report, "idle")["totals"] == {
        **dict.fromkeys(("calls", "errors", "denied", "tokens"), 0),
        **dict.fromkeys(("p50", "p95", "p99")),
    }


@pytest.mark.parametrize(
    ("window", "step", "points"),
    [(60, 60, 1), (600, 60, 10), (3600, 60, 60), (7200, 120, 60), (LONGEST_WINDOW, 1440, 60), (5400, 120, 45)],
)
def test_a_chart_has_at_most_sixty_steps(window: int, step: int, points: int) -> None:
    clock = Clock()
    metrics = Metrics(clock)
    metrics.add(act())
    report = metrics.report(window, [])
    assert report["step"] == step
    assert [len(one(report)[name]) for name in ("calls", "errors", "p50", "p95", "p99", "tokens")] == [points] * 6
    assert sum(one(report)["calls"]) == 1


def test_a_percentile_is_at_most_five_percent_off() -> None:
    metrics = Metrics(Clock())
    chance = random.Random(7)
    latencies = [chance.lognormvariate(-4, 2) for _ in range(20_000)]
    for seconds in latencies:
        metrics.add(act(seconds))
    totals = one(metrics.report(60, []))["totals"]
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        exact = sorted(latencies)[int(share * len(latencies))] * 1000
        assert totals[name] == pytest.approx(exact, rel=0.06)


def test_extreme_latencies_have_a_place() -> None:
    metrics = Metrics(Clock())
    for seconds in (0.0, 1e-9, 1e9):
        metrics.add(act(seconds))
    totals = one(metrics.report(60, []))["totals"]
    assert totals["p50"] < 0.11
    assert totals["p99"] > 3_600_000


def test_what_is_older_than_a_day_is_forgotten() -> None:
    clock = Clock()
    metrics = Metrics(clock)
    metrics.add(act())
    clock.now += LONGEST_WINDOW + 60
    metrics.add(act())
    assert len(metrics._servers["a"]) == 1
    assert one(metrics.report(LONGEST_WINDOW, []))["totals"]["calls"] == 1


def test_memory_is_bounded_however_many_calls_and_servers_there_are() -> None:
    clock = Clock()
    metrics = Metrics(clock)
    for number in range(600):
        metrics.add(act(server=f"s{number}"))
    assert len(metrics._servers) == 500
    clock.now += LONGEST_WINDOW + 60
    metrics.add(act(server="new"))
    assert list(metrics._servers) == ["new"]


async def test_calls_of_the_host_are_counted(tmp_path: Path) -> None:
    rules = policy('[[rule]]\neffect = "deny"\nserver = "library"\ntool = "lend"\n')
    async with on_console({"library": library()}, tmp_path, policy=rules) as console:
        client = console.client()
        async with client.listen():
            await client.call("tool", "library/find", {"title": "Emma"})
            await client.call("tool", "library/lend", {"title": "Emma"})
        totals = one(await client.get("/metrics"), "library")["totals"]
        assert (totals["calls"], totals["errors"], totals["denied"]) == (1, 0, 1)
        assert totals["tokens"] > 10
        assert totals["catalog_tokens"] > 50
        assert totals["p50"] > 0


@pytest.mark.parametrize("window", ["0", "x", "-1", "86401"])
async def test_a_window_must_be_sensible(window: str, tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path) as console:
        failed = await refused(console.client().get("/metrics", window=window))
        assert failed.code == "invalid_request"


async def test_a_closed_console_has_no_subscription(tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path) as console:
        before = len(console.console.core.events.subscriptions)
        await console.console.part(MetricsPart).aclose()
        assert len(console.console.core.events.subscriptions) == before - 1
