"""Meeting a server: each way of not coming to terms is named, and lists are counted and timed."""

from __future__ import annotations

import sys

import pytest

from tests.support import run_async
from trunkline import Client, Limits, Server
from trunkline.devtools.doctor.checks import Check, CheckRecorder
from trunkline.devtools.doctor.connection import check_connection
from trunkline.host.upstreams.catalog.items import Offering

#: A server that answers as its argument says.
PROGRAM = """
import json, sys, time
how = sys.argv[1]
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {"error": {"code": -32601, "message": "no such method"}}
    if how == "nonsense":
        answer = {"result": 5}
    elif asked["method"] == "initialize" and how != "error":
        revision = "1999-01-01" if how == "old" else "2025-11-25"
        info = {"name": "" if how == "nameless" else "s", "version": "" if how == "versionless" else "1"}
        answer = {"result": {"protocolVersion": revision, "capabilities": {"tools": {}}, "serverInfo": info}}
    elif asked["method"] == "tools/list" and how == "slow":
        time.sleep(30)
    elif asked["method"] == "tools/list" and how == "pages":
        cursor = asked.get("params", {}).get("cursor")
        tool = {"name": cursor or "first", "inputSchema": {"type": "object"}}
        answer = {"result": {"tools": [tool], **({} if cursor else {"nextCursor": "second"})}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


def met(target: object, *, process: bool = True, seconds: float = 120.0) -> tuple[Offering | None, dict[str, Check]]:
    """Meet a server."""

    async def main() -> tuple[Offering | None, dict[str, Check]]:
        recorder = CheckRecorder()
        client = Client(target, limits=Limits(connect_seconds=120.0, probe_seconds=1.0, exit_seconds=0.5))
        offering = await check_connection(
            recorder, client, process=process, seconds=seconds, login="trunkline auth login x"
        )
        return offering, {check.id: check for check in recorder.checks}

    return run_async(main())


def program(how: str) -> list[str]:
    """The command of a server that answers so."""
    return [sys.executable, "-c", PROGRAM, how]


@pytest.mark.parametrize(
    ("how", "id", "words"),
    [
        pytest.param("error", "handshake", "no such method", id="an-error"),
        pytest.param("old", "revision", "1999", id="an-unknown-revision"),
        pytest.param("nonsense", "handshake", "", id="nonsense"),
        pytest.param("broken", "tools", "cannot be listed", id="a-list-that-fails"),
    ],
)
def test_what_goes_wrong_is_a_failure_with_a_fix(how: str, id: str, words: str) -> None:
    _, checks = met(program(how))
    assert (checks[id].status, words in checks[id].detail, bool(checks[id].fix)) == ("fail", True, True)


def test_lists_that_do_not_come_are_given_up() -> None:
    offering, checks = met(program("slow"), seconds=0.5)
    assert (offering, checks["tools"].status, "0.5 s" in checks["tools"].detail) == (None, "fail", True)


def test_a_server_without_a_name_is_told_of() -> None:
    found = met(program("nameless"))[1]["server"]
    assert (found.status, found.detail) == ("warn", "no name in its server info")


def test_all_pages_are_counted() -> None:
    offering, checks = met(program("pages"))
    assert offering is not None
    assert [tool.name for tool in offering.tools] == ["first", "second"]
    assert checks["tools"].detail.startswith("2, 2 pages, ")


def test_a_stateless_server_needs_no_handshake() -> None:
    assert met(program("pages"))[1]["handshake"].detail == "completed"
    found = met(Server("s"), process=False)[1]["handshake"]
    assert (found.status, found.detail) == ("ok", "not needed: the server answered server/discover")


def test_a_server_that_is_no_process_has_no_stdout() -> None:
    assert {"spawn", "stdout"} & set(met(Server("s"), process=False)[1]) == set()


@pytest.mark.parametrize(
    ("source", "fix"),
    [
        pytest.param("import no_such_package", "install the package", id="a package is missing"),
        pytest.param("def broken(:", "correct the line", id="a syntax error"),
        pytest.param("pass", "server.run()", id="no server runs"),
        pytest.param("import sys; sys.exit('no key')", "run the command manually", id="a message"),
    ],
)
def test_the_fix_fits_what_a_server_exited_with(source: str, fix: str) -> None:
    assert fix in (met([sys.executable, "-c", source])[1]["spawn"].fix or "")
