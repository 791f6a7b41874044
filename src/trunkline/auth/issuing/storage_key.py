"""The secret that encrypts a provider's tokens in the store: configured, or kept in a private key file.

A store that held its own key would reveal the tokens with the first copy of its file: a backup, a volume, a support
ticket. So the secret comes from elsewhere: ``storage_key=``, else ``client_secret=``, else, for a public client with
neither, a random one in a file beside the store that only its owner can read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from msgspec import Struct

from trunkline.auth.issuing.records import new_secret
from trunkline.errors import ConfigError

__all__ = ["StorageSecrets", "find_storage_secrets"]

_SHORTEST = 32
_LONGEST = 4096
_NEW_KEY = "python -c 'import secrets; print(secrets.token_urlsafe(32))'"


class StorageSecrets(Struct, frozen=True):
    """The secrets that encrypt provider tokens."""

    #: The first one encrypts; all are tried for decryption.
    secrets: tuple[str, ...]
    #: The key file was just created, so tokens in the store were encrypted by a version without key files.
    new_file: bool = False


def find_storage_secrets(given: str | Sequence[str] | None, *, client_secret: str | None, store: str) -> StorageSecrets:
    """Return the secrets for a store: the configured ones, the client's, or that of the key file, created if missing.

    Raises:
        ConfigError: a given key is too short, or the key file cannot be used; the message says what to do.
    """
    if given is not None:
        return StorageSecrets(_checked((given,) if isinstance(given, str) else tuple(given)))
    if client_secret:
        return StorageSecrets((client_secret,))
    if store == ":memory:":
        return StorageSecrets((new_secret(),))
    path = f"{store}.key"
    try:
        made = _make(path)
        return StorageSecrets((_read(path),), new_file=made)
    except OSError as problem:
        raise ConfigError(
            f"cannot use the key file {path!r} ({problem.strerror}), which encrypts the provider's tokens if there is "
            f"no client_secret=. Make its folder writable, or set storage_key= (generate one with: {_NEW_KEY})"
        ) from problem


def _checked(keys: tuple[str, ...]) -> tuple[str, ...]:
    if not keys or any(not isinstance(key, str) or len(key) < _SHORTEST for key in keys[:1]):
        raise ConfigError(f"storage_key= needs at least {_SHORTEST} characters; generate one with: {_NEW_KEY}")
    return keys


def _make(path: str) -> bool:
    """Create the key file if there is none; return True if this process created it.

    It is written under another name and then linked, so that no process sees a partial file, and of two processes
    one wins.
    """
    if os.path.lexists(path):
        return False
    draft = f"{path}.{new_secret()[:8]}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(f"{new_secret()}\n")
            file.flush()
            os.fsync(descriptor)
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(draft)
    return True


def _read(path: str) -> str:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0))
    try:
        mode = os.fstat(descriptor).st_mode
        if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
            raise ConfigError(
                f"the key file {path!r} can be read by other users: run chmod 600 {path}. If it may have been read, "
                f"delete it instead: a new key is generated, and users must sign in again"
            )
        text = os.read(descriptor, _LONGEST).decode("utf-8", "replace").strip()
    finally:
        os.close(descriptor)
    if len(text) < _SHORTEST:
        raise ConfigError(
            f"the key file {path!r} contains no key: restore it from a backup, or delete it: a new key is generated, "
            f"and users must sign in again"
        )
    return text
