"""Scopes: which callers have them, what they include, and how they are parsed."""

from __future__ import annotations

from typing import Any

import pytest

from trunkline.protocol.caller import (
    MEMORY,
    STDIO,
    STREAM,
    Caller,
    Origin,
    Principal,
    ScopeHierarchy,
    has_scopes,
    parse_scopes,
)
from trunkline.protocol.revisions import NEWEST

TREE = {"admin": ["files:write", "users"], "files:write": "files:read", "users": ["admin"]}


@pytest.mark.parametrize(
    ("granted", "needed", "covered"),
    [
        pytest.param({"a"}, ["a"], True, id="the same"),
        pytest.param({"a", "b"}, ["b"], True, id="one of them"),
        pytest.param({"a"}, ["a", "b"], False, id="one is missing"),
        pytest.param(set(), [], True, id="nothing"),
        pytest.param({"files:write"}, ["files:read"], True, id="a broader one"),
        pytest.param({"files:read"}, ["files:write"], False, id="a narrower one"),
        pytest.param({"admin"}, ["files:read", "users"], True, id="through another"),
        pytest.param({"users"}, ["files:read"], True, id="in a circle"),
        pytest.param({"users"}, ["other"], False, id="in a circle without it"),
        pytest.param({"files:write2"}, ["files:write"], False, id="only the beginning"),
    ],
)
def test_a_scope_implies_the_scopes_of_its_row(granted: set[str], needed: list[str], *, covered: bool) -> None:
    assert ScopeHierarchy(TREE).covers(frozenset(granted), needed) is covered


def test_without_a_table_a_scope_is_itself_alone() -> None:
    assert not ScopeHierarchy().covers(frozenset({"files:write"}), ["files:read"])


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        pytest.param(STDIO, True, id="stdio"),
        pytest.param(MEMORY, True, id="memory"),
        pytest.param(STREAM, False, id="a stream"),
        pytest.param(Origin("http"), False, id="anonymous over http"),
        pytest.param(Origin("sse"), False, id="anonymous over sse"),
        pytest.param(Origin("http", Principal(subject="a")), False, id="principal without it"),
        pytest.param(Origin("memory", Principal(subject="a")), False, id="principal without it in memory"),
        pytest.param(Origin("stream", Principal(subject="a", scopes=frozenset({"x"}))), True, id="principal with it"),
    ],
)
def test_an_anonymous_caller_has_no_scopes_unless_it_is_local(origin: Origin, *, allowed: bool) -> None:
    assert has_scopes(Caller(NEWEST, None, {}, origin), ["x"], ScopeHierarchy()) is allowed


@pytest.mark.parametrize(
    ("given", "scopes"),
    [
        pytest.param(["a", "b", "a"], ("a", "b"), id="list"),
        pytest.param("a b  a", ("a", "b"), id="text"),
        pytest.param(None, (), id="none"),
        pytest.param((), (), id="empty"),
        pytest.param("", (), id="empty text"),
    ],
)
def test_scopes_are_read_from_a_list_or_a_text(given: Any, scopes: tuple[str, ...]) -> None:
    assert parse_scopes(given, "scopes") == scopes


@pytest.mark.parametrize("given", [["a b"], ['a"'], ["a\\"], ["ä"], [""], [7], ["a\n"]])
def test_an_invalid_scope_is_rejected(given: Any) -> None:
    with pytest.raises(TypeError, match=r"scopes: .* is not a scope"):
        parse_scopes(given, "scopes")
