"""Roots by server: what is configured, what changes while the host runs, and how servers of both eras learn of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import trunkline.types as t
from tests.host.asking import entry
from trunkline.errors import ConfigError
from trunkline.host.roots import Roots, root_text


def uris(roots: list[t.Root] | None) -> list[str]:
    """Give the URIs of roots that there are."""
    assert roots is not None
    return [root.uri for root in roots]


# --- the list ---------------------------------------------------------------------------------------------------------


def test_a_server_without_any_has_those_of_whoever_calls() -> None:
    assert Roots().of(entry()) is None
    assert Roots().paths(entry()) == ()


def test_what_is_configured_holds_and_what_is_added_comes_after_it() -> None:
    roots, own = Roots(), entry(roots=("/srv/a", "file:///srv/b"))
    assert roots.add("notes", "/srv/c")
    assert uris(roots.of(own)) == ["file:///srv/a", "file:///srv/b", "file:///srv/c"]
    assert roots.paths(own) == ("/srv/a", "/srv/b", "/srv/c")


def test_a_root_is_added_to_one_server_alone() -> None:
    roots = Roots()
    roots.add("notes", "/srv/c")
    assert roots.of(entry("other")) is None


def test_what_is_there_already_is_no_news() -> None:
    roots = Roots()
    assert roots.add("notes", "/srv/c")
    assert not roots.add("notes", "file:///srv/c")
    assert roots.paths(entry()) == ("/srv/c",)


@pytest.mark.parametrize("written", ["/srv/a", "file:///srv/a", "/srv/x/../a"])
def test_a_root_is_removed_however_it_is_written(written: str) -> None:
    roots, own = Roots(), entry(roots=("/srv/a", "/srv/b"))
    assert roots.remove(own, written)
    assert roots.paths(own) == ("/srv/b",)
    assert not roots.remove(own, written)


def test_a_root_that_was_removed_may_be_added_again() -> None:
    roots, own = Roots(), entry(roots=("/srv/a",))
    roots.remove(own, "/srv/a")
    assert roots.of(own) == []
    assert roots.add("notes", "/srv/a")
    assert roots.paths(own) == ("/srv/a",)


@pytest.mark.parametrize(
    ("written", "path"),
    [
        pytest.param("/srv/x/../a", "/srv/a", id="dots"),
        pytest.param(Path("/srv/a"), "/srv/a", id="path"),
        pytest.param(t.Root(uri="file:///srv/a%20b"), "/srv/a b", id="root"),
        pytest.param("file://localhost/srv/%2e%2e/a", "/a", id="escaped-dots"),
    ],
)
def test_a_root_is_an_absolute_path(written: object, path: str) -> None:
    assert root_text(written) == path


@pytest.mark.parametrize(
    "written",
    ["https://example.com/", "file://server/share", "file:relative", "file:///a?b", "file:///a%00b", "a\0b", "", 7],
)
def test_what_is_no_folder_of_this_machine_is_no_root(written: object) -> None:
    with pytest.raises(ConfigError):
        root_text(written)
