"""Call paths are those of a program that does not trace, whatever other tests have loaded in this process."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def _not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace", raising=False)
