"""The server as its users start it: over stdio and over HTTP with a token, and its failures in one sentence."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from click.testing import CliRunner

from servers.tests.openapi.fake_api import Answer, running_double
from servers.tests.openapi.support import PETS
from tests.support import run_async
from trunkline import BearerToken, Client
from trunkline_servers.openapi.__main__ import command

PROGRAM = (sys.executable, "-m", "trunkline_servers.openapi")
TOKEN = "a-token-of-the-test-0123456789"


def test_it_serves_over_stdio_with_a_key_from_the_environment() -> None:
    async def main() -> tuple[list[str], str, str]:
        async with running_double({"GET /pets": Answer([{"id": 1}])}) as double:
            program = [*PROGRAM, str(PETS), "--base-url", double.url, "--read-only", "--tag", "pets"]
            program += ["--auth", "api_key=SHOP_KEY"]
            async with Client(program, env={**os.environ, "SHOP_KEY": "s3cret"}) as client:
                names = [tool.name for tool in await client.list_tools()]
                result = await client.call_tool("listPets", {"limit": 1})
            return names, result.text, double.last.headers["x-shop-key"]

    names, text, key = run_async(main())
    assert names == ["listPets", "getPet", "checkPet", "getPhoto", "searchPets"]
    assert text == '[{"id": 1}]'
    assert key == "s3cret"


@asynccontextmanager
async def served_over_http(*arguments: str) -> AsyncIterator[str]:
    """Start the program over HTTP and give its address."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, *arguments, "--http", "0", "--tokens-env", "TOKENS",
        stderr=asyncio.subprocess.PIPE, env={**os.environ, "TOKENS": TOKEN},
    )  # fmt: skip
    assert process.stderr is not None
    try:
        line = (await process.stderr.readline()).decode()
        yield line.partition(" at ")[2].split()[0]
    finally:
        process.terminate()
        await process.wait()


def test_http_requires_a_token() -> None:
    async def main() -> str:
        async with (
            running_double({"GET /pets/7": Answer({"id": 7, "name": "Rex"})}) as double,
            served_over_http(str(PETS), "--base-url", double.url) as url,
            Client(url, auth=BearerToken(TOKEN)) as client,
        ):
            return (await client.call_tool("getPet", {"id": 7})).text

    assert run_async(main()) == '{"id":7,"name":"Rex"}'


def test_a_wrong_start_is_one_sentence() -> None:
    ended = subprocess.run([*PROGRAM, "nowhere.json"], capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode in (1, 2)
    assert "nowhere.json cannot be read" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--auth", "api_key=NOT_SET_AT_ALL"], "the variable NOT_SET_AT_ALL is not set"),
        (["--base-url", "ftp://a.example"], "--base-url must be an http or https URL"),
        (["--auth", "nonsense"], "write NAME=VALUE"),
        (["--auth", "api_key=sk-live-1234"], "--auth api_key=...: name the environment variable"),
        (["--read-only", "--method", "POST"], "Nothing is left to offer"),
        (["--server-variable", "region=mars"], "'region' cannot be 'mars'"),
        (["--header", "Bad Name=x"], "cannot be sent"),
    ],
    ids=["auth", "base", "usage", "value", "methods", "variable", "header"],
)
def test_a_setting_that_does_not_fit_is_named(arguments: list[str], message: str) -> None:
    ended = CliRunner().invoke(command, [str(PETS), *arguments])
    assert message in f"{ended.output} {ended.exception}"
    assert "sk-live" not in f"{ended.output} {ended.exception}"


def test_help_shows_the_ways_to_start() -> None:
    text = CliRunner().invoke(command, ["--help"]).output
    assert "Examples:" in text
    assert "--max-operations" in text
