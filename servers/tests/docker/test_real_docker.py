"""The Docker server in front of a real Docker engine, where one can be started."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from servers.tests.docker.real_engine import IMAGE, RealEngine, docker_engine, run
from tests.support import run_async
from trunkline import Client, ToolError
from trunkline.errors import ConnectionLost
from trunkline_servers.docker import make_server

REVISIONS = ("2025-06-18", "2026-07-28")
SLEEPER = ["sh", "-c", "echo out; echo err >&2; sleep 1000"]


@pytest.fixture(scope="module")
def started() -> Iterator[RealEngine]:
    with docker_engine() as engine:
        yield engine


@pytest.fixture
def engine(started: RealEngine) -> Iterator[RealEngine]:
    yield started
    started.clear()


# --- running ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_run_gives_exit_code_and_output_and_leaves_nothing(engine: RealEngine, revision: str) -> None:
    command = ["sh", "-c", "echo out; echo err >&2; printf more; exit 3"]
    ran = engine.ask("run", {"image": IMAGE, "command": command}, revision=revision)
    assert (ran["exit_code"], ran["timed_out"], ran["removed"]) == (3, False, True)
    assert ran["logs"] == {"stdout": "out\nmore", "stderr": "err\n", "cut": False}
    assert engine.names() == []


def test_a_run_has_no_privileges_and_no_network(engine: RealEngine) -> None:
    seen = run(engine, "cat /proc/self/status; cat /proc/net/dev; ls /dev")["logs"]["stdout"]
    fields = dict(line.split(":", 1) for line in seen.splitlines() if ":" in line)
    assert {fields[name].strip() for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (fields["NoNewPrivs"].strip(), fields["Seccomp"].strip()) == ("1", "2")
    assert ("    lo" in fields, "eth0" in seen, "kmsg" in seen) == (True, False, False)


def test_a_run_has_the_user_folder_and_variables_that_were_asked_for(engine: RealEngine) -> None:
    ran = run(engine, 'id; pwd; echo "$A"', user="1000:1000", workdir="/tmp", environment={"A": "$(id) b"})
    assert ran["logs"]["stdout"] == "uid=1000 gid=1000 groups=1000\n/tmp\n$(id) b\n"


def test_a_command_is_not_run_in_a_shell(engine: RealEngine) -> None:
    ran = engine.ask("run", {"image": IMAGE, "command": ["echo", "$HOME; id", "*"]})
    assert ran["logs"]["stdout"] == "$HOME; id *\n"


def test_the_engine_takes_every_bound_that_is_sent(engine: RealEngine) -> None:
    run(engine, "sleep 1000", detach=True, name="kept", memory_mb=32, cpus=0.5, pids=20)
    host = engine.raw("GET", "/containers/kept/json")["HostConfig"]
    assert (host["Memory"], host["MemorySwap"], host["NanoCpus"], host["PidsLimit"]) == (
        32 << 20,
        32 << 20,
        5 * 10**8,
        20,
    )
    assert (host["Privileged"], host["CapDrop"], host["Init"]) == (False, ["ALL"], True)
    assert (host["NetworkMode"], host["IpcMode"], host["PidMode"], host["UTSMode"]) == ("none", "private", "", "")
    assert not any(host[name] for name in ("Binds", "Devices", "PortBindings", "CapAdd", "VolumesFrom"))
    assert host["SecurityOpt"] == ["no-new-privileges:true"]


def test_a_run_that_needs_more_memory_than_it_has_is_killed(engine: RealEngine) -> None:
    assert run(engine, "exec tail /dev/zero", memory_mb=16)["exit_code"] == 137


def test_a_run_cannot_have_more_processes_than_it_may(engine: RealEngine) -> None:
    ran = run(engine, "for i in $(seq 50); do sleep 100 & done; wait", pids=10)
    assert (ran["timed_out"], "can't fork" in ran["logs"]["stderr"]) == (False, True)


def test_a_run_with_the_least_that_may_be_asked_for_works(engine: RealEngine) -> None:
    ran = engine.ask("run", {"image": IMAGE, "command": ["true"], "memory_mb": 6, "pids": 2})
    assert (ran["exit_code"], ran["logs"]["stderr"]) == (0, "")


def test_a_read_only_run_writes_to_no_disk_whatever_its_image_declares(engine: RealEngine) -> None:
    engine.create("base", ["true"])
    engine.raw("POST", "/commit", container="base", repo="declares", tag="1", changes="VOLUME /data more /tmp/")
    script = (
        "for at in / /bin/ /data/ /more/ /tmp/; do echo x > ${at}f && echo $at; done 2>/dev/null;"
        "cat /bin/true > /tmp/f; busybox chmod +x /tmp/f; /tmp/f"
    )
    ran = engine.ask("run", {"image": "declares:1", "command": ["sh", "-c", script], "read_only": True})
    assert (ran["logs"]["stdout"], ran["exit_code"]) == ("/tmp/\n", 126)
    assert engine.raw("GET", "/volumes")["Volumes"] == []


def test_a_run_that_takes_too_long_is_ended_and_its_output_kept(engine: RealEngine) -> None:
    ran = run(engine, "echo out; echo err >&2; sleep 1000", seconds=2)
    assert (ran["timed_out"], ran["exit_code"], ran["removed"]) == (True, None, True)
    assert (ran["logs"]["stdout"], ran["logs"]["stderr"], engine.names()) == ("out\n", "err\n", [])


def test_a_run_that_wrote_more_than_its_log_holds_says_that_some_is_missing(engine: RealEngine) -> None:
    # The log's file is full with 623 of these lines, and the next one begins it anew.
    script = "line=$(yes | head -c 32000 | busybox tr -d '\\n'); for i in $(seq 623); do echo $line; done; echo last"
    logs = run(engine, script)["logs"]
    assert (logs["stdout"].endswith("y\nlast\n"), logs["cut"], len(logs["stdout"])) == (True, True, 65536)


def test_a_cancelled_run_leaves_no_container(engine: RealEngine) -> None:
    async def main() -> None:
        async with Client(make_server(engine.host), revision="2025-11-25") as client:
            call = asyncio.ensure_future(client.call_tool("run", {"image": IMAGE, "command": ["sleep", "1000"]}))
            await engine.until(lambda: engine.raw("GET", "/containers/json") != [])
            call.cancel()
            await asyncio.wait([call])
            await engine.until(lambda: engine.names() == [])

    run_async(main(), seconds=40)


def test_a_client_that_goes_away_leaves_no_container(engine: RealEngine) -> None:
    async def main() -> None:
        async with Client(make_server(engine.host), revision="2025-11-25") as client:
            call = asyncio.ensure_future(client.call_tool("run", {"image": IMAGE, "command": ["sleep", "1000"]}))
            await engine.until(lambda: engine.raw("GET", "/containers/json") != [])
        with pytest.raises(ConnectionLost):
            await call

    run_async(main(), seconds=40)
    assert engine.names() == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"image": "nowhere:1"}, "The image nowhere:1 is not on this machine: pull it with docker pull nowhere:1"),
        ({"image": "nowhere:1", "read_only": True}, "The image nowhere:1 is not here"),
        ({"image": "ghcr.io/owner/name@sha256:" + "a" * 64, "read_only": True}, "is not here"),
        ({"image": IMAGE, "user": "nobody-here"}, "unable to find user nobody-here"),
        ({"image": IMAGE, "workdir": "/bin/sh"}, "not a directory"),
        ({"image": IMAGE, "name": "a"}, "Invalid container name"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_an_impossible_run_reports_the_reason_and_leaves_no_container(
    engine: RealEngine, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ToolError, match=words):
        engine.ask("run", arguments)
    assert engine.names() == []


def test_a_command_that_is_not_in_the_image_ends_with_a_note(engine: RealEngine) -> None:
    ran = engine.ask("run", {"image": IMAGE, "command": ["nowhere"]})
    assert (ran["exit_code"], "nowhere" in ran["logs"]["stderr"]) == (127, True)


def test_a_name_in_use_leaves_its_container_untouched(engine: RealEngine) -> None:
    engine.create("taken", ["true"])
    with pytest.raises(ToolError, match="already in use"):
        engine.ask("run", {"image": IMAGE, "name": "taken"})
    assert engine.names() == ["taken"]


# --- looking ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
def test_containers_are_listed_and_found_by_the_id_of_the_list(engine: RealEngine, revision: str) -> None:
    engine.create("idle", ["true"])
    run(engine, "sleep 1000", detach=True, name="busy")
    everything = engine.ask("list_containers", {"all": True}, revision=revision)["containers"]
    assert [(row["names"], row["state"], row["own"]) for row in everything] == [
        (["busy"], "running", True),
        (["idle"], "created", False),
    ]
    assert [row["names"] for row in engine.ask("list_containers", {})["containers"]] == [["busy"]]
    assert len(engine.ask("list_containers", {"all": True, "limit": 1})["containers"]) == 1
    assert engine.ask("inspect", {"container": everything[0]["id"]}, revision=revision)["name"] == "busy"


def test_an_image_without_a_name_is_listed_with_no_tag(engine: RealEngine) -> None:
    engine.create("base", ["true"])
    engine.raw("POST", "/commit", container="base")
    tags = [row["tags"] for row in engine.ask("list_images", {})["images"]]
    assert ([] in tags, ["tiny:latest"] in tags, "<none>" in str(tags)) == (True, True, False)


def test_an_inspection_hides_what_looks_secret(engine: RealEngine) -> None:
    engine.create("app", ["run", "--password", "hush"], Env=["DB_PASSWORD=hush", "A=b"], Labels={"api.token": "hush"})
    shown = engine.ask("inspect", {"container": "app"})
    assert (shown["environment"], "hush" in str(shown)) == ({"DB_PASSWORD": "(hidden)", "A": "b"}, False)


@pytest.mark.parametrize("tool", ["inspect", "logs", "stats", "start", "stop", "restart"])
def test_a_container_that_does_not_exist_is_a_clear_error(engine: RealEngine, tool: str) -> None:
    with pytest.raises(ToolError, match="Docker answered 404: No such container: nowhere"):
        engine.ask(tool, {"container": "nowhere"})


# --- logs ------------------------------------------------------------------------------------------------------------


def test_logs_of_a_running_container_are_given_at_once_and_apart(engine: RealEngine) -> None:
    engine.create("app", SLEEPER)
    engine.raw("POST", "/containers/app/start")
    run_async(
        engine.until(lambda: len(engine.raw("GET", "/containers/app/logs", stdout="1", stderr="1")) == 24), seconds=30
    )
    assert engine.ask("logs", {"container": "app"}) == {"stdout": "out\n", "stderr": "err\n", "cut": False}


def test_logs_of_a_terminal_are_one_stream(engine: RealEngine) -> None:
    engine.create("app", ["sh", "-c", "echo out; echo err >&2"], Tty=True)
    engine.raw("POST", "/containers/app/start")
    engine.finished("app")
    assert engine.ask("logs", {"container": "app"}) == {"stdout": "out\r\nerr\r\n", "stderr": "", "cut": False}


def test_logs_can_be_limited_by_lines_and_time_and_carry_it(engine: RealEngine) -> None:
    engine.create("app", ["seq", "5"])
    engine.raw("POST", "/containers/app/start")
    engine.finished("app")
    assert engine.ask("logs", {"container": "app", "tail": 2})["stdout"] == "4\n5\n"
    assert engine.ask("logs", {"container": "app", "since": int(time.time()) + 3600})["stdout"] == ""
    last = engine.ask("logs", {"container": "app", "tail": 1, "timestamps": True})["stdout"]
    assert (last[4], last[-3:]) == ("-", " 5\n")


def test_long_logs_lose_their_beginning(engine: RealEngine) -> None:
    engine.create("app", ["sh", "-c", "yes 0123456789 | head -c 300000"])
    engine.raw("POST", "/containers/app/start")
    engine.finished("app")
    logs = engine.ask("logs", {"container": "app", "tail": 10_000})
    assert (len(logs["stdout"]), logs["cut"]) == (65536, True)


def test_logs_that_the_engine_does_not_keep_are_a_clear_error(engine: RealEngine) -> None:
    engine.create("app", ["true"], HostConfig={"LogConfig": {"Type": "none"}})
    with pytest.raises(ToolError, match="logging driver does not support reading"):
        engine.ask("logs", {"container": "app"})


# --- stats -----------------------------------------------------------------------------------------------------------


def test_stats_of_a_busy_container_say_what_it_uses(engine: RealEngine) -> None:
    run(engine, "while true; do true; done", detach=True, name="busy", memory_mb=64)
    stats = engine.ask("stats", {"container": "busy"})
    assert (stats["cpu_percent"] > 0, 0 < stats["memory_bytes"] < 64 << 20) == (True, True)
    assert (stats["memory_limit"], stats["pids"], stats["network_sent"]) == (64 << 20, 2, 0)


def test_a_container_that_does_not_run_has_no_stats(engine: RealEngine) -> None:
    engine.create("idle", ["true"])
    with pytest.raises(ToolError, match="The container idle is not running"):
        engine.ask("stats", {"container": "idle"})


# --- changing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_container_is_started_restarted_and_stopped(engine: RealEngine, revision: str) -> None:
    engine.create("app", ["sleep", "1000"])
    at_once = {"seconds": 0}
    steps = [("inspect", {}), ("start", {}), ("start", {}), ("restart", at_once), ("stop", at_once), ("stop", {})]
    after = [engine.ask(tool, {"container": "app", **more}, revision=revision) for tool, more in steps]
    assert [each["status"] for each in after] == ["created", "running", "running", "running", "exited", "exited"]
    # The engine says 0 of one that has not ended.
    assert [each["exit_code"] for each in after] == [None, None, None, None, 137, 137]


def test_a_container_has_time_to_end_by_itself(engine: RealEngine) -> None:
    engine.create("app", ["sh", "-c", "trap 'echo bye; exit 7' TERM; echo up; while true; do sleep 0.01; done"])
    engine.raw("POST", "/containers/app/start")
    run_async(engine.until(lambda: engine.raw("GET", "/containers/app/logs", stdout="1") != b""))
    assert engine.ask("stop", {"container": "app", "seconds": 60})["exit_code"] == 7


def test_a_paused_container_is_not_started(engine: RealEngine) -> None:
    run(engine, "sleep 1000", detach=True, name="app")
    engine.raw("POST", "/containers/app/pause")
    with pytest.raises(ToolError, match="cannot start a paused container"):
        engine.ask("start", {"container": "app"})
    assert engine.ask("inspect", {"container": "app"})["status"] == "paused"


def test_only_own_leaves_other_containers_unchanged(engine: RealEngine) -> None:
    engine.create("theirs", ["sleep", "1000"])
    run(engine, "sleep 1000", detach=True, name="ours")
    with pytest.raises(ToolError, match="was not created by this server"):
        engine.ask("start", {"container": "theirs"}, only_own=True)
    assert engine.ask("stop", {"container": "ours", "seconds": 0}, only_own=True)["status"] == "exited"


def test_a_label_from_an_image_does_not_mark_a_container_as_ours(engine: RealEngine) -> None:
    run(engine, "true", detach=True, name="ours")
    engine.raw("POST", "/commit", container="ours", repo="marked", tag="1")
    engine.create("theirs", ["sleep", "1000"], image="marked:1")
    with pytest.raises(ToolError, match="was not created by this server"):
        engine.ask("start", {"container": "theirs"}, only_own=True)
    rows = engine.ask("list_containers", {"all": True})["containers"]
    assert {row["names"][0]: row["own"] for row in rows} == {"theirs": False, "ours": True}
    assert [engine.ask("inspect", {"container": name})["own"] for name in ("theirs", "ours")] == [False, True]
    again = {"image": "marked:1", "command": ["sleep", "1000"], "detach": True, "name": "again"}
    assert engine.ask("run", again)["removed"] is False
    assert engine.ask("stop", {"container": "again", "seconds": 0}, only_own=True)["status"] == "exited"
