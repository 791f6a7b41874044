"""What the tests of the host's verbs share: a folder to work in, configurations, and a gateway as a process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trunkline
from tests.cli.support import DEMO, SECONDS, Cli, Outcome, kill_if_silent

__all__ = ["ALLOW_ALL", "SILENT", "SOURCE", "Desk", "Gateway", "demo_entry", "gateway", "leaving", "write_config"]

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


#: An entry whose program never answers, and ends with its input.
SILENT = {"command": "sh", "args": ["-c", "cat >/dev/null"]}


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


class Desk:
    """A folder to work in with a configuration that is named, a home beside it, and the command run there."""

    def __init__(self, folder: Path, home: Path, cli: Cli) -> None:
        """Start without servers."""
        self.folder, self.home, self.cli = folder, home, cli
        self.config = write_config(folder / "servers.json", {})
        #: Options that each command gets.
        self.options: tuple[str, ...] = ()

    def configure(self, servers: dict[str, Any] | None = None, **more: Any) -> str:
        """Write the configuration; return its path."""
        return str(write_config(self.config, {**(servers or {}), **more}))

    def write(self, name: str, text: str) -> str:
        """Write a file beside the configuration; return its name."""
        (self.folder / name).write_text(text, encoding="utf-8")
        return name

    def run(self, *words: str) -> Outcome:
        """Run a command with the configuration."""
        return self.cli(*words, "-c", str(self.config), *self.options)

    def trail(self) -> list[dict[str, Any]]:
        """The entries of the user's audit trail."""
        lines = (self.home / "audit.jsonl").read_text(encoding="utf-8").splitlines()
        return [entry for entry in map(json.loads, lines) if "stage" in entry]


def leaving(mark: Path) -> dict[str, Any]:
    """An entry whose program leaves a file as a trace that it was started."""
    return {"command": sys.executable, "args": ["-c", f"open({str(mark)!r}, 'w')"]}


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
        with kill_if_silent(self.process):
            for line in self.process.stderr:
                self.said.append(line)
                found = re.search(pattern, line)
                if found is not None:
                    return found.group(1)
        raise AssertionError(f"never said: {pattern}; but:\n{''.join(self.said)}")

    def has_said(self, pattern: str) -> None:
        """Wait for a line, which may have come before the one with the address."""
        if not any(re.search(pattern, line) for line in self.said):
            self.until(f"({pattern})")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> Outcome:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=SECONDS)
        return Outcome(self.process.returncode, out, err)


@contextmanager
def gateway(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> Iterator[Gateway]:
    """Run ``trunkline serve`` over HTTP at a port that is free; the first list waits for its servers."""
    if "--wait" not in arguments:
        arguments = (*arguments, "--wait", "120")
    with subprocess.Popen(
        [sys.executable, "-m", "trunkline", "serve", *arguments, "--http", "0"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE, **(env or {})},
        cwd=cwd,
    ) as process:
        try:
            yield Gateway(process)
        finally:
            process.kill()
