"""The client side of stdio: starts a server as a child process under a watcher, and shuts it down."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack

from trunkline.errors import LinkError, ServerExited
from trunkline.protocol.caller import STDIO, Origin
from trunkline.protocol.jsonrpc import Incoming, InvalidMessage
from trunkline.protocol.limits import Limits
from trunkline.protocol.line_framing import LineReader
from trunkline.transports.link import Receiver
from trunkline.transports.pipes import PipeLink
from trunkline.transports.watcher import pack_launch
from trunkline.types import RequestId

__all__ = [
    "INHERITED",
    "STRAY_OUTPUT",
    "LaunchedProcess",
    "ProcessLink",
    "find_interpreter",
    "find_program",
    "launch_process",
    "open_pipes",
    "server_environment",
]

#: Variables that a server process inherits; a star at the end matches any ending.
INHERITED = ("HOME", "LANG", "LANGUAGE", "LC_*", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
# The variables that the watcher itself may need: some interpreters do not start without them.
_LOADER_VARIABLES = ("DYLD_LIBRARY_PATH", "LD_LIBRARY_PATH")


class LaunchedProcess:
    """A started server: our ends of its pipes, and the socket to its watcher."""

    __slots__ = ("control", "stderr", "stdin", "stdout", "watcher")

    def __init__(self, control: socket.socket, watcher: subprocess.Popen[bytes], *, pipes: Sequence[int]) -> None:
        """Set our ends; the pipes in the order stdin, stdout, stderr."""
        self.stdin: int
        self.stdout: int
        self.stderr: int
        self.stdin, self.stdout, self.stderr = pipes
        self.control: socket.socket = control
        self.watcher: subprocess.Popen[bytes] = watcher


def server_environment(given: Mapping[str, str] | None, inherit: Collection[str] = INHERITED) -> dict[str, str]:
    """Return the environment of a server process: the inherited variables, then the given ones."""
    exact = {name for name in inherit if not name.endswith("*")}
    prefixes = tuple(name[:-1] for name in inherit if name.endswith("*"))
    env = {
        name: value
        for name, value in os.environ.items()
        # A value that begins like this is a shell function, which some shells would run.
        if (name in exact or name.startswith(prefixes)) and not value.startswith("()")
    }
    return {**env, **(given or {})}


def launch_process(
    command: Sequence[str], *, env: dict[str, str], cwd: str | os.PathLike[str] | None, exit_seconds: float
) -> LaunchedProcess:
    """Start a watcher, which starts the server.

    Raises:
        LinkError: the command or directory does not exist, or no process can be started; the message says which.
    """
    path = find_program(command[0], env, cwd=cwd)
    record = _launch_file(pack_launch(path, list(command), env))
    with ExitStack() as ours, ExitStack() as theirs:
        theirs.callback(os.close, record)
        near, far = open_pipes(ours, theirs)
        control, far_control = socket.socketpair()
        ours.callback(control.close)
        theirs.callback(far_control.close)
        control.setblocking(False)
        watcher = _start_watcher(far_control.fileno(), record, pipes=far, cwd=cwd, seconds=exit_seconds)
        ours.pop_all()
    return LaunchedProcess(control, watcher, pipes=near)


def open_pipes(ours: ExitStack, theirs: ExitStack) -> tuple[list[int], list[int]]:
    """Open the pipes of a server's stdin, stdout and stderr; return our ends and the server's ends.

    Each end is closed by the stack of its side.
    """
    near: list[int] = []
    far: list[int] = []
    for we_read in (False, True, True):
        read_fd, write_fd = os.pipe()
        near.append(read_fd if we_read else write_fd)
        far.append(write_fd if we_read else read_fd)
        ours.callback(os.close, near[-1])
        theirs.callback(os.close, far[-1])
    # Stderr is read by the event loop, which must not block.
    os.set_blocking(near[2], False)
    return near, far


def find_program(name: str, env: Mapping[str, str], *, cwd: str | os.PathLike[str] | None) -> str:
    """Return the path of a program, found in the server's own PATH; the errors name what is missing."""
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
    """Write the launch record to an unnamed file and return its descriptor, at the start."""
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
    # Imported by name, the module is loaded from its compiled file; run by path, it would be compiled each time.
    code = f"import sys; sys.path.append({os.path.dirname(__file__)!r}); import watcher; watcher.main()"
    command = [find_interpreter(), "-I", "-S", "-c", code, str(control), str(record), str(os.getpid()), str(seconds)]
    try:
        return subprocess.Popen(
            command,
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
    """Return the Python that runs the watcher; in a frozen program ``sys.executable`` is the program itself."""
    installed = os.path.join(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    for path in (sys.executable, installed):
        if path and os.path.basename(path).startswith(("python", "pypy")) and os.access(path, os.X_OK):
            return path
    raise LinkError("cannot start a server process: no Python interpreter is found to run its watcher")


_LIMITS = Limits()
# The output of an exited server ends with it, unless a process that it left behind holds the pipe open.
_OUTPUT_SECONDS = 0.3
# A server exits right after the end of its output, unless it only closed its output; a busy machine may take seconds to
# say so.
_EXIT_SECONDS = 5.0
# A watcher exits earlier by itself, unless it was stopped.
_KILL_SECONDS = 10.0
_TAIL_LINES = 10  # A short traceback.
_TAIL_CHARACTERS = 2000  # About a screen.

log = logging.getLogger("trunkline.transports")

#: The log message about output that is not a message; ``trunkline doctor`` recognizes its records by it.
STRAY_OUTPUT = "the server %s wrote something to stdout that is not a message (%s; %d so far); logs belong on stderr"


class ProcessLink(PipeLink):
    """Carries messages to and from a server process; ``spawn`` starts one."""

    #: The server's process id, once it has started.
    pid: int | None = None

    def __init__(
        self, name: str, launched: LaunchedProcess, *, limits: Limits, on_stderr: Callable[[bytes], None] | None
    ) -> None:
        """Wrap a server that was just launched; ``name`` is used in messages."""
        super().__init__(launched.stdout, launched.stdin, limits=limits, origin=STDIO)
        self.name = name
        #: Called with stderr when a sandboxed server exits; returns the sandbox as a text, with the paths it hides.
        self.describe_sandbox: Callable[[str], str] | None = None
        self._stderr_fd = launched.stderr
        self._stderr = bytearray()
        self._on_stderr = on_stderr
        self._control: socket.socket | None = launched.control
        self._watcher = launched.watcher
        self._notices = LineReader(1024)
        self._orders = b""
        self._watching = False
        self._gone = asyncio.Event()
        self._conclusion: asyncio.TimerHandle | None = None
        self._failure: int | None = None
        self._output_closed = False
        self._filter: StdoutFilter | None = None
        #: The server's exit status once it has exited; the negative number of the signal if one ended it.
        self.status: int | None = None

    @classmethod
    def spawn(
        cls,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        limits: Limits = _LIMITS,
        inherit_env: Collection[str] = INHERITED,
        on_stderr: Callable[[bytes], None] | None = None,
        name: str | None = None,
    ) -> ProcessLink:
        """Start a server; ``on_stderr`` is called with its stderr output as it arrives; ``name`` is used in messages.

        Raises:
            LinkError: the command or directory does not exist, or no process can be started; the message says which.
        """
        launched = launch_process(
            command, env=server_environment(env, inherit_env), cwd=cwd, exit_seconds=limits.exit_seconds
        )
        return cls(name or command[0], launched, limits=limits, on_stderr=on_stderr)

    @property
    def skipped_lines(self) -> int:
        """How many lines on the server's stdout were not messages."""
        return 0 if self._filter is None else self._filter.skipped

    def stderr_tail(self) -> str:
        """Return the end of the server's stderr output, as far as it is kept."""
        return self._stderr[-self._limits.stderr_bytes :].decode("utf-8", "replace")

    def attach(self, receiver: Receiver) -> None:
        """Start to read."""
        self._filter = StdoutFilter(receiver, self.name)
        super().attach(self._filter)
        self._watch(asyncio.get_running_loop())

    async def aclose(self) -> None:
        """Stop the server in steps: close its input, then TERM, then KILL for all processes it started; bounded.

        If this is cancelled while it waits, the server is killed at once.
        """
        self._end(None)
        self._watch(asyncio.get_running_loop())
        try:
            await self._output.flush(self._limits.exit_seconds)
            self._start_shutdown()
            async with asyncio.timeout(3 * self._limits.exit_seconds + 5):
                await self._gone.wait()
        except TimeoutError:
            log.warning("the watcher of %s does not respond", self.name)
        finally:
            self._release()

    # --- the process -------------------------------------------------------------------------------------------------

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._watching or self._control is None:
            return
        self._watching = True
        self._loop = loop
        loop.add_reader(self._control.fileno(), self._control_readable)
        loop.add_reader(self._stderr_fd, self._stderr_readable)

    def _control_readable(self) -> None:
        """Read all notices, and the end if it has arrived: uvloop may not call again after a reset."""
        while self._control is not None:
            try:
                data = self._control.recv(4096)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            for notice in self._notices.feed(data):
                if isinstance(notice, bytes):
                    word, _, number = notice.partition(b" ")
                    self._notice_received(word, int(number))
            if not data:
                self._watcher_gone()

    def _notice_received(self, word: bytes, number: int) -> None:
        if word == b"started":
            self.pid = number
        elif word == b"failed":
            self._failure = number
            self._conclude()
        elif word == b"exited":
            self.status = number
            self._conclude_within(0 if self._output_closed else _OUTPUT_SECONDS)

    def _input_closed(self, error: OSError | None) -> None:
        self._output_closed = True
        self._conclude_within(_EXIT_SECONDS if self.status is None else 0)

    def _output_broken(self, error: OSError) -> None:
        self._conclude_within(_EXIT_SECONDS)

    def _conclude_within(self, seconds: float) -> None:
        """Report the end of the server after this delay, or earlier if more is known by then."""
        if self._conclusion is not None:
            self._conclusion.cancel()
        if seconds and self._loop is not None:
            self._conclusion = self._loop.call_later(seconds, self._conclude)
        else:
            self._conclude()

    def _conclude(self) -> None:
        if not self._ended:
            self._stderr_readable()
            self._end(self._exit_error())
        self._start_shutdown()

    def _exit_error(self) -> ServerExited:
        """Return the error that says how the server ended."""
        if self._failure is not None:
            text = f"cannot start {self.name}: {os.strerror(self._failure)}"
        elif self.pid is None:
            text = f"cannot start {self.name}: the process that was to start it failed"
        elif self.status is not None and self.status < 0:
            text = f"the server {self.name} was ended by signal {-self.status}"
        elif self.status is not None:
            text = f"the server {self.name} exited with status {self.status}"
        else:
            text = f"the server {self.name} closed its pipes but did not exit"
        stderr = self.stderr_tail()
        sandbox = "" if self.describe_sandbox is None else self.describe_sandbox(stderr)
        text += f" in {sandbox}" if sandbox else ""
        lines = stderr.strip().splitlines()[-_TAIL_LINES:]
        # Whole lines: redaction would not recognize half of a secret.
        while len(lines) > 1 and sum(map(len, lines)) + len(lines) > _TAIL_CHARACTERS:
            del lines[0]
        tail = "\n".join(lines)[-_TAIL_CHARACTERS:]
        text += f"; last lines of stderr:\n{tail}" if tail else "; it wrote nothing to stderr"
        return ServerExited(text, status=self.status, stderr=stderr, sandbox=sandbox)

    # --- stderr ------------------------------------------------------------------------------------------------------

    def _stderr_readable(self) -> None:
        """Read once: keep the end of the output, and pass all of it to the callback."""
        if self._stderr_fd < 0:
            return
        try:
            data = os.read(self._stderr_fd, 64 * 1024)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._close_stderr()
            return
        self._stderr += data
        if len(self._stderr) > 2 * self._limits.stderr_bytes:
            del self._stderr[: -self._limits.stderr_bytes or None]
        if self._on_stderr is not None:
            self._on_stderr(data)

    def _close_stderr(self) -> None:
        if self._stderr_fd >= 0:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._stderr_fd)
            os.close(self._stderr_fd)
            self._stderr_fd = -1

    # --- the end -----------------------------------------------------------------------------------------------------

    def _start_shutdown(self) -> None:
        """Close the server's input and let the watcher run the shutdown steps."""
        self._output.close()
        self._order(b"c")

    def _order(self, order: bytes) -> None:
        """Send an order to the watcher, each one once."""
        if self._control is not None and order not in self._orders:
            self._orders += order
            try:
                self._control.send(order)
            except OSError:
                return

    def _watcher_gone(self) -> None:
        """Reap the watcher; if it was killed before it reported the server's exit, kill the server from here."""
        control, self._control = self._control, None
        if control is None:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(control.fileno())
        control.close()
        if self.status is None and self.pid is not None:
            _kill_group(self.pid)
        self._reap()
        self._gone.set()
        if self._failure is None and self.status is None:
            self._conclude()

    def _reap(self) -> None:
        """Wait for the watcher to end; one that still kills forking processes continues in the background, bounded."""
        try:
            self._watcher.wait(timeout=1)
        except subprocess.TimeoutExpired:
            from threading import Thread

            Thread(target=_wait_or_kill, args=(self._watcher,), daemon=True, name="trunkline-watcher").start()

    def _release(self) -> None:
        """Free all resources; a watcher that still waits is ordered to kill now, which takes milliseconds."""
        if self._control is not None:
            self._order(b"k")
            self._reap()
            self._control_readable()
        if self._conclusion is not None:
            self._conclusion.cancel()
        self._close_stderr()
        super()._release()


class StdoutFilter:
    """A receiver that drops what a server printed to stdout by mistake, and forwards messages to another."""

    __slots__ = ("_name", "_receiver", "skipped")

    def __init__(self, receiver: Receiver, name: str) -> None:
        self._receiver = receiver
        self._name = name
        self.skipped: int = 0

    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        """Forward messages, and answers that were too long; count other lines."""
        if isinstance(incoming, InvalidMessage) and incoming.id is None and not incoming.too_long:
            self.skipped += 1
            # At 1, 2, 4, 8, ...: a server that keeps printing does not fill the log.
            if self.skipped & (self.skipped - 1) == 0:
                log.warning(STRAY_OUTPUT, self._name, incoming.message, self.skipped)
            return
        self._receiver.message_received(incoming, origin)

    def eof_received(self, error: Exception | None = None, *, about: RequestId | None = None) -> None:
        """Forward the end."""
        self._receiver.eof_received(error, about=about)


def _wait_or_kill(watcher: subprocess.Popen[bytes]) -> None:
    try:
        watcher.wait(timeout=_KILL_SECONDS)
    except subprocess.TimeoutExpired:
        watcher.kill()
        watcher.wait()


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, 9)
    except OSError:
        return
