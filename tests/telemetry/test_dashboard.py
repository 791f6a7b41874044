"""The Grafana dashboard: every metric and label that it names exists, and every metric is on it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.host.gateway.support import on_stage
from trunkline import Server
from trunkline.host.gateway.metrics import GatewayMetrics
from trunkline.telemetry.listener import MetricsListener

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana-dashboard.json"
_NAME = re.compile(r"\b((?:trunkline|process)_\w+)")
_BY = re.compile(r"by \(([^)]*)\)")
#: Set by Prometheus, or part of every histogram.
_LABELS = {"job", "instance", "le"}


def _expressions() -> list[str]:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    variables = [each["query"]["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())] + variables


def _base(name: str, known: set[str]) -> str:
    return name if name in known else re.sub(r"_(bucket|sum|count)$", "", name)


async def _metrics(folder: Path) -> dict[str, tuple[str, ...]]:
    """Return the labels of every metric of a gateway, which has all that a server has."""
    async with on_stage({"s": Server("s")}, folder) as stage:
        metrics = GatewayMetrics(stage.gateway.core)
        MetricsListener(metrics.registry, metrics.not_ready)
        stage.gateway.core.supervisor.measure_calls(None)
        return {each.name: each.labels for each in metrics.registry.metrics}


async def test_every_metric_is_on_the_dashboard_and_every_name_and_label_there_exists(tmp_path: Path) -> None:
    known = await _metrics(tmp_path)
    named = {_base(name, set(known)) for text in _expressions() for name in _NAME.findall(text)}
    assert named == set(known)
    for text in _expressions():
        labels = {label for name in _NAME.findall(text) for label in known[_base(name, set(known))]} | _LABELS
        assert {each.strip() for group in _BY.findall(text) for each in group.split(",")} <= labels, text


def _panels() -> Iterator[dict[str, Any]]:
    yield from json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = list(_panels())
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
