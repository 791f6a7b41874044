"""The filter of system calls, run by hand: one row a call, on each architecture that has one."""

from __future__ import annotations

import errno
import socket
import struct

import pytest

from trunkline.host.sandbox.seccomp import ARCHITECTURES, seccomp_filter

_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_ALLOW = 0x7FFF0000


def verdict(program: bytes, call: bytes) -> str:
    """Run a filter as the kernel does; give its verdict in a word."""
    steps = list(struct.iter_unpack("=HBBI", program))
    at, value = 0, 0
    while True:
        code, then, otherwise, operand = steps[at]
        at += 1
        if code == _LOAD:
            (value,) = struct.unpack_from("=I", call, operand)
        elif code == _AND:
            value &= operand
        elif code == _RETURN:
            return "allowed" if operand == _ALLOW else errno.errorcode[operand & 0xFFFF]
        else:
            holds = {_EQUAL: value == operand, _AT_LEAST: value >= operand}[code]
            at += then if holds else otherwise


def call(number: int, *arguments: int, architecture: int) -> bytes:
    return struct.pack("=IIQ6Q", number, architecture, 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])


each_machine = pytest.mark.parametrize("machine", list(ARCHITECTURES))


@each_machine
@pytest.mark.parametrize(
    ("family", "network", "sockets", "said"),
    [
        (socket.AF_INET, True, False, "allowed"),
        (socket.AF_INET, False, False, "EACCES"),
        (socket.AF_INET, False, True, "EACCES"),
        (socket.AF_INET6, False, False, "EACCES"),
        (socket.AF_INET6, True, True, "allowed"),
        (socket.AF_UNIX, True, False, "EACCES"),
        (socket.AF_UNIX, False, False, "EACCES"),
        (socket.AF_UNIX, False, True, "allowed"),
        (16, False, True, "EACCES"),
    ],
)
def test_sockets_are_had_by_the_kind_of_address(
    machine: str, family: int, network: bool, sockets: bool, said: str
) -> None:
    architecture, numbers = ARCHITECTURES[machine]
    program = seccomp_filter(machine, network=network, sockets=sockets, watch=True)
    assert verdict(program, call(numbers["socket"], family, architecture=architecture)) == said


@each_machine
@pytest.mark.parametrize(
    ("kind", "sockets", "said"),
    [
        (socket.SOCK_STREAM, False, "allowed"),
        (socket.SOCK_SEQPACKET, False, "allowed"),
        (socket.SOCK_DGRAM, False, "EACCES"),
        (socket.SOCK_DGRAM | 0o2000000 | 0o4000, False, "EACCES"),
        (socket.SOCK_RAW, False, "EACCES"),
        (socket.SOCK_RAW | 0o2000000, False, "EACCES"),
        (socket.SOCK_RDM, False, "EACCES"),
        (socket.SOCK_DGRAM, True, "allowed"),
        (socket.SOCK_RAW, True, "allowed"),
    ],
)
def test_pairs_are_had_unless_they_could_send_anywhere(machine: str, kind: int, sockets: bool, said: str) -> None:
    architecture, numbers = ARCHITECTURES[machine]
    program = seccomp_filter(machine, network=False, sockets=sockets, watch=True)
    assert verdict(program, call(numbers["socketpair"], socket.AF_UNIX, kind, architecture=architecture)) == said


@each_machine
def test_pairs_are_of_unix_sockets_only(machine: str) -> None:
    architecture, numbers = ARCHITECTURES[machine]
    program = seccomp_filter(machine, network=False, sockets=True, watch=True)
    # The other family of which the kernel makes pairs reaches a network.
    assert verdict(program, call(numbers["socketpair"], 30, 1, architecture=architecture)) == "EACCES"


@each_machine
@pytest.mark.parametrize(
    "name",
    [
        *("add_key", "request_key", "keyctl", "fanotify_init", "mq_open", "mq_unlink"),
        *("shmget", "shmat", "shmctl", "semget", "semop", "semctl", "semtimedop"),
        *("msgget", "msgsnd", "msgrcv", "msgctl"),
    ],
)
def test_what_belongs_to_the_user_or_the_system_is_not_had(machine: str, name: str) -> None:
    architecture, numbers = ARCHITECTURES[machine]
    program = seccomp_filter(machine, network=True, sockets=True, watch=True)
    assert verdict(program, call(numbers[name], architecture=architecture)) == "EACCES"


@each_machine
@pytest.mark.parametrize("name", ["setxattr", "lsetxattr", "fsetxattr", "removexattr", "setxattrat", "removexattrat"])
def test_attributes_of_files_are_not_changed_as_if_there_were_none(machine: str, name: str) -> None:
    architecture, numbers = ARCHITECTURES[machine]
    program = seccomp_filter(machine, network=True, sockets=True, watch=True)
    assert verdict(program, call(numbers[name], architecture=architecture)) == errno.errorcode[errno.EOPNOTSUPP]


@each_machine
@pytest.mark.parametrize(
    "name", ["prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr"]
)
def test_limits_and_scheduling_are_set_for_the_caller_only(machine: str, name: str) -> None:
    architecture, numbers = ARCHITECTURES[machine]
    program = seccomp_filter(machine, network=True, sockets=True, watch=True)
    assert verdict(program, call(numbers[name], 0, 7, architecture=architecture)) == "allowed"
    assert verdict(program, call(numbers[name], 1, 0, architecture=architecture)) == "EPERM"
    # The kernel reads a process id of 32 bits, whatever stands above it.
    assert verdict(program, call(numbers[name], 1 << 32 | 4711, 0, architecture=architecture)) == "EPERM"


@each_machine
@pytest.mark.parametrize(("name", "process"), [("setpriority", 0), ("ioprio_set", 1)])
def test_priorities_are_set_for_the_caller_and_its_group_only(machine: str, name: str, process: int) -> None:
    architecture, numbers = ARCHITECTURES[machine]
    program = seccomp_filter(machine, network=True, sockets=True, watch=True)
    group, user = process + 1, process + 2
    said = {
        (kind, who): verdict(program, call(numbers[name], kind, who, architecture=architecture))
        for kind in (process, group, user)
        for who in (0, 4711)
    }
    assert {asked for asked, each in said.items() if each == "allowed"} == {(process, 0), (group, 0)}
    assert set(said.values()) == {"allowed", "EPERM"}


@each_machine
def test_files_are_watched_unless_that_is_switched_off(machine: str) -> None:
    architecture, numbers = ARCHITECTURES[machine]
    names = [name for name in numbers if name.startswith("inotify")]
    assert {"inotify_init1", "inotify_add_watch"} <= set(names)
    for watch, said in ((True, "allowed"), (False, "EACCES")):
        program = seccomp_filter(machine, network=True, sockets=True, watch=watch)
        assert {verdict(program, call(numbers[name], architecture=architecture)) for name in names} == {said}


@each_machine
@pytest.mark.parametrize("number", [0, 1, 63, 200, 435])
def test_other_calls_pass(machine: str, number: int) -> None:
    architecture, _ = ARCHITECTURES[machine]
    program = seccomp_filter(machine, network=False, sockets=False, watch=True)
    assert verdict(program, call(number, architecture=architecture)) == "allowed"


@each_machine
@pytest.mark.parametrize("network", [True, False])
def test_calls_that_would_go_around_are_unknown(machine: str, network: bool) -> None:
    architecture, numbers = ARCHITECTURES[machine]
    program = seccomp_filter(machine, network=network, sockets=False, watch=True)
    # Rings, the second set of numbers, and the calls of a 32-bit program.
    assert verdict(program, call(425, architecture=architecture)) == "ENOSYS"
    assert verdict(program, call(0x40000000 | numbers["socket"], socket.AF_UNIX, architecture=architecture)) == "ENOSYS"
    assert verdict(program, call(102, architecture=0x40000003)) == "ENOSYS"
