"""``trunkline inspect``: one server in the browser."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.pages import showing
from tests.cli.support import DEMO, command, serving


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the files of the user."""
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TRUNKLINE_MODEL", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("target", "transport"),
    [(DEMO, "stdio"), (f'"{sys.executable}" -m trunkline run "{DEMO}"', "stdio")],
    ids=["file", "command"],
)
def test_a_server_that_is_started_is_shown_and_nothing_is_asked(target: str, transport: str) -> None:
    with showing("inspect", target, "--no-open") as page:
        state = page.until("/state", lambda found: found["servers"][0]["state"] == "ready")
        [view] = state["servers"]
        assert (state["mode"], state["title"], view["name"], view["transport"]) == (
            "inspect",
            target,
            "demo",
            transport,
        )
        assert view["actions"] == ["stop", "restart"]
        assert page.stop() == 0


def test_a_server_at_a_url_is_shown_with_its_header_masked() -> None:
    with (
        serving(DEMO, "--http", "0") as served,
        showing("inspect", served.url, "--header", "X-Key: quite-secret-4711", "--no-open") as page,
    ):
        [view] = page.until("/servers", lambda found: found["servers"][0]["state"] == "ready")["servers"]
        assert (view["transport"], view["url"]) == ("http", served.url)
        assert page.stop() == 0


def test_a_configured_server_is_shown_alone(home: Path) -> None:
    config = home / "mcp.json"
    config.write_text(
        f'{{"mcpServers": {{"one": {{"command": "{sys.executable}", "args": ["-m", "trunkline", "run", "{DEMO}"]}},'
        ' "two": {"command": "no-such-program"}}}'
    )
    with showing("inspect", "one", "-c", str(config), "--no-open") as page:
        [view] = page.until("/servers", lambda found: found["servers"][0]["state"] == "ready")["servers"]
        assert view["name"] == "one"
        assert page.stop() == 0


@pytest.mark.parametrize(
    ("target", "code"), [("no_such_file.py", 2), ("no-such-program-4711", 1)], ids=["file", "program"]
)
def test_what_is_no_server_is_an_error(target: str, code: int) -> None:
    assert command("inspect", target, "--no-open").code == code
