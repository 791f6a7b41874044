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
from tests.protocol.test_secret_patterns import PLAIN_NAMES, SECRET_NAMES
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


@pytest.mark.parametrize("show", USERS.values(), ids=USERS)
def test_whoever_shows_values_hides_those_that_the_table_calls_secret(
    show: Callable[[Path, str, str], str], tmp_path: Path
) -> None:
    assert VALUE not in show(tmp_path, "GITHUB_PAT", VALUE)
    assert VALUE in show(tmp_path, "KEYBOARD", VALUE)
    assert "s3cret" not in show(tmp_path, "NOTE", "Server=h;Uid=sa;Pwd=s3cret;Port=1")
    assert "/usr/bin:/bin" in show(tmp_path, "NOTE", "/usr/bin:/bin")


# A form reads a name as words, too, and rather refuses: what it asks for is typed by a person.
_DOUBTED = {"PWD", "TOKEN_URL", "pageToken", "next_page_token", "progressToken", "PASSWORD_MIN_LENGTH"}


def test_a_form_that_asks_for_a_secret_name_is_refused_and_one_for_a_plain_name_is_not() -> None:
    def refused(name: str) -> bool:
        return credentials_in("Which?", {"properties": {name: {"type": "string"}}}) == (name,)

    assert [name for name in SECRET_NAMES if not refused(name)] == []
    assert [name for name in PLAIN_NAMES if refused(name) != (name in _DOUBTED)] == []


def test_what_looks_like_a_secret_in_one_value_is_hidden_in_the_others_too(tmp_path: Path) -> None:
    entry = {"command": "run", "args": ["--dsn", "Server=h;Pwd=zq7Vx1w9", "zq7Vx1w9"], "env": {"NOTE": "zq7Vx1w9"}}
    shown = json.dumps(explain(given(tmp_path, json.dumps({"mcpServers": {"a": entry}}))))
    assert (VALUE in shown, "***" in shown) == (False, True)


@pytest.mark.parametrize(
    "entry",
    [
        {"url": "https://mcp.example.com/s/zq7Vx1w9Zq7Vx1w9Zq7V/mcp"},
        {"url": "https://mcp.example.com/0b6a8d5e-1f2c-4c3d-9e8f-zq7Vx1w9".replace("zq7Vx1w9", "7a6b5c4d3e2f")},
        {"command": "/usr/bin/mysql", "args": ["-uroot", "-phunter"]},
        {"command": "tool", "args": ["-pzq7Vx1w9"]},
    ],
)
def test_a_secret_in_the_path_of_a_url_or_behind_a_short_flag_is_not_shown(
    entry: dict[str, object], tmp_path: Path
) -> None:
    text = json.dumps({"mcpServers": {"a": entry}})
    configuration = given(tmp_path, text)
    shown = json.dumps(explain(configuration)) + configuration.entries["a"].shown
    assert [secret for secret in (VALUE, "7a6b5c4d3e2f", "hunter") if secret in shown] == []
    assert "***" in shown


def test_the_path_of_a_url_without_a_secret_is_shown(tmp_path: Path) -> None:
    url = "https://mcp.example.com/api/my-long-server-name-v2/mcp"
    assert given(tmp_path, json.dumps({"mcpServers": {"a": {"url": url}}})).entries["a"].shown == url


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
    # A table has this stem, and parsing every module takes seconds.
    tree = ast.parse(source if "passw" in source.lower() else "")
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.JoinedStr):
            members = node.values if isinstance(node, ast.JoinedStr) else node.elts
            texts = (member.value for member in members if isinstance(member, ast.Constant))
            yield " ".join(text for text in texts if isinstance(text, str))
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
