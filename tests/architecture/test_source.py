"""Every module of the package, held to the rules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.architecture.rules import (
    Module,
    all_faults,
    constant_faults,
    date_faults,
    docstring_faults,
    import_faults,
    modules,
    mutable_faults,
    size_faults,
)


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(import_faults, id="imports only what its layer may know"),
        pytest.param(date_faults, id="holds no revision date"),
        pytest.param(size_faults, id="stays under the ceilings of modules and functions"),
        pytest.param(docstring_faults, id="says what it is"),
        pytest.param(all_faults, id="lists its public names in order"),
        pytest.param(constant_faults, id="has the reason beside a number"),
        pytest.param(mutable_faults, id="keeps nothing that can change"),
    ],
)
def test_every_module_keeps_a_rule(faults: Callable[[Module], list[str]], source: tuple[Module, ...]) -> None:
    assert [fault for module in source for fault in faults(module)] == []


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(date_faults, id="holds no revision date"),
        pytest.param(size_faults, id="stays under the ceilings of modules and functions"),
        pytest.param(docstring_faults, id="says what it is"),
        pytest.param(constant_faults, id="has the reason beside a number"),
    ],
)
def test_every_module_of_compat_keeps_a_rule(faults: Callable[[Module], list[str]]) -> None:
    compat = Path(__file__).parents[2] / "compat" / "src" / "trunkline_compat"
    assert [fault for module in modules(compat) for fault in faults(module)] == []


def test_the_rules_see_the_whole_package(source: tuple[Module, ...]) -> None:
    assert {"trunkline", "trunkline.protocol.peer", "trunkline.cli.main"} <= {module.name for module in source}
