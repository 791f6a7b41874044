"""The folders of the host's files: approvals, grants, pins, catalogs and the audit trail, and the user's configuration.

``TRUNKLINE_HOME`` names one folder for all of it. Files are readable by their owner alone.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from trunkline.auth.store import default_folder

__all__ = ["config_folder", "folder_variables", "private_folder", "state_folder"]


def state_folder() -> Path:
    """Return the folder of this user's state."""
    return Path(default_folder())


def config_folder() -> Path:
    """Return the folder of this user's configuration."""
    given = os.environ.get("TRUNKLINE_HOME")
    if given or sys.platform in ("darwin", "win32"):
        return state_folder()
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(base) / "trunkline"


def folder_variables() -> dict[str, str]:
    """Return the environment variables that determine where state and configuration are, with absolute paths.

    A program started without them would use other grants, pins and rules.
    """
    names = ("TRUNKLINE_HOME",) if os.environ.get("TRUNKLINE_HOME") else ("XDG_CONFIG_HOME", "XDG_DATA_HOME")
    if names[0] != "TRUNKLINE_HOME" and sys.platform in ("darwin", "win32"):
        return {}
    return {name: os.path.abspath(os.environ[name]) for name in names if os.environ.get(name)}


def private_folder(path: Path) -> Path:
    """Create a folder that only its owner can read, unless it exists."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path
