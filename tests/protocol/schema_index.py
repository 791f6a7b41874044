"""The index of the protocol's schemas: which revision has which methods, and which members its definitions have.

``python -m tests.protocol.schema_index FOLDER`` regenerates it from the published schemas, one folder per revision. A
schema that is written inline gets the name of our type for it, so that all revisions can be compared: the params of a
request ``X`` are the definition ``XParams``, and several definitions that are one type for us are merged.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["INDEX", "PUBLISHED", "build", "load"]

INDEX = Path(__file__).parents[1] / "data" / "schema_index.json"
PUBLISHED = Path(__file__).parents[3] / "shared" / "spec"

Schema = dict[str, Any]

#: Our name of what a definition writes inline under a member.
INLINE = {
    ("ClientCapabilities", "roots"): "RootsCapability",
    ("ClientCapabilities", "sampling"): "SamplingCapability",
    ("ClientCapabilities", "elicitation"): "ElicitationCapability",
    ("ServerCapabilities", "prompts"): "PromptsCapability",
    ("ServerCapabilities", "resources"): "ResourcesCapability",
    ("ServerCapabilities", "tools"): "ToolsCapability",
    ("CompleteRequestParams", "argument"): "CompletionArgument",
    ("CompleteRequestParams", "context"): "CompletionContext",
    ("CompleteResult", "completion"): "Completion",
    ("RequestParams", "_meta"): "RequestMeta",
}

#: Our name of what is one or several definitions.
MERGED = {
    "ErrorObject": ("Error",),
    "RequestMeta": ("RequestMetaObject",),
    "ResourceContents": ("ResourceContents", "TextResourceContents", "BlobResourceContents"),
    "ElicitRequestParams": ("ElicitRequestFormParams", "ElicitRequestURLParams"),
}


def load() -> dict[str, Any]:
    """Load the index that is stored with the tests."""
    index: dict[str, Any] = json.loads(INDEX.read_text())
    return index


def build(schema: Schema) -> dict[str, Any]:
    """Build the index of one revision from its schema."""
    definitions: dict[str, Schema] = schema.get("definitions") or schema["$defs"]
    return {
        "requests_to_server": _methods("ClientRequest", definitions),
        "requests_to_client": _methods("ServerRequest", definitions),
        "notifications_to_server": _methods("ClientNotification", definitions),
        "notifications_to_client": _methods("ServerNotification", definitions),
        "embedded_requests": _methods("InputRequest", definitions),
        "names": sorted(definitions),
        "definitions": _members(definitions),
    }


def _methods(union: str, definitions: dict[str, Schema]) -> list[str]:
    schema = definitions.get(union, {"anyOf": []})
    options = [_resolved(option, definitions) for option in schema.get("anyOf", [schema])]
    return sorted(option["properties"]["method"]["const"] for option in options)


def _resolved(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    while "$ref" in schema:
        schema = definitions[schema["$ref"].rsplit("/", 1)[1]]
    return schema


def _flat(schema: Schema, definitions: dict[str, Schema]) -> dict[str, Any]:
    """Return the members of an object, including those of all its parts."""
    schema = _resolved(schema, definitions)
    parts = [schema, *(_resolved(part, definitions) for part in schema.get("allOf", []))]
    return {
        "properties": {name: part for each in parts for name, part in each.get("properties", {}).items()},
        "required": sorted({name for each in parts for name in each.get("required", [])}),
    }


def _members(definitions: dict[str, Schema]) -> dict[str, Any]:
    messages = {name: schema for name, schema in definitions.items() if _is_message(schema)}
    found = {
        name: _flat(schema, definitions)
        for name, schema in definitions.items()
        if name not in messages and "$ref" not in schema
    }
    for name, schema in messages.items():
        params = schema["properties"].get("params", {})
        if "method" in schema["properties"] and "$ref" not in params:
            found.setdefault(f"{name}Params", _with_meta(name, _flat(params, definitions), definitions))
    for (name, member), ours in INLINE.items():
        inline = found.get(name, {"properties": {}})["properties"].get(member)
        if inline is not None:
            found[ours] = _flat(inline, definitions)
    for ours, theirs in MERGED.items():
        present = [_flat(definitions[name], definitions) for name in theirs if name in definitions]
        if present:
            found[ours] = _merged(present)
    return {
        name: {"properties": sorted(flat["properties"]), "required": flat["required"]}
        for name, flat in sorted(found.items())
        if flat["properties"] or name.endswith("Capability")
    }


def _is_message(schema: Schema) -> bool:
    return not {"method", "jsonrpc"}.isdisjoint(schema.get("properties", {}))


def _with_meta(name: str, flat: dict[str, Any], definitions: dict[str, Schema]) -> dict[str, Any]:
    """Add the ``_meta`` that params have in general, which inline ones do not repeat."""
    kind = "Request" if name.endswith("Request") else "Notification"
    general = definitions.get(f"{kind}Params") or definitions[kind]["properties"]["params"]
    return {**flat, "properties": {"_meta": general["properties"]["_meta"], **flat["properties"]}}


def _merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    required = set.intersection(*(set(part["required"]) for part in parts))
    return {
        "properties": {name: schema for part in parts for name, schema in part["properties"].items()},
        "required": sorted(required),
    }


def main(folder: Path) -> None:
    """Write the index of all revisions found in a folder."""
    schemas = sorted(folder.glob("*/schema.json"))
    index = {path.parent.name: build(json.loads(path.read_text())) for path in schemas}
    INDEX.write_text(_lines(index, depth=2) + "\n")


def _lines(value: dict[str, Any], *, depth: int) -> str:
    """Write JSON with a line for each member down to a depth, and no further."""

    def write(part: Any) -> str:
        return _lines(part, depth=depth - 1) if depth and isinstance(part, dict) else json.dumps(part)

    return "{\n" + ",\n".join(f"{json.dumps(name)}: {write(part)}" for name, part in value.items()) + "\n}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
