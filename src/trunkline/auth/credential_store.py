"""Stores of credentials (strings by key, in memory, in the system keyring or in an encrypted file) and their locks.

A lock protects a stored login between the tasks of one program, and between processes that share a folder. The file
lock is the kernel's: it is released when its process ends, however that happens. Waiting does not block the event loop.

A store does not know what its keys and values mean. A read-modify-write holds ``lock``, which works across processes
wherever the store itself does. Nothing here blocks the event loop for longer than a small file takes; the keyring,
which may ask the user, is called in a thread.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from types import TracebackType
from typing import Any, Protocol

import msgspec

from trunkline.errors import AuthError, ConfigError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = [
    "CredentialStore",
    "FileLock",
    "FileStore",
    "KeyringStore",
    "MemoryStore",
    "TaskLock",
    "default_folder",
    "find_store",
    "try_lock",
    "usable_keyring",
]

# Longer than a token request may take.
_LONGEST_WAIT = 60.0
_FIRST_PAUSE = 0.01  # Pause before the lock is tried again; it doubles each time.
_LONGEST_PAUSE = 0.25  # A token that was renewed elsewhere is used without a noticeable delay.


class TaskLock:
    """A lock between tasks that may run in different event loops, one after another."""

    def __init__(self) -> None:
        """Start unlocked."""
        self._held = False

    async def __aenter__(self) -> None:
        """Acquire the lock."""
        pause = _FIRST_PAUSE
        while self._held:
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        self._held = True

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """Release the lock."""
        self._held = False


class FileLock:
    """A lock between processes, on a file that is never deleted."""

    def __init__(self, folder: str, name: str) -> None:
        """Choose the lock file; its name is a digest and reveals nothing."""
        self._folder = folder
        self._path = os.path.join(folder, "locks", hashlib.sha256(name.encode()).hexdigest()[:32])
        self._descriptor: int | None = None

    async def __aenter__(self) -> None:
        """Acquire the lock.

        Raises:
            AuthError: the file cannot be created, or another process holds the lock for too long.
        """
        try:
            # Separately, because makedirs applies the mode to the last folder only.
            for folder in (self._folder, os.path.dirname(self._path)):
                os.makedirs(folder, mode=0o700, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        except OSError as error:
            raise AuthError(f"Cannot create the lock file {self._path}: {error.strerror}.") from error
        try:
            await self._acquire(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    async def _acquire(self, descriptor: int) -> None:
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + _LONGEST_WAIT, _FIRST_PAUSE
        while not try_lock(descriptor):
            if loop.time() >= until:
                raise AuthError(f"Another process has held the lock {self._path} for over {_LONGEST_WAIT:g} s.")
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            # Closing the only descriptor of this open file releases the lock.
            os.close(self._descriptor)
            self._descriptor = None


def try_lock(descriptor: int) -> bool:
    """Try to lock an open file against other openings of it; return True on success. Closing the file unlocks it."""
    if sys.platform == "win32":
        os.lseek(descriptor, 0, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


_CONTEXT = b"trunkline credentials 1"
_NONCE = 12  # NIST SP 800-38D: 96 bits for GCM.
_SERVICE = "trunkline"
_INDEX = "index"


class CredentialStore(Protocol):
    """Stores strings by key."""

    async def get(self, key: str) -> str | None:
        """Return the value of a key; None if there is none."""

    async def put(self, key: str, value: str) -> None:
        """Store a value under a key."""

    async def delete(self, key: str) -> None:
        """Delete a key, whether it exists or not."""

    async def keys(self) -> list[str]:
        """List the keys."""

    def lock(self, name: str) -> AbstractAsyncContextManager[object]:
        """Return a lock shared by all users of this store."""


class MemoryStore:
    """Stores logins for as long as this object lives."""

    def __init__(self) -> None:
        """Start empty."""
        self._kept: dict[str, str] = {}
        self._locks: dict[str, TaskLock] = {}

    def __repr__(self) -> str:
        """Show no secret."""
        return f"MemoryStore({len(self._kept)} keys)"

    async def get(self, key: str) -> str | None:
        """Return the value of a key; None if there is none."""
        return self._kept.get(key)

    async def put(self, key: str, value: str) -> None:
        """Store a value under a key."""
        self._kept[key] = value

    async def delete(self, key: str) -> None:
        """Delete a key, whether it exists or not."""
        self._kept.pop(key, None)

    async def keys(self) -> list[str]:
        """List the keys."""
        return sorted(self._kept)

    def lock(self, name: str) -> AbstractAsyncContextManager[object]:
        """Return a lock of this object."""
        return self._locks.setdefault(name, TaskLock())


class FileStore:
    """Stores logins in one file, encrypted with AES-256-GCM; the key file beside it is readable by its owner only."""

    def __init__(self, path: str | os.PathLike[str], *, what: str = "logins") -> None:
        """Use a file, created with its folder on the first write; ``what`` names its content in messages."""
        self._path = os.path.abspath(os.fspath(path))
        self._folder = os.path.dirname(self._path)
        self._what = what

    def __repr__(self) -> str:
        """Show the path."""
        return f"FileStore({self._path!r})"

    async def get(self, key: str) -> str | None:
        """Return the value of a key; None if there is none.

        Raises:
            AuthError: the file cannot be read.
        """
        return self._read().get(key)

    async def put(self, key: str, value: str) -> None:
        """Store a value under a key.

        Raises:
            AuthError: the file cannot be read or written.
        """
        async with self.lock(":file"):
            self._write({**self._read(), key: value})

    async def delete(self, key: str) -> None:
        """Delete a key, whether it exists or not."""
        async with self.lock(":file"):
            kept = self._read()
            if kept.pop(key, None) is not None:
                self._write(kept)

    async def keys(self) -> list[str]:
        """List the keys."""
        return sorted(self._read())

    def lock(self, name: str) -> AbstractAsyncContextManager[object]:
        """Return a lock that works across processes."""
        return FileLock(self._folder, name)

    def _read(self) -> dict[str, str]:
        from cryptography.exceptions import InvalidTag

        try:
            with open(self._path, "rb") as file:
                sealed = file.read()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise AuthError(f"Cannot read the {self._what} in {self._path}: {error.strerror}.") from error
        try:
            plain = self._cipher().decrypt(sealed[:_NONCE], sealed[_NONCE:], _CONTEXT)
            return msgspec.json.decode(plain, type=dict[str, str])
        except (InvalidTag, ValueError, msgspec.DecodeError):
            again = "log in again" if self._what == "logins" else f"set the {self._what} again"
            raise AuthError(
                f"Cannot decrypt the {self._what} in {self._path}: the file or its key was changed. Delete "
                f"{self._path} and {again}."
            ) from None

    def _write(self, kept: dict[str, str]) -> None:
        nonce = os.urandom(_NONCE)
        sealed = nonce + self._cipher().encrypt(nonce, msgspec.json.encode(kept), _CONTEXT)
        try:
            _replace(self._path, sealed)
        except OSError as error:
            raise AuthError(f"Cannot write the {self._what} to {self._path}: {error.strerror}.") from error

    def _cipher(self) -> Any:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(self._key())

    def _key(self) -> bytes:
        path = f"{self._path}.key"
        try:
            _private_folder(self._folder)
            if not os.path.exists(path):
                with suppress(FileExistsError):
                    _replace(path, os.urandom(32), new=True)
            with open(path, "rb") as file:
                if os.name == "posix" and os.fstat(file.fileno()).st_mode & 0o077:
                    raise AuthError(
                        f"The key file {path} can be read by other users: run chmod 600 on it, or delete it."
                    )
                return file.read()
        except OSError as error:
            raise AuthError(f"Cannot read or create the key file {path}: {error.strerror}.") from error


def _private_folder(path: str) -> None:
    os.makedirs(path, mode=0o700, exist_ok=True)


def _replace(path: str, content: bytes, *, new: bool = False) -> None:
    """Write a file atomically, readable by its owner only; with ``new``, fail if it exists."""
    folder, name = os.path.split(path)
    _private_folder(folder)
    other = os.path.join(folder, f".{name}.{os.getpid()}.{os.urandom(8).hex()}")
    descriptor = os.open(other, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if new:
            # Linking, unlike renaming, does not replace a file that another process created first.
            os.link(other, path)
        else:
            os.replace(other, path)
    finally:
        if new or os.path.exists(other):
            os.unlink(other)


class KeyringStore:
    """Stores each login in the system keyring, with an index beside them, since a keyring cannot be listed."""

    def __init__(
        self, keyring: Any = None, *, folder: str | os.PathLike[str] | None = None, service: str = _SERVICE
    ) -> None:
        """Use a backend of the keyring package, by default its own choice; the folder is for locks only."""
        self._keyring = keyring
        self._service = service
        self._folder = os.fspath(folder or default_folder())

    def __repr__(self) -> str:
        """Show no secret."""
        return "KeyringStore()"

    async def get(self, key: str) -> str | None:
        """Return the value of a key; None if there is none."""
        return await self._ask(lambda ring: ring.get_password(self._service, key))  # type: ignore[no-any-return]

    async def put(self, key: str, value: str) -> None:
        """Store a value under a key.

        Raises:
            AuthError: the keyring does not store it.
        """
        await self._ask(lambda ring: ring.set_password(self._service, key, value))
        await self._change_index(lambda kept: kept | {key})

    async def delete(self, key: str) -> None:
        """Delete a key, whether it exists or not."""
        if await self.get(key) is not None:
            await self._ask(lambda ring: ring.delete_password(self._service, key))
        await self._change_index(lambda kept: kept - {key})

    async def keys(self) -> list[str]:
        """List the keys."""
        text = await self._ask(lambda ring: ring.get_password(self._service, _INDEX))
        return [] if text is None else msgspec.json.decode(text, type=list[str])

    def lock(self, name: str) -> AbstractAsyncContextManager[object]:
        """Return a lock that works across processes."""
        return FileLock(self._folder, name)

    async def _change_index(self, change: Callable[[set[str]], set[str]]) -> None:
        async with self.lock(":index"):
            kept = set(await self.keys())
            changed = change(kept)
            if changed != kept:
                text = msgspec.json.encode(sorted(changed)).decode()
                await self._ask(lambda ring: ring.set_password(self._service, _INDEX, text))

    async def _ask(self, work: Callable[[Any], Any]) -> Any:
        """Call the keyring in a thread: it may have to ask the user first."""
        import keyring
        from keyring.errors import KeyringError

        try:
            return await asyncio.to_thread(work, self._keyring or keyring.get_keyring())
        except KeyringError as error:
            raise AuthError(
                f"The keyring cannot be read or written ({type(error).__name__}): unlock it, or set "
                "OAuth(store=PATH) to keep logins in an encrypted file."
            ) from error


def default_folder() -> str:
    """Return the default folder of this user's logins."""
    given = os.environ.get("TRUNKLINE_HOME")
    if given:
        return given
    home = os.path.expanduser("~")
    if sys.platform == "darwin":
        return os.path.join(home, "Library", "Application Support", "trunkline")
    if sys.platform == "win32":
        return os.path.join(os.environ.get("LOCALAPPDATA") or home, "trunkline")
    return os.path.join(os.environ.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share"), "trunkline")


def find_store(given: CredentialStore | str | os.PathLike[str] | None) -> CredentialStore:
    """Return the configured store: an object, a file, "memory", or by default the keyring or a file.

    Raises:
        ConfigError: it is none of these.
    """
    if given is None:
        ring = usable_keyring()
        return FileStore(os.path.join(default_folder(), "logins")) if ring is None else KeyringStore(ring)
    if given == "memory":
        return MemoryStore()
    if isinstance(given, str | os.PathLike):
        return FileStore(given)
    if not all(hasattr(given, name) for name in ("get", "put", "delete", "keys", "lock")):
        raise ConfigError(f'store= must be a store, a file path or "memory", not {type(given).__name__}.')
    return given


def usable_keyring() -> Any:
    """Return the system keyring; None if there is none that stores secrets."""
    if os.environ.get("TRUNKLINE_HOME"):
        # A user who sets a folder wants the logins there.
        return None
    try:
        import keyring
    except ImportError:
        return None
    ring = keyring.get_keyring()
    return ring if type(ring).__module__.partition(".fail")[1] == "" and ring.priority >= 1 else None
