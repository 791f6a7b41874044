"""``trunkline list skills``: what a server, or all configured servers, have for models."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.support import ROOT, Cli
from tests.extensions.skills.made import add_skill

SERVER = """
from pathlib import Path
from trunkline import Server
server = Server("handbook", skills=Path(__file__).with_name("skills"))
@server.skill("daily", description="Today.")
def daily() -> str:
    return "Do it."
if __name__ == "__main__":
    server.run()
"""


@pytest.fixture
def handbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))
    add_skill(tmp_path / "skills", "notes", description="Write notes.", STYLE_md="Short.")
    file = tmp_path / "handbook.py"
    file.write_text(SERVER)
    return file


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()[1:]]


def test_the_skills_of_a_server_are_listed_with_their_files(handbook: Path, cli: Cli) -> None:
    listed = cli("list", "skills", str(handbook))
    assert rows(listed.out) == [
        ["notes", "2", "skill://notes/SKILL.md", "Write", "notes."],
        ["daily", "generated", "skill://daily/SKILL.md", "Today."],
    ]
    as_json = json.loads(cli("list", "skills", str(handbook), "--json").out)
    assert [each["frontmatter"]["name"] for each in as_json["skills"]] == ["notes", "daily"]


def test_those_of_configured_servers_are_listed_by_server(handbook: Path, cli: Cli) -> None:
    entry = {"command": sys.executable, "args": [str(handbook)], "env": {"PYTHONPATH": str(ROOT)}}
    config = handbook.with_name("mcp.json")
    config.write_text(json.dumps({"mcpServers": {"h": entry}}))
    listed = cli("list", "skills", "-c", str(config))
    assert [row[0] for row in rows(listed.out)] == ["h/notes", "h/daily"]
    one = cli("list", "skills", "h", "-c", str(config))
    assert [row[0] for row in rows(one.out)] == ["notes", "daily"]


def test_a_server_without_skills_says_so(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "s.py").write_text('from trunkline import Server\nserver = Server("s")\n')
    listed = cli("list", "skills", str(tmp_path / "s.py"))
    assert (listed.code, listed.out) == (0, "")
    assert "the server has no skills" in listed.err
