"""From the servers of another application to the first call that works: one question, and tools that come later ask."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.stage import Masked, Person, tool
from tests.cli.support import Cli
from tests.support import run_async
from trunkline.devtools.client_configs.files import Machine, files_of
from trunkline.errors import PolicyDenied
from trunkline.host.authorization.grants import GrantStore
from trunkline.host.host import Host

READS: dict[str, Any] = {"annotations": {"readOnlyHint": True}}
READS_HERE: dict[str, Any] = {"annotations": {"readOnlyHint": True, "openWorldHint": False}}
SERVERS = [f"s{number}" for number in range(4)]


class Home:
    """A home in which Cursor has servers, each a process of its own."""

    def __init__(self, folder: Path, machine: Machine) -> None:
        self._folder = folder
        self._file = files_of("cursor", machine)[0].path
        self.own = folder / "own" / "mcp.json"
        self.grants = GrantStore(folder / "own" / "grants.json")
        self.servers: dict[str, Masked] = {}

    def have(self, *names: str) -> None:
        """Have Cursor start servers with a tool that reads, one that reads here alone, and one that writes."""
        tools = [tool("look", **READS), tool("peek", **READS_HERE), tool("write")]
        self.servers = {name: Masked(self._folder, name, tools=tools) for name in names}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        entries = {name: server.written_entry for name, server in self.servers.items()}
        self._file.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")

    def call(self, *names: str, sessions: bool = True) -> tuple[list[str], list[str]]:
        """Have a model call tools, each in a session of its own; give what was refused, and what was asked about."""

        async def calls() -> tuple[list[str], list[str]]:
            person, refused = Person(), []
            async with Host.open(consent=person, caller="model", wait_seconds=60.0) as host:
                one = host.session()
                for name in names:
                    try:
                        await host.call_tool(name, session=host.session() if sessions else one)
                    except PolicyDenied:
                        refused.append(name)
            return refused, [f"{each.act.server}/{each.act.name}" for each in person.asked]

        return run_async(calls(), seconds=120.0)


@pytest.fixture
def home(tmp_path: Path, machine: Machine) -> Home:
    return Home(tmp_path, machine)


def test_imported_servers_reach_their_first_calls_with_one_question(home: Home, cli: Cli) -> None:
    home.have(*SERVERS)
    code, screen = cli.at_a_terminal("import", script=(("[y/a/m/N] ", "y\n"),))
    assert (code, screen.count("?")) == (0, 1)

    assert home.call(*(f"{name}/look" for name in SERVERS)) == ([], [])
    assert [len(home.servers[name].calls) for name in SERVERS] == [1] * 4
    # What reads here alone works in one conversation, after words of other servers.
    assert home.call(*(f"{name}/peek" for name in SERVERS), sessions=False) == ([], [])


def test_a_tool_that_writes_still_needs_approval(home: Home, cli: Cli) -> None:
    home.have("files")
    assert cli("import", "--yes", "--allow-reading").code == 0
    assert home.call("files/look", "files/write") == (["files/write"], ["files/write"])
    (grant,) = home.grants.all()
    assert (sorted(grant.tools or {}), grant.awaits, grant.expires) == (["look", "peek"], None, None)


def test_importing_again_allows_what_is_pinned_and_no_more(home: Home, cli: Cli) -> None:
    home.have("files")
    cli("import", "--yes")
    assert home.call("files/look") == (["files/look"], ["files/look"])
    home.servers["files"].wears(tools=[tool("look", **READS), tool("late", **READS)])
    cli("import", "--yes", "--allow-reading")
    assert home.call("files/look", "files/late") == (["files/late"], ["files/late"])
