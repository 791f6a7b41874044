"""``trunkline dev``: a server in the browser that is replaced when its file changes."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.cli.pages import Page, showing
from tests.cli.support import SECONDS, Cli

SERVER = """
from trunkline import Server

server = Server("books")

@server.tool
def find(title: str) -> str:
    "Find a book."
    return title
"""
MORE = """
@server.tool
def lend(title: str) -> str:
    "Lend a book."
    return title
"""

FAILING = """
@server.tool
def burn() -> str:
    return {}["paper"]

@server.resource("x://burnt")
def burnt() -> str:
    return {}["paper"]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a server."""
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TRUNKLINE_MODEL", raising=False)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "books.py").write_text(SERVER)
    return folder


def _tools(page: Page) -> list[str]:
    return sorted(row["name"] for row in page.get("/catalog")["tools"])


class _Events:
    """The event stream of a page."""

    def __init__(self, page: Page) -> None:
        request = Request(f"{page.origin}/api/events", headers={"Authorization": f"Bearer {page.token}"})
        self._stream = urlopen(request, timeout=SECONDS)

    def until(self, type: str, contains: str) -> dict[str, Any]:
        """Read events up to one of a type with a text in it."""
        for line in self._stream:
            event = json.loads(line[6:]) if line.startswith(b"data: ") else {}
            if event.get("type") == type and contains in json.dumps(event):
                return dict(event)
        raise AssertionError(f"no {type}")

    def close(self) -> None:
        """Leave."""
        self._stream.close()


def test_a_saved_change_is_in_the_page_at_once_and_a_mistake_keeps_the_old_version(project: Path) -> None:
    file = project / "books.py"
    with showing("dev", "books.py", "--no-open", cwd=project) as page:
        state = page.until("/state", lambda found: found["servers"] and found["servers"][0]["state"] == "ready")
        assert (state["mode"], state["title"]) == ("dev", "books.py")
        assert (state["servers"][0]["name"], state["servers"][0]["transport"]) == ("books", "memory")
        assert _tools(page) == ["find"]
        events = _Events(page)
        file.write_text(SERVER + MORE)
        told = events.until("notice", "reloaded")
        assert (told["level"], "tools +lend" in told["text"]) == ("info", True)
        page.until("/catalog", lambda found: len(found["tools"]) == 2)
        file.write_text(SERVER + "\ndef broken(:\n")
        problem = events.until("load_problem", "SyntaxError")["problem"]
        assert problem["text"].startswith("books.py cannot be loaded, the previous version keeps running: SyntaxError")
        assert problem["text"].endswith("(books.py, line 11)")
        assert "def broken(:" in problem["traceback"]
        # Not only told once: a page that is opened later shows it as well, until the file loads.
        assert page.get("/state")["load_problem"] == problem
        assert _tools(page) == ["find", "lend"]
        file.write_text(SERVER + MORE + FAILING)
        assert events.until("load_problem", "null")["problem"] is None
        assert page.get("/state")["load_problem"] is None
        events.close()
        # A reconnect gets the version that runs, not the first one.
        assert page.post("/servers/books/restart")["server"]["tools"] == 3
        # The author of a tool reads where and why it failed.
        call = page.post("/calls", {"kind": "tool", "id": "books/burn", "arguments": {}})["call"]["id"]
        done = page.until(f"/calls/{call}", lambda found: found["call"]["state"] == "done")["call"]
        text = done["result"]["content"][0]["text"]
        assert text.startswith("Tool 'burn' failed unexpectedly.\n\nTraceback")
        assert f'File "{file}", line 18, in burn' in text
        assert text.endswith("KeyError: 'paper'")
        # And the author of a resource or a prompt.
        call = page.post("/calls", {"kind": "resource", "id": "books/x://burnt"})["call"]["id"]
        error = page.until(f"/calls/{call}", lambda found: found["call"]["state"] == "failed")["call"]["error"]
        assert error["message"] == "Internal error: KeyError: 'paper' (-32603)"
        assert f'File "{file}", line 22, in burnt' in error["data"]["traceback"]
        assert page.stop() == 0


def test_the_same_server_is_served_over_http(project: Path, cli: Cli) -> None:
    with showing("dev", "books.py:server", "--http", "0", "--no-open", cwd=project) as page:
        assert page.process.stderr is not None
        line = page.process.stderr.readline()
        found = re.search(r"is served at (\S+?);", line)
        assert found is not None, line
        listed = cli("list", "tools", found.group(1), "--json")
        assert [tool["name"] for tool in listed.json["tools"]] == ["find"]
        (project / "books.py").write_text(SERVER + MORE)
        page.until("/catalog", lambda found: len(found["tools"]) == 2)
        listed = cli("list", "tools", found.group(1), "--json")
        assert len(listed.json["tools"]) == 2
        assert page.stop() == 0


def test_a_file_that_cannot_be_loaded_at_first_is_shown_until_it_can(project: Path) -> None:
    file = project / "books.py"
    file.write_text("1 / 0\n")
    with showing("dev", "books.py", "--http", "0", "--no-open", cwd=project) as page:
        problem = page.get("/state")["load_problem"]
        assert problem["text"].startswith("the server cannot be loaded, it is shown once its files have changed: Zero")
        assert problem["text"].endswith("(books.py, line 1)")
        events = _Events(page)
        file.write_text("import sys\nsys.exit('no key')\n")
        problem = events.until("load_problem", "SystemExit: no key")["problem"]
        assert problem["text"] == "books.py cannot be loaded, nothing is served until it can: SystemExit: no key"
        file.write_text(SERVER)
        assert events.until("load_problem", "null")["problem"] is None
        events.close()
        page.until("/catalog", lambda found: len(found["tools"]) == 1)
        # Over HTTP it is served with its own options, so not before it was loaded.
        assert page.process.stderr is not None
        assert next(line for line in page.process.stderr if "books is served at " in line)
        assert page.stop() == 0


def test_a_file_that_does_not_exist_is_an_error(project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "path", list(sys.path))
    done = cli("dev", "boks.py", "--no-open")
    assert (done.code, "books.py" in done.err) == (2, True)
    assert "TRUNKLINE_TRACEBACKS" not in os.environ
