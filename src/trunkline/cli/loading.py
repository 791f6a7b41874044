"""Loads a Python file and finds the server in it.

The file is imported, not run as a program: code under ``if __name__ == "__main__"`` does not run. Its import path is
that of a program, with its own directory first. Exceptions it raises are shown with its own traceback.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING

from trunkline.cli.exits import Exit, Failure

if TYPE_CHECKING:
    from trunkline.server.server import Server

__all__ = ["check_library", "load_server", "split_spec"]

#: The names that are searched for a server, in this order.
_USUAL_NAMES = ("server", "mcp", "app")
#: Other libraries for servers, and the names of their server classes.
_OTHER_LIBRARIES = frozenset({"mcp", "fastmcp"})
_OTHER_SERVERS = frozenset({"FastMCP", "MCPServer", "Server"})


def split_spec(spec: str) -> tuple[str, str | None]:
    """Split ``FILE[:object]`` into the path and the object's name; a file that exists as written has no object."""
    path, colon, name = spec.rpartition(":")
    if not colon or os.path.exists(spec):
        return spec, None
    return path, name


def load_server(spec: str) -> Server:
    """Load ``FILE[:object]`` and return its server.

    Raises:
        CommandError: there is no such file, or it is not clear which object is the server.
    """
    path, name = split_spec(spec)
    if not os.path.isfile(path):
        raise Failure(f"there is no file {path}", Exit.CONFIG)
    check_library(path)
    module = _load(os.path.abspath(path))
    return _find(module, path) if name is None else _named(module, path, name)


def check_library(path: str) -> None:
    """Raise if a file creates a server of another library, which can be started but not loaded. The file does not run.

    Raises:
        CommandError: it does; the message has the command that starts it.
    """
    library = _other_library(path)
    if library is not None:
        import shlex

        command = shlex.join(["python", os.path.abspath(path)])
        raise Failure(
            f'{path} is a server of another library ({library}): use the command that starts it, "{command}"',
            Exit.CONFIG,
        )


def _other_library(path: str) -> str | None:
    """Return the library whose server a file creates, judging by its source; None for ours, or if unknown."""
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError:
        return None
    if b"trunkline" in source or b"mcp" not in source:
        # True for most files, so that the parser need not be loaded.
        return None
    import ast

    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    nodes = list(ast.walk(tree))
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    imported = {name.partition(".")[0] for name in modules}
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    names = {func.id for func in called if isinstance(func, ast.Name)}
    names |= {func.attr for func in called if isinstance(func, ast.Attribute)}
    return min(imported & _OTHER_LIBRARIES, default=None) if names & _OTHER_SERVERS else None


def _load(path: str) -> ModuleType:
    from importlib.machinery import SourceFileLoader
    from importlib.util import module_from_spec, spec_from_loader

    name = os.path.splitext(os.path.basename(path))[0]
    if name in sys.modules:
        # A file may have the name of a module that is already loaded: json.py, server.py.
        name = f"{name} (file)"
    loader = SourceFileLoader(name, path)
    spec = spec_from_loader(name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    # Annotations are resolved by the name of the module, and a file that imports this one must get the same server.
    sys.modules[name] = module
    sys.path.insert(0, os.path.dirname(path))
    sys.argv = [path]
    try:
        loader.exec_module(module)
    except Exception as error:
        raise Failure(_users_traceback(error, path), Exit.CONFIG) from error
    return module


def _users_traceback(error: Exception, path: str) -> str:
    """Format an exception of a file, from the file's own first frame on."""
    import traceback

    frames: TracebackType | None = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != path:
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
    return f"{path} cannot be loaded:\n{text}"


def _find(module: ModuleType, path: str) -> Server:
    servers = _servers(module)
    for name in _USUAL_NAMES:
        if name in servers:
            return servers[name]
    distinct = {id(server): server for server in servers.values()}
    if not distinct:
        raise Failure(f"{path} has no Server; create one: server = Server(...)", Exit.CONFIG)
    if len(distinct) > 1:
        names = ", ".join(sorted(servers))
        raise Failure(f"{path} has several servers ({names}); choose one, such as {path}:{min(servers)}", Exit.CONFIG)
    return next(iter(distinct.values()))


def _named(module: ModuleType, path: str, name: str) -> Server:
    from trunkline import Server

    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = ", ".join(sorted(_servers(module))) or "none"
            raise Failure(f"{path} has no object {name} (servers: {known})", Exit.CONFIG)
        found = getattr(found, part)
    if not isinstance(found, Server):
        raise Failure(f"{path}:{name} is not a Server but a {type(found).__name__}", Exit.CONFIG)
    return found


def _servers(module: ModuleType) -> dict[str, Server]:
    from trunkline import Server

    return {name: value for name, value in vars(module).items() if isinstance(value, Server)}
