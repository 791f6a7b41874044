"""How a secret is named where a value is written: ``secret://name`` alone, or ``${secret:name}`` inside a text.

A name says which secret is meant, and may say who keeps it (``secret://env/NAME``). A value with such names in it is
sealed: what stands for them is filled in right before the server is started, once it is known that it may run. Pure:
no secret is looked up here, and nothing here holds one.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from msgspec import Struct

__all__ = ["SCHEME", "Keeper", "Sealed", "SecretName", "read_secret_name"]

#: What a value begins with that is a secret and nothing else.
SCHEME = "secret://"

#: Who keeps a secret: the system's keyring, the encrypted file, the environment, or a command of the user's.
Keeper: TypeAlias = Literal["keyring", "file", "env", "cmd"]

_NAME = re.compile(r"(?:(keyring|file|env|cmd)/)?([A-Za-z0-9._-]{1,128})")


class SecretName(Struct, frozen=True):
    """Which secret is meant."""

    name: str
    #: Who keeps it; None: the keyring or, where it is not in there, the file.
    keeper: Keeper | None = None

    def __str__(self) -> str:
        """Write it as a configuration does, without the scheme."""
        return self.name if self.keeper is None else f"{self.keeper}/{self.name}"


class Sealed(Struct, frozen=True):
    """A value of an entry that has secrets in it, as the parts between which they are filled in."""

    #: The field of the entry and the way within it: ``("env", "TOKEN")``, ``("command", 2)``, ``("url",)``.
    place: tuple[str | int, ...]
    parts: tuple[str | SecretName, ...]

    def __repr__(self) -> str:
        """Leave the parts out: what came out of a variable may be among them."""
        return f"Sealed({self.key!r}, {', '.join(map(str, self.names))})"

    @property
    def key(self) -> str:
        """The place as a configuration names it."""
        first, *rest = self.place
        if first == "command" and rest:
            return f"args[{int(rest[0]) - 1}]"
        words = [f"[{each}]" if isinstance(each, int) else f".{each}" for each in rest]
        return "".join([str(first), *words])

    @property
    def names(self) -> tuple[SecretName, ...]:
        """The secrets that it needs, each once."""
        return tuple(dict.fromkeys(each for each in self.parts if isinstance(each, SecretName)))


def read_secret_name(text: str) -> SecretName | None:
    """Read a name, with or without ``secret://`` before it; None if it is none."""
    found = _NAME.fullmatch(text.removeprefix(SCHEME))
    if found is None:
        return None
    keeper: Keeper | None = found.group(1)  # type: ignore[assignment]
    return SecretName(found.group(2), keeper)
