"""The user's secrets: in the system keyring or an encrypted file, in the environment, or printed by a command.

Commands are those of the user's ``secrets.toml``. A name alone is looked up in the keyring, where there is one, then in
the file; ``env/NAME`` and ``cmd/NAME`` name the source. The stores are those of logins. A value that was read is
returned and not kept here; whether a server may have it is decided before. Commands are lists of words, never go
through a shell, and only the user's own file can name one; their stderr is not repeated, since it may hold anything.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from trunkline.errors import AuthError, ConfigError
from trunkline.host.secrets.references import SCHEME, SecretReference, SecretSource, parse_secret_reference

__all__ = [
    "SecretStoreName",
    "StoredSecret",
    "Vault",
    "check_name",
    "open_stores",
    "read_commands",
    "run_secret_command",
]

if TYPE_CHECKING:
    # The stores are loaded when there is a secret to read.
    from trunkline.auth.credential_store import CredentialStore


#: The stores that a secret can be written to.
SecretStoreName: TypeAlias = Literal["keyring", "file"]
T = TypeVar("T")

_SERVICE = "trunkline secrets"
# Prefixed to names, so that none collides with a key of the store itself.
_PREFIX = "secret/"
_TIMES = "times"


class StoredSecret(Struct, frozen=True, kw_only=True):
    """A stored secret, without its value."""

    name: str
    source: SecretSource
    #: When it was set, in seconds since the epoch, if known.
    set_at: float | None = None


def open_stores(folder: Path | None = None) -> Mapping[SecretStoreName, CredentialStore]:
    """Return the stores on this machine, in lookup order; with a folder, only the file in it."""
    from trunkline.auth.credential_store import FileStore, KeyringStore, default_folder, usable_keyring

    file = FileStore(Path(default_folder() if folder is None else folder) / "secrets", what="secrets")
    ring = usable_keyring() if folder is None else None
    return {"file": file} if ring is None else {"keyring": KeyringStore(ring, service=_SERVICE), "file": file}


class Vault:
    """Stores secrets and looks them up."""

    def __init__(
        self,
        stores: Mapping[SecretStoreName, CredentialStore] | None = None,
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

    async def read(self, name: SecretReference) -> str:
        """Look up a secret.

        Raises:
            ConfigError: there is none, or it cannot be read; the message says what to do.
        """
        if name.source == "env":
            return self._from_environment(name.name)
        if name.source == "cmd":
            return await self._from_command(name.name)
        return await self._from_stores(name)

    def read_blocking(self, reference: str) -> str:
        """Look up a ``secret://`` reference synchronously.

        Raises:
            ConfigError: the reference is not valid, there is no such secret, or it cannot be read.
        """
        from concurrent.futures import ThreadPoolExecutor

        name = parse_secret_reference(reference)
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

        path = self._file
        words = read_commands(path).get(name)
        if words is None:
            raise ConfigError(
                f'there is no command for the secret {name}; add {name} = ["..."] under [commands] in {path}'
            )
        return await run_secret_command(name, words, environ=self._environ)

    @property
    def _file(self) -> Path:
        from trunkline.host.state_files import config_folder

        return config_folder() / "secrets.toml" if self._commands is None else self._commands

    async def _from_stores(self, name: SecretReference) -> str:
        """Search the stores in order; a failing store matters only if no other has the secret."""
        failure: ConfigError | None = None
        for place, store in (await self._places(name.source)).items():
            try:
                found = await _ask_store(place, store.get(_PREFIX + name.name))
            except ConfigError as error:
                failure = failure or error
                continue
            if found is not None:
                return found
        if failure is not None:
            raise failure
        where = "" if name.source is None else f" --store {name.source}"
        raise ConfigError(f"there is no secret {name}; run: trunkline secret set {name.name}{where}")

    async def _places(self, only: SecretSource | None = None) -> Mapping[SecretStoreName, CredentialStore]:
        if self._stores is None:
            # Finding the system keyring may take a while.
            self._stores = await asyncio.to_thread(open_stores)
        if only is None:
            return self._stores
        chosen: Mapping[SecretStoreName, CredentialStore] = {
            place: store for place, store in self._stores.items() if place == only
        }
        if not chosen:
            raise ConfigError(
                f"secrets cannot be stored in the {only} here: this machine has none, or TRUNKLINE_HOME is set; "
                "use --store file"
            )
        return chosen

    # --- storing -----------------------------------------------------------------------------------------------------

    async def put(self, name: str, value: str, *, place: SecretStoreName | None = None) -> SecretStoreName:
        """Store a secret, by default in the keyring if there is one; return which store was used.

        Raises:
            ConfigError: the name is not valid, the value is empty, or it cannot be stored.
        """
        check_name(name)
        if not value:
            raise ConfigError(f"the secret {name} is empty, so it was not stored")
        chosen, store = next(iter((await self._places(place)).items()))
        await _ask_store(chosen, store.put(_PREFIX + name, value))
        now = self._clock()
        await _ask_store(chosen, _update_times(store, lambda times: {**times, name: now}))
        return chosen

    async def remove(self, name: str, *, place: SecretStoreName | None = None) -> list[SecretStoreName]:
        """Delete a secret, from all stores or from one; return where it was.

        Raises:
            ConfigError: the name is not valid, or a store cannot be used.
        """
        check_name(name)
        gone: list[SecretStoreName] = []
        for where, store in (await self._places(place)).items():
            if await _ask_store(where, store.get(_PREFIX + name)) is None:
                continue
            await _ask_store(where, store.delete(_PREFIX + name))
            await _ask_store(
                where, _update_times(store, lambda times: {key: at for key, at in times.items() if key != name})
            )
            gone.append(where)
        return gone

    async def list_secrets(self) -> list[StoredSecret]:
        """List the secrets by name, including those of commands, but not environment variables.

        Raises:
            ConfigError: a store cannot be read.
        """
        found = [StoredSecret(name=name, source="cmd") for name in read_commands(self._file)]
        for place, store in (await self._places()).items():
            keys = [key for key in await _ask_store(place, store.keys()) if key.startswith(_PREFIX)]
            times = await _ask_store(place, _times(store)) if keys else {}
            names = [key.removeprefix(_PREFIX) for key in keys]
            found += [StoredSecret(name=name, source=place, set_at=times.get(name)) for name in names]
        return sorted(found, key=lambda each: (each.name, each.source))


def check_name(name: str) -> None:
    """Validate the name of a secret; an invalid name is not repeated, since it may be the secret itself.

    Raises:
        ConfigError: it is not valid.
    """
    found = parse_secret_reference(name)
    if found is None or found.name != name:
        raise ConfigError("not a valid name for a secret: use only letters, digits, '.', '_' and '-'")


async def _times(store: CredentialStore) -> dict[str, float]:
    text = await store.get(_TIMES)
    try:
        return {} if text is None else msgspec.json.decode(text, type=dict[str, float])
    except msgspec.DecodeError:
        return {}


async def _update_times(store: CredentialStore, change: Callable[[dict[str, float]], dict[str, float]]) -> None:
    """Update the record of when secrets were set."""
    async with store.lock("times of secrets"):
        await store.put(_TIMES, msgspec.json.encode(change(await _times(store))).decode())


async def _ask_store(place: SecretStoreName, work: Awaitable[T]) -> T:
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


_SECONDS = 10.0  # A person may have to unlock the keychain.
_LAST_SECONDS = 1.0  # Time to read what is left after the program ended; processes it left behind may hold its output.
_MOST_BYTES = 64 * 1024  # Keys and certificates have a few KiB.


def read_commands(path: Path) -> dict[str, tuple[str, ...]]:
    """Load the commands by the names of their secrets; without a file there are none.

    Raises:
        ConfigError: the file is not valid; the message says where and why.
    """
    import tomllib

    from trunkline.host.state_files import read_private

    content = read_private(str(path), what="the commands")
    if content is None:
        return {}
    try:
        document = tomllib.loads(content.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    unknown = ", ".join(sorted(document.keys() - {"commands"}))
    if unknown:
        raise ConfigError(f"{path}: {unknown}: unknown; the only table is [commands]")
    commands = document.get("commands", {})
    if not isinstance(commands, dict):
        raise ConfigError(f"{path}: commands: expected a table of names and commands")
    return {name: _words(path, name, words) for name, words in commands.items()}


def _words(path: Path, name: str, words: object) -> tuple[str, ...]:
    good = isinstance(words, list) and words and all(isinstance(word, str) for word in words) and words[0]
    if not good or not isinstance(words, list) or any("\x00" in word for word in words):
        raise ConfigError(f'{path}: commands.{name}: expected a list of words, such as ["pass", "show", "{name}"]')
    return tuple(words)


async def run_secret_command(
    name: str, words: tuple[str, ...], *, environ: Mapping[str, str], seconds: float = _SECONDS
) -> str:
    """Run a command and return its output without surrounding white space.

    Raises:
        ConfigError: it cannot be run, fails, takes too long, or prints nothing or too much.
    """
    shown = shlex.quote(words[0])
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=dict(environ),
            start_new_session=sys.platform != "win32",
        )
    except OSError as error:
        raise ConfigError(
            f"cannot run the command for the secret {name}: {shown}: {error.strerror or error}"
        ) from error
    try:
        async with asyncio.timeout(seconds):
            text = await _output(process)
            status = await process.wait()
    except TimeoutError:
        # Processes that it started may still hold its output.
        _kill(process)
        raise ConfigError(f"the command for the secret {name} ({shown}) took over {seconds:g} s") from None
    finally:
        await _end(process)
    return _checked(name, shown, text, status)


async def _output(process: asyncio.subprocess.Process) -> bytes:
    """Read the output, up to the point at which it is known to be too long."""
    assert process.stdout is not None
    text = b""
    while len(text) <= _MOST_BYTES and (more := await process.stdout.read(_MOST_BYTES)):
        text += more
    if len(text) > _MOST_BYTES:
        _kill(process)
        await _drain(process)
    return text


def _checked(name: str, shown: str, text: bytes, status: int) -> str:
    about = f"the command for the secret {name} ({shown})"
    if len(text) > _MOST_BYTES:
        raise ConfigError(f"{about} printed more than {_MOST_BYTES // 1024} KiB, which cannot be a secret")
    if status != 0:
        raise ConfigError(f"{about} exited with status {status}; run it yourself to see why")
    try:
        secret = text.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise ConfigError(f"{about} printed text that is not UTF-8") from None
    if not secret:
        raise ConfigError(f"{about} printed nothing")
    return secret


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the process if it still runs, and close its output."""
    if process.returncode is None:
        _kill(process)
        await process.wait()
    with suppress(TimeoutError):
        # Processes that it started and left behind may hold its output for any time.
        async with asyncio.timeout(_LAST_SECONDS):
            await _drain(process)


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Read the output to its end: asyncio does not finish a process whose output is not read."""
    assert process.stdout is not None
    while await process.stdout.read(_MOST_BYTES):
        pass


def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
