"""References to secrets in a configuration: ``secret://name`` as a whole value, or ``${secret:name}`` inside a text.

A reference names a secret, and may name its source (``secret://env/NAME``). A value with references is kept as a
template: the secrets are filled in right before the server is started, once it is known that it may run. Pure: no
secret is looked up here, and nothing here holds one.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from msgspec import Struct

__all__ = ["SCHEME", "SecretReference", "SecretSource", "SecretTemplate", "parse_secret_reference"]

#: The prefix of a value that is a single secret reference.
SCHEME = "secret://"

#: Where a secret comes from: the system keyring, the encrypted file, the environment, or a user's command.
SecretSource: TypeAlias = Literal["keyring", "file", "env", "cmd"]

_NAME = re.compile(r"(?:(keyring|file|env|cmd)/)?([A-Za-z0-9._-]{1,128})")


class SecretReference(Struct, frozen=True):
    """A reference to a secret."""

    name: str
    #: Its source; None: the keyring or, if it is not there, the file.
    source: SecretSource | None = None

    def __str__(self) -> str:
        """Return it as written in a configuration, without the scheme."""
        return self.name if self.source is None else f"{self.source}/{self.name}"


class SecretTemplate(Struct, frozen=True):
    """A value of an entry that contains secret references, as a sequence of texts and references."""

    #: The field of the entry and the path within it: ``("env", "TOKEN")``, ``("command", 2)``, ``("url",)``.
    place: tuple[str | int, ...]
    parts: tuple[str | SecretReference, ...]

    def __repr__(self) -> str:
        """Show only the names: the texts may contain values of variables."""
        return f"SecretTemplate({self.key!r}, {', '.join(map(str, self.names))})"

    @property
    def key(self) -> str:
        """The place as named in a configuration."""
        first, *rest = self.place
        if first == "command" and rest:
            return f"args[{int(rest[0]) - 1}]"
        words = [f"[{each}]" if isinstance(each, int) else f".{each}" for each in rest]
        return "".join([str(first), *words])

    @property
    def names(self) -> tuple[SecretReference, ...]:
        """The referenced secrets, each once."""
        return tuple(dict.fromkeys(each for each in self.parts if isinstance(each, SecretReference)))


def parse_secret_reference(text: str) -> SecretReference | None:
    """Parse a reference, with or without ``secret://``; return None if it is not valid."""
    found = _NAME.fullmatch(text.removeprefix(SCHEME))
    if found is None:
        return None
    source: SecretSource | None = found.group(1)  # type: ignore[assignment]
    return SecretReference(found.group(2), source)
