"""The servers of the fleet: how each is started, and harmless calls that work without a network.

In commands, variables and arguments ``{env}`` stands for the folder its packages are installed in and ``{work}`` for a
folder that is made anew before each look, with text files, a Git repository, a database and an Angular workspace.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.fleet.install import folder_of
from tests.fleet.packages import ENVIRONMENTS

__all__ = ["SERVERS", "Call", "PublicServer", "fill_in", "lay_out"]


class Call(Struct, frozen=True):
    """One request that is compared: a tool that is called, a prompt that is rendered or a resource that is read."""

    kind: str
    name: str
    arguments: dict[str, Any] = {}
    #: Patterns of what differs from call to call, such as a time.
    mask: tuple[str, ...] = ()


class PublicServer(Struct, frozen=True):
    """A public server, and what is asked of it."""

    name: str
    #: The environment it is installed in; its package and version are there.
    environment: str
    #: The program inside the environment, and its arguments.
    command: tuple[str, ...]
    calls: tuple[Call, ...] = ()
    env: dict[str, str] = {}
    #: Little enough to be started many times at once.
    small: bool = False

    @property
    def package(self) -> str:
        """The package with its version."""
        packages = ENVIRONMENTS[self.environment].packages
        # Several servers may share an environment; a package is called like its server, or is alone.
        return next((each for each in packages if re.split("==|(?<!^)@", each)[0].endswith(self.name)), packages[0])


def _tool(name: str, mask: tuple[str, ...] = (), **arguments: Any) -> Call:
    return Call("tool", name, arguments, mask)


def _npm(name: str, *words: str) -> tuple[str, ...]:
    return (f"{{env}}/node_modules/.bin/{name}", *words)


def _pypi(name: str, *words: str) -> tuple[str, ...]:
    return (f"{{env}}/bin/{name}", *words)


_ANN = {"name": "Ann", "entityType": "person", "observations": ["likes rivers"]}
_THOUGHT: dict[str, Any] = {"thought": "One.", "nextThoughtNeeded": True, "thoughtNumber": 1, "totalThoughts": 2}
_TIME = (r"\d\d:\d\d(:\d\d)?", r"\d{4}-\d\d-\d\d")

SERVERS = (
    # --- npm
    PublicServer(
        "everything",
        "reference",
        _npm("mcp-server-everything"),
        (
            _tool("echo", message="hello"),
            _tool("get-sum", a=2, b=3),
            _tool("get-structured-content", location="Chicago"),
            _tool("get-annotated-message", messageType="success", includeImage=True),
            _tool("get-resource-links", count=2),
            Call("prompt", "simple-prompt"),
            Call("prompt", "args-prompt", {"city": "Oslo"}),
            Call("resource", "demo://resource/static/document/features.md"),
        ),
        small=True,
    ),
    PublicServer(
        "filesystem",
        "reference",
        _npm("mcp-server-filesystem", "{work}/files"),
        (
            _tool("list_allowed_directories"),
            _tool("read_text_file", path="{work}/files/notes.txt"),
            _tool("list_directory", path="{work}/files"),
            _tool("read_text_file", path="/etc/hostname"),
            _tool("write_file", path="{work}/files/new.txt", content="new"),
        ),
        small=True,
    ),
    PublicServer(
        "memory",
        "reference",
        _npm("mcp-server-memory"),
        (
            _tool("create_entities", entities=[_ANN]),
            _tool("read_graph"),
            _tool("search_nodes", query="rivers"),
        ),
        {"MEMORY_FILE_PATH": "{work}/graph.jsonl"},
        small=True,
    ),
    PublicServer(
        "sequential-thinking",
        "reference",
        _npm("mcp-server-sequential-thinking"),
        (_tool("sequentialthinking", **_THOUGHT),),
        small=True,
    ),
    PublicServer(
        "hello-world",
        "hello-world",
        _npm("mcp-hello-world"),
        (
            _tool("echo", message="hello"),
            _tool("add", a=2, b=3),
            Call("prompt", "helpful-assistant"),
            Call("resource", "hello://world"),
            Call("resource", "greeting://Ann"),
        ),
        small=True,
    ),
    # Without a browser on the machine the two answer that there is none; that answer is compared.
    PublicServer(
        "playwright", "playwright", _npm("playwright-mcp", "--headless"), (_tool("browser_tabs", action="list"),)
    ),
    PublicServer(
        "chrome-devtools",
        "chrome-devtools",
        _npm("chrome-devtools-mcp", "--headless", "--no-usage-statistics", "--no-performance-crux"),
        (_tool("list_pages"),),
    ),
    PublicServer("context7", "context7", _npm("context7-mcp"), (_tool("query-docs"),)),
    PublicServer("notion", "notion", _npm("notion-mcp-server"), env={"NOTION_TOKEN": "none"}),
    PublicServer("eslint", "eslint", _npm("mcp"), (_tool("lint-files", filePaths=["{work}/files/absent.js"]),)),
    PublicServer(
        "mongodb",
        "mongodb",
        _npm("mongodb-mcp-server"),
        (_tool("count", connectionId="none", database="a", collection="b"),),
        {"MDB_MCP_TELEMETRY": "disabled"},
    ),
    PublicServer(
        "figma",
        "figma",
        _npm("figma-developer-mcp", "--stdio", "--figma-api-key", "none"),
        (_tool("get_figma_data", fileKey="no/key"),),
        {"FRAMELINK_TELEMETRY": "off"},
    ),
    PublicServer("chart", "chart", _npm("mcp-server-chart"), (_tool("generate_pie_chart", data="no data"),)),
    PublicServer(
        "code-runner",
        "code-runner",
        _npm("mcp-server-code-runner"),
        (_tool("run-code", code="console.log(6 * 7)", languageId="javascript"),),
    ),
    PublicServer(
        "repomix",
        "repomix",
        _npm("repomix", "--mcp"),
        (
            _tool("file_system_read_file", path="{work}/files/notes.txt"),
            _tool("file_system_read_directory", path="{work}/files"),
        ),
    ),
    PublicServer("angular", "angular", _npm("ng", "mcp"), (_tool("list_projects"),), {"NG_CLI_ANALYTICS": "false"}),
    PublicServer("tavily", "tavily", _npm("tavily-mcp"), env={"TAVILY_API_KEY": "none"}),
    # --- PyPI
    PublicServer(
        "time",
        "reference-python",
        _pypi("mcp-server-time", "--local-timezone", "Europe/Oslo"),
        (
            _tool("get_current_time", _TIME, timezone="Asia/Tokyo"),
            _tool("convert_time", _TIME, source_timezone="Asia/Tokyo", time="12:30", target_timezone="Etc/UTC"),
            _tool("get_current_time", timezone="Nowhere"),
        ),
        small=True,
    ),
    PublicServer(
        "fetch",
        "reference-python",
        _pypi("mcp-server-fetch"),
        (_tool("fetch", url="not a url"),),
        small=True,
    ),
    PublicServer(
        "git",
        "reference-python",
        _pypi("mcp-server-git", "--repository", "{work}/repository"),
        (
            _tool("git_status", repo_path="{work}/repository"),
            _tool("git_log", repo_path="{work}/repository", max_count=1),
            _tool("git_show", repo_path="{work}/repository", revision="HEAD"),
            _tool("git_status", repo_path="{work}/files"),
        ),
    ),
    PublicServer(
        "sqlite",
        "handshake-python",
        _pypi("mcp-server-sqlite", "--db-path", "{work}/data.db"),
        (
            _tool("list_tables"),
            _tool("read_query", query="select * from rivers"),
            _tool("write_query", query="insert into rivers values ('Glomma', 621)"),
            _tool("append_insight", insight="Rivers are long."),
            Call("resource", "memo://insights"),
            Call("prompt", "mcp-demo", {"topic": "rivers"}),
        ),
        small=True,
    ),
    PublicServer(
        "calculator",
        "handshake-python",
        _pypi("mcp-server-calculator"),
        (
            _tool("calculate", expression="6 * 7"),
            _tool("calculate", expression="6 *"),
        ),
        small=True,
    ),
    PublicServer(
        "text-editor",
        "handshake-python",
        _pypi("mcp-text-editor"),
        (_tool("get_text_file_contents", files=[{"file_path": "{work}/files/notes.txt", "ranges": [{"start": 1}]}]),),
        small=True,
    ),
    PublicServer(
        "shell",
        "shell",
        _pypi("mcp-shell-server"),
        (
            _tool("shell_execute", command=["echo", "hello"], directory="{work}"),
            _tool("shell_execute", command=["rm", "-rf", "x"], directory="{work}"),
        ),
        {"ALLOW_COMMANDS": "ls,cat,echo,pwd,grep,wc,find"},
    ),
    PublicServer(
        "atlassian",
        "atlassian",
        _pypi("mcp-atlassian"),
        (_tool("jira_get_issue"),),
        {
            "JIRA_URL": "https://jira.example.com",
            "JIRA_PERSONAL_TOKEN": "none",
            "CONFLUENCE_URL": "https://wiki.example.com",
            "CONFLUENCE_PERSONAL_TOKEN": "none",
        },
    ),
    PublicServer(
        "excel",
        "excel",
        _pypi("excel-mcp-server", "stdio"),
        (
            _tool("create_workbook", path="{work}/files/book.xlsx", sheets=["Rivers"]),
            _tool("write_range", path="{work}/files/book.xlsx", sheet="Rivers", at="A1", rows=[["Rhine", 1230]]),
            _tool("read_range", path="{work}/files/book.xlsx", sheet="Rivers"),
            _tool("describe_sheet", path="{work}/files/absent.xlsx", sheet="Rivers"),
        ),
    ),
    PublicServer("duckduckgo", "duckduckgo", _pypi("duckduckgo-mcp-server"), (_tool("expand_link", token="none"),)),
    PublicServer(
        "motherduck",
        "motherduck",
        _pypi("mcp-server-motherduck", "--db-path", ":memory:", "--read-write"),
        (_tool("execute_query", sql="select 6 * 7 as answer"),),
    ),
    PublicServer(
        "aws-documentation",
        "aws-documentation",
        _pypi("awslabs.aws-documentation-mcp-server"),
        (_tool("read_documentation", url="not a url"),),
    ),
)


def fill_in(value: Any, server: PublicServer, work: Path) -> Any:
    """Return a command, variables or arguments with the folders filled in."""
    if isinstance(value, str):
        return value.replace("{env}", str(folder_of(ENVIRONMENTS[server.environment]))).replace("{work}", str(work))
    if isinstance(value, dict):
        return {name: fill_in(each, server, work) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(fill_in(each, server, work) for each in value)
    return value


def lay_out(work: Path) -> None:
    """Make the folder that servers work on, always the same."""
    shutil.rmtree(work, ignore_errors=True)
    (work / "files").mkdir(parents=True)
    (work / "home").mkdir()
    (work / "files" / "notes.txt").write_text("The river is long.\nThe sea is wide.\n")
    (work / "files" / "hello.py").write_text("def greet(name):\n    return f'Hello {name}'\n")
    (work / "angular.json").write_text(
        '{"version": 1, "projects": {"app": {"projectType": "application", "root": ""}}}'
    )
    repository = work / "repository"
    at = "2026-01-01T00:00:00Z"
    settings = {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at, "GIT_CONFIG_GLOBAL": os.devnull}
    git = ["git", "-c", "user.name=Ann", "-c", "user.email=ann@example.com", "-C", str(repository)]
    subprocess.run(["git", "init", "-q", "-b", "main", str(repository)], check=True)
    (repository / "a.txt").write_text("one\n")
    for words in (["add", "a.txt"], ["commit", "-q", "-m", "The first one"]):
        subprocess.run([*git, *words], check=True, env={**os.environ, **settings})
    with sqlite3.connect(work / "data.db") as database:
        database.executescript(
            "create table rivers (name text, length int); insert into rivers values ('Rhine', 1230);"
        )
    database.close()
