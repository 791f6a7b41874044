"""Servers with one fault each: ``python -m tests.host.servers.misbehaving FAULT``, named in the code."""

from __future__ import annotations

import os
import sys
from typing import Any

from tests.host.servers.plain import Plain

FAULT = sys.argv[1]


class Misbehaving(Plain):
    """Serves like the plain server, but for its fault."""

    def run(self) -> None:
        """End before anything is read, with a reason; or read everything and answer nothing."""
        if FAULT == "crash_at_start":
            sys.stderr.write("cannot open the database: secret-token\n")
            sys.exit(3)
        if FAULT == "hang_at_initialize":
            sys.stderr.write("waiting for a lock\n")
            sys.stderr.flush()
            sys.stdin.read()
        super().run()

    def answer(self, method: str, params: dict[str, Any]) -> Any:
        """Write ten thousand lines before each answer: to stderr, or to stdout, where they are no messages."""
        if FAULT == "flood_stderr":
            sys.stderr.write("debug: nothing happened\n" * 10_000)
            sys.stderr.flush()
        if FAULT == "flood_stdout":
            sys.stdout.write("loading… 100 %\n" * 10_000)
        return super().answer(method, params)

    def on_tools_list(self, params: dict[str, Any]) -> Any:
        """End when the tools are asked for."""
        if FAULT == "die_in_list":
            os._exit(1)
        return super().on_tools_list(params)

    def on_tools_call(self, params: dict[str, Any]) -> Any:
        """End when a tool is called."""
        if FAULT == "crash_on_call":
            sys.stderr.write("out of luck\n")
            sys.stderr.flush()
            os._exit(7)
        return super().on_tools_call(params)


if __name__ == "__main__":
    Misbehaving().run()
