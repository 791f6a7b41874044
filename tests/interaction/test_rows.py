"""Every test of this folder is the test of one row, and a row names its place in the specification."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from pathlib import Path

from tests.interaction.rows import ALL, Row

HERE = Path(__file__)
ROWS: dict[str, Row | None] = {
    f"{path.stem}.{name}": getattr(value, "row", None)
    for path in sorted(HERE.parent.glob("test_*.py"))
    if path != HERE
    for name, value in vars(import_module(f"tests.interaction.{path.stem}")).items()
    if name.startswith("test_")
}


def test_every_test_has_a_row() -> None:
    assert [name for name, row in ROWS.items() if row is None] == []


def test_no_id_is_used_twice() -> None:
    ids = Counter(row.id for row in ROWS.values() if row is not None)
    assert [id for id, count in ids.items() if count > 1] == []


def test_every_row_has_a_revision_and_a_page_of_the_specification() -> None:
    places = {row.id: row.spec.partition(" ") for row in ROWS.values() if row is not None}
    assert [id for id, (revision, _, page) in places.items() if revision not in ALL or not page] == []


def test_every_row_runs_somewhere() -> None:
    assert [row.id for row in ROWS.values() if row is not None and not row.legs()] == []
