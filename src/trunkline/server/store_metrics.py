"""The metrics of the stores of a process: what each has counted, read when the metrics are requested.

An engine that counts nothing, such as memory, has no samples. No label has the name of a key, a session or a caller.
"""

from __future__ import annotations

from collections.abc import Sequence

from trunkline.store.interface import Store
from trunkline.store.stats import StoreStats
from trunkline.telemetry.metrics import MetricsRegistry

__all__ = ["StoreMetrics"]


class StoreMetrics:
    """The metrics of stores."""

    def __init__(self, registry: MetricsRegistry) -> None:
        """Register the metrics."""
        self._operations = registry.counter(
            "trunkline_store_operations_total", "Operations on the store, by outcome.", ("outcome",)
        )
        self._seconds = registry.counter(
            "trunkline_store_operation_seconds_total", "Seconds that these operations took together."
        )
        self._reconnects = registry.counter(
            "trunkline_store_reconnects_total", "How often it could be reached again after it could not."
        )
        self._reachable = registry.gauge(
            "trunkline_store_reachable", "1 if every worker reaches the store.", merge="min"
        )
        self._last = registry.gauge(
            "trunkline_store_last_success_time_seconds",
            "When the worker that was served longest ago had its last answer, since the epoch.",
            merge="min",
        )

    def collect(self, stores: Sequence[Store | None]) -> None:
        """Read what stores have counted; None for one that is not open."""
        counted = [
            (store, stats)
            for store in stores
            if store is not None and isinstance(stats := getattr(store, "stats", None), StoreStats)
        ]
        if not counted:
            for metric in (self._operations, self._seconds, self._reconnects, self._reachable, self._last):
                metric.values = {}
            return
        counts = [stats for _, stats in counted]
        self._operations.values = {
            ("ok",): sum(each.done for each in counts),
            ("error",): sum(each.failed for each in counts),
        }
        self._seconds.values = {(): sum(each.seconds for each in counts)}
        self._reconnects.values = {(): sum(each.reconnects for each in counts)}
        self._reachable.set(int(all(store.available for store, _ in counted)))
        self._last.set(min(each.last_success for each in counts))
