"""A server whose processes never stay: chains that fork, leave the session and exit, faster than they can be listed.

Arguments: how many chains, and a file that each process of a chain holds open: as long as one lives, it is locked. A
chain ends by itself after 25 seconds, so that a failing test leaves nothing for ever. It ignores TERM and HUP.
"""

import fcntl
import json
import os
import signal
import sys
import time

until = time.monotonic() + 25


def chain() -> None:
    """Fork, exit, and go on as the child."""
    while time.monotonic() < until:
        try:
            if os.fork():
                os._exit(0)
            os.setsid()
        except OSError:
            time.sleep(0.001)
    os._exit(0)


signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
# Shared by all that is forked from here, and free once the last of them has ended.
lock = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(lock, fcntl.LOCK_EX)
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        os.close(0)
        os.close(1)
        os.close(2)
        chain()
sys.stdout.write(json.dumps({"jsonrpc": "2.0", "method": "ready", "params": {"pids": [os.getpid()]}}) + "\n")
sys.stdout.flush()
while sys.stdin.read(1):
    pass
while time.monotonic() < until:
    time.sleep(1)
