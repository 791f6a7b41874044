"""Reading a policy: what a file may say, and what is told about every mistake in it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.host.authorization.policy.support import policy
from trunkline.errors import ConfigError
from trunkline.host.authorization.policy import (
    Predicate,
    Rule,
    ToolHints,
    load_policy,
    local_path_context,
)
from trunkline.host.config.model import ServerEntry, Source

WHOLE = """\
# A rule with everything.
[[rule]]
name = "everything"
effect = "deny"
tier = "managed"
kind = "tool"
server = ["files", "web*"]
tool = ["read_*", "write"]
caller = ["model", "gateway"]
principal = "alice"
profile = "work"
tainted = true
trusted = false
message = "No."
expires = 2001-02-03
annotations = { read_only = false, open_world = true }
when = [
  { arg = "/path", within = ["~/work", "/srv"] },
  { arg = "/n", min = 1, max = 5, not = true },
  { arg = "/b", glob = "a*" },
  { arg = "/url", host_in = ["a.com"] },
  { arg = "/q", absent = true },
  { arg = "/p", present = true },
  { arg = "/o", one_of = ["a", 1, { b = [true] }] },
  { arg = "/e", equals = 1.5 },
  { arg = "/r", regex = "a+" },
  { arg = "/t", type = ["null", "string"] },
]

[[rule]]
effect = "ask"
kind = "*"
tier = 7
"""


def _refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        policy(text)
    return str(caught.value)


def test_a_rule_may_say_all_there_is() -> None:
    assert policy(WHOLE).rules == (
        Rule(
            name="everything",
            where="p.toml:2",
            effect="deny",
            tier=1000,
            kinds=("tool",),
            servers=("files", "web*"),
            names=("read_*", "write"),
            callers=("model", "gateway"),
            principals=("alice",),
            profiles=("work",),
            tainted=True,
            trusted=False,
            message="No.",
            expires=981158400.0,
            annotations=ToolHints(read_only=False, open_world=True),
            when=(
                Predicate("/path", "within", ["~/work", "/srv"]),
                Predicate("/n", "range", (1, 5), True),
                Predicate("/b", "glob", ["a*"]),
                Predicate("/url", "host_in", ["a.com"]),
                Predicate("/q", "absent", True),
                Predicate("/p", "present", True),
                Predicate("/o", "one_of", ["a", 1, {"b": [True]}]),
                Predicate("/e", "equals", 1.5),
                Predicate("/r", "regex", "a+"),
                Predicate("/t", "type", ["null", "string"]),
            ),
        ),
        Rule(
            name="p.toml:30",
            where="p.toml:30",
            effect="ask",
            tier=7,
            kinds=("tool", "resource", "prompt", "skill", "sampling", "elicitation", "roots"),
        ),
    )


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ('tool = "x"', ("tool",)),
        ('prompt = "x"', ("prompt",)),
        ('uri = "x:y"', ("resource",)),
        ('kind = ["sampling", "roots"]', ("sampling", "roots")),
        ('kind = "prompt"\nprompt = "x"', ("prompt",)),
        ("", ("tool",)),
    ],
)
def test_what_a_rule_names_says_its_kind(line: str, kinds: tuple[str, ...]) -> None:
    assert policy(f'[[rule]]\neffect = "deny"\n{line}\n').rules[0].kinds == kinds


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("1970-01-02", 86400.0),
        ('"1970-01-02"', 86400.0),
        ("1970-01-01T01:00:00Z", 3600.0),
        ("1970-01-01T01:00:00+01:00", 0.0),
        ("1970-01-01T00:01:00", 60.0),
        ('"1970-01-01T00:01:00"', 60.0),
    ],
)
def test_a_date_is_of_utc_unless_it_says_otherwise(value: str, seconds: float) -> None:
    assert policy(f'[[rule]]\neffect = "deny"\nexpires = {value}\n').rules[0].expires == seconds


@pytest.mark.parametrize(("word", "tier"), [('"managed"', 1000), ('"user"', 0), ('"default"', -1000), ("-3", -3)])
def test_a_tier_is_a_number_or_has_a_name(word: str, tier: int) -> None:
    assert policy(f'[[rule]]\neffect = "deny"\ntier = {word}\n').rules[0].tier == tier


RULE = '[[rule]]\neffect = "deny"\n'
MISTAKES: list[tuple[str, str, str]] = [
    # of the file
    ("no toml", "= 1\n", "p.toml:1: not valid TOML: "),
    ("unknown table", "\n[[rules]]\n", "p.toml:2: unknown table 'rules': did you mean [[rule]]?"),
    ("one bracket", '[rule]\neffect = "deny"\n', "p.toml:1: rule: write [[rule]], with double brackets"),
    # of a member
    ("unknown member", RULE + 'tol = "x"\n', "p.toml:3: unknown key 'tol': did you mean 'tool'?"),
    ("odd member", RULE + "zzz = 1\n", "p.toml:3: unknown key 'zzz'; the keys are annotations, caller, "),
    ("no effect", '[[rule]]\ntool = "x"\n', "p.toml:1: a rule needs an effect: add effect = "),
    ("effect", '[[rule]]\neffect = "denny"\n', "p.toml:2: effect: 'denny' is not valid: did you mean 'deny'?"),
    ("name", RULE + "name = 5\n", "p.toml:3: name: write a string in quotes, not 5"),
    (
        "no servers",
        RULE + "server = []\n",
        "p.toml:3: server: an empty list matches nothing: leave the key out to match anything",
    ),
    ("glob", RULE + 'tool = "a**"\n', "p.toml:3: tool: 'a**' has '**': a single '*' matches any text already"),
    ("tier", RULE + 'tier = "usr"\n', "p.toml:3: tier: 'usr' is not valid: did you mean 'user'?"),
    ("kind", RULE + 'kind = "tools"\n', "p.toml:3: kind: 'tools' is not valid: did you mean 'tool'?"),
    ("tainted", RULE + 'tainted = "yes"\n', "p.toml:3: tainted: write true or false, not 'yes'"),
    ("expires", RULE + 'expires = "soon"\n', "p.toml:3: expires: write a date as YYYY-MM-DD, not 'soon'"),
    ("expires time", RULE + "expires = 10:00:00\n", "p.toml:3: expires: write a date as YYYY-MM-DD, not "),
    ("hints", RULE + "annotations = true\n", "p.toml:3: annotations: write a table { ... }, not True"),
    ("no hints", RULE + "annotations = {}\n", "p.toml:3: annotations: it has no hint"),
    (
        "hint name",
        RULE + "annotations = { readOnly = true }\n",
        "p.toml:3: annotations: unknown key 'readOnly': did you mean 'read_only'?",
    ),
    # of predicates
    ("when", RULE + 'when = { arg = "/a" }\n', "p.toml:3: when: write a list of predicates"),
    ("when empty", RULE + "when = []\n", "p.toml:3: when: write a list of predicates"),
    ("no arg", RULE + "when = [{ absent = true }]\n", "p.toml:3: when: a predicate needs the argument it is about"),
    ("arg type", RULE + "when = [{ arg = 5, absent = true }]\n", "when: arg: write a JSON pointer such as '/path'"),
    (
        "pointer",
        RULE + 'when = [{ arg = "a", absent = true }]\n',
        "p.toml:3: when: 'a' is not a JSON pointer: write '/a'",
    ),
    ("no test", RULE + 'when = [{ arg = "/a" }]\n', "when: the predicate on '/a' tests nothing: add one of absent, "),
    (
        "two tests",
        RULE + 'when = [{ arg = "/a", glob = "x", equals = "y" }]\n',
        "when: the predicate on '/a' has two tests, equals and glob: write two predicates",
    ),
    ("unknown test", RULE + 'when = [{ arg = "/a", globb = "x" }]\n', "when: unknown key 'globb': did you mean"),
    ("absent", RULE + 'when = [{ arg = "/a", absent = false }]\n', "when: absent: write true, or leave it out"),
    ("min", RULE + 'when = [{ arg = "/a", min = "1" }]\n', "when: min: write a number, not '1'"),
    ("min nan", RULE + 'when = [{ arg = "/a", min = nan }]\n', "when: min: write a number, not nan"),
    ("one of", RULE + 'when = [{ arg = "/a", one_of = [] }]\n', "when: one_of: write a list [ ... ] of values"),
    ("date", RULE + 'when = [{ arg = "/a", equals = 2001-01-01 }]\n', "is not a JSON value: write it in quotes"),
    ("folder", RULE + 'when = [{ arg = "/a", within = "work" }]\n', "when: 'work' is not an absolute path"),
    # of a rule as a whole
    ("two targets", RULE + 'tool = "a"\nuri = "b"\n', "p.toml:4: it has both tool and uri: write a rule for each"),
    (
        "kind and target",
        RULE + 'kind = "prompt"\ntool = "a"\n',
        "p.toml:4: tool implies the kind 'tool': leave kind out",
    ),
    (
        "allow all",
        '[[rule]]\neffect = "allow"\n',
        "p.toml:1: a rule that allows must name its server: add server = '...'",
    ),
    (
        "allow star",
        '[[rule]]\neffect = "allow"\nserver = "*"\n',
        "p.toml:3: server: a rule that allows may not use the pattern '*': name each server; only ask and deny may",
    ),
    (
        "message",
        '[[rule]]\neffect = "ask"\nmessage = "No."\n',
        "p.toml:3: message: it is only for rules that deny, and this one does not",
    ),
    (
        "when of resource",
        RULE + 'uri = "x:*"\nwhen = [{ arg = "/a", absent = true }]\n',
        "p.toml:4: when: resource has no arguments, so this rule could never hold for it",
    ),
    (
        "hints of prompt",
        RULE + 'prompt = "x"\nannotations = { read_only = true }\n',
        "p.toml:4: annotations: only tools have them: leave kind out",
    ),
    (
        "hints of untrusted",
        '[[rule]]\neffect = "allow"\nserver = "a"\ntrusted = false\nannotations = { read_only = true }\n',
        "p.toml:5: annotations: together with trusted = false this rule can never hold",
    ),
    (
        "two names",
        RULE + 'name = "x"\ntool = "a"\n' + RULE + 'name = "x"\ntool = "b"\n',
        "p.toml:5: the rule at p.toml:1 has the name 'x' already: use another",
    ),
    # of redactions
    ("redact", "[[redact]]\n", "p.toml:1: a redaction needs the argument to hide: add arg = '/...'"),
    ("redact arg", '[[redact]]\narg = "a"\n', "p.toml:2: arg: 'a' is not a JSON pointer: write '/a'"),
    ("redact uri", '[[redact]]\nuri = "a:*"\narg = "/a"\n', "p.toml:2: uri: a resource has no arguments to hide"),
    ("redact kind", '[[redact]]\nkind = "roots"\narg = "/a"\n', "p.toml:2: kind: 'roots' is not valid"),
]


@pytest.mark.parametrize(("text", "said"), [pytest.param(text, said, id=name) for name, text, said in MISTAKES])
def test_a_mistake_is_reported_with_its_place_and_the_fix(text: str, said: str) -> None:
    assert said in _refusal(text)


def test_all_mistakes_are_reported_at_once() -> None:
    said = _refusal('[[rule]]\neffect = 5\ntol = "x"\n\n[[rule]]\neffect = "allow"\n[[redact]]\nzz = 1\nyy = 2\n')
    assert [line.split(": ")[0] for line in said.splitlines()] == [
        "p.toml:2",
        "p.toml:3",
        "p.toml:5",
        "p.toml:8",
        "p.toml:9",
    ]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('rule = [{ effect = "allow" }]', "p.toml: rule 1"),
        ('[[ "rule" ]]\neffect = "allow"', "p.toml:1"),
        ('[[rule]]\neffect = "deny"\nmessage = """\n[[rule]]\n"""\n[[rule]]\neffect = "allow"\n', "p.toml: rule 2"),
    ],
    ids=["inline", "quoted", "in a text"],
)
def test_the_rule_number_is_reported_where_its_line_is_unknown(text: str, where: str) -> None:
    assert _refusal(text).startswith(f"{where}: a rule that allows must name its server")


def test_a_member_in_a_table_of_its_own_has_its_line() -> None:
    said = _refusal('[[rule]]\neffect = "deny"\n[rule.annotations]\nread_only = 5\n')
    assert said.startswith("p.toml:3: annotations: read_only: write true or false, not 5")


def test_a_text_that_is_nested_without_end_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"p\.toml"):
        policy("x = " + "[" * 100_000)


def test_without_its_engine_a_regex_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    assert "p.toml:3: when: regex needs the linear-time engine RE2: pip install 'trunkline[host]'" in _refusal(
        RULE + 'when = [{ arg = "/a", regex = "x" }]\n'
    )


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_file_is_read_with_the_paths_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "policy.toml"
    file.write_text('\ufeff[[rule]]\neffect = "deny"\nwhen = [{ arg = "/a", within = "~/x" }]\n', encoding="utf-8")
    rules = load_policy(file)
    assert rules.rules[0].where == f"{file}:1"
    assert rules.path_context.home == str(tmp_path)
    assert rules.path_context.resolve is os.path.realpath


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\xff\xfe", "is not UTF-8 text \\(byte 0\\); save it as UTF-8"),
        (b"#" * 4_000_001, "is larger than 4000000 bytes"),
    ],
    ids=["absent", "bytes", "large"],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "policy.toml"
    _write(file, content)
    with pytest.raises(ConfigError, match=f"policy.toml {said}"):
        load_policy(file)


def _write(file: Path, content: bytes | None) -> None:
    if content is not None:
        file.write_bytes(content)


def _entry(name: str, **given: Any) -> ServerEntry:
    return ServerEntry(name=name, source=Source("given"), **given)


def test_a_server_that_is_started_has_a_folder_and_one_at_a_url_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    entries = [_entry("a", command=("x",)), _entry("b", command=("x",), cwd="/srv"), _entry("c", url="https://a.com")]
    assert local_path_context(entries).folders == {"a": str(tmp_path), "b": "/srv"}


def test_a_home_that_is_no_path_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "somewhere")
    assert local_path_context().home is None
