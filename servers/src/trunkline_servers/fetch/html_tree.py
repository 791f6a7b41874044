"""HTML as a tree, parsed in linear time whatever the input: no markup can make it slow, deep or large.

It has its own tokenizer because that of the standard library takes quadratic time for some broken pages in the
supported versions of Python, and parses others differently from version to version. One expression matches a text and
the markup after it; it never fails, so nothing is scanned twice. Elements that are too deep lose their tags and keep
their text. Work is counted: a page with more markup than the limit is cut there, and marked as incomplete.

Character references such as ``&amp;`` and ``&#38;`` are replaced in linear time. Their names are those of the standard
library, whose own function is slow for unknown names. This module does not know which part of a page matters or how it
is shown.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from html.entities import html5
from types import MappingProxyType

__all__ = ["BLOCKS", "MAX_WORK", "HtmlNode", "HtmlTree", "parse_html", "unescape"]

# A code point has at most seven digits; longer numbers are invalid, and not worth converting.
_REFERENCE = re.compile(r"&(?:#(?:[xX]([0-9a-fA-F]++)|([0-9]++));?|([a-zA-Z][a-zA-Z0-9]{1,31}+;?))")
_MOST_DIGITS = 7
# References beyond this number stay as written.
_MOST_IN_A_TEXT = 100_000
# The longest name that needs no semicolon.
_LONGEST_BARE = max(len(name) for name in html5 if not name.endswith(";"))


def unescape(text: str) -> str:
    """Replace the character references in a text; anything else stays."""
    return _REFERENCE.sub(_character, text, count=_MOST_IN_A_TEXT) if "&" in text else text


def _character(found: re.Match[str]) -> str:
    hexadecimal, decimal, name = found.groups()
    if name is not None:
        return html5.get(name) or _longest_prefix(name)
    digits = hexadecimal or decimal
    if len(digits) > _MOST_DIGITS:
        return "\ufffd"
    code = int(digits, 16 if hexadecimal else 10)
    return chr(code) if 0xA0 <= code < 0xD800 or 32 <= code < 127 else html.unescape(f"&#{code};")


def _longest_prefix(name: str) -> str:
    """Resolve the longest prefix that is a reference without semicolon (``&notit`` is ``¬it``), or change nothing."""
    for length in range(min(_LONGEST_BARE, len(name)), 1, -1):
        known = html5.get(name[:length])
        if known is not None:
            return known + name[length:]
    return f"&{name}"


_MAX_DEPTH = 100
#: The work limit of a page.
MAX_WORK = 250_000
# The work of an element, its attributes, and any piece of markup.
_ELEMENT, _ATTRIBUTES, _MARKUP = 2, 2, 1
# This many character references, or attributes of one element, count as one more piece of markup.
_REFERENCES = 4
_MANY = 4
_MAX_LOOKBACK = 12

_VOID_TAGS = "area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr"
_VOID = frozenset(_VOID_TAGS.split())
_RAW = MappingProxyType(
    {
        name: re.compile(rf"</{name}(?=[\s/>])[^>]*+>?", re.IGNORECASE)
        for name in ("iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp")
    }
)
_BLOCK_TAGS = (
    "address article aside blockquote body caption center dd details dialog dir div dl dt fieldset figcaption "
    "figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr html li main menu nav ol p pre search section summary "
    "table tbody td tfoot th thead tr ul xmp"
)
#: Block elements.
BLOCKS = frozenset(_BLOCK_TAGS.split())
_PARAGRAPH = (("p",), frozenset({"td", "th", "table", "button", "object"}))
_ROW_PARTS = ("thead", "tbody", "tr", "td", "th")
# The open elements nearby that a start tag closes, up to an element of the second set.
_ENDS: MappingProxyType[str, tuple[tuple[str, ...], frozenset[str]]] = MappingProxyType(
    {
        "li": (("li",), frozenset({"ul", "ol", "menu", "dir"})),
        "dt": (("dt", "dd"), frozenset({"dl"})),
        "dd": (("dt", "dd"), frozenset({"dl"})),
        "tr": (("tr", "td", "th"), frozenset({"table"})),
        "td": (("td", "th"), frozenset({"tr", "table"})),
        "th": (("td", "th"), frozenset({"tr", "table"})),
        "tbody": (_ROW_PARTS, frozenset({"table"})),
        "tfoot": (_ROW_PARTS, frozenset({"table"})),
        "a": (("a",), frozenset({"table", "td", "th"})),
        "option": (("option",), frozenset({"select"})),
    }
)
# An end tag of an inline element never closes one of these.
_SCOPE_TAGS = frozenset({"article", "body", "html", "li", "main", "section", "table", "td", "th"})

# Attributes beyond the limit are skipped. An unclosed quote extends to the end of the text.
_TOKEN = re.compile(
    r"""
    (.*?)
    (?:
        <(?:
            ([a-zA-Z][^\s/>]*+)
            ((?:[\s/]*+[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:"[^"]*+"?|'[^']*+'?|[^\s>]*+))?){0,32})
            [^>]*+(>?)
            |/([a-zA-Z][^\s/>]*+)[^>]*+>?
            |!--(?:-?>|.*?(?:-->|\Z))
            |[/!?][^>]*+>?
        )
        |\Z
    )
    """,
    re.DOTALL | re.VERBOSE,
)
_ATTRIBUTE = re.compile(r"""[\s/]*+([^\s/>][^\s/>=]*+)(?:\s*+=\s*+(?:"([^"]*+)|'([^']*+)|([^\s>]*+))["']?)?""")
#: The attributes that are kept.
_KEPT_ATTRIBUTES = frozenset(
    {"alt", "aria-hidden", "class", "colspan", "hidden", "href", "id", "role", "src", "start", "style"}
)


class HtmlNode:
    """An element: lower-case tag, attributes, index in the tree, and children (texts and elements) in order."""

    __slots__ = ("attributes", "children", "place", "tag")

    def __init__(self, tag: str, attributes: dict[str, str] | None, place: int) -> None:
        """Create an element without children."""
        self.tag = tag
        self.attributes = attributes
        self.place = place
        self.children: list[HtmlNode | str] = []

    def given(self, name: str) -> str:
        """Return the value of an attribute; empty if it is absent."""
        return self.attributes.get(name, "") if self.attributes is not None else ""

    def pieces(self) -> Iterator[str]:
        """Yield all text in the element as written."""
        waiting: list[HtmlNode | str] = [self]
        while waiting:
            node = waiting.pop()
            if isinstance(node, str):
                yield node
            elif node.tag == "br":
                yield "\n"
            else:
                waiting.extend(reversed(node.children))


class HtmlTree:
    """A page: its elements in document order, with data about each by index."""

    __slots__ = ("is_whole", "nodes", "parents", "title", "weights")

    def __init__(self) -> None:
        """Start with an unnamed root."""
        self.nodes = [HtmlNode("", None, 0)]
        #: The index of the parent of each element.
        self.parents = [0]
        #: The number of own non-space characters of each element.
        self.weights = [0]
        #: The text of the first title; None if there is none.
        self.title: str | None = None
        #: Whether the whole page was parsed.
        self.is_whole = False


def parse_html(text: str, *, max_work: int = MAX_WORK) -> HtmlTree:
    """Parse a page or fragment, up to ``max_work``."""
    reader = _TreeBuilder(text, max_work)
    reader.read()
    return reader.tree


def _attributes(raw: str) -> tuple[dict[str, str] | None, int]:
    """Return the attributes that are kept, and the total number of attributes."""
    found: dict[str, str] = {}
    given = _ATTRIBUTE.findall(raw)
    for name, double, single, bare in given:
        lowered = name.lower()
        if lowered in _KEPT_ATTRIBUTES and lowered not in found:
            found[lowered] = unescape(double or single or bare)
    return found or None, len(given)


class _TreeBuilder:
    """Parses one text from beginning to end."""

    def __init__(self, text: str, max_work: int) -> None:
        self._text = text
        self.tree = HtmlTree()
        self._open = [self.tree.nodes[0]]
        self._counts: dict[str, int] = {}
        self._work = max_work

    def read(self) -> None:
        """Parse until the end or the work limit."""
        at = 0
        while at < len(self._text) and self._work >= 0:
            at = self._read_from(at)
        self.tree.is_whole = at >= len(self._text)

    def _read_from(self, at: int) -> int:
        """Parse up to a raw text element or the work limit; return where to continue."""
        for found in _TOKEN.finditer(self._text, at):
            text, start, raw, closed, end = found.groups()
            if text:
                self._write(self._unescaped(text) if "&" in text else text)
            if start is not None:
                if not closed:
                    # An unclosed tag swallows the rest of the page, as in a browser.
                    break
                tag = start[:64].lower()
                node = self._enter(tag, raw)
                if tag in _RAW:
                    return self._pass_over(node, tag, found.end())
            elif end is not None:
                self._end(end[:64].lower())
            self._work -= _MARKUP
            if self._work < 0:
                return found.end()
        return len(self._text)

    def _unescaped(self, text: str) -> str:
        self._work -= text.count("&") // _REFERENCES
        return unescape(text)

    def _write(self, text: str) -> None:
        node = self._open[-1]
        node.children.append(text)
        if not text.isspace():
            self.tree.weights[node.place] += sum(map(len, text.split()))

    def _pass_over(self, node: HtmlNode | None, tag: str, at: int) -> int:
        """Consume a raw text element; return the position after it."""
        self._work -= _ELEMENT
        end = _RAW[tag].search(self._text, at)
        if tag == "title" and self.tree.title is None:
            self.tree.title = unescape(self._text[at : end.start() if end else None])
        if node is not None:
            if tag == "xmp":
                self._write(self._text[at : end.start() if end else None])
            self._end(tag)
        return end.end() if end else len(self._text)

    # --- the tree ----------------------------------------------------------------------------------------------------

    def _enter(self, tag: str, raw: str) -> HtmlNode | None:
        """Open an element; return None if it would be too deep."""
        counts = self._counts
        if tag in BLOCKS and counts.get("p"):
            self._end_near(*_PARAGRAPH)
        if tag in _ENDS:
            self._end_near(*_ENDS[tag])
        opened, tree = self._open, self.tree
        inside = opened[-1]
        if len(opened) >= _MAX_DEPTH and tag not in _VOID:
            # Words on both sides of a dropped tag stay separate.
            inside.children.append(" ")
            return None
        self._work -= _ELEMENT
        attributes = None
        if raw:
            attributes, count = _attributes(raw)
            self._work -= _ATTRIBUTES + count // _MANY + raw.count("&") // _REFERENCES
        node = HtmlNode(tag, attributes, len(tree.nodes))
        tree.nodes.append(node)
        tree.parents.append(inside.place)
        tree.weights.append(0)
        inside.children.append(node)
        if tag not in _VOID:
            opened.append(node)
            counts[tag] = counts.get(tag, 0) + 1
        return node

    def _end(self, tag: str) -> None:
        """Close the innermost element with that tag, and everything open in it."""
        opened = self._open
        if opened[-1].tag == tag:
            self._pop(1)
        elif not self._counts.get(tag):
            if tag in BLOCKS:
                opened[-1].children.append(" ")
        elif tag in BLOCKS:
            back = 1
            while opened[-back].tag != tag:
                back += 1
            self._pop(back)
        else:
            for back in range(1, min(len(opened), _MAX_LOOKBACK) + 1):
                passed = opened[-back].tag
                if passed == tag:
                    self._pop(back)
                    return
                if passed in _SCOPE_TAGS:
                    return

    def _end_near(self, tags: tuple[str, ...], up_to: frozenset[str]) -> None:
        """Close the outermost of the given elements that is open nearby."""
        counts, opened = self._counts, self._open
        left = 0
        for tag in tags:
            left += counts.get(tag, 0)
        pops = back = 0
        last = min(len(opened) - 1, _MAX_LOOKBACK)
        while left and back < last:
            back += 1
            passed = opened[-back].tag
            if passed in up_to:
                break
            if passed in tags:
                pops = back
                left -= 1
        if pops:
            self._pop(pops)

    def _pop(self, count: int) -> None:
        counts = self._counts
        for _ in range(count):
            counts[self._open.pop().tag] -= 1
