"""``trunkline dev``: a server in the browser that is replaced when its file changes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.cli.pages import Page, showing
from tests.cli.support import SECONDS, command

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
        told = events.until("notice", "SyntaxError")
        assert told["level"] == "error"
        assert told["text"].startswith("books.py cannot be loaded, the previous version keeps running: SyntaxError")
        assert _tools(page) == ["find", "lend"]
        events.close()
        # A reconnect gets the version that runs, not the first one.
        assert page.post("/servers/books/restart")["server"]["tools"] == 2
        assert page.stop() == 0


def test_the_same_server_is_served_over_http(project: Path) -> None:
    with showing("dev", "books.py:server", "--http", "0", "--no-open", cwd=project) as page:
        assert page.process.stderr is not None
        line = page.process.stderr.readline()
        found = re.search(r"is served at (\S+?);", line)
        assert found is not None, line
        listed = command("list", "tools", found.group(1), "--json")
        assert [tool["name"] for tool in json.loads(listed.out)["tools"]] == ["find"]
        (project / "books.py").write_text(SERVER + MORE)
        page.until("/catalog", lambda found: len(found["tools"]) == 2)
        listed = command("list", "tools", found.group(1), "--json")
        assert len(json.loads(listed.out)["tools"]) == 2
        assert page.stop() == 0


def test_a_file_that_cannot_be_loaded_at_first_is_an_error(project: Path) -> None:
    (project / "books.py").write_text("1 / 0\n")
    done = command("dev", "books.py", "--no-open", cwd=project)
    assert (done.code, "ZeroDivisionError" in done.err) == (2, True)
