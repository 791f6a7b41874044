"""Grants on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
from msgspec.structs import replace

from tests.cli.support import Outcome
from trunkline.cli.cmd_grants import command
from trunkline.cli.exits import Exit, Failure, exit_for
from trunkline.errors import ConfigError
from trunkline.host.judgement.grants import Grant, GrantBook, alike, make_grant
from trunkline.host.policy.acts import Act

ACT = Act(
    kind="tool",
    server="files",
    name="write\x1b[2J",
    arguments={"path": "/a/b", "token": "hunter2"},
    pin="sha256:1",
    principal="ann",
)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Outcome:
    """Run the command by itself."""
    code: int = command.main(list(arguments), prog_name="grants", standalone_mode=False)
    return Outcome(code, *capsys.readouterr())


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GrantBook:
    """The grants of this user."""
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path))
    return GrantBook(tmp_path / "grants.json")


@pytest.fixture
def two(book: GrantBook) -> tuple[Grant, Grant]:
    """Two grants that are kept."""
    match = alike(ACT.arguments, vary="/path", like="/a/**")
    one = make_grant(ACT, "alike", now=1.0, match=match, expires=4e9)
    other = make_grant(ACT, "always", now=2.0, expires=4e9, uses=3)
    book.add(one)
    book.add(other)
    return one, other


def test_grants_are_listed_with_what_they_allow(two: tuple[Grant, Grant], capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "list").out.splitlines()
    assert lines[0].split() == ["ID", "SERVER", "NAME", "FOR", "UNTIL", "ARGUMENTS"]
    assert re.fullmatch(
        rf"{two[0].id}  files   write\\x1b\[2J  ann  2096-\d\d-\d\d \d\d:\d\d +"
        r'/path like /a/\*\*; the others as in \{"path":"/a/b","token":"\*\*\*"\}',
        lines[1],
    )
    assert lines[2].endswith(", 3 more  any")


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"expires": None}, "revoked"),
        ({"profile": "home", "principal": None}, "anybody here in home"),
        ({"match": alike({"a": 1})}, '{"a":1}'),
        ({"match": alike({"a": 1}, vary="/a")}, '/a anything; the others as in {"a":1}'),
    ],
    ids=["for ever", "profile", "exactly", "anything"],
)
def test_a_grant_says_what_it_allows(
    change: dict[str, Any], shown: str, book: GrantBook, capsys: pytest.CaptureFixture[str]
) -> None:
    book.add(replace(make_grant(ACT, "always", now=1.0, expires=4e9), **change))
    assert f"  {shown}" in run(capsys, "list").out


def test_grants_are_listed_as_json_without_secrets(
    two: tuple[Grant, Grant], capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = run(capsys, "list", "--json")
    found = json.loads(outcome.out)["grants"]
    assert [each["id"] for each in found] == [grant.id for grant in two]
    assert found[0]["match"] == {"vary": "/path", "like": "/a/**", "shown": {"path": "/a/b", "token": "***"}}
    assert "hunter2" not in outcome.out


def test_nothing_allowed_is_said(book: GrantBook, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "list") == Outcome(Exit.OK, "", "trunkline: nothing is allowed in advance\n")
    assert json.loads(run(capsys, "list", "--json").out) == {"grants": []}


def test_a_grant_is_taken_back(book: GrantBook, two: tuple[Grant, Grant], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "revoke", two[0].id).out == "took back 1 grant\n"
    assert book.all() == [two[1]]


def test_all_grants_are_taken_back(
    book: GrantBook, two: tuple[Grant, Grant], capsys: pytest.CaptureFixture[str]
) -> None:
    assert json.loads(run(capsys, "revoke", "--all", "--json").out) == {"revoked": 2, "unknown": []}
    assert book.all() == []


def test_a_grant_that_is_not_there_is_a_mistake(
    book: GrantBook, two: tuple[Grant, Grant], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Failure, match="there is no grant nothing: trunkline grants list shows them") as caught:
        run(capsys, "revoke", two[0].id, "nothing")
    assert caught.value.exit == Exit.USAGE
    assert book.all() == [two[1]]


@pytest.mark.parametrize("arguments", [(), ("--all", "x")], ids=["neither", "both"])
def test_what_is_to_be_taken_back_must_be_said(
    arguments: tuple[str, ...], book: GrantBook, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(click.UsageError, match=r"Give the ID of a grant, or --all\."):
        run(capsys, "revoke", *arguments)


@pytest.mark.parametrize("arguments", [("list",), ("revoke", "--all")], ids=["list", "revoke"])
def test_a_broken_file_is_named(
    arguments: tuple[str, ...], book: GrantBook, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "grants.json").write_text("{")
    with pytest.raises(ConfigError, match=r"grants\.json: nothing is allowed by it") as caught:
        run(capsys, *arguments)
    assert exit_for(caught.value) == Exit.CONFIG
