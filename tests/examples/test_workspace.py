"""The walk through the workspace, where a server does not come up."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from examples.workspace.tour import asked
from tests.support import run_async
from trunkline import Host


def test_a_server_that_did_not_start_says_what_it_lacks(tmp_path: Path) -> None:
    entry = {"command": sys.executable, "args": ["-m", "trunkline.servers.sentry"], "env": {"SENTRY_TOKEN": ""}}
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"sentry": entry}}), encoding="utf-8")

    async def main() -> str:
        async with Host.open(config, folder=tmp_path / "state") as host:
            return await asked(host, "sentry/get_sentry_issue", {"issue_id_or_url": "1"})

    assert "set SENTRY_TOKEN to one that may read issues" in run_async(main(), seconds=30)
