"""The scan: what it finds in hostile definitions, and that it leaves honest ones alone."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.host.scan_corpus import BENIGN, HOSTILE, OTHERS, tool
from trunkline.host.scan import Finding, references_in, scan, scan_references, weigh, worst
from trunkline.host.scan_characters import visible


def judged(document: Any) -> tuple[Finding, ...]:
    others = {name: servers for name, servers in OTHERS.items() if name != document.get("name")}
    return weigh((*scan(document), *scan_references(document, references_in(document), others)))


def told(document: Any) -> list[str]:
    return [str(finding) for finding in judged(document)]


# --- the corpora -----------------------------------------------------------------------------------------------------


def test_the_corpora_are_large_enough() -> None:
    assert (len(BENIGN) >= 60, len(HOSTILE) >= 40) == (True, True)


@pytest.mark.parametrize("name", BENIGN)
def test_an_honest_definition_is_not_hidden(name: str) -> None:
    assert [str(finding) for finding in judged(BENIGN[name]) if finding.severity == "hide"] == []


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_definition_is_found(name: str) -> None:
    assert worst(judged(HOSTILE[name])) in ("ask", "hide")


def test_precision_and_recall_hold(capsys: pytest.CaptureFixture[str]) -> None:
    alarms = [name for name, document in BENIGN.items() if worst(judged(document)) in ("ask", "hide")]
    found = [name for name, document in HOSTILE.items() if worst(judged(document)) in ("ask", "hide")]
    hidden = [name for name in found if worst(judged(HOSTILE[name])) == "hide"]
    precision, recall = len(found) / (len(found) + len(alarms)), len(found) / len(HOSTILE)
    with capsys.disabled():
        figures = f"precision {precision:.3f}, recall {recall:.3f}"
        print(f"\nscan: {len(BENIGN)} honest, {len(HOSTILE)} hostile: {figures}, {len(hidden)} hidden")  # noqa: T201
    assert (precision >= 0.96, recall, alarms) == (True, 1.0, alarms)
