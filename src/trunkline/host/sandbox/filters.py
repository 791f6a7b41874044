"""The filter of system calls that goes with a sandbox, as the kernel's small programs; pure.

Landlock and a view of the file system do not cover two ways out. A *named Unix socket* is reached by whoever knows its
name: the session bus and the sockets of container engines run programs for whoever asks. And *no network* means no
datagrams, too. So ``socket`` is refused by the kind of address. What would go around that is refused as well: rings
that make sockets without a call, datagram pairs that can be sent anywhere, and the calls of other architectures. The
keys that the kernel keeps for a user are nothing for a server either.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["ARCHITECTURES", "socket_filter"]

#: By machine: the architecture's number, and its numbers of socket, socketpair, add_key, request_key, keyctl. The
#: filter reads the low half of an argument where little-endian machines have it.
ARCHITECTURES: Mapping[str, tuple[int, tuple[int, int, int, int, int]]] = MappingProxyType(
    {
        "x86_64": (0xC000003E, (41, 53, 248, 249, 250)),
        "aarch64": (0xC00000B7, (198, 199, 217, 218, 219)),
        "riscv64": (0xC00000F3, (198, 199, 217, 218, 219)),
    }
)

_IO_URING_SETUP = 425
# x86 has a second set of numbers, which mean the same calls.
_X32 = 0x40000000
_AF_UNIX = 1
_SOCK_DGRAM = 2
_SOCK_TYPE = 0xF

_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000 | errno.EACCES
_UNKNOWN = 0x00050000 | errno.ENOSYS


def _step(code: int, value: int, then: int = 0, *, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, value)


def _return_if(test: int, value: int, verdict: int) -> bytes:
    return _step(test, value, 0, otherwise=1) + _step(_RETURN, verdict)


def _if_call(number: int, body: bytes) -> bytes:
    """Run a body, which has to end by a verdict, for one call."""
    return _step(_EQUAL, number, 0, otherwise=len(body) // 8) + body


def socket_filter(machine: str, *, network: bool, sockets: bool) -> bytes:
    """Make the filter for a machine: whether addresses of a network, and of Unix sockets, can be had."""
    architecture, (socket, socketpair, *keys) = ARCHITECTURES[machine]
    allow, refuse = _step(_RETURN, _ALLOW), _step(_RETURN, _REFUSE)
    unix = _return_if(_EQUAL, _AF_UNIX, _ALLOW if sockets else _REFUSE)
    pair = b"" if sockets else _step(_AND, _SOCK_TYPE) + _return_if(_EQUAL, _SOCK_DGRAM, _REFUSE)
    return b"".join(
        [
            _step(_LOAD, _ARCHITECTURE),
            _step(_EQUAL, architecture, 1, otherwise=0),
            _step(_RETURN, _UNKNOWN),
            _step(_LOAD, _NUMBER),
            _return_if(_AT_LEAST, _X32, _UNKNOWN),
            _return_if(_EQUAL, _IO_URING_SETUP, _UNKNOWN),
            *(_return_if(_EQUAL, key, _REFUSE) for key in keys),
            _if_call(socket, _step(_LOAD, _FIRST_ARGUMENT) + unix + (allow if network else refuse)),
            _if_call(socketpair, _step(_LOAD, _SECOND_ARGUMENT) + pair + allow),
            allow,
        ]
    )
