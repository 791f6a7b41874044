"""A host with something in every view: servers in every state, calls, a chat, questions, saved calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from examples.workspace.tour import prepare
from tests.browser.support import Api, server_entry, showing, write_config, write_script

__all__ = ["sample_console"]

_POLICY = """\
[[rule]]
effect = "ask"
server = ["filesystem"]
tool = ["write_file", "edit_file", "move_file", "create_directory"]

[[rule]]
effect = "allow"
server = ["git", "time", "filesystem"]
tool = ["git_log", "git_status", "get_current_time", "read_text_file", "list_directory"]

[[rule]]
effect = "deny"
server = ["sqlite"]
tool = ["write_query"]
message = "The sample shop is read only."
"""
_ANSWER = """\
It is that late in **Oslo**:

| city | zone |
|---|---|
| Oslo | `Europe/Oslo` |

- bring a coat
"""


@asynccontextmanager
async def sample_console(folder: Path) -> AsyncIterator[Api]:
    """Run ``trunkline console`` over the sample project of the workspace example."""
    environ = await asyncio.to_thread(prepare, folder / "workspace")
    project, data = environ["WORKSPACE_FOLDER"], environ["WORKSPACE_DATA"]
    writes = {"path": f"{project}/trip.md", "content": "# Weekend in Paris\n- umbrella: yes, it may rain\n"}
    model = write_script(
        folder,
        {
            "when": "clock",
            "says": "Let me look at the clock.",
            "calls": [{"tool": "get_current_time", "arguments": {"timezone": "Europe/Oslo"}}],
        },
        {
            "when": "Oslo",
            "says": _ANSWER,
        },
        {
            "when": "note",
            "says": "I write it down.",
            "calls": [{"tool": "write_file", "arguments": writes}],
        },
        {"says": "Anything else?", "again": True},
    )
    policy = folder / "policy.toml"
    policy.write_text(_POLICY)
    config = write_config(
        folder,
        everything=server_entry("trunkline_servers.everything"),
        filesystem=server_entry("trunkline_servers.filesystem", project),
        git=server_entry("trunkline_servers.git", "--repository", project),
        sqlite=server_entry("trunkline_servers.sqlite", "--db-path", f"{data}/shop.db", "--sample"),
        time=server_entry("trunkline_servers.time", "--local-timezone", "Europe/Oslo"),
        tickets=server_entry("examples.tickets.server", "--db", f"{data}/tickets.db"),
        weather=server_entry("examples.weather_app.server"),
        archive={"command": "/no/such/archive-server"},
        paused={**server_entry("trunkline_servers.memory"), "disabled": True},
    )
    arguments = ("console", "-c", config, "--policy", str(policy), "--no-open")
    async with showing(*arguments, home=folder / "home", TRUNKLINE_MODEL=model) as api:
        await api.ready("everything", "filesystem", "git", "sqlite", "time", "weather")
        yield api
