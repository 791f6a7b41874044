"""Metrics as such: the text that Prometheus reads, and labels that stay bounded."""

from __future__ import annotations

import pytest

from tests.telemetry.support import samples
from trunkline.telemetry.metrics import LabelLimit, MetricsRegistry


def test_a_parser_reads_what_was_counted() -> None:
    registry = MetricsRegistry()
    calls = registry.counter("calls_total", "Calls.", ("tool", "outcome"))
    open_ = registry.gauge("open", "Open.")
    calls.add(("add", "ok"))
    calls.add(("add", "ok"))
    open_.set(2.5)
    found = samples(registry.text())
    assert (found.value("calls_total", tool="add", outcome="ok"), found.value("open")) == (2, 2.5)


@pytest.mark.parametrize("value", ['"', "\\", "\n", 'a"b\\n\nc', "}", ",", "é"])
def test_any_label_value_survives(value: str) -> None:
    registry = MetricsRegistry()
    registry.gauge("g", "Help with \\ and \n.", ("name",)).set(1, (value,))
    assert samples(registry.text()).value("g", name=value) == 1


def test_the_buckets_of_a_histogram_are_cumulative() -> None:
    registry = MetricsRegistry()
    seconds = registry.histogram("s", "Seconds.", ("m",))
    for value in (0.001, 0.002, 5, 1000):
        seconds.observe(value, ("x",))
    found = samples(registry.text())
    assert [found.value("s_bucket", m="x", le=le) for le in ("0.001", "0.0025", "5", "60", "+Inf")] == [
        1,
        2,
        3,
        3,
        4,
    ]
    assert found.value("s_count", m="x") == 4
    assert found.value("s_sum", m="x") == pytest.approx(1005.003)


def test_labels_beyond_the_limit_are_other() -> None:
    limit = LabelLimit(2)
    assert [limit(each) for each in ("a", "b", "c", "a", "d")] == ["a", "b", "other", "a", "other"]


def test_a_collector_is_called_when_the_text_is_requested() -> None:
    registry = MetricsRegistry()
    gauge = registry.gauge("g", "G.")
    registry.collect(lambda: gauge.add())
    registry.text()
    assert samples(registry.text()).value("g") == 2


def test_a_name_is_registered_once() -> None:
    registry = MetricsRegistry()
    registry.gauge("g", "G.")
    with pytest.raises(ValueError, match="registered already"):
        registry.counter("g", "G.")
