"""All rows, by id; one module an area, each with its rows sorted."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType

from tests.interaction.rows import Row

__all__ = ["AREAS", "ROWS"]


def _areas() -> dict[str, tuple[Row, ...]]:
    names = sorted(module.name for module in iter_modules(__path__))
    return {name: import_module(f"{__name__}.{name}").ROWS for name in names}


#: The rows of each module, in the order they stand there.
AREAS: Mapping[str, tuple[Row, ...]] = MappingProxyType(_areas())
ROWS: Mapping[str, Row] = MappingProxyType({row.id: row for rows in AREAS.values() for row in rows})
