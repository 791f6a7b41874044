"""Which folders a server may use: configured ones, the client's roots, and both over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import run_async
from trunkline import Client, ConfigError, Context, Server, ToolError
from trunkline_servers.roots import AllowedFolders, path_from_file_uri

REVISIONS = [pytest.param("2025-06-18", id="handshake"), pytest.param("2026-07-28", id="stateless")]


def server_of(allowed: AllowedFolders) -> Server:
    server = Server("folders")
    allowed.attach(server)

    @server.tool
    async def folders(ctx: Context) -> list[str]:
        """Name the folders."""
        return [str(each) for each in await allowed.folders(ctx)]

    return server


async def seen(server: Server | str, **options: Any) -> list[str]:
    async with Client(server, **options) as client:
        return list((await client.call_tool("folders")).data)


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    return first, second


def test_a_client_without_roots_gets_the_configured_folders(two: tuple[Path, Path]) -> None:
    assert run_async(seen(server_of(AllowedFolders(two)), revision="2026-07-28")) == [str(each) for each in two]


@pytest.mark.parametrize("revision", REVISIONS)
def test_roots_replace_the_configured_folders_entirely(two: tuple[Path, Path], revision: str) -> None:
    first, second = two
    assert run_async(seen(server_of(AllowedFolders([first])), revision=revision, roots=[second])) == [str(second)]


def test_an_empty_list_of_roots_leaves_the_configured_folders(two: tuple[Path, Path]) -> None:
    assert run_async(seen(server_of(AllowedFolders(two[:1])), revision="2026-07-28", roots=[])) == [str(two[0])]


def test_no_folders_and_no_roots_is_an_error_that_names_the_fix() -> None:
    with pytest.raises(ToolError, match="Start the server with the folders as arguments"):
        run_async(seen(server_of(AllowedFolders()), revision="2026-07-28"))


def test_roots_that_do_not_exist_open_nothing_else(two: tuple[Path, Path]) -> None:
    with pytest.raises(ToolError, match="None of the client's roots"):
        run_async(seen(server_of(AllowedFolders(two)), revision="2026-07-28", roots=["file:///no/such/folder"]))


@pytest.mark.parametrize("revision", REVISIONS)
async def test_changed_roots_are_used_by_the_next_call(two: tuple[Path, Path], revision: str) -> None:
    first, second = two
    shared = [first]
    async with Client(server_of(AllowedFolders()), revision=revision, roots=lambda: shared) as client:
        before = (await client.call_tool("folders")).data
        shared[:] = [second]
        await client.notify_roots_changed()
        assert [*before, *(await client.call_tool("folders")).data] == [str(first), str(second)]


async def test_a_session_is_asked_once(two: tuple[Path, Path]) -> None:
    asked: list[Path] = []

    def roots() -> list[Path]:
        asked.append(two[0])
        return asked[:1]

    async with Client(server_of(AllowedFolders()), revision="2025-11-25", roots=roots) as client:
        await client.call_tool("folders")
        await client.call_tool("folders")
    assert len(asked) == 1


async def test_two_sessions_have_their_own_roots(two: tuple[Path, Path]) -> None:
    server = server_of(AllowedFolders())
    async with (
        Client(server, revision="2025-11-25", roots=two[:1]) as one,
        Client(server, revision="2025-11-25", roots=two[1:]) as other,
    ):
        assert [*(await one.call_tool("folders")).data, *(await other.call_tool("folders")).data] == [
            str(each) for each in two
        ]


def test_a_client_that_does_not_answer_leaves_the_configured_folders(two: tuple[Path, Path]) -> None:
    def roots() -> list[Path]:
        raise RuntimeError("no idea")

    assert run_async(seen(server_of(AllowedFolders(two[:1])), revision="2025-11-25", roots=roots)) == [str(two[0])]


async def test_a_mounted_server_requests_the_roots_each_time(two: tuple[Path, Path]) -> None:
    first, second = two
    shared, outer = [first], Server("outer")
    outer.mount(server_of(AllowedFolders()))
    async with Client(outer, revision="2025-11-25", roots=lambda: shared) as client:
        before = (await client.call_tool("folders")).data
        shared[:] = [second]
        assert [*before, *(await client.call_tool("folders")).data] == [str(first), str(second)]


def test_folders_that_are_not_there_are_left_out_unless_none_is(two: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(two[0])
    (folder,) = AllowedFolders([tmp_path / "missing", tmp_path / "link"]).configured
    assert (folder.given, folder.real) == (tmp_path / "link", two[0])
    with pytest.raises(ConfigError, match="missing"):
        AllowedFolders([tmp_path / "missing"])


@asynccontextmanager
async def over_http(server: Server) -> AsyncIterator[str]:
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.ensure_future(server.run_async("http", port=0, started=url.set_result))
    yield f"{await url}/mcp"
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize("revision", REVISIONS)
async def test_over_http_roots_only_narrow_what_is_configured(
    two: tuple[Path, Path], revision: str, tmp_path: Path
) -> None:
    inner = two[0] / "inner"
    inner.mkdir()

    async with over_http(server_of(AllowedFolders(two[:1]))) as url:
        assert await seen(url, revision=revision, roots=[inner, two[1]]) == [str(inner)]
        assert await seen(url, revision=revision, roots=[tmp_path]) == [str(two[0])]
        with pytest.raises(ToolError, match="Over HTTP roots only narrow"):
            await seen(url, revision=revision, roots=[two[1]])


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        pytest.param("file:///tmp/a%20b", "/tmp/a b", id="escaped"),
        pytest.param("file://localhost/tmp", "/tmp", id="localhost"),
        pytest.param("file://elsewhere/tmp", None, id="another-machine"),
        pytest.param("file:///tmp/%00", None, id="zero-byte"),
        pytest.param("file:///tmp?x=1", None, id="query"),
        pytest.param("http://localhost/tmp", None, id="another-scheme"),
        pytest.param("file:relative", None, id="relative"),
        pytest.param("file://[::1/tmp", None, id="no-uri"),
    ],
)
def test_a_file_uri_names_a_path_of_this_machine_or_none(uri: str, path: str | None) -> None:
    assert path_from_file_uri(uri) == path
