"""The main content of a page: the tree without navigation and other boilerplate.

First, elements that are boilerplate by their tag, role or name are removed; then the tree is descended as long as one
element holds nearly all of the text. Everything is a few passes over the list of elements. This module knows nothing of
Markdown.
"""

from __future__ import annotations

import re

from msgspec import Struct

from trunkline_servers.fetch.html_tree import BLOCKS, HtmlNode, HtmlTree
from trunkline_servers.untrusted import truncate

__all__ = ["LARGE", "SMALL", "MainContent", "find_main_content", "page_title"]

#: Kinds of blocks in an element: those that read well on one line, and others.
SMALL, LARGE = 1, 2
_SMALL_BLOCKS = frozenset({"caption", "center", "div", "p"})

_DROPPED_TAGS = (
    "audio base button canvas datalist dialog embed frame frameset head iframe input link map meta noembed "
    "noframes noscript object optgroup option param progress script select source style svg template textarea "
    "title track video"
)
_DROPPED = frozenset(_DROPPED_TAGS.split())
_FRAMES = frozenset({"aside", "footer", "nav", "search"})
_FRAME_ROLES = frozenset(
    {"alert", "alertdialog", "banner", "complementary", "contentinfo", "dialog", "menu", "menubar", "navigation"}
    | {"search", "toolbar"}
)
# Names of boilerplate elements; an element with one is removed only if it holds little of the text.
_FRAME_NAME = re.compile(
    r"(?:^|[\s_-])(?:ad|ads|advert|advertisement|banner|breadcrumbs?|comments?|cookies?|footer|masthead|menu|modal|nav"
    r"|navbar|navigation|newsletter|pager|pagination|popup|promo|related|share|sharing|sidebar|skip|social|sponsor"
    r"|subscribe|toolbar)(?:$|[\s_-])",
    re.IGNORECASE,
)
_NAMED = frozenset({"div", "section", "ul", "ol", "table", "p", "span"})
_HIDDEN = re.compile(r"(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_ENTERED_TAGS = "article body center details div font form html main section span table tbody td tr"
_ENTERED = frozenset(_ENTERED_TAGS.split())
_SUSPECT = _FRAMES | {"form", "header"}
_NAMES = ("class", "id")
# The share of the text above which an element is the content, and below which a name marks boilerplate.
_MOST, _LITTLE = 0.7, 0.35
# The share of the text above which an element is trusted to be the content that it claims to be.
_BELIEVED = 0.2
_NAME_LENGTH = 500
_TITLE_READ, _TITLE_SHOWN = 10_000, 300


class MainContent(Struct, frozen=True):
    """The main content of a page."""

    node: HtmlNode
    #: By element index: 0, or the largest kind of block in it.
    levels: bytearray


def page_title(page: HtmlTree) -> str:
    """Return the title of a page on one line; empty if it has none."""
    return truncate(" ".join((page.title or "")[:_TITLE_READ].split()), _TITLE_SHOWN)


def find_main_content(page: HtmlTree) -> MainContent:
    """Remove boilerplate from a page and return the element with the rest; modifies the tree."""
    gone = bytearray(map(_is_never_shown, page.nodes))
    weights = _weigh(page, gone)
    _remove_boilerplate(page, weights, gone)
    weights = _weigh(page, gone)
    levels = _levels(page, gone)
    root = page.nodes[0]
    if not weights[0]:
        return MainContent(root, levels)
    landmark = _landmark(page, weights, gone)
    return MainContent(_enter(root if landmark is None else landmark, weights), levels)


def _is_never_shown(node: HtmlNode) -> bool:
    """Return True if an element is never shown as text."""
    if node.tag in _DROPPED:
        return True
    given = node.attributes
    if given is None:
        return False
    return (
        "hidden" in given
        or ("aria-hidden" in given and given["aria-hidden"].lower() == "true")
        or ("style" in given and bool(_HIDDEN.search(given["style"][:_NAME_LENGTH])))
    )


def _remove_boilerplate(page: HtmlTree, weights: list[int], gone: bytearray) -> None:
    """Mark boilerplate and everything inside removed elements, and detach them from their parents."""
    nodes, whole = page.nodes, weights[0]
    changed: set[int] = set()
    headed = _with_heading(page, gone)
    for place, parent in enumerate(page.parents):
        if gone[parent]:
            gone[place] = 1
            continue
        node = nodes[place]
        if not gone[place] and (node.tag in _SUSPECT or node.attributes is not None):
            gone[place] = _is_boilerplate(node, weights[place], whole, headed=place in headed)
        if gone[place]:
            changed.add(parent)
    for place in changed:
        node = nodes[place]
        node.children = [child for child in node.children if isinstance(child, str) or not gone[child.place]]


def _is_boilerplate(node: HtmlNode, weight: int, whole: int, *, headed: bool) -> bool:
    """Return True if an element is boilerplate; never one that holds most of the text."""
    if weight > _MOST * whole:
        return False
    if node.tag in _FRAMES or node.given("role").lower() in _FRAME_ROLES:
        return True
    little = weight <= _LITTLE * whole
    if node.tag == "form":
        return little
    if node.tag == "header":
        return little and not headed
    if node.tag not in _NAMED or not little or node.attributes is None:
        return False
    return any(_FRAME_NAME.search(node.attributes[name][:_NAME_LENGTH]) for name in _NAMES if name in node.attributes)


def _with_heading(page: HtmlTree, gone: bytearray) -> set[int]:
    """Return the indexes of visible h1 headings and of their ancestors."""
    found: set[int] = set()
    for node in page.nodes:
        place = node.place if node.tag == "h1" else 0
        while place and place not in found and not gone[place]:
            found.add(place)
            place = page.parents[place]
    return found


def _weigh(page: HtmlTree, gone: bytearray) -> list[int]:
    """Count the non-space characters of every element, without links and removed elements."""
    weights, parents, nodes = page.weights.copy(), page.parents, page.nodes
    for place in range(len(nodes) - 1, 0, -1):
        weight = weights[place]
        if weight:
            if nodes[place].tag == "a":
                weights[place] = 0
            elif not gone[place]:
                weights[parents[place]] += weight
    return weights


def _levels(page: HtmlTree, gone: bytearray) -> bytearray:
    """Determine for every element whether it contains blocks, and whether one needs more than a line."""
    levels = bytearray(len(page.nodes))
    parents = page.parents
    for place in range(len(levels) - 1, 0, -1):
        tag = page.nodes[place].tag
        level = levels[place]
        if level < LARGE and tag in BLOCKS:
            level = SMALL if tag in _SMALL_BLOCKS else LARGE
            level = max(level, levels[place])
        if level > levels[parents[place]] and not gone[place]:
            levels[parents[place]] = level
    return levels


def _landmark(page: HtmlTree, weights: list[int], gone: bytearray) -> HtmlNode | None:
    """Return the element marked as the content (main or article), if it holds enough text."""
    mains: list[HtmlNode] = []
    articles: list[HtmlNode] = []
    for node in page.nodes:
        if gone[node.place]:
            continue
        if node.tag == "main" or (node.attributes is not None and node.given("role").lower() == "main"):
            mains.append(node)
        elif node.tag == "article":
            articles.append(node)
    least = _BELIEVED * weights[0]
    best = max(mains, key=lambda node: weights[node.place], default=None)
    if best is not None and weights[best.place] > least:
        return best
    return articles[0] if len(articles) == 1 and weights[articles[0].place] > least else None


def _enter(node: HtmlNode, weights: list[int]) -> HtmlNode:
    """Descend while one child has nearly all of the text; never into a part of a table."""
    found = node
    while True:
        inside = [child for child in node.children if isinstance(child, HtmlNode)]
        heaviest = max(inside, key=lambda child: weights[child.place], default=None)
        if heaviest is None or heaviest.tag not in _ENTERED:
            return found
        if weights[heaviest.place] <= _MOST * weights[node.place] or _has_heading(inside, heaviest):
            return found
        node = heaviest
        if node.tag not in ("table", "tbody", "tr"):
            found = node


def _has_heading(children: list[HtmlNode], but: HtmlNode) -> bool:
    """Return True if the heading of the content is beside it, not in it."""
    return any(child.tag in ("h1", "header", "hgroup") for child in children if child is not but)
