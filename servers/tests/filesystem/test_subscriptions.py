"""Watched files: subscribers are notified of changes, in both eras, and only of files that they may read."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servers.tests.filesystem.support import REVISIONS
from tests.support import run_async
from trunkline import Client, RequestFailed, Server
from trunkline_servers.filesystem import make_server, path_resolver, subscriptions
from trunkline_servers.filesystem.path_resolver import PathResolver
from trunkline_servers.filesystem.worker import FileLimits
from trunkline_servers.roots import Folder

QUICK = FileLimits(poll_seconds=0.02)
WAYS = pytest.mark.parametrize("inotify", [pytest.param(True, id="told"), pytest.param(False, id="looked-at")])


async def heard(server: Server, uri: str, act: Callable[[], Any], **options: Any) -> str | None:
    """Listen for a resource, do something, and give the URI of the change that comes."""
    async with Client(server, **options) as client, client.listen(uris=[uri]) as changes:
        act()
        async for change in changes:
            return change.uri
    return None


def served(folder: Path, *, inotify: bool = True, limits: FileLimits = QUICK) -> Server:
    return make_server([folder], limits=limits, inotify=inotify)


@pytest.mark.parametrize(("revision", "inotify"), [("2025-11-25", True), ("2026-07-28", True), ("2026-07-28", False)])
def test_a_file_that_is_written_is_reported(tmp_path: Path, revision: str, inotify: bool) -> None:
    file = tmp_path / "a b"
    file.write_text("old")
    found = run_async(
        heard(served(tmp_path, inotify=inotify), file.as_uri(), lambda: file.write_text("newer"), revision=revision)
    )
    assert found == file.as_uri()


@WAYS
def test_a_file_that_is_replaced_is_reported(tmp_path: Path, inotify: bool) -> None:
    file, other = tmp_path / "x", tmp_path / "other"
    file.write_text("old")
    other.write_text("new")
    found = run_async(heard(served(tmp_path, inotify=inotify), file.as_uri(), lambda: other.rename(file)))
    assert found == file.as_uri()


@WAYS
def test_a_file_that_comes_to_be_is_reported(tmp_path: Path, inotify: bool) -> None:
    file = tmp_path / "x"
    assert run_async(heard(served(tmp_path, inotify=inotify), file.as_uri(), file.touch)) == file.as_uri()


@WAYS
def test_a_file_that_is_removed_is_reported(tmp_path: Path, inotify: bool) -> None:
    file = tmp_path / "x"
    file.touch()
    assert run_async(heard(served(tmp_path, inotify=inotify), file.as_uri(), file.unlink)) == file.as_uri()


async def test_a_file_whose_folder_goes_and_comes_back_is_reported_both_times(tmp_path: Path) -> None:
    folder, uri = tmp_path / "folder", (tmp_path / "folder" / "x").as_uri()
    folder.mkdir()
    async with Client(served(tmp_path)) as client, client.listen(uris=[uri]) as changes:
        folder.rename(tmp_path / "away")
        gone = await anext(changes)
        folder.mkdir()
        (folder / "x").touch()
        assert [gone.uri, (await anext(changes)).uri] == [uri, uri]


async def test_a_file_that_changes_all_the_time_is_reported_now_and_then(tmp_path: Path) -> None:
    told: list[str] = []
    watcher = subscriptions.FileWatcher(told.append, limits=QUICK)
    watcher._changed(["u"] * 50)
    watcher.close()
    assert told == ["u"]


async def test_other_files_of_the_folder_are_not_reported(tmp_path: Path) -> None:
    file, other = tmp_path / "x", tmp_path / "y"
    server = served(tmp_path)
    async with Client(server) as client, client.listen(uris=[file.as_uri()]) as changes:
        other.write_text("other")
        file.write_text("this")
        assert [(await anext(changes)).uri] == [file.as_uri()]


async def test_a_handshake_client_may_subscribe_and_unsubscribe(tmp_path: Path) -> None:
    """With room for one watch, the second subscription shows that the first has ended."""
    one, two = (tmp_path / "one").as_uri(), (tmp_path / "two").as_uri()

    limits = FileLimits(watches=1)
    async with Client(served(tmp_path, limits=limits), revision="2025-11-25") as client:
        await client.subscribe(one)
        with pytest.raises(RequestFailed, match="At most 1 files are watched"):
            await client.subscribe(two)
        await client.unsubscribe(one)
        await client.subscribe(two)


async def test_a_stream_that_ends_ends_its_watches(tmp_path: Path) -> None:
    one, two = (tmp_path / "one").as_uri(), tmp_path / "two"
    limits = FileLimits(watches=1)
    async with Client(served(tmp_path, limits=limits), revision="2026-07-28") as client:
        async with client.listen(uris=[one]):
            pass
        async with client.listen(uris=[two.as_uri()]) as changes:
            two.touch()
            assert (await anext(changes)).uri == two.as_uri()


async def test_a_session_that_ends_ends_its_watches(tmp_path: Path) -> None:
    server = served(tmp_path, limits=FileLimits(watches=1))

    async with Client(server, revision="2025-11-25") as staying:
        async with Client(server, revision="2025-11-25") as leaving:
            await leaving.subscribe((tmp_path / "one").as_uri())
        await staying.subscribe((tmp_path / "two").as_uri())


@pytest.mark.parametrize(
    "target", [pytest.param("/etc/passwd", id="outside"), pytest.param("link", id="link-that-leads-out")]
)
async def test_a_file_outside_is_not_watched_for_a_handshake_client(tmp_path: Path, target: str) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    async with Client(served(tmp_path), revision="2025-11-25") as client:
        with pytest.raises(RequestFailed, match="Access denied"):
            await client.subscribe((tmp_path / target).as_uri())


async def test_a_file_outside_is_not_watched_for_a_stateless_client(tmp_path: Path) -> None:
    inside, outside = tmp_path / "allowed" / "x", tmp_path / "x"
    inside.parent.mkdir()
    uris = [outside.as_uri(), inside.as_uri()]
    async with Client(served(inside.parent), revision="2026-07-28") as client, client.listen(uris=uris) as changes:
        outside.touch()
        inside.touch()
        assert (await anext(changes)).uri == inside.as_uri()


@REVISIONS
async def test_roots_say_what_may_be_watched(tmp_path: Path, revision: str) -> None:
    root, configured = tmp_path / "root", tmp_path / "configured"
    root.mkdir()
    configured.mkdir()
    file = root / "x"
    async with Client(served(configured), revision=revision, roots=[root]) as client:
        await client.call_tool("list_directory", {"path": "."})
        async with client.listen(uris=[file.as_uri()]) as changes:
            file.touch()
            assert (await anext(changes)).uri == file.as_uri()


async def test_a_stream_does_not_hear_of_what_only_others_may_watch(tmp_path: Path) -> None:
    one, two = tmp_path / "one" / "x", tmp_path / "two" / "x"
    one.parent.mkdir()
    two.parent.mkdir()
    server = make_server(limits=QUICK)
    async with (
        Client(server, revision="2025-11-25", roots=[one.parent]) as first,
        Client(server, revision="2026-07-28", roots=[two.parent]) as second,
    ):
        await second.call_tool("list_allowed_directories")
        uris = [one.as_uri(), two.as_uri()]
        async with first.listen(uris=uris[:1]) as ones, second.listen(uris=uris) as twos:
            one.touch()
            heard = await anext(ones)
            two.touch()
            assert [heard.uri, (await anext(twos)).uri] == [one.as_uri(), two.as_uri()]


async def test_roots_are_asked_for_by_the_first_subscription_of_a_session(tmp_path: Path) -> None:
    async with Client(make_server(), revision="2025-11-25", roots=[tmp_path]) as client:
        await client.subscribe((tmp_path / "x").as_uri())


async def test_a_stream_with_more_files_than_are_watched_hears_of_the_first(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("one", "two", "three")]
    limits = FileLimits(watches=2)
    uris = [file.as_uri() for file in files]
    async with (
        Client(served(tmp_path, limits=limits), revision="2026-07-28") as client,
        client.listen(uris=uris) as changes,
    ):
        files[2].touch()
        files[0].touch()
        assert (await anext(changes)).uri == files[0].as_uri()


async def test_a_leaving_client_does_not_end_the_watches_of_a_starting_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, other = (tmp_path / name for name in ("one", "two", "other"))
    server = served(tmp_path)
    add = subscriptions.FileWatcher.add
    async with (
        Client(server, revision="2025-11-25") as leaving,
        Client(server, revision="2026-07-28") as client,
    ):
        await leaving.subscribe(other.as_uri())

        async def add_late(watcher: subscriptions.FileWatcher, uri: str, resolver: Any, path: str) -> None:
            await add(watcher, uri, resolver, path)
            await leaving.unsubscribe(other.as_uri())

        monkeypatch.setattr(subscriptions.FileWatcher, "add", add_late)
        async with client.listen(uris=[one.as_uri(), two.as_uri()]) as changes:
            one.touch()
            assert (await anext(changes)).uri == one.as_uri()


def test_a_folder_that_is_left_while_another_file_of_it_is_added_is_still_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver, real = PathResolver([Folder(tmp_path, tmp_path)]), path_resolver.inotify_add

    async def scene() -> str:
        told: asyncio.Queue[str] = asyncio.Queue()
        watcher, loop, left = (
            subscriptions.FileWatcher(told.put_nowait, limits=FileLimits()),
            asyncio.get_running_loop(),
            threading.Event(),
        )
        await watcher.add("one", resolver, "one")

        def leave() -> None:
            watcher.remove("one")
            # After the loop has heard of what was removed.
            loop.call_later(0.05, left.set)

        def add_slowly(*given: int) -> int:
            watch = real(*given)
            loop.call_soon_threadsafe(leave)
            left.wait(120)
            return watch

        monkeypatch.setattr(subscriptions, "inotify_add", add_slowly)
        await watcher.add("two", resolver, "two")
        (tmp_path / "two").touch()
        try:
            return await told.get()
        finally:
            watcher.close()

    assert run_async(scene(), seconds=120) == "two"


async def test_a_folder_without_subscribers_is_no_longer_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver, forgotten = PathResolver([Folder(tmp_path, tmp_path)]), []
    monkeypatch.setattr(subscriptions, "_forget", lambda descriptor, watch: forgotten.append(watch))
    watcher = subscriptions.FileWatcher(lambda uri: None, limits=FileLimits())
    await watcher.add("one", resolver, "one")
    await watcher.add("two", resolver, "two")
    watcher.remove("one")
    assert forgotten == []
    watcher.remove("two")
    watcher.close()
    assert len(forgotten) == 1


async def test_a_session_may_not_watch_what_only_others_may_watch(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    server, uri = make_server(), (tmp_path / "one" / "x").as_uri()

    async with (
        Client(server, revision="2025-11-25", roots=[tmp_path / "one"]) as first,
        Client(server, revision="2025-11-25", roots=[tmp_path / "two"]) as second,
    ):
        await first.subscribe(uri)
        with pytest.raises(RequestFailed, match="Access denied"):
            await second.subscribe(uri)


def test_without_inotify_files_are_polled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*given: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(subscriptions, "inotify_add", missing)
    file = tmp_path / "x"
    assert run_async(heard(served(tmp_path), file.as_uri(), file.touch)) == file.as_uri()
