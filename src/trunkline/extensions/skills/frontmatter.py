"""Finds, parses, validates, compares and writes the frontmatter of a ``SKILL.md``.

The rules are those of the Agent Skills specification (agentskills.io). Unknown fields are kept unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from trunkline.extensions.skills.yaml_reader import YamlError, read_yaml

__all__ = [
    "SKILL_FILE",
    "FrontmatterError",
    "allowed_tools",
    "check_fields",
    "differing_fields",
    "is_skill_name",
    "read_frontmatter",
    "write_frontmatter",
]

#: The name of the file that makes a folder a skill.
SKILL_FILE = "SKILL.md"

_MAX_NAME = 64  # Agent Skills, name: 1 to 64 characters.
_MAX_DESCRIPTION = 1024  # Agent Skills, description: 1 to 1,024 characters.
_MAX_COMPATIBILITY = 500  # Agent Skills, compatibility: 1 to 500 characters.
_MAX_TOOLS_TEXT = 2000  # A limit for text from a server: splitting takes quadratic time.
_MAX_TOOLS = 256  # Requested tools; each is compared with every tool of the catalog.
_MAX_HEAD = 128 * 1024  # Characters searched for the end of the frontmatter: twice what the YAML reader accepts.
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\Z")
_SEPARATOR = re.compile(r"[,\s]+(?![^()]*\))")
_LINE_END = re.compile(r"\r\n|\r|\n")
_MARKER = re.compile(r"---[ \t]*\Z")
_PLAIN_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\Z")
#: Characters that JSON writes unescaped, but YAML readers do not accept.
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


class FrontmatterError(ValueError):
    """The frontmatter of a file cannot be used; the message has the reason and the fix."""


def read_frontmatter(content: bytes | str) -> dict[str, Any]:
    """Return the frontmatter of a ``SKILL.md`` as JSON values.

    Raises:
        FrontmatterError: it is missing or cannot be read.
        ConfigError: PyYAML is not installed.
    """
    try:
        text = content if isinstance(content, str) else content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FrontmatterError(f"it is not UTF-8 (byte {error.start}); save it as UTF-8") from error
    # A file may have 16 MiB, and splitting all of it would block the event loop for seconds.
    lines = _LINE_END.split(text.removeprefix("\ufeff")[:_MAX_HEAD])
    if not _MARKER.match(lines[0]):
        raise FrontmatterError("it does not begin with frontmatter; make its first line ---")
    end = next((row for row, line in enumerate(lines[1:], 1) if _MARKER.match(line)), None)
    if end is None:
        raise FrontmatterError("its frontmatter has no end; put a line --- after it")
    try:
        # The first line is kept as an empty one, so that line numbers are those of the file.
        found = read_yaml("\n".join(["", *lines[1:end], ""]))
    except YamlError as error:
        raise FrontmatterError(f"its frontmatter cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise FrontmatterError("its frontmatter holds no fields; write name: and description:")
    return found


def is_skill_name(name: object) -> bool:
    """Return True if a value is a valid skill name: lower-case letters, digits and single hyphens."""
    return isinstance(name, str) and len(name) <= _MAX_NAME and _NAME.match(name) is not None


def check_fields(frontmatter: Mapping[str, Any], folder: str | None = None) -> None:
    """Check the fields that the Agent Skills specification names, and the name against the folder, if one is given.

    Raises:
        FrontmatterError: a field is missing or breaks a rule.
    """
    name, description = frontmatter.get("name"), frontmatter.get("description")
    if not is_skill_name(name):
        raise FrontmatterError(
            f"its name is {_shown(name)}; use 1 to {_MAX_NAME} of the characters a-z and 0-9, single hyphens between"
        )
    if folder is not None and name != folder:
        raise FrontmatterError(f"its name is {name!r} and its folder is {folder!r}; give both the same name")
    if not isinstance(description, str) or not 1 <= len(description.strip()) <= len(description) <= _MAX_DESCRIPTION:
        raise FrontmatterError(
            f"its description is {_shown(description)}; write a text of 1 to {_MAX_DESCRIPTION} characters"
        )
    compatibility = frontmatter.get("compatibility", "-")
    if not isinstance(compatibility, str) or not 1 <= len(compatibility) <= _MAX_COMPATIBILITY:
        raise FrontmatterError(
            f"its compatibility is {_shown(compatibility)}; write 1 to {_MAX_COMPATIBILITY} characters, or leave it out"
        )
    if not isinstance(frontmatter.get("license", ""), str):
        raise FrontmatterError("its license is not a text; put it in quotes")
    if not isinstance(frontmatter.get("metadata", {}), Mapping):
        raise FrontmatterError("its metadata is not a set of key: value pairs")


def _shown(value: object) -> str:
    if value is None:
        return "missing"
    return f"{len(value)} characters long" if isinstance(value, str) and len(value) > _MAX_NAME else repr(value)[:80]


def differing_fields(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the names of the fields in which two frontmatters differ."""
    return [
        name for name in dict.fromkeys((*one, *other)) if not _same(one.get(name, _ABSENT), other.get(name, _ABSENT))
    ]


_ABSENT = object()


def _same(one: object, other: object) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        # JSON has one kind of number: some servers send 1.0 as 1.
        return one == other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_same(each, its) for each, its in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())
    return type(one) is type(other) and one == other


def allowed_tools(frontmatter: Mapping[str, Any]) -> list[str]:
    """Return the tools that a skill requests (``allowed-tools``); a request grants nothing."""
    given = frontmatter.get("allowed-tools")
    if isinstance(given, str):
        # A rule in parentheses may hold separators itself: ``Bash(git add:*)``.
        return [each for each in _SEPARATOR.split(given[:_MAX_TOOLS_TEXT]) if each]
    return [str(each) for each in given[:_MAX_TOOLS]] if isinstance(given, list) else []


def write_frontmatter(frontmatter: Mapping[str, Any]) -> str:
    """Return the fields as frontmatter with both markers; values are written as JSON, which is valid YAML."""
    lines = [f"{_key(name)}: {_json(value)}" for name, value in frontmatter.items()]
    return "\n".join(["---", *lines, "---", ""])


def _key(name: str) -> str:
    return name if _PLAIN_KEY.match(name) and name.lower() not in ("true", "false", "null") else _json(name)


def _json(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return _UNSAFE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
