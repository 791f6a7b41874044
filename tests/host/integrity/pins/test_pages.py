"""Pins and the pages of tools: named only to clients that show pages, and never changed unnoticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from tests.host.integrity.pins.support import PinBench, tool
from trunkline.host.integrity.pins.definitions import pin_of, pin_without_page
from trunkline.host.integrity.pins.records import pin_changes
from trunkline.host.integrity.pins.store import LockedPin, PinLock

PANEL: dict[str, Any] = {"ui": {"resourceUri": "ui://a/panel"}}
OTHER: dict[str, Any] = {"ui": {"resourceUri": "ui://a/other"}}
FLAT: dict[str, Any] = {"ui/resourceUri": "ui://a/panel"}
APP_ONLY: dict[str, Any] = {"ui": {"resourceUri": "ui://a/panel", "visibility": ["app"]}}


def paged(meta: dict[str, Any] | None, **members: Any) -> t.Tool:
    return tool(meta=meta, **members)


@pytest.fixture
def bench(tmp_path: Path) -> PinBench:
    return PinBench(tmp_path, pins="warn")


def test_the_pin_without_a_page_is_that_of_the_same_tool_where_no_pages_are_shown() -> None:
    assert pin_without_page(paged(PANEL)) == pin_of(paged(None))
    assert pin_without_page(paged({**PANEL, "team": "maps"})) == pin_of(paged({"team": "maps"}))
    assert pin_without_page(paged(None)) is None
    assert pin_without_page(paged(APP_ONLY)) is None
    assert pin_without_page("a text") is None


@pytest.mark.parametrize(
    ("seen", "changed"),
    [
        ([None, PANEL], False),
        ([None, PANEL, None, PANEL], False),
        ([PANEL, None, PANEL], False),
        ([FLAT, None], False),
        ([{**PANEL, "team": "maps"}, {"team": "maps"}], False),
        ([{"ui": {"visibility": ["model"]}}, None], False),
        ([None, PANEL, OTHER], True),
        ([None, PANEL, None, OTHER], True),
        ([PANEL, OTHER], True),
        ([PANEL, None, OTHER], True),
        ([PANEL, FLAT], True),
        ([PANEL, APP_ONLY], True),
        ([None, APP_ONLY], True),
        ([APP_ONLY, PANEL], True),
        ([APP_ONLY, None], True),
        ([{**PANEL, "team": "maps"}, PANEL], True),
        ([None, {**PANEL, "team": "maps"}], True),
    ],
)
def test_a_page_that_is_not_shown_is_no_change_and_another_page_is(
    bench: PinBench, seen: list[dict[str, Any] | None], changed: bool
) -> None:
    for meta in seen:
        catalog = bench.files(paged(meta))
    assert bool(catalog.tools["files/read"].changed) is changed


def test_a_tool_with_its_page_has_the_pin_that_was_accepted_so_grants_apply(bench: PinBench) -> None:
    before = bench.files(paged(None)).tools["files/read"].pin
    item = bench.files(paged(PANEL)).tools["files/read"]
    assert (item.pin, item.app_uri) == (before, "ui://a/panel")


def test_a_changed_page_is_shown_as_the_change_of_one_member(bench: PinBench) -> None:
    bench.files(paged(None))
    bench.files(paged(PANEL))
    bench.files(paged(OTHER))
    [change] = pin_changes(bench.pin())
    assert "resourceUri" in str(change)
    assert "ui://a/other" in str(change)


def test_an_accepted_page_is_accepted_with_and_without_it(bench: PinBench) -> None:
    for meta in (None, PANEL, OTHER):
        bench.files(paged(meta))
    bench.accept("files/read")
    assert bench.pin().page is None
    for meta in (OTHER, None, OTHER):
        assert bench.files(paged(meta)).tools["files/read"].changed == ()
    assert bench.files(paged(PANEL)).tools["files/read"].changed != ()


def test_what_is_known_of_a_page_outlives_the_process(bench: PinBench) -> None:
    bench.files(paged(None))
    bench.files(paged(PANEL))
    bench.restart()
    assert bench.files(paged(OTHER)).tools["files/read"].changed != ()


def test_a_definition_that_is_too_large_to_keep_still_has_its_page_checked(bench: PinBench) -> None:
    bench.restart(scanning="off")
    long = "word " * 20_000
    bench.files(paged(None, description=long))
    assert bench.files(paged(PANEL, description=long)).tools["files/read"].changed != ()


@pytest.mark.parametrize(("meta", "served"), [(None, True), (PANEL, True), (APP_ONLY, False)])
def test_a_lock_file_that_was_written_without_pages_holds_for_a_tool_with_one(
    bench: PinBench, meta: dict[str, Any] | None, served: bool
) -> None:
    bench.restart(lock=PinLock(servers={"files": {"tool": {"read": LockedPin(pin_of(paged(None)))}}}))
    assert ("files/read" in bench.files(paged(meta)).tools) is served
