"""The user's secrets: stored in the system keyring or an encrypted file, or read from the environment or a command.

A name alone is looked up in the keyring, if there is one, then in the file; ``env/NAME`` and ``cmd/NAME`` name the
source. Secrets use the same stores as logins. A value that was read is returned and not kept here; whether a server may
have it is decided before.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from trunkline.errors import AuthError, ConfigError
from trunkline.host.secrecy.names import SCHEME, Keeper, SecretName, read_secret_name

if TYPE_CHECKING:
    # The stores are loaded when there is a secret to read.
    from trunkline.auth.store import Store

__all__ = ["KeptSecret", "Place", "Vault", "check_name", "find_stores"]

#: The stores that a secret can be written to.
Place: TypeAlias = Literal["keyring", "file"]
T = TypeVar("T")

_SERVICE = "trunkline secrets"
# Prefixed to names, so that none collides with a key of the store itself.
_PREFIX = "secret/"
_TIMES = "times"


class KeptSecret(Struct, frozen=True, kw_only=True):
    """A stored secret, without its value."""

    name: str
    keeper: Keeper
    #: When it was set, in seconds since the epoch, if known.
    set_at: float | None = None


def find_stores(folder: Path | None = None) -> Mapping[Place, Store]:
    """Return the stores on this machine, in lookup order; with a folder, only the file in it."""
    from trunkline.auth.store import FileStore, KeyringStore, default_folder, usable_keyring

    file = FileStore(Path(default_folder() if folder is None else folder) / "secrets", what="secrets")
    ring = usable_keyring() if folder is None else None
    return {"file": file} if ring is None else {"keyring": KeyringStore(ring, service=_SERVICE), "file": file}


class Vault:
    """Stores secrets and looks them up."""

    def __init__(
        self,
        stores: Mapping[Place, Store] | None = None,
        *,
        commands: Path | None = None,
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Use these stores and this file of commands, by default the user's."""
        self._stores = stores
        self._commands = commands
        self._environ = os.environ if environ is None else environ
        self._clock = clock

    def __repr__(self) -> str:
        """Show no secret."""
        return "Vault()"

    # --- looking up --------------------------------------------------------------------------------------------------

    async def read(self, name: SecretName) -> str:
        """Look up a secret.

        Raises:
            ConfigError: there is none, or it cannot be read; the message says what to do.
        """
        if name.keeper == "env":
            return self._from_environment(name.name)
        if name.keeper == "cmd":
            return await self._from_command(name.name)
        return await self._from_stores(name)

    def read_now(self, reference: str) -> str:
        """Look up a ``secret://`` reference synchronously.

        Raises:
            ConfigError: the reference is not valid, there is no such secret, or it cannot be read.
        """
        from concurrent.futures import ThreadPoolExecutor

        name = read_secret_name(reference)
        if name is None or not reference.startswith(SCHEME):
            raise ConfigError(f"a secret reference must have the form {SCHEME}name")
        # In a thread: the caller may be inside a running event loop.
        with ThreadPoolExecutor(1) as threads:
            return threads.submit(asyncio.run, self.read(name)).result()

    def _from_environment(self, name: str) -> str:
        value = self._environ.get(name, "").strip()
        if not value:
            raise ConfigError(f"the environment variable {name}, which should contain a secret, is not set")
        return value

    async def _from_command(self, name: str) -> str:
        from trunkline.host.secrecy.commands import ask_command, read_commands

        path = self._file
        words = read_commands(path).get(name)
        if words is None:
            raise ConfigError(
                f'there is no command for the secret {name}; add {name} = ["..."] under [commands] in {path}'
            )
        return await ask_command(name, words, environ=self._environ)

    @property
    def _file(self) -> Path:
        from trunkline.host.folders import config_folder

        return config_folder() / "secrets.toml" if self._commands is None else self._commands

    async def _from_stores(self, name: SecretName) -> str:
        """Search the stores in order; a failing store matters only if no other has the secret."""
        failure: ConfigError | None = None
        for place, store in (await self._places(name.keeper)).items():
            try:
                found = await _kept(place, store.get(_PREFIX + name.name))
            except ConfigError as error:
                failure = failure or error
                continue
            if found is not None:
                return found
        if failure is not None:
            raise failure
        where = "" if name.keeper is None else f" --store {name.keeper}"
        raise ConfigError(f"there is no secret {name}; run: trunkline secret set {name.name}{where}")

    async def _places(self, only: Keeper | None = None) -> Mapping[Place, Store]:
        if self._stores is None:
            # Finding the system keyring may take a while.
            self._stores = await asyncio.to_thread(find_stores)
        if only is None:
            return self._stores
        chosen: Mapping[Place, Store] = {place: store for place, store in self._stores.items() if place == only}
        if not chosen:
            raise ConfigError(
                f"secrets cannot be stored in the {only} here: this machine has none, or TRUNKLINE_HOME is set; "
                "use --store file"
            )
        return chosen

    # --- storing -----------------------------------------------------------------------------------------------------

    async def put(self, name: str, value: str, *, place: Place | None = None) -> Place:
        """Store a secret, by default in the keyring if there is one; return which store was used.

        Raises:
            ConfigError: the name is not valid, the value is empty, or it cannot be stored.
        """
        check_name(name)
        if not value:
            raise ConfigError(f"the secret {name} is empty, so it was not stored")
        chosen, store = next(iter((await self._places(place)).items()))
        await _kept(chosen, store.put(_PREFIX + name, value))
        now = self._clock()
        await _kept(chosen, _note(store, lambda times: {**times, name: now}))
        return chosen

    async def remove(self, name: str, *, place: Place | None = None) -> list[Place]:
        """Delete a secret, from all stores or from one; return where it was.

        Raises:
            ConfigError: the name is not valid, or a store cannot be used.
        """
        check_name(name)
        gone: list[Place] = []
        for where, store in (await self._places(place)).items():
            if await _kept(where, store.get(_PREFIX + name)) is None:
                continue
            await _kept(where, store.delete(_PREFIX + name))
            await _kept(where, _note(store, lambda times: {key: at for key, at in times.items() if key != name}))
            gone.append(where)
        return gone

    async def kept(self) -> list[KeptSecret]:
        """List the secrets by name, including those of commands, but not environment variables.

        Raises:
            ConfigError: a store cannot be read.
        """
        from trunkline.host.secrecy.commands import read_commands

        found = [KeptSecret(name=name, keeper="cmd") for name in read_commands(self._file)]
        for place, store in (await self._places()).items():
            keys = [key for key in await _kept(place, store.keys()) if key.startswith(_PREFIX)]
            times = await _kept(place, _times(store)) if keys else {}
            names = [key.removeprefix(_PREFIX) for key in keys]
            found += [KeptSecret(name=name, keeper=place, set_at=times.get(name)) for name in names]
        return sorted(found, key=lambda each: (each.name, each.keeper))


def check_name(name: str) -> None:
    """Validate the name of a secret; an invalid name is not repeated, since it may be the secret itself.

    Raises:
        ConfigError: it is not valid.
    """
    found = read_secret_name(name)
    if found is None or found.name != name:
        raise ConfigError("not a valid name for a secret: use only letters, digits, '.', '_' and '-'")


async def _times(store: Store) -> dict[str, float]:
    text = await store.get(_TIMES)
    try:
        return {} if text is None else msgspec.json.decode(text, type=dict[str, float])
    except msgspec.DecodeError:
        return {}


async def _note(store: Store, change: Callable[[dict[str, float]], dict[str, float]]) -> None:
    """Update the record of when secrets were set."""
    async with store.lock("times of secrets"):
        await store.put(_TIMES, msgspec.json.encode(change(await _times(store))).decode())


async def _kept(place: Place, work: Awaitable[T]) -> T:
    """Await an operation of a store.

    Raises:
        ConfigError: it failed; the message says what to do.
    """
    try:
        return await work
    except AuthError as error:
        cause: Any = error.__cause__
        if place == "file":
            raise ConfigError(str(error)) from error
        raise ConfigError(
            f"the keyring cannot be used ({type(cause or error).__name__}): unlock it, or store secrets in the "
            "encrypted file: trunkline secret set NAME --store file"
        ) from error
    except ModuleNotFoundError as error:
        raise ConfigError(f"secrets need {error.name}: pip install 'trunkline[auth]'") from error
