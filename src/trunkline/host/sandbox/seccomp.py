"""The seccomp filter of a sandbox, as a BPF program; pure.

Landlock and a separate view of the file system do not cover these ways out:

- *Named Unix sockets* can be reached by every program that knows the name: the session bus and the sockets of container
  engines run programs for their callers. And *no network* must include datagrams. So ``socket`` is denied by address
  family, and so is what would bypass that: io_uring, which creates sockets without a call, socket pairs that can send
  to any address, and the system calls of other architectures.
- *Limits, priorities and CPU affinity of other processes of the same user*: a limit of no open files ends a program as
  surely as a signal. Such a call is allowed for process 0 only, the caller itself. The filter cannot know the caller's
  own id, so a program that names itself by id is denied as well.
- *System V IPC and POSIX message queues* have keys instead of paths, and the kernel's *keyrings* belong to the user.
- *Extended attributes*: Landlock does not cover setting and removing them, so a server could mark any file of the user.
  The error is that of a file system without them, which programs that copy files ignore.
- *Watches*: ``inotify`` takes a path, which a filter cannot read, so either all of it is denied or none. A watch on a
  whole file system (``fanotify``) is always denied.

Calls that need permission to trace (``ptrace``, ``process_vm_readv``, ``pidfd_getfd``, ``kcmp``) are denied by Landlock
and by the process namespace for everything outside, and work among the server's own processes.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["ARCHITECTURES", "seccomp_filter"]

# The system call table that newer architectures share.
_GENERIC: Mapping[str, int] = MappingProxyType(
    {
        "socket": 198,
        "socketpair": 199,
        "add_key": 217,
        "request_key": 218,
        "keyctl": 219,
        "prlimit64": 261,
        "sched_setparam": 118,
        "sched_setscheduler": 119,
        "sched_setaffinity": 122,
        "sched_setattr": 274,
        "setpriority": 140,
        "ioprio_set": 30,
        "shmget": 194,
        "shmctl": 195,
        "shmat": 196,
        "semget": 190,
        "semctl": 191,
        "semtimedop": 192,
        "semop": 193,
        "msgget": 186,
        "msgctl": 187,
        "msgrcv": 188,
        "msgsnd": 189,
        "mq_open": 180,
        "mq_unlink": 181,
        "fanotify_init": 262,
        "inotify_init1": 26,
        "inotify_add_watch": 27,
        "io_uring_setup": 425,
        "setxattr": 5,
        "lsetxattr": 6,
        "fsetxattr": 7,
        "removexattr": 14,
        "lremovexattr": 15,
        "fremovexattr": 16,
        "setxattrat": 463,
        "removexattrat": 466,
    }
)
_X86_64: Mapping[str, int] = MappingProxyType(
    {
        "socket": 41,
        "socketpair": 53,
        "add_key": 248,
        "request_key": 249,
        "keyctl": 250,
        "prlimit64": 302,
        "sched_setparam": 142,
        "sched_setscheduler": 144,
        "sched_setaffinity": 203,
        "sched_setattr": 314,
        "setpriority": 141,
        "ioprio_set": 251,
        "shmget": 29,
        "shmat": 30,
        "shmctl": 31,
        "semget": 64,
        "semop": 65,
        "semctl": 66,
        "semtimedop": 220,
        "msgget": 68,
        "msgsnd": 69,
        "msgrcv": 70,
        "msgctl": 71,
        "mq_open": 240,
        "mq_unlink": 241,
        "fanotify_init": 300,
        "inotify_init": 253,
        "inotify_init1": 294,
        "inotify_add_watch": 254,
        "io_uring_setup": 425,
        "setxattr": 188,
        "lsetxattr": 189,
        "fsetxattr": 190,
        "removexattr": 197,
        "lremovexattr": 198,
        "fremovexattr": 199,
        "setxattrat": 463,
        "removexattrat": 466,
    }
)

#: By machine: the audit architecture, and the numbers of the filtered calls. The filter reads the low half of an
#: argument at its little-endian offset; the kernel uses no more of a process id, a family or a type.
ARCHITECTURES: Mapping[str, tuple[int, Mapping[str, int]]] = MappingProxyType(
    {"x86_64": (0xC000003E, _X86_64), "aarch64": (0xC00000B7, _GENERIC), "riscv64": (0xC00000F3, _GENERIC)}
)

_ALWAYS_REFUSED = (
    *("add_key", "request_key", "keyctl", "fanotify_init", "mq_open", "mq_unlink"),
    *("shmget", "shmat", "shmctl", "semget", "semop", "semctl", "semtimedop", "msgget", "msgsnd", "msgrcv", "msgctl"),
)
_ATTRIBUTES = (
    *("setxattr", "lsetxattr", "fsetxattr", "setxattrat"),
    *("removexattr", "lremovexattr", "fremovexattr", "removexattrat"),
)
_WATCHES = ("inotify_init", "inotify_init1", "inotify_add_watch")
# The first argument is the process.
_OF_A_PROCESS = ("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr")
# The first argument says what the second is: the values for a process and a process group; others mean a user.
_OF_A_KIND: Mapping[str, tuple[int, int]] = MappingProxyType({"setpriority": (0, 1), "ioprio_set": (1, 2)})

# x86 has a second set of numbers (x32) for the same calls.
_X32 = 0x40000000
_AF_UNIX = 1  # linux/socket.h.
_SOCK_STREAM, _SOCK_SEQPACKET = 1, 5  # linux/net.h.
_SOCK_TYPE = 0xF  # SOCK_TYPE_MASK: the rest are flags.

_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24  # Offsets in struct seccomp_data.
_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06  # Instructions of linux/bpf_common.h.
_ALLOW = 0x7FFF0000  # SECCOMP_RET_ALLOW.
_REFUSE = 0x00050000 | errno.EACCES
_NOT_YOURS = 0x00050000 | errno.EPERM
_UNKNOWN = 0x00050000 | errno.ENOSYS
_UNSUPPORTED = 0x00050000 | errno.EOPNOTSUPP


def _step(code: int, value: int, then: int = 0, *, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, value)


def _return_if(test: int, value: int, verdict: int) -> bytes:
    return _step(test, value, 0, otherwise=1) + _step(_RETURN, verdict)


def _if_call(number: int, body: bytes) -> bytes:
    """Run a body, which must end with a verdict, for one system call."""
    return _step(_EQUAL, number, 0, otherwise=len(body) // 8) + body


def seccomp_filter(machine: str, *, network: bool, sockets: bool, watch: bool) -> bytes:
    """Return the filter for a machine, with network, Unix sockets and file watches allowed or denied."""
    architecture, numbers = ARCHITECTURES[machine]
    refused = (*_ALWAYS_REFUSED, *(() if watch else _WATCHES))
    return b"".join(
        [
            _step(_LOAD, _ARCHITECTURE),
            _step(_EQUAL, architecture, 1, otherwise=0),
            _step(_RETURN, _UNKNOWN),
            _step(_LOAD, _NUMBER),
            _return_if(_AT_LEAST, _X32, _UNKNOWN),
            _return_if(_EQUAL, numbers["io_uring_setup"], _UNKNOWN),
            *(_return_if(_EQUAL, numbers[name], _REFUSE) for name in refused if name in numbers),
            *(_return_if(_EQUAL, numbers[name], _UNSUPPORTED) for name in _ATTRIBUTES),
            *(_if_call(numbers[name], _own_process()) for name in _OF_A_PROCESS),
            *(_if_call(numbers[name], _own_processes(*kinds)) for name, kinds in _OF_A_KIND.items()),
            _if_call(numbers["socket"], _socket(network=network, sockets=sockets)),
            _if_call(numbers["socketpair"], _socketpair(sockets=sockets)),
            _step(_RETURN, _ALLOW),
        ]
    )


def _own_process() -> bytes:
    """Allow a call whose first argument is process 0, the caller."""
    return _step(_LOAD, _FIRST_ARGUMENT) + _return_if(_EQUAL, 0, _ALLOW) + _step(_RETURN, _NOT_YOURS)


def _own_processes(process: int, group: int) -> bytes:
    """Allow a call for the caller or its process group; the server has its own session, and so its own groups."""
    return b"".join(
        [
            _step(_LOAD, _SECOND_ARGUMENT),
            _step(_EQUAL, 0, 1, otherwise=0),
            _step(_RETURN, _NOT_YOURS),
            _step(_LOAD, _FIRST_ARGUMENT),
            _return_if(_EQUAL, process, _ALLOW),
            _return_if(_EQUAL, group, _ALLOW),
            _step(_RETURN, _NOT_YOURS),
        ]
    )


def _socket(*, network: bool, sockets: bool) -> bytes:
    unix = _return_if(_EQUAL, _AF_UNIX, _ALLOW if sockets else _REFUSE)
    return _step(_LOAD, _FIRST_ARGUMENT) + unix + _step(_RETURN, _ALLOW if network else _REFUSE)


def _socketpair(*, sockets: bool) -> bytes:
    """Allow pairs of Unix sockets: all types, or only those whose ends stay connected to each other.

    The kernel turns a raw pair into a datagram pair, and an end of such a pair can send to any address.
    """
    connected = b"".join(_return_if(_EQUAL, kind, _ALLOW) for kind in (_SOCK_STREAM, _SOCK_SEQPACKET))
    return b"".join(
        [
            _step(_LOAD, _FIRST_ARGUMENT),
            _step(_EQUAL, _AF_UNIX, 1, otherwise=0),
            _step(_RETURN, _REFUSE),
            _step(_LOAD, _SECOND_ARGUMENT),
            _step(_AND, _SOCK_TYPE),
            _step(_RETURN, _ALLOW) if sockets else connected + _step(_RETURN, _REFUSE),
        ]
    )
