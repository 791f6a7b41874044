"""Starting a foreign server as a program: what is replaced, what is missing, and running it.

The server's own imports are read from its source before it starts, so that everything that is missing is named at
once, with file and line, and not one name at a time.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from importlib import metadata

from trunkline.compat.installer import install
from trunkline.compat.scan import Missing, scan
from trunkline.compat.versions import STATE

__all__ = ["describe", "install_for_program", "run_command", "run_file", "run_module"]


def install_for_program(*, mcp: str | None = None, fastmcp: str | None = None) -> None:
    """Install, and say so once on stderr, with what the calling program asks for and is not there."""
    if STATE.installed:
        return
    install(mcp=mcp, fastmcp=fastmcp)
    frame = sys._getframe(2)
    path = frame.f_globals.get("__file__")
    announce(scan([path]) if path else ())


def announce(missing: Sequence[Missing]) -> None:
    """Say on stderr what is replaced, and list what is missing."""
    sys.stderr.write(f"{describe(missing)}\n")
    sys.stderr.flush()


def describe(missing: Sequence[Missing]) -> str:
    """Return the line that says what is replaced, and a line for each missing name."""
    head = (
        f"trunkline.compat: mcp {STATE.version('mcp')} and fastmcp {STATE.version('fastmcp')} are Trunkline in this "
        "process"
    )
    if not missing:
        return head
    return "\n".join([f"{head}; not there:", *(f"  {each}" for each in missing)])


def run_file(path: str, arguments: Sequence[str]) -> None:
    """Run a file as the main program."""
    install()
    announce(scan([path]))
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    runpy.run_path(path, run_name="__main__")


def run_module(name: str, arguments: Sequence[str]) -> None:
    """Run a module as the main program, as ``python -m`` does."""
    install()
    sys.path.insert(0, os.getcwd())
    announce(scan_package(name.partition(".")[0]))
    sys.argv = [name, *arguments]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def run_command(command: str, arguments: Sequence[str]) -> None:
    """Run the entry point of an installed package in this process.

    Raises:
        LookupError: no package has such a command.
    """
    found = [each for each in metadata.entry_points(group="console_scripts") if each.name == os.path.basename(command)]
    if not found:
        raise LookupError(f"no installed package has the command {command!r}")
    entry = found[0]
    install()
    announce(scan_package(entry.value.partition(":")[0].partition(".")[0]))
    sys.argv = [command, *arguments]
    sys.exit(entry.load()())


def scan_package(name: str) -> list[Missing]:
    """Read the imports of all files of a package."""
    from importlib.util import find_spec

    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    folders = list(spec.submodule_search_locations or ())
    if not folders:
        return scan([spec.origin] if spec.origin else [])
    files = [
        os.path.join(root, file)
        for folder in folders
        for root, _, names in os.walk(folder)
        for file in sorted(names)
        if file.endswith(".py") and "test" not in root
    ]
    return scan(files)
