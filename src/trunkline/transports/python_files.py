"""How the server of a Python file is started: one decision for ``Client``, the commands and the host.

A file with a server at its top level is imported by ``trunkline run``, which serves it over stdio; it needs no
``server.run()``, and code under ``if __name__ == "__main__"`` does not run. Another file that starts itself, such as
one for the official SDK with ``mcp.run()``, is run as a program. The decision reads the source and executes nothing.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ast

__all__ = ["USUAL_NAMES", "PythonFile", "launch_python_file", "library_of_server", "split_spec"]

#: The names that are searched for a server, in this order.
USUAL_NAMES = ("server", "mcp", "app")
#: Other libraries for servers, and the names of their server classes.
_OTHER_LIBRARIES = frozenset({"mcp", "fastmcp"})
_SERVER_CLASSES = frozenset({"FastMCP", "MCPServer", "Server"})
#: A statement at the top level that calls one of these runs until the client disconnects.
_ENTRY_POINTS = frozenset({"main", "run"})


class PythonFile(NamedTuple):
    """The launch of a Python file."""

    command: list[str]
    #: Environment variables that the server needs besides those the user gives.
    env: dict[str, str]
    #: FILE[:OBJECT] with the absolute path, if ``trunkline run`` serves it; None if the file is run as a program.
    spec: str | None


def split_spec(spec: str) -> tuple[str, str | None]:
    """Split ``FILE[:object]`` into the path and the object's name; a file that exists as written has no object."""
    path, colon, name = spec.rpartition(":")
    if not colon or os.path.exists(spec):
        return spec, None
    return path, name


def launch_python_file(path: str, name: str | None = None) -> PythonFile:
    """Return how the server of a file that exists is started; ``name`` is the server's name in it."""
    # The file is the user's own program: it finds the modules that their other programs find.
    env = {key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ}
    path = os.path.abspath(path)
    if name is None and _starts_itself(path):
        return PythonFile([sys.executable, path], env, None)
    spec = path if name is None else f"{path}:{name}"
    # -P: the server's modules must not come from the current directory.
    return PythonFile([sys.executable, "-P", "-m", "trunkline", "run", "--", spec], env, spec)


def library_of_server(path: str) -> str | None:
    """Return the library other than ours whose server a file creates; None if there is none, or it is unknown."""
    source = _read_source(path)
    if b"trunkline" in source or b"mcp" not in source:
        # True for most files, so that the parser need not be loaded.
        return None
    tree = _parse(source)
    if tree is None:
        return None
    import ast

    nodes = list(ast.walk(tree))
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    imported = {name.partition(".")[0] for name in modules}
    return min(imported & _OTHER_LIBRARIES, default=None) if _called_names(nodes) & _SERVER_CLASSES else None


def _starts_itself(path: str) -> bool:
    """Return whether a file has to be run as a program, judging by its source."""
    source = _read_source(path)
    is_ours = b"trunkline" in source
    if is_ours and not any(word in source for word in (b"__main__", b"run(", b"main(")):
        return False
    tree = _parse(source)
    if tree is None:
        # ``trunkline run`` shows the syntax error.
        return False
    if any(_is_entry_point(statement) for statement in tree.body):
        return True
    has_server = any(_binds_server(statement) for statement in tree.body)
    is_guarded = any(_is_main_guard(statement) for statement in tree.body)
    # Without our name in it, a file may have a server of any library, or answer by itself.
    return (is_guarded and not has_server) if is_ours else (is_guarded or not has_server)


def _read_source(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _parse(source: bytes) -> ast.Module | None:
    import ast

    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None


def _called_names(nodes: list[ast.AST]) -> set[str]:
    import ast

    functions = [node.func for node in nodes if isinstance(node, ast.Call)]
    names = {function.id for function in functions if isinstance(function, ast.Name)}
    return names | {function.attr for function in functions if isinstance(function, ast.Attribute)}


def _is_entry_point(statement: ast.stmt) -> bool:
    import ast

    return isinstance(statement, ast.Expr) and not _ENTRY_POINTS.isdisjoint(_called_names(list(ast.walk(statement))))


def _is_main_guard(statement: ast.stmt) -> bool:
    import ast

    return isinstance(statement, ast.If) and "__main__" in {
        node.value for node in ast.walk(statement.test) if isinstance(node, ast.Constant)
    }


def _binds_server(statement: ast.stmt) -> bool:
    """Return whether a statement at the top level binds a usual name, or the result of a call of a server class."""
    import ast

    if isinstance(statement, ast.Import | ast.ImportFrom):
        return any((alias.asname or alias.name) in USUAL_NAMES for alias in statement.names)
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
        return False
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    return not names.isdisjoint(USUAL_NAMES) or not _SERVER_CLASSES.isdisjoint(_called_names([statement.value]))
