"""FastMCP as server of our client and as client of our server, from an environment of its own or one that is named."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import trunkline.types as t
from tests.interop.peers import NEWEST_HANDSHAKE, PROGRAMS, program
from tests.interop.web import FASTMCP
from tests.support import run_async
from trunkline import Client

PYTHON = os.environ.get("TRUNKLINE_FASTMCP_PYTHON", str(FASTMCP))

pytestmark = pytest.mark.skipif(not Path(PYTHON).exists(), reason="FastMCP is not installed: `make interop` does that")


@pytest.mark.parametrize("revision", ["auto", NEWEST_HANDSHAKE])
def test_our_client_uses_a_fastmcp_server(revision: str) -> None:
    async def main() -> tuple[object, str | None, t.ContentBlock]:
        async with Client([PYTHON, str(PROGRAMS / "fast_server.py")], revision=revision) as client:
            await client.list_tools()
            total = (await client.call_tool("add", {"a": 19, "b": 23})).data
            [note] = await client.read_resource("note://fixed")
            [message] = (await client.get_prompt("greet", {"name": "Ann"})).messages
            return total, note.text, message.content

    assert run_async(main(), seconds=40) == (42, "as it was", t.TextContent(text="Greet Ann."))


def test_a_fastmcp_client_uses_our_server() -> None:
    command = [PYTHON, str(PROGRAMS / "fast_client.py"), *program("ours.py")]
    done = subprocess.run(command, capture_output=True, timeout=40, text=True)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (len(seen["tools"]), seen["sum"], seen["note"], seen["asked"]) == (20, 42, "as it was", "Ann, 9")
