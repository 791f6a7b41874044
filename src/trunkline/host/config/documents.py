"""Parses the text of one configuration file into its entries, inputs and (in the managed file) rules over servers.

Entries are located here, not interpreted.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.host.config.jsonc import (
    InvalidJson,
    JsonArray,
    JsonNode,
    JsonObject,
    JsonProperty,
    JsonScalar,
    kind_of,
    parse_jsonc,
    to_python,
)
from trunkline.host.config.model import ConfigProblem, InputVariable, Scope, ServerDenial, ServerRule, ServerRules
from trunkline.host.config.spelling import nearest, quoted

__all__ = [
    "MAX_FILE_BYTES",
    "ConfigDocument",
    "EnvLine",
    "InvalidConfigFile",
    "UnreadableFile",
    "parse_document",
    "parse_env_file",
    "parse_server_rules",
    "read_document",
    "read_text",
]

#: The largest file that is read.
MAX_FILE_BYTES = 1024 * 1024

_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class UnreadableFile(ConfigError):
    """A file that cannot be read as text, with the reason and the fix."""

    def __init__(self, message: str, *, fix: str | None = None, line: int | None = None, absent: bool = False) -> None:
        """Store the fix and the line beside the message."""
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.line = line
        self.absent = absent


def read_text(path: str, *, plain_only: bool) -> str:
    """Return the text of a file, without a byte order mark.

    Raises:
        UnreadableFile: it cannot be read; the message does not repeat the path.
    """
    data = _read(path, plain_only=plain_only)
    if len(data) > MAX_FILE_BYTES:
        raise UnreadableFile(f"the file is larger than {MAX_FILE_BYTES // 1024} KiB", fix="is it the right file?")
    if data.startswith(_UTF16):
        raise UnreadableFile("the file is encoded as UTF-16", fix="save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UnreadableFile("the file is not encoded as UTF-8", fix="save it as UTF-8", line=line) from error


def _read(path: str, *, plain_only: bool) -> bytes:
    # Opening a pipe without a writer must not block a search for configuration files.
    flags = os.O_RDONLY | (getattr(os, "O_NONBLOCK", 0) if plain_only else 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        with open(os.open(path, flags), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if plain_only and not stat.S_ISREG(mode):
                raise UnreadableFile("it is not a regular file")
            return file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError as error:
        raise UnreadableFile("there is no such file", fix="is the name right?", absent=True) from error
    except IsADirectoryError as error:
        raise UnreadableFile("it is a folder", fix="name the file in it") from error
    except PermissionError as error:
        raise UnreadableFile("it is not readable by this user", fix="grant yourself read access") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the name is no file name"
        raise UnreadableFile(f"it cannot be read: {reason}") from error


def parse_server_rules(root: JsonObject, *, file: str | None) -> tuple[ServerRules, tuple[ConfigProblem, ...]]:
    """Parse the rules of a managed file; return them with their problems."""
    problems: list[ConfigProblem] = []
    reader = _RuleReader(file, problems)
    exclusive = reader.exclusive(root.members.get("exclusive"))
    allowed = reader.rules(root.members.get("allowedServers"), partly=False)
    denied = reader.rules(root.members.get("deniedServers"), partly=True)
    return ServerRules(exclusive=exclusive, allowed=allowed, denied=denied or (), closed=reader.closed), tuple(problems)


class _RuleReader:
    """Parses rules and collects their problems."""

    def __init__(self, file: str | None, problems: list[ConfigProblem]) -> None:
        self._file = file
        self._problems = problems
        self.closed: ServerDenial | None = None

    def exclusive(self, member: JsonProperty | None) -> bool:
        if member is None:
            return False
        value = to_python(member.value)
        if not isinstance(value, bool):
            self._report(
                "exclusive", member.value, f"expected true or false, found {kind_of(member.value)}; true is taken"
            )
        return value is not False

    def rules(self, member: JsonProperty | None, *, partly: bool) -> tuple[ServerRule, ...] | None:
        if member is None:
            return None
        key, node = member.name, member.value
        if not isinstance(node, JsonArray):
            self._report(
                key, node, f"expected a list of rules, found {kind_of(node)}; no server of others is let through"
            )
            self.closed = ServerDenial(f"{key} of the managed file cannot be read", member.line or None)
            return ()
        found = [self._rule(f"{key}[{at}]", item, partly=partly) for at, item in enumerate(node.items)]
        return tuple(rule for rule in found if rule is not None)

    def _rule(self, key: str, node: JsonNode, *, partly: bool) -> ServerRule | None:
        if not isinstance(node, JsonObject):
            self._report(
                key, node, f"expected an object with name, command or url, found {kind_of(node)}; it is ignored"
            )
            return None
        parts: dict[str, Any] = {}
        wrong = [*(name for name, _, _ in node.repeated)]
        for name, member in node.members.items():
            value = _READ[name](member.value) if name in _READ else None
            if value is None:
                wrong.append(name)
            else:
                parts[name] = value
        if wrong or not parts:
            kept = partly and bool(parts)
            effect = f"it denies by {', '.join(sorted(parts))} alone" if kept else "it is ignored"
            what = ", ".join(map(quoted, wrong)) if wrong else "it has no name, command or url"
            self._report(key, node, f"the rule cannot be read ({what}); {effect}")
            if not kept:
                return None
        return ServerRule(**parts, line=node.line or None)

    def _report(self, key: str, node: JsonNode, message: str) -> None:
        self._problems.append(ConfigProblem(message=message, file=self._file, line=node.line or None, key=key))


def _text(node: JsonNode) -> str | None:
    return node.value if isinstance(node, JsonScalar) and isinstance(node.value, str) and node.value else None


def _url_glob(node: JsonNode) -> str | None:
    text = _text(node)
    return text if text is not None and re.match(r"[^/]+://[^/]+", text) else None


def _words(node: JsonNode) -> tuple[str, ...] | None:
    if not isinstance(node, JsonArray) or not node.items:
        return None
    words = [item.value for item in node.items if isinstance(item, JsonScalar) and isinstance(item.value, str)]
    return tuple(words) if len(words) == len(node.items) else None


_READ: Mapping[str, Callable[[JsonNode], Any]] = MappingProxyType({"name": _text, "command": _words, "url": _url_glob})


_KEYS = ("mcpServers", "servers")
_MANAGED = ("exclusive", "allowedServers", "deniedServers")


class InvalidConfigFile(ConfigError):
    """A configuration file that cannot be used at all."""

    def __init__(self, problem: ConfigProblem, *, absent: bool = False) -> None:
        """Store the problem beside the message."""
        super().__init__(str(problem))
        self.problem = problem
        self.absent = absent


class ConfigDocument(Struct, frozen=True, kw_only=True):
    """The entries of a file, not interpreted yet, with its inputs, rules and warnings."""

    file: str | None
    servers: tuple[JsonProperty, ...] = ()
    inputs: Mapping[str, InputVariable] = MappingProxyType({})
    rules: ServerRules = ServerRules()
    warnings: tuple[ConfigProblem, ...] = ()
    #: The ``model`` member, which a chat interprets.
    model: JsonProperty | None = None

    def __repr__(self) -> str:
        """Show only the file, nothing of its content."""
        return f"ConfigDocument({self.file!r})"


def read_document(path: str, *, scope: Scope) -> ConfigDocument:
    """Read and parse a file.

    Raises:
        InvalidConfigFile: the file cannot be used.
    """
    try:
        text = read_text(path, plain_only=scope != "given")
    except UnreadableFile as error:
        problem = ConfigProblem(message=error.message, fix=error.fix, file=path, line=error.line)
        raise InvalidConfigFile(problem, absent=error.absent) from error
    if not text.strip():
        _fail(path, "the file is empty", fix='write {"mcpServers": {}} and entries in it')
    try:
        root = parse_jsonc(text)
    except InvalidJson as error:
        message = f"the file is not JSON: {error}"
        raise InvalidConfigFile(
            ConfigProblem(message=message, file=path, line=error.line, column=error.column)
        ) from error
    return parse_document(root, file=path, scope=scope)


def parse_document(root: JsonNode, *, file: str | None, scope: Scope) -> ConfigDocument:
    """Find the entries and inputs of a document.

    Raises:
        InvalidConfigFile: it is not a configuration.
    """
    if not isinstance(root, JsonObject):
        _fail(file, f"expected an object at the top, found {kind_of(root)}", line=root.line, fix=_WRAP)
    for name, first, second in root.repeated:
        _fail(file, f"it is written twice, on lines {first} and {second}", line=second, key=quoted(name))
    managed = scope == "managed"
    servers = _servers(root, file=file, needed=not managed)
    warnings = [*_unknown_members(root, file=file, managed=managed)]
    inputs = _inputs(root, file=file, warnings=warnings)
    rules, problems = parse_server_rules(root, file=file) if managed else (ServerRules(), ())
    return ConfigDocument(
        file=file,
        servers=servers,
        inputs=inputs,
        rules=rules,
        warnings=(*warnings, *problems),
        model=root.members.get("model"),
    )


_WRAP = 'write {"mcpServers": {...}}'


def _fail(
    file: str | None, message: str, *, line: int | None = None, key: str | None = None, fix: str | None = None
) -> NoReturn:
    raise InvalidConfigFile(ConfigProblem(message=message, file=file, line=line or None, key=key, fix=fix))


# --- entries ---------------------------------------------------------------------------------------------------------


def _servers(root: JsonObject, *, file: str | None, needed: bool) -> tuple[JsonProperty, ...]:
    present = [root.members[key] for key in _KEYS if key in root.members]
    if len(present) > 1:
        lines = f"mcpServers (line {present[0].line}) and servers (line {present[1].line})"
        _fail(file, f"it has both {lines}", line=present[1].line, fix="put all entries under one of them")
    if not present:
        if needed:
            _fail(file, 'it has no "mcpServers" and no "servers"', line=root.line, fix=_missing_fix(root))
        return ()
    key, node = present[0].name, present[0].value
    if not isinstance(node, JsonObject):
        _fail(file, f"expected an object with an entry for each server, found {kind_of(node)}", line=node.line, key=key)
    for name, first, second in node.repeated:
        message = f"two entries have the name {quoted(name)}, on lines {first} and {second}"
        _fail(file, message, line=second, key=key, fix="rename one, or take it out")
    return tuple(node.members.values())


def _missing_fix(root: JsonObject) -> str:
    near = next((name for name in root.members if nearest(name, _KEYS)), None)
    if near is not None:
        return f'write "{nearest(near, _KEYS)}" instead of {quoted(near)}'
    if "mcp" in root.members:
        return 'move the content of "mcp" to the top level'
    if any(isinstance(each.value, JsonObject) and {"command", "url"} & set(each.value.members) for each in _all(root)):
        return 'put the entries under "mcpServers"'
    return "is it the right file?"


def _all(root: JsonObject) -> Iterator[JsonProperty]:
    return iter(root.members.values())


def _unknown_members(root: JsonObject, *, file: str | None, managed: bool) -> Iterator[ConfigProblem]:
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
        yield ConfigProblem(message=message, severity="warning", file=file, line=member.line or None, key=quoted(name))


# --- inputs ----------------------------------------------------------------------------------------------------------


def _inputs(root: JsonObject, *, file: str | None, warnings: list[ConfigProblem]) -> Mapping[str, InputVariable]:
    if "inputs" not in root.members:
        return MappingProxyType({})
    node = root.members["inputs"].value
    found: dict[str, InputVariable] = {}
    if not isinstance(node, JsonArray):
        warnings.append(_warning(file, node, "inputs", f"expected a list, found {kind_of(node)}; nothing is asked"))
        return found
    for at, item in enumerate(node.items):
        key = f"inputs[{at}]"
        made = _input(to_python(item), file=file)
        if isinstance(made, str):
            warnings.append(_warning(file, item, key, made))
        elif made.id in found:
            warnings.append(
                _warning(file, item, key, f"the input {quoted(made.id)} is declared twice; the first counts")
            )
        else:
            found[made.id] = made
    return MappingProxyType(found)


def _warning(file: str | None, node: JsonNode, key: str, message: str) -> ConfigProblem:
    return ConfigProblem(message=message, severity="warning", file=file, line=node.line or None, key=key)


def _input(item: object, *, file: str | None) -> InputVariable | str:
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
    return InputVariable(
        id=item["id"],
        description=description if isinstance(description, str) else "",
        password=item.get("password") is True,
        default=default if isinstance(default, str) else None,
        options=tuple(map(_option, listed)),
        file=file,
    )


def _option(each: object) -> str:
    return str(each.get("value", "")) if isinstance(each, dict) else str(each)


_ASSIGNMENT = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*")
_BLANK = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|$)")
_QUOTED = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|`([^`]*)`", re.S)
_COMMENT = re.compile(r"(?:^|[ \t]+)#.*")
_ESCAPE = re.compile(r"\\(.)", re.S)


class EnvLine(Struct, frozen=True):
    """One variable of a file; ``name`` is None for a line that cannot be parsed."""

    name: str | None
    value: str
    line: int

    def __repr__(self) -> str:
        """Omit the value, which may be secret."""
        return f"EnvLine({self.name!r}, line {self.line})"


def parse_env_file(text: str) -> list[EnvLine]:
    """Parse all lines; a name that occurs twice is returned twice, in order."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    found: list[EnvLine] = []
    at, line = 0, 1
    while at < len(text):
        end, entry = _parse_line(text, at, line=line)
        if entry is not None:
            found.append(entry)
        line += text.count("\n", at, end)
        at = end
    return found


def _parse_line(text: str, at: int, *, line: int) -> tuple[int, EnvLine | None]:
    """Parse the line that starts at ``at``; return where the next one starts."""
    blank = _BLANK.match(text, at)
    if blank is not None:
        return blank.end(), None
    end = _next_line(text, at)
    begun = _ASSIGNMENT.match(text, at)
    if begun is None:
        return end, EnvLine(None, "", line)
    name = begun.group(1)
    quoted = _QUOTED.match(text, begun.end())
    if quoted is not None:
        rest = _BLANK.match(text, quoted.end())
        return (rest.end(), EnvLine(name, _unquoted(quoted), line)) if rest else (end, EnvLine(None, "", line))
    if text[begun.end() : begun.end() + 1] in ('"', "'", "`"):
        return end, EnvLine(None, "", line)
    return end, EnvLine(name, _COMMENT.sub("", text[begun.end() : end].rstrip("\n")).strip(), line)


def _next_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _unquoted(found: re.Match[str]) -> str:
    double, single, back = found.groups()
    if double is None:
        return str(single if single is not None else back)
    return _ESCAPE.sub(lambda escape: _escaped(escape.group(1)), double)


def _escaped(letter: str) -> str:
    at = 'nrt"\\$'.find(letter)
    return '\n\r\t"\\$'[at] if at >= 0 else f"\\{letter}"
