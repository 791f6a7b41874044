"""What the tests of the configuration share: files made of Python values, and what is read from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trunkline.host.config.loading import InputPrompt, load_configuration
from trunkline.host.config.model import Configuration, ServerEntry

__all__ = ["entry", "given", "problem", "warnings", "write"]


def write(path: Path, content: str | bytes | Mapping[str, Any]) -> Path:
    """Make a file, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1), encoding="utf-8")
    return path


def given(
    folder: Path,
    content: str | bytes | Mapping[str, Any],
    environ: Mapping[str, str] | None = None,
    *,
    inputs: InputPrompt | None = None,
) -> Configuration:
    """Read a document as the file that the user named."""
    path = write(folder / "mcp.json", content)
    return load_configuration(given=[path], environ={"HOME": "/home/ada"} | dict(environ or {}), inputs=inputs)


def entry(folder: Path, members: object, environ: Mapping[str, str] | None = None) -> ServerEntry:
    """Read one entry."""
    return given(folder, {"mcpServers": {"one": members}}, environ).entries["one"]


def problem(folder: Path, members: object, environ: Mapping[str, str] | None = None) -> str:
    """Read one entry that has a problem; give its sentence."""
    found = entry(folder, members, environ)
    assert found.problem is not None
    assert (found.command, found.url) == (None, None)
    return found.problem


def warnings(folder: Path, members: object) -> list[str]:
    """Read one entry without a problem; give the warnings about it."""
    configuration = given(folder, {"mcpServers": {"one": members}})
    assert configuration.entries["one"].problem is None
    assert {each.severity for each in configuration.problems} <= {"warning"}
    return [str(each) for each in configuration.problems]
