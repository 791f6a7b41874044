"""Storage of logins: what is returned, file permissions and encryption, and locks."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.auth.client_web import ISSUER, SERVER, Web, enter
from tests.support import run_async
from trunkline.auth import credential_store
from trunkline.auth.credential_store import (
    CredentialStore,
    FileStore,
    KeyringStore,
    MemoryStore,
    default_folder,
    find_store,
)
from trunkline.auth.oauth import OAuth
from trunkline.auth.token_store import LoginStore, delete_logins, stored_logins
from trunkline.auth.tokens import Login
from trunkline.errors import AuthError, ConfigError

OTHER = "https://mcp.example.com/other"


class Ring:
    """A keyring in memory."""

    priority = 5

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, name: str) -> str | None:
        return self.kept.get((service, name))

    def set_password(self, service: str, name: str, text: str) -> None:
        self.kept[service, name] = text

    def delete_password(self, service: str, name: str) -> None:
        del self.kept[service, name]


class Locked(Ring):
    """One that the user has not unlocked."""

    def get_password(self, service: str, name: str) -> str | None:
        from keyring.errors import KeyringLocked

        raise KeyringLocked("the hidden reason")


Maker = Callable[[Path], CredentialStore]
MAKERS: dict[str, Maker] = {
    "memory": lambda folder: MemoryStore(),
    "file": lambda folder: FileStore(folder / "deep" / "logins"),
    "keyring": lambda folder: KeyringStore(Ring(), folder=folder),
}
each_store = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@each_store
async def test_a_stored_record_is_returned_until_removed(make: Maker, tmp_path: Path) -> None:
    store = make(tmp_path)
    seen: list[Any] = [await store.get("a"), await store.keys()]
    await store.put("a", "1")
    await store.put("b", "2")
    await store.put("a", "3")
    seen += [await store.get("a"), await store.keys()]
    await store.delete("a")
    await store.delete("never there")
    assert [*seen, await store.get("a"), await store.keys()] == [None, [], "3", ["a", "b"], None, ["b"]]


@each_store
async def test_a_lock_is_held_by_one_at_a_time(make: Maker, tmp_path: Path) -> None:
    store = make(tmp_path)
    heard: list[str] = []

    async def hold(name: str) -> None:
        async with store.lock("x"):
            heard.append(f"{name} in")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            heard.append(f"{name} out")

    await asyncio.gather(hold("a"), hold("b"), hold("c"))
    assert [line.split()[1] for line in heard] == ["in", "out"] * 3


@each_store
async def test_locks_of_different_names_do_not_wait_for_each_other(make: Maker, tmp_path: Path) -> None:
    store = make(tmp_path)
    async with store.lock("x"), store.lock("y"):
        assert True


# --- the file ---------------------------------------------------------------------------------------------------------


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir() if path.is_file()}


async def test_a_credential_file_is_encrypted_and_private_to_its_owner(tmp_path: Path) -> None:
    folder = tmp_path / "private"
    await FileStore(folder / "logins").put("key", "hidden")
    assert modes(folder) == {"logins": 0o600, "logins.key": 0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert b"hidden" not in (folder / "logins").read_bytes()
    assert len((folder / "logins.key").read_bytes()) == 32


async def test_a_credential_file_is_read_by_the_next_program(tmp_path: Path) -> None:
    await FileStore(tmp_path / "logins").put("a", "1")
    assert await FileStore(tmp_path / "logins").get("a") == "1"


async def test_the_same_content_is_never_written_the_same_way(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "logins")
    await store.put("a", "1")
    first = (tmp_path / "logins").read_bytes()
    await store.put("a", "1")
    assert (tmp_path / "logins").read_bytes() != first


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\0"),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"short"),
        lambda path: path.with_name("logins.key").write_bytes(bytes(32)),
        lambda path: path.with_name("logins.key").write_bytes(b"short"),
    ],
    ids=["changed", "empty", "cut", "another key", "no key"],
)
async def test_a_modified_credential_file_is_rejected(spoil: Callable[[Path], object], tmp_path: Path) -> None:
    await FileStore(tmp_path / "logins").put("a", "1")
    spoil(tmp_path / "logins")
    with pytest.raises(AuthError, match="log in again"):
        await FileStore(tmp_path / "logins").get("a")


async def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    await FileStore(tmp_path / "logins").put("a", "1")
    (tmp_path / "logins.key").chmod(0o644)
    with pytest.raises(AuthError, match="chmod 600"):
        await FileStore(tmp_path / "logins").get("a")


@pytest.mark.parametrize("name", ["get", "put"])
async def test_an_unusable_store_path_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = FileStore(tmp_path / "file" / "logins")
    work = store.get("a") if name == "get" else store.put("a", "1")
    with pytest.raises(AuthError, match=r"file"):
        await work


async def test_a_write_that_fails_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(tmp_path / "logins")
    await store.put("a", "1")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(AuthError, match="No space left"):
            await store.put("a", "2")
    assert await store.get("a") == "1"
    assert sorted(modes(tmp_path)) == ["logins", "logins.key"]


MANY = """
import asyncio, sys
from trunkline.auth.credential_store import FileStore
async def main():
    store = FileStore(sys.argv[1])
    for number in range(10):
        await store.put(f"{sys.argv[2]}-{number}", "x")
asyncio.run(main())
"""


def test_processes_that_write_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "logins")
    programs = [subprocess.Popen([sys.executable, "-c", MANY, path, name]) for name in "ab"]
    assert [program.wait(120) for program in programs] == [0, 0]
    assert len(run_async(FileStore(path).keys())) == 20


HOLD = """
import asyncio, sys
from trunkline.auth.credential_store import FileLock
async def main():
    async with FileLock(sys.argv[1], "x"):
        print("held", flush=True)
        sys.stdin.read()
asyncio.run(main())
"""


def test_a_lock_ends_with_the_process_that_holds_it(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "logins")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == "held\n"

    async def taken() -> bool:
        try:
            async with asyncio.timeout(0.2), store.lock("x"):
                return False
        except TimeoutError:
            return True

    async def free() -> bool:
        async with store.lock("x"):
            return True

    was_taken = run_async(taken())
    holder.kill()
    holder.wait(120)
    holder.stdin.close()
    holder.stdout.close()
    assert (was_taken, run_async(free())) == (True, True)


# --- which store ------------------------------------------------------------------------------------------------------


async def test_a_locked_keyring_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(AuthError, match="unlock it") as failure:
        await KeyringStore(Locked(), folder=tmp_path).get("a")
    assert "hidden reason" not in str(failure.value)


def test_a_store_is_found_by_its_name_its_path_or_itself(tmp_path: Path) -> None:
    own = MemoryStore()
    kinds = [type(find_store(given)) for given in ("memory", str(tmp_path / "x"), tmp_path / "y")]
    assert (kinds, find_store(own)) == ([MemoryStore, FileStore, FileStore], own)


def test_an_invalid_store_is_refused() -> None:
    with pytest.raises(ConfigError, match="store="):
        find_store(3)  # type: ignore[arg-type]


def test_the_keyring_is_used_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    import keyring

    monkeypatch.delenv("TRUNKLINE_HOME", raising=False)
    monkeypatch.setattr(keyring, "get_keyring", Ring)
    assert isinstance(find_store(None), KeyringStore)


def test_a_file_is_used_where_there_is_no_keyring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import keyring
    from keyring.backends import fail

    monkeypatch.delenv("TRUNKLINE_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(keyring, "get_keyring", fail.Keyring)
    assert repr(find_store(None)) == f"FileStore({os.path.join(default_folder(), 'logins')!r})"


def test_a_store_path_that_is_a_folder_gets_a_file_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path))
    assert repr(find_store(None)) == f"FileStore({str(tmp_path / 'logins')!r})"


# --- logins -----------------------------------------------------------------------------------------------------------


def login() -> Login:
    return enter(Web())[0]


async def test_a_login_survives_storing() -> None:
    keeper, kept = LoginStore(MemoryStore(), SERVER, OAuth()), login()
    await keeper.save(kept)
    assert await keeper.load() == kept


@pytest.mark.parametrize(
    ("url", "options"),
    [
        (OTHER, OAuth()),
        ("https://evil.example.com/mcp", OAuth()),
        (SERVER, OAuth(client_id="another")),
        (SERVER, OAuth(issuer="https://another.example.com")),
    ],
    ids=["another server", "another host", "another client", "another issuer"],
)
async def test_a_login_is_bound_to_its_server_and_issuer(url: str, options: OAuth) -> None:
    store = MemoryStore()
    await LoginStore(store, SERVER, OAuth()).save(login())
    assert await LoginStore(store, url, options).load() is None


async def test_a_modified_login_record_is_ignored() -> None:
    store = MemoryStore()
    keeper = LoginStore(store, SERVER, OAuth())
    await keeper.save(login())
    for key in await store.keys():
        await store.put(key, (await store.get(key) or "").replace(ISSUER, "https://evil.example.com"))
    assert await keeper.load() is None


async def test_unreadable_records_are_ignored() -> None:
    store = MemoryStore()
    keeper = LoginStore(store, SERVER, OAuth())
    await keeper.save(login())
    for key in await store.keys():
        await store.put(key, "{")
    assert (await keeper.load(), await stored_logins(store)) == (None, [])


async def test_logins_are_listed_without_their_secrets_and_forgotten_by_server() -> None:
    store = MemoryStore()
    await LoginStore(store, SERVER, OAuth()).save(login())
    shown = repr(await stored_logins(store))
    count, left = await delete_logins(store, SERVER + "/"), await store.keys()
    assert (SERVER in shown, ISSUER in shown, "token-1" in shown) == (True, True, False)
    assert (count, left) == (1, [])


async def test_the_repr_of_a_store_shows_no_content(tmp_path: Path) -> None:
    store = MemoryStore()
    await store.put("a", "hidden")
    assert "hidden" not in repr(store) + repr(FileStore(tmp_path / "x")) + repr(KeyringStore(Ring(), folder=tmp_path))


@pytest.mark.parametrize(
    ("platform", "environment", "folder"),
    [
        ("linux", {"TRUNKLINE_HOME": "/own"}, "/own"),
        ("linux", {"XDG_DATA_HOME": "/data"}, "/data/trunkline"),
        ("linux", {}, "/home/ada/.local/share/trunkline"),
        ("darwin", {}, "/home/ada/Library/Application Support/trunkline"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/trunkline"),
    ],
    ids=["named", "data", "linux", "mac", "windows"],
)
def test_each_system_has_its_store_path(
    platform: str, environment: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TRUNKLINE_HOME", "XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/ada")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert default_folder() == folder


async def test_waiting_for_a_lock_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credential_store, "_LONGEST_WAIT", 0.05)
    store = FileStore(tmp_path / "logins")
    with pytest.raises(AuthError, match="has held the lock"):
        async with store.lock("x"), store.lock("x"):
            pass


def test_without_the_keyring_package_a_file_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRUNKLINE_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert isinstance(find_store(None), FileStore)
