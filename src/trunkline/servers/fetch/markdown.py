"""An HTML tree as Markdown: headings, paragraphs, lists, links, code, tables, quotes, and images by their alt text.

Blocks are written line by line under a stack of prefixes, so that nothing is copied again for each level of nesting;
output beyond ``max_chars`` is cut. Links and images come out absolute and over http or https, or as their text only: no
link of a page comes out as one that runs code, reads a file or contains a control character.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType

from msgspec import Struct

from trunkline.servers.fetch.html_reading import BLOCKS, MAX_WORK, Node, Tree, read_html
from trunkline.servers.fetch.links import CONTROLS, Links
from trunkline.servers.fetch.main_content import main_content, page_title
from trunkline.servers.fetch.tables import rows_of

__all__ = ["Markdown", "html_to_markdown"]

_MAX_PREFIXES = 8
# A link around blocks is written on one line if it has at most this much text and this many pieces.
_CARD, _CARD_PIECES = 300, 200
_SHORT = 20
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
# The mark around the text of an element, and what the text must not contain because it would end the mark.
_MARKS = MappingProxyType(
    {
        **dict.fromkeys(("b", "strong"), ("**", "**")),
        **dict.fromkeys(("em", "i"), ("*", "*")),
        **dict.fromkeys(("code", "kbd", "samp", "tt"), ("`", "`")),
        **dict.fromkeys(("del", "s", "strike"), ("~~", "~")),
    }
)
_LISTS = frozenset({"dir", "menu", "ol", "ul"})
_LANGUAGE = re.compile(r"(?:^|\s)(?:language|lang|highlight-source)-([A-Za-z0-9+#_-]{1,20})(?:$|\s)")
_BREAK = "\0"
# Link texts of permalinks beside headings.
_PERMALINKS = frozenset("#§¶\U0001f517")
_TICKS = re.compile(r"`+")


class Markdown(Struct, frozen=True):
    """A page as Markdown; empty if there is no content."""

    text: str
    #: False if the page exceeded the limit of markup or text.
    is_whole: bool


def html_to_markdown(text: str, url: str, *, max_chars: int, max_work: int = MAX_WORK) -> Markdown:
    """Convert the main content of a page to Markdown, up to ``max_chars`` and ``max_work``."""
    # Within a line the null character represents a line break.
    page = read_html(text.replace(_BREAK, "\ufffd"), max_work=max_work)
    links = Links(_base_of(page, url), max_chars=max_chars)
    content = main_content(page)
    writer = _Writer(links, max_chars, content.levels)
    try:
        writer.page(content.node)
        is_whole = page.is_whole and links.is_whole
    except _Full:
        is_whole = False
    body = writer.text()
    title = page_title(page) if body and not writer.has_title else ""
    return Markdown(f"# {_plain(title)}\n\n{body}" if title else body, is_whole)


def _base_of(page: Tree, url: str) -> str:
    for node in page.nodes:
        if node.tag == "base" and node.given("href"):
            return Links(url).absolute(node.given("href")) or url
    return url


class _Full(Exception):
    """The output limit is reached."""


class _Writer:
    """Writes blocks; inline content between them is collected into a line."""

    def __init__(self, links: Links, max_chars: int, levels: Sequence[int]) -> None:
        self._where = links
        self._room = max_chars
        # The kind of blocks in each element, by index.
        self._levels = levels
        self._lines: list[str] = []
        self._line: list[str] = []
        # The prefix of each line of a block, and the marker that replaces it on the first line.
        self._prefixes: list[str] = []
        self._prefix = ""
        self._marker = ""
        self._gap = False
        self._lists = 0
        self._links = 0
        self.has_title = False

    def text(self) -> str:
        """Return the text written so far."""
        return "\n".join(self._lines).strip("\n")

    # --- blocks ------------------------------------------------------------------------------------------------------

    def page(self, content: Node) -> None:
        """Write the whole content."""
        self.block(content)
        self.end()

    def block(self, node: Node) -> None:
        """Write the children of an element, block by block."""
        for child in node.children:
            if isinstance(child, str):
                self._line.append(child)
            elif child.tag in BLOCKS:
                if self._line:
                    self.end()
                self._write(child)
                if self._line:
                    self.end()
            elif not self._levels[child.place] or (child.tag == "a" and _is_short(child)):
                self._line.append(self.inline(child))
            else:
                self.block(child)

    def end(self) -> None:
        """Write the collected line, if it is not empty."""
        text = _one_paragraph("".join(self._line))
        self._line.clear()
        if text:
            self._put(text.split("\n"))

    def _write(self, node: Node) -> None:
        tag = node.tag
        if tag in _HEADINGS:
            self._heading(node, int(tag[1]))
        elif tag in ("pre", "xmp"):
            self._code(node)
        elif tag == "blockquote":
            self._under("> ", "> ", node)
        elif tag in _LISTS:
            self._list(node)
        elif tag == "hr":
            self._put(["---"])
        elif tag == "table":
            self._table(node)
        elif tag == "dt":
            self._line.append(_wrapped(self.inline(node), "**"))
        else:
            self.block(node)

    def _heading(self, node: Node, level: int) -> None:
        text = _one_line(self.inline(node))
        if text:
            self.has_title = self.has_title or level == 1
            self._put([f"{'#' * level} {text}"])

    def _code(self, node: Node) -> None:
        text = CONTROLS.sub("", "".join(node.pieces()).replace("\r\n", "\n").replace("\t", "    ")).strip("\n")
        if not text.strip():
            return
        inner = next((child for child in node.children if isinstance(child, Node) and child.tag == "code"), node)
        names = f"{node.given('class')} {inner.given('class')}"[:500]
        language = _LANGUAGE.search(names)
        longest = max((len(run) for run in _TICKS.findall(text)), default=0)
        fence = "`" * max(3, longest + 1)
        self._put([f"{fence}{language.group(1) if language else ''}", *text.split("\n"), fence])

    def _list(self, node: Node) -> None:
        """Write a list without blank lines between its items, nested lists included."""
        number = _number(node.given("start"))
        self._gap = not self._lists
        self._lists += 1
        for child in node.children:
            if isinstance(child, str):
                continue
            if child.tag in _LISTS:
                self._list(child)
            else:
                marker = f"{number}. " if node.tag == "ol" else "* "
                number += 1
                self._under(marker, " " * len(marker), child)
            self._gap = False
        self._lists -= 1
        self._gap = True

    def _under(self, first: str, rest: str, node: Node) -> None:
        """Write a block with a prefix on each line."""
        if len(self._prefixes) >= _MAX_PREFIXES:
            self.block(node)
            self.end()
            return
        outside = self._prefix
        self._marker = (self._marker or outside) + first
        self._prefixes.append(rest)
        self._prefix = outside + rest
        self.block(node)
        self.end()
        self._prefixes.pop()
        self._prefix = outside
        self._marker = ""

    def _table(self, node: Node) -> None:
        """Write a data table as a table, and a layout table as its blocks."""
        rows = rows_of(node, self._levels)
        if rows is None:
            self.block(node)
            return
        cells = [["" if cell is None else self._cell(cell) for cell in row] for row in rows]
        width = max(map(len, cells))
        lines = [f"| {' | '.join(row + [''] * (width - len(row)))} |" for row in cells[: self._room // width + 1]]
        self._put([lines[0], f"|{' --- |' * width}", *lines[1:]])

    def _cell(self, cell: Node) -> str:
        return _one_line(self.inline(cell)).replace("|", "\\|")

    def _put(self, lines: list[str]) -> None:
        """Write the lines of one block, up to the output limit."""
        if self._gap and self._lines:
            gap = "".join(self._prefixes[:-1] if self._marker else self._prefixes).rstrip()
            self._room -= len(gap) + 1
            self._lines.append(gap)
        rest = self._prefix
        for line in lines:
            made = (self._marker or rest) + line
            self._marker = ""
            self._room -= len(made) + 1
            if self._room < 0:
                self._lines.append(made[: max(0, len(made) + self._room)])
                raise _Full
            self._lines.append(made)
        self._gap = True

    # --- in a line ---------------------------------------------------------------------------------------------------

    def inline(self, node: Node) -> str:
        """Return an element as inline Markdown."""
        tag = node.tag
        if tag == "br":
            return _BREAK
        if tag == "img":
            return self._image(node)
        if tag == "a":
            return self._link(node)
        inside = self._inside(node)
        marks = _MARKS.get(tag)
        return inside if marks is None or marks[1] in inside else _wrapped(inside, marks[0])

    def _inside(self, node: Node) -> str:
        pieces: list[str] = []
        for child in node.children:
            if isinstance(child, str):
                pieces.append(child)
            elif child.tag in BLOCKS:
                # The words of a block stay separate from those around it.
                pieces += (" ", self.inline(child), " ")
            else:
                pieces.append(self.inline(child))
        return "".join(pieces)

    def _link(self, node: Node) -> str:
        """Return a link; a nested link, which Markdown does not have, becomes its text."""
        where = "" if self._links else self._where.absolute(node.given("href"))
        self._links += bool(where)
        inside = self._inside(node)
        self._links -= bool(where)
        if len(inside) <= _SHORT and _one_line(inside) in _PERMALINKS:
            return ""
        # Links may be nested deeply; only the outermost needs a pass over all of its text.
        text = _one_line(inside) if where else ""
        if not text:
            return inside
        if "[" in text or "]" in text:
            text = text.replace("[", "\\[").replace("]", "\\]")
        return f"{_lead(inside)}[{text}]({where}){_trail(inside)}"

    def _image(self, node: Node) -> str:
        text = " ".join(node.given("alt").split())
        where = "" if self._links or not text else self._where.absolute(node.given("src"))
        return f"![{text.replace('[', '(').replace(']', ')')}]({where})" if where else text


# --- text ------------------------------------------------------------------------------------------------------------


def _is_short(node: Node) -> bool:
    """Return True if a link around blocks is short enough for one line."""
    waiting: list[Node | str] = [node]
    length = passed = 0
    while waiting and length <= _CARD and passed <= _CARD_PIECES:
        each = waiting.pop()
        passed += 1
        if isinstance(each, str):
            length += len(each)
        else:
            waiting += each.children
    return not waiting and length <= _CARD


def _one_paragraph(text: str) -> str:
    """Return collected inline content as a paragraph, with the line breaks of the page."""
    if _BREAK not in text:
        return _plain(" ".join(text.split())).strip()
    return "\n".join(_plain(" ".join(part.split())) for part in text.split(_BREAK)).strip()


def _one_line(text: str) -> str:
    return _plain(" ".join(text.replace(_BREAK, " ").split()))


def _plain(text: str) -> str:
    return text if text.isprintable() else CONTROLS.sub("", text)


def _wrapped(text: str, mark: str) -> str:
    inside = _one_line(text)
    return f"{_lead(text)}{mark}{inside}{mark}{_trail(text)}" if inside else text


def _lead(text: str) -> str:
    return " " if text[:1].isspace() else ""


def _trail(text: str) -> str:
    return " " if text[-1:].isspace() else ""


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else 1
