"""Loads policies: TOML in, a ``Policy`` out, or every mistake in it with its file and line and what to write instead.

The keys that the tables of a policy file may have are one table: a row per key, with a parser that converts a TOML
value to what a rule needs, or says what to write instead. A parser knows neither files nor lines; the place is added to
its message. This is the one module of the policy package that touches files, and only in ``load_policy`` and
``local_path_context``. The TOML parser gives no line numbers, so they are found in the text by the tables' headers.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias

from trunkline.errors import ConfigError
from trunkline.host.authorization.policy.decisions import ActKind, ToolHints
from trunkline.host.authorization.policy.lint import unreachable_rules
from trunkline.host.authorization.policy.locations import PathContext, PathReader
from trunkline.host.authorization.policy.patterns import compile_glob, is_glob
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.authorization.policy.predicates import Predicate
from trunkline.host.authorization.policy.rules import KINDS, TIERS, WITH_ARGUMENTS, RedactionRule, Rule, compile_rule
from trunkline.host.config.spelling import nearest

__all__ = [
    "CALLERS",
    "TARGETS",
    "InvalidKey",
    "KeyParser",
    "ServerLocation",
    "TomlTable",
    "key_parsers",
    "kinds_and_names",
    "load_policy",
    "local_path_context",
    "parse_keys",
    "parse_policy",
    "parse_tables",
    "read_policy_file",
]

CALLERS = ("app", "gateway", "model", "server", "user")
#: The keys that name what a rule is about, and the kind of each.
TARGETS: Mapping[str, ActKind] = MappingProxyType(
    {"tool": "tool", "prompt": "prompt", "uri": "resource", "skill": "skill"}
)

KeyParser: TypeAlias = Callable[[Any], Any]

_TESTS = ("absent", "equals", "glob", "host_in", "max", "min", "one_of", "present", "regex", "type", "within")
_HINTS = ToolHints.__struct_fields__


class InvalidKey(ValueError):
    """A key or its value is invalid; the message says why and what to write."""

    def __init__(self, message: str, key: str | None = None) -> None:
        """Set the message, and the key if it is known."""
        super().__init__(message)
        self.key = key


def parse_keys(table: Mapping[str, Any], known: Mapping[str, KeyParser]) -> tuple[dict[str, Any], list[InvalidKey]]:
    """Parse all keys of a table; return the valid ones, and the errors of the others."""
    found: dict[str, Any] = {}
    faults: list[InvalidKey] = []
    for key, value in table.items():
        try:
            if key not in known:
                raise InvalidKey(f"unknown key {key!r}{_suggestion(key, known)}")
            found[key] = known[key](value)
        except ValueError as error:
            faults.append(InvalidKey(str(error) if key not in known else f"{key}: {error}", key))
    return found, faults


def kinds_and_names(members: Mapping[str, Any]) -> tuple[tuple[ActKind, ...], tuple[str, ...]]:
    """Return what a table is about: the kinds (tools by default), and globs over names.

    Raises:
        InvalidKey: two keys contradict each other.
    """
    targets = [key for key in TARGETS if key in members]
    if len(targets) > 1:
        raise InvalidKey(f"it has both {targets[0]} and {targets[1]}: write a rule for each", targets[1])
    if not targets:
        return members.get("kind", ("tool",)), ()
    kind = TARGETS[targets[0]]
    kinds: tuple[ActKind, ...] = members.get("kind", (kind,))
    if kinds != (kind,):
        raise InvalidKey(f"{targets[0]} implies the kind {kind!r}: leave kind out", targets[0])
    return kinds, members[targets[0]]


def _suggestion(name: str, known: Collection[str]) -> str:
    near = nearest(name, known)
    return f": did you mean {near!r}?" if near else f"; the keys are {', '.join(sorted(known))}"


# --- values ----------------------------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidKey(f"write a string in quotes, not {value!r}")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    texts = tuple(_text(each) for each in (value if isinstance(value, list) else [value]))
    if not texts:
        raise InvalidKey("an empty list matches nothing: leave the key out to match anything")
    return texts


def _globs(value: Any) -> tuple[str, ...]:
    for pattern in (patterns := _texts(value)):
        compile_glob(pattern)
    return patterns


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidKey(f"write true or false, not {value!r}")
    return value


def _only_true(value: Any) -> bool:
    if value is not True:
        raise InvalidKey(f"write true, or leave it out, not {value!r}")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise InvalidKey(f"write a number, not {value!r}")
    return value


def _choice(choices: Collection[str]) -> KeyParser:
    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            near = nearest(value, choices) if isinstance(value, str) else None
            hint = f": did you mean {near!r}?" if near else f": write one of {', '.join(choices)}"
            raise InvalidKey(f"{value!r} is not valid{hint}")
        return value

    return read


def _choices(choices: Collection[str]) -> KeyParser:
    read = _choice(choices)
    return lambda value: tuple(read(each) for each in _texts(value))


def _kinds(value: Any) -> tuple[ActKind, ...]:
    kinds: tuple[ActKind, ...] = KINDS if value == "*" else _choices(KINDS)(value)
    return kinds


def _tier(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return TIERS[_choice(tuple(TIERS))(value)]


def _timestamp(value: Any) -> float:
    """Parse a date or a time, in UTC unless it has an offset, as seconds since the epoch."""
    if isinstance(value, str):
        try:
            value = datetime.datetime.fromisoformat(value)
        except ValueError:
            raise InvalidKey(f"write a date as YYYY-MM-DD, not {value!r}") from None
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime.datetime):
        raise InvalidKey(f"write a date as YYYY-MM-DD, not {value!r}")
    return (value if value.tzinfo else value.replace(tzinfo=datetime.UTC)).timestamp()


def _hints(value: Any) -> ToolHints:
    found, faults = parse_keys(_table(value), dict.fromkeys(_HINTS, _boolean))
    _raise_first(faults)
    if not found:
        raise InvalidKey("it has no hint: leave it out, or write { read_only = true }")
    return ToolHints(**found)


def _table(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidKey(f"write a table {{ ... }}, not {value!r}")
    return value


def _raise_first(faults: list[InvalidKey]) -> None:
    if faults:
        raise faults[0]


# --- predicates ------------------------------------------------------------------------------------------------------


def _json(value: Any) -> Any:
    """Return a TOML value that JSON also has."""
    for inner in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        _json(inner)
    if not isinstance(value, str | bool | int | float | list | dict):
        raise InvalidKey(f"{value!r} is not a JSON value: write it in quotes")
    return value


def _json_list(value: Any) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise InvalidKey(f"write a list [ ... ] of values, not {value!r}")
    return [_json(each) for each in value]


def _list_of(read: Callable[[Any], tuple[str, ...]]) -> KeyParser:
    return lambda value: list(read(value))


def _pointer(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidKey(f"write a JSON pointer such as '/path', not {value!r}")
    return value


_PREDICATE: Mapping[str, KeyParser] = MappingProxyType(
    {
        "arg": _pointer,
        "not": _boolean,
        "absent": _only_true,
        "equals": _json,
        "glob": _list_of(_globs),
        "host_in": _list_of(_texts),
        "max": _number,
        "min": _number,
        "one_of": _json_list,
        "present": _only_true,
        "regex": _text,
        "type": _list_of(_texts),
        "within": _list_of(_texts),
    }
)


def _when(value: Any) -> tuple[Predicate, ...]:
    if not isinstance(value, list) or not value:
        raise InvalidKey(f"write a list of predicates [{{ arg = ... }}], not {value!r}")
    return tuple(_predicate(_table(each)) for each in value)


def _predicate(table: Mapping[str, Any]) -> Predicate:
    found, faults = parse_keys(table, _PREDICATE)
    _raise_first(faults)
    if "arg" not in found:
        raise InvalidKey("a predicate needs the argument it is about: add arg = '/...'")
    tests = [name for name in _TESTS if name in found]
    if not tests:
        raise InvalidKey(f"the predicate on {found['arg']!r} tests nothing: add one of {', '.join(_TESTS)}")
    negated = found.get("not", False)
    if set(tests) <= {"min", "max"}:
        return Predicate(found["arg"], "range", (found.get("min"), found.get("max")), negated)
    if len(tests) > 1:
        raise InvalidKey(
            f"the predicate on {found['arg']!r} has two tests, {tests[0]} and {tests[1]}: write two predicates"
        )
    return Predicate(found["arg"], tests[0], found[tests[0]], negated)


# --- tables ----------------------------------------------------------------------------------------------------------

_ABOUT: Mapping[str, KeyParser] = MappingProxyType(
    {"kind": _kinds, "server": _globs, **dict.fromkeys(TARGETS, _globs)},
)
_READERS: Mapping[str, Mapping[str, KeyParser]] = MappingProxyType(
    {
        "rule": {
            **_ABOUT,
            "name": _text,
            "effect": _choice(("allow", "ask", "deny")),
            "tier": _tier,
            "when": _when,
            "annotations": _hints,
            "caller": _choices(CALLERS),
            "principal": _globs,
            "profile": _globs,
            "tainted": _boolean,
            "trusted": _boolean,
            "message": _text,
            "expires": _timestamp,
        },
        "redact": {**_ABOUT, "kind": _choices(sorted(WITH_ARGUMENTS)), "arg": _texts},
        "test": {
            "kind": _choice(KINDS),
            "server": _text,
            **dict.fromkeys(TARGETS, _text),
            "name": _text,
            "args": lambda value: _json(_table(value)),
            "annotations": _hints,
            "trusted": _boolean,
            "tainted": _boolean,
            "caller": _choice(CALLERS),
            "principal": _text,
            "profile": _text,
            "now": _timestamp,
            "expect": _choice(("allow", "ask", "deny")),
            "rule": _text,
            "listed": _boolean,
        },
    }
)


def key_parsers(table: str) -> Mapping[str, KeyParser]:
    """Return the keys that a table of this name may have, with their parsers."""
    return _READERS[table]


_TABLES = ("redact", "rule", "test")
_LINE = re.compile(r"\(at line (\d+), column \d+\)")
_MOST_BYTES = 4_000_000  # Some 20,000 rules; a larger file is another file.


class TomlTable(NamedTuple):
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

    def fault(self, wrong: InvalidKey) -> str:
        """Format an error with its position: that of the key, if it is known."""
        line = self.lines.get(wrong.key or "")
        return f"{self.where if line is None else f'{self.file}:{line}'}: {wrong}"


class ServerLocation(Protocol):
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


def load_policy(path: str | os.PathLike[str], *, path_context: PathContext | None = None) -> Policy:
    """Load a policy from a file; paths are resolved on this machine unless another context is passed.

    Raises:
        ConfigError: the file cannot be read or is invalid.
    """
    file = os.fspath(path)
    return parse_policy(
        read_policy_file(file), file=file, path_context=local_path_context() if path_context is None else path_context
    )


def local_path_context(entries: Iterable[ServerLocation] = ()) -> PathContext:
    """Return the path context of this machine and these servers; one that is reached by a URL has no folder here."""
    home = os.path.expanduser("~")
    folders = {each.name: os.path.abspath(each.cwd or ".") for each in entries if each.command is not None}
    return PathContext(home=home if home.startswith("/") else None, folders=folders, resolve=os.path.realpath)


def read_policy_file(file: str) -> str:
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


def parse_policy(text: str, *, file: str, path_context: PathContext | None = None) -> Policy:
    """Parse a policy; ``file`` is its name in messages and in the names of unnamed rules.

    Raises:
        ConfigError: the policy is invalid; the message has a line for each mistake, with its place and the fix.
    """
    path_context = PathContext() if path_context is None else path_context
    tables, faults = parse_tables(text, file=file, known=_TABLES)
    rules: list[Rule] = []
    redactions: list[RedactionRule] = []
    for table in tables:
        try:
            if table.name == "rule":
                rules.append(_rule(table, path_context, faults))
            elif table.name == "redact":
                redactions.append(_redact(table, faults))
        except InvalidKey as wrong:
            faults.append(table.fault(wrong))
    faults += _duplicate_names(rules)
    if not faults:
        faults += unreachable_rules(rules)
    if faults:
        raise ConfigError("\n".join(faults))
    return Policy(rules, redactions=redactions, path_context=path_context)


# --- tables and their lines ------------------------------------------------------------------------------------------


def parse_tables(text: str, *, file: str, known: tuple[str, ...]) -> tuple[list[TomlTable], list[str]]:
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
    tables: list[TomlTable] = []
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


def _located(text: str, file: str, name: str, tables: list[dict[str, Any]]) -> Iterator[TomlTable]:
    lines = text.splitlines()
    header = re.compile(rf"\s*\[\[\s*[\"']?{name}[\"']?\s*\]\]")
    starts = [number for number, line in enumerate(lines, 1) if header.match(line)]
    # Written in another way, or with a header inside a string: no line is better than a wrong one.
    placed: list[int | None] = [*starts] if len(starts) == len(tables) else [None] * len(tables)
    for number, (members, start) in enumerate(zip(tables, placed, strict=True), 1):
        yield TomlTable(name, members, file, start, {} if start is None else _member_lines(lines, start), number)


def _member_lines(lines: list[str], start: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, line in enumerate(lines[start:], start + 1):
        if re.match(r"\s*\[\[", line):
            break
        if written := re.match(r"\s*\[?\s*(?:\w+\.)?[\"']?(\w+)[\"']?\s*[]=.]", line):
            found.setdefault(written[1], number)
    return found


# --- rules -----------------------------------------------------------------------------------------------------------


def _rule(table: TomlTable, path_context: PathContext, faults: list[str]) -> Rule:
    """Build a rule from a table.

    Raises:
        InvalidKey: the table is invalid.
    """
    members, wrong = parse_keys(table.members, key_parsers("rule"))
    faults += map(table.fault, wrong[:-1])
    if wrong:
        raise wrong[-1]
    if "effect" not in members:
        raise InvalidKey("a rule needs an effect: add effect = 'allow', 'ask' or 'deny'")
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
        **{key: members[key] for key in _COPIED_KEYS if key in members},
    )
    _check(rule)
    try:
        compile_rule(rule, PathReader(path_context))
    except ValueError as error:
        raise InvalidKey(f"when: {error}", "when") from None
    return rule


_COPIED_KEYS = ("when", "annotations", "tainted", "trusted", "message", "expires")


def _check(rule: Rule) -> None:
    """Check the combination of keys.

    Raises:
        InvalidKey: the rule can never hold, or allows more than a rule may.
    """
    allows = rule.effect == "allow"
    if allows and not rule.servers:
        raise InvalidKey("a rule that allows must name its server: add server = '...'")
    if allows and (globs := [each for each in rule.servers if is_glob(each)]):
        fix = "name each server; only ask and deny may use '*', '?' and '['"
        raise InvalidKey(f"server: a rule that allows may not use the pattern {globs[0]!r}: {fix}", "server")
    if rule.message is not None and rule.effect != "deny":
        raise InvalidKey("message: it is only for rules that deny, and this one does not", "message")
    if rule.when and (without := [kind for kind in rule.kinds if kind not in WITH_ARGUMENTS]):
        raise InvalidKey(f"when: {without[0]} has no arguments, so this rule could never hold for it", "when")
    if _reads_hints(rule) and rule.kinds != ("tool",):
        raise InvalidKey("annotations: only tools have them: leave kind out", "annotations")
    if allows and _reads_hints(rule) and rule.trusted is False:
        fix = "hints of untrusted servers never allow anything; leave one of the two out"
        raise InvalidKey(f"annotations: together with trusted = false this rule can never hold: {fix}", "annotations")


def _reads_hints(rule: Rule) -> bool:
    return any(getattr(rule.annotations, name) is not None for name in rule.annotations.__struct_fields__)


def _redact(table: TomlTable, faults: list[str]) -> RedactionRule:
    members, wrong = parse_keys(table.members, key_parsers("redact"))
    faults += map(table.fault, wrong[:-1])
    if wrong:
        raise wrong[-1]
    if "arg" not in members:
        raise InvalidKey("a redaction needs the argument to hide: add arg = '/...'")
    kinds, names = kinds_and_names(members)
    if kinds in (("resource",), ("skill",)):
        target = "uri" if kinds == ("resource",) else "skill"
        raise InvalidKey(f"{target}: a {kinds[0]} has no arguments to hide", target)
    try:
        return RedactionRule(
            members["arg"], servers=members.get("server", ()), names=names, kinds=kinds, where=table.where
        )
    except ValueError as error:
        raise InvalidKey(f"arg: {error}", "arg") from None


def _duplicate_names(rules: list[Rule]) -> Iterator[str]:
    first: dict[str, Rule] = {}
    for rule in rules:
        if rule.name in first:
            yield f"{rule.where}: the rule at {first[rule.name].where} has the name {rule.name!r} already: use another"
        first.setdefault(rule.name, rule)
