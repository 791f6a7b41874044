"""The server of a file that a client command forks: it is a process of its own in every respect that code can see."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import trunkline
from tests.cli.support import Outcome, command

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="servers are forked on Linux only")

SERVER = """
import atexit, os, sys, time
from pathlib import Path
from trunkline import Server, ToolError

server = Server("forked")
HERE = Path(__file__).parent
atexit.register(lambda: (HERE / "atexit").write_text("ran"))

@server.tool
def facts() -> dict[str, object]:
    return {
        "pid": os.getpid(),
        "session": os.getsid(0),
        "variable": os.environ.get("OF_THE_CLIENT"),
        "path": sys.path[:2],
        "arguments": sys.argv,
        "open": sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if int(fd) > 2
                       and os.path.exists(f"/proc/self/fd/{fd}")),
    }

@server.tool
def talk() -> str:
    print("to stdout")
    print("to stderr", file=sys.stderr)
    return "said"

@server.tool
def read_input() -> str:
    return repr(sys.stdin.read())

@server.tool
def crash() -> str:
    os._exit(3)

@server.tool
def fail(city: str) -> str:
    weathers = {}
    return weathers[city]

@server.tool
def refuse() -> str:
    raise ToolError("not today")

@server.tool
def wait() -> str:
    (HERE / "pid").write_text(str(os.getpid()))
    time.sleep(60)
    return "late"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "forked.py").write_text(SERVER)
    return tmp_path


def call(folder: Path, *words: str, stdin: str = "", **env: str) -> Outcome:
    return command("call", "forked.py", *words, stdin=stdin, env=env, cwd=folder)


def test_it_has_an_environment_a_session_and_a_path_of_its_own(folder: Path) -> None:
    done = call(folder, "facts", "--json", OF_THE_CLIENT="secret")
    facts = json.loads(done.out)["structuredContent"]
    assert facts["pid"] == facts["session"]
    assert facts["variable"] is None
    assert facts["path"][0] == str(folder)
    assert facts["arguments"] == [str(folder / "forked.py")]
    assert not [name for name in facts["open"] if name.startswith(str(folder))]


def test_it_differs_in_nothing_from_one_that_a_command_starts(folder: Path) -> None:
    forked = json.loads(call(folder, "facts", "--json").out)["structuredContent"]
    started = json.loads(call(folder, "facts", "--json", "--env", "SOME=thing").out)["structuredContent"]
    assert {**forked, "pid": 0, "session": 0, "open": 0} == {**started, "pid": 0, "session": 0, "open": 0}


def test_what_it_prints_reaches_neither_the_protocol_nor_the_result(folder: Path) -> None:
    assert call(folder, "talk") == (0, "said\n", "")
    shown = call(folder, "talk", "-v").err
    assert "[stderr] to stdout\n" in shown
    assert "[stderr] to stderr\n" in shown


def test_it_does_not_read_the_input_of_the_client(folder: Path) -> None:
    assert call(folder, "read_input", stdin="for the client").out == "''\n"


def test_its_exit_handlers_run(folder: Path) -> None:
    assert call(folder, "talk").code == 0
    assert (folder / "atexit").read_text() == "ran"


def test_a_crash_is_told_with_its_status(folder: Path) -> None:
    done = call(folder, "crash")
    assert done.code == 4
    assert "forked.py exited with status 3" in done.err


def test_a_server_that_cannot_be_loaded_is_told_with_its_traceback(folder: Path) -> None:
    (folder / "forked.py").write_text("import nothing_of_this_name\n")
    done = call(folder, "talk")
    assert done.code == 4
    assert 'forked.py", line 1, in <module>\n    import nothing_of_this_name\n' in done.err


def test_it_ends_with_a_client_that_is_killed(folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "trunkline", "call", "forked.py", "wait"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(trunkline.__file__).parents[1])},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as client:
        until = time.monotonic() + 120
        while not (folder / "pid").exists() and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.1)
        pid = int((folder / "pid").read_text())
        client.send_signal(signal.SIGKILL)
        client.wait()
    while time.monotonic() < until + 10:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("the server still runs")


# --- errors of tools -------------------------------------------------------------------------------------------------


def test_an_exception_of_a_tool_names_the_users_own_line_and_how_to_see_more(folder: Path) -> None:
    done = call(folder, "fail", "city=Oslo")
    assert done.code == 5
    line = SERVER.splitlines().index("    return weathers[city]") + 1
    assert done.err == (
        "trunkline: the tool fail failed: Tool 'fail' failed unexpectedly.\n"
        f"trunkline: KeyError: 'Oslo' at forked.py:{line}, in fail: return weathers[city]\n"
        "trunkline: to see the traceback, run the command again with -v\n"
    )


def test_with_v_the_whole_traceback_is_shown_once(folder: Path) -> None:
    shown = call(folder, "fail", "city=Oslo", "-v").err
    assert "[stderr] Traceback (most recent call last):\n" in shown
    assert shown.count("KeyError: 'Oslo'") == 1
    assert "run the command again" not in shown


def test_an_error_that_the_tool_means_needs_no_traceback(folder: Path) -> None:
    assert call(folder, "refuse").err == "trunkline: the tool refuse failed: not today\n"


def test_the_doctor_shows_a_traceback_as_one(folder: Path) -> None:
    (folder / "forked.py").write_text("import trunkline\n\n\ndef load():\n    return {}['key']\n\n\nload()\n")
    shown = command("doctor", "forked.py", cwd=folder).out
    quoted = [line.partition("| ")[2] for line in shown.splitlines() if line.lstrip().startswith("| ")]
    assert quoted[1] == "Traceback (most recent call last):"
    assert quoted[-1] == "KeyError: 'key'"
    assert "    return {}['key']" in quoted


def test_a_result_that_does_not_match_is_explained(folder: Path) -> None:
    (folder / "wrong.py").write_text(
        "from trunkline import Server\nserver = Server('wrong')\n@server.tool\ndef count() -> int: return 'three'\n"
    )
    done = command("call", "wrong.py", "count", cwd=folder)
    assert done.code == 5
    assert "the result of tool 'count' does not match its output schema: expected an integer, got a string" in done.err


def test_an_exception_of_the_lifespan_names_the_users_own_line(folder: Path) -> None:
    (folder / "forked.py").write_text(
        "from contextlib import asynccontextmanager\nfrom trunkline import Server\n@asynccontextmanager\n"
        "async def lifespan(server):\n    raise OSError('no database')\n    yield\n"
        "server = Server('s', lifespan=lifespan)\n"
    )
    assert call(folder, "greet").err == (
        "trunkline: the server returned an error: Internal error (-32603)\n"
        "  OSError: no database at forked.py:5, in lifespan: raise OSError('no database')\n"
        "  to see the traceback, run the command again with -v\n"
    )
