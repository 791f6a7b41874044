"""The Inspector's command line, as client of our server over stdio and over HTTP."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from tests.interop.peers import program
from tests.interop.web import Inspector, listening, our_url

TRANSPORTS = pytest.mark.parametrize("transport", ["stdio", "http", "sse"])


@pytest.fixture(scope="module")
def inspect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inspector]:
    """Our server over HTTP, and the way to start it over stdio."""
    with our_url() as url, listening(program("ours_tasks.py", "http")) as tasks:
        targets = {
            "stdio": program("ours.py"),
            "http": [f"{url}/mcp", "--transport", "http"],
            "sse": [f"{url}/mcp/sse", "--transport", "sse"],
            "tasks-stdio": program("ours_tasks.py"),
            "tasks-http": [f"{tasks}/mcp", "--transport", "http"],
        }
        yield Inspector(targets, os.environ, tmp_path_factory.mktemp("home"))


@TRANSPORTS
def test_it_lists_our_tools(inspect: Inspector, transport: str) -> None:
    tools = {tool["name"]: tool for tool in inspect(transport, "tools/list")["tools"]}
    assert (tools["add"]["title"], tools["add"]["inputSchema"]["required"]) == ("Add two numbers", ["a", "b"])


@TRANSPORTS
def test_it_calls_our_tools(inspect: Inspector, transport: str) -> None:
    called = inspect(transport, "tools/call", "--tool-name", "add", "--tool-arg", "a=19", "--tool-arg", "b=23")
    assert (called["content"], called["structuredContent"]) == ([{"type": "text", "text": "42"}], {"result": 42})


@TRANSPORTS
def test_it_reads_resources_and_prompts(inspect: Inspector, transport: str) -> None:
    read = inspect(transport, "resources/read", "--uri", "note://fixed")
    filled = inspect(transport, "prompts/get", "--prompt-name", "greet", "--prompt-args", "name=Ann")
    assert read["contents"][0]["text"] == "as it was"
    assert filled["messages"][0]["content"]["text"] == "Greet Ann in a kind tone."


# --- tasks: where a tool requires that, or the server decides so ------------------------------------------------------

TASKS = pytest.mark.parametrize("transport", ["tasks-stdio", "tasks-http"])
ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


@ERAS
@TASKS
def test_it_runs_a_tool_as_a_task(inspect: Inspector, transport: str, era: str) -> None:
    called = inspect(transport, "tools/call", "--protocol-era", era, "--tool-name", "triple", "--tool-arg", "number=14")
    assert called["content"] == [{"type": "text", "text": "42"}]


@ERAS
@TASKS
def test_it_shows_the_error_of_a_task(inspect: Inspector, transport: str, era: str) -> None:
    done = inspect.run(transport, "tools/call", "--protocol-era", era, "--tool-name", "break_down")
    assert (done.returncode != 0, "the printer is on fire" in done.stderr) == (True, True)


@TASKS
def test_it_shows_what_a_failed_tool_says(inspect: Inspector, transport: str) -> None:
    done = inspect.run(transport, "tools/call", "--protocol-era", "modern", "--tool-name", "fail")
    older = inspect.run(transport, "tools/call", "--protocol-era", "legacy", "--tool-name", "fail")
    assert json.loads(done.stdout)["content"] == [{"type": "text", "text": "out of paper"}]
    # In the older form it shows the status message of a task that failed.
    assert "out of paper" in older.stderr
