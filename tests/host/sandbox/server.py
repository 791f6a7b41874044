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
import threading
import time
from typing import Any

from tests.host.servers.plain import Plain, tool

__all__ = ["Trying"]

_PTRACE_ATTACH = 16
_IO_URING_SETUP = 425


def do_read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def do_list(path: str) -> str:
    return " ".join(sorted(os.listdir(path)))


def do_write(path: str) -> str:
    with open(path, "w", encoding="utf-8") as file:
        file.write("written")
    return "written"


def do_truncate(path: str) -> str:
    os.truncate(path, 0)
    return "emptied"


def do_remove(path: str) -> str:
    os.unlink(path)
    return "removed"


def do_rename(path: str, to: str) -> str:
    os.rename(path, to)
    return "renamed"


def do_link(path: str, to: str) -> str:
    os.link(path, to)
    return do_read(to)


def do_symlink(path: str, to: str) -> str:
    os.symlink(path, to)
    return do_read(to)


def do_tcp(port: int) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        return "connected"


def do_udp(port: int) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", ("127.0.0.1", port))
    return "sent"


def do_unix(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
    return "connected"


def do_datagram(path: str) -> str:
    """Send to a name by one end of a pair."""
    with contextlib.ExitStack() as stack:
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        stack.enter_context(one)
        stack.enter_context(other)
        one.sendto(b"x", path)
    return "sent"


def do_pair() -> str:
    one, other = socket.socketpair()
    with one, other:
        one.send(b"through")
        return other.recv(10).decode()


def do_ring() -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(_IO_URING_SETUP, 4, ctypes.create_string_buffer(256))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "no ring")
    return "a ring"


def do_env() -> str:
    return " ".join(sorted(os.environ))


def do_variable(name: str) -> str:
    return os.environ[name]


def do_cwd() -> str:
    return os.getcwd()


def do_temporary() -> str:
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        return file.name


def do_allocate(size: int) -> str:
    return str(len(bytearray(size)))


def do_open(count: int) -> str:
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(open(os.devnull, encoding="utf-8"))
    return "opened"


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


def do_kill(pid: int) -> str:
    os.kill(pid, signal.SIGKILL)
    return "killed"


def do_trace(pid: int) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(_PTRACE_ATTACH, pid, None, None) < 0:
        raise OSError(ctypes.get_errno(), "not traced")
    return "traced"


def checked(result: int, what: str) -> int:
    """Raise the error of a function of the C library that failed."""
    if result < 0:
        raise OSError(ctypes.get_errno(), what)
    return result


def do_peek(pid: int) -> str:
    """Read the memory of another process."""
    libc = ctypes.CDLL(None, use_errno=True)
    part = (ctypes.c_void_p * 2)(ctypes.addressof(ctypes.create_string_buffer(8)), 8)
    checked(libc.process_vm_readv(pid, part, 1, part, 1, 0), "not read")
    return "read"


def do_steal(pid: int) -> str:
    """Copy a descriptor of another process."""
    libc = ctypes.CDLL(None, use_errno=True)
    checked(libc.syscall(438, os.pidfd_open(pid), 0, 0), "not copied")
    return "copied"


def do_limit(pid: int) -> str:
    resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
    return "limited"


def do_own_limit() -> str:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return str(resource.getrlimit(resource.RLIMIT_CORE))


def do_priority(pid: int, which: int = os.PRIO_PROCESS) -> str:
    os.setpriority(which, pid, 5)
    return "lowered"


def do_nice() -> str:
    return str(os.nice(1))


def do_affinity(pid: int) -> str:
    os.sched_setaffinity(pid, os.sched_getaffinity(0))
    return "moved"


def do_scheduler(pid: int) -> str:
    os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))
    return "scheduled"


def do_schedule_parameter(pid: int) -> str:
    os.sched_setparam(pid, os.sched_param(0))
    return "scheduled"


def do_schedule_attributes(pid: int) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    number = {"x86_64": 314}.get(os.uname().machine, 274)
    attributes = ctypes.create_string_buffer(struct.pack("=IIQi28x", 48, 0, 0, 10), 48)
    checked(libc.syscall(number, pid, attributes, 0), "not scheduled")
    return "scheduled"


def do_disk_priority(pid: int, which: int = 1) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    number = {"x86_64": 251}.get(os.uname().machine, 30)
    checked(libc.syscall(number, which, pid, 3 << 13), "not lowered")
    return "lowered"


def do_threads() -> str:
    """Start a thread, since an interpreter sets the limits and places of its own ones."""
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append("ran"))
    thread.start()
    thread.join()
    return said[0]


def do_raw_pair(path: str) -> str:
    """Send to a name by one end of a raw pair, which is one of datagrams to the kernel."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)
    with one, other:
        one.sendto(b"x", path)
    return "sent"


def do_shared_memory(key: int) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    segment = checked(libc.shmget(key, 1, 0o600), "no segment")
    address = libc.shmat(segment, None, 0)
    return ctypes.string_at(address).decode()


def do_message_queue() -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    return str(checked(libc.msgget(0, 0o1600), "no queue"))


def do_semaphores() -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    return str(checked(libc.semget(0, 1, 0o1600), "no semaphores"))


def do_posix_queue(name: str) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    return str(checked(libc.mq_open(name.encode(), os.O_RDWR | os.O_CREAT, 0o600, None), "no queue"))


def do_watch(path: str) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    fd = checked(libc.inotify_init1(0), "no watch")
    checked(libc.inotify_add_watch(fd, path.encode(), 0xFFF), "not watched")
    return "watched"


def do_watch_all() -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    # Reports identifiers of files, which is what a user without privileges may ask for.
    return str(checked(libc.fanotify_init(0x200, 0), "no watch"))


def do_mount(path: str) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", path.encode(), b"tmpfs", 0, None) < 0:
        raise OSError(ctypes.get_errno(), "not mounted")
    return "mounted"


def do_stay() -> str:
    """Leave a child behind in a session of its own that no polite signal ends."""
    if os.fork() == 0:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        time.sleep(600)
        os._exit(0)
    return "stays"


def do_descriptors() -> str:
    return " ".join(sorted(os.listdir("/proc/self/fd")))


class Trying(Plain):
    """Has a tool for each ``do_`` above."""

    def on_tools_list(self, params: dict[str, Any]) -> Any:
        """List them all."""
        return {"tools": [tool(name.removeprefix("do_")) for name in globals() if name.startswith("do_")]}

    def on_tools_call(self, params: dict[str, Any]) -> Any:
        """Try; say how it went."""
        try:
            text = globals()[f"do_{params['name']}"](**params["arguments"])
        except (OSError, MemoryError, KeyError) as error:
            text = f"refused: {error!r}"
        return {"content": [{"type": "text", "text": text}]}


if __name__ == "__main__":
    sys.stderr.write("ready\n")
    Trying().run()
