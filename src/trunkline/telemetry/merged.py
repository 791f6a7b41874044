"""The metrics of several workers as one: what each reports, and the sums of all.

Counters and histograms are added up, and those of a worker that has ended stay in the sum, so that they never go back.
Gauges are added up too, unless they say otherwise: what every worker reports about the same thing is counted once.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from operator import add
from types import MappingProxyType

import msgspec
from msgspec import Struct

from trunkline.telemetry.listener import add_readiness
from trunkline.telemetry.metrics import Metric, MetricsRegistry, header_lines, sample_line

__all__ = ["MergedMetrics", "MetricsReporter", "WorkerReport", "report_frame"]

_LENGTH = struct.Struct(">I")
#: For the last report of a worker that ends; its supervisor reads at once.
_LAST_SECONDS = 2.0
_Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class _Family(Struct, frozen=True, array_like=True):
    """One metric of a worker."""

    name: str
    help: str
    kind: str
    merge: str
    samples: list[tuple[str, list[tuple[str, str]], float]]


class WorkerReport(Struct, frozen=True, array_like=True):
    """What a worker reports about itself."""

    #: Why it is not ready; None if it is.
    not_ready: str | None
    families: list[_Family]


def report_frame(registry: MetricsRegistry, not_ready: str | None) -> bytes:
    """Return the report of a worker as it is sent: its length, and its content."""
    families = [
        _Family(each.name, each.help, each.kind, each.merge, [(n, list(labels.items()), v) for n, labels, v in samples])
        for each, samples in ((each, each.samples()) for each in registry.collected())
    ]
    body = msgspec.msgpack.encode(WorkerReport(not_ready, families))
    return _LENGTH.pack(len(body)) + body


class MergedMetrics:
    """The metrics of all workers."""

    def __init__(self) -> None:
        """Start without workers."""
        self._reports: dict[int, WorkerReport] = {}
        #: The families in the order in which they were first seen, and the sums of the workers that have ended.
        self._known: dict[str, _Family] = {}
        self._ended: dict[str, _Samples] = {}

    def reported(self, worker: int, report: bytes) -> None:
        """Store the newest report of a worker."""
        found = self._reports[worker] = msgspec.msgpack.decode(report, type=WorkerReport)
        for family in found.families:
            self._known.setdefault(family.name, family)

    def ended(self, worker: int) -> None:
        """Keep the counts of a worker that has ended."""
        report = self._reports.pop(worker, None)
        if report is None:
            return
        for family in report.families:
            if family.kind != "gauge":
                kept = self._ended.get(family.name, {})
                self._ended[family.name] = _merged(_MERGE[family.merge], [_samples(family)], kept)

    def not_ready(self) -> str | None:
        """Return why no worker is ready; None if one is."""
        reasons = [report.not_ready for report in self._reports.values()]
        if None in reasons:
            return None
        return reasons[0] if reasons else "no worker is ready yet"

    def text(self) -> str:
        """Return all values in the exposition format."""
        lines: list[str] = []
        for name, known in self._known.items():
            lines += header_lines(Metric(name, known.help), known.kind)
            families = [each for report in self._reports.values() for each in report.families if each.name == name]
            values = _merged(_MERGE[known.merge], map(_samples, families), self._ended.get(name, {}))
            lines += (sample_line(sample, dict(labels), value) for (sample, labels), value in values.items())
        workers = Metric("trunkline_workers", "Workers that report.")
        lines += [*header_lines(workers, "gauge"), sample_line(workers.name, {}, len(self._reports))]
        return "\n".join(lines) + "\n"


_MERGE: Mapping[str, Callable[[float, float], float]] = MappingProxyType({"sum": add, "max": max, "min": min})


def _samples(family: _Family) -> _Samples:
    return {(name, tuple(labels)): value for name, labels, value in family.samples}


def _merged(merge: Callable[[float, float], float], parts: Iterable[_Samples], kept: _Samples) -> _Samples:
    values = dict(kept)
    for part in parts:
        for key, value in part.items():
            values[key] = merge(values[key], value) if key in values else value
    return values


class MetricsReporter:
    """Reports the metrics of a worker to its supervisor: whenever it asks, and at the end."""

    def __init__(
        self, registry: MetricsRegistry, not_ready: Callable[[], str | None], supervisor: socket.socket
    ) -> None:
        """Report on a socket; ``not_ready`` returns why the worker is not ready, or None if it is."""
        self._registry = registry
        self._not_ready = not_ready
        self._socket = supervisor
        self._sending: set[asyncio.Task[None]] = set()
        add_readiness(registry, not_ready)

    def start(self) -> None:
        """Begin to report; needs a running event loop."""
        self._socket.setblocking(False)
        asyncio.get_running_loop().add_reader(self._socket, self._asked)

    async def aclose(self) -> None:
        """Report for the last time."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LAST_SECONDS):
                if self._sending:
                    await asyncio.wait(self._sending)
                await loop.sock_sendall(self._socket, report_frame(self._registry, self._not_ready()))

    def _asked(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            asked = self._socket.recv(1024)
        except BlockingIOError:
            return
        except OSError:
            asked = b""
        if not asked:
            # The supervisor is gone.
            loop.remove_reader(self._socket)
        elif not self._sending:
            # One report answers all questions that came before it is sent.
            task = loop.create_task(self._report())
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _report(self) -> None:
        with suppress(OSError):
            await asyncio.get_running_loop().sock_sendall(self._socket, report_frame(self._registry, self._not_ready()))
