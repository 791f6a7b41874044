"""Changes one table of a TOML text and nothing else: comments, order and whitespace are kept.

A table with the given name, and the tables inside it, are added at the end of the text, replaced where they are, or
removed. Every change is parsed again and must give exactly the intended document; otherwise it is rejected. No I/O.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from trunkline.devtools.client_configs.documents import has_member, newline_of, with_member, without_member
from trunkline.errors import ConfigError

__all__ = ["parse_toml", "put_table", "remove_table", "render_table"]

_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\r\n]|\\.)*"|'[^'\r\n]*')"""
_HEADER = re.compile(rf"\[(\[)?[ \t]*({_KEY}(?:[ \t]*\.[ \t]*{_KEY})*)[ \t]*\]")
_ONE_KEY = re.compile(_KEY)
_BARE = re.compile(r"[A-Za-z0-9_-]+")
#: Multi-line strings first: each begins like an empty string. A lone quote ends a text that is not TOML.
_TOKEN = re.compile(
    r'''(?P<space>[ \t]+)|(?P<line>\r?\n)|(?P<comment>\#[^\r\n]*)|"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?'{3,5}'''
    r"""|"(?:[^"\\\r\n]|\\.)*"|'[^'\r\n]*'|(?P<open>[\[{])|(?P<close>[\]}])|.""",
    re.S,
)


class _Table(NamedTuple):
    """A table: its name, and the offsets of its first line and of the end of its last line with a value."""

    keys: tuple[str, ...]
    start: int
    end: int
    is_array: bool


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a TOML text.

    Raises:
        ConfigError: it is not TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the file is not TOML: {error}") from error


def put_table(text: str, key_path: tuple[str, ...], name: str, value: Mapping[str, Any]) -> str:
    """Set a table, replacing one of that name.

    Raises:
        ConfigError: the text cannot be changed safely.
    """
    expected = with_member(parse_toml(text), (*key_path, name), value)
    own = _tables_at(text, (*key_path, name))
    made = render_table(key_path, name, value).replace("\n", newline_of(text))
    if own:
        changed = _cut(text, own[1:])
        changed = changed[: own[0].start] + made + changed[own[0].end :]
    else:
        newline = newline_of(text)
        ended = text if not text or text.endswith("\n") else text + newline
        changed = ended + (newline if ended else "") + made
    return _verified(changed, expected)


def remove_table(text: str, key_path: tuple[str, ...], name: str) -> str:
    """Remove a table and the tables inside it.

    Raises:
        ConfigError: the text cannot be changed safely.
    """
    before = parse_toml(text)
    if not has_member(before, (*key_path, name)):
        return text
    changed = _cut(text, _tables_at(text, (*key_path, name)))
    expected = without_member(before, (*key_path, name))
    if expected[key_path[0]] == {}:
        # Headers alone made the table around it, which is gone with the last of them.
        expected = {key: each for key, each in expected.items() if key != key_path[0] or key in parse_toml(changed)}
    return _verified(changed, expected)


def _verified(changed: str, expected: Mapping[str, Any]) -> str:
    try:
        after: Mapping[str, Any] | None = parse_toml(changed)
    except ConfigError:
        after = None
    if after != expected:
        raise ConfigError("the change would affect other parts of the file; edit the file by hand")
    return changed


def _cut(text: str, tables: list[_Table]) -> str:
    for table in reversed(tables):
        before, after = text[: table.start], text[table.end :]
        # The blank line above it goes with it, unless something follows that it separates from what is above.
        if re.search(r"(?:^|\n)\r?\n\Z", before) and (not after or after.startswith(("\n", "\r\n"))):
            before = re.sub(r"\r?\n\Z", "", before)
        text = before + after
    return text


def _tables_at(text: str, key_path: tuple[str, ...]) -> list[_Table]:
    """Return the table at a key path and those inside it; those with only blank lines between them are one."""
    found = [table for table in _tables(text) if table.keys[: len(key_path)] == key_path]
    if any(table.is_array for table in found):
        raise ConfigError("the change would affect other parts of the file; edit the file by hand")
    merged: list[_Table] = []
    for table in found:
        if merged and not text[merged[-1].end : table.start].strip():
            merged[-1] = merged[-1]._replace(end=table.end)
        else:
            merged.append(table)
    return merged


def _tables(text: str) -> Iterator[_Table]:
    """Yield the tables that have a header, in order."""
    keys: tuple[str, ...] | None = None
    start = line = at = depth = end = 0
    is_array, first = False, True
    while at < len(text):
        header = _HEADER.match(text, at) if first and not depth else None
        if header is not None:
            if keys is not None:
                yield _Table(keys, start, end, is_array)
            keys = tuple(_plain(each) for each in _ONE_KEY.findall(header.group(2)))
            start, is_array = line, header.group(1) is not None
            at = header.end() + (1 if is_array else 0)
            end, first = _line_end(text, at), False
            continue
        token = _TOKEN.match(text, at)
        assert token is not None
        at = token.end()
        kind = token.lastgroup
        if kind == "line":
            first, line = True, at
        elif kind is None or kind in ("open", "close"):
            depth += (kind == "open") - (kind == "close")
            end, first = _line_end(text, at), False
    if keys is not None:
        yield _Table(keys, start, end, is_array)


def _line_end(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found + 1


def _plain(key: str) -> str:
    if key.startswith("'"):
        return key[1:-1]
    return str(tomllib.loads(f"x = {key}")["x"]) if key.startswith('"') else key


# --- writing ---------------------------------------------------------------------------------------------------------


def render_table(key_path: tuple[str, ...], name: str, value: Mapping[str, Any]) -> str:
    """Return a table as TOML; objects in it become tables of their own."""
    path = ".".join(_key(part) for part in (*key_path, name))
    lines = [f"[{path}]"]
    lines += [f"{_key(key)} = {_value(each)}" for key, each in value.items() if not isinstance(each, Mapping)]
    for key, each in value.items():
        if isinstance(each, Mapping):
            lines += ["", f"[{path}.{_key(key)}]", *(f"{_key(inner)} = {_value(it)}" for inner, it in each.items())]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _string(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    raise ConfigError(f"TOML has no {'null' if value is None else type(value).__name__}")


def _string(text: str) -> str:
    # JSON's escapes are TOML's, but for DEL, which JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
