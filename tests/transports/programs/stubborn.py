"""A server that will not go: it ignores the end of its input and TERM, and so do the children it forks.

Arguments name what else it does: ``child`` forks one, ``setsid`` forks one that leaves the process group, ``daemon``
forks one twice, so that it is an orphan. It writes the process ids of all of them, itself first, as one message.
"""

import json
import os
import signal
import sys
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)


def linger(pipe: int | None) -> None:
    if pipe is not None:
        os.write(pipe, f"{os.getpid()}\n".encode())
    while True:
        time.sleep(60)


def fork(kind: str) -> int:
    read_fd, write_fd = os.pipe()
    if os.fork() == 0:
        if kind != "child":
            os.setsid()
        if kind == "daemon" and os.fork() != 0:
            os._exit(0)
        linger(write_fd)
    return int(os.read(read_fd, 100))


pids = [os.getpid(), *(fork(kind) for kind in sys.argv[1:])]
note = {"jsonrpc": "2.0", "method": "pids", "params": {"pids": pids}}
sys.stdout.write(json.dumps(note) + "\n")
sys.stdout.flush()
linger(None)
