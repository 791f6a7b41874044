"""The small program between a client and a server process: it starts the server and cleans up after it.

It runs as a process of its own (``python -I -S``), imports next to nothing, and is the parent of the server. That
order is the point: the watcher exists before the server does, so there is no moment at which the client can die and
leave an unwatched server; and as a *subreaper* (Linux) it inherits the orphans among the server's descendants, also
those that left the process group by ``setsid`` or by a double fork. A parent-death signal would reach only the direct
child; a watcher that is a sibling of the server would not inherit the orphans. The price is one small interpreter (some
10 ms before the server starts, 5 MB of memory); what can wait is done after the start.

Killing one process after another fails against a server whose processes fork and exit faster than they are found. So
where the user may write the kernel's control groups (cgroup v2), the server is started in one of its own, which the
kernel kills as a whole. Everywhere else a process is *stopped* the moment it is found, before its children are listed,
until a round finds no new one; only then all are killed, and that is repeated until none is left.

It has one socket to the client. It sends ``started PID``, ``failed ERRNO`` and ``exited STATUS``. It receives ``c``,
shut down in steps (wait, TERM, wait, KILL), or ``k``, kill now; the end of the socket, or of the parent, means that the
client died, and the steps run with short waits. Everything the server started ends with it.
"""

# The signal module proper imports enum, which costs as much as all other imports.
import _signal  # type: ignore[import-not-found]
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ControlGroup", "Watcher", "descendants", "main", "pack_launch", "unpack_launch", "watch_server"]

# The longest wait of each step after the client has died.
_ORPHAN_SECONDS = 1.0
# How long processes that keep forking are killed; a client waits a little longer.
_KILL_SECONDS = 5.0
_TICK_SECONDS = 0.02  # A server that exits is noticed without a noticeable delay, and waiting costs nearly nothing.
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h.


def pack_launch(path: str, argv: list[str], env: dict[str, str]) -> bytes:
    """Encode what to start; it is passed in a file, because every user can read a command line."""
    parts = [path, str(len(argv)), *argv, *(f"{name}={value}" for name, value in env.items())]
    return b"\0".join(os.fsencode(part) for part in parts)


def unpack_launch(data: bytes) -> tuple[bytes, list[bytes], dict[bytes, bytes]]:
    """Decode what to start: the path, the arguments and the environment."""
    path, count, *rest = data.split(b"\0")
    argv, pairs = rest[: int(count)], rest[int(count) :]
    env = {}
    for pair in pairs:
        name, _, value = pair.partition(b"=")
        env[name] = value
    return path, argv, env


def descendants(root: int) -> list[tuple[int, int]]:
    """Return all descendants of a process as (pid, process group); empty where there is no proc file system."""
    children: dict[int, list[tuple[int, int]]] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    for name in names:
        if name.isdigit():
            row = _read_row(int(name))
            if row is not None:
                pid, parent, group = row
                children.setdefault(parent, []).append((pid, group))
    found: list[tuple[int, int]] = []
    queue = [root]
    while queue:
        below = children.pop(queue.pop(), [])
        found += below
        queue += [pid for pid, _ in below]
    return found


def _read_row(pid: int) -> tuple[int, int, int] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            # The name is in brackets and may itself contain brackets and spaces.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return (pid, int(fields[1]), int(fields[2])) if len(fields) > 2 else None


def _children(pid: int) -> list[int]:
    """Return the children of a process, of all its threads; far faster than listing every process."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
                found += [int(word) for word in file.read().split()]
    except OSError:
        # It has exited, and its children are children of this process.
        pass
    return found


def _lists_children() -> bool:
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")


class ControlGroup:
    """A control group (cgroup v2) for the server alone, below the watcher's."""

    def __init__(self, parent: str, path: str) -> None:
        """Set the folders of the watcher's group and of the server's group."""
        self._parent = parent
        self._path = path

    @classmethod
    def make(cls) -> "ControlGroup | None":
        """Create a group and move this process into it, so that the server starts there; None where not permitted."""
        parent = _own_group()
        if parent is None:
            return None
        group = cls(parent, f"{parent}/trunkline-{os.getpid()}")
        try:
            os.mkdir(group._path)
        except OSError:
            return None
        if os.path.exists(f"{group._path}/cgroup.kill") and _write(f"{group._path}/cgroup.procs", b"0"):
            return group
        group.remove()
        return None

    def leave(self) -> bool:
        """Move this process back to where it was; return False if that fails, and the group must not be killed."""
        return _write(f"{self._parent}/cgroup.procs", b"0")

    def kill(self) -> None:
        """Kill everything in the group, and everything that it forks meanwhile."""
        _write(f"{self._path}/cgroup.kill", b"1")

    def remove(self) -> None:
        """Remove the group, if it is empty."""
        try:
            os.rmdir(self._path)
        except OSError:
            return


def _own_group() -> str | None:
    """Return the folder of the control group that this process is in."""
    try:
        with open("/proc/self/cgroup", "rb", buffering=0) as file:
            lines = [line for line in file.read().decode().splitlines() if line.startswith("0::/")]
        with open("/proc/self/mountinfo", "rb", buffering=0) as file:
            mounts = [line.split() for line in file.readall().decode().splitlines() if " - cgroup2 " in line]
    except (OSError, UnicodeDecodeError):
        return None
    if not lines or not mounts or lines[0].startswith("0::/.."):
        return None
    own, (root, mounted) = lines[0][3:], mounts[0][3:5]
    inside = own if root == "/" else own.removeprefix(root)
    return f"{mounted}{inside}".rstrip("/")


def _write(path: str, data: bytes) -> bool:
    try:
        with open(path, "wb", buffering=0) as file:
            file.write(data)
    except OSError:
        return False
    return True


class Watcher:
    """Watches one server, the client and the clock."""

    def __init__(
        self, control: int, *, parent: int, server: int, seconds: float, group: ControlGroup | None = None
    ) -> None:
        """Set the socket to the client, the two processes, the wait between steps, and the server's control group."""
        self._group = group
        self._stopped: set[int] = set()
        self._control = control
        self._parent = parent
        self._server = server
        self._seconds = seconds
        self._server_exited = False
        self._alone = False
        self._order = b""
        self._orphaned = False
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._children_fd = _wake_on_child()
        self._poll.register(self._children_fd, select.POLLIN)
        self._timeout: float | None = 1.0
        self._watch_parent()

    def run(self) -> None:
        """Watch until ordered to stop, then stop the server and all processes it started."""
        self._reap()
        while not self._order and not self._orphaned:
            self._wait(self._timeout)
        self._end()
        if self._group is not None:
            self._group.remove()

    # --- watching ----------------------------------------------------------------------------------------------------

    def _watch_parent(self) -> None:
        """Wake the poll when the parent dies; the socket does too, unless a fork of the client holds it open."""
        try:
            self._poll.register(os.pidfd_open(self._parent), select.POLLIN)
            self._timeout = None
        except (AttributeError, OSError):
            self._timeout = 1.0
        self._orphaned = os.getppid() != self._parent

    def _wait(self, seconds: float | None) -> None:
        events = self._poll.poll(None if seconds is None else max(0, int(seconds * 1000)))
        for fd, _ in events:
            if fd == self._control:
                self._read_order()
            elif fd == self._children_fd:
                _drain(fd)
            else:
                self._poll.unregister(fd)
        self._reap()
        if os.getppid() != self._parent:
            self._orphaned = True

    def _read_order(self) -> None:
        try:
            order = os.read(self._control, 1)
        except OSError:
            order = b""
        if order:
            self._order = order
        else:
            self._poll.unregister(self._control)
            self._orphaned = True

    def _reap(self) -> None:
        """Reap every child that has exited, our own or inherited."""
        while not self._alone:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._alone = True
                return
            if pid == 0:
                return
            # Its pid may soon be reused.
            self._stopped.discard(pid)
            if pid == self._server:
                self._server_exited = True
                send_notice(self._control, f"exited {os.waitstatus_to_exitcode(status)}")

    # --- ending ------------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Run the shutdown steps until no process is left."""
        if self._order != b"k":
            # The closed input is a message to the server only: once it has exited, its leftovers are not waited for.
            self._wait_until(lambda: self._server_exited)
            if self._gone():
                return
            self._signal_all(_signal.SIGTERM)
            self._wait_until(self._gone)
        until = time.monotonic() + _KILL_SECONDS
        if self._group is not None:
            self._group.kill()
        while not self._gone() and time.monotonic() < until:
            self._kill(until)
            self._wait(_TICK_SECONDS)

    def _wait_until(self, over: "Callable[[], bool]") -> None:
        """Wait for the end of one step; shorter when the client is dead, not at all when ordered to kill."""
        started = time.monotonic()
        while not over() and self._order != b"k":
            timeout = min(self._seconds, _ORPHAN_SECONDS) if self._orphaned else self._seconds
            left = started + timeout - time.monotonic()
            if left <= 0:
                return
            self._wait(min(left, _TICK_SECONDS if self._server_exited else left))

    def _gone(self) -> bool:
        if not self._alone:
            return False
        try:
            os.killpg(self._server, 0)
        except OSError:
            return True
        return False

    def _kill(self, until: float) -> None:
        """Stop everything below this process until nothing new appears there, then kill it."""
        if not _lists_children():
            self._signal_all(_signal.SIGKILL)
            return
        self._stopped.clear()
        while self._stop_new() and time.monotonic() < until:
            self._reap()
        for pid in self._stopped:
            _signal_quietly(os.kill, pid, _signal.SIGKILL)
        self._signal_all(_signal.SIGKILL)

    def _stop_new(self) -> bool:
        """Stop the descendants not stopped yet, each before its children are listed; return whether there were any.

        A stopped process does not fork, so its descendants do not change. Children of one that exited before it was
        stopped are children of this process by then, and are found in the next round.
        """
        new, stopped = False, self._stopped
        queue = _children(os.getpid())
        while queue:
            pid = queue.pop()
            if pid not in stopped:
                new = True
                stopped.add(pid)
                _signal_quietly(os.kill, pid, _signal.SIGSTOP)
            queue += _children(pid)
        return new

    def _signal_all(self, number: int) -> None:
        """Signal the server's group and every descendant outside it."""
        below = descendants(os.getpid())
        # Once the server is reaped its pid may be reused, unless its group still has members.
        if not self._server_exited or not below or any(group == self._server for _, group in below):
            _signal_quietly(os.killpg, self._server, number)
        for pid, group in below:
            if group != self._server:
                _signal_quietly(os.kill, pid, number)


def _signal_quietly(send: "Callable[[int, int], None]", target: int, number: int) -> None:
    try:
        send(target, number)
    except OSError:
        return


def _wake_on_child() -> int:
    """Return a descriptor that becomes readable whenever a child exits."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    os.set_blocking(write_fd, False)
    _signal.set_wakeup_fd(write_fd)
    _signal.signal(_signal.SIGCHLD, lambda *_: None)
    return read_fd


def _drain(fd: int) -> None:
    try:
        os.read(fd, 4096)
    except OSError:
        return


def send_notice(control: int, notice: str) -> None:
    """Send a line to the client, which may have exited."""
    try:
        os.write(control, f"{notice}\n".encode())
    except OSError:
        return


def _start(path: bytes, argv: list[bytes], env: dict[bytes, bytes]) -> int:
    """Start the server in a session of its own, with the signals that Python ignores reset."""
    return os.posix_spawn(path, argv, env, setsid=True, setsigdef=[_signal.SIGPIPE, _signal.SIGXFSZ])


def _detach() -> None:
    """Release the server's streams, whose ends must be seen, and ignore signals that would end this process."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
        _signal.signal(number, _signal.SIG_IGN)


def _become_subreaper() -> None:
    """Inherit the orphans among the descendants, where the kernel supports it; called before there are any."""
    if sys.platform != "linux":
        return
    try:
        # The C half alone: ctypes proper takes twenty times as long to import, and the server would wait for it.
        import _ctypes

        program = _ctypes.dlopen(None, os.RTLD_NOW)  # type: ignore[arg-type]  # None is the program itself
        prctl = _ctypes.dlsym(program, "prctl")
        _ctypes.call_function(prctl, (_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
    except AttributeError:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (ImportError, OSError):
        return


def main() -> None:
    """Start and watch the server of the launch file; arguments: the socket, the file, the client's pid, seconds."""
    control, launch, parent = (int(word) for word in sys.argv[1:4])
    os.set_inheritable(control, False)
    if os.getppid() != parent:
        os._exit(0)
    with open(launch, "rb") as file:
        path, argv, env = unpack_launch(file.read())
    watch_server(lambda: _start(path, argv, env), control=control, parent=parent, seconds=float(sys.argv[4]))
    os._exit(0)


def watch_server(start: "Callable[[], int]", *, control: int, parent: int, seconds: float) -> None:
    """Start the server with ``start``, which returns its pid, and watch it until it has ended."""
    _become_subreaper()
    group = ControlGroup.make()
    try:
        server = start()
    except OSError as error:
        send_notice(control, f"failed {error.errno}")
        if group is not None and group.leave():
            group.remove()
        os._exit(0)
    send_notice(control, f"started {server}")
    if group is not None and not group.leave():
        group = None
    _detach()
    Watcher(control, parent=parent, server=server, seconds=seconds, group=group).run()
