"""Entries that are given in code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trunkline.errors import ConfigError
from trunkline.host.config.loading import entries_from_mapping, entry_from_mapping
from trunkline.host.config.model import Source

ONE: dict[str, Any] = {"command": "x", "args": ("a",), "cwd": Path("/y")}


def test_an_entry_in_code_is_read_as_one_in_a_file() -> None:
    entry = entry_from_mapping("one", {**ONE, "env": {"A": "${A}"}}, environ={"A": "value"})
    assert (entry.command, entry.cwd, dict(entry.env), entry.secrets) == (
        ("x", "a"),
        "/y",
        {"A": "value"},
        frozenset({"value"}),
    )
    assert (entry.name, entry.source, entry.problem) == ("one", Source("given"), None)


def test_a_mistake_in_code_names_the_member() -> None:
    entry = entry_from_mapping("one", {"command": "${A}"}, environ={})
    assert entry.problem == "one.command: the variable A is not set; set A, or write ${A:-default}"


def test_the_environment_of_the_process_is_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_VALUE_OF_THIS_TEST", "there")
    assert entry_from_mapping("one", {"command": "${A_VALUE_OF_THIS_TEST}"}).command == ("there",)


@pytest.mark.parametrize(
    "mapping",
    [
        pytest.param({"one": ONE}, id="entries"),
        pytest.param({"mcpServers": {"one": ONE}}, id="mcpServers"),
        pytest.param({"servers": {"one": ONE}}, id="servers"),
    ],
)
def test_entries_are_read_with_and_without_a_document_around_them(mapping: dict[str, Any]) -> None:
    assert {name: each.command for name, each in entries_from_mapping(mapping, environ={}).items()} == {
        "one": ("x", "a")
    }


def test_a_server_may_be_called_servers() -> None:
    assert list(entries_from_mapping({"servers": {"command": "x"}}, environ={})) == ["servers"]


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        pytest.param({"mcpServers": {}, "servers": {}}, "it has both mcpServers", id="both"),
        pytest.param(
            {"mcpServers": {"a": {"command": object()}}},
            "a value of type object cannot be part of a configuration",
            id="object",
        ),
        pytest.param({"mcpServers": [1]}, "expected an object with an entry for each server", id="list"),
    ],
)
def test_what_is_no_configuration_is_refused(mapping: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        entries_from_mapping(mapping, environ={})
