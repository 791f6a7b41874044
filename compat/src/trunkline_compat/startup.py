"""Runs a program that was written for another framework: a file, a module or an installed command.

The program's own imports are read from its source before it starts, so that everything that is missing is named at
once, with file and line, and not one name at a time.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from trunkline_compat.imports import install
from trunkline_compat.scan import Missing, scan
from trunkline_compat.versions import STATE

__all__ = ["NotFound", "describe", "install_for_program", "report", "run_command", "run_file", "run_module"]


class NotFound(Exception):
    """There is no such file, module or command."""


def install_for_program(*, mcp: str | None = None, fastmcp: str | None = None) -> None:
    """Install, and print once on stderr what the calling program asks for and is not there."""
    if STATE.installed:
        return
    install(mcp=mcp, fastmcp=fastmcp)
    path = sys._getframe(2).f_globals.get("__file__")
    _announce(scan([path]) if path else ())


def _announce(missing: Sequence[Missing]) -> None:
    sys.stderr.write(f"{describe(missing)}\n")
    sys.stderr.flush()


def describe(missing: Sequence[Missing]) -> str:
    """Return the line that says what is replaced, and a line for each missing name."""
    versions = f"mcp {STATE.version('mcp')} and fastmcp {STATE.version('fastmcp')}"
    head = f"trunkline-compat: {versions} are Trunkline in this process"
    return "\n".join([f"{head}; not there:", *(f"  {each}" for each in missing)]) if missing else head


def run_file(path: str, arguments: Sequence[str], name: str | None = None) -> None:
    """Run a file as the main program; if it starts no server, start the one it defines.

    Raises:
        NotFound: there is no such file, or it has no server to start.
    """
    if not os.path.isfile(path):
        raise NotFound(f"there is no file {path}")
    install()
    _announce(scan([path]))
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    module_name = "__main__" if name is None else os.path.splitext(os.path.basename(path))[0]
    variables = runpy.run_path(path, run_name=module_name)
    # A program of a client has done what it is for.
    is_client = name is None and "trunkline_compat.sessions" in sys.modules
    if not STATE.started and not (is_client and not _servers(variables)):
        _find_server(variables, path, name).run()


def _servers(variables: Mapping[str, Any]) -> dict[str, Any]:
    from trunkline_compat.serving import ForeignServer

    return {name: value for name, value in variables.items() if isinstance(value, ForeignServer)}


def _find_server(variables: Mapping[str, Any], path: str, name: str | None) -> Any:
    servers = _servers(variables)
    for candidate in (name,) if name is not None else ("mcp", "server", "app", *servers):
        if candidate in servers:
            return servers[candidate]
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
    _announce(_scan_package(name))
    sys.argv = [name, *arguments]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def run_command(command: str, arguments: Sequence[str]) -> None:
    """Run the entry point of an installed package in this process.

    Raises:
        NotFound: no package of this environment has such a command.
    """
    name = os.path.basename(command)
    entry = next((each for each in metadata.entry_points(group="console_scripts") if each.name == name), None)
    if entry is None:
        raise NotFound(
            f"no package installed beside Trunkline has the command {name!r}; install the server into the same "
            "environment"
        )
    install()
    _announce(_scan_package(entry.value.partition(":")[0]))
    sys.argv = [command, *arguments]
    sys.exit(entry.load()())


def report(path: str) -> list[Missing]:
    """Return what a file, or the files of a folder, ask for and is not here; nothing runs.

    Raises:
        NotFound: there is no such file.
    """
    if os.path.isdir(path):
        return scan(_files(path))
    if not os.path.isfile(path):
        raise NotFound(f"there is no file {path}")
    return scan([path])


def _spec(name: str) -> Any:
    try:
        return find_spec(name)
    except (ImportError, ValueError):
        return None


def _scan_package(name: str) -> list[Missing]:
    """Read the imports of all files of the package that a module belongs to."""
    spec = _spec(name.partition(".")[0])
    if spec is None:
        return []
    folders = list(spec.submodule_search_locations or ())
    return scan([path for folder in folders for path in _files(folder)] or ([spec.origin] if spec.origin else []))


def _files(folder: str) -> list[str]:
    return [
        os.path.join(root, file)
        for root, _, names in os.walk(folder)
        for file in sorted(names)
        if file.endswith(".py") and not {"test", "tests"} & set(os.path.relpath(root, folder).split(os.sep))
    ]
