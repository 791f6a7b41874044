"""Decides which part of a variable's value may be shown where it determines the program that runs or the address used.

A person who approves a server must see what it is. A value in a command, its arguments or a URL is shown if it is
clearly not a secret: the variable's name does not suggest one, and the value is a path, an address, or the name of a
program or host. Every other value stays hidden, and so does every part that looks random. Pure.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from trunkline.protocol.secret_looks import holds_secret, names_secret

__all__ = ["Spot", "hidden_parts"]

#: Where a value is used: as the program, within an argument, or within a URL.
Spot: TypeAlias = Literal["program", "argument", "url"]

_PATH = re.compile(r"(?:[A-Za-z]:|~|\.{1,2})?[/\\]")
_ADDRESS = re.compile(r"https?://[^/?#@\s]+(?=[/?#]|\Z)", re.I)
_PROGRAM = re.compile(r"[A-Za-z]+(?:[-_][A-Za-z]+)*[0-9.]{0,8}(?:\.exe)?")
_HOST = re.compile(r"(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)(?::[0-9]{1,5})?")
_PIECE = re.compile(r"[^/\\.:\s]+")
# Tokens are longer than words, and have digits among their letters.
_LONG_WITH_DIGITS = 16
_LONG = 32


def hidden_parts(name: str, value: str, spot: Spot) -> frozenset[str]:
    """Return the parts of a variable's value that must not be shown there: all of it if in doubt."""
    whole = frozenset({value})
    if names_secret(name, setting=True) or holds_secret(value) or not value.isprintable():
        return whole
    host = _ADDRESS.match(value)
    if host is not None:
        if _by_chance(host.group().partition("://")[2]):
            return whole
        address, _, query = value.partition("?")
        address, _, fragment = address.partition("#")
        return frozenset({*filter(_drawn, address[host.end() :].split("/")), *filter(None, (query, fragment))})
    plain = (
        _PATH.match(value) is not None
        or (spot == "program" and _PROGRAM.fullmatch(value) is not None)
        or (spot == "url" and _HOST.fullmatch(value) is not None)
    )
    return frozenset() if plain and not _by_chance(value) else whole


def _by_chance(value: str) -> bool:
    return any(_drawn(piece) for piece in _PIECE.findall(value))


def _drawn(piece: str) -> bool:
    """Return True if a part of a value looks randomly generated."""
    digits = any(letter.isdigit() for letter in piece) and any(letter.isalpha() for letter in piece)
    return len(piece) >= (_LONG_WITH_DIGITS if digits else _LONG) or "=" in piece or "+" in piece
