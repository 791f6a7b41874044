"""What is said when a value does not fit its type: where, what was expected, which JSON type came; never the value.

It knows nothing of functions or requests. Both engines complain in their own words; `explain` reads msgspec's, the
pydantic module its own, and both end in the sentences made here. The text of an error that user code raised itself
(a `__post_init__`, a validator) is passed on: its author wrote it for the caller.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

__all__ = [
    "KEY",
    "ArgumentError",
    "Mismatch",
    "ResultError",
    "check_names",
    "describe_choices",
    "did_you_mean",
    "explain",
    "join_path",
    "json_kind",
]

#: The step of a path that means a key of an object rather than a member.
KEY = "(key)"

#: How much of a name the caller made up is said back to it.
_NAME_LIMIT = 64
_CHOICES_SHOWN = 20

_KINDS = MappingProxyType(
    {
        "array": "an array",
        "bool": "a boolean",
        "bytes": "base64 text",
        "date": "a date",
        "datetime": "a date and time",
        "decimal": "a decimal number",
        "float": "a number",
        "int": "an integer",
        "null": "null",
        "object": "an object",
        "str": "a string",
        "time": "a time",
        "timedelta": "a duration",
        "uuid": "a UUID",
    }
)

_INVALID = MappingProxyType(
    {
        "Invalid RFC3339 encoded date": "an RFC 3339 date",
        "Invalid RFC3339 encoded datetime": "an RFC 3339 date and time",
        "Invalid RFC3339 encoded time": "a time such as 12:00:00",
        "Invalid ISO8601 duration": "an ISO 8601 duration such as PT5M",
        "Invalid UUID": "a UUID",
        "Invalid base64 encoded string": "base64 text",
        "Invalid decimal string": "a decimal number",
    }
)

# Compiled by the first message that is explained: a server that starts needs none of them.
_LOCATED = r"(?s) - at (`key` in )?`\$(.*)`$"
_STEP = r"\.([^.\[\]]+)|\[(\d+)\]|\[(\.\.\.)\]"
_EXPECTED = r"(?s)Expected `([^`]*)`(?:, got `([^`]*)`)?(.*)"
_MISSING = r"(?s)Object missing required field `(.*)`"
_UNKNOWN = r"(?s)Object contains unknown field `(.*)`"


class Mismatch(ValueError):
    """A value does not fit its type; ``path`` says where (dotted, empty for the whole), ``message`` why."""

    def __init__(self, message: str, *, path: str = "") -> None:
        """Show the path before the sentence."""
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message


class ArgumentError(Mismatch):
    """The arguments of a call do not fit the function; the caller can read the text and try again."""


class ResultError(Mismatch):
    """A function returned what its return annotation does not allow; a fault of the function."""


def json_kind(value: object) -> str:
    """Name the JSON type of a decoded value, with its article."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a number"
        case str():
            return "a string"
        case dict():
            return "an object"
        case list() | tuple():
            return "an array"
        case _:
            return f"a {type(value).__name__}"


def join_path(steps: Sequence[str | int]) -> str:
    """Write a path the way every error shows it: ``filters.0.name``."""
    return ".".join(str(step)[:_NAME_LIMIT] for step in steps)


def describe_choices(choices: Collection[object]) -> str:
    """List what is allowed, shortened when it is long."""
    shown = [repr(choice) for choice in list(choices)[:_CHOICES_SHOWN]]
    more = len(choices) - len(shown)
    return f"one of {', '.join(shown)}" + (f" and {more} more" if more else "")


def check_names(given: Collection[str], known: Collection[str], *, required: Collection[str]) -> None:
    """Refuse unknown argument names with the nearest known one, and name all that are missing.

    Raises:
        ArgumentError: a name is unknown or missing.
    """
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ArgumentError("; ".join(_unknown_argument(name, known) for name in unknown[:5]))
    missing = [repr(name) for name in required if name not in given]
    if missing:
        raise ArgumentError(f"missing argument{'s' if len(missing) > 1 else ''} {', '.join(missing)}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Give the end of a sentence about an unknown name: the nearest known one, or nothing."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _unknown_argument(name: str, known: Collection[str]) -> str:
    name = name[:_NAME_LIMIT]
    if hint := did_you_mean(name, known) or did_you_mean(name.lower(), known):
        return f"unknown argument {name!r}{hint}"
    if not known:
        return f"unknown argument {name!r}; there are none"
    return f"unknown argument {name!r}; known are {', '.join(repr(each) for each in list(known)[:_CHOICES_SHOWN])}"


def explain(text: str) -> tuple[list[str | int], str]:
    """Take msgspec's words apart into the steps of the path and our sentence for them.

    An enum's complaint holds the value, so its sentence is left empty: whoever knows the type fills it in.
    """
    steps: list[str | int] = []
    located = re.search(_LOCATED, text)
    if located is not None:
        text = text[: located.start()]
        for name, index, _ in re.findall(_STEP, located[2]):
            steps.append(name or (int(index) if index else "*"))
        if located[1]:
            steps.append(KEY)
    return steps, _sentence(text)


def _sentence(text: str) -> str:
    if text in _INVALID:
        return f"expected {_INVALID[text]}, got a string"
    if text.startswith(("Invalid enum value", "Invalid value")):
        return ""
    if found := re.fullmatch(_EXPECTED, text):
        wanted, got, rest = found.groups()
        expected = " or ".join(_KINDS.get(word, word) for word in wanted.split(" | "))
        return f"expected {expected}{rest}" + (f", got {_KINDS.get(got, got)}" if got else "")
    if found := re.fullmatch(_MISSING, text):
        return f"missing member {found[1]!r}"
    if found := re.fullmatch(_UNKNOWN, text):
        return f"unknown member {found[1][:_NAME_LIMIT]!r}"
    if text.endswith("out of range"):
        return "expected a number that a double can hold"
    return text
