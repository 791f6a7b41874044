"""``trunkline inspect``: one server in the browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.hosted import write_config
from tests.cli.pages import showing
from tests.cli.support import DEMO, Cli, Served


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the files of the user."""
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TRUNKLINE_MODEL", raising=False)
    return tmp_path


def test_a_server_that_is_started_is_shown_and_nothing_is_asked() -> None:
    with showing("inspect", DEMO, "--no-open") as page:
        state = page.until("/state", lambda found: found["servers"][0]["state"] == "ready")
        [view] = state["servers"]
        assert (state["mode"], state["title"]) == ("inspect", DEMO)
        assert (view["name"], view["transport"], view["actions"]) == ("demo", "stdio", ["stop", "restart"])
        assert page.stop() == 0


def test_a_server_at_a_url_is_shown(demo: Served) -> None:
    with showing("inspect", demo.url, "--header", "X-Key: quite-secret-4711", "--no-open") as page:
        [view] = page.until("/servers", lambda found: found["servers"][0]["state"] == "ready")["servers"]
        assert (view["transport"], view["url"]) == ("http", demo.url)
        assert page.stop() == 0


def test_a_configured_server_is_shown_alone(home: Path, demo: Served) -> None:
    config = write_config(home / "mcp.json", {"one": {"url": demo.url}, "two": {"command": "no-such-program"}})
    with showing("inspect", "one", "-c", str(config), "--no-open") as page:
        [view] = page.until("/servers", lambda found: found["servers"][0]["state"] == "ready")["servers"]
        assert view["name"] == "one"
        assert page.stop() == 0


@pytest.mark.parametrize(
    ("target", "code"), [("no_such_file.py", 2), ("no-such-program-4711", 1)], ids=["file", "program"]
)
def test_what_is_no_server_is_an_error(target: str, code: int, cli: Cli) -> None:
    assert cli("inspect", target, "--no-open").code == code


def test_the_result_of_a_tool_that_raised_has_the_traceback(home: Path) -> None:
    file = home / "server.py"
    file.write_text(
        'from trunkline import Server\n\nserver = Server("books")\n\n\n'
        '@server.tool\ndef burn() -> str:\n    return {}["paper"]\n'
    )
    with showing("inspect", str(file), "--no-open") as page:
        page.until("/catalog", lambda found: found["tools"])
        # The server of a file is named after the file.
        call = page.post("/calls", {"kind": "tool", "id": "server/burn", "arguments": {}})["call"]["id"]
        done = page.until(f"/calls/{call}", lambda found: found["call"]["state"] == "done")["call"]
        assert f'File "{file}", line 8, in burn' in done["result"]["content"][0]["text"]
        assert page.stop() == 0
