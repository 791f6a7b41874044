"""The Docker server in front of real engines, Docker's and Podman's, where one can be started."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from servers.tests.docker.real_engine import IMAGE, RealEngine, docker_engine, podman_engine, run
from tests.support import run_async
from trunkline import Client, ToolError
from trunkline_servers.docker import make_server

REVISIONS = ("2025-06-18", "2026-07-28")
DOCKER = pytest.mark.parametrize("started", [docker_engine], ids=["docker"], indirect=True)


@pytest.fixture(scope="module", params=[docker_engine, podman_engine], ids=["docker", "podman"])
def started(request: pytest.FixtureRequest) -> Iterator[RealEngine]:
    with request.param() as engine:
        yield engine


@pytest.fixture
def engine(started: RealEngine) -> Iterator[RealEngine]:
    yield started
    started.clear()


# --- running ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_run_gives_exit_code_and_output_and_leaves_nothing(engine: RealEngine, revision: str) -> None:
    command = ["sh", "-c", "echo out; printf err >&2; printf more; exit 3"]
    ran = engine.ask("run", {"image": IMAGE, "command": command}, revision=revision)
    assert (ran["exit_code"], ran["timed_out"], ran["removed"]) == (3, False, True)
    assert ran["logs"] == {"stdout": "out\nmore", "stderr": "err", "cut": False}
    assert engine.names() == []


def test_a_run_has_no_privileges_and_no_network(engine: RealEngine) -> None:
    seen = run(engine, "cat /proc/self/status; cat /proc/net/dev")["logs"]["stdout"]
    fields = dict(line.split(":", 1) for line in seen.splitlines() if ":" in line)
    assert {fields[name].strip() for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (fields["NoNewPrivs"].strip(), fields["Seccomp"].strip()) == ("1", "2")
    assert ("    lo" in fields, "eth0" in seen) == (True, False)


@DOCKER
def test_a_run_has_what_was_asked_for_and_no_shell_in_between(engine: RealEngine) -> None:
    ran = run(engine, 'id; pwd; echo "$A"', user="1000:1000", workdir="/tmp", environment={"A": "$(id) b"})
    assert ran["logs"]["stdout"] == "uid=1000 gid=1000 groups=1000\n/tmp\n$(id) b\n"
    ran = engine.ask("run", {"image": IMAGE, "command": ["echo", "$HOME; id", "*"]})
    assert ran["logs"]["stdout"] == "$HOME; id *\n"


@DOCKER
def test_the_engine_takes_every_bound_that_is_sent(engine: RealEngine) -> None:
    run(engine, "sleep 1000", detach=True, name="kept", memory_mb=32, cpus=0.5, pids=20)
    host = engine.raw("GET", "/containers/kept/json")["HostConfig"]
    bounds = [host[name] for name in ("Memory", "MemorySwap", "NanoCpus", "PidsLimit")]
    assert bounds == [32 << 20, 32 << 20, 5 * 10**8, 20]
    assert (host["Privileged"], host["CapDrop"], host["Init"]) == (False, ["ALL"], True)
    assert (host["NetworkMode"], host["IpcMode"], host["PidMode"], host["UTSMode"]) == ("none", "private", "", "")
    assert not any(host[name] for name in ("Binds", "Devices", "PortBindings", "CapAdd", "VolumesFrom"))


def test_a_run_is_held_to_its_limits(engine: RealEngine) -> None:
    assert run(engine, "exec tail /dev/zero", memory_mb=16)["exit_code"] == 137
    assert "can't fork" in run(engine, "for i in $(seq 50); do sleep 100 & done; wait", pids=10)["logs"]["stderr"]


@DOCKER
def test_a_run_with_the_least_that_may_be_asked_for_works(engine: RealEngine) -> None:
    ran = engine.ask("run", {"image": IMAGE, "command": ["true"], "memory_mb": 6, "pids": 2})
    assert (ran["exit_code"], ran["logs"]["stderr"]) == (0, "")


def test_a_read_only_run_writes_to_no_disk_whatever_its_image_declares(engine: RealEngine) -> None:
    engine.create("base", ["true"])
    engine.raw("POST", "/commit", container="base", repo="declares", tag="1", changes="VOLUME /data more /tmp/")
    script = "for at in / /bin/ /data/ /more/ /tmp/; do echo x > ${at}f && echo $at; done 2>/dev/null; true"
    ran = engine.ask("run", {"image": "declares:1", "command": ["sh", "-c", script], "read_only": True})
    assert ran["logs"]["stdout"] == "/tmp/\n"
    assert engine.raw("GET", "/volumes")["Volumes"] == []


def test_a_run_that_takes_too_long_is_ended_and_removed(engine: RealEngine) -> None:
    ran = run(engine, "echo out; echo err >&2; sleep 1000", seconds=2)
    assert (ran["timed_out"], ran["exit_code"], ran["removed"], engine.names()) == (True, None, True, [])


@pytest.mark.parametrize(
    ("started", "script"),
    [
        # The log's file is full with 623 of these lines, and the next one begins it anew.
        (
            docker_engine,
            "line=$(yes | head -c 32000 | busybox tr -d '\\n'); for i in $(seq 623); do echo $line; done; echo end",
        ),
        (podman_engine, "head -c 9980000 /dev/zero; echo end"),
    ],
    ids=["docker", "podman"],
    indirect=["started"],
)
def test_a_run_that_fills_its_log_says_that_the_beginning_is_lost(engine: RealEngine, script: str) -> None:
    ran = run(engine, script)
    assert (ran["exit_code"], ran["logs"]["stdout"][-4:], ran["logs"]["cut"]) == (0, "end\n", True)


@DOCKER
def test_a_cancelled_run_leaves_no_container(engine: RealEngine) -> None:
    async def main() -> None:
        async with Client(make_server(engine.host), revision="2025-11-25") as client:
            call = asyncio.ensure_future(client.call_tool("run", {"image": IMAGE, "command": ["sleep", "1000"]}))
            await engine.until(lambda: engine.raw("GET", "/containers/json") != [])
            call.cancel()
            await asyncio.wait([call])
            await engine.until(lambda: engine.names() == [])

    run_async(main(), seconds=120)


@DOCKER
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"image": "nowhere:1"}, "The image nowhere:1 is not on this machine: pull it with docker pull nowhere:1"),
        ({"image": "nowhere:1", "read_only": True}, "The image nowhere:1 is not here"),
        ({"image": IMAGE, "user": "nobody-here"}, "unable to find user nobody-here"),
        ({"image": IMAGE, "workdir": "/bin/sh"}, "not a directory"),
        ({"image": IMAGE, "name": "a"}, "Invalid container name"),
    ],
)
def test_an_impossible_run_reports_the_reason_and_leaves_no_container(
    engine: RealEngine, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ToolError, match=words):
        engine.ask("run", arguments)
    assert engine.names() == []


# --- logs and stats --------------------------------------------------------------------------------------------------


def test_logs_of_a_terminal_are_one_stream(engine: RealEngine) -> None:
    engine.create("app", ["sh", "-c", "echo out; echo err >&2"], Tty=True)
    engine.raw("POST", "/containers/app/start")
    engine.finished("app")
    assert engine.ask("logs", {"container": "app"}) == {"stdout": "out\r\nerr\r\n", "stderr": "", "cut": False}


@DOCKER
def test_logs_can_be_limited_by_lines_and_time_and_carry_it(engine: RealEngine) -> None:
    engine.create("app", ["seq", "5"])
    engine.raw("POST", "/containers/app/start")
    engine.finished("app")
    assert engine.ask("logs", {"container": "app", "tail": 2})["stdout"] == "4\n5\n"
    assert engine.ask("logs", {"container": "app", "since": int(time.time()) + 3600})["stdout"] == ""
    last = engine.ask("logs", {"container": "app", "tail": 1, "timestamps": True})["stdout"]
    assert (last[4], last[-3:]) == ("-", " 5\n")


def test_stats_of_a_busy_container_say_what_it_uses(engine: RealEngine) -> None:
    run(engine, "while true; do true; done", detach=True, name="busy", memory_mb=64)
    stats = engine.ask("stats", {"container": "busy"})
    assert (stats["cpu_percent"] > 0, stats["memory_limit"], stats["pids"]) == (True, 64 << 20, 2)


def test_a_container_that_does_not_run_has_no_stats(engine: RealEngine) -> None:
    engine.create("idle", ["true"])
    with pytest.raises(ToolError, match="The container idle is not running"):
        engine.ask("stats", {"container": "idle"})


# --- changing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_container_is_listed_started_restarted_and_stopped(engine: RealEngine, revision: str) -> None:
    engine.create("app", ["sleep", "1000"])
    steps = [("inspect", {}), ("start", {}), ("start", {}), ("restart", {"seconds": 0}), ("stop", {"seconds": 0})]
    after = [engine.ask(tool, {"container": "app", **more}, revision=revision) for tool, more in steps]
    assert [each["status"] for each in after] == ["created", "running", "running", "running", "exited"]
    # The engine says 0 of one that has not ended.
    assert [each["exit_code"] for each in after] == [None, None, None, None, 137]
    listed = engine.ask("list_containers", {"all": True}, revision=revision)["containers"]
    assert [(row["names"], row["own"]) for row in listed] == [(["app"], False)]


@DOCKER
def test_a_container_has_time_to_end_by_itself(engine: RealEngine) -> None:
    engine.create("app", ["sh", "-c", "trap 'echo bye; exit 7' TERM; echo up; while true; do sleep 0.01; done"])
    engine.raw("POST", "/containers/app/start")
    run_async(engine.until(lambda: engine.raw("GET", "/containers/app/logs", stdout="1") != b""))
    assert engine.ask("stop", {"container": "app", "seconds": 60})["exit_code"] == 7


def test_only_own_limits_changes_to_containers_of_this_server(engine: RealEngine) -> None:
    run(engine, "sleep 1000", detach=True, name="ours")
    engine.raw("POST", "/commit", container="ours", repo="marked", tag="1")
    engine.create("theirs", ["sleep", "1000"], image="marked:1")
    with pytest.raises(ToolError, match="was not created by this server"):
        engine.ask("start", {"container": "theirs"}, only_own=True)
    rows = engine.ask("list_containers", {"all": True})["containers"]
    assert {row["names"][0]: row["own"] for row in rows} == {"theirs": False, "ours": True}
    assert [engine.ask("inspect", {"container": name})["own"] for name in ("theirs", "ours")] == [False, True]
    assert engine.ask("stop", {"container": "ours", "seconds": 0}, only_own=True)["status"] == "exited"
