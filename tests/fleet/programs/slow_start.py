"""Starts a server late: sleeps as long as a file says, writes a line into a ledger, and becomes the server.

The arguments are a folder, the server's name in it, and the server's command. The delay is in a file and not among the
arguments, because a server whose command changes is another server to its host.
"""

from __future__ import annotations

import os
import sys
import time

__all__ = ["DELAYS", "LEDGER", "main"]

#: A file of lines, each a name and the seconds that it sleeps.
DELAYS = "delays.txt"
#: A file of names, a line for each start.
LEDGER = "starts.txt"


def main(folder: str, name: str, *command: str) -> None:
    """Sleep, note the start, and become the command."""
    with open(os.path.join(folder, DELAYS)) as file:
        delays = dict(line.split() for line in file)
    with open(os.path.join(folder, LEDGER), "a") as file:
        file.write(f"{name}\n")
    time.sleep(float(delays.get(name, 0)))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
