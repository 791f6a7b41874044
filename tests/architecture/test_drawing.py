"""The drawing in ARCHITECTURE.md is the one the tables give."""

from __future__ import annotations

from docs.draw_states import PAGE, redrawn


def test_the_states_are_drawn_as_the_tables_have_them() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert redrawn(page) == page, "run: python docs/draw_states.py"


def test_the_page_has_a_place_for_the_drawing() -> None:
    assert "stateDiagram-v2" in redrawn(PAGE.read_text(encoding="utf-8"))
