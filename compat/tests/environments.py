"""Installs a published server with its framework, and Trunkline beside it, into an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["COMPAT", "ROOT", "environment_folder", "install", "is_installed"]

ROOT = Path(__file__).resolve().parents[2]
#: Where everything that is installed or downloaded is kept; ignored by git.
COMPAT = ROOT / ".compat"
_STAMP = ".installed"
_SECONDS = 1200
_PIP_FLAGS = ("-q", "--disable-pip-version-check", "--no-input")


def environment_folder(name: str) -> Path:
    """Return the folder of a server's environment."""
    return COMPAT / "servers" / name


def is_installed(name: str, requirements: Sequence[str]) -> bool:
    """Return True if the environment has these requirements, and Trunkline as it is installed today."""
    stamp = environment_folder(name) / _STAMP
    return stamp.exists() and stamp.read_text(encoding="utf-8") == _stamp(requirements)


def install(name: str, requirements: Sequence[str]) -> str | None:
    """Install a server beside Trunkline, unless it is; return the last line of pip's error, if there was one."""
    if is_installed(name, requirements):
        return None
    folder = environment_folder(name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    problem = _run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", *_PIP_FLAGS]
    # Without the extra for compat: a published server may pin a version of pydantic below its floor.
    problem = problem or _run([*pip, *requirements, "-e", f"{ROOT}[http]", "starlette"])
    if _has_distribution():
        problem = problem or _run([*pip, "--no-deps", "-e", str(ROOT / "compat")])
    if problem is None:
        (folder / _STAMP).write_text(_stamp(requirements), encoding="utf-8")
    return problem


def _has_distribution() -> bool:
    """Return True if compat is a distribution of its own, which is installed beside the core."""
    return (ROOT / "compat" / "pyproject.toml").exists()


def _stamp(requirements: Sequence[str]) -> str:
    return "\n".join([*requirements, "with trunkline-compat" if _has_distribution() else "with trunkline alone"])


def _run(command: Sequence[str]) -> str | None:
    """Run a command; return the last line it wrote if it failed."""
    env = {**os.environ, "PYTHONWARNINGS": "ignore"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, env=env, check=False)
    except subprocess.TimeoutExpired:
        return f"not finished after {_SECONDS} s"
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"exit status {done.returncode}"
