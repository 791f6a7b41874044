"""Turns one server's lists into catalog items.

Which definitions are kept, under which names, and why the others are not. Definitions are untrusted, so each is
checked before it is shown: its name, size, schemas (bounded and self-contained) and URI template. A definition that
fails is dropped alone, with a reason; where a server lists two different definitions under one name, neither is
served, since the first might be the wrong one. Then the user's filters apply. A filter only removes: what it hides is
in no list and cannot be called. What a server says about its own tools is believed here, because a lie can at most
make something visible that the policy then judges; an absent hint is read as the specification reads it, which is the
careful way. The result for one server is rebuilt only when its lists, its settings or the naming scheme change, and
definitions with an unchanged pin are not checked again. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

import trunkline.types as t
from trunkline.host.authorization.policy.decisions import ToolHints
from trunkline.host.config.model import Filters, ServerSettings
from trunkline.host.integrity.pins.definitions import pin_of
from trunkline.host.upstreams.catalog.names import NamingScheme, item_id, outer_uri, text_problem, wire_name
from trunkline.protocol.apps import (
    DEFAULT_VISIBILITY,
    app_uri,
    has_ui,
    is_app_uri,
    tool_visibility,
    with_app_uris,
)
from trunkline.protocol.downgrade import needs_wrapping, wrap_schema
from trunkline.protocol.extensions import APPS, declared_extension
from trunkline.protocol.headers import header_parameters
from trunkline.protocol.json_schema import SchemaError, compile_schema
from trunkline.protocol.uri_template import UriTemplate

__all__ = [
    "ANNOTATION_SELECTORS",
    "ITEM_KINDS",
    "CatalogItem",
    "Definition",
    "DroppedItem",
    "ItemKind",
    "Offering",
    "ServerCatalog",
    "annotations_of",
    "build_server_catalog",
    "definition_name",
    "denied_reason",
    "estimate_tokens",
    "filters_of",
    "hidden_reason",
    "name_hidden_reason",
    "tags_of",
    "tokens_in",
    "unlisted_hidden_reason",
]

Definition: TypeAlias = t.Tool | t.Prompt | t.Resource | t.ResourceTemplate

#: The words that ``annotations`` of a filter may contain, and when each is true of a tool (schema, ToolAnnotations: a
#: read-only tool destroys nothing; others may be destructive and open-world unless annotated otherwise).
ANNOTATION_SELECTORS: Mapping[str, Callable[[ToolHints], bool]] = MappingProxyType(
    {
        "readOnly": lambda said: said.read_only is True,
        "destructive": lambda said: said.read_only is not True and said.destructive is not False,
        "idempotent": lambda said: said.read_only is True or said.idempotent is True,
        "openWorld": lambda said: said.open_world is not False,
    }
)
# Where servers put tags in ``_meta``: at the top, or under the name of their framework.
_TAG_HOMES = ("_fastmcp", "fastmcp")


def hidden_reason(filters: Filters, definition: Definition, kind: str) -> str | None:
    """Return why a filter hides a definition; None if it does not. ``kind`` is for the message."""
    name = definition_name(definition)
    reason = name_hidden_reason(filters, name)
    if reason is not None:
        return reason
    said = annotations_of(definition)
    for selector in filters.annotations:
        word = selector.removeprefix("!")
        if word not in ANNOTATION_SELECTORS:
            return f'the filter asks for "{selector}", which no {kind} can be; use {", ".join(ANNOTATION_SELECTORS)}'
        if not isinstance(definition, t.Tool) or ANNOTATION_SELECTORS[word](said) is (word != selector):
            return f"the filter keeps only what is {_describe_selector(selector)}"
    if filters.tags and not tags_of(definition) & set(filters.tags):
        return f"it has none of the tags {', '.join(filters.tags)}"
    return None


def name_hidden_reason(filters: Filters, name: str) -> str | None:
    """Return why the globs of a filter hide a name; None if they do not."""
    reason = denied_reason(filters, name)
    if reason is None and filters.allow and _first_match(filters.allow, name) is None:
        return f"no glob of allow matches it: {', '.join(filters.allow)}"
    return reason


def unlisted_hidden_reason(filters: Filters, name: str) -> str | None:
    """Return why a filter hides an unlisted item, of which only the name is known; None if it does not."""
    if filters.annotations or filters.tags:
        return "the filter asks for annotations or tags, and nothing says which it has"
    return name_hidden_reason(filters, name)


def denied_reason(filters: Filters, name: str) -> str | None:
    """Return which glob denies a name; None if none does."""
    glob = _first_match(filters.deny, name)
    return None if glob is None else f'the glob "{glob}" of deny matches it'


def definition_name(definition: Definition) -> str:
    """Return the name of a definition within its server: the name, URI or URI template."""
    if isinstance(definition, t.Resource):
        return definition.uri
    return definition.uri_template if isinstance(definition, t.ResourceTemplate) else definition.name


def annotations_of(definition: Definition) -> ToolHints:
    """Return the annotations of a tool; empty for other definitions."""
    said = definition.annotations if isinstance(definition, t.Tool) else None
    if said is None:
        return ToolHints()
    return ToolHints(
        read_only=said.read_only_hint,
        destructive=said.destructive_hint,
        idempotent=said.idempotent_hint,
        open_world=said.open_world_hint,
    )


def tags_of(definition: Definition) -> set[str]:
    """Return the tags in a definition's ``_meta``."""
    meta = definition.meta or {}
    homes = [meta, *(meta.get(home) for home in _TAG_HOMES)]
    lists: list[Any] = [home.get("tags") for home in homes if isinstance(home, dict)]
    return {tag for tags in lists if isinstance(tags, list) for tag in tags if isinstance(tag, str)}


def _first_match(globs: Iterable[str], name: str) -> str | None:
    return next((glob for glob in globs if fnmatchcase(name, glob)), None)


def _describe_selector(selector: str) -> str:
    return f"not {selector[1:]}" if selector.startswith("!") else selector


class Offering(Struct, frozen=True, kw_only=True):
    """The complete lists of one server: all pages of each, or none."""

    revision: str
    capabilities: dict[str, Any]
    server_info: t.Implementation | None = None
    instructions: str | None = None
    tools: tuple[t.Tool, ...] = ()
    prompts: tuple[t.Prompt, ...] = ()
    resources: tuple[t.Resource, ...] = ()
    templates: tuple[t.ResourceTemplate, ...] = ()
    #: Seconds since the epoch at which it was listed.
    listed_at: float = 0.0
    #: Lists that failed, by method, with the reason; their items are those known before.
    failures: dict[str, str] = {}
    #: Items that could not be decoded, each with its position and the reason; the rest of the list is present.
    unreadable: tuple[str, ...] = ()
    #: Whether it comes from the cache of an earlier run, wholly or for a list that failed since: pins ignore it.
    recalled: bool = False

    @property
    def has_apps(self) -> bool:
        """Whether the server has pages: it declared the extension, or a tool names a page."""
        declared = declared_extension(self.capabilities, APPS) is not None
        return declared or any(has_ui(tool.meta) for tool in self.tools)


ItemKind: TypeAlias = Literal["tool", "prompt", "resource", "template"]
ITEM_KINDS: tuple[ItemKind, ...] = ("tool", "prompt", "resource", "template")

# A definition of this size is about 70,000 tokens, a third of the context window of most models.
_MOST_BYTES = 256 * 1024
_LONGEST_NAME = 256  # Twice what the specification recommends for tool names.
_LONGEST_URI = 8192  # As long as common servers accept.
# Of one kind from one server: far more than is usable.
_MOST_ITEMS = 10_000
# A rule of thumb for JSON with English text. Vendors' tokenizers differ by more than its error, and it only decides
# whether a catalog is listed or searched.
_BYTES_A_TOKEN = 3.6


class CatalogItem(Struct, frozen=True, kw_only=True, eq=False):
    """One tool, prompt, resource or resource template of one server."""

    kind: ItemKind
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
    annotations: ToolHints
    #: Findings of the scan in its definition that a person should see first.
    flagged: tuple[str, ...] = ()
    #: How its definition differs from the accepted one, one line per change; empty if it is the accepted one.
    changed: tuple[str, ...] = ()
    #: Whether its server answers with a bare value, where ``definition`` has ``{"result": …}``.
    wraps: bool = False
    #: Who may call a tool (MCP Apps): ``model``, ``app`` (a page of the same server) or both.
    visibility: tuple[str, ...] = DEFAULT_VISIBILITY
    #: The page that shows a tool's results, as its server names it; None if it has none.
    app_uri: str | None = None
    #: Whether a model may see and call it; False for tools that only pages may call.
    for_model: bool = True

    def __repr__(self) -> str:
        """Show kind and id."""
        return f"Item({self.kind} {self.id!r})"

    @property
    def description(self) -> str:
        """Its description, or an empty string."""
        return self.definition.description or ""

    @property
    def is_page(self) -> bool:
        """Whether it is a page of MCP Apps."""
        return self.kind == "resource" and is_app_uri(self.name)

    @property
    def outer(self) -> Definition:
        """The definition as clients get it: under its wire name or outer URI, with the outer URI of its page."""
        member = {"resource": "uri", "template": "uri_template"}.get(self.kind, "name")
        changes: dict[str, Any] = {member: self.wire}
        meta = self.definition.meta
        if meta and self.app_uri is not None:
            changes["meta"] = with_app_uris(meta, lambda uri: outer_uri(self.server, uri))
        return msgspec.structs.replace(self.definition, **changes)


class DroppedItem(Struct, frozen=True):
    """Something that a server offers and the catalog does not contain, and why."""

    server: str
    #: A kind of item, or ``server`` if nothing of the server can be served.
    kind: str
    name: str
    reason: str


class ServerCatalog(Struct, frozen=True, kw_only=True, eq=False):
    """The part of the catalog from one server, and what it was built from."""

    server: str
    offering: Offering
    settings: ServerSettings
    naming: NamingScheme
    items: tuple[CatalogItem, ...] = ()
    dropped: tuple[DroppedItem, ...] = ()
    #: Items hidden by filters, which is no fault of the server.
    hidden: tuple[DroppedItem, ...] = ()
    #: The parsed templates with their items.
    templates: tuple[tuple[UriTemplate, CatalogItem], ...] = ()

    def is_current(self, offering: Offering, settings: ServerSettings, naming: NamingScheme) -> bool:
        """Return True if it is up to date with these; lists are compared by identity, since they are replaced."""
        return self.offering is offering and self.settings == settings and self.naming == naming


def filters_of(settings: ServerSettings, kind: ItemKind) -> Filters:
    """Return the filters for one kind; those for resources also apply to templates."""
    if kind == "tool":
        return settings.tools
    return settings.prompts if kind == "prompt" else settings.resources


def estimate_tokens(value: object) -> int:
    """Estimate the tokens of a value as compact JSON: one per 3.6 bytes, rounded up."""
    return tokens_in(len(msgspec.json.encode(value)))


def tokens_in(size: int) -> int:
    """Estimate the number of tokens of a text from its size in bytes."""
    return int(size / _BYTES_A_TOKEN) + 1


def build_server_catalog(
    server: str,
    offering: Offering,
    *,
    settings: ServerSettings,
    naming: NamingScheme,
    before: ServerCatalog | None = None,
) -> ServerCatalog:
    """Check, filter and name everything that a server offers."""
    if before is not None and (before.naming != naming or before.settings.trusted != settings.trusted):
        before = None
    builder = _ServerCatalogBuilder(server, settings, naming, before)
    for kind in ITEM_KINDS:
        builder.add(kind, _listed(offering, kind))
    items = sorted(builder.items, key=lambda item: (ITEM_KINDS.index(item.kind), item.name))
    return ServerCatalog(
        server=server,
        offering=offering,
        settings=settings,
        naming=naming,
        items=tuple(items),
        dropped=tuple(builder.dropped),
        hidden=tuple(builder.hidden),
        templates=tuple((UriTemplate.parse(item.name), item) for item in items if item.kind == "template"),
    )


def _listed(offering: Offering, kind: ItemKind) -> tuple[Definition, ...]:
    lists: Mapping[ItemKind, tuple[Definition, ...]] = {
        "tool": offering.tools,
        "prompt": offering.prompts,
        "resource": offering.resources,
        "template": offering.templates,
    }
    return lists[kind]


class _ServerCatalogBuilder:
    """Builds the catalog of one server."""

    def __init__(
        self, server: str, settings: ServerSettings, naming: NamingScheme, before: ServerCatalog | None
    ) -> None:
        self._server = server
        self._settings = settings
        self._naming = naming
        self._known = {} if before is None else {(item.kind, item.pin, item.wraps): item for item in before.items}
        self.items: list[CatalogItem] = []
        self.dropped: list[DroppedItem] = []
        self.hidden: list[DroppedItem] = []

    def add(self, kind: ItemKind, definitions: tuple[Definition, ...]) -> None:
        """Add the valid definitions of one list."""
        if len(definitions) > _MOST_ITEMS:
            self._drop(kind, "", f"the server lists {len(definitions)} of this kind; the first {_MOST_ITEMS} are read")
        filters = filters_of(self._settings, kind)
        for given, pin in self._distinct(kind, definitions[:_MOST_ITEMS]):
            definition = _with_object_output(given)
            name = definition_name(definition)
            reason = hidden_reason(filters, definition, kind)
            if reason is not None:
                self.hidden.append(DroppedItem(self._server, kind, name, reason))
                continue
            wraps = definition is not given
            known = self._known.get((kind, pin, wraps))
            problem = None if known is not None else _problem(definition)
            if problem is None:
                self.items.append(known or self._item(kind, definition, pin, wraps=wraps))
            else:
                self._drop(kind, name, problem)

    def _distinct(self, kind: ItemKind, definitions: tuple[Definition, ...]) -> Iterator[tuple[Definition, str]]:
        """Return the definitions with a pin and a unique name; an identical repetition counts once."""
        found: dict[str, dict[str, Definition]] = {}
        for definition in definitions:
            name = definition_name(definition)
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

    def _item(self, kind: ItemKind, definition: Definition, pin: str, *, wraps: bool) -> CatalogItem:
        name = definition_name(definition)
        named = kind in ("tool", "prompt")
        wire = wire_name(self._server, name, self._naming) if named else outer_uri(self._server, name)
        paged = kind == "tool" and definition.meta
        visibility = tool_visibility(definition.meta) if paged else DEFAULT_VISIBILITY
        return CatalogItem(
            kind=kind,
            server=self._server,
            name=name,
            id=item_id(self._server, name),
            wire=wire,
            definition=definition,
            pin=pin,
            tokens=_tokens(definition, wire),
            trusted=self._settings.trusted,
            annotations=annotations_of(definition),
            wraps=wraps,
            visibility=visibility,
            app_uri=app_uri(definition.meta) if paged else None,
            for_model="model" in visibility,
        )

    def _drop(self, kind: ItemKind, name: str, reason: str) -> None:
        self.dropped.append(DroppedItem(self._server, kind, name[:_LONGEST_URI], reason))


# --- checking one definition -----------------------------------------------------------------------------------------


def _name_problem(kind: ItemKind, name: str) -> str | None:
    longest = _LONGEST_NAME if kind in ("tool", "prompt") else _LONGEST_URI
    if len(name) > longest:
        return f"the name has {len(name)} characters; {longest} are allowed"
    return text_problem(name)


def _with_object_output(definition: Definition) -> Definition:
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
