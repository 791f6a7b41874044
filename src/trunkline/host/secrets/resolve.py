"""Resolution of the secrets in an entry, right before its server is started.

The caller has made sure that the server may run: before that, no secret that a project file refers to is looked up. The
resolved values are added to the entry's secrets, whole and in parts, so that they are redacted from output.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from msgspec.structs import replace

from trunkline.errors import ConfigError
from trunkline.host.config.model import ServerEntry
from trunkline.host.config.variables import is_maskable
from trunkline.host.secrets.references import SecretReference, SecretTemplate

__all__ = ["ReadSecret", "resolve_secrets"]

#: Looks up a secret; raises ``ConfigError`` if there is none.
ReadSecret: TypeAlias = Callable[[SecretReference], Awaitable[str]]

#: The allowed values, by the field of the entry.
_FITS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "command": re.compile(r"[^\x00]*"),
        "env": re.compile(r"[^\x00]*"),
        "headers": re.compile(r"(?![ \t])[\t\x20-\x7e\x80-\xff]*(?<![ \t])"),
        "url": re.compile(r"[\x21-\x7e]*"),
        "auth": re.compile(r"[^\x00]*"),
    }
)


async def resolve_secrets(entry: ServerEntry, read: ReadSecret) -> ServerEntry:
    """Return an entry in which all secret references are replaced by their values.

    Raises:
        ConfigError: a secret is missing, cannot be read, or is not valid there; the message names it and the fix.
    """
    if not entry.sealed:
        return entry
    known: dict[SecretReference, str] = {}
    texts: dict[tuple[str | int, ...], str] = {}
    for sealed in entry.sealed:
        for name in sealed.names:
            if name not in known:
                known[name] = await _read(entry, sealed, read, name)
        texts[sealed.place] = _joined(entry, sealed, known)
    return replace(
        entry,
        command=None if entry.command is None else tuple(_put(entry.command, texts, ("command",))),
        env=MappingProxyType(_put(entry.env, texts, ("env",))),
        url=None if entry.url is None else _put(entry.url, texts, ("url",)),
        headers=MappingProxyType(_put(entry.headers, texts, ("headers",))),
        auth=_put(entry.auth, texts, ("auth",)),
        secrets=entry.secrets | frozenset(_to_hide(known.values(), texts.values())),
        sealed=(),
    )


async def _read(entry: ServerEntry, sealed: SecretTemplate, read: ReadSecret, name: SecretReference) -> str:
    try:
        return await read(name)
    except ConfigError as error:
        raise ConfigError(f"{_at(entry, sealed)}: {error}") from error


def _joined(entry: ServerEntry, sealed: SecretTemplate, known: Mapping[SecretReference, str]) -> str:
    text = "".join(known[part] if isinstance(part, SecretReference) else part for part in sealed.parts)
    if _FITS[str(sealed.place[0])].fullmatch(text) is None:
        names = ", ".join(map(str, sealed.names))
        raise ConfigError(
            f"{_at(entry, sealed)}: with the secret {names} filled in, the value contains characters that are not "
            "allowed there; look for a line end or a space in the secret, and set it again"
        )
    return text


def _at(entry: ServerEntry, sealed: SecretTemplate) -> str:
    return f"{entry.source}: {entry.name}.{sealed.key}"


def _put(value: Any, texts: Mapping[tuple[str | int, ...], str], place: tuple[str | int, ...]) -> Any:
    """Copy a value with the resolved texts in their places."""
    if place in texts:
        return texts[place]
    if isinstance(value, Mapping):
        return {name: _put(each, texts, (*place, name)) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_put(each, texts, (*place, at)) for at, each in enumerate(value)]
    return value


def _to_hide(secrets: Iterable[str], texts: Iterable[str]) -> Iterable[str]:
    """Yield what must be redacted: the secrets, the values that contain them, and these without a word like Bearer."""
    texts = list(texts)
    credentials = [text.partition(" ")[2].strip() for text in texts]
    return (each for each in (*secrets, *texts, *credentials) if is_maskable(each))
