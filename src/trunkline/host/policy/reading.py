"""Loads policies: TOML in, a ``Policy`` out, or every mistake in it with its file and line and what to write instead.

This is the one module of the policy package that touches files, and only in ``load_policy`` and
``local_path_context``. The TOML parser gives no line numbers, so they are found in the text by the tables' headers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from trunkline.errors import ConfigError
from trunkline.host.config.spelling import nearest
from trunkline.host.policy.dead import dead_rules
from trunkline.host.policy.globs import is_glob
from trunkline.host.policy.matching import compile_rule
from trunkline.host.policy.members import Wrong, kinds_and_names, read_members, readers
from trunkline.host.policy.paths import Paths, Places
from trunkline.host.policy.policy import Policy
from trunkline.host.policy.rules import WITH_ARGUMENTS, Redact, Rule

__all__ = ["Located", "Table", "load_policy", "places_here", "read_policy", "read_tables", "read_text"]

_TABLES = ("redact", "rule", "test")
_LINE = re.compile(r"\(at line (\d+), column \d+\)")
_MOST_BYTES = 4_000_000


class Table(NamedTuple):
    """One ``[[name]]`` table of a file, and its position."""

    name: str
    members: Mapping[str, Any]
    file: str
    #: The line of its header; None if it could not be found.
    line: int | None
    #: The lines of its keys.
    lines: Mapping[str, int]
    number: int

    @property
    def where(self) -> str:
        """The position for messages; unique within a file."""
        return f"{self.file}: {self.name} {self.number}" if self.line is None else f"{self.file}:{self.line}"

    def fault(self, wrong: Wrong) -> str:
        """Format an error with its position: that of the key, if it is known."""
        line = self.lines.get(wrong.key or "")
        return f"{self.where if line is None else f'{self.file}:{line}'}: {wrong}"


class Located(Protocol):
    """What the policy needs of a server: its name, and where it is started if it is a process."""

    @property
    def name(self) -> str:
        """The name of the server."""
        ...

    @property
    def command(self) -> tuple[str, ...] | None:
        """The program and its arguments; None if it is reached by a URL."""
        ...

    @property
    def cwd(self) -> str | None:
        """The folder it is started in; None for the current one."""
        ...


def load_policy(path: str | os.PathLike[str], *, places: Places | None = None) -> Policy:
    """Load a policy from a file; paths are resolved on this machine unless another context is passed.

    Raises:
        ConfigError: the file cannot be read or is invalid.
    """
    file = os.fspath(path)
    return read_policy(read_text(file), file=file, places=places_here() if places is None else places)


def places_here(entries: Iterable[Located] = ()) -> Places:
    """Return the path context of this machine and these servers; one that is reached by a URL has no folder here."""
    home = os.path.expanduser("~")
    folders = {each.name: os.path.abspath(each.cwd or ".") for each in entries if each.command is not None}
    return Places(home=home if home.startswith("/") else None, folders=folders, resolve=os.path.realpath)


def read_text(file: str) -> str:
    """Read a policy file.

    Raises:
        ConfigError: it cannot be read, or is not text.
    """
    try:
        with open(file, "rb") as opened:
            data = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"{file} is larger than {_MOST_BYTES} bytes, which is too large for a policy")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text (byte {error.start}); save it as UTF-8") from None


def read_policy(text: str, *, file: str, places: Places | None = None) -> Policy:
    """Parse a policy; ``file`` is its name in messages and in the names of unnamed rules.

    Raises:
        ConfigError: the policy is invalid; the message has a line for each mistake, with its place and the fix.
    """
    places = Places() if places is None else places
    tables, faults = read_tables(text, file=file, known=_TABLES)
    rules: list[Rule] = []
    redactions: list[Redact] = []
    for table in tables:
        try:
            if table.name == "rule":
                rules.append(_rule(table, places, faults))
            elif table.name == "redact":
                redactions.append(_redact(table, faults))
        except Wrong as wrong:
            faults.append(table.fault(wrong))
    faults += _twice(rules)
    if not faults:
        faults += dead_rules(rules)
    if faults:
        raise ConfigError("\n".join(faults))
    return Policy(rules, redactions=redactions, places=places)


# --- tables and their lines ------------------------------------------------------------------------------------------


def read_tables(text: str, *, file: str, known: tuple[str, ...]) -> tuple[list[Table], list[str]]:
    """Parse a text into its tables; return them, and the errors of the text as a whole.

    Raises:
        ConfigError: it is not TOML.
    """
    import tomllib

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _LINE.search(str(error))
        place = f"{file}:{found[1]}" if found else file
        raise ConfigError(f"{place}: not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{file}: the TOML is nested too deeply") from None
    tables: list[Table] = []
    faults: list[str] = []
    for name, value in document.items():
        if name not in known:
            near = nearest(name, known)
            tables_known = ", ".join(f"[[{each}]]" for each in known)
            meant = f"did you mean [[{near}]]?" if near else f"the tables are {tables_known}"
            faults.append(f"{_top_place(text, file, name)}: unknown table {name!r}: {meant}")
        elif not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            faults.append(f"{_top_place(text, file, name)}: {name}: write [[{name}]], with double brackets")
        else:
            tables += _located(text, file, name, value)
    return tables, faults


def _top_place(text: str, file: str, name: str) -> str:
    written = re.compile(rf"\s*(?:\[+\s*)?[\"']?{re.escape(name)}\b")
    line = next((number for number, line in enumerate(text.splitlines(), 1) if written.match(line)), None)
    return file if line is None else f"{file}:{line}"


def _located(text: str, file: str, name: str, tables: list[dict[str, Any]]) -> Iterator[Table]:
    lines = text.splitlines()
    header = re.compile(rf"\s*\[\[\s*[\"']?{name}[\"']?\s*\]\]")
    starts = [number for number, line in enumerate(lines, 1) if header.match(line)]
    # Written in another way, or with a header inside a string: no line is better than a wrong one.
    placed: list[int | None] = [*starts] if len(starts) == len(tables) else [None] * len(tables)
    for number, (members, start) in enumerate(zip(tables, placed, strict=True), 1):
        yield Table(name, members, file, start, {} if start is None else _member_lines(lines, start), number)


def _member_lines(lines: list[str], start: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, line in enumerate(lines[start:], start + 1):
        if re.match(r"\s*\[\[", line):
            break
        if written := re.match(r"\s*\[?\s*(?:\w+\.)?[\"']?(\w+)[\"']?\s*[]=.]", line):
            found.setdefault(written[1], number)
    return found


# --- rules -----------------------------------------------------------------------------------------------------------


def _rule(table: Table, places: Places, faults: list[str]) -> Rule:
    """Build a rule from a table.

    Raises:
        InvalidKey: the table is invalid.
    """
    members, wrong = read_members(table.members, readers("rule"))
    faults += map(table.fault, wrong[:-1])
    if wrong:
        raise wrong[-1]
    if "effect" not in members:
        raise Wrong("a rule needs an effect: add effect = 'allow', 'ask' or 'deny'")
    kinds, names = kinds_and_names(members)
    rule = Rule(
        name=members.get("name", table.where),
        where=table.where,
        effect=members["effect"],
        tier=members.get("tier", 0),
        kinds=kinds,
        servers=members.get("server", ()),
        names=names,
        callers=members.get("caller", ()),
        principals=members.get("principal", ()),
        profiles=members.get("profile", ()),
        **{key: members[key] for key in _AS_THEY_ARE if key in members},
    )
    _check(rule)
    try:
        compile_rule(rule, Paths(places))
    except ValueError as error:
        raise Wrong(f"when: {error}", "when") from None
    return rule


_AS_THEY_ARE = ("when", "annotations", "tainted", "trusted", "message", "expires")


def _check(rule: Rule) -> None:
    """Check the combination of keys.

    Raises:
        InvalidKey: the rule can never hold, or allows more than a rule may.
    """
    allows = rule.effect == "allow"
    if allows and not rule.servers:
        raise Wrong("a rule that allows must name its server: add server = '...'")
    if allows and (globs := [each for each in rule.servers if is_glob(each)]):
        fix = "name each server; only ask and deny may use '*', '?' and '['"
        raise Wrong(f"server: a rule that allows may not use the pattern {globs[0]!r}: {fix}", "server")
    if rule.message is not None and rule.effect != "deny":
        raise Wrong("message: it is only for rules that deny, and this one does not", "message")
    if rule.when and (without := [kind for kind in rule.kinds if kind not in WITH_ARGUMENTS]):
        raise Wrong(f"when: {without[0]} has no arguments, so this rule could never hold for it", "when")
    if _reads_hints(rule) and rule.kinds != ("tool",):
        raise Wrong("annotations: only tools have them: leave kind out", "annotations")
    if allows and _reads_hints(rule) and rule.trusted is False:
        fix = "hints of untrusted servers never allow anything; leave one of the two out"
        raise Wrong(f"annotations: together with trusted = false this rule can never hold: {fix}", "annotations")


def _reads_hints(rule: Rule) -> bool:
    return any(getattr(rule.annotations, name) is not None for name in rule.annotations.__struct_fields__)


def _redact(table: Table, faults: list[str]) -> Redact:
    members, wrong = read_members(table.members, readers("redact"))
    faults += map(table.fault, wrong[:-1])
    if wrong:
        raise wrong[-1]
    if "arg" not in members:
        raise Wrong("a redaction needs the argument to hide: add arg = '/...'")
    kinds, names = kinds_and_names(members)
    if kinds == ("resource",):
        raise Wrong("uri: a resource has no arguments to hide", "uri")
    try:
        return Redact(members["arg"], servers=members.get("server", ()), names=names, kinds=kinds, where=table.where)
    except ValueError as error:
        raise Wrong(f"arg: {error}", "arg") from None


def _twice(rules: list[Rule]) -> Iterator[str]:
    first: dict[str, Rule] = {}
    for rule in rules:
        if rule.name in first:
            yield f"{rule.where}: the rule at {first[rule.name].where} has the name {rule.name!r} already: use another"
        first.setdefault(rule.name, rule)
