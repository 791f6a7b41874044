"""JSON Schema: the one entrance to the validator, and the inlining of its references.

It knows neither tools nor revisions. A schema is checked before it is compiled, since it may come from the other side:
its dialect is one of five, it is not too deep or too large (also with its references written out, where a kilobyte can
stand for billions of checks), and every reference leads into the schema itself. Nothing is ever fetched. Patterns run
in a linear-time engine, so one with look-around or a back-reference is rejected; ``format`` is an annotation, not a
check. A violation has its path, what was expected and the type that was found, and never shows the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from operator import getitem
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeGuard

from msgspec import Struct

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = [
    "SchemaError",
    "SchemaViolation",
    "Validator",
    "apply_defaults",
    "check_form_schema",
    "compile_schema",
    "inline_references",
]

# By URI without its empty fragment; http and https are the same.
_DIALECTS = MappingProxyType(
    {
        "//json-schema.org/draft/2020-12/schema": "Draft202012Validator",
        "//json-schema.org/draft/2019-09/schema": "Draft201909Validator",
        "//json-schema.org/draft-07/schema": "Draft7Validator",
        "//json-schema.org/draft-06/schema": "Draft6Validator",
        "//json-schema.org/draft-04/schema": "Draft4Validator",
    }
)
_DEFAULT_DIALECT = "https://json-schema.org/draft/2020-12/schema"

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")
# Where a schema contains schemas, in any dialect: as members under arbitrary names, or as the value itself.
_NAMED = frozenset({"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"})
_OF_ARRAYS = frozenset({"additionalItems", "contains", "items", "prefixItems", "unevaluatedItems"})
_OF_OBJECTS = frozenset({"additionalProperties", "propertyNames", "unevaluatedProperties"})
_OF_ANYTHING = frozenset({"allOf", "anyOf", "contentSchema", "else", "if", "not", "oneOf", "then"})
_DIRECT = _OF_ARRAYS | _OF_OBJECTS | _OF_ANYTHING
# Steps the validator may have to make for one value, references written out; each costs some tens of nanoseconds.
_MOST_EXPANDED = 100_000
# The validator finds every error before it returns the first, so only a value with so many nodes is searched for all.
_MOST_NODES = 10_000


class SchemaError(ValueError):
    """A schema cannot be used; the message says where and why."""


class SchemaViolation(Struct, frozen=True):
    """Where a value does not match (a JSON pointer, empty for the root) and what was expected there."""

    path: str
    message: str


class Validator:
    """A compiled schema; it is immutable and may be shared by threads."""

    __slots__ = ("_branches", "_compiled")

    def __init__(self, compiled: jsonschema_rs.Validator, *, branches: bool) -> None:
        """Wrap the compiled schema; ``branches`` if an error may hold those of several alternatives."""
        self._compiled = compiled
        self._branches = branches

    def first_violation(self, value: Any) -> SchemaViolation | None:
        """Return the first violation, or None if the value matches; for some large values without its place."""
        import jsonschema_rs

        try:
            if self._compiled.is_valid(value):
                return None
            # Where alternatives fail, the validator keeps every error of each: some 20 us for every wrong item.
            if not self._branches or _is_small(value):
                self._compiled.validate(value)
        except jsonschema_rs.ValidationError as error:
            return _violation(error, value)
        except ValueError:
            return SchemaViolation("", "expected a JSON value, found what JSON cannot represent or nests too deeply")
        return SchemaViolation("", "expected what the schema requires; the value is too large to say where it differs")

    def check(self, value: Any, *, limit: int = 20) -> list[SchemaViolation]:
        """Return up to ``limit`` violations; for a large value, or one that is not JSON, only the first."""
        first = self.first_violation(value)
        if first is None or not _is_small(value):
            return [] if first is None else [first]
        try:
            errors = self._compiled.iter_errors(value)
            return [_violation(error, value) for _, error in zip(range(limit), errors, strict=False)]
        except ValueError:
            return [first]


def compile_schema(schema: dict[str, Any], *, max_depth: int = 64, max_subschemas: int = 5000) -> Validator:
    """Check and compile a schema.

    Raises:
        SchemaError: its dialect is unknown, it is too deep or too large, a reference leaves it, or it is invalid.
    """
    import jsonschema_rs

    _check_size(schema, max_depth=max_depth, most=max_subschemas)
    # References were followed already; should the validator find another one, this has no answer.
    nothing: dict[str, Any] = {}
    try:
        document = _Document(schema)
        document.follow_references()
        document.check_expansion()
        kind: type[jsonschema_rs.Validator] = getattr(jsonschema_rs, _DIALECTS[document.dialect])
        patterns = jsonschema_rs.RegexOptions()
        compiled = kind(schema, validate_formats=False, retriever=nothing.__getitem__, pattern_options=patterns)
    except jsonschema_rs.ValidationError as error:
        place = _pointer(error.instance_path)
        if error.kind.as_dict().get("format") == "regex":
            problem = "is too large, not a regular expression, or has look-around or back-references"
            raise SchemaError(f'The pattern at "{place}" {problem}.') from error
        raise SchemaError(f'The schema is invalid at "{place}": {_clipped(error.message)}') from error
    except SchemaError:
        raise
    except ValueError as error:
        raise SchemaError(f"The schema is invalid: {_clipped(str(error))}") from error
    return Validator(compiled, branches=document.branches)


# Checking a schema


def _check_size(schema: Any, *, max_depth: int, most: int) -> None:
    """Reject a schema that is too deep or large, including parts that are not schemas."""
    count = 0
    level = [schema]
    for _ in range(max_depth):
        count += len(level)
        if count > most:
            raise SchemaError(f"The schema has more than {most} objects and arrays.")
        members = (value for node in level for value in (node.values() if isinstance(node, dict) else node))
        containers = (value for value in members if isinstance(value, dict | list))
        level = [value for value, _ in zip(containers, range(most + 1), strict=False)]
        if not level:
            return
    raise SchemaError(f"The schema is nested deeper than {max_depth} levels.")


def _dialect(schema: dict[str, Any]) -> str:
    """Return the key of the dialect that a schema declares."""
    declared = schema.get("$schema", _DEFAULT_DIALECT)
    key = declared.removesuffix("#").removeprefix("https:").removeprefix("http:") if isinstance(declared, str) else ""
    if key not in _DIALECTS:
        known = "2020-12, 2019-09, draft-07, draft-06 or draft-04"
        raise SchemaError(f"Dialect {_shown(declared)} is not supported; use JSON Schema {known}.")
    return key


class _Document:
    """A schema with its references followed: each leads to a part of the document, or the document is rejected."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self.dialect = _dialect(root)
        self.branches = False
        self._resources: dict[str, dict[str, Any]] = {"": root}
        self._anchors: dict[tuple[str, str], dict[str, Any]] = {}
        self._targets: dict[int, list[dict[str, Any]]] = {}
        self._waiting: list[tuple[dict[str, Any], str, str]] = []
        self._walk(root, "")

    def follow_references(self) -> None:
        """Find the target of every reference, including those in parts that only a reference makes schemas."""
        while self._waiting:
            schema, base, reference = self._waiting.pop()
            uri, _, fragment = _joined(base, reference).partition("#")
            if uri not in self._resources:
                raise SchemaError(f'Reference {_shown(reference)} leaves the schema; put its target under "$defs".')
            target = self._target(uri, fragment)
            # The validator has its own message for a missing target.
            if target is not None:
                self._targets[id(schema)].append(target)
                if id(target) not in self._targets:
                    self._walk(target, uri)

    def check_expansion(self) -> None:
        """Reject a schema whose references, written out, multiply beyond the limit; a cycle counts once."""
        sizes: dict[int, int] = {}
        entered: set[int] = set()
        stack = [(self.root, False)]
        while stack:
            schema, left = stack.pop()
            below = [*_children(schema), *self._targets[id(schema)]]
            if left:
                size = 1 + sum(sizes.get(id(node), 1) for node in below)
                if size > _MOST_EXPANDED:
                    raise SchemaError(f"With references written out there are more than {_MOST_EXPANDED} schemas.")
                sizes[id(schema)] = size
            elif id(schema) not in entered:
                entered.add(id(schema))
                stack.append((schema, True))
                stack.extend((node, False) for node in below)

    def _walk(self, schema: dict[str, Any], base: str) -> None:
        """Collect the identifiers, anchors and references of a schema and all below it."""
        stack = [(schema, base)]
        while stack:
            node, base = stack.pop()
            if id(node) in self._targets:
                continue
            self._targets[id(node)] = []
            _dialect(node)
            base = self._identified(node, base)
            self.branches = self.branches or "anyOf" in node or "oneOf" in node
            self._waiting += [(node, base, node[word]) for word in _REFERENCES if isinstance(node.get(word), str)]
            stack.extend((child, base) for child in _children(node))

    def _identified(self, schema: dict[str, Any], base: str) -> str:
        """Register the identifiers of a schema and return the base URI of its references."""
        name = schema.get("id" if "draft-04" in self.dialect else "$id")
        if isinstance(name, str):
            base, _, anchor = _joined(base, name).partition("#")
            if anchor:
                self._anchors.setdefault((base, anchor), schema)
            else:
                self._resources.setdefault(base, schema)
        for word in _ANCHORS:
            if isinstance(schema.get(word), str):
                self._anchors.setdefault((base, schema[word]), schema)
        return base

    def _target(self, uri: str, fragment: str) -> dict[str, Any] | None:
        if fragment and not fragment.startswith("/"):
            return self._anchors.get((uri, fragment))
        return _resolve_pointer(self._resources[uri], fragment)


def _resolve_pointer(root: dict[str, Any], fragment: str) -> dict[str, Any] | None:
    """Return the schema that a JSON pointer in a URI fragment leads to; None if it leads to no object."""
    from urllib.parse import unquote

    node: Any = root
    for step in unquote(fragment).split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        try:
            node = node[int(step)] if isinstance(node, list) else node[step]
        except (IndexError, KeyError, TypeError, ValueError):
            return None
    return node if isinstance(node, dict) else None


def _joined(base: str, reference: str) -> str:
    """Resolve a reference; a bare fragment stays with its base, whatever scheme that has."""
    from urllib.parse import urljoin

    return base + reference if reference.startswith("#") else urljoin(base, reference)


def _children(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the schemas directly below a schema."""
    for keyword, value in schema.items():
        if keyword in _NAMED and isinstance(value, dict):
            candidates: Iterable[Any] = value.values()
        elif keyword in _DIRECT:
            candidates = value if isinstance(value, list) else (value,)
        else:
            continue
        yield from (candidate for candidate in candidates if isinstance(candidate, dict))


# Messages: the words between "expected" and "found"; a name in braces is a member of the error, shown as JSON.
_EXPECTED = MappingProxyType(
    {
        "const": "the value {expected_value}",
        "enum": "one of {options}",
        "exclusiveMaximum": "a number below {limit}",
        "exclusiveMinimum": "a number above {limit}",
        "maxItems": "at most {limit} items",
        "maxLength": "at most {limit} characters",
        "maximum": "a number of at most {limit}",
        "minItems": "at least {limit} items",
        "minLength": "at least {limit} characters",
        "minimum": "a number of at least {limit}",
        "multipleOf": "a multiple of {multiple_of}",
        "not": "something other than what is excluded",
        "pattern": "a string that matches {pattern}",
        "uniqueItems": "items that all differ",
    }
)


def _violation(error: jsonschema_rs.ValidationError, value: Any) -> SchemaViolation:
    """Convert an error of the validator, whose own message shows the value."""
    path = error.instance_path
    keyword = error.kind.name
    details = error.kind.as_dict()
    if keyword == "required":
        return SchemaViolation(_pointer(path), f"expected the property {_shown(details['property'])}, which is missing")
    if "unexpected" in details and keyword != "unevaluatedItems":
        names = details["unexpected"]
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        return SchemaViolation(_pointer(path), f"expected only known properties, found {_shown(names[0])}{more}")
    if keyword in ("anyOf", "oneOf"):
        expected = _alternatives(details["context"], path)
        if not isinstance(expected, str):
            return _violation(expected, value)
    elif keyword == "type":
        expected = _either(details["types"])
    else:
        shown = {name: _shown(item) for name, item in details.items()}
        expected = _EXPECTED.get(keyword, f"what {keyword} requires").format_map(shown)
    return SchemaViolation(_pointer(path), f"expected {expected}, found {_type_name(reduce(getitem, path, value))}")


def _alternatives(
    context: list[list[jsonschema_rs.ValidationError]], path: list[str | int]
) -> str | jsonschema_rs.ValidationError:
    """Return what the alternatives expect together, or the error of the only one with the right type."""
    if not all(context):
        return f"exactly one of {len(context)} forms, not several"
    firsts = [errors[0] for errors in context]
    wrong_type = [error for error in firsts if error.kind.name == "type" and error.instance_path == path]
    if len(wrong_type) == len(firsts):
        return _either(kind for error in firsts for kind in error.kind.as_dict()["types"])
    if len(wrong_type) == len(firsts) - 1:
        return next(error for error in firsts if error not in wrong_type)
    return f"one of {len(firsts)} forms"


def _either(types: Iterable[str]) -> str:
    return " or ".join(sorted(dict.fromkeys(types), key="null".__eq__))


def _type_name(value: Any) -> str:
    names = ((bool, "boolean"), (int, "integer"), (str, "string"), (dict, "object"), ((list, tuple), "array"))
    return "null" if value is None else next((name for kind, name in names if isinstance(value, kind)), "number")


def _pointer(path: Sequence[str | int]) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def _shown(value: Any) -> str:
    """Show a value of the schema, or a name, as JSON; a list as its items; truncated if long."""
    import json

    items = value if isinstance(value, list) else [value]
    return _clipped(", ".join(json.dumps(item, ensure_ascii=False, default=str) for item in items))


def _clipped(text: str) -> str:
    return text if len(text) <= 200 else text[:199] + "…"


def _is_small(value: Any) -> bool:
    """Return True if a value has few nodes, without counting far beyond that."""
    count = 1
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, dict | list | tuple):
            count += len(node)
            if count > _MOST_NODES:
                return False
            stack.extend(node.values() if isinstance(node, dict) else node)
    return True


# Inlining references: these keywords are annotations without effect, so they can stand beside any other.
_NOTES = frozenset({"$comment", "$schema", "default", "deprecated", "description", "examples", "title"})
_DEFINITIONS = ("$defs", "definitions")


def inline_references(schema: dict[str, Any], *, max_depth: int = 40, max_subschemas: int = 3000) -> dict[str, Any]:
    """Inline every reference into the schema itself, and drop the definitions.

    A recursive reference is inlined twice, or once if the result would be too large otherwise; from there anything is
    allowed, and the description says so. Any other reference (to an anchor or another document) allows anything too,
    and so does what is nested deeper than ``max_depth``.

    Raises:
        SchemaError: the result has more than ``max_subschemas`` schemas.
    """
    try:
        return _Inliner(schema, max_depth=max_depth, left=max_subschemas, repeats=2).inlined(schema)
    except SchemaError:
        return _Inliner(schema, max_depth=max_depth, left=max_subschemas, repeats=1).inlined(schema)


class _Inliner:
    """One run of ``inline_references``; each reference may be nested in itself ``repeats`` times."""

    def __init__(self, root: dict[str, Any], *, max_depth: int, left: int, repeats: int) -> None:
        self._root = root
        self._max_depth = max_depth
        self._left = left
        self._repeats = repeats

    def inlined(self, schema: dict[str, Any], inside: tuple[str, ...] = (), depth: int = 0) -> dict[str, Any]:
        """Return a schema with its references inlined; ``inside`` are the references that led to it."""
        self._left -= 1
        if self._left < 0:
            raise SchemaError("The schema is too large with its references inlined.")
        reference = schema.get("$ref")
        dropped = (*_DEFINITIONS, "$ref") if isinstance(reference, str) else _DEFINITIONS
        kept = {key: value for key, value in schema.items() if key not in dropped}
        if depth > self._max_depth:
            return {key: value for key, value in kept.items() if not isinstance(value, dict | list)}
        copy = _rewritten(kept, lambda part: self.inlined(part, inside, depth + 1))
        if not isinstance(reference, str):
            return copy
        if inside.count(reference) >= self._repeats:
            return {**copy, "description": _nested_description(copy)}
        target = self._target(reference)
        return copy if target is None else _merged(copy, self.inlined(target, (*inside, reference), depth + 1))

    def _target(self, reference: str) -> dict[str, Any] | None:
        """Resolve a pointer into the schema; return None for any other reference."""
        is_pointer = reference == "#" or reference.startswith("#/")
        return _resolve_pointer(self._root, reference[1:]) if is_pointer else None


def _nested_description(schema: dict[str, Any]) -> str:
    note, said = "(nested in the same way)", schema.get("description")
    return f"{said} {note}" if isinstance(said, str) else note


def _rewritten(schema: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Copy a schema and apply ``change`` to each schema directly below it."""

    def changed(value: Any) -> Any:
        return change(value) if isinstance(value, dict) else value

    copy: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _NAMED and isinstance(value, dict):
            copy[keyword] = {name: changed(item) for name, item in value.items()}
        elif keyword in _DIRECT and isinstance(value, list):
            copy[keyword] = [changed(item) for item in value]
        else:
            copy[keyword] = changed(value) if keyword in _DIRECT else value
    return copy


def _merged(beside: dict[str, Any], target: dict[str, Any]) -> dict[str, Any]:
    """Return the target of a reference with what stands beside the reference; both of two constraints are kept."""
    more = {key: value for key, value in beside.items() if key not in target or target[key] != value}
    if more.keys() <= _NOTES:
        return {**target, **more}
    return {**beside, "allOf": [*beside.get("allOf", ()), target]}


# Elicitation forms: members of a field by its type ("pattern" and "enumNames" are of older revisions).
_FIELDS = MappingProxyType(
    {
        "string": frozenset({"enum", "enumNames", "format", "maxLength", "minLength", "oneOf", "pattern"}),
        "number": frozenset({"maximum", "minimum"}),
        "integer": frozenset({"maximum", "minimum"}),
        "boolean": frozenset(),
        "array": frozenset({"items", "maxItems", "minItems"}),
    }
)
_FIELD_NOTES = frozenset({"$comment", "default", "deprecated", "description", "examples", "title", "type"})
_FORM = frozenset({"$schema", "additionalProperties", "description", "properties", "required", "title", "type"})
_ITEM = frozenset({"anyOf", "description", "enum", "title", "type"})
_FORMATS = ("date", "date-time", "email", "uri")


def check_form_schema(schema: dict[str, Any]) -> None:
    """Check that a schema is a form that a client can show: an object of strings, numbers, switches and choices.

    Raises:
        SchemaError: it is not; the message names the property and what is allowed.
    """
    fields = schema.get("properties")
    closed = schema.get("additionalProperties", False)
    if schema.get("type") != "object" or not isinstance(fields, dict) or not isinstance(closed, bool):
        raise SchemaError('A form needs "type": "object" and "properties", and no schema for additional properties.')
    _check_members(schema, _FORM, "A form")
    required = schema.get("required", [])
    if not (_is_texts(required) and set(required) <= set(fields)):
        raise SchemaError('A form\'s "required" must be a list of names from its "properties".')
    for name, field in fields.items():
        _check_field(f"Property {_shown(name)}", field)


def _check_field(who: str, field: Any) -> None:
    kind = field.get("type") if isinstance(field, dict) else None
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise SchemaError(f'{who} needs one "type": string, number, integer, boolean, or array (of choices).')
    _check_members(field, _FIELDS[kind] | _FIELD_NOTES, f"{who}, of type {kind},")
    if field.get("format", "date") not in _FORMATS:
        raise SchemaError(f"{who} has a format that is none of {', '.join(_FORMATS)}.")
    choices = _choices(who, field)
    if "default" in field and not _is_default(kind, field["default"], choices):
        raise SchemaError(f"{who} has a default that the property itself does not allow.")


def _check_members(schema: dict[str, Any], allowed: frozenset[str], who: str) -> None:
    for keyword in schema:
        if keyword not in allowed and not keyword.startswith("x-"):
            raise SchemaError(f"{who} may not have {_shown(keyword)}; only {', '.join(sorted(allowed))}.")


def _choices(who: str, field: dict[str, Any]) -> list[str] | None:
    """Return the choices of a field, or None if it has none."""
    several = field["type"] == "array"
    source = field.get("items") if several else field
    titled = "anyOf" if several else "oneOf"
    if not several and not {"enum", "enumNames", "oneOf"} & field.keys():
        return None
    if isinstance(source, dict) and ("enum" in source) != (titled in source) and (not several or _is_item(source)):
        values, names = source.get("enum"), source.get("enumNames", source.get("enum"))
        options = source.get(titled)
        if isinstance(options, list):
            values, names = ([o.get(w) if isinstance(o, dict) else None for o in options] for w in ("const", "title"))
        if values and _is_texts(values) and _is_texts(names) and len(values) == len(names):
            return values
    raise SchemaError(
        f'{who} must list its choices as strings, in "enum" or as "{titled}" of {{"const": …, "title": …}}, not both.'
    )


def _is_item(items: dict[str, Any]) -> bool:
    return items.get("type", "string" if "anyOf" in items else None) == "string" and items.keys() <= _ITEM


def _is_texts(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_default(kind: str, value: Any, choices: list[str] | None) -> bool:
    if kind == "array":
        return _is_texts(value) and set(value) <= set(choices or ())
    if kind == "number":
        return _type_name(value) in ("integer", "number")
    return _type_name(value) == kind and (choices is None or value in choices)


def apply_defaults(schema: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    """Return the content with the default of each property that it leaves out."""
    fields = schema.get("properties", {})
    given = {name: field for name, field in fields.items() if isinstance(field, dict) and "default" in field}
    return {**{name: field["default"] for name, field in given.items()}, **content}
