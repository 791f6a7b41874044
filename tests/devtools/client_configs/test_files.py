"""Where applications keep their servers, on each system."""

from __future__ import annotations

from pathlib import Path

import pytest

from trunkline.devtools.client_configs.files import APPS, Machine, current_machine, files_of

HOME, PROJECT = Path("/home/ada"), Path("/work/notes")


def machine(system: str, **environ: str) -> Machine:
    """Describe a machine."""
    return Machine(system=system, home=HOME, environ=environ, project=PROJECT)


@pytest.mark.parametrize(
    ("system", "app", "path"),
    [
        ("linux", "claude-desktop", ".config/Claude/claude_desktop_config.json"),
        ("darwin", "claude-desktop", "Library/Application Support/Claude/claude_desktop_config.json"),
        ("win32", "claude-desktop", "AppData/Roaming/Claude/claude_desktop_config.json"),
        ("linux", "claude-code", ".claude.json"),
        ("darwin", "claude-code", ".claude.json"),
        ("win32", "cursor", ".cursor/mcp.json"),
        ("linux", "vscode", ".config/Code/User/mcp.json"),
        ("darwin", "vscode", "Library/Application Support/Code/User/mcp.json"),
        ("win32", "vscode", "AppData/Roaming/Code/User/mcp.json"),
    ],
)
def test_the_users_own_file_is_where_the_system_has_it(system: str, app: str, path: str) -> None:
    assert files_of(app, machine(system))[0].path == HOME / path


def test_variables_of_the_system_count() -> None:
    assert files_of("vscode", machine("win32", APPDATA="/roam"))[0].path == Path("/roam/Code/User/mcp.json")
    assert files_of("vscode", machine("linux", XDG_CONFIG_HOME="/xdg"))[0].path == Path("/xdg/Code/User/mcp.json")
    assert files_of("claude-code", machine("linux", CLAUDE_CONFIG_DIR="/c"))[0].path == Path("/c/.claude.json")


@pytest.mark.parametrize(
    ("app", "path", "key_path"),
    [
        ("claude-code", ".mcp.json", ("mcpServers",)),
        ("cursor", ".cursor/mcp.json", ("mcpServers",)),
        ("vscode", ".vscode/mcp.json", ("servers",)),
    ],
)
def test_a_project_has_a_file_of_its_own(app: str, path: str, key_path: tuple[str, ...]) -> None:
    file = files_of(app, machine("linux"))[-1]
    assert (file.scope, file.path, file.key_path, file.folder) == ("project", PROJECT / path, key_path, PROJECT)


def test_claude_code_has_servers_for_one_project_in_the_users_file() -> None:
    local = files_of("claude-code", machine("linux"))[1]
    assert (local.scope, local.key_path) == ("local", ("projects", str(PROJECT), "mcpServers"))


@pytest.mark.parametrize("app", APPS)
def test_every_application_has_a_place_on_this_machine(app: str) -> None:
    assert files_of(app, current_machine())[0].title == APPS[app]
