"""The operations of a document, which of them are offered, and the tool schemas of each.

Each path and method is read with its parameters, body, responses and description. Reading is separate from serving:
everything here is data, built once when the server is defined.

Schemas are as exact as possible: complete for a document with few operations, and limited to the nearest definitions
for one with many, since a model reads the schema of every tool. A schema that our validator cannot use is rebuilt in a
simpler form.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.server import SchemaError, compile_schema
from trunkline_servers.openapi.credentials import Credentials, is_fixed_header
from trunkline_servers.openapi.document import Document, clean_text, operation_base_url
from trunkline_servers.openapi.parameters import ApiParameter, argument_name, tool_names
from trunkline_servers.openapi.request_bodies import RequestBody, body_schemas, read_body
from trunkline_servers.openapi.schemas import SchemaTranslator
from trunkline_servers.untrusted import as_dict, as_list, one_line

__all__ = [
    "Operation",
    "OperationEntry",
    "OperationFilter",
    "OperationTool",
    "ToolBuilder",
    "input_schema",
    "list_operations",
    "output_schema",
    "read_operation",
    "select_operations",
]

_METHODS = ("get", "head", "post", "put", "patch", "delete")
_PLACES = ("path", "query", "header", "cookie")
_STYLES = MappingProxyType(
    {
        "path": ("simple", "label", "matrix"),
        "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
        "header": ("simple",),
        "cookie": ("form",),
    }
)
_VARIABLE = re.compile(r"\{([^{}]*)\}")
_BAD_PATH = re.compile(r"[\x00-\x20\x7f?#\\]|//|(?:^|/)(?:\.|%2e){1,2}(?:/|$)|%2f|%5c", re.IGNORECASE)
_JSON = re.compile(r"application/(?:json|[\w.+-]+\+json)\b", re.IGNORECASE)
_MOST_PARAMETERS = 200
_LONGEST_PATH = 2000


class OperationEntry(Struct, frozen=True):
    """An operation as listed in the document: enough to name and to filter it."""

    method: str
    path: str
    node: dict[str, Any]
    item: dict[str, Any]
    name: str = ""

    @property
    def identifier(self) -> str:
        """Its operationId; empty if it has none."""
        return clean_text(self.node.get("operationId"), 500)

    @property
    def tags(self) -> frozenset[str]:
        """Its tags."""
        return frozenset(tag for tag in as_list(self.node.get("tags")) if isinstance(tag, str))

    @property
    def what(self) -> str:
        """The name used in messages."""
        return f"{self.method} {self.path[:200]}"


class Operation(Struct, frozen=True):
    """An operation that can be called."""

    listed: OperationEntry
    parameters: tuple[ApiParameter, ...]
    body: RequestBody | None
    #: Path variables in order, with their parameters.
    variables: Mapping[str, ApiParameter]
    #: Response headers, in lower case, reported with a result: the documented ones, and the link to the next page.
    reported_headers: tuple[str, ...] = ()

    @property
    def read_only(self) -> bool:
        """Whether its method is safe (GET or HEAD)."""
        return self.listed.method in ("GET", "HEAD")

    @property
    def title(self) -> str:
        """Its summary on one line."""
        return one_line(clean_text(self.listed.node.get("summary"), 200))

    @property
    def description(self) -> str:
        """Its description for a model."""
        node = self.listed.node
        summary, long = self.title, clean_text(node.get("description"), 4000)
        text = "\n\n".join(dict.fromkeys(part for part in (summary, long) if part)) or self.listed.what
        return f"{text}\n\nDeprecated." if node.get("deprecated") is True else text


# --- listing ---------------------------------------------------------------------------------------------------------


def list_operations(document: Document) -> list[OperationEntry]:
    """Return every operation with its tool name; the names do not depend on which operations are selected.

    Raises:
        ConfigError: there are none, or a path is invalid.
    """
    found = list(_listed(document))
    if not found:
        raise ConfigError(f"{document.name} has no operations: its paths are empty")
    names = tool_names([(each.method, each.path, each.identifier) for each in found])
    return [
        OperationEntry(each.method, each.path, each.node, each.item, name)
        for each, name in zip(found, names, strict=True)
    ]


def _listed(document: Document) -> Iterator[OperationEntry]:
    for path, given in as_dict(document.root.get("paths")).items():
        if path.startswith("x-"):
            continue
        _check_path(document, path)
        item = document.follow(given, f"the path {path[:200]!r}")
        for method in _METHODS:
            if isinstance(item.get(method), dict):
                # A reference is not allowed here, but documents that were bundled from many files have them.
                node = document.follow(item[method], f"{method.upper()} {path[:200]}")
                yield OperationEntry(method.upper(), path, node, item)


def _check_path(document: Document, path: str) -> None:
    plain = _VARIABLE.sub("x", path)
    if len(path) > _LONGEST_PATH:
        raise ConfigError(f"{document.name}: the path {path[:200]!r}... is longer than {_LONGEST_PATH} characters")
    if not path.startswith("/") or "{" in plain or "}" in plain or _BAD_PATH.search(plain):
        raise ConfigError(
            f'{document.name}: the path {path[:200]!r} is invalid: a path begins with one "/", and has no "..", query, '
            "encoded slash or control characters"
        )


# --- reading ---------------------------------------------------------------------------------------------------------


def read_operation(document: Document, listed: OperationEntry, credentials: Credentials) -> Operation:
    """Read everything needed to call an operation.

    Raises:
        ConfigError: a reference cannot be resolved, or a path variable is not defined.
    """
    parameters = tuple(_parameters(document, listed, credentials))
    variables = {each.name: each for each in parameters if each.where == "path"}
    for name in _VARIABLE.findall(listed.path):
        if name not in variables:
            raise ConfigError(f"{document.name}: {listed.what} has the variable {name!r} but no such path parameter")
    taken = {each.argument for each in parameters}
    body = read_body(document, listed.node.get("requestBody"), taken=taken, what=listed.what)
    told = _reported_headers(document, listed)
    return Operation(listed, parameters, None if listed.method == "HEAD" else body, variables, told)


def _reported_headers(document: Document, listed: OperationEntry) -> tuple[str, ...]:
    names = {"link"}
    for answer in _successes(listed):
        headers = as_dict(document.follow(answer, f"an answer of {listed.what}").get("headers"))
        names.update(name.lower() for name in headers)
    return tuple(sorted(names - {"content-type", "set-cookie"}))


def _successes(listed: OperationEntry) -> list[Any]:
    answers = as_dict(listed.node.get("responses"))
    return [answer for status, answer in answers.items() if re.fullmatch(r"2(?:\d\d|XX)", status)]


def _parameters(document: Document, listed: OperationEntry, credentials: Credentials) -> Iterator[ApiParameter]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for given in [*as_list(listed.item.get("parameters")), *as_list(listed.node.get("parameters"))]:
        node = document.follow(given, f"a parameter of {listed.what}")
        name, where = node.get("name"), node.get("in")
        if isinstance(name, str) and name and where in _PLACES:
            found[where, name] = node
    if len(found) > _MOST_PARAMETERS:
        raise ConfigError(f"{document.name}: {listed.what} has more than {_MOST_PARAMETERS} parameters")
    in_path = frozenset(_VARIABLE.findall(listed.path))
    taken: set[str] = set()
    for (where, name), node in sorted(found.items(), key=lambda each: _PLACES.index(each[0][0])):
        if where == "path" and name not in in_path:
            continue
        if credentials.is_credential(where, name) or (where == "header" and is_fixed_header(name)):
            continue
        parameter = _parameter(node, name, where, taken)
        taken.add(parameter.argument)
        yield parameter


def _parameter(node: dict[str, Any], name: str, where: str, taken: set[str]) -> ApiParameter:
    styles = _STYLES[where]
    style = node.get("style") if node.get("style") in styles else styles[0]
    content = as_dict(node.get("content"))
    media = next(iter(content.values()), None)
    schema = as_dict(media).get("schema", {}) if content else node.get("schema", {})
    return ApiParameter(
        name=name,
        where=where,
        style=str(style),
        explode=node["explode"] if isinstance(node.get("explode"), bool) else style == "form",
        argument=argument_name(name, where, taken=taken),
        schema=_described(schema, clean_text(node.get("description"), 1000)),
        required=where == "path" or node.get("required") is True,
        reserved=where == "query" and node.get("allowReserved") is True,
        as_json=bool(content) and bool(_JSON.match(next(iter(content)))),
    )


def _described(schema: Any, description: str) -> Any:
    """Add a parameter's description to its schema."""
    if not description or not isinstance(schema, dict):
        return schema
    return {**schema, "description": description}


# --- schemas ---------------------------------------------------------------------------------------------------------


def input_schema(document: Document, operation: Operation, translation: SchemaTranslator, most: int) -> dict[str, Any]:
    """Return the schema of a tool's arguments; beyond ``most`` nodes it allows anything.

    Raises:
        ConfigError: a schema in it cannot be used.
    """
    members = {each.argument: translation.schema(each.schema) for each in operation.parameters}
    required = [each.argument for each in operation.parameters if each.required]
    if operation.body is not None:
        more, needed = body_schemas(operation.body, translation, document)
        members.update(more)
        required += needed
    schema: dict[str, Any] = {"type": "object", "properties": members, "additionalProperties": False}
    if required:
        schema["required"] = required
    return translation.whole(schema, most=most)


def output_schema(
    document: Document, operation: Operation, translation: SchemaTranslator, most: int
) -> dict[str, Any] | None:
    """Return the output schema if all successful responses share one JSON schema whose values are objects; else None.

    Raises:
        ConfigError: a schema in it cannot be used.
    """
    found: list[Any] = []
    for answer in _successes(operation.listed):
        content = as_dict(document.follow(answer, f"an answer of {operation.listed.what}").get("content"))
        schemas = [as_dict(media).get("schema") for name, media in content.items() if _JSON.match(name)]
        if not schemas or not isinstance(schemas[0], dict):
            return None
        found.append(schemas[0])
    if not found or any(each != found[0] for each in found) or not _is_object(document, found[0], {}):
        return None
    # Hosts look for the properties at the root, so a reference there is replaced by its target.
    whole = document.follow(found[0], "an answer") if document.is_3_0 or found[0].keys() == {"$ref"} else found[0]
    return translation.whole(_as_object(translation.schema(whole)), most=most)


def _is_object(document: Document, node: Any, known: dict[int, bool]) -> bool:
    """Return True if every value of a schema is an object; ``known`` caches earlier results."""
    if not isinstance(node, dict) or node.get("nullable") is True:
        return False
    schema = document.follow(node, "an answer")
    if id(schema) not in known:
        known[id(schema)] = False
        known[id(schema)] = _has_objects(document, schema, known)
    return known[id(schema)]


def _has_objects(document: Document, schema: dict[str, Any], known: dict[int, bool]) -> bool:
    if schema.get("nullable") is True:
        return False
    kind = schema.get("type")
    if kind is not None:
        return kind in ("object", ["object"])
    if any(_is_object(document, each, known) for each in as_list(schema.get("allOf"))):
        return True
    forms = as_list(schema.get("oneOf")) or as_list(schema.get("anyOf"))
    if forms:
        return all(_is_object(document, each, known) for each in forms)
    return "properties" in schema


def _as_object(schema: dict[str, Any]) -> dict[str, Any]:
    return schema if schema.get("type") == "object" else {"type": "object", **schema}


log = logging.getLogger("trunkline_servers")

#: Schema nodes of all tools together, and the least and most of one tool.
_ALL_NODES = 100_000
_FEWEST_NODES, _MOST_NODES = 100, 2000
#: Schema nodes that remain if a schema is unusable for another reason.
_NEAREST_NODES = 60
#: Most bytes of one schema: an enum is a single node, however long.
_MOST_BYTES = 128 * 1024


class OperationFilter(Struct, frozen=True):
    """A filter for operations; empty criteria accept everything."""

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    tags: frozenset[str] = frozenset()
    methods: frozenset[str] = frozenset()

    def accepts(self, listed: OperationEntry) -> bool:
        """Return True if an operation passes the filter."""
        if self.methods and listed.method not in self.methods:
            return False
        if self.tags and not self.tags & listed.tags:
            return False
        return (not self.include or _matches(listed, self.include)) and not _matches(listed, self.exclude)


def _matches(listed: OperationEntry, patterns: Sequence[str]) -> bool:
    names = (listed.name, listed.identifier, listed.path, f"{listed.method} {listed.path}")
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names if name)


def select_operations(document: Document, choice: OperationFilter, *, most: int) -> list[OperationEntry]:
    """Return the operations that pass the filter.

    Raises:
        ConfigError: there are none, or too many.
    """
    chosen = [listed for listed in list_operations(document) if choice.accepts(listed)]
    if not chosen:
        raise ConfigError(
            f"No operation of {document.name} is left: the filters leave all out, so change --include, --exclude, "
            "--tag, --method or --read-only"
        )
    if len(chosen) > most:
        raise ConfigError(
            f"{document.name} has {len(chosen)} operations to offer, more than {most}: choose with --include, "
            "--exclude, --tag, --method or --read-only, or raise --max-operations"
        )
    return chosen


class OperationTool(Struct, frozen=True):
    """An operation as a tool."""

    operation: Operation
    base: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None


class ToolBuilder:
    """Builds tools from the operations of one document."""

    def __init__(
        self,
        document: Document,
        credentials: Credentials,
        *,
        base: str,
        own_bases: Mapping[str, str] | None,
        output_schemas: bool,
        count: int,
    ) -> None:
        """Initialize with what all operations share.

        ``own_bases`` are the server variables for operations that name their own servers; None ignores those servers.
        """
        self._document = document
        self._credentials = credentials
        self._base = base
        self._own_bases = own_bases
        self._output_schemas = output_schemas
        self._most = min(_MOST_NODES, max(_FEWEST_NODES, _ALL_NODES // max(count, 1)))
        #: By direction (inputs or outputs) and whether patterns are kept.
        self._translations = {
            (inputs, patterns): SchemaTranslator(document, inputs=inputs, patterns=patterns)
            for inputs in (True, False)
            for patterns in (True, False)
        }

    def offer(self, listed: OperationEntry) -> OperationTool | None:
        """Build the tool of an operation; None, with a log line, if its server is of another origin.

        Raises:
            ConfigError: the document must not be used.
        """
        base = self._base_of(listed)
        if base is None:
            log.warning("%s is skipped: it names a server of another origin", listed.what)
            return None
        operation = read_operation(self._document, listed, self._credentials)
        given = input_schema(self._document, operation, self._translations[True, True], self._most)
        output = self._output(operation, patterns=True, most=self._most // 2)
        offer = OperationTool(operation, base, given, output)
        return offer if _is_short(given) and (output is None or _is_short(output)) else self.simplified(offer)

    def simplified(self, offer: OperationTool) -> OperationTool | None:
        """Rebuild a tool whose schemas are unusable in a simpler form; None, with a log line, if that fails.

        Raises:
            ConfigError: the document must not be used.
        """
        operation = offer.operation

        def given(*, patterns: bool, most: int) -> dict[str, Any] | None:
            return input_schema(self._document, operation, self._translations[True, patterns], most)

        def answered(*, patterns: bool, most: int) -> dict[str, Any] | None:
            return self._output(operation, patterns=patterns, most=most // 2)

        schema = self._tried(given)
        if schema is None:
            log.warning("%s is skipped: the schema of its arguments cannot be used", operation.listed.what)
            return None
        return OperationTool(operation, offer.base, schema, self._tried(answered))

    def _base_of(self, listed: OperationEntry) -> str | None:
        servers = listed.node.get("servers") or listed.item.get("servers")
        if not servers or self._own_bases is None:
            return self._base
        return operation_base_url(self._document, servers, self._base, variables=self._own_bases)

    def _output(self, operation: Operation, *, patterns: bool, most: int) -> dict[str, Any] | None:
        if not self._output_schemas:
            return None
        return output_schema(self._document, operation, self._translations[False, patterns], most)

    def _tried(self, make: Callable[..., dict[str, Any] | None]) -> dict[str, Any] | None:
        """Return the most exact schema that can be used; None if there is none."""
        for patterns, most in ((True, self._most), (False, self._most), (False, _NEAREST_NODES)):
            schema = make(patterns=patterns, most=most)
            if schema is None:
                return None
            try:
                compile_schema(schema)
            except SchemaError:
                continue
            return schema if _is_short(schema) else None
        return None


def _is_short(schema: dict[str, Any]) -> bool:
    return len(msgspec.json.encode(schema)) <= _MOST_BYTES
