"""Parses the text of one configuration file into its entries and inputs; both common forms of such files are supported.

A problem with the file as a whole raises ``InvalidConfigFile``, which names the place and the fix. Entries are only
located here, not interpreted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NoReturn

from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.host.config.files import Unreadable, read_text
from trunkline.host.config.managed import read_rules
from trunkline.host.config.positions import Items, Member, Members, Node, NotJson, kind_of, plain, read_json
from trunkline.host.config.records import Input, Problem
from trunkline.host.config.rules import Rules
from trunkline.host.config.spelling import nearest, quoted
from trunkline.host.entries import Scope

__all__ = ["BadFile", "Document", "document_of", "read_document"]

_KEYS = ("mcpServers", "servers")
_MANAGED = ("exclusive", "allowedServers", "deniedServers")


class BadFile(ConfigError):
    """A configuration file that cannot be used at all."""

    def __init__(self, problem: Problem, *, absent: bool = False) -> None:
        """Store the problem beside the message."""
        super().__init__(str(problem))
        self.problem = problem
        self.absent = absent


class Document(Struct, frozen=True, kw_only=True):
    """The entries of a file, not interpreted yet, with its inputs, rules and warnings."""

    file: str | None
    servers: tuple[Member, ...] = ()
    inputs: Mapping[str, Input] = MappingProxyType({})
    rules: Rules = Rules()
    warnings: tuple[Problem, ...] = ()

    def __repr__(self) -> str:
        """Show only the file, nothing of its content."""
        return f"Document({self.file!r})"


def read_document(path: str, *, scope: Scope) -> Document:
    """Read and parse a file.

    Raises:
        InvalidConfigFile: the file cannot be used.
    """
    try:
        text = read_text(path, plain_only=scope != "given")
    except Unreadable as error:
        problem = Problem(message=error.message, fix=error.fix, file=path, line=error.line)
        raise BadFile(problem, absent=error.absent) from error
    if not text.strip():
        _fail(path, "the file is empty", fix='write {"mcpServers": {}} and entries in it')
    try:
        root = read_json(text)
    except NotJson as error:
        message = f"the file is not JSON: {error}"
        raise BadFile(Problem(message=message, file=path, line=error.line, column=error.column)) from error
    return document_of(root, file=path, scope=scope)


def document_of(root: Node, *, file: str | None, scope: Scope) -> Document:
    """Find the entries and inputs of a document.

    Raises:
        InvalidConfigFile: it is not a configuration.
    """
    if not isinstance(root, Members):
        _fail(file, f"expected an object at the top, found {kind_of(root)}", line=root.line, fix=_WRAP)
    for name, first, second in root.repeated:
        _fail(file, f"it is written twice, on lines {first} and {second}", line=second, key=quoted(name))
    managed = scope == "managed"
    servers = _servers(root, file=file, needed=not managed)
    warnings = [*_odd_members(root, file=file, managed=managed)]
    inputs = _inputs(root, file=file, warnings=warnings)
    rules, said = read_rules(root, file=file) if managed else (Rules(), ())
    return Document(file=file, servers=servers, inputs=inputs, rules=rules, warnings=(*warnings, *said))


_WRAP = 'write {"mcpServers": {...}}'


def _fail(
    file: str | None, message: str, *, line: int | None = None, key: str | None = None, fix: str | None = None
) -> NoReturn:
    raise BadFile(Problem(message=message, file=file, line=line or None, key=key, fix=fix))


# --- entries ---------------------------------------------------------------------------------------------------------


def _servers(root: Members, *, file: str | None, needed: bool) -> tuple[Member, ...]:
    present = [root.members[key] for key in _KEYS if key in root.members]
    if len(present) > 1:
        lines = f"mcpServers (line {present[0].line}) and servers (line {present[1].line})"
        _fail(file, f"it has both {lines}", line=present[1].line, fix="put all entries under one of them")
    if not present:
        if needed:
            _fail(file, 'it has no "mcpServers" and no "servers"', line=root.line, fix=_missing_fix(root))
        return ()
    key, node = present[0].name, present[0].value
    if not isinstance(node, Members):
        _fail(file, f"expected an object with an entry for each server, found {kind_of(node)}", line=node.line, key=key)
    for name, first, second in node.repeated:
        message = f"two entries have the name {quoted(name)}, on lines {first} and {second}"
        _fail(file, message, line=second, key=key, fix="rename one, or take it out")
    return tuple(node.members.values())


def _missing_fix(root: Members) -> str:
    near = next((name for name in root.members if nearest(name, _KEYS)), None)
    if near is not None:
        return f'write "{nearest(near, _KEYS)}" instead of {quoted(near)}'
    if "mcp" in root.members:
        return 'move the content of "mcp" to the top level'
    if any(isinstance(each.value, Members) and {"command", "url"} & set(each.value.members) for each in _all(root)):
        return 'put the entries under "mcpServers"'
    return "is it the right file?"


def _all(root: Members) -> Iterator[Member]:
    return iter(root.members.values())


def _odd_members(root: Members, *, file: str | None, managed: bool) -> Iterator[Problem]:
    for member in _all(root):
        name, near = member.name, nearest(member.name, ("inputs", *_MANAGED))
        if name in _MANAGED and not managed:
            message = "it is ignored: only the managed file can set it"
        elif name not in ("inputs", *_MANAGED, *_KEYS) and near is not None:
            if managed and near in _MANAGED:
                # A rule under a misspelt name would allow what it was meant to deny.
                _fail(file, "unknown member", line=member.line, key=quoted(name), fix=f'write "{near}"')
            message = f'unknown member, ignored; did you mean "{near}"?'
        else:
            continue
        yield Problem(message=message, severity="warning", file=file, line=member.line or None, key=quoted(name))


# --- inputs ----------------------------------------------------------------------------------------------------------


def _inputs(root: Members, *, file: str | None, warnings: list[Problem]) -> Mapping[str, Input]:
    if "inputs" not in root.members:
        return MappingProxyType({})
    node = root.members["inputs"].value
    found: dict[str, Input] = {}
    if not isinstance(node, Items):
        warnings.append(_odd(file, node, "inputs", f"expected a list, found {kind_of(node)}; nothing is asked"))
        return found
    for at, item in enumerate(node.items):
        key = f"inputs[{at}]"
        made = _input(plain(item), file=file)
        if isinstance(made, str):
            warnings.append(_odd(file, item, key, made))
        elif made.id in found:
            warnings.append(_odd(file, item, key, f"the input {quoted(made.id)} is declared twice; the first counts"))
        else:
            found[made.id] = made
    return MappingProxyType(found)


def _odd(file: str | None, node: Node, key: str, message: str) -> Problem:
    return Problem(message=message, severity="warning", file=file, line=node.line or None, key=key)


def _input(item: object, *, file: str | None) -> Input | str:
    """Parse one input, or return what is wrong with it."""
    if not isinstance(item, dict) or not isinstance(item.get("id"), str) or not item["id"]:
        return 'expected an object with an "id"; it is ignored'
    kind = item.get("type", "promptString")
    if kind not in ("promptString", "pickString"):
        return f"inputs of type {quoted(str(kind))} are not supported: write promptString or pickString"
    listed = item.get("options") if kind == "pickString" else []
    if not isinstance(listed, list):
        return 'expected a list of "options"; it is ignored'
    default, description = item.get("default"), item.get("description")
    return Input(
        id=item["id"],
        description=description if isinstance(description, str) else "",
        password=item.get("password") is True,
        default=default if isinstance(default, str) else None,
        options=tuple(map(_option, listed)),
        file=file,
    )


def _option(each: object) -> str:
    return str(each.get("value", "")) if isinstance(each, dict) else str(each)
