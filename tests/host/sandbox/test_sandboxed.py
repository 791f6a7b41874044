"""What a server cannot do in a sandbox, tried by a real process in each kind that this machine can make."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.host.sandbox.stage import SECRET, Stage, each_kind

pytestmark = [each_kind, pytest.mark.skipif(sys.platform != "linux", reason="these sandboxes are of Linux")]


@pytest.fixture
def stage(tmp_path: Path, kind: str) -> Stage:
    return Stage(tmp_path, kind)


@pytest.fixture
def bystander() -> Iterator[int]:
    """A program of the same user's that has nothing to do with the server."""
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        yield process.pid
        process.kill()


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_file_in_a_root_can_be_read_and_written(stage: Stage) -> None:
    note, new = stage.inside / "note", stage.inside / "new"
    read, _ = stage.tries(("read", {"path": str(note)}), ("write", {"path": str(new)}))
    assert (read, new.read_text()) == ("a note", "written")


def test_a_root_that_is_read_only_cannot_be_written(stage: Stage) -> None:
    assert stage.try_one("write", path=str(stage.inside / "new"), sandbox={"readOnly": True}).startswith("refused")
    assert not (stage.inside / "new").exists()


#: Ways to what lies outside of the roots.
WAYS_OUT: dict[str, tuple[str, dict[str, str]]] = {
    "read": ("read", {"path": "{outside}/secret"}),
    "listed": ("list", {"path": "{outside}"}),
    "written": ("write", {"path": "{outside}/secret"}),
    "emptied": ("truncate", {"path": "{outside}/secret"}),
    "removed": ("remove", {"path": "{outside}/secret"}),
    "taken in": ("rename", {"path": "{outside}/secret", "to": "{inside}/mine"}),
    "overwritten": ("rename", {"path": "{inside}/note", "to": "{outside}/secret"}),
    "linked": ("link", {"path": "{outside}/secret", "to": "{inside}/linked"}),
    "linked by name": ("symlink", {"path": "{outside}/secret", "to": "{inside}/symlinked"}),
    "read by a link": ("read", {"path": "{inside}/way-out/secret"}),
    "read in a home": ("read", {"path": "{home}/.ssh/id"}),
    "read by a child": ("shell", {"command": "cat {outside}/secret"}),
    "written by a child": ("shell", {"command": "echo mine > {outside}/secret"}),
    "read in another session": ("shell", {"command": "setsid cat {outside}/secret"}),
    "read by dots": ("read", {"path": "{inside}/../outside/secret"}),
    "read by its own root": ("read", {"path": "/proc/self/root{outside}/secret"}),
    "read by another's root": ("read", {"path": "/proc/{test}/root{outside}/secret"}),
    "another's environment": ("read", {"path": "/proc/{test}/environ"}),
    "given an attribute": ("attribute", {"path": "{outside}/secret"}),
    "given an attribute, no link followed": ("own_attribute", {"path": "{outside}/secret"}),
    "without its attribute": ("remove_attribute", {"path": "{outside}/secret"}),
    "covered by a mount": ("mount", {"path": "{inside}"}),
}


def test_nothing_outside_is_reached_or_changed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    home = stage.folder / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text(SECRET)
    monkeypatch.setenv("HOME", str(home))
    (stage.inside / "way-out").symlink_to(stage.outside)
    os.setxattr(stage.secret, "user.kept", b"")
    places = {"outside": stage.outside, "inside": stage.inside, "home": home, "test": os.getpid()}
    attempts = [
        (tool, {key: value.format(**places) for key, value in arguments.items()})
        for tool, arguments in WAYS_OUT.values()
    ]
    assert reached(WAYS_OUT, stage.tries(*attempts)) == {}
    assert (stage.secret.read_text(), os.listxattr(stage.secret)) == (SECRET, ["user.kept"])


def test_a_copy_with_attributes_goes_on_without_them(stage: Stage) -> None:
    copied = stage.try_one("shell", command=f"cp -a {stage.inside}/note {stage.inside}/copy && cat {stage.inside}/copy")
    assert copied == "a note"


def reached(names: Iterable[str], answers: list[str]) -> dict[str, str]:
    """Return the attempts that were not refused, with what came of them."""
    return {name: answer for name, answer in zip(names, answers, strict=True) if not answer.startswith("refused")}


def test_what_is_listed_can_be_read_but_not_written(stage: Stage) -> None:
    read, written = stage.tries(
        ("read", {"path": str(stage.secret)}), ("write", {"path": str(stage.secret)}), read=[str(stage.outside)]
    )
    assert (read, written.startswith("refused"), stage.secret.read_text()) == (SECRET, True, SECRET)


def test_a_root_that_is_a_link_is_reached_by_its_own_name(stage: Stage) -> None:
    (stage.folder / "by-name").symlink_to(stage.inside)
    more = {"roots": (str(stage.folder / "by-name"),)}
    assert stage.try_one("read", path=str(stage.folder / "by-name" / "note"), more=more) == "a note"


def test_a_private_home_is_kept_between_starts_and_from_other_servers(stage: Stage) -> None:
    home = stage.try_one("variable", name="HOME")
    stage.try_one("write", path=f"{home}/kept")
    assert stage.try_one("read", path=f"{home}/kept") == "written"
    assert stage.try_one("read", path=f"{home}/kept", more={"name": "other"}).startswith("refused")
    assert (stage.state / "sandboxes" / "trying" / "home" / "kept").exists()


def test_it_starts_in_its_folder_if_that_can_be_seen(stage: Stage) -> None:
    assert stage.try_one("cwd", more={"cwd": str(stage.inside)}) == str(stage.inside)


def test_it_starts_in_its_home_if_the_folder_cannot_be_seen(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stage.outside)
    assert stage.try_one("cwd") == str(stage.state / "sandboxes" / "trying" / "home")


def test_no_descriptor_of_the_host_is_left_open_and_temporary_files_have_a_place(stage: Stage) -> None:
    descriptors, temporary = stage.tries(("descriptors", {}), ("temporary", {}))
    # The fourth is the one by which it looks.
    assert descriptors == "0 1 2 3"
    assert not temporary.startswith(("refused", str(stage.outside)))


# --- the network and sockets -----------------------------------------------------------------------------------------


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_the_network_can_be_used_unless_it_is_switched_off(stage: Stage, port: int) -> None:
    assert stage.try_one("tcp", port=port) == "done"


def test_without_a_network_nothing_is_reached_but_a_pair_of_sockets_works(stage: Stage, port: int) -> None:
    attempts: list[tuple[str, dict[str, Any]]] = [("tcp", {"port": port}), ("udp", {"port": port}), ("pair", {})]
    assert reached(["tcp", "udp", "pair"], stage.tries(*attempts, network=False)) == {"pair": "through"}


def test_no_socket_of_another_program_can_be_reached(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, outside, abstract = stage.inside / "bus", stage.outside / "bus", f"\0trunkline-test-{os.getpid()}"
    attempts: dict[str, tuple[str, dict[str, Any]]] = {
        "in a root": ("unix", {"path": str(inside)}),
        "outside": ("unix", {"path": str(outside)}),
        "abstract": ("unix", {"path": abstract}),
        "by a pair of datagrams": ("datagram", {"path": str(stage.inside / "log")}),
        "by a raw pair": ("raw_pair", {"path": str(stage.inside / "log")}),
        "by a ring": ("ring", {}),
    }
    with contextlib.ExitStack() as stack:
        for folder, name in ((stage.inside, "bus"), (stage.outside, "bus"), (stage.inside, abstract)):
            # A socket's name may not be long, so it is made by a short one.
            monkeypatch.chdir(folder)
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(name)
            server.listen()
        monkeypatch.chdir(stage.inside)
        stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)).bind("log")
        assert reached(attempts, stage.tries(*attempts.values())) == {}


def test_a_socket_in_a_root_can_be_reached_if_sockets_are_allowed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stage.inside)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("bus")
        server.listen()
        assert stage.try_one("unix", path=str(stage.inside / "bus"), sandbox={"sockets": True}) == "done"


# --- other processes -------------------------------------------------------------------------------------------------


def test_another_program_cannot_be_touched(stage: Stage, bystander: int) -> None:
    names = ["trace", "peek", "steal"]
    # An older kernel lets signals through, and says so.
    names += [] if stage.launch({}).notes else ["kill"]
    assert reached(names, stage.tries(*((name, {"pid": bystander}) for name in names))) == {}
    os.kill(bystander, 0)


def test_other_programs_are_neither_limited_nor_slowed_down(stage: Stage, bystander: int) -> None:
    limit, nice = resource.prlimit(bystander, resource.RLIMIT_CORE), os.getpriority(os.PRIO_PROCESS, bystander)
    names = ["limit", "priority", "affinity", "scheduler", "schedule_parameter", "schedule_attributes", "disk_priority"]
    attempts: list[tuple[str, dict[str, Any]]] = [(name, {"pid": bystander}) for name in names]
    # The user's programs all at once.
    for name, which in (("priority", os.PRIO_USER), ("disk_priority", 3)):
        attempts += [(name, {"pid": pid, "which": which}) for pid in (0, os.getuid())]
    assert reached(map(str, attempts), stage.tries(*attempts)) == {}
    assert resource.prlimit(bystander, resource.RLIMIT_CORE) == limit
    assert os.getpriority(os.PRIO_PROCESS, bystander) == nice
    assert os.sched_getscheduler(bystander) == os.SCHED_OTHER


def test_a_server_sets_its_own_limits_priority_and_processors(stage: Stage) -> None:
    asked: list[tuple[str, dict[str, int]]] = [
        ("own_limit", {}),
        ("nice", {}),
        ("priority", {"pid": 0}),
        ("priority", {"pid": 0, "which": os.PRIO_PGRP}),
        ("affinity", {"pid": 0}),
        ("scheduler", {"pid": 0}),
        ("schedule_attributes", {"pid": 0}),
        ("disk_priority", {"pid": 0}),
        ("threads", {}),
    ]
    expected = ["(0, 0)", str(os.nice(0) + 1), "done", "done", "done", "done", "done", "0", "done"]
    assert stage.tries(*asked) == expected


# --- what processes share ---------------------------------------------------------------------------------------------


@pytest.fixture
def segment() -> Iterator[int]:
    """The key of a segment of shared memory that another program of the same user made."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    key = 0x7A110000 | os.getpid() & 0xFFFF
    number = libc.shmget(key, 4096, 0o1600)
    assert number >= 0, os.strerror(ctypes.get_errno())
    try:
        ctypes.memmove(libc.shmat(number, None, 0), SECRET.encode() + b"\0", len(SECRET) + 1)
        yield key
    finally:
        libc.shmctl(number, 0, None)


def test_what_processes_share_cannot_be_had(stage: Stage, segment: int) -> None:
    attempts: dict[str, tuple[str, dict[str, Any]]] = {
        "shared memory": ("shared_memory", {"key": segment}),
        "a queue": ("message_queue", {}),
        "semaphores": ("semaphores", {}),
        "a named queue": ("posix_queue", {"name": f"/trunkline-test-{os.getpid()}"}),
        "all files watched": ("watch_all", {}),
    }
    assert reached(attempts, stage.tries(*attempts.values())) == {}


def test_files_can_be_watched_unless_that_is_switched_off(stage: Stage) -> None:
    inside = str(stage.inside)
    assert stage.try_one("watch", path=inside) == "done"
    assert stage.try_one("watch", path=inside, sandbox={"watch": False}).startswith("refused")


# --- the environment -------------------------------------------------------------------------------------------------


def test_only_variables_that_are_harmless_listed_or_its_own_are_passed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "LISTED", "MANY_1", "SSH_AUTH_SOCK", "LC_ALL"):
        monkeypatch.setenv(name, "C.UTF-8")
    more = {"env": {"OWN": "mine"}}
    found = stage.try_one("env", sandbox={"env": ["LISTED", "MANY_*"]}, more=more).split()
    assert {"OWN", "LISTED", "MANY_1", "LC_ALL", "PATH", "HOME", "TMPDIR"} <= set(found)
    assert not {"AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "USER", "TRUNKLINE_SANDBOX_0"} & set(found)


def test_a_long_value_is_passed_whole(stage: Stage) -> None:
    # Longer than one part of the record, with signs that have to survive.
    value = "ü\n'\"\\" * 20_000
    assert stage.try_one("variable", name="LONG", more={"env": {"LONG": value}}) == value


# --- limits ----------------------------------------------------------------------------------------------------------


def test_memory_is_limited(stage: Stage) -> None:
    small, large = stage.tries(
        ("allocate", {"size": 1 << 20}), ("allocate", {"size": 512 << 20}), limits={"memory": "256 MB"}
    )
    assert (small, "MemoryError" in large) == (str(1 << 20), True)


def test_open_files_are_limited(stage: Stage) -> None:
    few, many = stage.tries(("open", {"count": 10}), ("open", {"count": 100}), limits={"files": 64})
    assert (few, "Too many open files" in many) == ("done", True)


def test_computing_is_limited(stage: Stage) -> None:
    # SIGXCPU, or SIGKILL where both limits are reached at once.
    assert stage.try_one("compute", sandbox={"limits": {"cpuSeconds": 1}}) in ("-24", "-9")
