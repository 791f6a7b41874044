"""What can be checked of the fleet without a network: its tables, its page, and that a miss is seen as one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.fleet.__main__ import main
from tests.fleet.clients import CLIENTS, DRIVERS, ClientRow
from tests.fleet.looks import SIDES, ServerRow
from tests.fleet.packages import ENVIRONMENTS, NPM, Environment
from tests.fleet.programs import slow_start
from tests.fleet.report import PAGE, Result, bars, page, table
from tests.fleet.run import Plan
from tests.fleet.servers import SERVERS, Call
from tests.fleet.snapshots import Snapshot, answer, differences, named_as_directly
from tests.fleet.together import Left, Restart, Together, delays

CALL = Call("tool", "echo", {"message": "hi"})


def rows_of(text: str, section: str) -> list[tuple[str, str]]:
    """Return the first two cells of each row of a section's table."""
    part = text.split(f"## {section}\n")[1].split("\n## ")[0]
    found = [line.strip("| ").split(" | ")[:2] for line in part.splitlines() if line.startswith("| ")]
    return [(name, package.strip("`")) for name, package in found[2:]]


# --- the tables and the page -----------------------------------------------------------------------------------------


def test_the_page_lists_the_servers_of_the_table() -> None:
    listed = rows_of(PAGE.read_text(encoding="utf-8"), "Servers")
    assert listed == [(server.name, server.package) for server in SERVERS], "run make fleet DOCS=1"


def test_the_page_lists_the_clients_of_the_table() -> None:
    listed = rows_of(PAGE.read_text(encoding="utf-8"), "Clients")
    assert listed == [(client.name, client.package) for client in CLIENTS], "run make fleet DOCS=1"


def test_every_server_and_client_has_an_environment_of_its_own_name_once() -> None:
    names = [server.name for server in SERVERS] + [client.name for client in CLIENTS]
    assert len(set(names)) == len(names)
    used = {server.environment for server in SERVERS} | {client.environment for client in CLIENTS} - {""}
    assert used == set(ENVIRONMENTS)


def is_pinned(environment: Environment) -> bool:
    separator = "@" if environment.source == NPM else "=="
    return re.fullmatch(rf"[^\s]+{separator}\d+(\.\d+)+", environment.subject) is not None


def test_the_subject_of_every_environment_is_pinned() -> None:
    assert [environment.subject for environment in ENVIRONMENTS.values() if not is_pinned(environment)] == []


def test_every_client_has_a_driver() -> None:
    assert [client.name for client in CLIENTS if not (DRIVERS / client.driver).is_file()] == []


# --- a miss is seen --------------------------------------------------------------------------------------------------


def snapshot(**tools: str) -> Snapshot:
    lists = {"tools": {name: {"name": name, "description": text} for name, text in tools.items()}}
    return Snapshot("2025-11-25", lists, [{"content": [{"type": "text", "text": "hi"}]}])


def test_two_equal_snapshots_do_not_differ() -> None:
    assert differences(snapshot(echo="Echo."), snapshot(echo="Echo."), (CALL,)) == []


def test_what_is_missing_added_or_changed_is_named() -> None:
    wanted, seen = snapshot(echo="Echo.", add="Add."), snapshot(echo="Echoes.", more="More.")
    assert differences(wanted, seen, (CALL,)) == [
        "tools: add is missing",
        "tools: more is not the server's",
        'tools: echo differs at /description: "Echo." became "Echoes."',
    ]


def test_another_answer_is_named() -> None:
    seen = snapshot(echo="Echo.")
    seen.calls = [{"content": [{"type": "text", "text": "no"}], "isError": True}]
    assert differences(snapshot(echo="Echo."), seen, (CALL,)) == [
        'tool echo answers otherwise at /content/0/text: "hi" became "no"'
    ]


def test_a_call_of_a_tool_that_the_server_does_not_list_compares_nothing() -> None:
    one = snapshot(add="Add.")
    assert differences(one, one, (CALL,)) == ["tool echo is called here, but the server does not list it"]


def test_what_differs_from_call_to_call_is_masked() -> None:
    call = replace(CALL, mask=(r"\d\d:\d\d",))
    first, second = ({"content": [{"type": "text", "text": f"It is {time}."}]} for time in ("10:00", "11:30"))
    assert answer(call, first) == answer(call, second)
    assert answer(CALL, first) != answer(CALL, second)


def test_names_through_the_gateway_are_those_of_the_server() -> None:
    outer = Snapshot(
        "2025-11-25",
        {"tools": {"files__read": {"name": "files__read"}}, "resources": {"file://files/a": {"uri": "file://files/a"}}},
        [{"contents": [{"uri": "file://files/a", "text": "a"}]}],
    )
    seen = named_as_directly(outer, "files", Snapshot("2025-11-25", {"tools": {"read": {"name": "read"}}}))
    assert seen.lists["tools"] == {"read": {"name": "read"}}
    assert list(seen.lists["resources"]) == ["file://a"]
    assert seen.calls == [{"contents": [{"uri": "file://a", "text": "a"}]}]


def test_a_name_that_the_gateway_shortened_is_recognised_by_its_definition() -> None:
    direct = Snapshot("2025-11-25", {"tools": {"long_name": {"name": "long_name", "description": "One."}}})
    outer = Snapshot("2025-11-25", {"tools": {"files__lo_1f": {"name": "files__lo_1f", "description": "One."}}})
    assert differences(direct, named_as_directly(outer, "files", direct), ()) == []


# --- the report ------------------------------------------------------------------------------------------------------


def perfect() -> Result:
    server = ServerRow(name="time", package="mcp-server-time==1", revision="2025-11-25", counts={"tools": 2}, calls=1)
    server.sides = {side: [] for side in SIDES}
    return Result(
        seed=1,
        servers=[server],
        clients=[ClientRow(name="FastMCP", package="fastmcp==1", doors={"stdio": "", "http": ""})],
        together=Together(tools=2, definitions=2, restarts=[Restart(number=0), Restart(number=1)]),
        at_once=(60, 60, []),
        left=Left(dedicated=3, seconds=4.0),
    )


def missed(result: Result) -> list[str]:
    return [bar.what for bar in bars(result) if not bar.passed]


def test_a_perfect_run_misses_no_bar() -> None:
    assert missed(perfect()) == []
    assert not any("MISS" in line for line in table(perfect()))


def test_every_miss_is_a_bar_that_fails() -> None:
    result = perfect()
    result.servers[0].sides["stdio"] = ["tools: add is missing"]
    result.clients[0].doors["http"] = "refused"
    result.at_once = (60, 59, ["time-1 (2 starts)"])
    result.left = Left(after_clients=["1"], after_gateway=["2"])
    assert result.together is not None
    result.together.wrong["hidden"].append("time/now")
    result.together.restarts[1].lost.append("time__now")
    result.together.restarts[1].lost_at_first.append("time__now")
    result.together.restarts[1].late.append("time")
    result.at_end = ["3"]
    assert len(missed(result)) == 12


def test_what_was_skipped_is_no_miss() -> None:
    result = perfect()
    result.servers.append(ServerRow(name="git", package="mcp-server-git==1", skipped="no network"))
    result.clients.append(ClientRow(name="Agno", package="agno==1", skipped="no network"))
    assert missed(result) == []
    written = page(result, day="2026-01-01", delay=8, count=60)
    assert "| git | `mcp-server-git==1` | skipped |" in written
    assert "- git: no network\n" in written
    assert "- Agno: no network\n" in written


def test_a_client_that_fails_directly_is_named_with_its_reason_and_not_counted() -> None:
    result = perfect()
    row = ClientRow(name="Agno", package="agno==1", doors={"stdio": ""}, not_directly={"http": "Error: no port"})
    result.clients.append(row)
    assert missed(result) == []
    written = page(result, day="2026-01-01", delay=8, count=60)
    assert "| Agno | `agno==1` | passes | does not work directly |" in written
    assert "- Agno, http: Error: no port\n" in written


# --- the rest --------------------------------------------------------------------------------------------------------


def test_a_seed_always_draws_the_same_delays() -> None:
    names = ["time", "git"]
    assert delays(1, 2, names) == delays(1, 2, list(reversed(names)))
    assert delays(1, 2, names) != delays(2, 2, names)
    assert delays(1, 2, names) != delays(1, 3, names)


def test_a_late_server_notes_its_start_and_becomes_the_server(tmp_path: Path) -> None:
    (tmp_path / slow_start.DELAYS).write_text("time 0.01\n")
    said = [sys.executable, "-c", "print('the server')"]
    done = subprocess.run(
        [sys.executable, slow_start.__file__, str(tmp_path), "time", *said], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "the server\n"
    assert (tmp_path / slow_start.LEDGER).read_text() == "time\n"


def test_only_chooses_servers_and_clients_by_name() -> None:
    plan = Plan(only=("time", "FastMCP"))
    assert [server.name for server in plan.servers()] == ["time"]
    assert [client.name for client in plan.clients()] == ["FastMCP"]


def test_a_name_that_is_unknown_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tests.fleet", "--only", "nowhere"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "no server or client is called 'nowhere'" in capsys.readouterr().err


def test_masks_are_patterns() -> None:
    patterns = [pattern for server in SERVERS for call in server.calls for pattern in call.mask]
    assert patterns
    assert json.dumps([re.compile(pattern).pattern for pattern in patterns])
