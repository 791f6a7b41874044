"""The Markdown pages of the project and the code blocks in them.

Three comments have a meaning: ``file`` before a block names the file that it shows, ``needs`` before a block a package
that it needs and that may not be installed, and ``served`` anywhere on a page a file whose server its blocks call at
127.0.0.1:8000.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["ROOT", "Block", "blocks", "module_of", "pages", "served"]

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(
    r"^(?:<!-- file: (?P<file>\S+) -->\n)?(?:<!-- needs: (?P<needs>\w+) -->\n)?"
    r"```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.M | re.S,
)
_MODULE = re.compile(r"^<!-- module: (\w+) -->$", re.M)
_SERVED = re.compile(r"^<!-- served: (\S+) -->$", re.M)


class Block(NamedTuple):
    """A fenced block: its language, text and line, the file that it shows, and the package it needs."""

    page: Path
    line: int
    language: str
    text: str
    file: str | None
    needs: str | None

    @property
    def name(self) -> str:
        """The page and line, for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Return the pages whose blocks are tested."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """Return the fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start("text"))
        yield Block(page, line, found["language"], found["text"], found["file"], found["needs"])


def module_of(page: Path) -> str | None:
    """Return the name under which blocks of a page import what earlier blocks define; None if they do not."""
    found = _MODULE.search(page.read_text(encoding="utf-8"))
    return None if found is None else found.group(1)


def served(page: Path) -> str | None:
    """Return the file whose server the blocks of a page call; None if they call none."""
    found = _SERVED.search(page.read_text(encoding="utf-8"))
    return None if found is None else found.group(1)
