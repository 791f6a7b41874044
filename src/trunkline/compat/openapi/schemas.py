"""The schema of a tool's arguments, made of an operation's parameters and body, and where each argument goes.

The members of a body that is an object are arguments of their own; any other body is one argument. A parameter whose
name something else has too is called by its name and its place: ``id__path``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from trunkline.compat.openapi.json_schema_converter import (
    convert_openapi_schema_to_json_schema,
    convert_schema_definitions,
)

__all__ = [
    "as_definitions",
    "body_media_type",
    "extract_output_schema_from_responses",
    "is_json",
    "named_in",
    "reference_name",
]

_COMPONENTS = "#/components/schemas/"
_DEFINITIONS = "#/$defs/"
#: Members of an object schema that say more than its properties do: merged with others, they would be lost.
_BEYOND_PROPERTIES = ("oneOf", "anyOf", "not", "if", "patternProperties", "propertyNames", "dependentSchemas")
#: Members that describe, and constrain nothing.
_ANNOTATIONS = ("title", "description", "example", "examples", "default", "deprecated", "externalDocs", "xml", "$defs")
_MAX_DEPTH = 30  # Schemas of honest documents nest a few levels deep.


def as_definitions(node: Any) -> Any:
    """Return a copy whose references to the document's schemas are references to ``$defs``."""
    if isinstance(node, list):
        return [as_definitions(each) for each in node]
    if not isinstance(node, Mapping):
        return node
    return {
        key: _DEFINITIONS + value[len(_COMPONENTS) :]
        if key == "$ref" and isinstance(value, str) and value.startswith(_COMPONENTS)
        else as_definitions(value)
        for key, value in node.items()
    }


def reference_name(node: Any) -> str | None:
    """Return the name of the schema that a schema refers to, or None."""
    reference = node.get("$ref") if isinstance(node, Mapping) else None
    if not isinstance(reference, str):
        return None
    for start in (_DEFINITIONS, _COMPONENTS):
        if reference.startswith(start):
            return reference[len(start) :].replace("~1", "/").replace("~0", "~")
    return None


def named_in(nodes: Iterable[Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Return the named schemas that some schemas refer to, and those that these refer to."""
    found: dict[str, Any] = {}
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, Mapping):
            name = reference_name(node)
            names = [] if name is None else [name]
            mapping = (node.get("discriminator") or {}).get("mapping") if isinstance(node, Mapping) else None
            names += [_mapped(target) for target in mapping.values()] if isinstance(mapping, Mapping) else []
            for each in names:
                if each in schemas and each not in found:
                    found[each] = schemas[each]
                    waiting.append(schemas[each])
            waiting += list(node.values())
    return found


def _mapped(target: Any) -> str:
    """Return the name of the schema that a discriminator maps to; a name that no schema has if it is elsewhere."""
    text = str(target)
    return reference_name({"$ref": text}) or (text if "/" not in text and "#" not in text else "")


def is_json(media_type: str) -> bool:
    """Return whether a media type is JSON."""
    kind = media_type.partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def body_media_type(content: Mapping[str, Any]) -> str | None:
    """Return the media type that a body is sent as: JSON if it may be, or the first."""
    return next((kind for kind in content if is_json(kind)), next(iter(content), None))


# --- the body --------------------------------------------------------------------------------------------------------


class _Object:
    """The properties of a body, gathered from everything that describes it."""

    def __init__(self) -> None:
        self.properties: dict[str, Any] = {}
        self.required: list[str] = []
        #: The named schemas that were added: a second time they add nothing, and a circle ends.
        self.seen: set[str] = set()

    def add(self, schema: Mapping[str, Any], *, optional: bool = False) -> None:
        """Add properties; one that is there already must match both schemas."""
        for name, each in (schema.get("properties") or {}).items():
            before = self.properties.get(name)
            if before is None:
                self.properties[name] = each
            elif before != each:
                parts = before["allOf"] if isinstance(before, Mapping) and set(before) == {"allOf"} else [before]
                self.properties[name] = {"allOf": [*parts, each]}
        if not optional:
            self.required += [name for name in schema.get("required") or () if name not in self.required]


def _gather(schema: Any, definitions: Mapping[str, Any], into: _Object, merging: bool, depth: int = 0) -> bool:
    """Add the properties of an object schema; return False if they do not say all of it."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH or schema.get("type", "object") != "object":
        return False
    name = reference_name(schema)
    own = {key: value for key, value in schema.items() if key not in (*_ANNOTATIONS, "$ref", "discriminator")}
    parts = schema.get("allOf") or []
    merging = merging or len(parts) > 1 or bool(name is not None and own)
    if any(key in schema and not (key == "oneOf" and "discriminator" in schema) for key in _BEYOND_PROPERTIES):
        return False
    if merging and schema.get("additionalProperties", True) is False:
        return False
    if name is not None and name not in into.seen:
        into.seen.add(name)
        if not _gather(definitions.get(name), definitions, into, merging, depth + 1):
            return False
    if not all(_gather(each, definitions, into, merging, depth + 1) for each in parts):
        return False
    into.add(schema)
    return True


def _discriminated(schema: Any, definitions: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the schema with a discriminator that a body is, or refers to."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, Mapping):
            return None
        if isinstance(schema.get("discriminator"), Mapping):
            return schema
        name = reference_name(schema)
        if name is None:
            return None
        schema = definitions.get(name)
    return None


def _add_variants(schema: Mapping[str, Any], definitions: Mapping[str, Any], into: _Object) -> None:
    """Add what the variants of a discriminated object have, all of it optional, and say which belongs to which."""
    about = schema["discriminator"]
    member = about.get("propertyName")
    found: dict[str, list[Any]] = {}
    notes = []
    for value, target in (about.get("mapping") or {}).items():
        name = _mapped(target)
        variant = _Object()
        if name not in definitions or not _gather(definitions[name], definitions, variant, True):
            continue
        own = [each for each in variant.properties if each not in into.properties or each == member]
        for each in own:
            if each not in into.properties:
                alternatives = found.setdefault(each, [])
                if variant.properties[each] not in alternatives:
                    alternatives.append(variant.properties[each])
        fields = ", ".join(each for each in own if each != member)
        notes.append(f"'{value}'" + (f" (with {fields})" if fields else ""))
    for each, alternatives in found.items():
        into.properties[each] = alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}
    if notes and member in into.properties:
        given = dict(into.properties[member])
        text = f"One of: {'; '.join(notes)}."
        given["description"] = f"{given['description']} {text}" if given.get("description") else text
        into.properties[member] = given


def _body_arguments(route: Any) -> tuple[dict[str, Any], list[str], str | None]:
    """Return the arguments that a body is made of, those that are required, and the one that is the whole body."""
    body = route.request_body
    kind = None if body is None else body_media_type(body.content_schema)
    if kind is None:
        return {}, [], None
    definitions = as_definitions(route.request_schemas)
    schema = as_definitions(body.content_schema[kind])
    gathered = _Object()
    if _gather(schema, definitions, gathered, False):
        variants = _discriminated(schema, definitions)
        if variants is not None:
            _add_variants(variants, definitions, gathered)
        if gathered.properties:
            required = [name for name in gathered.required if name in gathered.properties]
            return gathered.properties, required if body.required or required else [], None
    whole = _as_one_schema(schema, definitions)
    name = _argument_name(schema, definitions)
    return {name: whole}, [name] if body.required else [], name


def _as_one_schema(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Any:
    """Return the schema of a whole body; a reference beside ``allOf`` only is what it refers to, with the rest."""
    name = reference_name(schema)
    target = definitions.get(name) if name is not None else None
    if isinstance(target, Mapping) and set(schema) - {"$ref"} <= {"allOf", *_ANNOTATIONS}:
        merged = {**target}
        for each in schema.get("allOf") or ():
            merged |= {key: value for key, value in each.items() if key not in merged}
        return merged
    return dict(schema)


def _argument_name(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    title = schema.get("title")
    name = reference_name(schema)
    if title is None and name is not None and isinstance(definitions.get(name), Mapping):
        title = definitions[name].get("title")
    return re.sub(r"[^a-z0-9_]+", "_", str(title).lower()).strip("_") or "body" if title else "body"


# --- all arguments ---------------------------------------------------------------------------------------------------


def _combine_schemas_and_map_params(
    route: Any, convert_refs: bool = True
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the schema of a tool's arguments, and by argument where it goes and under which name."""
    members, required, whole = _body_arguments(route)
    counts = Counter(each.name for each in route.parameters)
    properties: dict[str, Any] = {}
    needed: list[str] = []
    places: dict[str, dict[str, Any]] = {}
    for each in route.parameters:
        collides = counts[each.name] > 1 or each.name in members
        name = f"{each.name}__{each.location}" if collides else each.name
        schema = dict(as_definitions(each.schema_))
        if each.description and "description" not in schema:
            schema["description"] = each.description
        if collides:
            text = f"{each.location.capitalize()} parameter"
            schema["description"] = f"{schema['description']} ({text})" if schema.get("description") else text
        properties[name] = schema
        places[name] = {"location": each.location, "openapi_name": each.name}
        if each.required:
            needed.append(name)
    for name, schema in members.items():
        properties[name] = schema
        places[name] = {"location": "body", "openapi_name": name, **({"is_body": True} if name == whole else {})}
    needed += [name for name in required if name not in needed]
    made: dict[str, Any] = {"type": "object", "properties": properties}
    if needed:
        made["required"] = needed
    return _described(made, route), places


def _described(schema: dict[str, Any], route: Any) -> dict[str, Any]:
    """Return the schema as JSON Schema, with the definitions that it refers to."""
    definitions = as_definitions(route.request_schemas)
    converted = convert_openapi_schema_to_json_schema(schema, route.openapi_version)
    used = named_in([converted], definitions)
    if used:
        converted["$defs"] = convert_schema_definitions(used, route.openapi_version)
    return converted


def _combine_schemas(route: Any) -> dict[str, Any]:
    """Return the schema of a tool's arguments."""
    return _combine_schemas_and_map_params(route)[0]


def extract_output_schema_from_responses(
    responses: Mapping[str, Any],
    schema_definitions: Mapping[str, Any] | None = None,
    openapi_version: str | None = None,
) -> dict[str, Any] | None:
    """Return the schema of a tool's structured result, from the first JSON response of success; None without one."""
    chosen = success_response(responses)
    kind = None if chosen is None else next((each for each in chosen.content_schema if is_json(each)), None)
    if chosen is None or kind is None or not chosen.content_schema[kind]:
        return None
    definitions = as_definitions(schema_definitions or {})
    schema = convert_openapi_schema_to_json_schema(
        as_definitions(chosen.content_schema[kind]), openapi_version, remove_write_only=True, definitions=definitions
    )
    name = reference_name(schema)
    if name is not None and set(schema) <= {"$ref", *_ANNOTATIONS} and name in definitions:
        schema = convert_openapi_schema_to_json_schema(
            definitions[name], openapi_version, remove_write_only=True, definitions=definitions
        )
        schema["x-fastmcp-top-level-schema"] = name
    used = named_in([schema], definitions)
    if not _is_object(schema, definitions):
        schema = {
            "type": "object",
            "properties": {"result": schema},
            "required": ["result"],
            "x-fastmcp-wrap-result": True,
        }
    elif schema.get("type") != "object":
        schema = {"type": "object", **schema}
    if used:
        schema["$defs"] = convert_schema_definitions(used, openapi_version, remove_write_only=True)
    return schema


def _is_object(schema: Any, definitions: Mapping[str, Any], depth: int = 0) -> bool:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return False
    if schema.get("type") == "object" or "properties" in schema:
        return True
    name = reference_name(schema)
    if name is not None:
        return _is_object(definitions.get(name), definitions, depth + 1)
    return any(_is_object(each, definitions, depth + 1) for each in schema.get("allOf") or ())


def success_response(responses: Mapping[str, Any]) -> Any:
    """Return the response of success: that of the usual statuses, or any other of them; None if there is none."""
    for status in ("200", "201", "202", "204"):
        if status in responses:
            return responses[status]
    return next((each for status, each in responses.items() if str(status).startswith("2")), None)
