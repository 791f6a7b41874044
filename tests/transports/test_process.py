"""The client side of stdio, against real processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.transports.loops import LOOPS, run_on
from tests.transports.processes import PROGRAMS, alive, children, descriptors, gone_within
from trunkline.errors import LinkError, ServerExited
from trunkline.protocol.caller import STDIO
from trunkline.protocol.jsonrpc import Notification, Outbound, Request, Response
from trunkline.protocol.limits import Limits
from trunkline.testing.link_check import RecordingReceiver
from trunkline.transports.process import ProcessLink, server_environment

# Descriptors are compared.
pytestmark = pytest.mark.usefixtures("without_collector")

FAST = Limits(exit_seconds=0.2)
ECHO = [sys.executable, "-S", str(PROGRAMS / "echo.py")]
STUBBORN = [sys.executable, "-S", str(PROGRAMS / "stubborn.py")]


def start(command: list[str], limits: Limits = FAST, **options: Any) -> tuple[ProcessLink, RecordingReceiver]:
    link = ProcessLink.spawn(command, limits=limits, **options)
    seen = RecordingReceiver()
    link.attach(seen)
    return link, seen


def shell(script: str, limits: Limits = FAST, **options: Any) -> tuple[ProcessLink, RecordingReceiver]:
    return start(["sh", "-c", script], limits, **options)


async def ended(link: ProcessLink, seen: RecordingReceiver) -> ServerExited:
    """Wait for the end, close, and give the reason."""
    reason = await seen.end()
    await link.aclose()
    assert isinstance(reason, ServerExited)
    return reason


async def output_of(command: list[str], **options: Any) -> str:
    """Run a program that writes to stderr and exits; give what it wrote."""
    link, seen = start(command, **options)
    return (await ended(link, seen)).stderr


async def pids_of(seen: RecordingReceiver) -> list[int]:
    (note,) = await seen.messages(1)
    assert isinstance(note, Notification)
    pids: list[int] = json.loads(bytes(note.params))["pids"]
    return pids


# --- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
def test_a_request_is_answered(loop: str) -> None:
    async def main() -> tuple[object, object]:
        link, seen = start(ECHO)
        link.send([Outbound(Request(1, "echo", {"a": 1}))])
        (answer,) = await seen.messages(1)
        await link.aclose()
        assert isinstance(answer, Response)
        return json.loads(bytes(answer.result)), seen.origins[0]

    assert run_on(loop, main()) == ({"a": 1}, STDIO)


async def test_lines_that_are_not_messages_are_skipped_counted_and_rarely_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    link, seen = shell("""for i in 1 2 3 4 5; do echo starting $i; done; echo '{"jsonrpc":"2.0","method":"n"}'""")
    count = len(await seen.messages(1))
    await link.aclose()
    assert (count, link.skipped_lines) == (1, 5)
    assert len(caplog.records) == 3


def test_arguments_are_not_read_by_a_shell() -> None:
    code = "import sys; sys.stderr.write(sys.argv[1])"
    text = run_on("asyncio", output_of([sys.executable, "-S", "-c", code, "$HOME; `id` > x && *"]))
    assert text == "$HOME; `id` > x && *"


def test_a_link_works_outside_the_main_thread() -> None:
    statuses: list[int | None] = []

    async def main() -> None:
        link, seen = shell("exit 5")
        statuses.append((await ended(link, seen)).status)

    thread = threading.Thread(target=run_on, args=("asyncio", main()))
    thread.start()
    thread.join(120)
    assert statuses == [5]


# --- the environment -------------------------------------------------------------------------------------------------


def test_only_inherited_and_given_variables_are_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hidden")
    monkeypatch.setenv("LC_TIME", "C")
    code = "import os, sys; sys.stderr.write(repr(dict(os.environ)))"
    text = run_on(
        "asyncio", output_of([sys.executable, "-I", "-S", "-c", code], env={"GIVEN": "yes", "LC_ALL": "C.UTF-8"})
    )
    environment: dict[str, str] = eval(text)
    assert environment == server_environment({"GIVEN": "yes", "LC_ALL": "C.UTF-8"})
    assert environment["GIVEN"] == "yes"
    assert environment["LC_TIME"] == "C"
    assert "SECRET_TOKEN" not in environment


def test_variables_are_given_or_inherited_by_name_or_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TRUNKLINE_TEST_ONE": "x", "CI": "1", "CITY": "Oslo", "LC_EVIL": "() { :; }; echo"}.items():
        monkeypatch.setenv(name, value)
    assert server_environment(None, ["TRUNKLINE_TEST_*", "CI"]) == {"TRUNKLINE_TEST_ONE": "x", "CI": "1"}
    environment = server_environment({"HOME": "/elsewhere"})
    assert (environment["HOME"], "LC_EVIL" in environment) == ("/elsewhere", False)


def test_a_server_starts_in_the_given_directory(tmp_path: Path) -> None:
    assert run_on("asyncio", output_of(["sh", "-c", "pwd >&2"], cwd=tmp_path)) == f"{tmp_path}\n"


def test_a_server_gets_no_descriptors_but_its_three() -> None:
    assert run_on("asyncio", output_of(["sh", "-c", "exec >&2; ls /proc/$$/fd"])).split() == ["0", "1", "2"]


async def test_a_server_inherits_no_ignored_signal() -> None:
    _, ignored = (await output_of(["sh", "-c", "grep SigIgn /proc/$$/status >&2"])).split()
    numbers = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM]
    assert [number for number in numbers if int(ignored, 16) & 1 << (number - 1)] == []


# --- starting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "options", "words"),
    [
        pytest.param(["no-such-thing"], {}, "command not found: no-such-thing; install it", id="no command"),
        pytest.param(["./no-such-file"], {}, "no-such-file: there is no such file", id="no file"),
        pytest.param([__file__], {}, "not executable; run chmod", id="not executable"),
        pytest.param(["sh"], {"cwd": "/no/such"}, "there is no directory /no/such", id="no directory"),
        pytest.param(["sh"], {"env": {"PATH": "/nowhere"}}, r"searched: /nowhere", id="another PATH"),
    ],
)
def test_a_command_that_cannot_be_started_is_a_clear_error(
    command: list[str], options: dict[str, Any], words: str
) -> None:
    before = descriptors()
    with pytest.raises(LinkError, match=words):
        ProcessLink.spawn(command, **options)
    assert descriptors() == before


async def test_a_program_that_the_kernel_cannot_start_is_reported_at_once(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF nonsense")
    program.chmod(0o755)
    assert str(await ended(*start([str(program)]))).startswith(f"cannot start {program}: Exec format error")


async def test_a_watcher_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.transports.process.find_interpreter", lambda: "/bin/false")
    assert "the process that was to start it failed" in str(await ended(*start(ECHO)))


def test_a_program_without_an_interpreter_is_refused_with_a_clear_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/frozen-program")
    monkeypatch.setattr(sys, "base_prefix", "/nowhere")
    with pytest.raises(LinkError, match="no Python interpreter is found to run its watcher"):
        ProcessLink.spawn(["sh"])


# --- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
def test_an_exit_is_reported_at_once_with_status_and_stderr(loop: str) -> None:
    async def main() -> ServerExited:
        return await ended(*shell("echo out of cheese >&2; exit 3"))

    reason = run_on(loop, main())
    assert str(reason) == "the server sh exited with status 3; last lines of stderr:\nout of cheese"
    assert (reason.status, reason.stderr) == (3, "out of cheese\n")


async def test_a_signal_is_reported_as_a_negative_status() -> None:
    reason = await ended(*shell("kill -9 $$"))
    assert (str(reason), reason.status) == ("the server sh was ended by signal 9; it wrote nothing to stderr", -9)


async def test_messages_written_before_the_exit_arrive_before_the_end() -> None:
    link, seen = shell("""for i in 1 2 3 4 5 6 7 8 9; do echo '{"jsonrpc":"2.0","method":"n"}'; done; exit 1""")
    await ended(link, seen)
    assert len(seen.incoming) == 9


async def test_an_exit_is_reported_although_a_leftover_child_holds_the_pipe() -> None:
    link, seen = shell("sleep 30 & exit 4")
    started = asyncio.get_running_loop().time()
    reason = await ended(link, seen)
    status, seconds = reason.status, asyncio.get_running_loop().time() - started
    assert status == 4
    assert seconds < 3


async def test_a_server_that_only_closes_its_output_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.transports.process._EXIT_SECONDS", 0.2)
    link, seen = shell("exec >&-; exec 2>&-; sleep 300")
    reason = await ended(link, seen)
    text, status = str(reason), link.status
    assert text == "the server sh closed its pipes but did not exit; it wrote nothing to stderr"
    assert status == -signal.SIGTERM


async def test_a_server_whose_watcher_is_killed_is_ended() -> None:
    link, seen = start([*STUBBORN, "child"])
    pids = await pids_of(seen)
    link._watcher.kill()
    await ended(link, seen)
    assert gone_within(pids, 60) == []


# --- stderr -----------------------------------------------------------------------------------------------------------


async def test_only_the_end_of_stderr_is_kept_and_much_output_does_not_block() -> None:
    code = "import sys; sys.stderr.write('x' * 3_000_000 + 'the end')"
    link, seen = start([sys.executable, "-S", "-c", code], Limits(stderr_bytes=1000))
    text = (await ended(link, seen)).stderr
    assert len(text) == 1000
    assert text.endswith("xthe end")


def test_stderr_output_is_passed_on_as_it_arrives() -> None:
    shown: list[bytes] = []
    run_on("asyncio", output_of(["sh", "-c", "echo one >&2; echo two >&2"], on_stderr=shown.append))
    assert b"".join(shown) == b"one\ntwo\n"


# --- closing ----------------------------------------------------------------------------------------------------------


async def test_a_server_that_ends_with_its_input_is_not_signalled() -> None:
    link, seen = start(ECHO)
    link.send([Outbound(Request(1, "echo"))])
    await seen.messages(1)
    await link.aclose()
    assert link.status == 0


async def test_a_server_that_ignores_the_end_of_input_gets_term() -> None:
    link, _ = shell("sleep 30")
    await asyncio.sleep(0.1)
    await link.aclose()
    assert link.status == -signal.SIGTERM


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(["child"], id="a child in the group"),
        pytest.param(["setsid"], id="a child that left the group"),
        pytest.param(["daemon"], id="an orphaned child"),
    ],
)
async def test_a_server_that_ignores_everything_is_killed_with_all_it_started(kinds: list[str]) -> None:
    link, seen = start([*STUBBORN, *kinds])
    pids = await pids_of(seen)
    await link.aclose()
    assert (link.status, [pid for pid in pids if alive(pid)]) == (-signal.SIGKILL, [])


@pytest.mark.parametrize("loop", LOOPS)
def test_a_cancelled_close_kills_at_once(loop: str) -> None:
    async def main() -> list[int]:
        link, seen = start([*STUBBORN, "child"], Limits(exit_seconds=30))
        pids = await pids_of(seen)
        closing = asyncio.create_task(link.aclose())
        await asyncio.sleep(0.05)
        closing.cancel()
        await asyncio.wait([closing])
        return gone_within(pids, 20)

    assert run_on(loop, main()) == []


@pytest.mark.parametrize("loop", LOOPS)
def test_many_starts_and_stops_leak_no_descriptor_and_no_child(loop: str) -> None:
    async def life() -> None:
        link, seen = start(["cat"], Limits(exit_seconds=5))
        link.send([Outbound(Request(1, "echo"))])
        await seen.messages(1)
        await link.aclose()

    async def main() -> tuple[set[str], set[str]]:
        await life()
        before = descriptors()
        for _ in range(20):
            await life()
        return before, descriptors()

    others = children()
    before, after = run_on(loop, main(), seconds=120)
    assert after == before
    assert children() <= others


def test_a_program_that_ends_without_closing_leaves_nothing() -> None:
    code = """
import asyncio, sys
from trunkline.transports.process import ProcessLink
async def main():
    print(ProcessLink.spawn(sys.argv[1:])._watcher.pid)
asyncio.run(main())
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, "-c", code, "sleep", "30"], capture_output=True, env=env, timeout=20)
    assert gone_within([int(done.stdout)], 25) == []
