"""Parses and completes chat input.

Slash commands, prompts with their arguments, and resources mentioned as ``@server:uri``. Names are looked up in the
catalog, never split at a character that a name may contain. Values that only a server knows are requested with
``completion/complete`` when Tab is pressed. Items hidden by the policy, and values that could control a terminal, are
never offered.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import quote, unquote

import trunkline.types as t
from trunkline.cli.ui.output import one_line
from trunkline.errors import TrunklineError
from trunkline.host.authorization.authorizer import act_for_item
from trunkline.host.host import Host
from trunkline.host.models.selection import PROVIDERS
from trunkline.host.session import HostSession
from trunkline.host.upstreams.catalog.catalog import Catalog
from trunkline.host.upstreams.catalog.items import CatalogItem, ItemKind
from trunkline.host.upstreams.catalog.names import item_id

__all__ = [
    "ChatCommand",
    "ChatCompleter",
    "CompletionItem",
    "PromptInvocation",
    "ResourceMention",
    "TemplatePosition",
    "find_mentions",
    "parse_line",
    "parse_mention",
    "template_position",
    "unquote_message",
    "visible_items",
]

_COMMAND = re.compile(r"/([A-Za-z?][\w-]*)(?:\s+(.*))?\Z", re.S)
# A path, or anything else that only begins like a command, is a message.
_ODD_COMMAND = re.compile(r"/[A-Za-z][^\s/]*:[^\s/]*(?:\s|\Z)")
_AT = re.compile(r"(?<!\S)@")
_WORD = re.compile(r"\S+")
_AFTER_A_URI = ".,;:!?)]}'\""
_QUOTES = '"""'


class ChatCommand(NamedTuple):
    """A slash command and its arguments."""

    name: str
    rest: str


class PromptInvocation(NamedTuple):
    """A prompt of a server and its arguments; ``item`` is None if there is no such prompt."""

    item: CatalogItem | None
    rest: str


class ResourceMention(NamedTuple):
    """A resource mentioned in a message, to be attached to it."""

    server: str
    uri: str


def parse_line(text: str, catalog: Catalog) -> ChatCommand | PromptInvocation | str:
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
        return PromptInvocation(heads[head], text[len(head) :].strip())
    if _ODD_COMMAND.match(text):
        return PromptInvocation(None, text)
    found = _COMMAND.match(text)
    return text if found is None else ChatCommand(found[1].lower(), (found[2] or "").strip())


def find_mentions(text: str, catalog: Catalog) -> list[ResourceMention]:
    """Return the resources mentioned as ``@server:uri``, each once; any other ``@`` is ignored."""
    found: list[ResourceMention] = []
    for at in _AT.finditer(text):
        mention = parse_mention(text[at.end() :], catalog)
        word = None if mention is None else _WORD.match(mention.uri)
        if mention is None or word is None:
            continue
        uri = word.group()
        if item_id(mention.server, uri) not in catalog.resources:
            # Punctuation after the URI does not belong to it, unless the server lists such a URI.
            uri = uri.rstrip(_AFTER_A_URI)
        if uri:
            found.append(ResourceMention(mention.server, uri))
    return list(dict.fromkeys(found))


def parse_mention(text: str, catalog: Catalog) -> ResourceMention | None:
    """Parse a whole text as ``server:uri``; return None if there is no such server."""
    server = _longest(name for name in catalog.servers if text.startswith(f"{name}:"))
    return None if server is None else ResourceMention(server, text[len(server) + 1 :])


def _longest(names: Iterable[str]) -> str | None:
    return max(names, key=len, default=None)


def unquote_message(text: str) -> str | None:
    """Return a message without its triple quotes; None if the closing quotes are missing."""
    if not text.lstrip().startswith(_QUOTES):
        return text
    inner = text.lstrip()[len(_QUOTES) :]
    head, closing, _ = inner.partition(_QUOTES)
    return head.strip("\n") if closing else None


_MOST = 100  # A menu with more entries is not read; 2025-11-25 limits completions to the same.
_SECONDS = 3.0  # A person keeps typing meanwhile; a slower server gets no menu.
_EXPRESSION = re.compile(r"\{([+#./;?&]?)([^{}]*)\}")
# The characters that need no escaping in a variable, by operator; other operators are not completed.
_SAFE: Mapping[str, str] = MappingProxyType({"": "", "+": ":/?#[]@!$&'()*+,;="})
_NONE: Mapping[str, str] = MappingProxyType({})


class CompletionItem(NamedTuple):
    """One completion of a line."""

    #: The text that replaces the last characters.
    text: str
    #: The number of characters replaced.
    replaces: int
    #: The label and the description in the menu.
    shown: str
    about: str = ""


class TemplatePosition(NamedTuple):
    """The position in a URI template at which a partly typed URI ends."""

    #: The text before the variable; a partly typed literal is completed.
    head: str
    #: The variable that is being typed; None if a literal is.
    variable: str | None = None
    value: str = ""
    #: The values of the variables before it.
    given: Mapping[str, str] = _NONE
    #: The literal after it, up to the next variable.
    tail: str = ""
    operator: str = ""


def visible_items(host: Host, kind: ItemKind, session: HostSession) -> list[CatalogItem]:
    """Return the items of a kind that the policy does not hide from the user."""
    items = host.catalog.of(kind).values()
    return [item for item in items if host.policy.is_visible(act_for_item(item, caller="user", session=session))]


class ChatCompleter:
    """Completes the lines of one chat."""

    def __init__(self, host: Host, session: HostSession, *, commands: Mapping[str, str]) -> None:
        """Complete from the catalog of this host, and from these commands and their descriptions."""
        self._host = host
        self._session = session
        self._commands = commands

    async def line(self, before: str) -> list[CompletionItem]:
        """Return completions for a line, given the text before the cursor."""
        if before.startswith("/") and not re.search(r"\s", before):
            return [*self._command(before), *self._prompt(before)]
        picked = self._picked(before)
        if picked is not None:
            return await self._argument_in(picked, before)
        word = re.split(r"\s", before)[-1]
        if before.startswith("/model "):
            return [CompletionItem(f"{each}:", len(word), f"{each}:") for each in PROVIDERS if each.startswith(word)]
        return await self._mention(word) if word.startswith("@") else []

    # --- commands and prompts ----------------------------------------------------------------------------------------

    def _command(self, before: str) -> Iterator[CompletionItem]:
        for name, about in self._commands.items():
            if f"/{name}".startswith(before):
                yield CompletionItem(f"/{name}", len(before), f"/{name}", about)

    def _prompt(self, before: str) -> Iterator[CompletionItem]:
        for item in visible_items(self._host, "prompt", self._session):
            text = f"/{item.server}:{item.name}"
            if text.startswith(before):
                yield CompletionItem(text, len(before), one_line(text), one_line(item.description))

    def _picked(self, before: str) -> CatalogItem | None:
        heads = {f"/{item.server}:{item.name} ": item for item in visible_items(self._host, "prompt", self._session)}
        fitting = [head for head in heads if before.startswith(head)]
        return heads[max(fitting, key=len)] if fitting else None

    async def _argument_in(self, item: CatalogItem, before: str) -> list[CompletionItem]:
        """Return completions of ``name=value`` after a prompt."""
        definition = item.definition
        assert isinstance(definition, t.Prompt)
        words = re.split(r"\s", before)
        word = words[-1]
        given = dict(each.partition("=")[::2] for each in words[1:-1] if "=" in each)
        name, equals, value = word.partition("=")
        if equals:
            found = await self.argument(item, name, value, given)
            return [each for each in found if not re.search(r"\s", each.text)]
        names = [each for each in definition.arguments or () if each.name not in given and each.name.startswith(word)]
        return [
            CompletionItem(f"{each.name}=", len(word), f"{one_line(each.name)}=", one_line(each.description or ""))
            for each in names
            if _is_safe(each.name)
        ]

    async def argument(
        self, item: CatalogItem, name: str, value: str, given: Mapping[str, str]
    ) -> list[CompletionItem]:
        """Return completions for a partly typed argument of a prompt."""
        values = await self._complete(item, name, value, given)
        return [CompletionItem(each, len(value), each) for each in values]

    # --- resources ---------------------------------------------------------------------------------------------------

    async def _mention(self, word: str) -> list[CompletionItem]:
        catalog = self._host.catalog
        mention = parse_mention(word[1:], catalog)
        if mention is None:
            return [
                CompletionItem(f"@{name}:", len(word), f"@{name}:", "resources")
                for name in _with_resources(catalog)
                if name.startswith(word[1:])
            ]
        items = [item for item in visible_items(self._host, "resource", self._session) if item.server == mention.server]
        found = _resources((item for item in items if item.name.startswith(mention.uri)), len(word))
        for item in visible_items(self._host, "template", self._session):
            if item.server == mention.server:
                found += await self._from_template(item, mention, len(word))
        # A file can be found by its name without its directory.
        found = found or _resources((item for item in items if mention.uri in item.name), len(word))
        return found[:_MOST]

    async def _from_template(self, item: CatalogItem, mention: ResourceMention, replaces: int) -> list[CompletionItem]:
        spot = template_position(item.name, mention.uri)
        if spot is None or (spot.variable is None and spot.head == mention.uri):
            return []
        start = f"@{item.server}:{spot.head}"
        if spot.variable is None:
            return [CompletionItem(start, replaces, one_line(item.name), one_line(_about(item)))]
        values = await self._complete(item, spot.variable, spot.value, spot.given)
        safe = _SAFE[spot.operator]
        return [
            CompletionItem(f"{start}{quote(value, safe=safe)}{spot.tail}", replaces, value, f"{{{spot.variable}}}")
            for value in values
        ]

    # --- asking the server -------------------------------------------------------------------------------------------

    async def _complete(self, item: CatalogItem, name: str, value: str, given: Mapping[str, str]) -> Sequence[str]:
        """Request completions from the server; return none if it fails, is denied, or takes too long."""
        try:
            async with asyncio.timeout(_SECONDS):
                found = await self._host.complete(
                    item.id, name, value, context=dict(given) or None, session=self._session
                )
        except (TrunklineError, TimeoutError):
            return ()
        return [each for each in _distinct(found.values) if _is_safe(each)][:_MOST]


def _resources(items: Iterable[CatalogItem], replaces: int) -> list[CompletionItem]:
    """Return completions for resources; a URI with a space can only be attached with ``/attach``."""
    return [
        CompletionItem(f"@{item.server}:{item.name}", replaces, one_line(item.name), one_line(_about(item)))
        for item in items
        if not re.search(r"\s", item.name)
    ]


def _distinct(values: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(values)


def _is_safe(text: str) -> bool:
    return bool(text) and one_line(text) == text


def _about(item: CatalogItem) -> str:
    definition = item.definition
    return str(definition.title or item.description or getattr(definition, "name", ""))


def _with_resources(catalog: Catalog) -> list[str]:
    servers = {item.server for table in (catalog.resources, catalog.templates) for item in table.values()}
    return [name for name in catalog.servers if name in servers]


def template_position(template: str, typed: str) -> TemplatePosition | None:
    """Return the position in a template at which a URI ends; None if it does not match, or is complete.

    Simple and reserved expressions are supported; matching stops at any other.
    """
    parts = _parts(template)
    at, given = 0, dict[str, str]()
    for number, (operator, text) in enumerate(parts):
        if operator is None:
            if not typed.startswith(text, at):
                left = typed[at:]
                return TemplatePosition(typed[:at] + text) if text.startswith(left) else None
            at += len(text)
            continue
        tail = parts[number + 1][1] if number + 1 < len(parts) and parts[number + 1][0] is None else ""
        end = typed.find(tail, at) if tail else -1
        value = typed[at:end] if end > at else typed[at:]
        if operator not in _SAFE or "," in text or (operator == "" and "/" in value):
            return None
        name = text.partition(":")[0].rstrip("*")
        if end <= at:
            return TemplatePosition(typed[:at], name, unquote(value), given, tail, operator)
        given[name] = unquote(value)
        at = end
    return None


def _parts(template: str) -> list[tuple[str | None, str]]:
    """Split a template into literals, whose operator is None, and expressions."""
    parts: list[tuple[str | None, str]] = []
    at = 0
    for found in _EXPRESSION.finditer(template):
        if found.start() > at:
            parts.append((None, template[at : found.start()]))
        parts.append((found[1], found[2]))
        at = found.end()
    if at < len(template):
        parts.append((None, template[at:]))
    return parts
