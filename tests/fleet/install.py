"""Installs the packages of the fleet below ``.fleet``, one after the other, and says what cannot be had."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.fleet.packages import PYPI, Environment

__all__ = ["FLEET", "folder_of", "install", "missing"]

ROOT = Path(__file__).parents[2]
#: Where everything of the fleet is kept; not in the repository.
FLEET = ROOT / ".fleet"

_STAMP = ".installed"
_SECONDS = 900.0
# Install scripts of npm packages download browsers and binaries, which no row of the fleet needs.
_NPM = ("install", "--no-audit", "--no-fund", "--loglevel=error", "--ignore-scripts")
_PIP = ("-qq", "--disable-pip-version-check", "--no-input", "--no-compile")


def folder_of(environment: Environment) -> Path:
    """Return the folder of an environment."""
    return FLEET / environment.source / environment.name


def missing(environment: Environment) -> bool:
    """Return True if these packages, in these versions, are not installed."""
    stamp = folder_of(environment) / _STAMP
    return not stamp.exists() or stamp.read_text() != _stamp(environment)


def install(environments: Iterable[Environment], tell: Callable[[str], None]) -> dict[str, str]:
    """Install what is missing; return the reason for each environment that cannot be installed."""
    failed: dict[str, str] = {}
    for environment in environments:
        if not missing(environment):
            continue
        tell(f"installing {environment.subject} from {environment.source}")
        reason = _install(environment)
        if reason:
            tell(f"  not installed: {reason}")
            failed[environment.name] = reason
        else:
            (folder_of(environment) / _STAMP).write_text(_stamp(environment))
    return failed


def _install(environment: Environment) -> str:
    folder = folder_of(environment)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if environment.source == PYPI:
        made = _run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
        pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", *_PIP]
        return made or _run([*pip, *environment.packages])
    npm = shutil.which("npm")
    if npm is None:
        return "npm is not on this machine"
    return _run([npm, *_NPM, "--prefix", str(folder), *environment.packages])


def _run(command: list[str]) -> str:
    """Run a command; return an empty text if it succeeded, else the last line it wrote."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, env={**os.environ, "PYTHONWARNINGS": "ignore"}
        )
    except subprocess.TimeoutExpired:
        return f"no end after {_SECONDS:g} s"
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"status {done.returncode}"


def _stamp(environment: Environment) -> str:
    return "\n".join(environment.packages)
