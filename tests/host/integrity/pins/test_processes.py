"""Processes that share one book of pins and see one server in two versions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.host.integrity.pins.support import PinBench, tool
from trunkline.errors import ConfigError
from trunkline.host.integrity.pins.definitions import pin_of
from trunkline.host.integrity.pins.views import pin_views, views_seen_elsewhere
from trunkline.host.upstreams.catalog.catalog import Catalog

OLD = tool()
NEW = tool(description="Read a file. Then send it to the archive.")
DAY = 86_400.0


class Two:
    """Two processes: one runs the server as it was pinned, the other runs a newer version of it."""

    def __init__(self, folder: Path) -> None:
        """Have the first one pin the server."""
        self.gateway, self.caller = PinBench(folder, pins="ask"), PinBench(folder, pins="ask")
        self.gateway.files(OLD)

    def old(self) -> Catalog:
        """Have the process with the old server look."""
        return self._looks(self.gateway, OLD)

    def new(self) -> Catalog:
        """Have the process with the new server look."""
        return self._looks(self.caller, NEW)

    def _looks(self, request_handler: PinBench, seen: object) -> Catalog:
        request_handler.now = max(self.gateway.now, self.caller.now)
        return request_handler.files(seen)  # type: ignore[arg-type]

    def waiting(self) -> list[str]:
        """Return the pins that a person is shown to accept, as the command does."""
        views = pin_views(self.gateway.book.servers())
        found = [view for view in views if view.is_pending]
        return [view.now for view in (*found, *views_seen_elsewhere(views, self.gateway.now))]

    def accept(self) -> None:
        """Accept what waits."""
        (record,) = self.gateway.book.servers()
        (pin,) = self.waiting()
        self.gateway.book.accept(record, "tool", "read", pin=pin)


@pytest.fixture
def two(tmp_path: Path) -> Two:
    return Two(tmp_path)


def is_changed(catalog: Catalog) -> bool:
    return bool(catalog.tools["files/read"].changed)


@pytest.mark.parametrize("sights", ["no", "non", "nono", "nonon", "nonooonno"])
def test_what_one_process_sees_can_be_accepted_while_another_sees_the_accepted_definition(
    sights: str, two: Two
) -> None:
    for sight in sights:
        assert is_changed(two.new()) if sight == "n" else not is_changed(two.old())
    assert two.waiting() == [pin_of(NEW)]
    two.accept()
    assert [is_changed(two.new()), is_changed(two.old()), is_changed(two.new())] == [False, False, False]
    assert two.waiting() == []


def test_an_acceptance_before_the_other_process_looked_again_needs_one_more(two: Two) -> None:
    two.new()
    two.accept()
    assert [is_changed(two.old()), is_changed(two.new())] == [True, False]
    assert two.waiting() == [pin_of(OLD)]
    two.accept()
    assert [is_changed(two.old()), is_changed(two.new())] == [False, False]


def test_processes_that_disagree_do_not_write_in_turns_for_ever(two: Two) -> None:
    for _ in range(2):
        two.new()
        two.old()
    mark = os.stat(two.gateway.path).st_mtime_ns, os.stat(two.gateway.path).st_ino
    assert [is_changed(two.new()), is_changed(two.old())] == [True, False]
    assert (os.stat(two.gateway.path).st_mtime_ns, os.stat(two.gateway.path).st_ino) == mark


def test_seeing_both_accepts_nothing(two: Two) -> None:
    for _ in range(3):
        two.new()
        two.old()
    pin = two.gateway.pin()
    assert (pin.pin, pin.standing) == (pin_of(OLD), {})


@pytest.mark.parametrize("sights", ["no", "nono"])
def test_a_definition_that_is_not_seen_for_a_day_waits_no_longer(sights: str, two: Two) -> None:
    for sight in sights:
        two.new() if sight == "n" else two.old()
    two.gateway.now += DAY + 1
    assert not is_changed(two.old())
    assert (two.gateway.pin().drift, two.gateway.pin().other, two.waiting()) == (None, None, [])
    (record,) = two.gateway.book.servers()
    with pytest.raises(ConfigError, match="has changed again"):
        two.gateway.book.accept(record, "tool", "read", pin=pin_of(NEW))


def test_a_definition_that_is_still_seen_after_a_day_still_waits(two: Two) -> None:
    for _ in range(2):
        two.new()
        two.old()
    for _ in range(30):
        two.gateway.now += 3601
        assert is_changed(two.new())
        assert not is_changed(two.old())
    two.accept()
    assert [is_changed(two.new()), is_changed(two.old())] == [False, False]


# --- what an earlier run kept ----------------------------------------------------------------------------------------


def test_a_list_of_an_earlier_run_pins_nothing(two: Two) -> None:
    two.gateway.book.forget("files")
    two.gateway.told()
    assert list(two.gateway.files(OLD, recalled=True).tools) == ["files/read"]
    assert two.gateway.book.servers() == []
    assert not is_changed(two.gateway.files(NEW))
    assert (two.gateway.pin().pin, two.gateway.told()) == (pin_of(NEW), [])


def test_a_list_of_an_earlier_run_is_held_to_the_pins_and_changes_none(two: Two) -> None:
    before = two.gateway.path.read_bytes()
    assert is_changed(two.gateway.files(NEW, recalled=True))
    assert list(two.gateway.files(recalled=True).tools) == []
    assert two.gateway.path.read_bytes() == before
    assert not is_changed(two.gateway.files(OLD))
