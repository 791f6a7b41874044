"""Takes out of a value what nobody should read later: credentials by name, by place and by look, and sheer size.

Pure: values in, values out, nothing of the input is changed or shared. A ``Redaction`` is made once of what is to be
hidden and applied many times. What it hides by look is a net, not a proof: a policy names the places that it must hide.
Every pattern is bounded, so that a hostile text costs no more than a plain one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import Any, TypeAlias

from trunkline.host.policy.pointers import parse_pointer

__all__ = ["DEFAULT_NAMES", "HIDDEN", "Redaction", "redact"]

#: What stands in place of something hidden.
HIDDEN = "***"

#: Names of members whose values are credentials: letters and digits alone, in lower case. A member is hidden if its
#: name, a word of it, two words together, or its end is one of these.
DEFAULT_NAMES: frozenset[str] = frozenset(
    {
        "accesskey",
        "apikey",
        "apitoken",
        "auth",
        "authorization",
        "authtoken",
        "bearer",
        "clientsecret",
        "connectionstring",
        "cookie",
        "cookies",
        "credential",
        "credentials",
        "encryptionkey",
        "jwt",
        "otp",
        "passcode",
        "passphrase",
        "passwd",
        "password",
        "passwords",
        "privatekey",
        "pwd",
        "secret",
        "secretkey",
        "secrets",
        "sessionid",
        "setcookie",
        "signingkey",
        "sshkey",
        "token",
    }
)

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# Shorter ones are looked for as whole names and words only.
_LONG_ENOUGH = 5
# A shorter secret would be found in every other word; it is hidden where it is the whole text.
_SHORTEST_SECRET = 4
_LOOKS = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z0-9 ]{0,40}KEY-----|\Z)",
    r"\beyJ[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]*){0,4}",
    r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}",
    r"\bgh[pousr]_[A-Za-z0-9]{16,}",
    r"\bgithub_pat_[A-Za-z0-9_]{16,}",
    r"\bglpat-[A-Za-z0-9_-]{16,}",
    r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"\bAIza[A-Za-z0-9_-]{30,}",
    r"\bya29\.[A-Za-z0-9_-]{16,}",
    r"\bnpm_[A-Za-z0-9]{30,}",
    r"\bpypi-[A-Za-z0-9_-]{30,}",
    r"\bhf_[A-Za-z0-9]{30,}",
    r"(?i:\b(?:bearer|basic))[ ]{1,4}[A-Za-z0-9._~+/=-]{8,}",
    # A user and a password in a URL.
    r"(?<=://)[^\s/@:]{1,256}:[^\s/@]{1,256}(?=@)",
    # What a command line or a query string sets.
    r"(?i:(?<=password)|(?<=passwd)|(?<=secret)|(?<=token)|(?<=api_key)|(?<=api-key)|(?<=apikey))"
    r"[\"']?[ ]{0,3}[=:][ ]{0,3}[\"']?[^\s\"'&;,]{3,}",
)
# One of these is in every text that holds something of such a look, in lower case: nearly all texts are done with that.
_SIGNS = (
    *("-----begin", "eyj", "sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    *("github_pat_", "glpat-", "xox", "akia", "asia", "aiza", "ya29.", "npm_", "pypi-", "hf_", "bearer", "basic", "@"),
    *("password", "passwd", "secret", "token", "api_key", "api-key", "apikey"),
)
# As long as ``://a:b@``.
_SHORTEST_LOOK = 7
_MARGIN = 1024
# Names of members come from whoever calls: so many judgements are remembered.
_MOST_NAMES = 1024
# Nobody calls an argument that; whatever it is, it is not looked at.
_LONGEST_NAME = 256
# What a decoder of the trail reads back as the same number.
_WHOLE_NUMBERS = range(-(2**63), 2**64)
Segments: TypeAlias = tuple[str, ...]


def redact(
    value: Any,
    *,
    pointers: Iterable[str] = (),
    secrets: frozenset[str] = frozenset(),
    names: frozenset[str] = DEFAULT_NAMES,
) -> Any:
    """Give a copy of a JSON value without what is to be hidden."""
    return Redaction(pointers=pointers, secrets=secrets, names=names).apply(value)


class Redaction:
    """What is to be hidden, made ready."""

    def __init__(
        self,
        *,
        pointers: Iterable[str] = (),
        secrets: frozenset[str] = frozenset(),
        names: frozenset[str] = DEFAULT_NAMES,
        text_length: int = 1024,
        depth: int = 16,
        members: int = 512,
    ) -> None:
        """Take JSON pointers (``*`` for any one step), known secrets, names of members, and how much is kept."""
        self._pointers = tuple(parse_pointer(pointer) for pointer in pointers)
        self._short = frozenset(each for each in secrets if 0 < len(each) < _SHORTEST_SECRET)
        long = sorted((each for each in secrets if len(each) >= _SHORTEST_SECRET), key=len, reverse=True)
        self._secrets = tuple(long)
        self._hidden = re.compile("|".join([*map(re.escape, long), *_LOOKS]))
        self._names = names
        self._ends = tuple(each for each in names if len(each) >= _LONG_ENOUGH)
        self._judged: dict[str, bool] = {}
        self._text_length = text_length
        self._margin = max(_MARGIN, *map(len, long)) if long else _MARGIN
        self._depth = depth
        self._members = members

    def apply(self, value: Any) -> Any:
        """Give a copy of a JSON value without what is to be hidden."""
        return _Copy(self, self._members).of(value, self._pointers, self._depth)

    def text(self, text: str) -> str:
        """Give a text without what is to be hidden, cut if it is long."""
        if text in self._short:
            return HIDDEN
        limit = self._text_length
        window = text[: limit + self._margin]
        kept: list[str] = []
        at, end = 0, min(limit, len(text))
        for found in self._hidden.finditer(window) if self._may_hold(window) else ():
            if found.start() >= end:
                break
            kept += (window[at : found.start()], HIDDEN)
            at = found.end()
        kept.append(window[at : max(at, end)])
        if len(text) <= limit:
            return "".join(kept)
        # The digest of a text with a secret in it could be used to guess the secret.
        about = "" if at else f", sha256:{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"
        return f"{''.join(kept)}... ({len(text)} characters{about})"

    def hides(self, name: str) -> bool:
        """Tell whether a member of this name is a credential."""
        if len(name) > _LONGEST_NAME:
            return True
        judged = self._judged.get(name)
        if judged is None:
            if len(self._judged) >= _MOST_NAMES:
                self._judged.clear()
            judged = self._judged[name] = self._judge(name)
        return judged

    def _may_hold(self, text: str) -> bool:
        """Tell whether there is anything in a text to look at more closely."""
        if len(text) >= _SHORTEST_LOOK:
            lowered = text.lower()
            for sign in _SIGNS:
                if sign in lowered:
                    return True
        return any(secret in text for secret in self._secrets) if self._secrets else False

    def _judge(self, name: str) -> bool:
        words = [word.lower() for word in _WORDS.findall(name)]
        whole = "".join(words)
        return (
            whole in self._names
            or any(word in self._names for word in words)
            or any(one + two in self._names for one, two in pairwise(words))
            or whole.endswith(self._ends)
        )


class _Copy:
    """One copy under way, and how many members it may still have."""

    def __init__(self, rules: Redaction, members: int) -> None:
        """Start with nothing copied."""
        self._rules = rules
        self._left = members

    def of(self, value: Any, pointers: Sequence[Segments], depth: int) -> Any:
        """Copy a value; the pointers are relative to it."""
        if () in pointers:
            return HIDDEN
        if isinstance(value, str):
            return self._rules.text(value)
        if value is None or isinstance(value, bool | float):
            return value
        if isinstance(value, int):
            return value if value in _WHOLE_NUMBERS else self._rules.text(f"{value:#x}")
        if isinstance(value, bytes | bytearray | memoryview):
            return f"({len(value)} bytes)"
        if isinstance(value, dict | Mapping):
            return self._object(value, pointers, depth) if depth > 0 else f"({len(value)} members)"
        if isinstance(value, list | tuple):
            return self._array(value, pointers, depth) if depth > 0 else f"({len(value)} items)"
        return f"({type(value).__name__})"

    def _object(self, value: Mapping[Any, Any], pointers: Sequence[Segments], depth: int) -> dict[str, Any]:
        copied: dict[str, Any] = {}
        for count, (name, member) in enumerate(value.items()):
            if self._left <= 0:
                copied["..."] = f"({len(value) - count} more members)"
                break
            self._left -= 1
            shown = self._free(self._rules.text(str(name)), copied)
            if member is not None and not isinstance(member, bool) and self._rules.hides(str(name)):
                copied[shown] = HIDDEN
            else:
                copied[shown] = self.of(member, _within(pointers, str(name)), depth - 1)
        return copied

    def _free(self, name: str, taken: Mapping[str, Any]) -> str:
        """Number a name that another member has once both are redacted."""
        number, free = 1, name
        while free in taken:
            number += 1
            free = f"{name} ({number})"
        return free

    def _array(self, value: Sequence[Any], pointers: Sequence[Segments], depth: int) -> list[Any]:
        copied: list[Any] = []
        for index, item in enumerate(value):
            if self._left <= 0:
                copied.append(f"({len(value) - index} more items)")
                break
            self._left -= 1
            copied.append(self.of(item, _within(pointers, str(index)), depth - 1))
        return copied


def _within(pointers: Sequence[Segments], name: str) -> Sequence[Segments]:
    """Give what is left of the pointers after a step."""
    if not pointers:
        return pointers
    return [each[1:] for each in pointers if each and each[0] in ("*", name)]
