"""Secrets of the user's vault in a configuration: named and never looked up while it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.host.config.support import entry, given, problem
from trunkline.host.config.loading import explain
from trunkline.host.config.model import ServerEntry
from trunkline.host.integrity.fingerprints import fingerprint
from trunkline.host.secrets.references import SecretReference


def sealed(found: ServerEntry) -> dict[str, tuple[str | SecretReference, ...]]:
    """Give the parts of the sealed values of an entry, by key."""
    assert found.problem is None
    return {each.key: each.parts for each in found.sealed}


ROWS: dict[str, tuple[dict[str, Any], str, tuple[str | SecretReference, ...]]] = {
    "env": ({"command": "x", "env": {"A": "secret://a"}}, "env.A", (SecretReference("a"),)),
    "in-a-text": (
        {"command": "x", "env": {"A": "v1 ${secret:a} ${UNIT}"}},
        "env.A",
        ("v1 ", SecretReference("a"), " ", "mm"),
    ),
    "argument-part": ({"command": "x", "args": ["--key=${secret:a}"]}, "args[0]", ("--key=", SecretReference("a"))),
    "header": (
        {"url": "https://h/", "headers": {"Authorization": "Bearer ${secret:a}"}},
        "headers.Authorization",
        ("Bearer ", SecretReference("a")),
    ),
    "url": ({"url": "https://h/x?key=${secret:a}"}, "url", ("https://h/x?key=", SecretReference("a"))),
    "oauth": (
        {"url": "https://h/", "oauth": {"clientId": "i", "clientSecret": "secret://a"}},
        "auth.clientSecret",
        (SecretReference("a"),),
    ),
    "variable": ({"command": "x", "env": {"A": "secret://env/TOKEN"}}, "env.A", (SecretReference("TOKEN", "env"),)),
    "command": ({"command": "x", "env": {"A": "${secret:cmd/a.b-c_d}"}}, "env.A", (SecretReference("a.b-c_d", "cmd"),)),
    "keyring": ({"command": "x", "env": {"A": "secret://keyring/a"}}, "env.A", (SecretReference("a", "keyring"),)),
}


@pytest.mark.parametrize(("members", "key", "parts"), ROWS.values(), ids=ROWS)
def test_a_secret_is_named_where_it_is_to_stand(
    tmp_path: Path, members: dict[str, Any], key: str, parts: tuple[str | SecretReference, ...]
) -> None:
    assert sealed(entry(tmp_path, members, {"UNIT": "mm"})) == {key: parts}


def test_until_it_is_looked_up_its_name_stands_in_its_place(tmp_path: Path) -> None:
    found = entry(tmp_path, {"command": "x", "args": ["--token", "secret://a"], "env": {"API_KEY": "k-${secret:b}"}})
    assert (found.command, dict(found.env)) == (("x", "--token", "${secret:a}"), {"API_KEY": "k-${secret:b}"})
    assert found.shown == "x --token '${secret:a}'"


def test_a_name_is_no_secret(tmp_path: Path) -> None:
    found = entry(tmp_path, {"url": "https://h/?api_key=${secret:k}", "headers": {"Authorization": "secret://t"}})
    assert found.secrets == frozenset()


def test_what_came_out_of_a_variable_is_not_looked_at_again(tmp_path: Path) -> None:
    found = entry(
        tmp_path, {"command": "x", "env": {"A": "${B}", "C": "${D}"}}, {"B": "secret://a", "D": "${secret:a}"}
    )
    assert found.sealed == ()
    assert dict(found.env) == {"A": "secret://a", "C": "${secret:a}"}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "inside": ({"command": "x", "args": ["--key=secret://a"]}, "one.args[0]: secret:// is used inside a text"),
    "bad-name": (
        {"command": "x", "env": {"A": "secret://a b"}},
        "one.env.A: secret: is not followed by the name of a secret",
    ),
    "default": (
        {"command": "x", "env": {"A": "${B:-secret://a}"}},
        "one.env.A: the default of ${B} holds a variable or",
    ),
    "host": ({"url": "https://${secret:a}/mcp"}, "one.url: the host of a URL cannot be a secret"),
    "whole-url": ({"url": "secret://a"}, "one.url: the host of a URL cannot be a secret"),
    "program": ({"command": "secret://a"}, "one.command: a secret cannot stand here"),
    "folder": ({"command": "x", "cwd": "/${secret:a}"}, "one.cwd: a secret cannot stand here"),
    "env-file": ({"command": "x", "envFile": "secret://a"}, "one.envFile: a secret cannot stand here"),
    "roots": ({"command": "x", "roots": ["secret://a"]}, "one.roots[0]: a secret cannot stand here"),
}


@pytest.mark.parametrize(("members", "said"), BAD.values(), ids=BAD)
def test_a_secret_in_a_wrong_place_or_form_is_a_problem(tmp_path: Path, members: dict[str, Any], said: str) -> None:
    assert said in problem(tmp_path, members)
    assert entry(tmp_path, members).sealed == ()


def test_an_explanation_shows_the_name_and_when_it_is_looked_up(tmp_path: Path) -> None:
    configuration = given(tmp_path, {"mcpServers": {"one": {"command": "x", "env": {"A_TOKEN": "secret://a"}}}})
    values = {each["key"]: each for each in explain(configuration)["servers"][0]["values"]}
    assert values["env.A_TOKEN"]["shown"] == "secret://a"
    assert values["env.A_TOKEN"]["variables"] == [{"name": "a", "kind": "secret", "state": "sealed"}]


# --- what is approved ------------------------------------------------------------------------------------------------


def test_which_secrets_a_server_gets_is_part_of_what_is_approved(tmp_path: Path) -> None:
    one = fingerprint(entry(tmp_path, {"command": "x", "env": {"A": "secret://a"}, "args": ["${secret:env/B}"]}))
    other = fingerprint(entry(tmp_path, {"command": "x", "env": {"A": "secret://b"}, "args": ["${secret:env/B}"]}))
    assert one.parts["secrets"] == "env/B as args[0], a as env.A"
    assert one.digest != other.digest
    assert one.marks["secrets"] != other.marks["secrets"]
