"""A server that tries what it is told to try and answers what came of it, by the standard library alone."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.host.servers.plain import Plain, tool

__all__ = ["Trying"]

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.shmat.restype = ctypes.c_void_p
_PTRACE_ATTACH = 16
_IO_URING_SETUP = 425
_PIDFD_GETFD = 438
_SCHED_SETATTR = 314 if os.uname().machine == "x86_64" else 274
_IOPRIO_SET = 251 if os.uname().machine == "x86_64" else 30


def checked(result: int) -> int:
    """Raise the error of a function of the C library that failed."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def do_read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def do_write(path: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write("written")


def do_link(path: str, to: str) -> str:
    os.link(path, to)
    return do_read(to)


def do_symlink(path: str, to: str) -> str:
    os.symlink(path, to)
    return do_read(to)


def do_tcp(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        pass


def do_udp(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", ("127.0.0.1", port))


def do_unix(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)


def do_datagram(path: str, kind: int = socket.SOCK_DGRAM) -> None:
    """Send to a name by one end of a pair; one that is raw is one of datagrams to the kernel."""
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    with one, other:
        one.sendto(b"x", path)


def do_pair() -> str:
    one, other = socket.socketpair()
    with one, other:
        one.send(b"through")
        return other.recv(10).decode()


def do_temporary() -> str:
    with tempfile.NamedTemporaryFile() as file:
        return file.name


def do_open(count: int) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(open(os.devnull, encoding="utf-8"))


def do_compute() -> str:
    """Compute in a child for ever; say which signal ended it."""
    child = os.fork()
    if child == 0:
        while True:
            pass
    return str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def do_shell(command: str) -> str:
    ended = subprocess.run(["/bin/sh", "-c", command], capture_output=True, timeout=10, check=False)
    if ended.returncode:
        raise OSError(ended.stderr.decode())
    return ended.stdout.decode()


def do_peek(pid: int) -> None:
    """Read the memory of another process."""
    part = (ctypes.c_void_p * 2)(ctypes.addressof(ctypes.create_string_buffer(8)), 8)
    checked(_LIBC.process_vm_readv(pid, part, 1, part, 1, 0))


def do_schedule_attributes(pid: int) -> None:
    attributes = ctypes.create_string_buffer(struct.pack("=IIQi28x", 48, 0, 0, 10), 48)
    checked(_LIBC.syscall(_SCHED_SETATTR, pid, attributes, 0))


def do_own_limit() -> str:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return str(resource.getrlimit(resource.RLIMIT_CORE))


def do_threads() -> None:
    """Start a thread, since an interpreter sets the limits and places of its own ones."""
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()


def do_shared_memory(key: int) -> str:
    segment = checked(_LIBC.shmget(key, 1, 0o600))
    return ctypes.string_at(_LIBC.shmat(segment, None, 0)).decode()


def do_watch(path: str) -> None:
    checked(_LIBC.inotify_add_watch(checked(_LIBC.inotify_init1(0)), path.encode(), 0xFFF))


def do_stay() -> None:
    """Leave a child behind in a session of its own that no polite signal ends."""
    if os.fork() == 0:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        time.sleep(600)
        os._exit(0)


#: What can be tried: the functions above, and all that is one call.
ATTEMPTS: dict[str, Callable[..., object]] = {
    **{name.removeprefix("do_"): value for name, value in globals().items() if name.startswith("do_")},
    "list": lambda path: " ".join(sorted(os.listdir(path))),
    "truncate": lambda path: os.truncate(path, 0),
    "remove": lambda path: os.unlink(path),
    "attribute": lambda path: os.setxattr(path, "user.mark", b"mine"),
    "own_attribute": lambda path: os.setxattr(path, "user.mark", b"mine", follow_symlinks=False),
    "remove_attribute": lambda path: os.removexattr(path, "user.kept"),
    "rename": lambda path, to: os.rename(path, to),
    "raw_pair": lambda path: do_datagram(path, socket.SOCK_RAW),
    "ring": lambda: checked(_LIBC.syscall(_IO_URING_SETUP, 4, ctypes.create_string_buffer(256))),
    "env": lambda: " ".join(sorted(os.environ)),
    "variable": lambda name: os.environ[name],
    "cwd": os.getcwd,
    "descriptors": lambda: " ".join(sorted(os.listdir("/proc/self/fd"))),
    "allocate": lambda size: len(bytearray(size)),
    "kill": lambda pid: os.kill(pid, signal.SIGKILL),
    "trace": lambda pid: checked(_LIBC.ptrace(_PTRACE_ATTACH, pid, None, None)),
    "steal": lambda pid: checked(_LIBC.syscall(_PIDFD_GETFD, os.pidfd_open(pid), 0, 0)),
    "limit": lambda pid: resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0)),
    "nice": lambda: os.nice(1),
    "priority": lambda pid, which=os.PRIO_PROCESS: os.setpriority(which, pid, 5),
    "affinity": lambda pid: os.sched_setaffinity(pid, os.sched_getaffinity(0)),
    "scheduler": lambda pid: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)),
    "schedule_parameter": lambda pid: os.sched_setparam(pid, os.sched_param(0)),
    "disk_priority": lambda pid, which=1: checked(_LIBC.syscall(_IOPRIO_SET, which, pid, 3 << 13)),
    "message_queue": lambda: checked(_LIBC.msgget(0, 0o1600)),
    "semaphores": lambda: checked(_LIBC.semget(0, 1, 0o1600)),
    "posix_queue": lambda name: checked(_LIBC.mq_open(name.encode(), os.O_RDWR | os.O_CREAT, 0o600, None)),
    # Reports identifiers of files, which is what a user without privileges may ask for.
    "watch_all": lambda: checked(_LIBC.fanotify_init(0x200, 0)),
    "mount": lambda path: checked(_LIBC.mount(b"none", path.encode(), b"tmpfs", 0, None)),
}


class Trying(Plain):
    """Has a tool for each attempt."""

    def on_tools_list(self, params: dict[str, Any]) -> Any:
        """List them all."""
        return {"tools": [tool(name) for name in ATTEMPTS]}

    def on_tools_call(self, params: dict[str, Any]) -> Any:
        """Try; say what came of it."""
        try:
            result = ATTEMPTS[params["name"]](**params["arguments"])
        except (OSError, MemoryError, KeyError) as error:
            result = f"refused: {error!r}"
        return {"content": [{"type": "text", "text": "done" if result is None else str(result)}]}


if __name__ == "__main__":
    sys.stderr.write("ready\n")
    Trying().run()
