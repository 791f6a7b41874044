"""Differences from the official servers are documented, word for word as in the drop-in comparison."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.interop.dropin import harness

DOCS = Path(__file__).parents[2] / "docs" / "servers"
SCRIPTS = sorted(
    path.stem for path in Path(harness.__file__).parent.glob("*.py") if path.stem not in ("__init__", "harness")
)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_reason_for_a_difference_stands_on_the_servers_page(name: str) -> None:
    script: harness.Script = importlib.import_module(f"tests.interop.dropin.{name}").SCRIPT
    page = " ".join((DOCS / f"{name}.md").read_text(encoding="utf-8").split())

    assert [reason for reason in set(script.differences.values()) if reason not in page] == []


def test_differences_of_every_server_are_documented_once() -> None:
    page = " ".join((DOCS / "README.md").read_text(encoding="utf-8").split())

    assert [reason for reason in set(harness.COMMON.values()) if reason not in page] == []
