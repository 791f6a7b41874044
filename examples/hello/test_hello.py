"""Tests of both: the server in memory, and the client with the server as a process."""

import asyncio

import pytest

from examples.hello import client as hello_client
from examples.hello.server import server
from trunkline import Client


def test_the_server_greets() -> None:
    """No process, no port: the client connects to the server object."""

    async def main() -> None:
        async with Client(server) as client:
            assert (await client.call_tool("greet", {"name": "Ada", "times": 2})).data == "hello Ada, hello Ada"

    asyncio.run(main())


def test_the_client_prints_the_greeting(capsys: pytest.CaptureFixture[str]) -> None:
    """The client starts and stops the server process."""
    asyncio.run(hello_client.main())
    assert capsys.readouterr().out == "hello Ada\n"
