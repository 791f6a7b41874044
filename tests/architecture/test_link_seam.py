"""The seam between transports and the rest: Link declares all that is used of it, and only transports know framing."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.rules import Module


def imports(module: Module) -> Iterator[str]:
    """Yield the modules that a module imports from."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def reads_by_name(module: Module) -> Iterator[str]:
    """Yield each ``getattr`` whose object is a link."""
    for node in ast.walk(module.tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("getattr", "hasattr")
            and ast.unparse(node.args[0]).rpartition(".")[2] in ("link", "_link")
        ):
            yield f"{module.name}:{node.lineno} {ast.unparse(node)}"


def test_only_transports_know_that_messages_are_lines(source: tuple[Module, ...]) -> None:
    framing = {module.layer for module in source if "trunkline.protocol.line_framing" in imports(module)}
    assert framing == {"transports"}


def test_nothing_above_a_link_cuts_or_joins_lines(source: tuple[Module, ...]) -> None:
    cutting = [
        f"{module.name}:{node.lineno}"
        for module in source
        if module.layer in ("connection", "server", "client")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and node.value in (b"\n", b"\r\n", b"\r")
    ]
    assert cutting == []


def test_no_member_of_a_link_is_found_by_its_name(source: tuple[Module, ...]) -> None:
    assert [read for module in source for read in reads_by_name(module)] == []
