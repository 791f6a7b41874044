"""Starting a foreign server as a program: what is replaced, what is missing, and running it.

The server's own imports are read from its source before it starts, so that everything that is missing is named at
once, with file and line, and not one name at a time.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from trunkline.compat.installer import install
from trunkline.compat.scan import Missing, scan
from trunkline.compat.versions import STATE

__all__ = ["NotFound", "describe", "install_for_program", "report", "run_command", "run_file", "run_module"]


class NotFound(Exception):
    """There is no such file, module or command."""


def install_for_program(*, mcp: str | None = None, fastmcp: str | None = None) -> None:
    """Install, and say so once on stderr, with what the calling program asks for and is not there."""
    if STATE.installed:
        return
    install(mcp=mcp, fastmcp=fastmcp)
    frame = sys._getframe(2)
    path = frame.f_globals.get("__file__")
    announce(scan([path]) if path else ())


def announce(missing: Sequence[Missing]) -> None:
    """Print on stderr what is replaced, and list what is missing."""
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


def run_file(path: str, arguments: Sequence[str], name: str | None = None) -> None:
    """Run a file as the main program; if it starts no server, start the one it defines.

    Raises:
        NotFound: there is no such file, or it has no server to start.
    """
    if not os.path.isfile(path):
        raise NotFound(f"there is no file {path}")
    install()
    announce(scan([path]))
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    names = runpy.run_path(path, run_name="__main__" if name is None else os.path.splitext(os.path.basename(path))[0])
    if not STATE.started:
        _find_server(names, path, name).run()


def _find_server(names: Mapping[str, Any], path: str, name: str | None) -> Any:
    from trunkline.compat.servers import ForeignServer

    wanted = (name,) if name is not None else ("mcp", "server", "app", *names)
    for each in wanted:
        if isinstance(names.get(each), ForeignServer):
            return names[each]
    raise NotFound(f"{path} starts no server and defines none{'' if name is None else f' called {name}'}")


def run_module(name: str, arguments: Sequence[str]) -> None:
    """Run a module as the main program, as ``python -m`` does.

    Raises:
        NotFound: there is no such module.
    """
    install()
    sys.path.insert(0, os.getcwd())
    if _spec(name) is None:
        raise NotFound(f"no module is called {name}")
    announce(scan_package(name.partition(".")[0]))
    sys.argv = [name, *arguments]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def run_command(command: str, arguments: Sequence[str]) -> None:
    """Run the entry point of an installed package in this process.

    Raises:
        NotFound: no package of this environment has such a command.
    """
    name = os.path.basename(command)
    found = [each for each in metadata.entry_points(group="console_scripts") if each.name == name]
    if not found:
        raise NotFound(
            f"no package installed beside Trunkline has the command {name!r}; install the server into the same "
            "environment"
        )
    entry = found[0]
    install()
    announce(scan_package(entry.value.partition(":")[0].partition(".")[0]))
    sys.argv = [command, *arguments]
    sys.exit(entry.load()())


def report(path: str) -> list[Missing]:
    """Return what a file, or the package it belongs to, asks for and is not here; nothing runs.

    Raises:
        NotFound: there is no such file.
    """
    if os.path.isdir(path):
        return scan(_files([path]))
    if not os.path.isfile(path):
        raise NotFound(f"there is no file {path}")
    return scan([path])


def _spec(name: str) -> Any:
    from importlib.util import find_spec

    try:
        return find_spec(name)
    except (ImportError, ValueError):
        return None


def scan_package(name: str) -> list[Missing]:
    """Read the imports of all files of a package."""
    spec = _spec(name)
    if spec is None:
        return []
    folders = list(spec.submodule_search_locations or ())
    return scan(_files(folders) if folders else [spec.origin] if spec.origin else [])


def _files(folders: Sequence[str]) -> list[str]:
    return [
        os.path.join(root, file)
        for folder in folders
        for root, _, names in os.walk(folder)
        for file in sorted(names)
        if file.endswith(".py") and "test" not in os.path.relpath(root, folder)
    ]
