"""A tree of HTML as Markdown: headings, paragraphs, lists, links, code, tables, quotes, and images by their text.

Blocks are written line by line under a stack of prefixes, so that nothing is copied again for each level it lies in;
what would be more than ``max_chars`` is cut. Links and images come out absolute and over http or https, or as their
text alone: no link of a page comes out as one that runs, reads a file or holds a control character.
"""

from __future__ import annotations

import contextlib
import re
from urllib.parse import urljoin, urlsplit

from trunkline.servers.fetch.html_reading import BLOCKS, Node, read_html
from trunkline.servers.fetch.main_content import main_content, page_title
from trunkline.servers.fetch.tables import rows_of

__all__ = ["html_to_markdown"]

_MAX_PREFIXES = 8
_MAX_LINK = 2000
_CARD = 300
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_STRONG, _EMPHASIS = frozenset({"b", "strong"}), frozenset({"em", "i"})
_CODE = frozenset({"code", "kbd", "samp", "tt"})
_LISTS = frozenset({"dir", "menu", "ol", "ul"})
_LANGUAGE = re.compile(r"(?:^|\s)(?:language|lang|highlight-source)-([A-Za-z0-9+#_-]{1,20})(?:$|\s)")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_BREAK = "\0"
# What pages put beside a heading, as a link to it.
_PERMALINKS = frozenset("#§¶\U0001f517")
_TICKS = re.compile(r"`+")


def html_to_markdown(text: str, url: str, *, max_chars: int) -> str:
    """Turn the content of a page that was fetched from a URL into Markdown; empty if nothing is left."""
    # Inside a line the null character stands for a line break.
    page = read_html(text.replace(_BREAK, "\ufffd"))
    title = page_title(page)
    base = _base_of(page, url)
    content = main_content(page)
    writer = _Writer(base, max_chars)
    with contextlib.suppress(_Full):
        writer.page(content)
    body = writer.text()
    if body and title and not writer.has_title:
        return f"# {_CONTROLS.sub('', title)}\n\n{body}"
    return body


def _base_of(page: Node, url: str) -> str:
    for node in page.elements():
        if node.tag == "base" and node.attributes.get("href"):
            return _absolute(url, node.attributes["href"]) or url
    return url


def _absolute(base: str, given: str) -> str:
    """Give a link of a page as an absolute one; empty if it is no link to follow."""
    given = given.strip()
    if not given or len(given) > _MAX_LINK or given.startswith("#") or _CONTROLS.search(given):
        return ""
    try:
        made = urljoin(base, given)
        parts = urlsplit(made)
        sound = parts.scheme == "mailto" or (parts.scheme in ("http", "https") and bool(parts.hostname))
    except ValueError:
        return ""
    if not sound or any(mark in made for mark in "\n\t\r\\"):
        return ""
    for mark, encoded in ((" ", "%20"), ("<", "%3C"), (">", "%3E"), ('"', "%22")):
        made = made.replace(mark, encoded)
    if made.count("(") != made.count(")") or made.find(")") < made.find("("):
        made = made.replace("(", "%28").replace(")", "%29")
    return made


class _Full(Exception):
    """There is no more room."""


class _Writer:
    """Writes blocks; between them what stands inside a line is gathered."""

    def __init__(self, base: str, max_chars: int) -> None:
        self._base = base
        self._room = max_chars
        self._lines: list[str] = []
        self._line: list[str] = []
        # What each line of a block begins with, and what its first line does instead.
        self._prefixes: list[str] = []
        self._marker = ""
        self._gap = False
        self._lists = 0
        self._links = 0
        self._with_blocks: set[int] = set()
        self.has_title = False

    def text(self) -> str:
        """Give what was written so far."""
        return "\n".join(self._lines).strip("\n")

    # --- blocks ------------------------------------------------------------------------------------------------------

    def page(self, content: Node) -> None:
        """Write all there is."""
        for node in reversed(list(content.elements())):
            if any(isinstance(child, Node) and self._is_or_has_block(child) for child in node.children):
                self._with_blocks.add(id(node))
        self.block(content)
        self.end()

    def _is_or_has_block(self, node: Node) -> bool:
        return node.tag in BLOCKS or id(node) in self._with_blocks

    def block(self, node: Node) -> None:
        """Write what is in an element, one block after the other."""
        for child in node.children:
            if isinstance(child, str):
                self._line.append(child)
            elif child.tag in BLOCKS:
                self.end()
                self._write(child)
                self.end()
            elif child.tag == "a" or id(child) not in self._with_blocks:
                self._inline_or_card(child)
            else:
                self.block(child)

    def end(self) -> None:
        """Write the line that was gathered, if anything is in it."""
        text = _one_paragraph(self._line)
        self._line.clear()
        if text:
            self._put(text.split("\n"))

    def _inline_or_card(self, node: Node) -> None:
        """Write an element as part of a line; a link around blocks too, if it is short."""
        if id(node) in self._with_blocks and len(node.text()) > _CARD:
            self.block(node)
        else:
            self._line.append(self.inline(node))

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
        text = _CONTROLS.sub("", node.text().replace("\r\n", "\n").replace("\t", "    ")).strip("\n")
        if not text.strip():
            return
        inner = next((child for child in node.children if isinstance(child, Node) and child.tag == "code"), node)
        names = f"{node.attributes.get('class', '')} {inner.attributes.get('class', '')}"[:500]
        language = _LANGUAGE.search(names)
        longest = max((len(run) for run in _TICKS.findall(text)), default=0)
        fence = "`" * max(3, longest + 1)
        self._put([f"{fence}{language.group(1) if language else ''}", *text.split("\n"), fence])

    def _list(self, node: Node) -> None:
        """Write a list without blank lines between its items, also where it lies in another."""
        number = _number(node.attributes.get("start", "1"))
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
        """Write a block with a prefix before each of its lines."""
        if len(self._prefixes) >= _MAX_PREFIXES:
            self.block(node)
            self.end()
            return
        self._marker = (self._marker or "".join(self._prefixes)) + first
        self._prefixes.append(rest)
        self.block(node)
        self.end()
        self._prefixes.pop()
        self._marker = ""

    def _table(self, node: Node) -> None:
        """Write a table of data as one, and one that only lays out a page as the blocks in it."""
        rows = rows_of(node)
        if rows is None:
            self.block(node)
            return
        cells = [[_one_line(self.inline(cell)).replace("|", "\\|") for cell in row] for row in rows]
        width = max(map(len, cells))
        lines = [f"| {' | '.join(row + [''] * (width - len(row)))} |" for row in cells[: self._room // width + 1]]
        self._put([lines[0], f"|{' --- |' * width}", *lines[1:]])

    def _put(self, lines: list[str]) -> None:
        """Write lines of one block, as far as there is room."""
        if self._gap and self._lines:
            self._lines.append("".join(self._prefixes[:-1] if self._marker else self._prefixes).rstrip())
        rest = "".join(self._prefixes)
        for line in lines:
            made = (self._marker or rest) + line
            self._marker = ""
            self._room -= len(made) + 1
            if self._room < 0:
                self._lines.append(made[: self._room])
                raise _Full
            self._lines.append(made)
        self._gap = True

    # --- in a line ---------------------------------------------------------------------------------------------------

    def inline(self, node: Node) -> str:
        """Give an element as part of a line."""
        tag = node.tag
        if tag == "br":
            return _BREAK
        if tag == "img":
            return self._image(node)
        self._links += tag == "a"
        inside = "".join(
            _spaced(child, self.inline(child)) if isinstance(child, Node) else child for child in node.children
        )
        self._links -= tag == "a"
        if tag == "a":
            return self._link(node, inside)
        if tag in _CODE and "`" not in inside:
            return _wrapped(inside, "`")
        if tag in _STRONG and "**" not in inside:
            return _wrapped(inside, "**")
        if tag in _EMPHASIS and "*" not in inside:
            return _wrapped(inside, "*")
        if tag in ("del", "s", "strike") and "~" not in inside:
            return _wrapped(inside, "~~")
        return inside

    def _link(self, node: Node, inside: str) -> str:
        where = _absolute(self._base, node.attributes.get("href", ""))
        text = _one_line(inside)
        if text in _PERMALINKS:
            return ""
        if not text or not where:
            return inside
        text = text.replace("[", "\\[").replace("]", "\\]")
        return f"{_lead(inside)}[{text}]({where}){_trail(inside)}"

    def _image(self, node: Node) -> str:
        text = " ".join(node.attributes.get("alt", "").split())
        where = "" if self._links else _absolute(self._base, node.attributes.get("src", ""))
        return f"![{text.replace('[', '(').replace(']', ')')}]({where})" if text and where else text


# --- text ------------------------------------------------------------------------------------------------------------


def _spaced(node: Node, text: str) -> str:
    """Keep the words of a block apart from those around it."""
    return f" {text} " if node.tag in BLOCKS else text


def _one_paragraph(pieces: list[str]) -> str:
    """Join what stands in a line; what was a line break in the page is one again."""
    if not pieces:
        return ""
    parts = "".join(pieces).split(_BREAK)
    lines = [_CONTROLS.sub("", " ".join(part.split())) for part in parts]
    return "\n".join(lines).strip()


def _one_line(text: str) -> str:
    return _CONTROLS.sub("", " ".join(text.replace(_BREAK, " ").split()))


def _wrapped(text: str, mark: str) -> str:
    inside = _one_line(text)
    return f"{_lead(text)}{mark}{inside}{mark}{_trail(text)}" if inside else text


def _lead(text: str) -> str:
    return " " if text[:1].isspace() else ""


def _trail(text: str) -> str:
    return " " if text[-1:].isspace() else ""


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else 1
