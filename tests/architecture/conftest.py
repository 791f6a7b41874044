"""The parsed source, and call paths of a program that does not trace, whatever other tests have loaded."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import trunkline
from tests.architecture import rules
from tests.architecture.rules import Module


@pytest.fixture(autouse=True)
def _not_traced(monkeypatch: pytest.MonkeyPatch, without_collector: None) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace", raising=False)


@pytest.fixture(scope="package")
def source() -> Iterator[tuple[Module, ...]]:
    """Every module of the package, parsed once for all rules."""
    modules = tuple(rules.modules(Path(trunkline.__file__).parent))
    # The collector would walk all trees that are there already, again and again.
    gc.disable()
    try:
        assert all(module.tree for module in modules)
    finally:
        gc.enable()
    yield modules
    rules._parsed.cache_clear()
