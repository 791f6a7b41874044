"""Schemas of OpenAPI documents as JSON Schema: what ``nullable``, ``readOnly`` and ``writeOnly`` mean there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["convert_openapi_schema_to_json_schema", "convert_schema_definitions"]

#: Members of OpenAPI 3.0 that JSON Schema does not have.
_FOREIGN = ("nullable", "discriminator", "readOnly", "writeOnly", "xml", "externalDocs", "deprecated")
#: Members that hold a schema, a list of them, or a mapping of names to them.
_ONE = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
_SEVERAL = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def convert_openapi_schema_to_json_schema(
    schema: Mapping[str, Any],
    openapi_version: str | None = None,
    remove_read_only: bool = False,
    remove_write_only: bool = False,
    definitions: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a schema without what only OpenAPI has.

    ``remove_write_only`` leaves out properties that are only sent in requests, ``remove_read_only`` those that are only
    sent in responses; ``definitions`` are the named schemas that references are followed in to find them.
    """
    made = dict(schema)
    unwanted = _unwanted(remove_read_only, remove_write_only)
    if unwanted:
        made = _projected(made, unwanted, definitions or {})
    old = openapi_version is None or openapi_version.startswith("3.0")
    converted: dict[str, Any] = _converted(made, old)
    return converted


def convert_schema_definitions(
    definitions: Mapping[str, Any] | None,
    openapi_version: str | None = None,
    remove_write_only: bool = False,
) -> dict[str, Any]:
    """Convert named schemas, as ``convert_openapi_schema_to_json_schema`` does."""
    given = dict(definitions or {})
    return {
        name: convert_openapi_schema_to_json_schema(
            each, openapi_version, remove_write_only=remove_write_only, definitions=given
        )
        for name, each in given.items()
    }


def _unwanted(read_only: bool, write_only: bool) -> tuple[str, ...]:
    return (*(("readOnly",) if read_only else ()), *(("writeOnly",) if write_only else ()))


def _converted(node: Any, old: bool) -> Any:
    """Return a schema, and all schemas in it, as JSON Schema."""
    if not isinstance(node, Mapping):
        return node
    made: dict[str, Any] = {}
    for key, value in node.items():
        if key in _FOREIGN:
            continue
        if key in _ONE:
            made[key] = _converted(value, old)
        elif key in _SEVERAL and isinstance(value, list):
            # That only one of them matches is what many documents say and few mean: values that match two are valid.
            made["anyOf" if key == "oneOf" else key] = [_converted(each, old) for each in value]
        elif key in _NAMED and isinstance(value, Mapping):
            made[key] = {name: _converted(each, old) for name, each in value.items()}
        else:
            made[key] = value
    return _nullable(made) if old and node.get("nullable") is True else made


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    kind = schema.get("type")
    if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    for member in ("anyOf", "oneOf"):
        if member in schema:
            return {**schema, member: [*schema[member], {"type": "null"}]}
    if "allOf" in schema:
        inner = {"allOf": schema.pop("allOf")}
        schema.pop("type", None)
        return {**schema, "anyOf": [inner, {"type": "null"}]}
    if isinstance(kind, str):
        return {**schema, "type": [kind, "null"]}
    if isinstance(kind, list) and "null" not in kind:
        return {**schema, "type": [*kind, "null"]}
    if "$ref" in schema:
        reference = schema.pop("$ref")
        return {**schema, "anyOf": [{"$ref": reference}, {"type": "null"}]}
    return schema


# --- what only requests or only responses have -----------------------------------------------------------------------


def _projected(node: Any, unwanted: tuple[str, ...], definitions: Mapping[str, Any]) -> Any:
    """Return a schema without the unwanted properties; an object's may stand in several members of ``allOf``."""
    if not isinstance(node, Mapping):
        return node
    names = _unwanted_names(node, unwanted, definitions, set())
    return _without(dict(node), names, unwanted, definitions)


def _without(
    schema: dict[str, Any], names: set[str], unwanted: tuple[str, ...], definitions: Mapping[str, Any]
) -> dict[str, Any]:
    made = dict(schema)
    if isinstance(made.get("properties"), Mapping):
        made["properties"] = {
            name: _projected(each, unwanted, definitions)
            for name, each in made["properties"].items()
            if name not in names
        }
    if isinstance(made.get("required"), list):
        kept = [name for name in made["required"] if name not in names]
        if kept or not made["required"]:
            made["required"] = kept
        else:
            del made["required"]
    for key in ("allOf", "anyOf", "oneOf"):
        # Members of these describe the same object.
        if isinstance(made.get(key), list):
            made[key] = [
                _without(dict(each), names | _unwanted_names(each, unwanted, definitions, set()), unwanted, definitions)
                if isinstance(each, Mapping)
                else each
                for each in made[key]
            ]
    for key in ("items", "additionalProperties", "not", "contains"):
        if isinstance(made.get(key), Mapping):
            made[key] = _projected(made[key], unwanted, definitions)
    if isinstance(made.get("prefixItems"), list):
        made["prefixItems"] = [_projected(each, unwanted, definitions) for each in made["prefixItems"]]
    return made


def _unwanted_names(node: Any, unwanted: tuple[str, ...], definitions: Mapping[str, Any], seen: set[str]) -> set[str]:
    """Return the names of the unwanted properties of one object, its references and members of ``allOf`` included."""
    if not isinstance(node, Mapping):
        return set()
    names = {
        name
        for name, each in (node.get("properties") or {}).items()
        if _is_unwanted(each, unwanted, definitions, set())
    }
    target = _target(node)
    if target is not None and target not in seen and target in definitions:
        seen.add(target)
        names |= _unwanted_names(definitions[target], unwanted, definitions, seen)
    for each in node.get("allOf") or ():
        names |= _unwanted_names(each, unwanted, definitions, seen)
    return names


def _is_unwanted(node: Any, unwanted: tuple[str, ...], definitions: Mapping[str, Any], seen: set[str]) -> bool:
    if not isinstance(node, Mapping):
        return False
    if any(node.get(key) is True for key in unwanted):
        return True
    target = _target(node)
    if target is None or target in seen or target not in definitions:
        return any(_is_unwanted(each, unwanted, definitions, seen) for each in node.get("allOf") or ())
    return _is_unwanted(definitions[target], unwanted, definitions, {*seen, target})


def _target(node: Mapping[str, Any]) -> str | None:
    reference = node.get("$ref")
    return reference.rpartition("/")[2] if isinstance(reference, str) and reference.startswith("#/") else None
