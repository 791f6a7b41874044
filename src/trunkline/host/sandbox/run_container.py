"""The small program beside a container: it runs the engine's client, and removes the container when that ends.

A container is not a child of the process that requested it, so ending that process leaves the container running. This
program is what the host starts, watches and ends; when it is told to end, or the engine's client dies, it removes the
container by name. It runs as its own process (``python -I -S``) and imports nothing of the package. Only SIGKILL
bypasses it: then the end of its input ends the server, and the label identifies a leftover container.
"""

import _signal  # type: ignore[import-not-found]
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["main"]

# By then the container was asked to end; the watcher of this process waits at least a second before it kills.
_GRACE_SECONDS = 0.3
_STATUS = 126  # As a shell does for a command that cannot be executed.


def main() -> None:
    """Run the container described in the environment, and exit with its status."""
    from enter_sandbox import unpack  # type: ignore[import-not-found]

    try:
        record: dict[str, Any] = unpack(os.environ)
        program, *words = record["argv"]
        name = f"{record['name']}-{os.urandom(6).hex()}"
        argv = [program, words[0], f"--name={name}", *words[1:]]
        engine = os.posix_spawn(program, argv, record["env"], setsigdef=[_signal.SIGPIPE])
    except (KeyError, ValueError, OSError) as error:
        os.write(2, f"trunkline: cannot start the container: {error!r}\n".encode())
        os._exit(_STATUS)
    removal = [program, "rm", "--force", *(("--time=0",) if record["engine"] == "podman" else ()), name]
    _release_streams()
    os._exit(_wait_for_engine(engine, removal, record["env"]))


def _wait_for_engine(engine: int, removal: "list[str]", env: "dict[str, str]") -> int:
    """Wait for the engine's client; return the exit status."""
    stopping = False

    def end(*_: object) -> None:
        nonlocal stopping
        if not stopping:
            stopping = True
            _signal.setitimer(_signal.ITIMER_REAL, _GRACE_SECONDS)

    def remove(*_: object) -> None:
        _run(removal, env)

    for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
        _signal.signal(number, end)
    _signal.signal(_signal.SIGALRM, remove)
    status = os.waitstatus_to_exitcode(os.waitpid(engine, 0)[1])
    _signal.setitimer(_signal.ITIMER_REAL, 0)
    if stopping or status < 0:
        remove()
    return status if status >= 0 else 128 - status


def _run(words: "list[str]", env: "dict[str, str]") -> None:
    """Run a program silently to its end; a missing program is ignored."""
    null = os.open(os.devnull, os.O_RDWR)
    streams = [(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1, 2)]
    try:
        os.waitpid(os.posix_spawn(words[0], words, env, file_actions=streams), 0)
    except OSError:
        return
    finally:
        os.close(null)


def _release_streams() -> None:
    """Close the server's input and output here, so that their ends are noticed."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    os.close(null)


if __name__ == "__main__":
    sys.exit("this program is started by the host")
