"""``TRUNKLINE_STORE``: the store of a server over HTTP, from the environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SERVER = Path(__file__).parents[2] / "deploy" / "books" / "server.py"
#: No Redis listens there.
URL = "redis://reader:a-password@127.0.0.1:1/0"


GIVEN = {"TRUNKLINE_STORE": URL, "TRUNKLINE_STATE_KEY": "5a" * 32, "BOOKS_TOKEN": "a-token-of-a-test"}


@pytest.mark.parametrize("command", ["run", "serve"])
def test_a_server_over_http_uses_it_and_does_not_print_its_password(tmp_path: Path, command: str) -> None:
    """A server and a gateway serve without their store, and say so."""
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {}}', encoding="utf-8")
    target = [str(SERVER)] if command == "run" else ["-c", str(file), "--no-auth"]
    line = [sys.executable, "-m", "trunkline", command, *target, "--http", "127.0.0.1:0"]
    with subprocess.Popen(
        line, env={**os.environ, **GIVEN}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        assert server.stdout is not None
        printed = []
        for line_printed in server.stdout:
            printed.append(line_printed)
            if "/mcp" in line_printed:
                break
        server.terminate()
        printed.append(server.communicate(timeout=120)[0])
    text = "".join(printed)
    assert "cannot be reached" in text
    assert "http://127.0.0.1:" in text
    assert "a-password" not in text


def test_a_server_over_stdio_ignores_it(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text("from trunkline import Server\nserver = Server('plain')\n", encoding="utf-8")
    line = [sys.executable, "-m", "trunkline", "run", str(file)]
    environment = {**os.environ, **GIVEN}
    done = subprocess.run(line, env=environment, input="", capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0
