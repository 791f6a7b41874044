"""What the tests of the host's verbs share: a folder to work in, configurations, and a gateway as a process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trunkline
from tests.cli.support import DEMO, SECONDS, Outcome

__all__ = ["ALLOW_ALL", "SOURCE", "Gateway", "demo_entry", "gateway", "write_config"]

SOURCE = str(Path(trunkline.__file__).parents[1])

ALLOW_ALL = """\
[[rule]]
effect = "allow"
server = "demo"
tool = "*"

[[rule]]
effect = "allow"
server = "demo"
uri = "*"

[[rule]]
effect = "allow"
server = "demo"
prompt = "*"
"""


def demo_entry(**more: Any) -> dict[str, Any]:
    """An entry that starts the server that all tests of the command line talk to."""
    return {
        "command": sys.executable,
        "args": ["-m", "trunkline", "run", DEMO],
        "env": {"PYTHONPATH": os.pathsep.join([SOURCE, str(Path(__file__).parents[2])])},
        **more,
    }


def write_config(path: Path, servers: dict[str, Any], **more: Any) -> Path:
    """Write a configuration."""
    path.write_text(json.dumps({"mcpServers": servers, **more}), encoding="utf-8")
    return path


class Gateway:
    """A gateway in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """Read what it says until it listens."""
        self.process = process
        self.said: list[str] = []
        self.url = self.until(r"is served at (\S+?)(?:;| )")

    def until(self, pattern: str) -> str:
        """Read lines until one fits; give its first group."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            found = re.search(pattern, line)
            if found is not None:
                return found.group(1)
        raise AssertionError(f"never said: {pattern}; but:\n{''.join(self.said)}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> Outcome:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=SECONDS)
        return Outcome(self.process.returncode, out, err)


@contextmanager
def gateway(*arguments: str, cwd: Path, env: dict[str, str]) -> Iterator[Gateway]:
    """Run ``trunkline serve`` over HTTP at a port that is free."""
    with subprocess.Popen(
        [sys.executable, "-m", "trunkline", "serve", *arguments, "--http", "0"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE, **env},
        cwd=cwd,
    ) as process:
        # It bounds every wait for a line: without a line for so long, the process ends and so does the waiting.
        watch = threading.Timer(2 * SECONDS, process.kill)
        watch.start()
        try:
            yield Gateway(process)
        finally:
            watch.cancel()
            process.kill()
