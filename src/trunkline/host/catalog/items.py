"""Turns one server's lists into catalog items: which definitions are kept, under which names, and why others are not.

Definitions are untrusted, so each is checked before it is shown: its name, size, schemas (bounded and self-contained,
``protocol/json_schema.py``) and URI template. One that fails is dropped alone, with a reason. Where a server lists two
different definitions under one name, neither is served: the first might be the wrong one. Then the user's filters
apply. The result for one server is a ``ServerCatalog``; it is rebuilt only when the server's lists, settings or the
naming scheme change, and definitions with an unchanged pin are not checked again. Pure: no I/O, no clock.
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

# A definition of this size is about 70,000 tokens, a third of the context window of most models.
_MOST_BYTES = 256 * 1024
_LONGEST_NAME = 256
_LONGEST_URI = 8192
# Of one kind from one server: far more than is usable.
_MOST_ITEMS = 10_000
# A rule of thumb for JSON with English text. Vendors' tokenizers differ by more than its error, and it only decides
# whether a catalog is listed or searched.
_BYTES_A_TOKEN = 3.6


class Item(Struct, frozen=True, kw_only=True, eq=False):
    """One tool, prompt, resource or resource template of one server."""

    kind: Kind
    server: str
    #: Its name within the server: a name, a URI or a URI template.
    name: str
    #: ``server/name``.
    id: str
    #: Its name for clients: a wire name, or an outer URI.
    wire: str
    #: As the server listed it, except that an output schema for a non-object is wrapped as ``{"result": …}``, as
    #: servers of the handshake era list it, so that a tool is the same tool in both eras.
    definition: Definition
    pin: str
    #: The estimated cost of showing it to a model.
    tokens: int
    #: Whether the user trusts the annotations of this server.
    trusted: bool
    annotations: Annotations
    #: Findings of the scan in its definition that a person should see first.
    flagged: tuple[str, ...] = ()
    #: How its definition differs from the accepted one, one line per change; empty if it is the accepted one.
    changed: tuple[str, ...] = ()
    #: Whether its server answers with a bare value, where ``definition`` has ``{"result": …}``.
    wraps: bool = False

    def __repr__(self) -> str:
        """Show kind and id."""
        return f"Item({self.kind} {self.id!r})"

    @property
    def description(self) -> str:
        """Its description, or an empty string."""
        return self.definition.description or ""

    @property
    def outer(self) -> Definition:
        """The definition as clients get it: under its wire name or outer URI."""
        member = {"resource": "uri", "template": "uri_template"}.get(self.kind, "name")
        return msgspec.structs.replace(self.definition, **{member: self.wire})


class Dropped(Struct, frozen=True):
    """Something that a server offers and the catalog does not contain, and why."""

    server: str
    #: A kind of item, or ``server`` if nothing of the server can be served.
    kind: str
    name: str
    reason: str


class Part(Struct, frozen=True, kw_only=True, eq=False):
    """The part of the catalog from one server, and what it was built from."""

    server: str
    offering: Offering
    settings: ServerSettings
    naming: Naming
    items: tuple[Item, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    #: Items hidden by filters, which is no fault of the server.
    hidden: tuple[Dropped, ...] = ()
    #: The parsed templates with their items.
    templates: tuple[tuple[UriTemplate, Item], ...] = ()

    def is_current(self, offering: Offering, settings: ServerSettings, naming: Naming) -> bool:
        """Return True if it is up to date with these; lists are compared by identity, since they are replaced."""
        return self.offering is offering and self.settings == settings and self.naming == naming


def filters_of(settings: ServerSettings, kind: Kind) -> Filters:
    """Return the filters for one kind; those for resources also apply to templates."""
    if kind == "tool":
        return settings.tools
    return settings.prompts if kind == "prompt" else settings.resources


def estimate_tokens(value: object) -> int:
    """Estimate the tokens of a value as compact JSON: one per 3.6 bytes, rounded up."""
    return int(len(msgspec.json.encode(value)) / _BYTES_A_TOKEN) + 1


def make_part(
    server: str, offering: Offering, *, settings: ServerSettings, naming: Naming, before: Part | None = None
) -> Part:
    """Check, filter and name everything that a server offers."""
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
    """Builds the catalog of one server."""

    def __init__(self, server: str, settings: ServerSettings, naming: Naming, before: Part | None) -> None:
        self._server = server
        self._settings = settings
        self._naming = naming
        self._known = {} if before is None else {(item.kind, item.pin, item.wraps): item for item in before.items}
        self.items: list[Item] = []
        self.dropped: list[Dropped] = []
        self.hidden: list[Dropped] = []

    def add(self, kind: Kind, definitions: tuple[Definition, ...]) -> None:
        """Add the valid definitions of one list."""
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
        """Return the definitions with a pin and a unique name; an identical repetition counts once."""
        found: dict[str, dict[str, Definition]] = {}
        for definition in definitions:
            name = name_of(definition)
            problem = _name_problem(kind, name)
            pin = _pin(definition) if problem is None else None
            if pin is None:
                self._drop(kind, name, problem or "it is too large, too deeply nested, or not valid JSON")
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


# --- checking one definition -----------------------------------------------------------------------------------------


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
    """Return why a definition cannot be served; None if it can."""
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
    # Raises ValueError: clients over HTTP would have to leave the tool out.
    header_parameters(tool.input_schema)
    return None


def _tokens(definition: Definition, wire: str) -> int:
    """Estimate the tokens of what a model is shown: neither icons nor ``_meta`` nor the output schema."""
    if not isinstance(definition, t.Tool):
        return estimate_tokens({"name": wire, "description": definition.description})
    return estimate_tokens(
        {"name": wire, "description": definition.description, "inputSchema": definition.input_schema}
    )
