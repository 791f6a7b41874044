"""Reads the imports of a server's source: what it asks of ``mcp`` and ``fastmcp``, and what of it is not here.

Nothing is run. A name is found in ``from mcp.types import Tool`` and in ``types.Tool`` after ``import mcp.types as
types``. Imports under ``try`` with ``except ImportError``, and under ``TYPE_CHECKING``, are optional and not reported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from trunkline_compat.surface import find_name, is_module
from trunkline_compat.versions import PACKAGES

__all__ = ["Missing", "requested", "scan"]


class Missing(NamedTuple):
    """A name that a file asks for and that is not here."""

    name: str
    path: str
    line: int

    def __str__(self) -> str:
        """Return the name with its file and line."""
        return f"{self.name} ({self.path}:{self.line})"


class Requested(NamedTuple):
    """A name that a file asks for: the module, the name in it or nothing, and the line."""

    module: str
    name: str
    line: int
    optional: bool


def scan(paths: Iterable[str]) -> list[Missing]:
    """Return what files ask for and is not here, each name once per file."""
    found: dict[tuple[str, str], Missing] = {}
    for path in paths:
        try:
            with open(path, "rb") as file:
                tree = ast.parse(file.read())
        except (OSError, SyntaxError, ValueError):
            continue
        for each in requested(tree):
            if each.optional or _is_here(each):
                continue
            name = f"{each.module}.{each.name}" if each.name else each.module
            found.setdefault((path, name), Missing(name, path, each.line))
    return list(found.values())


def _is_here(each: Requested) -> bool:
    if not is_module(each.module):
        return False
    if not each.name or each.name in ("*", "__version__"):
        return True
    return is_module(f"{each.module}.{each.name}") or find_name(each.module, each.name) is not None


def requested(tree: ast.Module) -> Iterator[Requested]:
    """Yield what a module asks for of the replaced packages."""
    optional = _optional_lines(tree)
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _is_replaced(alias.name):
                    modules[alias.asname or alias.name.partition(".")[0]] = alias.name if alias.asname else ""
                    yield Requested(alias.name, "", node.lineno, node.lineno in optional)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module and _is_replaced(node.module):
            for alias in node.names:
                yield Requested(node.module, alias.name, node.lineno, node.lineno in optional)
                if is_module(f"{node.module}.{alias.name}") and find_name(node.module, alias.name) is None:
                    modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and modules.get(node.value.id):
            yield Requested(modules[node.value.id], node.attr, node.lineno, node.lineno in optional)


def _is_replaced(name: str) -> bool:
    return name.partition(".")[0] in PACKAGES


def _optional_lines(tree: ast.Module) -> set[int]:
    """Return the lines that stand under ``try`` or ``if TYPE_CHECKING``."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        guarded: list[ast.stmt] = []
        if (isinstance(node, ast.Try) and any(_catches_imports(handler) for handler in node.handlers)) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        ):
            guarded = node.body
        for each in guarded:
            lines.update(range(each.lineno, (each.end_lineno or each.lineno) + 1))
    return lines


def _catches_imports(handler: ast.ExceptHandler) -> bool:
    caught = "" if handler.type is None else ast.unparse(handler.type)
    return handler.type is None or any(name in caught for name in ("ImportError", "ModuleNotFound", "Exception"))
