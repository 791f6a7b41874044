"""``--apps``: a person acts as a client that shows pages, and sees which tools are theirs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.support import ROOT, Cli

WEATHER = str(ROOT / "examples" / "weather_app" / "server.py")
PANEL = "ui://weather/panel"
LOOSE = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.extensions.apps.weather import marking
from trunkline import Server
server = Server("loose", middleware=[marking({{"refresh": {{"ui": {{"visibility": ["app"]}}}}}})])
server.add_tool(lambda: "x", name="refresh", description="Refresh it.")
"""


def configured(folder: Path) -> tuple[str, ...]:
    """Write a configuration and a policy, and return the options that use them."""
    entry = {"command": sys.executable, "args": [WEATHER], "env": {"PYTHONPATH": str(ROOT)}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"w": entry}}))
    (folder / "policy.toml").write_text('[[rule]]\neffect = "allow"\nserver = "w"\n')
    return "-c", str(folder / "mcp.json"), "--policy", str(folder / "policy.toml")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))


def test_tools_of_pages_are_listed_only_on_demand_and_marked(cli: Cli) -> None:
    plain = cli("list", "tools", WEATHER)
    asked = cli("list", "tools", WEATHER, "--apps")
    assert "refresh_weather" not in plain.out
    [line] = [line for line in asked.out.splitlines() if line.startswith("refresh_weather")]
    assert "[app] Return the latest forecast" in line
    assert "[app]" not in asked.out.replace(line, "")


def test_a_server_that_lists_them_to_everyone_has_them_marked(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "loose.py").write_text(LOOSE)
    assert "[app] Refresh it." in cli("list", "tools", str(tmp_path / "loose.py")).out


def test_a_tool_of_a_page_is_called_on_demand(cli: Cli) -> None:
    refused = cli("call", WEATHER, "refresh_weather", "city=Oslo")
    called = cli("call", WEATHER, "refresh_weather", "city=Oslo", "--apps", "--json")
    assert (refused.code, "Unknown tool" in refused.err) == (5, True)
    assert (called.code, json.loads(called.out)["structuredContent"]["city"]) == (0, "Oslo")


def test_a_page_is_read_with_what_it_declares(cli: Cli) -> None:
    code, out, _ = cli("read", WEATHER, PANEL, "--apps", "--json")
    [contents] = json.loads(out)["contents"]
    assert (code, contents["_meta"]) == (0, {"ui": {"prefersBorder": True}})
    assert contents["text"].startswith("<!doctype html>")


def test_the_same_holds_for_configured_servers(tmp_path: Path, cli: Cli) -> None:
    options = configured(tmp_path)
    plain = cli("list", "tools", *options)
    asked = cli("list", "tools", *options, "--apps")
    called = cli("call", "w", "refresh_weather", "city=Oslo", *options, "--apps")
    pages = cli("list", "resources", *options, "--apps")
    assert (plain.code, "refresh_weather" in plain.out) == (0, False)
    assert "w/refresh_weather" in asked.out
    assert (called.code, "Oslo" in called.out) == (0, True)
    assert PANEL in pages.out
