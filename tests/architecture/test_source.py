"""Every module of the package, held to the rules."""

from __future__ import annotations

from pathlib import Path

import pytest

import trunkline
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

MODULES = [pytest.param(module, id=module.name) for module in modules(Path(trunkline.__file__).parent)]

each_module = pytest.mark.parametrize("module", MODULES)


@each_module
def test_a_module_imports_only_what_its_layer_may_know(module: Module) -> None:
    assert import_faults(module) == []


@each_module
def test_a_module_holds_no_revision_date(module: Module) -> None:
    assert date_faults(module) == []


@each_module
def test_a_module_and_its_functions_stay_under_their_ceilings(module: Module) -> None:
    assert size_faults(module) == []


@each_module
def test_a_module_says_what_it_is(module: Module) -> None:
    assert docstring_faults(module) == []


@each_module
def test_a_module_lists_its_public_names_in_order(module: Module) -> None:
    assert all_faults(module) == []


@each_module
def test_a_number_at_module_level_has_its_reason_beside_it(module: Module) -> None:
    assert constant_faults(module) == []


@each_module
def test_a_module_keeps_nothing_that_can_change(module: Module) -> None:
    assert mutable_faults(module) == []


@pytest.mark.parametrize("name", trunkline.__all__)
def test_a_friendly_name_can_be_imported(name: str) -> None:
    assert getattr(trunkline, name) is not None


def test_the_friendly_names_are_shown_by_dir() -> None:
    assert set(trunkline.__all__) <= set(dir(trunkline))


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = trunkline.no_such_name  # type: ignore[attr-defined]
