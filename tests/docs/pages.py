"""The Markdown pages of the project and the code blocks in them.

A block with a title (```` ```python title="books.py" ````) is a file that the reader writes; the same title again adds
to that file. Comments before a block have a meaning:

- ``<!-- file: PATH -->``: the block shows this file of the repository;
- ``<!-- needs: PACKAGE -->``: the block needs a package that may not be installed;
- ``<!-- first: COMMANDS -->``: commands that create what the text around the block takes for granted;
- ``<!-- input: TEXT -->``: what the reader types when the commands of the block ask;
- ``<!-- not run: REASON -->``: the block cannot run in a test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["ROOT", "Block", "blocks", "pages"]

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(
    r"^(?P<comments>(?:<!-- (?:(?!-->).)+ -->\n|<!-- first:\n(?:(?!-->).)+?-->\n)*)"
    r"```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$",
    re.M | re.S,
)
_COMMENT = re.compile(r"<!-- (file|needs|first|input|not run): ?\n?(.+?)\n?(?: )?-->", re.S)


class Block(NamedTuple):
    """A fenced block, and what the comments before it say."""

    page: Path
    line: int
    language: str
    text: str
    title: str | None = None
    file: str | None = None
    needs: str | None = None
    first: str = ""
    input: str = ""
    not_run: str | None = None

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
        said = {name: value.strip() for name, value in _COMMENT.findall(found["comments"])}
        yield Block(
            page,
            line,
            found["language"],
            found["text"],
            title=found["title"],
            file=said.get("file"),
            needs=said.get("needs"),
            first=said.get("first", ""),
            input=said.get("input", ""),
            not_run=said.get("not run"),
        )
