"""The metrics of the backplanes of a process: what each has counted, read when the metrics are requested.

Without a backplane they have no samples. No label has the name of a key, a session or a caller.
"""

from __future__ import annotations

from collections.abc import Sequence

from trunkline.backplane.interface import Backplane
from trunkline.backplane.stats import BackplaneStats
from trunkline.telemetry.metrics import MetricsRegistry

__all__ = ["BackplaneMetrics"]


class BackplaneMetrics:
    """The metrics of backplanes."""

    def __init__(self, registry: MetricsRegistry) -> None:
        """Register the metrics."""
        self._operations = registry.counter(
            "trunkline_backplane_operations_total", "Operations on what the workers share, by outcome.", ("outcome",)
        )
        self._seconds = registry.counter(
            "trunkline_backplane_operation_seconds_total", "Seconds that these operations took together."
        )
        self._reconnects = registry.counter(
            "trunkline_backplane_reconnects_total", "How often it could be reached again after it could not."
        )
        self._reachable = registry.gauge(
            "trunkline_backplane_reachable", "1 if every worker reaches what the workers share.", merge="min"
        )
        self._last = registry.gauge(
            "trunkline_backplane_last_success_time_seconds",
            "When the worker that was served longest ago had its last answer, since the epoch.",
            merge="min",
        )

    def collect(self, backplanes: Sequence[Backplane]) -> None:
        """Read what backplanes have counted."""
        found = [
            (each, stats) for each in backplanes if isinstance(stats := getattr(each, "stats", None), BackplaneStats)
        ]
        if not found:
            for metric in (self._operations, self._seconds, self._reconnects, self._reachable, self._last):
                metric.values = {}
            return
        counts = [each for _, each in found]
        self._operations.values = {
            ("ok",): sum(each.done for each in counts),
            ("error",): sum(each.failed for each in counts),
        }
        self._seconds.values = {(): sum(each.seconds for each in counts)}
        self._reconnects.values = {(): sum(each.reconnects for each in counts)}
        self._reachable.set(int(all(each.available for each, _ in found)))
        self._last.set(min(each.last_success for each in counts))
