"""A server whose code prints, from the loop, a thread and a child process."""

from __future__ import annotations

import subprocess
import sys

from trunkline import Server

sys.stdout.write("imported\n")


def make() -> Server:
    """Make the server."""
    server = Server("noisy", version="1")

    @server.tool
    async def shout() -> str:
        sys.stdout.write("from the loop\n")
        sys.stdout.flush()
        return "shouted"

    @server.tool
    def mutter() -> str:
        sys.stdout.write("from a thread\n")
        subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
        return "muttered"

    @server.tool
    def listen_in() -> str:
        """Read the standard input, as a careless library would."""
        return repr(sys.stdin.read(5))

    return server


if __name__ == "__main__":
    make().run()
