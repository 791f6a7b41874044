"""Starting a server process: its environment, its pipes, and the watcher between it and us; no event loop.

Nothing is read by a shell. What to start travels to the watcher in an unnamed file, so neither arguments nor the
environment stand on a second command line.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack

from trunkline.errors import LinkError
from trunkline.transports.watcher import pack_launch

__all__ = ["INHERITED", "Launched", "find_interpreter", "find_program", "launch", "server_environment"]

#: Variables a server process inherits; a star at the end stands for any ending.
INHERITED = ("HOME", "LANG", "LANGUAGE", "LC_*", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
# All the watcher itself may need: some interpreters are not found to be whole without them.
_LOADER_VARIABLES = ("DYLD_LIBRARY_PATH", "LD_LIBRARY_PATH")


class Launched:
    """Our ends of a server that was started: its pipes, and the socket to its watcher."""

    __slots__ = ("control", "stderr", "stdin", "stdout", "watcher")

    def __init__(self, control: socket.socket, watcher: subprocess.Popen[bytes], *, pipes: Sequence[int]) -> None:
        """Take the ends, in the order stdin, stdout, stderr."""
        self.stdin, self.stdout, self.stderr = pipes
        self.control = control
        self.watcher = watcher


def server_environment(given: Mapping[str, str] | None, inherit: Collection[str] = INHERITED) -> dict[str, str]:
    """Make the environment of a server process: the inherited names that are set, then what was given."""
    exact = {name for name in inherit if not name.endswith("*")}
    prefixes = tuple(name[:-1] for name in inherit if name.endswith("*"))
    env = {
        name: value
        for name, value in os.environ.items()
        # A value that begins like this is a shell function, which some shells would run.
        if (name in exact or name.startswith(prefixes)) and not value.startswith("()")
    }
    return {**env, **(given or {})}


def launch(
    command: Sequence[str], *, env: dict[str, str], cwd: str | os.PathLike[str] | None, exit_seconds: float
) -> Launched:
    """Start a watcher that starts the server.

    Raises:
        LinkError: there is no such command or directory, or no process can be started; the message says which.
    """
    path = find_program(command[0], env, cwd=cwd)
    record = _launch_file(pack_launch(path, list(command), env))
    with ExitStack() as ours, ExitStack() as theirs:
        theirs.callback(os.close, record)
        near: list[int] = []
        far: list[int] = []
        for we_read in (False, True, True):
            read_fd, write_fd = os.pipe()
            near.append(read_fd if we_read else write_fd)
            far.append(write_fd if we_read else read_fd)
            ours.callback(os.close, near[-1])
            theirs.callback(os.close, far[-1])
        control, far_control = socket.socketpair()
        ours.callback(control.close)
        theirs.callback(far_control.close)
        control.setblocking(False)
        os.set_blocking(near[2], False)
        watcher = _start_watcher(far_control.fileno(), record, pipes=far, cwd=cwd, seconds=exit_seconds)
        ours.pop_all()
    return Launched(control, watcher, pipes=near)


def find_program(name: str, env: Mapping[str, str], *, cwd: str | os.PathLike[str] | None) -> str:
    """Find the program as the server's own PATH gives it; the errors name what is missing."""
    if cwd is not None and not os.path.isdir(cwd):
        raise LinkError(f"cannot start {name}: there is no directory {os.fspath(cwd)}")
    if os.path.dirname(name):
        path = os.path.join(cwd or "", name)
        if not os.path.isfile(path):
            raise LinkError(f"cannot start {name}: there is no such file")
        if not os.access(path, os.X_OK):
            raise LinkError(
                f"cannot start {name}: the file is not executable; run chmod +x, or put its interpreter first"
            )
        return os.path.abspath(path)
    for folder in os.get_exec_path(env):
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.abspath(path)
    raise LinkError(
        f"command not found: {name}; install it, give its full path, or add its folder to PATH "
        f"(searched: {env.get('PATH', os.defpath)})"
    )


def _launch_file(data: bytes) -> int:
    """Put the launch record into an unnamed file and give its descriptor, at the start."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("trunkline-launch")
    else:
        import tempfile

        fd, path = tempfile.mkstemp()
        os.unlink(path)
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _start_watcher(
    control: int, record: int, *, pipes: list[int], cwd: str | os.PathLike[str] | None, seconds: float
) -> subprocess.Popen[bytes]:
    """Start the watcher with the server's ends of the pipes as its own standard streams."""
    stdin, stdout, stderr = pipes
    # Imported by name, the module comes from its compiled file; run by path, it would be compiled each time.
    code = f"import sys; sys.path.append({os.path.dirname(__file__)!r}); import watcher; watcher.main()"
    words = [find_interpreter(), "-I", "-S", "-c", code, str(control), str(record), str(os.getpid()), str(seconds)]
    try:
        return subprocess.Popen(
            words,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={name: os.environ[name] for name in _LOADER_VARIABLES if name in os.environ},
            cwd=cwd,
            pass_fds=(control, record),
            start_new_session=True,
        )
    except OSError as error:
        raise LinkError(f"cannot start a process: {error}") from error


def find_interpreter() -> str:
    """Find the Python that runs the watcher; in a frozen program ``sys.executable`` is the program itself."""
    beside = os.path.join(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    for path in (sys.executable, beside):
        if path and os.path.basename(path).startswith(("python", "pypy")) and os.access(path, os.X_OK):
            return path
    raise LinkError("cannot start a server process: no Python interpreter is found to run its watcher")
