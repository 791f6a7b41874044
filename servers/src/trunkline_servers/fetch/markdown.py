"""An HTML tree as Markdown.

Headings, paragraphs, lists, links, code, tables, quotes, and images by their alternative text. Blocks are written
line by line under a stack of prefixes, and output beyond ``max_chars`` is cut. Links come out absolute and over http,
https or mailto, or as their text alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType
from urllib.parse import urljoin, urlsplit

from msgspec import Struct

from trunkline_servers.fetch.html_tree import BLOCKS, MAX_WORK, HtmlNode, HtmlTree, parse_html
from trunkline_servers.fetch.main_content import LARGE, find_main_content, page_title

__all__ = ["CONTROLS", "LinkResolver", "Markdown", "data_rows", "html_to_markdown"]

#: Control characters, including those that change the direction of text.
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_MAX_LINK = 2000
# The folders of the base URL are processed for each unusual link that is relative to them.
_MAX_FOLDERS = 100
_MAX_UNUSUAL = 5000
_CHARS = r"\w.~!$&'*+,=@%-"
_QUERY_AND_FRAGMENT = rf"(?:\?[{_CHARS}:;/?]++)?(?:#[{_CHARS}:;/?]++)?"
_ABSOLUTE = re.compile(
    rf"(?:https?://[A-Za-z0-9.-]++(?::\d{{1,5}})?(?:/[{_CHARS}:;/]*+)?{_QUERY_AND_FRAGMENT}|mailto:[\w.+-]++@[\w.-]++)"
)
# Without empty segments, "." or "..".
_RELATIVE = re.compile(rf"(/?)(?:(?!\.\.?(?:[/?#]|\Z))[{_CHARS}]++(?:/|(?=[?#]|\Z)))+{_QUERY_AND_FRAGMENT}")
_ENCODED = ((" ", "%20"), ("<", "%3C"), (">", "%3E"), ('"', "%22"))


class LinkResolver:
    """Resolves the links of a page against its URL."""

    def __init__(self, base: str, *, max_chars: int = 10 * _MAX_LINK) -> None:
        """Split the base URL; all resolved links together have at most ``max_chars`` characters."""
        #: False once a link was dropped: unusual links are slow to resolve, links to a long base are long, and a page
        #: may have many.
        self.is_whole = True
        self._room = max_chars
        self._unusual_left = _MAX_UNUSUAL
        self._base = base
        parts = urlsplit(base)
        self._scheme = f"{parts.scheme}:"
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._folder = urljoin(base, ".")
        self._is_usual = self._folder.endswith("/") and _ABSOLUTE.fullmatch(self._folder) is not None
        self._is_deep = self._folder.count("/") > _MAX_FOLDERS

    def absolute(self, given: str) -> str:
        """Return a link of the page as an absolute URL; empty if it cannot be followed."""
        made = self._made(given.strip())
        self._room -= len(made)
        if self._room >= 0:
            return made
        self.is_whole = False
        return ""

    def _made(self, given: str) -> str:
        if self._room < 0 or not given or len(given) > _MAX_LINK or given[0] == "#":
            return ""
        if _ABSOLUTE.fullmatch(given) is not None:
            return given
        relative = _RELATIVE.fullmatch(given) if self._is_usual else None
        if relative is not None:
            return f"{self._origin if relative.group(1) else self._folder}{given}"
        if given.startswith("//") and _ABSOLUTE.fullmatch(self._scheme + given) is not None:
            return self._scheme + given
        self._unusual_left -= 1
        if self._unusual_left < 0:
            self.is_whole = False
            return ""
        return "" if CONTROLS.search(given) else self._unusual(given)

    def _unusual(self, given: str) -> str:
        try:
            if self._is_deep and not (given[0] == "/" or urlsplit(given).scheme):
                return ""
            made = urljoin(self._origin if self._is_deep else self._base, given)
            parts = urlsplit(made)
            sound = parts.scheme == "mailto" or (parts.scheme in ("http", "https") and bool(parts.hostname))
        except ValueError:
            return ""
        if not sound or any(mark in made for mark in "\n\t\r\\"):
            return ""
        for mark, encoded in _ENCODED:
            made = made.replace(mark, encoded)
        if made.count("(") != made.count(")") or made.find(")") < made.find("("):
            made = made.replace("(", "%28").replace(")", "%29")
        return made


_MAX_COLUMNS = 60
_PARTS = frozenset({"tbody", "tfoot", "thead"})


def data_rows(table: HtmlNode, levels: Sequence[int]) -> list[list[HtmlNode | None]] | None:
    """Return the rows of a data table, None for an empty cell; None if it is a layout table or has one column.

    ``levels`` is the kind of blocks in each element, by index.
    """
    rows = [row for row in map(_cells, _rows(table)) if row]
    if not rows or max(map(len, rows)) < 2:
        return None
    return None if any(cell is not None and levels[cell.place] >= LARGE for row in rows for cell in row) else rows


def _rows(table: HtmlNode) -> list[HtmlNode]:
    found: list[HtmlNode] = []
    for child in table.children:
        if isinstance(child, HtmlNode):
            inside = child.children if child.tag in _PARTS else [child]
            found.extend(row for row in inside if isinstance(row, HtmlNode) and row.tag == "tr")
    return found


def _cells(row: HtmlNode) -> list[HtmlNode | None]:
    """Return the cells of a row; one that spans columns is followed by empty cells."""
    cells: list[HtmlNode | None] = []
    for child in row.children:
        if isinstance(child, HtmlNode) and child.tag in ("td", "th"):
            cells.append(child)
            span = child.given("colspan")
            if span in ("2", "3", "4", "5", "6", "7", "8", "9") and len(cells) < _MAX_COLUMNS:
                cells.extend([None] * (int(span) - 1))
    return cells[:_MAX_COLUMNS]


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
    page = parse_html(text.replace(_BREAK, "\ufffd"), max_work=max_work)
    links = LinkResolver(_base_of(page, url), max_chars=max_chars)
    content = find_main_content(page)
    writer = _MarkdownWriter(links, max_chars, content.levels)
    try:
        writer.page(content.node)
        is_whole = page.is_whole and links.is_whole
    except _OutputFull:
        is_whole = False
    body = writer.text()
    title = page_title(page) if body and not writer.has_title else ""
    return Markdown(f"# {_plain(title)}\n\n{body}" if title else body, is_whole)


def _base_of(page: HtmlTree, url: str) -> str:
    for node in page.nodes:
        if node.tag == "base" and node.given("href"):
            return LinkResolver(url).absolute(node.given("href")) or url
    return url


class _OutputFull(Exception):
    """The output limit is reached."""


class _MarkdownWriter:
    """Writes blocks; inline content between them is collected into a line."""

    def __init__(self, links: LinkResolver, max_chars: int, levels: Sequence[int]) -> None:
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

    def page(self, content: HtmlNode) -> None:
        """Write the whole content."""
        self.block(content)
        self.end()

    def block(self, node: HtmlNode) -> None:
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

    def _write(self, node: HtmlNode) -> None:
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

    def _heading(self, node: HtmlNode, level: int) -> None:
        text = _one_line(self.inline(node))
        if text:
            self.has_title = self.has_title or level == 1
            self._put([f"{'#' * level} {text}"])

    def _code(self, node: HtmlNode) -> None:
        text = CONTROLS.sub("", "".join(node.pieces()).replace("\r\n", "\n").replace("\t", "    ")).strip("\n")
        if not text.strip():
            return
        inner = next((child for child in node.children if isinstance(child, HtmlNode) and child.tag == "code"), node)
        names = f"{node.given('class')} {inner.given('class')}"[:500]
        language = _LANGUAGE.search(names)
        longest = max((len(run) for run in _TICKS.findall(text)), default=0)
        fence = "`" * max(3, longest + 1)
        self._put([f"{fence}{language.group(1) if language else ''}", *text.split("\n"), fence])

    def _list(self, node: HtmlNode) -> None:
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

    def _under(self, first: str, rest: str, node: HtmlNode) -> None:
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

    def _table(self, node: HtmlNode) -> None:
        """Write a data table as a table, and a layout table as its blocks."""
        rows = data_rows(node, self._levels)
        if rows is None:
            self.block(node)
            return
        cells = [["" if cell is None else self._cell(cell) for cell in row] for row in rows]
        width = max(map(len, cells))
        lines = [f"| {' | '.join(row + [''] * (width - len(row)))} |" for row in cells[: self._room // width + 1]]
        self._put([lines[0], f"|{' --- |' * width}", *lines[1:]])

    def _cell(self, cell: HtmlNode) -> str:
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
                raise _OutputFull
            self._lines.append(made)
        self._gap = True

    # --- in a line ---------------------------------------------------------------------------------------------------

    def inline(self, node: HtmlNode) -> str:
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

    def _inside(self, node: HtmlNode) -> str:
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

    def _link(self, node: HtmlNode) -> str:
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

    def _image(self, node: HtmlNode) -> str:
        text = " ".join(node.given("alt").split())
        where = "" if self._links or not text else self._where.absolute(node.given("src"))
        return f"![{text.replace('[', '(').replace(']', ')')}]({where})" if where else text


# --- text ------------------------------------------------------------------------------------------------------------


def _is_short(node: HtmlNode) -> bool:
    """Return True if a link around blocks is short enough for one line."""
    waiting: list[HtmlNode | str] = [node]
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
