"""The public names of ``trunkline.server``, and that the reference servers need no others."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import trunkline
import trunkline.server

SERVERS = Path(trunkline.__file__).parent / "servers"
#: What the issue of the public API named: parts of the machinery that reference servers once imported.
PRIVATE = (
    "trunkline.connection",
    "trunkline.server.",
    "trunkline.protocol.downgrade",
    "trunkline.protocol.json_schema",
    "trunkline.protocol.caller",
    "trunkline.timers",
    "trunkline.protocol.revisions",
    "trunkline.protocol.caller",
    "trunkline.timers",
)


@pytest.mark.parametrize("name", trunkline.server.__all__)
def test_a_public_name_is_there(name: str) -> None:
    assert getattr(trunkline.server, name) is not None
    assert name in dir(trunkline.server)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Severance'"):
        _ = trunkline.server.Severance  # type: ignore[attr-defined]


def _imported(path: Path) -> list[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module is not None]


def test_reference_servers_import_no_part_of_the_machinery() -> None:
    found = {
        f"{path.relative_to(SERVERS)}: {module}"
        for path in SERVERS.rglob("*.py")
        for module in _imported(path)
        if module.startswith(PRIVATE)
    }
    assert found == set()
