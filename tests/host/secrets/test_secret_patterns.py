"""One table of what looks like a secret: whoever hides something asks it, and nobody has a second one."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import trunkline
from tests.host.config.support import given
from tests.protocol.test_secret_patterns import PLAIN_NAMES, PLAIN_TEXTS, SECRET_NAMES, SECRET_TEXTS
from trunkline.devtools.client_configs.entries import masked_text
from trunkline.host.audit.reader import query
from trunkline.host.audit.trail import AuditEntry, AuditTrail
from trunkline.host.config.loading import explain
from trunkline.host.secrets.registry import redact
from trunkline.host.server_requests.elicitation import credentials_in
from trunkline_servers.docker.models import hide_variables
from trunkline_servers.everything.basic_tools import redacted_environment

VALUE = "zq7Vx1w9"


def explained(tmp_path: Path, env: dict[str, str]) -> str:
    text = json.dumps({"mcpServers": {"a": {"command": "a", "env": env}}})
    return json.dumps(explain(given(tmp_path, text)))


USERS: dict[str, Callable[[Path, str, str], str]] = {
    "config explain": lambda folder, name, value: explained(folder, {name: value}),
    "import": lambda _, name, value: masked_text(json.dumps({"mcpServers": {"a": {"env": {name: value}}}})),
    "audit": lambda _, name, value: json.dumps(redact({name: value})),
    "docker": lambda _, name, value: json.dumps(hide_variables([f"{name}={value}"])),
    "everything": lambda _, name, value: json.dumps(redacted_environment({name: value}, whole=False)),
}


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("name", SECRET_NAMES)
def test_shown_values_with_secret_names_are_hidden(user: str, name: str, tmp_path: Path) -> None:
    assert VALUE not in USERS[user](tmp_path, name, VALUE)


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("name", PLAIN_NAMES)
def test_the_rest_of_a_shown_value_is_unchanged(user: str, name: str, tmp_path: Path) -> None:
    assert VALUE in USERS[user](tmp_path, name, VALUE)


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("text", [text for text, _ in SECRET_TEXTS if "s3cret" in text])
def test_shown_values_that_look_like_secrets_are_hidden(user: str, text: str, tmp_path: Path) -> None:
    assert "s3cret" not in USERS[user](tmp_path, "NOTE", text)


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("text", [text for text in PLAIN_TEXTS if text.isascii() and not set("?@") & set(text)])
def test_plain_texts_are_shown(user: str, text: str, tmp_path: Path) -> None:
    assert json.dumps(text)[1:-1] in USERS[user](tmp_path, "NOTE", text)


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_form_that_asks_for_something_of_that_name_is_refused(name: str) -> None:
    assert credentials_in("Which?", {"properties": {name: {"type": "string"}}}) == (name,)


# A form reads a name as words, too, and rather refuses: what it asks for is typed by a person.
_DOUBTED = {"PWD", "TOKEN_URL", "pageToken", "next_page_token", "progressToken", "PASSWORD_MIN_LENGTH"}


@pytest.mark.parametrize("name", sorted({*PLAIN_NAMES} - _DOUBTED))
def test_a_form_that_asks_for_the_rest_is_not(name: str) -> None:
    assert credentials_in("Which?", {"properties": {name: {"type": "string"}}}) == ()


def test_what_looks_like_a_secret_in_one_value_is_hidden_in_the_others_too(tmp_path: Path) -> None:
    entry = {"command": "run", "args": ["--dsn", "Server=h;Pwd=zq7Vx1w9", "zq7Vx1w9"], "env": {"NOTE": "zq7Vx1w9"}}
    shown = json.dumps(explain(given(tmp_path, json.dumps({"mcpServers": {"a": entry}}))))
    assert (VALUE in shown, "***" in shown) == (False, True)


def test_the_audit_trail_has_no_secret_of_a_call(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    trail = AuditTrail.open(path)
    arguments = redact({"GITHUB_PAT": VALUE, "dsn": VALUE, "note": f"Server=h;Pwd={VALUE}", "kept": "yes"})
    trail.record(AuditEntry(act_id="1", stage="begun", server="s", name="n", by="policy", arguments=arguments))
    trail.close()
    (entry,) = query(path)
    assert (VALUE in path.read_text(), entry["arguments"]["kept"]) == (False, "yes")


# --- no second table -------------------------------------------------------------------------------------------------

_STEMS = ("passw", "secret", "token", "credential", "apikey", "bearer", "cookie", "private", "jwt", "ghp_")
_TABLE = "protocol/secret_patterns.py"


def literals(source: str) -> Iterator[str]:
    """Give every text of a module that is no documentation, with the members of a display put together."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.JoinedStr):
            members = node.values if isinstance(node, ast.JoinedStr) else node.elts
            texts = (each.value for each in members if isinstance(each, ast.Constant))
            yield " ".join(each for each in texts if isinstance(each, str))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def is_table(text: str) -> bool:
    """Tell whether a text lists names of secrets: many of them, in the manner of a pattern or of a list of words."""
    # Names of classes and functions are no list of words, and a long text is prose.
    words = "|" in text or (text.count(" ") < 40 and not re.search("[a-z][A-Z]", text))
    listed = re.sub(r"[-_. ?]", "", text.lower()) if words else ""
    return "passw" in listed and sum(stem.replace("_", "") in listed for stem in _STEMS) >= 4


def test_a_second_table_would_be_found() -> None:
    assert any(map(is_table, literals('_X = re.compile(r"passw|token|secret|credential")')))
    assert any(map(is_table, literals('_X = frozenset({"password", "token", "apikey", "jwt"})')))


def test_there_is_no_second_table() -> None:
    root = Path(trunkline.__file__).parent
    found = [
        f"{path.relative_to(root)}: {text[:80]}"
        for path in sorted(root.rglob("*.py"))
        if path.relative_to(root).as_posix() != _TABLE
        for text in literals(path.read_text(encoding="utf-8"))
        if is_table(text)
    ]
    assert found == []
