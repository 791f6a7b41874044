"""Parses a line of a chat: a slash command, a prompt of a server, or a message that mentions resources.

Pure functions of the line and the catalog. Names are looked up in the catalog, never split at a character that a name
may contain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from trunkline.host.catalog.catalog import Catalog
from trunkline.host.catalog.items import Item
from trunkline.host.catalog.names import id_of

__all__ = ["Command", "Mention", "Picked", "find_mentions", "read_line", "read_mention", "unquoted"]

_COMMAND = re.compile(r"/([A-Za-z?][\w-]*)(?:\s+(.*))?\Z", re.S)
# A path, or anything else that only begins like a command, is a message.
_ODD_COMMAND = re.compile(r"/[A-Za-z][^\s/]*:[^\s/]*(?:\s|\Z)")
_AT = re.compile(r"(?<!\S)@")
_WORD = re.compile(r"\S+")
_AFTER_A_URI = ".,;:!?)]}'\""
_QUOTES = '"""'


class Command(NamedTuple):
    """A slash command and its arguments."""

    name: str
    rest: str


class Picked(NamedTuple):
    """A prompt of a server and its arguments; ``item`` is None if there is no such prompt."""

    item: Item | None
    rest: str


class Mention(NamedTuple):
    """A resource mentioned in a message, to be attached to it."""

    server: str
    uri: str


def read_line(text: str, catalog: Catalog) -> Command | Picked | str:
    """Parse a line; two slashes escape a message that begins with a slash."""
    text = text.strip()
    if not text.startswith("/"):
        return text
    if text.startswith("//"):
        return text[1:]
    heads = {f"/{item.server}:{item.name}": item for item in catalog.prompts.values()}
    fitting = [head for head in heads if text == head or text.startswith((f"{head} ", f"{head}\n"))]
    if fitting:
        head = max(fitting, key=len)
        return Picked(heads[head], text[len(head) :].strip())
    if _ODD_COMMAND.match(text):
        return Picked(None, text)
    found = _COMMAND.match(text)
    return text if found is None else Command(found[1].lower(), (found[2] or "").strip())


def find_mentions(text: str, catalog: Catalog) -> list[Mention]:
    """Return the resources mentioned as ``@server:uri``, each once; any other ``@`` is ignored."""
    found: list[Mention] = []
    for at in _AT.finditer(text):
        mention = read_mention(text[at.end() :], catalog)
        word = None if mention is None else _WORD.match(mention.uri)
        if mention is None or word is None:
            continue
        uri = word.group()
        if id_of(mention.server, uri) not in catalog.resources:
            # Punctuation after the URI does not belong to it, unless the server lists such a URI.
            uri = uri.rstrip(_AFTER_A_URI)
        if uri:
            found.append(Mention(mention.server, uri))
    return list(dict.fromkeys(found))


def read_mention(text: str, catalog: Catalog) -> Mention | None:
    """Parse a whole text as ``server:uri``; return None if there is no such server."""
    server = _longest(name for name in catalog.servers if text.startswith(f"{name}:"))
    return None if server is None else Mention(server, text[len(server) + 1 :])


def _longest(names: Iterable[str]) -> str | None:
    return max(names, key=len, default=None)


def unquoted(text: str) -> str | None:
    """Return a message without its triple quotes; None if the closing quotes are missing."""
    if not text.lstrip().startswith(_QUOTES):
        return text
    inner = text.lstrip()[len(_QUOTES) :]
    head, closing, _ = inner.partition(_QUOTES)
    return head.strip("\n") if closing else None
