"""A large document, made the same each time: hundreds of operations, long names, and ids that collide."""

from __future__ import annotations

from typing import Any

__all__ = ["OPERATIONS", "large_document"]

_GROUPS = 100
#: The groups whose operations have bodies: the schema of each costs time.
_WITH_BODIES = 15
_KINDS = ("get", "post", "put", "patch", "delete", "list", "search", "export")
OPERATIONS = _GROUPS * len(_KINDS)
_LONG = "administrationOfSubscriptionsAndEntitlementsForOrganizationsAndTheirMembersOf"


def large_document() -> dict[str, Any]:
    """Make the document."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for number in range(_GROUPS):
        name = f"Thing{number:03}"
        schemas[name] = _schema(number)
        one, many = f"/groups/{{group}}/things{number:03}/{{id}}", f"/groups/{{group}}/things{number:03}"
        paths[one] = {
            "parameters": [_parameter("group", "path"), _parameter("id", "path")],
            "get": _operation(f"{_LONG}{name}", name),
            "put": _operation(f"things.replace({number})", name, body=number < _WITH_BODIES),
            "patch": _operation("update", name, body=number < _WITH_BODIES),
            "delete": _operation("", name),
        }
        paths[many] = {
            "parameters": [_parameter("group", "path"), _parameter("group", "query")],
            "get": _operation(f"list {name}", name),
            "post": _operation(f"list/{name}", name, body=number < _WITH_BODIES),
        }
        paths[f"{many}/search"] = {"get": _operation(f"search_{name}", name)}
        paths[f"{many}/export"] = {"post": _operation(f"{_LONG}{name}", name, body=number < _WITH_BODIES)}
        for path in (f"{many}/search", f"{many}/export"):
            paths[path]["parameters"] = [_parameter("group", "path")]
    return {
        "openapi": "3.0.3",
        "info": {"title": "Everything of a large firm", "version": "9"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _parameter(name: str, where: str) -> dict[str, Any]:
    return {"name": name, "in": where, "required": where == "path", "schema": {"type": "string"}}


def _operation(identifier: str, schema: str, *, body: bool = False) -> dict[str, Any]:
    reference = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    found: dict[str, Any] = {"tags": [schema], "responses": {"200": {"description": "OK", "content": reference}}}
    if identifier:
        found["operationId"] = identifier
    if body:
        found["requestBody"] = {"required": True, "content": reference}
    return found


def _schema(number: int) -> dict[str, Any]:
    """Make a schema that refers to its neighbours on both sides, so that all hang together."""
    neighbours = ((number + 1) % _GROUPS, (number * 7 + 3) % _GROUPS)
    return {
        "type": "object",
        "required": ["id", "name"],
        "properties": {
            "id": {"type": "string", "readOnly": True},
            "name": {"type": "string", "maxLength": 80},
            "group": {"type": "string", "nullable": True},
            "next": {"$ref": f"#/components/schemas/Thing{neighbours[0]:03}"},
            "others": {"type": "array", "items": {"$ref": f"#/components/schemas/Thing{neighbours[1]:03}"}},
        },
    }
