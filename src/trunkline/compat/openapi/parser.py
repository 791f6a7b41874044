"""Reads OpenAPI documents of versions 3.0 and 3.1 into routes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from trunkline.compat.openapi.models import HTTPRoute, ParameterInfo, RequestBodyInfo, ResponseInfo
from trunkline.compat.openapi.schemas import _combine_schemas_and_map_params, as_definitions, named_in

__all__ = ["parse_openapi_to_http_routes"]

log = logging.getLogger("fastmcp")

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_MAX_REFERENCES = 50  # References of honest documents lead on a few times.


def parse_openapi_to_http_routes(openapi_dict: Mapping[str, Any]) -> list[HTTPRoute]:
    """Return the operations of a document.

    Raises:
        ValueError: it is not an OpenAPI document of version 3.
    """
    version = str(openapi_dict.get("openapi", ""))
    if not version.startswith("3."):
        raise ValueError(f"this is not an OpenAPI document of version 3: openapi is {version!r}")
    schemas = as_definitions((openapi_dict.get("components") or {}).get("schemas") or {})
    routes: list[HTTPRoute] = []
    for path, given in (openapi_dict.get("paths") or {}).items():
        item = _resolved(openapi_dict, given)
        found = [method for method in _METHODS if isinstance(item.get(method), Mapping)]
        routes += [_route(openapi_dict, path, item, method, schemas) for method in found]
    return routes


def _resolved(document: Mapping[str, Any], item: Any) -> Any:
    """Return a part of a document, or what it refers to.

    Raises:
        ValueError: the reference leads outside of the document, or nowhere.
    """
    for _ in range(_MAX_REFERENCES):
        reference = item.get("$ref") if isinstance(item, Mapping) else None
        if reference is None:
            return item
        if not str(reference).startswith("#/"):
            raise ValueError(f"{reference!r} leads outside of the document, which is not supported")
        item = document
        for step in reference[2:].split("/"):
            item = item.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(item, Mapping) else None
        if item is None:
            raise ValueError(f"{reference!r} leads nowhere in the document")
    raise ValueError("references lead in a circle")


def _route(
    document: Mapping[str, Any], path: str, item: Mapping[str, Any], method: str, schemas: Mapping[str, Any]
) -> HTTPRoute:
    operation = item[method]
    parameters = _parameters(document, item, operation)
    body = _body(document, operation)
    responses = _responses(document, operation)
    used = [each.schema_ for each in parameters]
    used += list(body.content_schema.values()) if body is not None else []
    answered = [schema for each in responses.values() for schema in each.content_schema.values()]
    route = HTTPRoute(
        path=path,
        method=method.upper(),  # type: ignore[arg-type]
        operation_id=operation.get("operationId"),
        summary=operation.get("summary"),
        description=operation.get("description"),
        tags=list(operation.get("tags") or ()),
        parameters=parameters,
        request_body=body,
        responses=responses,
        request_schemas=named_in(used, schemas),
        response_schemas=named_in(answered, schemas),
        extensions={key: value for key, value in operation.items() if key.startswith("x-")},
        openapi_version=str(document.get("openapi")),
    )
    try:
        route.flat_param_schema, route.parameter_map = _combine_schemas_and_map_params(route)
    except Exception as error:
        log.warning("The arguments of %s %s cannot be described: %s", route.method, path, error, exc_info=True)
        route.flat_param_schema = {"type": "object", "properties": {}}
    return route


def _parameters(
    document: Mapping[str, Any], item: Mapping[str, Any], operation: Mapping[str, Any]
) -> list[ParameterInfo]:
    """Return the parameters of the path and the operation; the operation's replace those of the same name."""
    found: dict[tuple[str, str], ParameterInfo] = {}
    for given in (*(item.get("parameters") or ()), *(operation.get("parameters") or ())):
        each = _resolved(document, given)
        schema = each.get("schema")
        if schema is None:
            content: Mapping[str, Any] = each.get("content") or {}
            schema = next((media.get("schema") for media in content.values()), None) or {}
        made = as_definitions(schema)
        found[each["name"], each["in"]] = ParameterInfo(
            name=each["name"],
            location=each["in"],
            required=bool(each.get("required")) or each["in"] == "path",
            schema=made,
            description=each.get("description"),
            explode=each.get("explode"),
            style=each.get("style"),
        )
    return list(found.values())


def _body(document: Mapping[str, Any], operation: Mapping[str, Any]) -> RequestBodyInfo | None:
    if not operation.get("requestBody"):
        return None
    given = _resolved(document, operation["requestBody"])
    content = given.get("content") or {}
    encoding = {name: dict(how) for media in content.values() for name, how in (media.get("encoding") or {}).items()}
    return RequestBodyInfo(
        required=bool(given.get("required")),
        content_schema={kind: as_definitions(media.get("schema") or {}) for kind, media in content.items()},
        description=given.get("description"),
        encoding=encoding,
    )


def _responses(document: Mapping[str, Any], operation: Mapping[str, Any]) -> dict[str, ResponseInfo]:
    found = {}
    for status, given in (operation.get("responses") or {}).items():
        each = _resolved(document, given)
        content = each.get("content") or {}
        found[str(status)] = ResponseInfo(
            description=each.get("description"),
            content_schema={kind: as_definitions(media.get("schema") or {}) for kind, media in content.items()},
        )
    return found
