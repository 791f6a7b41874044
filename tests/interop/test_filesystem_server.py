"""The official TypeScript server ``filesystem`` over stdio, as server of our client: files, limits and roots."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.interop.peers import npm_server
from tests.support import run_async
from trunkline import Client, ServerExited


def within(folder: Path, work: Callable[[Client], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with Client(npm_server("filesystem", str(folder))) as client:
            return await work(client)

    return run_async(main())


def test_structured_results_fit_the_listed_schemas(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")

    async def work(client: Client) -> list[Any]:
        assert all(tool.output_schema is not None for tool in await client.list_tools())
        calls = [
            client.call_tool("get_file_info", {"path": str(tmp_path / "a.txt")}),
            client.call_tool("directory_tree", {"path": str(tmp_path)}),
            client.call_tool("read_multiple_files", {"paths": [str(tmp_path / "a.txt")]}),
        ]
        return [list(result.data) for result in await asyncio.gather(*calls)]

    assert within(tmp_path, work) == [["content"], ["content"], ["content"]]


async def until_allowed(client: Client, folder: Path) -> str:
    """Ask until a folder is allowed: the server has no way to say when it is done with new roots."""
    while str(folder) not in (text := (await client.call_tool("list_allowed_directories")).text).splitlines():
        pass
    return text


def test_the_roots_become_the_allowed_folders(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    roots = [first]

    async def main() -> list[str]:
        async with Client(npm_server("filesystem", str(tmp_path)), roots=lambda: roots) as client:
            before = await until_allowed(client, first)
            roots[:] = [second]
            await client.notify_roots_changed()
            return [before, await until_allowed(client, second)]

    before, after = run_async(main())
    assert before.splitlines()[1:] == [str(first)]
    assert after.splitlines()[1:] == [str(second)]


def test_a_server_that_finds_no_folder_says_why() -> None:
    async def main() -> None:
        async with Client(npm_server("filesystem", "/no/such/folder")):
            pytest.fail("it connected")

    with pytest.raises(ServerExited, match="/no/such/folder") as caught:
        run_async(main())
    assert caught.value.status == 1
