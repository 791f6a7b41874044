"""The ``WWW-Authenticate`` header.

Written by a resource server that rejects a request (RFC 6750, section 3, with the metadata pointer of RFC 9728,
section 5.1), and parsed by a client whose request was rejected. The parser treats the header as hostile input: it
reads it once, up to a limit, and skips what it cannot parse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

__all__ = ["Challenge", "TokenChallenge", "format_challenge", "parse_challenges", "parse_token_challenge"]

# RFC 6750, 3: the characters a description may not contain; each is replaced by one that it may.
_NOT_IN_QUOTED_STRING = re.compile(r"[^\x20-\x21\x23-\x5b\x5d-\x7e]")
_MAX_VALUE_CHARS = 300  # With all its values the header stays far below the 8 KiB that clients accept.


def format_challenge(
    scheme: str,
    *,
    metadata: str | None = None,
    scopes: tuple[str, ...] = (),
    error: str | None = None,
    description: str | None = None,
    more: tuple[tuple[str, str], ...] = (),
) -> str:
    """Format a challenge; every value is quoted, so that no value can become a parameter of its own."""
    given = (
        ("error", error),
        ("error_description", description if error is not None else None),
        ("scope", " ".join(scopes) or None),
        ("resource_metadata", metadata),
        *more,
    )
    written = ", ".join(f'{name}="{_quotable(value)}"' for name, value in given if value is not None)
    return f"{scheme} {written}" if written else scheme


def _quotable(value: str) -> str:
    return _NOT_IN_QUOTED_STRING.sub("'", value[:_MAX_VALUE_CHARS])


_MAX_HEADER_CHARS = 8 * 1024  # Common servers and proxies limit a header to this.
_MAX_SCOPES = 100  # Far more than one resource needs; the list goes into a URL.
_SKIP = re.compile(r"[\s,]*")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PARAM = re.compile(r"[ \t]*=[ \t]*(?:\"((?:[^\"\\]|\\.)*)\"|([!#$%&'*+\-.^_`|~0-9A-Za-z:/]+))")
# Some schemes have this in place of parameters.
_TOKEN68 = re.compile(r"[ \t]+[A-Za-z0-9\-._~+/]+=*(?=[ \t]*(?:,|$))")
_REST = re.compile(r"[^,]*")
_ESCAPED = re.compile(r"\\(.)")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


class Challenge(Struct, frozen=True):
    """One challenge: its scheme and its parameters, with names in lower case."""

    scheme: str
    params: Mapping[str, str]


class TokenChallenge(Struct, frozen=True):
    """The Bearer or DPoP challenge of a response: what a client needs to be let in."""

    #: ``bearer`` or ``dpop``.
    scheme: str = "bearer"
    error: str | None = None
    #: The scopes that the rejected request needs.
    scopes: tuple[str, ...] = ()
    #: The URL of the protected resource metadata.
    resource_metadata: str | None = None


def parse_challenges(header: str) -> list[Challenge]:
    """Parse one header; what cannot be parsed is left out."""
    text, at = header[:_MAX_HEADER_CHARS], 0
    found: list[tuple[str, dict[str, str]]] = []
    while True:
        at = _end(_SKIP, text, at)
        word = _TOKEN.match(text, at)
        if word is None:
            if at >= len(text):
                return [Challenge(scheme, params) for scheme, params in found]
            at = max(_end(_REST, text, at), at + 1)
            continue
        at = word.end()
        param = _PARAM.match(text, at)
        if param is not None and found:
            value = param[2] if param[1] is None else _ESCAPED.sub(r"\1", param[1])
            # A repeated parameter is dropped: it is not clear which value counts.
            known = found[-1][1]
            known[word[0].lower()] = "" if word[0].lower() in known else value
            at = param.end()
        elif param is not None:
            at = param.end()
        else:
            found.append((word[0].lower(), {}))
            at = _end(_TOKEN68, text, at)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return at if match is None else match.end()


def parse_token_challenge(headers: Iterable[str]) -> TokenChallenge:
    """Parse the headers of a response; return a default challenge if they contain none with a supported scheme."""
    challenges = [challenge for header in headers for challenge in parse_challenges(header)]
    ours = [challenge for challenge in challenges if challenge.scheme in ("bearer", "dpop")]
    if not ours:
        return TokenChallenge()
    chosen = ours[0]
    params = chosen.params
    scopes = params.get("scope", "").split()
    return TokenChallenge(
        scheme=chosen.scheme,
        error=params.get("error") or None,
        scopes=tuple(dict.fromkeys(scope for scope in scopes if _SCOPE.fullmatch(scope)))[:_MAX_SCOPES],
        resource_metadata=params.get("resource_metadata") or None,
    )
