"""Links of a page as absolute URLs: over http, https or mailto, without anything that Markdown would misread.

The base URL is split once, so that resolving a link costs no more than its own length. Links of the usual form are
joined here, the rest by the standard library.
"""

from __future__ import annotations

import re
from urllib.parse import urljoin, urlsplit

__all__ = ["CONTROLS", "Links"]

#: Control characters, including those that change the direction of text.
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_MAX_LINK = 2000
# The folders of the base URL are processed for each unusual link that is relative to them.
_MAX_FOLDERS = 100
_MAX_UNUSUAL = 5000
_CHARS = r"\w.~!$&'*+,=@%-"
_BEHIND = rf"(?:\?[{_CHARS}:;/?]++)?(?:#[{_CHARS}:;/?]++)?"
_ABSOLUTE = re.compile(
    rf"(?:https?://[A-Za-z0-9.-]++(?::\d{{1,5}})?(?:/[{_CHARS}:;/]*+)?{_BEHIND}|mailto:[\w.+-]++@[\w.-]++)"
)
# Without empty segments, "." or "..".
_RELATIVE = re.compile(rf"(/?)(?:(?!\.\.?(?:[/?#]|\Z))[{_CHARS}]++(?:/|(?=[?#]|\Z)))+{_BEHIND}")
_ENCODED = ((" ", "%20"), ("<", "%3C"), (">", "%3E"), ('"', "%22"))


class Links:
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
