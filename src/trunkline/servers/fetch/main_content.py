"""Which part of a page is what people come for: the tree without navigation and other frames around the content.

First what is known by its element, role or name to be no content is taken away; then the page is entered as far as one
element holds nearly all of the text. Everything is one or two walks over the tree. It knows nothing of Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice

from trunkline.servers.fetch.html_reading import Node

__all__ = ["main_content", "page_title"]

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
# Names that pages give to frames around their content; an element with one goes only if it holds little of the text.
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
# The part of the text above which one element is the content, and below which a named frame is none.
_MOST, _LITTLE = 0.7, 0.35
_NAME_LENGTH = 500


def page_title(page: Node) -> str:
    """Give the title of a page, in one line; empty if it has none."""
    for node in page.elements():
        if node.tag == "title":
            return " ".join(node.text().split())[:300]
    return ""


def main_content(page: Node) -> Node:
    """Take away from a page what is no content, and give the element that holds the rest; the tree is changed."""
    _strip(page, _is_never_shown)
    whole, weights = _weigh(page)
    _strip(page, lambda node: _is_frame(node, weights, whole))
    left, weights = _weigh(page)
    if not left:
        return page
    return _enter(_landmark(page, weights, left) or page, weights)


def _is_never_shown(node: Node) -> bool:
    """Say whether no reader of a page sees an element as text."""
    given = node.attributes
    return (
        node.tag in _DROPPED
        or "hidden" in given
        or given.get("aria-hidden", "").lower() == "true"
        or bool(_HIDDEN.search(given.get("style", "")[:_NAME_LENGTH]))
    )


def _is_frame(node: Node, weights: dict[int, int], whole: int) -> bool:
    """Say whether an element is a frame around the content; never one that holds most of the text."""
    weight = weights.get(id(node), 0)
    if weight > _MOST * whole:
        return False
    if node.tag in _FRAMES or node.attributes.get("role", "").lower() in _FRAME_ROLES:
        return True
    little = weight <= _LITTLE * whole
    if node.tag == "form":
        return little
    if node.tag == "header":
        return little and not any(inside.tag == "h1" for inside in islice(node.elements(), 100))
    if node.tag not in _NAMED or not little:
        return False
    names = f"{node.attributes.get('class', '')} {node.attributes.get('id', '')}"
    return bool(_FRAME_NAME.search(names[:_NAME_LENGTH]))


def _strip(page: Node, dropped: Callable[[Node], bool]) -> None:
    """Take away elements, and with them all that is in them."""
    waiting = [page]
    while waiting:
        node = waiting.pop()
        kept = [child for child in node.children if isinstance(child, str) or not dropped(child)]
        node.children = kept
        waiting.extend(child for child in kept if isinstance(child, Node))


def _weigh(page: Node) -> tuple[int, dict[int, int]]:
    """Count the characters in every element that are neither space nor in a link."""
    order = list(page.elements())
    weights: dict[int, int] = {}
    for node in reversed(order):
        own = 0
        if node.tag != "a":
            for child in node.children:
                own += _length(child) if isinstance(child, str) else weights[id(child)]
        weights[id(node)] = own
    return weights[id(page)], weights


def _length(text: str) -> int:
    return sum(map(len, text.split()))


def _landmark(page: Node, weights: dict[int, int], whole: int) -> Node | None:
    """Give the element that says of itself that it is the content, if it holds enough to be believed."""
    mains: list[Node] = []
    articles: list[Node] = []
    for node in page.elements():
        if node.tag == "main" or node.attributes.get("role", "").lower() == "main":
            mains.append(node)
        elif node.tag == "article":
            articles.append(node)
    best = max(mains, key=lambda node: weights[id(node)], default=None)
    if best is not None and weights[id(best)] > 0.2 * whole:
        return best
    if len(articles) == 1 and weights[id(articles[0])] > 0.2 * whole:
        return articles[0]
    return None


def _enter(node: Node, weights: dict[int, int]) -> Node:
    """Go into an element as long as one element in it has nearly all of its text; never to a part of a table."""
    found = node
    while True:
        inside = [child for child in node.children if isinstance(child, Node)]
        heaviest = max(inside, key=lambda child: weights[id(child)], default=None)
        if heaviest is None or heaviest.tag not in _ENTERED:
            return found
        if weights[id(heaviest)] <= _MOST * weights[id(node)] or _has_heading(inside, heaviest):
            return found
        node = heaviest
        if node.tag not in ("table", "tbody", "tr"):
            found = node


def _has_heading(children: list[Node], but: Node) -> bool:
    """Say whether the heading of the content stands beside it, and not in it."""
    return any(child.tag in ("h1", "header", "hgroup") for child in children if child is not but)
