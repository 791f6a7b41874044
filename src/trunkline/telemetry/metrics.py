"""Counters, gauges and histograms, and their text in the exposition format 0.0.4 of Prometheus.

Everything runs in the event loop's thread, so nothing is locked. Values that something else knows already, such as the
number of sessions, are read by collectors when the text is requested, and cost nothing before. Labels are bounded:
``LabelLimit`` replaces values beyond a number of distinct ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, TypeVar

__all__ = [
    "CONTENT_TYPE",
    "OTHER",
    "Counter",
    "Gauge",
    "Histogram",
    "LabelLimit",
    "Metric",
    "MetricsRegistry",
    "header_lines",
    "sample_line",
]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Stands for all label values beyond the limit.
OTHER = "other"

# From a plain call (under a millisecond) to a slow one; few, since each is a series for every method and tool.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

Labels = tuple[str, ...]
Merge = Literal["sum", "max", "min"]


class LabelLimit:
    """Admits a number of distinct label values; all further ones become ``other``."""

    __slots__ = ("_most", "_seen")

    def __init__(self, most: int) -> None:
        """Set the number of distinct values."""
        self._most = most
        self._seen: set[str] = set()

    def __call__(self, value: str) -> str:
        """Return the value, or ``other`` if the limit is reached and the value is a new one."""
        if value in self._seen:
            return value
        if len(self._seen) >= self._most:
            return OTHER
        self._seen.add(value)
        return value


class Metric:
    """A metric: its name, its help text, and the names of its labels."""

    kind = "untyped"
    #: How the values of several workers become one: ``sum``, ``max`` or ``min``.
    merge: Merge = "sum"

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        """Start without values."""
        self.name = name
        self.help = help
        self.labels = tuple(labels)

    def samples(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """Yield the name, labels and value of each sample."""
        yield from ()


class _Values(Metric):
    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, help, labels)
        #: The values by the values of the labels; without labels there is one, which begins at zero.
        self.values: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, labels: Labels = (), by: float = 1) -> None:
        """Add to the value for these labels."""
        self.values[labels] = self.values.get(labels, 0) + by

    def samples(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """Yield one sample for each combination of labels."""
        for labels, value in self.values.items():
            yield self.name, dict(zip(self.labels, labels, strict=True)), value


class Counter(_Values):
    """A number that only grows."""

    kind = "counter"


class Gauge(_Values):
    """A number that goes up and down."""

    kind = "gauge"

    def set(self, value: float, labels: Labels = ()) -> None:
        """Set the value for these labels."""
        self.values[labels] = value

    def replace(self, values: Mapping[Labels, float]) -> None:
        """Replace all values: labels that are not among them are no longer shown."""
        self.values = dict(values)


class _Cell:
    __slots__ = ("counts", "total")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * buckets
        self.total = 0.0


class Histogram(Metric):
    """A distribution of values over buckets."""

    kind = "histogram"

    def __init__(self, name: str, help: str, labels: Sequence[str] = (), *, bounds: Sequence[float] = _SECONDS) -> None:
        """Set the upper bounds of the buckets; the last bucket has none."""
        super().__init__(name, help, labels)
        self._bounds = tuple(bounds)
        self._cells: dict[Labels, _Cell] = {}

    def observe(self, value: float, labels: Labels = ()) -> None:
        """Count a value."""
        cell = self._cells.get(labels)
        if cell is None:
            cell = self._cells[labels] = _Cell(len(self._bounds) + 1)
        cell.counts[bisect_left(self._bounds, value)] += 1
        cell.total += value

    def samples(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """Yield the cumulative buckets, the sum and the count for each combination of labels."""
        bounds = [*(f"{bound:g}" for bound in self._bounds), "+Inf"]
        for values, cell in self._cells.items():
            labels, count = dict(zip(self.labels, values, strict=True)), 0
            for bound, number in zip(bounds, cell.counts, strict=True):
                count += number
                yield f"{self.name}_bucket", {**labels, "le": bound}, count
            yield f"{self.name}_sum", labels, cell.total
            yield f"{self.name}_count", labels, count


M = TypeVar("M", bound=Metric)


class MetricsRegistry:
    """All metrics of a process, and the functions that update some of them when they are requested."""

    def __init__(self) -> None:
        """Start without metrics."""
        self._metrics: dict[str, Metric] = {}
        self._collectors: list[Callable[[], None]] = []

    def counter(self, name: str, help: str, labels: Sequence[str] = (), *, merge: Merge = "sum") -> Counter:
        """Register a counter; ``merge`` is how the values of several workers become one."""
        return self._add(Counter(name, help, labels), merge)

    def gauge(self, name: str, help: str, labels: Sequence[str] = (), *, merge: Merge = "sum") -> Gauge:
        """Register a gauge."""
        return self._add(Gauge(name, help, labels), merge)

    def histogram(self, name: str, help: str, labels: Sequence[str] = ()) -> Histogram:
        """Register a histogram of seconds."""
        return self._add(Histogram(name, help, labels))

    def _add(self, metric: M, merge: Merge = "sum") -> M:
        metric.merge = merge
        if metric.name in self._metrics:
            raise ValueError(f"the metric {metric.name} is registered already")
        self._metrics[metric.name] = metric
        return metric

    def collect(self, collector: Callable[[], None]) -> None:
        """Call a function before each text; it sets the values that it knows."""
        self._collectors.append(collector)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The registered metrics."""
        return tuple(self._metrics.values())

    def collected(self) -> tuple[Metric, ...]:
        """Return the metrics with their current values."""
        for collector in self._collectors:
            collector()
        return self.metrics

    def text(self) -> str:
        """Return all values in the exposition format."""
        lines: list[str] = []
        for metric in self.collected():
            lines += header_lines(metric, metric.kind)
            lines += (sample_line(*sample) for sample in metric.samples())
        return "\n".join(lines) + "\n"


def header_lines(metric: Metric, kind: str) -> tuple[str, str]:
    """Return the lines in front of the samples of a metric."""
    return f"# HELP {metric.name} {_escaped(metric.help)}", f"# TYPE {metric.name} {kind}"


def sample_line(name: str, labels: Mapping[str, str], value: float) -> str:
    """Return the line of a sample."""
    return f"{name}{_labels(labels)} {_number(value)}"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value, quotes=True)}"' for name, value in labels.items()) + "}"


def _escaped(text: str, *, quotes: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
