"""Guesses what is a secret, by how something is called and by how it looks; one table for all reference servers.

A net, not a proof: it rather hides too much. Pure, and every pattern takes time in proportion to what it reads, since
names and values come from strangers: whoever built an image, whoever set a variable.
"""

from __future__ import annotations

import re

__all__ = ["holds_secret", "looks_secret", "names_secret"]

#: Parts of names that say it anywhere, words that say it alone, and keys: not keyboards, not monkeys.
_NAME = re.compile(
    r"pass|pwd|secret|token|credential|private|bearer|cookie|session|signature|connection[_.-]?string"
    r"|auth(?!ors?(?![a-z]))"
    r"|(?<![a-z0-9])(?:cert|dsn|jwt|otp|pat|pin|salt|sig)(?![a-z0-9])"
    r"|(?<!mon)key(?:s|(?![a-z])|[a-z]{0,20}_?(?:id|base64|b64|file)(?![a-z]))",
    re.IGNORECASE,
)
#: The folder a shell is in, and was in before.
_NOT_SECRET = frozenset({"PWD", "OLDPWD"})
#: How the tokens of services begin, what a query or a connection string sets, and keys in their armour.
_VALUE = re.compile(
    r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|sk[-_]|rk[-_]|pk[-_]|AKIA|ASIA|AIza|ya29\.|npm_|pypi-|hf_|eyJ)"
    r"[\w-]{6}"
    r"|-----BEGIN"
    r"|(?i:\b(?:bearer|basic)[ ][\w.~+/=-]{8})"
    r"|(?i:passw(?:or)?d|pwd|passphrase|secret|token|api[-_]?key|account[-_]?key|[?&;](?:sig|signature|key))"
    r"[\"']?[ ]{0,3}[=:][ ]{0,3}[\"']?[^\s\"'&;,]"
)


def names_secret(name: str) -> bool:
    """Tell whether what is called so is likely to be a secret."""
    return name not in _NOT_SECRET and _NAME.search(name) is not None


def holds_secret(text: str) -> bool:
    """Tell whether a text looks like a secret or holds one, such as the password in an address."""
    return _VALUE.search(text) is not None or _names_a_user(text)


def looks_secret(name: str, value: str) -> bool:
    """Tell whether a value should not be shown, by its name or its own look; one that is empty may."""
    return bool(value) and (names_secret(name) or holds_secret(value))


def _names_a_user(text: str) -> bool:
    """Tell whether there is an address with an ``@`` behind its scheme: before it stands a user, perhaps a password."""
    return "://" in text and "@" in text and any("@" in word.partition("://")[2] for word in text.split())
