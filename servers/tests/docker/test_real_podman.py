"""The Docker server in front of Podman's service, where one can be started: where it differs from Docker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.tests.docker.real_engine import IMAGE, RealEngine, podman_engine, run
from trunkline import ToolError

REVISIONS = ("2025-06-18", "2026-07-28")


@pytest.fixture(scope="module")
def started() -> Iterator[RealEngine]:
    with podman_engine() as engine:
        yield engine


@pytest.fixture
def engine(started: RealEngine) -> Iterator[RealEngine]:
    yield started
    started.clear()


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_run_gives_exit_code_and_output_with_unfinished_lines(engine: RealEngine, revision: str) -> None:
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


def test_a_read_only_run_writes_to_no_disk_whatever_its_image_declares(engine: RealEngine) -> None:
    engine.create("base", ["true"])
    engine.raw("POST", "/commit", container="base", repo="declares", tag="1", changes="VOLUME /data more /tmp/")
    script = "for at in / /bin/ /data/ /more/ /tmp/; do echo x > ${at}f && echo $at; done 2>/dev/null; true"
    ran = engine.ask("run", {"image": "declares:1", "command": ["sh", "-c", script], "read_only": True})
    assert ran["logs"]["stdout"] == "/tmp/\n"
    assert engine.raw("GET", "/volumes")["Volumes"] == []


def test_a_run_is_held_to_its_limits(engine: RealEngine) -> None:
    assert run(engine, "exec tail /dev/zero", memory_mb=16)["exit_code"] == 137
    assert "can't fork" in run(engine, "for i in $(seq 50); do sleep 100 & done; wait", pids=10)["logs"]["stderr"]


def test_a_run_that_takes_too_long_is_ended_and_removed(engine: RealEngine) -> None:
    ran = run(engine, "sleep 1000", seconds=1)
    assert (ran["timed_out"], ran["exit_code"], ran["removed"], engine.names()) == (True, None, True, [])


def test_a_run_that_fills_its_log_says_that_the_beginning_is_lost(engine: RealEngine) -> None:
    ran = run(engine, "head -c 9980000 /dev/zero; echo end")
    assert (ran["exit_code"], ran["logs"]["stdout"][-4:], ran["logs"]["cut"]) == (0, "end\n", True)


def test_an_image_that_is_not_here_names_the_fix(engine: RealEngine) -> None:
    with pytest.raises(
        ToolError, match="The image nowhere:1 is not on this machine: pull it with docker pull nowhere:1"
    ):
        engine.ask("run", {"image": "nowhere:1"})


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_container_is_listed_started_restarted_and_stopped(engine: RealEngine, revision: str) -> None:
    engine.create("app", ["sleep", "1000"])
    steps = [("inspect", {}), ("start", {}), ("start", {}), ("restart", {"seconds": 0}), ("stop", {"seconds": 0})]
    after = [engine.ask(tool, {"container": "app", **more}, revision=revision) for tool, more in steps]
    assert [each["status"] for each in after] == ["created", "running", "running", "running", "exited"]
    assert [each["exit_code"] for each in after] == [None, None, None, None, 137]
    listed = engine.ask("list_containers", {"all": True}, revision=revision)["containers"]
    assert [(row["names"], row["own"]) for row in listed] == [(["app"], False)]


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


def test_logs_of_a_terminal_are_one_stream(engine: RealEngine) -> None:
    engine.create("app", ["sh", "-c", "echo out; echo err >&2"], Tty=True)
    engine.raw("POST", "/containers/app/start")
    engine.finished("app")
    assert engine.ask("logs", {"container": "app"}) == {"stdout": "out\r\nerr\r\n", "stderr": "", "cut": False}


def test_stats_of_a_busy_container_say_what_it_uses(engine: RealEngine) -> None:
    run(engine, "while true; do true; done", detach=True, name="busy", memory_mb=64)
    stats = engine.ask("stats", {"container": "busy"})
    assert (stats["cpu_percent"] > 0, stats["memory_limit"], stats["pids"]) == (True, 64 << 20, 2)


def test_a_container_that_does_not_run_has_no_stats(engine: RealEngine) -> None:
    engine.create("idle", ["true"])
    with pytest.raises(ToolError, match="The container idle is not running"):
        engine.ask("stats", {"container": "idle"})


def test_a_container_that_does_not_exist_has_no_stats(engine: RealEngine) -> None:
    with pytest.raises(ToolError, match="Docker answered 404: no container with name or ID"):
        engine.ask("stats", {"container": "nowhere"})
