"""A reader who follows a page from top to bottom, from an empty folder: writes files, types commands, runs code.

Three things differ from a person at a terminal. Ports are free ones of this machine, so that pages can be tested at the
same time. A command that serves over HTTP is left running while the page continues, and stopped at its end. A page that
names files of ``examples/`` is read in a clone.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import inspect
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

from tests.docs.pages import ROOT, Block

__all__ = ["PORTS", "Reader", "is_installed", "matches", "steps"]

#: The ports that pages use; each page gets free ones instead.
PORTS = ("8000", "8080", "3001")
_STEP = re.compile(r"^\$ ((?:.*\\\n)*.+)\n((?:(?!\$ ).*\n?)*)", re.M)
_COMMAND = re.compile(r"^((?:.*\\\n)*.+)$", re.M)
_SERVES = re.compile(r"(?:--http|--port|PORT=)[ =]?\d")
_SECONDS = 120.0


def steps(block: Block) -> list[tuple[str, str]]:
    """Return the commands of a block, each with the output that the page shows; empty where it shows none."""
    if block.language == "console":
        return _STEP.findall(block.text)
    lines = (re.sub(r"(?:^|\s+)# .*", "", line) for line in _COMMAND.findall(block.text))
    return [(line, "") for line in lines if line.strip()]


def matches(shown: str, printed: str) -> bool:
    """Return whether an output is the one shown, where ``...`` stands for any text, or alone on a line for lines."""
    parts = []
    for line in shown.strip().split("\n"):
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            words = " +".join(re.escape(word).replace(r"\.\.\.", ".*") for word in line.split())
            parts.append(f" *{words} *\n")
    return re.fullmatch("".join(parts), f"{printed.strip()}\n") is not None


class Reader:
    """The folder, the terminal and the interpreter of one reader."""

    def __init__(self, folder: Path, module: types.ModuleType, *, in_a_clone: bool) -> None:
        """Start in an empty folder, with a home folder of its own."""
        self.folder = folder / "work"
        self.folder.mkdir()
        home = folder / "home"
        home.mkdir()
        if in_a_clone:
            (self.folder / "examples").symlink_to(ROOT / "examples")
        self._module = module
        self._ports = {port: _free_port() for port in PORTS}
        self._serving: dict[str, subprocess.Popen[bytes]] = {}
        self._log = folder / "serving.log"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "TRUNKLINE_"))}
        self.environment = {
            **kept,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(home),
            "TRUNKLINE_HOME": str(home / ".trunkline"),
            "COLUMNS": "160",
            "NO_COLOR": "1",
        }

    def follow(self, block: Block, runner: asyncio.Runner) -> None:
        """Do what a block says."""
        for command in _COMMAND.findall(block.first):
            self._type(block, command, "")
        if block.title is not None:
            self._write(block.title, self._here(block.text))
        elif block.language == "python":
            self._run(block._replace(text=self._here(block.text)), runner)
        elif block.language in ("console", "sh"):
            for command, shown in steps(block):
                self._type(block, command, shown)

    def leave(self) -> None:
        """Stop what still serves."""
        for process in self._serving.values():
            _stop(process)

    def _here(self, text: str) -> str:
        """Return a text of the page with the ports of this reader."""
        return re.sub(rf"(?<!\d)({'|'.join(PORTS)})(?!\d)", lambda found: self._ports[found[1]], text)

    def _as_shown(self, printed: str) -> str:
        """Return an output with the ports and folders of the page."""
        for theirs, ours in self._ports.items():
            printed = re.sub(rf"(?<!\d){ours}(?!\d)", theirs, printed)
        return printed

    def _write(self, title: str, text: str) -> None:
        file = self.folder / Path(title.replace("~", self.environment["HOME"]))
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists():  # "Add this above the last lines": what runs the file stays at its end
            before, mark, end = file.read_text(encoding="utf-8").partition('if __name__ == "__main__":')
            gap = "\n\n\n" if file.suffix == ".py" else "\n\n"
            text = f"{before.rstrip()}{gap}{text.rstrip()}{gap}{mark}{end}".rstrip() + "\n"
        file.write_text(text, encoding="utf-8")

    def _run(self, block: Block, runner: asyncio.Runner) -> None:
        """Run a block as ``python -m asyncio`` would, so that a page may show an await by itself."""
        source = "\n" * (block.line - 1) + block.text
        code = compile(source, block.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        if code.co_flags & inspect.CO_COROUTINE:
            runner.run(_awaited(code, self._module.__dict__))
        else:
            exec(code, self._module.__dict__)

    def _type(self, block: Block, command: str, shown: str) -> None:
        """Run a command: it prints what the page shows or, where the page shows nothing, it succeeds."""
        command = self._here(command)
        served = next((port for port in self._ports.values() if re.search(rf"(?<!\d){port}(?!\d)", command)), None)
        if served is not None and _SERVES.search(command):
            self._serve(block, command, shown, served)
            return
        remember = self._log.with_name("environment") if command.startswith(("export ", "cd ")) else None
        line = command if remember is None else f"{command} && {{ env -0; pwd; }} >{remember}"
        code, output = _at_a_terminal(line, self, block.input) if block.input else _without_one(line, self)
        printed = self._as_shown(output)
        if not shown.strip():
            assert code == 0, f"{block.name}: {command}\nexit code {code}\n{printed}"
        else:
            assert matches(shown, printed), f"{block.name}: {command}\nshown:\n{shown}\nprinted:\n{printed}"
        if remember is not None:
            *variables, folder = remember.read_bytes().decode().split("\0")
            self.environment.update(re.findall(r"^(\w+)=(.*)$", each, re.S)[0] for each in variables if "=" in each)
            self.folder = Path(folder.strip())

    def _serve(self, block: Block, command: str, shown: str, port: str) -> None:
        """Start a server at a port, where the reader ends the one before; wait until it listens."""
        if port in self._serving:
            _stop(self._serving.pop(port))
        self._log.unlink(missing_ok=True)
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}" if "=" not in command.split(" ")[0] else command],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._serving[port] = process
        until = time.monotonic() + _SECONDS
        while not _listens(port):
            printed = self._log.read_text(encoding="utf-8")
            assert process.poll() is None, f"{block.name}: {command}\nended with {process.returncode}\n{printed}"
            assert time.monotonic() < until, f"{block.name}: {command}\ndoes not listen\n{printed}"
            time.sleep(0.05)
        while shown.strip() and not matches(shown, self._as_shown(self._log.read_text(encoding="utf-8"))):
            printed = self._log.read_text(encoding="utf-8")
            assert time.monotonic() < until, f"{block.name}: {command}\nshown:\n{shown}\nprinted:\n{printed}"
            time.sleep(0.05)


def _without_one(line: str, reader: Reader) -> tuple[int, str]:
    """Run a command where nothing can be asked; return its exit code and output."""
    ended = subprocess.run(
        ["bash", "-c", line],
        cwd=reader.folder,
        env=reader.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_SECONDS,
        check=False,
    )
    return ended.returncode, ended.stdout.decode()


def _at_a_terminal(line: str, reader: Reader, typed: str) -> tuple[int, str]:
    """Run a command at a terminal, and type the answer whenever it has nothing more to say.

    What is typed before a question is shown is discarded, so the answer is typed until the command ends.
    """
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        ["bash", "-c", line],
        cwd=reader.folder,
        env=reader.environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        output, until = b"", time.monotonic() + _SECONDS
        while time.monotonic() < until:
            readable, _, _ = select.select([ours], [], [], 1.0)
            if not readable:
                if output:
                    os.write(ours, f"{typed}\n".encode())
                continue
            try:
                read = os.read(ours, 65536)
            except OSError:  # on Linux the other end is closed then
                break
            if not read:
                break
            output += read
        else:
            process.kill()
    os.close(ours)
    return process.returncode, output.decode().replace("\r\n", "\n")


async def _awaited(code: types.CodeType, names: dict[str, Any]) -> None:
    await eval(code, names)


def is_installed(package: str | None) -> bool:
    """Return whether a block's package can be imported."""
    return package is None or importlib.util.find_spec(package) is not None


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def _listens(port: str) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
