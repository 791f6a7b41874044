"""The SQLite server as a program: over stdio, and over HTTP with a token."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from servers.tests.over_http import TOKEN, listening
from servers.tests.sqlite.shop import called
from trunkline import Client, RequestFailed, ToolError

PROGRAM = [sys.executable, "-m", "trunkline_servers.sqlite"]


async def test_it_serves_the_sample_over_stdio(tmp_path: Path) -> None:
    path = str(tmp_path / "a" / "shop.db")
    async with Client([*PROGRAM, "--db-path", path, "--sample"]) as client:
        assert await called(client, "read_query", query="SELECT count(*) AS n FROM orders") == ["[{'n': 24}]"]


async def test_the_memory_of_the_program_is_bounded(tmp_path: Path) -> None:
    async with Client([*PROGRAM, "--db-path", str(tmp_path / "a.db")]) as client:
        columns = ", ".join(["zeroblob(16000000) || 'x'"] * 20)
        with pytest.raises(ToolError, match="out of memory"):
            await called(client, "read_query", query=f"SELECT {columns}")
        assert await called(client, "read_query", query="SELECT 1 AS a") == ["[{'a': 1}]"]


async def test_http_requires_a_token(tmp_path: Path) -> None:
    path = str(tmp_path / "shop.db")
    async with listening("sqlite", "--db-path", path, "--sample", "--read-only", env={}) as url:
        async with Client(url, auth=TOKEN) as client:
            assert await called(client, "read_query", query="SELECT 1 AS a") == ["[{'a': 1}]"]
        with pytest.raises(RequestFailed) as refused:
            await Client(url).__aenter__()
        assert refused.value.status == 401


def test_a_wrong_option_is_one_sentence(tmp_path: Path) -> None:
    made = subprocess.run(
        [*PROGRAM, "--db-path", str(tmp_path)], capture_output=True, text=True, timeout=20, check=False
    )
    assert (made.returncode, made.stderr) == (
        2,
        f"error: --db-path {tmp_path}: give a file: each call opens its own connection\n",
    )
