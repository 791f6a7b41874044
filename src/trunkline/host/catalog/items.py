"""From one server's lists to items of the catalog: what is kept, under which names, and why the rest is not.

A definition comes from a stranger, so it is judged before anybody sees it: its name, its size, its schemas (bounded
and self-contained, ``protocol/json_schema.py``), its URI template. What fails is dropped alone, with a reason. What two
definitions of one server claim is served by nobody: the first of them might be the wrong one. Then the user's filters
apply. The result for one server is a ``Part``; it is made anew only when the server's lists, settings or the naming
changed, and even then what has the same pin as before is not judged again. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

import trunkline.types as t
from trunkline.host.catalog.filters import Definition, annotations_of, keeps, name_of
from trunkline.host.catalog.names import Naming, id_of, outer_uri, text_problem, wire_name
from trunkline.host.catalog.offerings import Offering
from trunkline.host.entries import Filters, ServerSettings
from trunkline.host.pins.pin import pin_of
from trunkline.host.policy.acts import Annotations
from trunkline.protocol.headers import header_parameters
from trunkline.protocol.json_schema import SchemaError, compile_schema
from trunkline.protocol.shaping import needs_wrapping, wrap_schema
from trunkline.protocol.uri_template import UriTemplate

__all__ = ["KINDS", "Dropped", "Item", "Kind", "Part", "estimate_tokens", "filters_of", "make_part"]

Kind: TypeAlias = Literal["tool", "prompt", "resource", "template"]
KINDS: tuple[Kind, ...] = ("tool", "prompt", "resource", "template")

# A definition of this size is some 70,000 tokens, a third of what most models can read at all.
_MOST_BYTES = 256 * 1024
_LONGEST_NAME = 256
_LONGEST_URI = 8192
# Of one kind from one server: far more than anybody could make use of.
_MOST_ITEMS = 10_000
# A rule of thumb for JSON with English in it. Vendors' tokenizers differ among themselves by more than it errs, and it
# decides only whether a catalog is shown or searched.
_BYTES_A_TOKEN = 3.6


class Item(Struct, frozen=True, kw_only=True, eq=False):
    """One tool, prompt, resource or resource template of one server."""

    kind: Kind
    server: str
    #: What the server itself calls it: a name, a URI or a URI template.
    name: str
    #: ``server/name``.
    id: str
    #: What it is called outside: a wire name, or an outer URI.
    wire: str
    #: As the server gave it, but for an output schema of anything but objects: that is one of ``{"result": …}``, as
    #: servers of the handshake era list it, so that a tool is the same tool in both eras.
    definition: Definition
    pin: str
    #: What showing it to a model costs, estimated.
    tokens: int
    #: The user trusts what this server says of its tools.
    trusted: bool
    annotations: Annotations
    #: What the scan found in its definition that a person should see first (``inspecting.py``).
    flagged: tuple[str, ...] = ()
    #: How its definition differs from the one that was accepted, one line per change; empty if it is the accepted one.
    changed: tuple[str, ...] = ()
    #: Its server answers with the bare value, where ``definition`` says ``{"result": …}``.
    wraps: bool = False

    def __repr__(self) -> str:
        """Name it."""
        return f"Item({self.kind} {self.id!r})"

    @property
    def description(self) -> str:
        """What its server says of it, or nothing."""
        return self.definition.description or ""

    @property
    def outer(self) -> Definition:
        """The definition as those outside get it: under its wire name or outer URI."""
        member = {"resource": "uri", "template": "uri_template"}.get(self.kind, "name")
        return msgspec.structs.replace(self.definition, **{member: self.wire})


class Dropped(Struct, frozen=True):
    """Something that a server offers and the catalog does not, and why."""

    server: str
    #: A kind of item, or ``server`` if nothing of it can be served.
    kind: str
    name: str
    reason: str


class Part(Struct, frozen=True, kw_only=True, eq=False):
    """What the catalog has of one server, and what it was made from."""

    server: str
    offering: Offering
    settings: ServerSettings
    naming: Naming
    items: tuple[Item, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    #: What filters hide; no fault of the server.
    hidden: tuple[Dropped, ...] = ()
    #: The templates, parsed, with their items.
    templates: tuple[tuple[UriTemplate, Item], ...] = ()

    def is_current(self, offering: Offering, settings: ServerSettings, naming: Naming) -> bool:
        """Tell whether it would be made the same of these; lists are compared by identity, as they are replaced."""
        return self.offering is offering and self.settings == settings and self.naming == naming


def filters_of(settings: ServerSettings, kind: Kind) -> Filters:
    """Give the filters for one kind; those for resources hold for templates too."""
    if kind == "tool":
        return settings.tools
    return settings.prompts if kind == "prompt" else settings.resources


def estimate_tokens(value: object) -> int:
    """Estimate what a value costs a model, as compact JSON: a token for each 3.6 bytes, rounded up."""
    return int(len(msgspec.json.encode(value)) / _BYTES_A_TOKEN) + 1


def make_part(
    server: str, offering: Offering, *, settings: ServerSettings, naming: Naming, before: Part | None = None
) -> Part:
    """Judge, filter and name all that a server offers."""
    if before is not None and (before.naming != naming or before.settings.trusted != settings.trusted):
        before = None
    making = _Making(server, settings, naming, before)
    for kind in KINDS:
        making.add(kind, _listed(offering, kind))
    items = sorted(making.items, key=lambda item: (KINDS.index(item.kind), item.name))
    return Part(
        server=server,
        offering=offering,
        settings=settings,
        naming=naming,
        items=tuple(items),
        dropped=tuple(making.dropped),
        hidden=tuple(making.hidden),
        templates=tuple((UriTemplate.parse(item.name), item) for item in items if item.kind == "template"),
    )


def _listed(offering: Offering, kind: Kind) -> tuple[Definition, ...]:
    lists: Mapping[Kind, tuple[Definition, ...]] = {
        "tool": offering.tools,
        "prompt": offering.prompts,
        "resource": offering.resources,
        "template": offering.templates,
    }
    return lists[kind]


class _Making:
    """The making of one part."""

    def __init__(self, server: str, settings: ServerSettings, naming: Naming, before: Part | None) -> None:
        self._server = server
        self._settings = settings
        self._naming = naming
        self._known = {} if before is None else {(item.kind, item.pin, item.wraps): item for item in before.items}
        self.items: list[Item] = []
        self.dropped: list[Dropped] = []
        self.hidden: list[Dropped] = []

    def add(self, kind: Kind, definitions: tuple[Definition, ...]) -> None:
        """Take what is good of one list."""
        if len(definitions) > _MOST_ITEMS:
            self._drop(kind, "", f"the server lists {len(definitions)} of this kind; the first {_MOST_ITEMS} are read")
        filters = filters_of(self._settings, kind)
        for given, pin in self._distinct(kind, definitions[:_MOST_ITEMS]):
            definition = _in_one_shape(given)
            name = name_of(definition)
            reason = keeps(filters, definition, kind)
            if reason is not None:
                self.hidden.append(Dropped(self._server, kind, name, reason))
                continue
            wraps = definition is not given
            known = self._known.get((kind, pin, wraps))
            problem = None if known is not None else _problem(definition)
            if problem is None:
                self.items.append(known or self._item(kind, definition, pin, wraps=wraps))
            else:
                self._drop(kind, name, problem)

    def _distinct(self, kind: Kind, definitions: tuple[Definition, ...]) -> Iterator[tuple[Definition, str]]:
        """Give the definitions that have a pin and a name of their own; one that is repeated as it is counts once."""
        found: dict[str, dict[str, Definition]] = {}
        for definition in definitions:
            name = name_of(definition)
            problem = _name_problem(kind, name)
            pin = _pin(definition) if problem is None else None
            if pin is None:
                self._drop(kind, name, problem or "it is too large or too deep, or holds what JSON cannot")
            else:
                found.setdefault(name, {})[pin] = definition
        for name, by_pin in found.items():
            if len(by_pin) == 1:
                yield from ((definition, pin) for pin, definition in by_pin.items())
            else:
                self._drop(kind, name, f"the server lists {len(by_pin)} different ones under this name")

    def _item(self, kind: Kind, definition: Definition, pin: str, *, wraps: bool) -> Item:
        name = name_of(definition)
        named = kind in ("tool", "prompt")
        wire = wire_name(self._server, name, self._naming) if named else outer_uri(self._server, name)
        return Item(
            kind=kind,
            server=self._server,
            name=name,
            id=id_of(self._server, name),
            wire=wire,
            definition=definition,
            pin=pin,
            tokens=_tokens(definition, wire),
            trusted=self._settings.trusted,
            annotations=annotations_of(definition),
            wraps=wraps,
        )

    def _drop(self, kind: Kind, name: str, reason: str) -> None:
        self.dropped.append(Dropped(self._server, kind, name[:_LONGEST_URI], reason))


# --- judging one definition ------------------------------------------------------------------------------------------


def _name_problem(kind: Kind, name: str) -> str | None:
    longest = _LONGEST_NAME if kind in ("tool", "prompt") else _LONGEST_URI
    if len(name) > longest:
        return f"the name has {len(name)} characters; {longest} are allowed"
    return text_problem(name)


def _in_one_shape(definition: Definition) -> Definition:
    """Return a tool with an output schema of an object, as both eras can carry it."""
    schema = definition.output_schema if isinstance(definition, t.Tool) else None
    if not schema or not needs_wrapping(schema):
        return definition
    return msgspec.structs.replace(definition, output_schema=wrap_schema(schema))


def _pin(definition: Definition) -> str | None:
    """Return the pin of a definition; None if it cannot be pinned."""
    try:
        return pin_of(definition, most_bytes=_MOST_BYTES)
    except (ValueError, TypeError, RecursionError):
        return None


def _problem(definition: Definition) -> str | None:
    """Say why a definition cannot be served; None if it can."""
    try:
        if isinstance(definition, t.Tool):
            return _tool_problem(definition)
        if isinstance(definition, t.ResourceTemplate):
            UriTemplate.parse(definition.uri_template)
    except ValueError as error:
        return str(error)
    return None


def _tool_problem(tool: t.Tool) -> str | None:
    if tool.input_schema.get("type") != "object":
        return 'the input schema must have "type": "object" at its root'
    schemas = MappingProxyType({"input": tool.input_schema, "output": tool.output_schema})
    for which, schema in schemas.items():
        try:
            if schema is not None:
                compile_schema(schema)
        except SchemaError as error:
            return f"the {which} schema cannot be used: {error}"
    # Whoever calls over HTTP would have to leave the tool out for this.
    header_parameters(tool.input_schema)
    return None


def _tokens(definition: Definition, wire: str) -> int:
    """Estimate what a model is shown of a definition: neither icons nor ``_meta`` nor the output's schema."""
    if not isinstance(definition, t.Tool):
        return estimate_tokens({"name": wire, "description": definition.description})
    return estimate_tokens(
        {"name": wire, "description": definition.description, "inputSchema": definition.input_schema}
    )
