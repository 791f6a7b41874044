"""The walk through the workspace, where a server does not come up."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from examples.weather.screen import Screen
from examples.workspace.tour import asked
from tests.support import run_async
from trunkline import Host


def test_a_server_that_did_not_start_says_what_it_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    absent = str(tmp_path / "absent")
    entry = {"command": sys.executable, "args": ["-m", "trunkline_servers.filesystem", absent]}
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"files": entry}}), encoding="utf-8")

    async def main() -> None:
        async with Host.open(config, folder=tmp_path / "state") as host:
            await asked(host, "files/list_directory", {"path": "."}, show=Screen(interactive=False).item)

    run_async(main())
    assert "is a folder that can be opened" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("columns", ["80", "120"])
def test_what_a_server_lacks_is_shown_whole_at_any_width(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    sentence = f"Redis cannot be reached ({'refused, ' * 30}): start it, or name another address."
    screen = Screen(interactive=False)

    screen.item("redis/get", sentence, whole=True)
    screen.item("memory/read_graph", sentence)

    name, *rest = capsys.readouterr().out.split("\n  memory/read_graph\n")[0].splitlines()
    assert (name.strip(), " ".join(" ".join(rest).split())) == ("redis/get", sentence)
    assert max(map(len, rest)) <= int(columns)
