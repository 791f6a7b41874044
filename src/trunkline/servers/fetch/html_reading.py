"""HTML as a tree, read in linear time whatever the bytes: no markup can make it slow, deep or large.

It has a tokenizer of its own because that of the standard library takes quadratic time for some broken pages in the
versions of Python that are supported, and reads others differently from one version to the next. Every search either
finds its end and goes on behind it, or ends the document. Elements that are too deep lose their tags and keep their
text; a page with too many tags ends there. It knows nothing of which part of a page matters or how that is shown.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from types import MappingProxyType

__all__ = ["BLOCKS", "Node", "read_html"]

_MAX_DEPTH = 100
_MAX_NODES = 120_000
_MAX_MARKUP = 300_000
_MAX_ATTRIBUTES = 32
_NEAR = 12

_VOID_TAGS = "area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr"
_VOID = frozenset(_VOID_TAGS.split())
_RAW = MappingProxyType(
    {
        name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
        for name in ("iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp")
    }
)
_BLOCK_TAGS = (
    "address article aside blockquote body caption center dd details dialog dir div dl dt fieldset figcaption "
    "figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr html li main menu nav ol p pre search section summary "
    "table tbody td tfoot th thead tr ul xmp"
)
#: Elements that begin and end a block of their own.
BLOCKS = frozenset(_BLOCK_TAGS.split())
# What a start tag ends, if it is still open close by, up to the element in the second set.
_ENDS: MappingProxyType[str, tuple[frozenset[str], frozenset[str]]] = MappingProxyType(
    {
        "li": (frozenset({"li"}), frozenset({"ul", "ol", "menu", "dir"})),
        "dt": (frozenset({"dt", "dd"}), frozenset({"dl"})),
        "dd": (frozenset({"dt", "dd"}), frozenset({"dl"})),
        "tr": (frozenset({"tr", "td", "th"}), frozenset({"table"})),
        "td": (frozenset({"td", "th"}), frozenset({"tr", "table"})),
        "th": (frozenset({"td", "th"}), frozenset({"tr", "table"})),
        "tbody": (frozenset({"thead", "tbody", "tr", "td", "th"}), frozenset({"table"})),
        "tfoot": (frozenset({"thead", "tbody", "tr", "td", "th"}), frozenset({"table"})),
        "a": (frozenset({"a"}), frozenset({"table", "td", "th"})),
        "option": (frozenset({"option"}), frozenset({"select"})),
    }
)
_PARAGRAPH = (frozenset({"p"}), frozenset({"td", "th", "table", "button", "object"}))
# An end tag of an element inside a line never ends one of these.
_WALLS = frozenset({"article", "body", "html", "li", "main", "section", "table", "td", "th"})

_MARKUP = re.compile(r"<(?=[a-zA-Z/!?])")
_NAME = re.compile(r"[a-zA-Z][^\s/>]{0,63}")
_SPACE = re.compile(r"[\s/]*")
_ATTRIBUTE = re.compile(r"[^\s/>][^\s/>=]*")
_EQUALS = re.compile(r"\s*=\s*")
_UNQUOTED = re.compile(r"[^\s>]*")
# A reference to a character has at most seven digits; more are not worth a number of that length.
_LONG_NUMBER = re.compile(r"&#(?:[xX][0-9a-fA-F]{8,}|[0-9]{8,});?")


class Node:
    """An element: its tag in lower case, its attributes, and in order the texts and elements in it."""

    __slots__ = ("attributes", "children", "tag")

    def __init__(self, tag: str, attributes: dict[str, str]) -> None:
        """Begin empty."""
        self.tag = tag
        self.attributes = attributes
        self.children: list[Node | str] = []

    def elements(self) -> Iterator[Node]:
        """Go through the elements in it, whatever their depth, itself first."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(child for child in reversed(node.children) if isinstance(child, Node))

    def text(self) -> str:
        """Give all text in it as it was written."""
        pieces: list[str] = []
        waiting: list[Node | str] = [self]
        while waiting:
            node = waiting.pop()
            if isinstance(node, str):
                pieces.append(node)
            elif node.tag == "br":
                pieces.append("\n")
            else:
                waiting.extend(reversed(node.children))
        return "".join(pieces)


def read_html(text: str) -> Node:
    """Read a page, or what there is of one; gives a node without a name that holds it."""
    return _Reader(text).read()


def _unescape(text: str) -> str:
    return html.unescape(_LONG_NUMBER.sub("\ufffd", text)) if "&" in text else text


class _Reader:
    """Reads one text from its begin to its end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._root = Node("", {})
        self._open = [self._root]
        self._counts: dict[str, int] = {}
        self._nodes = 0

    def read(self) -> Node:
        """Read it all."""
        text, at = self._text, 0
        for _ in range(_MAX_MARKUP):
            found = _MARKUP.search(text, at)
            stop = found.start() if found else len(text)
            if stop > at:
                self._open[-1].children.append(_unescape(text[at:stop]))
            if found is None or self._nodes > _MAX_NODES:
                break
            at = self._markup(stop)
        return self._root

    def _markup(self, at: int) -> int:
        """Read what begins with ``<``; gives where to go on."""
        text = self._text
        following = text[at + 1 : at + 2]
        if following.isalpha():
            return self._start(at + 1)
        if following == "!" and text.startswith("<!--", at):
            # The shortest comments are <!--> and <!--->.
            return self._behind("-->", at + 2)
        if following == "/":
            name = _NAME.match(text, at + 2)
            if name is not None:
                self._end(name.group().lower())
        return self._behind(">", at)

    def _behind(self, end: str, at: int) -> int:
        found = self._text.find(end, at)
        return len(self._text) if found < 0 else found + len(end)

    # --- tags --------------------------------------------------------------------------------------------------------

    def _start(self, at: int) -> int:
        """Read a start tag, and for some elements all that is in them."""
        name = _NAME.match(self._text, at)
        assert name is not None
        tag = name.group().lower()
        attributes: dict[str, str] = {}
        at = self._attributes(name.end(), attributes)
        if at > len(self._text):
            # A tag that does not end takes the rest of the page with it, as in a browser.
            return at
        node = self._enter(tag, attributes)
        raw = _RAW.get(tag)
        if raw is None:
            return at
        end = raw.search(self._text, at)
        stop = end.start() if end else len(self._text)
        if node is not None:
            inside = self._text[at:stop]
            node.children.append(_unescape(inside) if tag in ("title", "textarea") else inside)
            self._end(tag)
        return self._behind(">", stop)

    def _attributes(self, at: int, into: dict[str, str]) -> int:
        """Read attributes up to the end of the tag; gives where that is, beyond the text if there is none."""
        text = self._text
        for _ in range(_MAX_ATTRIBUTES):
            at = _match(_SPACE, text, at)
            if at >= len(text) or text[at] == ">":
                return at + 1
            stop = _match(_ATTRIBUTE, text, at)
            name, value = text[at:stop].lower(), ""
            at = stop
            equals = _EQUALS.match(text, at)
            if equals is not None:
                value, at = self._value(equals.end())
            into.setdefault(name, _unescape(value))
        return self._behind(">", at)

    def _value(self, at: int) -> tuple[str, int]:
        quote = self._text[at : at + 1]
        if quote not in ('"', "'") or not quote:
            stop = _match(_UNQUOTED, self._text, at)
            return self._text[at:stop], stop
        stop = self._text.find(quote, at + 1)
        if stop < 0:
            return "", len(self._text) + 1
        return self._text[at + 1 : stop], stop + 1

    # --- the tree ----------------------------------------------------------------------------------------------------

    def _enter(self, tag: str, attributes: dict[str, str]) -> Node | None:
        """Begin an element; None if it would be too deep."""
        if tag in BLOCKS:
            self._end_near(*_PARAGRAPH)
        ended = _ENDS.get(tag)
        if ended is not None:
            self._end_near(*ended)
        if len(self._open) >= _MAX_DEPTH and tag not in _VOID:
            # Words on either side of a tag that is left out stay apart.
            self._open[-1].children.append(" ")
            return None
        self._nodes += 1
        node = Node(tag, attributes)
        self._open[-1].children.append(node)
        if tag not in _VOID:
            self._open.append(node)
            self._counts[tag] = self._counts.get(tag, 0) + 1
        return node

    def _end(self, tag: str) -> None:
        """End the innermost element of that name, with all that is open in it."""
        if not self._counts.get(tag):
            if tag in BLOCKS:
                self._open[-1].children.append(" ")
            return
        if tag in BLOCKS:
            while self._pop() != tag:
                pass
            return
        for back in range(1, min(len(self._open), _NEAR) + 1):
            passed = self._open[-back].tag
            if passed == tag:
                for _ in range(back):
                    self._pop()
            if passed == tag or passed in _WALLS:
                return

    def _end_near(self, tags: frozenset[str], up_to: frozenset[str]) -> None:
        """End the outermost of some elements that is open close by."""
        if not any(self._counts.get(tag) for tag in tags):
            return
        pops = 0
        for back in range(1, min(len(self._open) - 1, _NEAR) + 1):
            passed = self._open[-back].tag
            if passed in up_to:
                break
            if passed in tags:
                pops = back
        for _ in range(pops):
            self._pop()

    def _pop(self) -> str:
        node = self._open.pop()
        self._counts[node.tag] -= 1
        return node.tag


def _match(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Give where a match that begins there ends; it begins anywhere, if only with nothing or one character."""
    found = pattern.match(text, at)
    return found.end() if found is not None else at + 1
