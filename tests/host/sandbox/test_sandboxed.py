"""What a server cannot do in a sandbox, tried by a real process in each kind that this machine can make."""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
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


def test_a_file_in_a_root_can_be_read(stage: Stage) -> None:
    assert stage.try_one("read", path=str(stage.inside / "note")) == "a note"


def test_a_file_outside_cannot_be_read(stage: Stage) -> None:
    assert stage.try_one("read", path=str(stage.secret)).startswith("refused")


def test_a_folder_outside_cannot_be_listed(stage: Stage) -> None:
    assert stage.try_one("list", path=str(stage.outside)).startswith("refused")


def test_a_home_cannot_be_read(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    key = stage.folder / "home" / ".ssh" / "id"
    key.parent.mkdir(parents=True)
    key.write_text(SECRET)
    monkeypatch.setenv("HOME", str(stage.folder / "home"))
    assert stage.try_one("read", path=str(key)).startswith("refused")


def test_a_file_in_a_root_can_be_written(stage: Stage) -> None:
    stage.try_one("write", path=str(stage.inside / "new"))
    assert (stage.inside / "new").read_text() == "written"


def test_a_root_that_is_read_only_cannot_be_written(stage: Stage) -> None:
    assert stage.try_one("write", path=str(stage.inside / "new"), sandbox={"readOnly": True}).startswith("refused")
    assert not (stage.inside / "new").exists()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        pytest.param("write", {"path": "{outside}/secret"}, id="written"),
        pytest.param("truncate", {"path": "{outside}/secret"}, id="emptied"),
        pytest.param("remove", {"path": "{outside}/secret"}, id="removed"),
        pytest.param("rename", {"path": "{outside}/secret", "to": "{inside}/mine"}, id="taken-in"),
        pytest.param("rename", {"path": "{inside}/note", "to": "{outside}/secret"}, id="overwritten"),
        pytest.param("link", {"path": "{outside}/secret", "to": "{inside}/mine"}, id="linked"),
        pytest.param("symlink", {"path": "{outside}/secret", "to": "{inside}/mine"}, id="linked-by-name"),
        pytest.param("shell", {"command": "cat {outside}/secret"}, id="read-by-a-child"),
        pytest.param("shell", {"command": "echo mine > {outside}/secret"}, id="written-by-a-child"),
        pytest.param("shell", {"command": "setsid cat {outside}/secret"}, id="read-in-another-session"),
        pytest.param("read", {"path": "{inside}/../outside/secret"}, id="read-by-dots"),
        pytest.param("read", {"path": "/proc/self/root{outside}/secret"}, id="read-by-its-own-root"),
        pytest.param("read", {"path": "/proc/{test}/root{outside}/secret"}, id="read-by-another's-root"),
        pytest.param("read", {"path": "/proc/{test}/environ"}, id="another's-environment"),
        pytest.param("mount", {"path": "{inside}"}, id="covered-by-a-mount"),
    ],
)
def test_nothing_outside_is_reached_or_changed(stage: Stage, name: str, arguments: dict[str, str]) -> None:
    locations = {"outside": str(stage.outside), "inside": str(stage.inside), "test": str(os.getpid())}
    given = {key: value.format(**locations) for key, value in arguments.items()}
    assert stage.tries((name, given))[0].startswith("refused")
    assert stage.secret.read_text() == SECRET


def test_a_link_in_a_root_that_leads_outside_is_not_followed(stage: Stage) -> None:
    (stage.inside / "way-out").symlink_to(stage.outside)
    assert stage.try_one("read", path=str(stage.inside / "way-out" / "secret")).startswith("refused")


def test_what_is_listed_can_be_read_but_not_written(stage: Stage) -> None:
    read, written = stage.tries(
        ("read", {"path": str(stage.secret)}), ("write", {"path": str(stage.secret)}), read=[str(stage.outside)]
    )
    assert (read, written.startswith("refused"), stage.secret.read_text()) == (SECRET, True, SECRET)


def test_what_is_listed_to_be_written_can_be(stage: Stage) -> None:
    stage.try_one("write", path=str(stage.secret), sandbox={"write": [str(stage.outside)]})
    assert stage.secret.read_text() == "written"


def test_a_root_that_is_a_link_is_reached_by_its_own_name(stage: Stage) -> None:
    (stage.folder / "by-name").symlink_to(stage.inside)
    more = {"roots": (str(stage.folder / "by-name"),)}
    assert stage.try_one("read", path=str(stage.folder / "by-name" / "note"), more=more) == "a note"


def test_a_root_can_be_given_as_a_uri(stage: Stage) -> None:
    folder = stage.folder / "a b"
    folder.mkdir()
    (folder / "note").write_text("spaced")
    assert stage.try_one("read", path=str(folder / "note"), more={"roots": (folder.as_uri(),)}) == "spaced"


def test_temporary_files_have_a_place_of_their_own(stage: Stage) -> None:
    name = stage.try_one("temporary")
    assert not name.startswith("refused")
    assert not name.startswith(str(stage.outside))


def test_a_private_home_is_kept_between_starts(stage: Stage) -> None:
    home = stage.try_one("variable", name="HOME")
    stage.try_one("write", path=f"{home}/kept")
    assert stage.try_one("read", path=f"{home}/kept") == "written"
    assert (stage.state / "sandboxes" / "trying" / "home" / "kept").exists()


def test_the_home_of_another_server_cannot_be_read(stage: Stage) -> None:
    home = stage.try_one("variable", name="HOME", more={"name": "other"})
    stage.try_one("write", path=f"{home}/kept", more={"name": "other"})
    assert stage.try_one("read", path=f"{home}/kept").startswith("refused")


def test_it_starts_in_its_folder_if_that_can_be_seen(stage: Stage) -> None:
    assert stage.try_one("cwd", more={"cwd": str(stage.inside)}) == str(stage.inside)


def test_it_starts_in_its_home_if_the_folder_cannot_be_seen(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stage.outside)
    assert stage.try_one("cwd") == str(stage.state / "sandboxes" / "trying" / "home")


def test_no_descriptor_of_the_host_is_left_open(stage: Stage) -> None:
    # The fourth is the one by which it looks.
    assert stage.try_one("descriptors") == "0 1 2 3"


# --- the network and sockets -----------------------------------------------------------------------------------------


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_the_network_can_be_used_unless_it_is_switched_off(stage: Stage, port: int) -> None:
    assert stage.try_one("tcp", port=port) == "connected"


@pytest.mark.parametrize("name", ["tcp", "udp"])
def test_without_a_network_nothing_is_reached(stage: Stage, name: str, port: int) -> None:
    assert stage.try_one(name, port=port, sandbox={"network": False}).startswith("refused")


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_a_named_socket_cannot_be_reached(stage: Stage, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A socket's name may not be long, so it is made by a short one.
    monkeypatch.chdir(stage.folder / where)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("bus")
        server.listen()
        assert stage.try_one("unix", path=str(stage.folder / where / "bus")).startswith("refused")


def test_an_abstract_socket_cannot_be_reached(stage: Stage) -> None:
    name = f"\0trunkline-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        assert stage.try_one("unix", path=name).startswith("refused")


@pytest.mark.parametrize("name", ["datagram", "raw_pair"])
def test_no_datagram_is_sent_to_a_name_by_a_pair(stage: Stage, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stage.inside)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind("log")
        assert stage.try_one(name, path=str(stage.inside / "log")).startswith("refused")


def test_a_socket_in_a_root_can_be_reached_if_sockets_are_allowed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stage.inside)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("bus")
        server.listen()
        assert stage.try_one("unix", path=str(stage.inside / "bus"), sandbox={"sockets": True}) == "connected"


def test_a_pair_of_sockets_works_without_any_network(stage: Stage) -> None:
    assert stage.try_one("pair", sandbox={"network": False}) == "through"


def test_no_ring_makes_sockets_around_the_filter(stage: Stage) -> None:
    assert stage.try_one("ring").startswith("refused")


# --- other processes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kill", "trace", "peek", "steal"])
def test_another_program_cannot_be_touched(stage: Stage, name: str, bystander: int) -> None:
    if name == "kill" and stage.launch({}).notes:
        pytest.skip(stage.launch({}).notes[0])
    assert stage.try_one(name, pid=bystander).startswith("refused")
    os.kill(bystander, 0)


@pytest.mark.parametrize(
    "name",
    [
        "limit",
        "priority",
        "affinity",
        "scheduler",
        "schedule_parameter",
        "schedule_attributes",
        "disk_priority",
    ],
)
def test_another_program_is_neither_limited_nor_slowed_down(stage: Stage, name: str, bystander: int) -> None:
    limit, nice = resource.prlimit(bystander, resource.RLIMIT_CORE), os.getpriority(os.PRIO_PROCESS, bystander)
    assert stage.try_one(name, pid=bystander).startswith("refused")
    assert resource.prlimit(bystander, resource.RLIMIT_CORE) == limit
    assert os.getpriority(os.PRIO_PROCESS, bystander) == nice
    assert os.sched_getscheduler(bystander) == os.SCHED_OTHER


@pytest.mark.parametrize(("name", "which"), [("priority", os.PRIO_USER), ("disk_priority", 3)])
def test_the_user_s_programs_are_not_slowed_down_all_at_once(
    stage: Stage, name: str, which: int, bystander: int
) -> None:
    assert stage.try_one(name, pid=0, which=which).startswith("refused")
    assert stage.try_one(name, pid=os.getuid(), which=which).startswith("refused")
    assert os.getpriority(os.PRIO_PROCESS, bystander) == os.getpriority(os.PRIO_PROCESS, 0)


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
    expected = ["(0, 0)", "1", "lowered", "lowered", "moved", "scheduled", "scheduled", "lowered", "ran"]
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


def test_shared_memory_of_another_program_cannot_be_read(stage: Stage, segment: int) -> None:
    assert stage.try_one("shared_memory", key=segment).startswith("refused")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("message_queue", {}), ("semaphores", {}), ("posix_queue", {"name": f"/trunkline-test-{os.getpid()}"})],
)
def test_queues_and_semaphores_of_the_system_cannot_be_had(stage: Stage, name: str, arguments: dict[str, Any]) -> None:
    assert stage.try_one(name, **arguments).startswith("refused")


def test_files_can_be_watched_unless_that_is_switched_off(stage: Stage) -> None:
    inside = str(stage.inside)
    assert stage.try_one("watch", path=inside) == "watched"
    assert stage.try_one("watch", path=inside, sandbox={"watch": False}).startswith("refused")
    assert stage.try_one("watch", path=str(stage.outside), sandbox={"watch": False}).startswith("refused")


def test_a_whole_file_system_cannot_be_watched(stage: Stage) -> None:
    assert stage.try_one("watch_all").startswith("refused")


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
    assert (few, "Too many open files" in many) == ("opened", True)


def test_computing_is_limited(stage: Stage) -> None:
    # SIGXCPU, or SIGKILL where both limits are reached at once.
    assert stage.try_one("compute", sandbox={"limits": {"cpuSeconds": 1}}) in ("-24", "-9")
