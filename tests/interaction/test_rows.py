"""The table and the tests hold each other complete: a row has one test, a test has one row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.interaction.rows import ALL, TRANSPORTS, Row
from tests.interaction.tables import AREAS

HERE = Path(__file__)
EVERY_ROW = [row for rows in AREAS.values() for row in rows]


def every_test() -> Iterator[tuple[str, Any]]:
    """Return every test of this folder except those of this file."""
    for path in sorted(HERE.parent.glob("test_*.py")):
        if path != HERE:
            module = import_module(f"tests.interaction.{path.stem}")
            yield from ((f"{path.stem}.{name}", value) for name, value in vars(module).items() if name[:5] == "test_")


def test_every_row_has_exactly_one_test() -> None:
    marked = Counter(getattr(test, "behaviour", None) for _, test in every_test())
    assert {row.id: marked[row.id] for row in EVERY_ROW if marked[row.id] != 1} == {}


def test_every_test_has_a_row() -> None:
    known = {row.id for row in EVERY_ROW}
    assert [name for name, test in every_test() if getattr(test, "behaviour", None) not in known] == []


def test_no_id_is_used_twice() -> None:
    assert [id for id, count in Counter(row.id for row in EVERY_ROW).items() if count > 1] == []


@pytest.mark.parametrize("area", AREAS)
def test_the_rows_of_an_area_are_sorted(area: str) -> None:
    ids = [row.id for row in AREAS[area]]
    assert ids == sorted(ids)


@pytest.mark.parametrize("row", EVERY_ROW, ids=lambda row: row.id)
def test_a_row_has_a_revision_and_a_page_of_the_specification(row: Row) -> None:
    revision, _, page = row.spec.partition(" ")
    assert (revision in ALL, bool(page), row.sentence[-1], set(row.transports) <= set(TRANSPORTS)) == (
        True,
        True,
        ".",
        True,
    )
