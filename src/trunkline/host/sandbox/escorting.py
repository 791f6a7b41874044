"""The tiny program beside a container: it runs the engine's program, and has the container ended with it.

A container is no child of whoever asked for it, so ending the asking program leaves it running. This one is what is
started, watched and ended; when it is told to end, or the engine's program dies, it has the engine remove the container
by its name. It runs as a process of its own (``python -I -S``) and imports nothing of the package. A kill that nobody
can catch is the one way around it: then the end of its input ends the server, and the label tells what was left.
"""

import _signal  # type: ignore[import-not-found]
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["main"]

# The container was told to end by then; the watcher of this process waits a second or more before it kills.
_GRACE_SECONDS = 0.3
_STATUS = 126


def main() -> None:
    """Run the container that the record in the environment names, and end as it ends."""
    from entering import unpack  # type: ignore[import-not-found]

    try:
        record: dict[str, Any] = unpack(os.environ)
        program, *words = record["argv"]
        name = f"{record['name']}-{os.urandom(6).hex()}"
        argv = [program, words[0], f"--name={name}", *words[1:]]
        engine = os.posix_spawn(program, argv, record["env"], setsigdef=[_signal.SIGPIPE])
    except (KeyError, ValueError, OSError) as error:
        os.write(2, f"trunkline: the container cannot be started: {error!r}\n".encode())
        os._exit(_STATUS)
    removal = [program, "rm", "--force", *(("--time=0",) if record["engine"] == "podman" else ()), name]
    _step_aside()
    os._exit(_escort(engine, removal, record["env"]))


def _escort(engine: int, removal: "list[str]", env: "dict[str, str]") -> int:
    """Wait for the end of the engine's program; give the status to end with."""
    told = False

    def end(*_: object) -> None:
        nonlocal told
        if not told:
            told = True
            _signal.setitimer(_signal.ITIMER_REAL, _GRACE_SECONDS)

    def remove(*_: object) -> None:
        _run(removal, env)

    for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
        _signal.signal(number, end)
    _signal.signal(_signal.SIGALRM, remove)
    status = os.waitstatus_to_exitcode(os.waitpid(engine, 0)[1])
    _signal.setitimer(_signal.ITIMER_REAL, 0)
    if told or status < 0:
        remove()
    return status if status >= 0 else 128 - status


def _run(words: "list[str]", env: "dict[str, str]") -> None:
    """Run a program to its end, without a word; the engine's may be the one that is gone."""
    null = os.open(os.devnull, os.O_RDWR)
    streams = [(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1, 2)]
    try:
        os.waitpid(os.posix_spawn(words[0], words, env, file_actions=streams), 0)
    except OSError:
        return
    finally:
        os.close(null)


def _step_aside() -> None:
    """Let go of the server's input and output, whose ends must be seen."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    os.close(null)


if __name__ == "__main__":
    sys.exit("run by the host")
