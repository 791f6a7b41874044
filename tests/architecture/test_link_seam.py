"""The seam between transports and the rest: Link declares all that is used of it, and only transports know framing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import trunkline

PACKAGE = Path(trunkline.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
ABOVE = [
    PACKAGE / "connection.py",
    *sorted((PACKAGE / "server").rglob("*.py")),
    *sorted((PACKAGE / "client").rglob("*.py")),
]


@cache
def tree(path: Path) -> ast.Module:
    """Parse a file once."""
    return ast.parse(path.read_text())


def imports(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports from."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def reads_by_name(path: Path) -> Iterator[str]:
    """Yield each ``getattr`` whose object is a link."""
    for node in ast.walk(tree(path)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("getattr", "hasattr")
            and ast.unparse(node.args[0]).rpartition(".")[2] in ("link", "_link")
        ):
            yield ast.unparse(node)


def test_only_transports_know_that_messages_are_lines() -> None:
    framing = {
        path.relative_to(PACKAGE).parts[0] for path in SOURCES if "trunkline.protocol.line_framing" in imports(path)
    }
    assert framing == {"transports"}


@pytest.mark.parametrize("path", ABOVE, ids=[str(path.relative_to(PACKAGE)) for path in ABOVE])
def test_nothing_above_a_link_cuts_or_joins_lines(path: Path) -> None:
    literals = {node.value for node in ast.walk(tree(path)) if isinstance(node, ast.Constant)}
    assert not literals & {b"\n", b"\r\n", b"\r"}


def test_no_member_of_a_link_is_found_by_its_name() -> None:
    assert [found for path in SOURCES for found in reads_by_name(path)] == []
