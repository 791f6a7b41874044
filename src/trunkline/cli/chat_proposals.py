"""Tab completion in a chat: commands, prompts and their arguments, resources, and variables of templates.

Values that only a server knows are requested with ``completion/complete`` when the key is pressed, not before. Items
that the policy hides, and values that could control a terminal, are never offered.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import quote, unquote

import trunkline.types as t
from trunkline.cli.chat_words import Mention, read_mention
from trunkline.cli.output import one_line
from trunkline.errors import TrunklineError
from trunkline.host.catalog.catalog import Catalog
from trunkline.host.catalog.items import Item, Kind
from trunkline.host.host import Host
from trunkline.host.models.choosing import PROVIDERS
from trunkline.host.policy.acts import Act
from trunkline.host.session import HostSession

__all__ = ["Proposal", "Proposals", "Spot", "spot_in", "visible"]

_MOST = 100
_SECONDS = 3.0
_EXPRESSION = re.compile(r"\{([+#./;?&]?)([^{}]*)\}")
# The characters that need no escaping in a variable, by operator; other operators are not completed.
_SAFE: Mapping[str, str] = MappingProxyType({"": "", "+": ":/?#[]@!$&'()*+,;="})
_NONE: Mapping[str, str] = MappingProxyType({})


class Proposal(NamedTuple):
    """One completion of a line."""

    #: The text that replaces the last characters.
    text: str
    #: The number of characters replaced.
    replaces: int
    #: The label and the description in the menu.
    shown: str
    about: str = ""


class Spot(NamedTuple):
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


def visible(host: Host, kind: Kind, session: HostSession) -> list[Item]:
    """Return the items of a kind that the policy does not hide from the user."""
    return [item for item in host.catalog.of(kind).values() if _sees(host, item, session)]


def _sees(host: Host, item: Item, session: HostSession) -> bool:
    act = Act(
        kind="resource" if item.kind == "template" else item.kind,
        server=item.server,
        name=item.name,
        annotations=item.annotations,
        pin=item.pin,
        trusted=item.trusted,
        tainted=session.tainted,
        caller="user",
    )
    return host.policy.sees(act)


class Proposals:
    """Completes the lines of one chat."""

    def __init__(self, host: Host, session: HostSession, *, commands: Mapping[str, str]) -> None:
        """Complete from the catalog of this host, and from these commands and their descriptions."""
        self._host = host
        self._session = session
        self._commands = commands

    async def line(self, before: str) -> list[Proposal]:
        """Return completions for a line, given the text before the cursor."""
        if before.startswith("/") and not re.search(r"\s", before):
            return [*self._command(before), *self._prompt(before)]
        picked = self._picked(before)
        if picked is not None:
            return await self._argument_in(picked, before)
        word = re.split(r"\s", before)[-1]
        if before.startswith("/model "):
            return [Proposal(f"{each}:", len(word), f"{each}:") for each in PROVIDERS if each.startswith(word)]
        return await self._mention(word) if word.startswith("@") else []

    # --- commands and prompts ----------------------------------------------------------------------------------------

    def _command(self, before: str) -> Iterator[Proposal]:
        for name, about in self._commands.items():
            if f"/{name}".startswith(before):
                yield Proposal(f"/{name}", len(before), f"/{name}", about)

    def _prompt(self, before: str) -> Iterator[Proposal]:
        for item in visible(self._host, "prompt", self._session):
            text = f"/{item.server}:{item.name}"
            if text.startswith(before):
                yield Proposal(text, len(before), one_line(text), one_line(item.description))

    def _picked(self, before: str) -> Item | None:
        heads = {f"/{item.server}:{item.name} ": item for item in visible(self._host, "prompt", self._session)}
        fitting = [head for head in heads if before.startswith(head)]
        return heads[max(fitting, key=len)] if fitting else None

    async def _argument_in(self, item: Item, before: str) -> list[Proposal]:
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
            Proposal(f"{each.name}=", len(word), f"{one_line(each.name)}=", one_line(each.description or ""))
            for each in names
            if _is_safe(each.name)
        ]

    async def argument(self, item: Item, name: str, value: str, given: Mapping[str, str]) -> list[Proposal]:
        """Return completions for a partly typed argument of a prompt."""
        values = await self._complete(item, name, value, given)
        return [Proposal(each, len(value), each) for each in values]

    # --- resources ---------------------------------------------------------------------------------------------------

    async def _mention(self, word: str) -> list[Proposal]:
        catalog = self._host.catalog
        mention = read_mention(word[1:], catalog)
        if mention is None:
            return [
                Proposal(f"@{name}:", len(word), f"@{name}:", "resources")
                for name in _with_resources(catalog)
                if name.startswith(word[1:])
            ]
        items = [item for item in visible(self._host, "resource", self._session) if item.server == mention.server]
        found = _resources((item for item in items if item.name.startswith(mention.uri)), len(word))
        for item in visible(self._host, "template", self._session):
            if item.server == mention.server:
                found += await self._from_template(item, mention, len(word))
        # A file can be found by its name without its directory.
        found = found or _resources((item for item in items if mention.uri in item.name), len(word))
        return found[:_MOST]

    async def _from_template(self, item: Item, mention: Mention, replaces: int) -> list[Proposal]:
        spot = spot_in(item.name, mention.uri)
        if spot is None or (spot.variable is None and spot.head == mention.uri):
            return []
        start = f"@{item.server}:{spot.head}"
        if spot.variable is None:
            return [Proposal(start, replaces, one_line(item.name), one_line(_about(item)))]
        values = await self._complete(item, spot.variable, spot.value, spot.given)
        safe = _SAFE[spot.operator]
        return [
            Proposal(f"{start}{quote(value, safe=safe)}{spot.tail}", replaces, value, f"{{{spot.variable}}}")
            for value in values
        ]

    # --- asking the server -------------------------------------------------------------------------------------------

    async def _complete(self, item: Item, name: str, value: str, given: Mapping[str, str]) -> Sequence[str]:
        """Request completions from the server; return none if it fails, is denied, or takes too long."""
        try:
            async with asyncio.timeout(_SECONDS):
                found = await self._host.complete(
                    item.id, name, value, context=dict(given) or None, session=self._session
                )
        except (TrunklineError, TimeoutError):
            return ()
        return [each for each in _distinct(found.values) if _is_safe(each)][:_MOST]


def _resources(items: Iterable[Item], replaces: int) -> list[Proposal]:
    """Return completions for resources; a URI with a space can only be attached with ``/attach``."""
    return [
        Proposal(f"@{item.server}:{item.name}", replaces, one_line(item.name), one_line(_about(item)))
        for item in items
        if not re.search(r"\s", item.name)
    ]


def _distinct(values: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(values)


def _is_safe(text: str) -> bool:
    return bool(text) and one_line(text) == text


def _about(item: Item) -> str:
    definition = item.definition
    return str(definition.title or item.description or getattr(definition, "name", ""))


def _with_resources(catalog: Catalog) -> list[str]:
    servers = {item.server for table in (catalog.resources, catalog.templates) for item in table.values()}
    return [name for name in catalog.servers if name in servers]


def spot_in(template: str, typed: str) -> Spot | None:
    """Return the position in a template at which a URI ends; None if it does not match, or is complete.

    Simple and reserved expressions are supported; matching stops at any other.
    """
    parts = _parts(template)
    at, given = 0, dict[str, str]()
    for number, (operator, text) in enumerate(parts):
        if operator is None:
            if not typed.startswith(text, at):
                left = typed[at:]
                return Spot(typed[:at] + text) if text.startswith(left) else None
            at += len(text)
            continue
        tail = parts[number + 1][1] if number + 1 < len(parts) and parts[number + 1][0] is None else ""
        end = typed.find(tail, at) if tail else -1
        value = typed[at:end] if end > at else typed[at:]
        if operator not in _SAFE or "," in text or (operator == "" and "/" in value):
            return None
        name = text.partition(":")[0].rstrip("*")
        if end <= at:
            return Spot(typed[:at], name, unquote(value), given, tail, operator)
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
