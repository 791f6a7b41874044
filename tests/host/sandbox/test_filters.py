"""The filter of system calls, run by hand: one row a call, on each architecture that has one."""

from __future__ import annotations

import errno
import socket
import struct

import pytest

from trunkline.host.sandbox.filters import ARCHITECTURES, socket_filter

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
    architecture, (number, *_) = ARCHITECTURES[machine]
    program = socket_filter(machine, network=network, sockets=sockets)
    assert verdict(program, call(number, family, architecture=architecture)) == said


@each_machine
@pytest.mark.parametrize(
    ("kind", "sockets", "said"),
    [
        (socket.SOCK_STREAM, False, "allowed"),
        (socket.SOCK_SEQPACKET, False, "allowed"),
        (socket.SOCK_DGRAM, False, "EACCES"),
        (socket.SOCK_DGRAM | 0o2000000 | 0o4000, False, "EACCES"),
        (socket.SOCK_DGRAM, True, "allowed"),
    ],
)
def test_pairs_are_had_unless_they_could_send_anywhere(machine: str, kind: int, sockets: bool, said: str) -> None:
    architecture, (_, number, *_) = ARCHITECTURES[machine]
    program = socket_filter(machine, network=False, sockets=sockets)
    assert verdict(program, call(number, socket.AF_UNIX, kind, architecture=architecture)) == said


@each_machine
@pytest.mark.parametrize("at", [2, 3, 4])
def test_the_kernel_s_keys_are_not_had(machine: str, at: int) -> None:
    architecture, numbers = ARCHITECTURES[machine]
    program = socket_filter(machine, network=True, sockets=True)
    assert verdict(program, call(numbers[at], architecture=architecture)) == "EACCES"


@each_machine
@pytest.mark.parametrize("number", [0, 1, 63, 200, 435])
def test_other_calls_pass(machine: str, number: int) -> None:
    architecture, _ = ARCHITECTURES[machine]
    program = socket_filter(machine, network=False, sockets=False)
    assert verdict(program, call(number, architecture=architecture)) == "allowed"


@each_machine
@pytest.mark.parametrize("network", [True, False])
def test_calls_that_would_go_around_are_unknown(machine: str, network: bool) -> None:
    architecture, (number, *_) = ARCHITECTURES[machine]
    program = socket_filter(machine, network=network, sockets=False)
    # Rings, the second set of numbers, and the calls of a 32-bit program.
    assert verdict(program, call(425, architecture=architecture)) == "ENOSYS"
    assert verdict(program, call(0x40000000 | number, socket.AF_UNIX, architecture=architecture)) == "ENOSYS"
    assert verdict(program, call(102, architecture=0x40000003)) == "ENOSYS"
