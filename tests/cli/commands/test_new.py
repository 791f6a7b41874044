"""``trunkline new``: a project from each template passes its own tests, checks and commands, in a folder of its own."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import trunkline
from tests.cli.support import Cli, Outcome
from tests.extensions.apps.page_host import needs_node, shown
from trunkline.cli.commands.new import _template_names
from trunkline.cli.main import main

TEMPLATES = _template_names()
SOURCES = str(Path(trunkline.__file__).parents[1])
SECONDS = 120


class Api(BaseHTTPRequestHandler):
    """Answers the one request that the README of the template ``api`` makes."""

    def do_GET(self) -> None:
        """Answer."""
        body = json.dumps(
            {"full_name": self.path, "description": None, "stargazers_count": 1, "html_url": "https://example.com"}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


@pytest.fixture(scope="module")
def api() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def program(project: Path, *words: str, **env: str) -> Outcome:
    """Run a module of this Python in a project, as its owner would: without our settings."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("COV", "PYTEST"))}
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=project,
        env={**kept, "PYTHONPATH": SOURCES, "TRUNKLINE_HOME": str(project.parent / "home"), **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module", params=TEMPLATES)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of each template."""
    folder = tmp_path_factory.mktemp("empty")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["new", "my-server", "--template", request.param]) == 0
    return folder / "my-server"


@pytest.mark.slow
def test_its_own_tests_pass(project: Path) -> None:
    ended = program(project, "pytest", "-q", "-p", "no:cacheprovider")
    assert ended.code == 0, ended.out


@pytest.mark.slow
def test_it_is_clean(project: Path) -> None:
    assert program(project, "ruff", "check", "--no-cache", ".") == (0, "All checks passed!\n", "")
    assert program(project, "ruff", "format", "--no-cache", "--check", ".").code == 0
    ended = program(project, "mypy", "--strict", "--cache-dir", str(project.parents[1] / "mypy"), "src", "tests")
    assert ended.code == 0, ended.out


@pytest.mark.slow
def test_the_commands_of_its_readme_work(project: Path, api: str) -> None:
    readme = (project / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"`(trunkline (?:list|call|doctor) [^`.][^`]+)`", readme)
    assert {shlex.split(line)[1] for line in commands} == {"list", "call", "doctor"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for line in commands:
        # A server process is given few variables of its user.
        words = [*shlex.split(line), *(("--env", f"API_URL={api}") if " call " in line else ())]
        ended = program(project, *words, PATH=path)
        assert (ended.code, bool(ended.out)) == (0, True), f"{line}\n{ended.err}"


def test_its_readme_describes_the_installation(project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (project / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^trunkline install .*", readme, re.M)
    monkeypatch.chdir(project)
    entry = cli(*shlex.split(line)[1:], "--print").json["mcpServers"]["my-server"]
    assert entry["args"][-1] == str(project / "src" / "my_server" / "server.py")
    texts = [path.read_text(encoding="utf-8") for path in project.rglob("*") if path.suffix in (".py", ".md")]
    assert "@@" not in "".join(texts)


def test_it_is_served_and_has_a_command(project: Path, cli: Cli) -> None:
    ended = cli("list", "tools", str(project / "src" / "my_server" / "server.py"))
    assert (ended.code, bool(ended.out)) == (0, True), ended.err
    settings = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["project"]["scripts"] == {"my-server": "my_server.server:main"}
    assert settings["project"]["dependencies"][0].startswith("trunkline")


def test_its_files_are_those_that_are_listed(here: Path, cli: Cli) -> None:
    told = cli("new", "other", "--template", "api", "--json").json
    found = sorted(str(path.relative_to(here / "other")) for path in (here / "other").rglob("*") if path.is_file())
    assert (sorted(told["files"]), told["folder"]) == (found, str(here / "other"))
    assert {".gitignore", "README.md", "mcp.json", "pyproject.toml"} < set(found)


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_the_next_steps_are_printed(here: Path, cli: Cli) -> None:
    out = cli("new", "weather").out
    steps = ["cd weather", "trunkline call ", "python -m pytest", "trunkline run ", "trunkline install "]
    assert [out.index(step) for step in steps] == sorted(out.index(step) for step in steps)


def test_a_folder_that_is_not_empty_is_refused(here: Path, cli: Cli) -> None:
    (here / "weather").mkdir()
    assert cli("new", "weather").code == 0
    before = sorted(here.rglob("*"))
    ended = cli("new", "weather")
    assert ended.code == 2
    assert "exists and is not empty; choose another name, or move its files away" in ended.err
    assert sorted(here.rglob("*")) == before


def test_a_dot_means_the_current_folder(here: Path, cli: Cli) -> None:
    ended = cli("new", ".")
    assert (ended.code, "cd " in ended.out) == (0, False)
    assert (here / "src" / "here" / "server.py").exists()


def test_a_name_that_cannot_be_a_package_is_refused(here: Path, cli: Cli) -> None:
    names = ["1st", "a b", "é", "a--b", "-a", "a.b", "json", "class", "trunkline", "x" * 51, "tests"]
    ended = {name: cli("new", "--", name) for name in names}
    assert {name: each.code for name, each in ended.items()} == dict.fromkeys(names, 1)
    assert [name for name, each in ended.items() if "cannot be the name of a project" not in each.err] == []
    assert list(here.iterdir()) == []


def test_help_lists_every_template(cli: Cli) -> None:
    out = cli("new", "--help").out
    assert TEMPLATES[0] == "tool"
    assert {"api", "app", "database", "tool"} <= set(TEMPLATES)
    assert all(
        re.search(rf"^  {name} +A server|^  {name} +A small", out, re.M) for name in ("tool", "api", "app", "database")
    )


def test_a_failure_leaves_no_file(here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    made = os.makedirs

    def full(path: str, exist_ok: bool = False) -> None:
        if path.endswith("tests"):
            raise OSError(28, "No space left on device")
        made(path, exist_ok=exist_ok)

    monkeypatch.setattr(os, "makedirs", full)
    ended = cli("new", "weather")
    assert (ended.code, "No space left on device; nothing was created" in ended.err) == (2, True)
    assert [path for path in here.rglob("*") if path.is_file()] == []


@needs_node
async def test_the_page_of_the_template_app_shows_what_its_server_returns(here: Path, cli: Cli) -> None:
    assert cli("new", "my-list", "--template", "app").code == 0
    async with shown(here / "my-list" / "src" / "my_list" / "page.html") as page:
        await page.start(theme="light")
        items = [{"title": "<b>One</b>", "done": True}, {"title": "Two", "done": False}]
        page.tell(method="ui/notifications/tool-result", params={"structuredContent": {"items": items}})
        assert await page.text("status") == "1 of 2 done."
        assert "<b>One</b>" in await page.text("items")
