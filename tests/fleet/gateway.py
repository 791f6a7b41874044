"""Gateways of the fleet: a configuration, a home of its own, and `trunkline serve` over stdio or HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.faults.casting import MARK
from tests.fleet.install import ROOT
from tests.fleet.sides import Target

__all__ = ["Home", "Running", "over_stdio", "pin_states", "running"]

_PROPOSAL = "for others: "
_START_SECONDS = 120.0
_STOP_SECONDS = 30.0
_COMMAND_SECONDS = 300.0


class Home:
    """The folder of one gateway: its configuration, and what it keeps between runs."""

    def __init__(self, folder: Path, servers: Mapping[str, Target], mark: str) -> None:
        """Write a configuration of these servers, whose processes all carry the mark."""
        self.folder = folder
        self.mark = mark
        self.file = folder / "mcp.json"
        (folder / "home").mkdir(mode=0o700, parents=True, exist_ok=True)
        entries = {name: _entry(target, mark) for name, target in servers.items()}
        self.file.write_text(json.dumps({"mcpServers": entries}, indent=1))

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a gateway: its files are all in its own folder."""
        own = {"TRUNKLINE_HOME": str(self.folder / "home"), "PYTHONPATH": str(ROOT / "src"), MARK: self.mark}
        return {**os.environ, **own}

    def command(self, *options: str) -> tuple[str, ...]:
        """Return the command of a gateway to these servers."""
        return (sys.executable, "-m", "trunkline", "serve", "-c", str(self.file), *options)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run another command of Trunkline in this home."""
        command = [sys.executable, "-m", "trunkline", *words]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_COMMAND_SECONDS, env=self.environment, cwd=self.folder
        )


def _entry(target: Target, mark: str) -> dict[str, Any]:
    program, *arguments = target.command
    return {"command": program, "args": arguments, "env": {**target.env, MARK: mark}, "cwd": target.cwd}


def over_stdio(home: Home, *options: str) -> Target:
    """Return what a client starts to have a gateway over stdio."""
    return Target(command=home.command(*options), env=home.environment, cwd=str(home.folder))


class Running:
    """A gateway over HTTP that runs: where it is, and what it wrote to stderr so far."""

    def __init__(self, target: Target, lines: list[str]) -> None:
        """Keep both; the lines grow while it runs."""
        self.target = target
        self.lines = lines


@contextmanager
def running(home: Home, *options: str) -> Iterator[Running]:
    """Run a gateway over loopback HTTP with a token it makes up.

    Raises:
        RuntimeError: it ended, or did not say where it listens.
    """
    process = subprocess.Popen(
        home.command("--http", "0", *options),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=home.environment,
        cwd=home.folder,
    )
    lines: list[str] = []
    told = threading.Event()
    threading.Thread(target=_read, args=(process, lines, told), daemon=True).start()
    try:
        told.wait(_START_SECONDS)
        proposal = next((line for line in lines if _PROPOSAL in line), None)
        if proposal is None:
            raise RuntimeError(f"the gateway does not listen: {''.join(lines)[-300:].strip()}")
        [proposed] = json.loads(proposal.partition(_PROPOSAL)[2])["mcpServers"].values()
        yield Running(Target(url=proposed["url"], headers=proposed["headers"]), lines)
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _read(process: subprocess.Popen[str], lines: list[str], told: threading.Event) -> None:
    """Read what a gateway writes until it ends, so that it never waits for a full pipe."""
    assert process.stderr is not None
    for line in process.stderr:
        lines.append(line)
        if _PROPOSAL in line:
            told.set()
    told.set()


def pin_states(home: Home) -> list[dict[str, Any]]:
    """Return what the pins of a home say of each definition."""
    done = home.run("pins", "list", "--json")
    found: list[dict[str, Any]] = json.loads(done.stdout)["pins"]
    return found
