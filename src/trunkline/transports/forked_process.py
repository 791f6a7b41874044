"""Starts a server as a fork of this process under a watcher, for a client that has loaded the package already.

A program that starts a server of the same package pays for the interpreter and for the shared modules twice, and for a
third interpreter that runs the watcher. A fork pays for them once. The server still has a process, a session, an
environment and standard streams of its own, and the same watcher as its parent, so nothing else differs from a server
that was started by a command. Only a process with a single thread may fork this way, before it runs an event loop.
"""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import NoReturn, cast

from trunkline.errors import LinkError
from trunkline.transports import watcher
from trunkline.transports.process import LaunchedProcess, open_pipes

__all__ = ["can_fork", "fork_process"]

_DESCRIPTORS = "/proc/self/fd"


def can_fork() -> bool:
    """Return whether this process may fork: on Linux (elsewhere system libraries forbid it), with one thread.

    The forks close the files of the client, which are listed in ``/proc``; some containers do not have it.
    """
    import threading

    return sys.platform == "linux" and threading.active_count() == 1 and os.path.isdir(_DESCRIPTORS)


def fork_process(run: Callable[[], int], *, env: Mapping[str, str], exit_seconds: float) -> LaunchedProcess:
    """Fork a watcher, which forks the server: a process that calls ``run`` and exits with its result.

    Raises:
        LinkError: no process can be started.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    # Otherwise the first collection in a fork would touch, and so copy, every page with an object on it.
    gc.collect()
    gc.freeze()
    with ExitStack() as ours, ExitStack() as theirs:
        near, far = open_pipes(ours, theirs)
        control, far_control = socket.socketpair()
        ours.callback(control.close)
        theirs.callback(far_control.close)
        control.setblocking(False)
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            raise LinkError(f"cannot start a process: {error}") from error
        if pid == 0:
            _watch(run, env, parent=parent, control=far_control.fileno(), streams=far, seconds=exit_seconds)
        ours.pop_all()
    # A link only waits for its watcher, or kills it.
    return LaunchedProcess(control, cast("subprocess.Popen[bytes]", _ForkedWatcher(pid)), pipes=near)


class _ForkedWatcher:
    """The watcher as a child process; it has the methods of ``subprocess.Popen`` that a link uses."""

    def __init__(self, pid: int) -> None:
        self._pid: int | None = pid

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has ended.

        Raises:
            subprocess.TimeoutExpired: it has not.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while self._pid is not None:
            try:
                done, _ = os.waitpid(self._pid, 0 if until is None else os.WNOHANG)
            except ChildProcessError:
                done = self._pid
            if done:
                self._pid = None
            elif until is not None and time.monotonic() >= until:
                raise subprocess.TimeoutExpired("watcher", timeout or 0.0)
            else:
                time.sleep(0.001)
        return 0

    def kill(self) -> None:
        """Kill the process, if it has not ended."""
        if self._pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, 9)


# --- in the forks ----------------------------------------------------------------------------------------------------


def _watch(
    run: Callable[[], int],
    env: Mapping[str, str],
    *,
    parent: int,
    control: int,
    streams: list[int],
    seconds: float,
) -> NoReturn:
    """Be the watcher: fork the server and watch it. This never returns to the code that forked."""
    try:
        os.setsid()
        for fd, inherited in enumerate(streams):
            os.dup2(inherited, fd)
        _close_others(control)
        watcher.watch_server(lambda: _fork_server(run, env, control), control=control, parent=parent, seconds=seconds)
    finally:
        os._exit(0)


def _close_others(control: int) -> None:
    """Close everything else that the client has open: its ends of the pipes must end with it, not with its server."""
    for name in os.listdir(_DESCRIPTORS):
        if int(name) > 2 and int(name) != control:
            # The descriptor of the listing itself is closed already.
            with suppress(OSError):
                os.close(int(name))


def _fork_server(run: Callable[[], int], env: Mapping[str, str], control: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        os.close(control)
        _reopen_streams()
        os.environ.clear()
        os.environ.update(env)
        code = run()
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    except BaseException:  # noqa: BLE001 - the boundary of a process: shown as the interpreter would
        sys.excepthook(*sys.exc_info())
    finally:
        _exit(code)


def _reopen_streams() -> None:
    """Replace the standard streams: the inherited ones may hold input that the client has read already."""
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]


def _exit(code: int) -> NoReturn:
    """End the process as the interpreter does, but without unwinding the stack of the code that forked."""
    import atexit
    import threading

    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(code)
