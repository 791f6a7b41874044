"""Serve an OpenAPI document: each operation as a tool, and optionally as a resource.

Only read-only operations become resources: a fixed path becomes a URI, a path with variables a template.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from functools import cache
from keyword import iskeyword
from pathlib import Path
from typing import Any

import msgspec

from trunkline import __version__
from trunkline.errors import ConfigError, HandlerError, InvalidParams, ResourceError, ResourceNotFound
from trunkline.server import File, Server, Validator, compile_schema
from trunkline_servers.api_client import ApiClient, ApiError
from trunkline_servers.openapi.calls import OperationCaller, media_type, response_text
from trunkline_servers.openapi.credentials import Credentials
from trunkline_servers.openapi.document import Document, base_url_of, clean_text, read_document
from trunkline_servers.openapi.operations import (
    Operation,
    OperationFilter,
    OperationTool,
    ToolBuilder,
    select_operations,
)
from trunkline_servers.openapi.parameters import ApiParameter, slug
from trunkline_servers.untrusted import as_dict, as_list, one_line

__all__ = ["MAX_OPERATIONS", "make_server", "resource_reader", "resource_uri"]

#: Statuses that mean "not found".
_GONE = (404, 410)
_VARIABLE = re.compile(r"\{([^{}]*)\}")


def resource_uri(document: Document, operation: Operation, authority: str) -> str | None:
    """Return the URI or template of an operation; None if a URI cannot express its parameters."""
    body = operation.body
    if operation.listed.method != "GET" or (body is not None and body.required):
        return None
    said: list[str] = []
    for parameter in operation.parameters:
        simple = _simple(document, parameter)
        if parameter.required and (not simple or parameter.where not in ("path", "query")):
            return None
        if simple and parameter.where == "query":
            said.append(_name(parameter) + ("*" if simple == "list" else ""))
        if parameter.where == "path" and simple == "list":
            return None
    names = [_name(each) for each in operation.parameters]
    if len(set(names)) < len(names):
        return None
    path = _VARIABLE.sub(lambda found: "{" + _name(operation.variables[found.group(1)]) + "}", operation.listed.path)
    return f"openapi://{authority}{path}" + (f"{{?{','.join(said)}}}" if said else "")


def resource_reader(
    document: Document, operation: Operation, calls: OperationCaller, *, base: str, schema: dict[str, Any]
) -> Callable[..., Any]:
    """Return the handler of a resource: the variables of its URI are its parameters, checked by the tool's schema."""
    wanted = {
        _name(each): each
        for each in operation.parameters
        if each.where in ("path", "query") and _simple(document, each)
    }

    @cache
    def validator() -> Validator:
        return compile_schema(schema)

    async def read(**given: Any) -> Any:
        arguments = {
            wanted[name].argument: _typed(document, wanted[name].schema, value)
            for name, value in given.items()
            if value is not None
        }
        missing = [name for name, each in wanted.items() if each.required and each.argument not in arguments]
        if missing:
            raise InvalidParams(f"The URI needs {', '.join(missing)}.")
        problem = validator().first_violation(arguments)
        if problem is not None:
            raise InvalidParams(f"The URI does not fit. {problem.path}: {problem.message}")
        try:
            reply = await calls.send(operation, arguments, base)
        except ApiError as error:
            raise (ResourceNotFound if error.status in _GONE else ResourceError)(str(error)) from error
        except HandlerError as error:
            raise InvalidParams(str(error)) from error
        text = response_text(reply)
        kind = media_type(reply) or "application/octet-stream"
        return File(data=reply.body if text is None else text.encode(), name=operation.listed.name, mime_type=kind)

    hints = {name: _hint(document, each) for name, each in wanted.items()}
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=hints[name],
            default=inspect.Parameter.empty if each.where == "path" else None,
        )
        for name, each in wanted.items()
    ]
    read.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    read.__annotations__ = hints
    return read


def _typed(document: Document, node: Any, value: Any) -> Any:
    """Convert text from a URI to the type that a schema asks for; return it unchanged if it does not fit."""
    schema = document.follow(node, "a parameter") if isinstance(node, dict) else {}
    kind = schema.get("type", "string")
    kinds = set(as_list(kind) or [kind])
    if "array" in kinds:
        return [_typed(document, schema.get("items"), each) for each in ([value] if isinstance(value, str) else value)]
    if "string" in kinds or not kinds & {"integer", "number", "boolean"}:
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value


def _hint(document: Document, parameter: ApiParameter) -> Any:
    if parameter.where == "path":
        return str
    return list[str] | str | None if _simple(document, parameter) == "list" else str | None


def _name(parameter: ApiParameter) -> str:
    """Return a name that is valid in a template and as a Python parameter."""
    name = re.sub(r"\W", "_", parameter.argument, flags=re.ASCII)
    usable = name.isidentifier() and not name.startswith("_") and not iskeyword(name)
    return name if usable else f"p_{name}"


def _simple(document: Document, parameter: ApiParameter) -> str:
    """Return ``text`` or ``list`` if a parameter is a scalar or an array; an empty string otherwise."""
    if parameter.as_json or not isinstance(parameter.schema, dict):
        return ""
    schema = document.follow(parameter.schema, "a parameter")
    kind = schema.get("type", "string")
    kinds = set(as_list(kind) or [kind]) - {"null"}
    if kinds <= {"string", "integer", "number", "boolean"}:
        return "text"
    return "list" if kinds == {"array"} else ""


log = logging.getLogger("trunkline_servers")

#: Default limit of operations: no model can choose among more.
MAX_OPERATIONS = 1000
_MIB = 1024 * 1024
_READ_METHODS = frozenset({"GET", "HEAD"})


def make_server(
    document: Document | Mapping[str, Any] | str | Path,
    *,
    base_url: str | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    tags: Sequence[str] = (),
    methods: Sequence[str] = (),
    read_only: bool = False,
    resources: bool = False,
    headers: Mapping[str, str] | None = None,
    auth: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
    output_schemas: bool = True,
    max_operations: int = MAX_OPERATIONS,
    max_bytes: int = _MIB,
    seconds: float = 30.0,
    name: str | None = None,
) -> Server:
    """Make a server for an OpenAPI document.

    ``include`` and ``exclude`` are globs for names, ids, paths and ``"METHOD /path"``. ``auth`` maps security schemes
    to credentials, ``headers`` are sent with every request, ``variables`` are values for the variables of the
    document's server URL. A response may have ``max_bytes`` bytes and take ``seconds``.

    Raises:
        ConfigError: the document cannot be used, or an option does not match it.
    """
    known = document if isinstance(document, Document) else read_document(document)
    choice = OperationFilter(include, exclude, frozenset(tags), _methods(methods, read_only=read_only))
    chosen = select_operations(known, choice, most=max_operations)
    base = base_url_of(known, base_url, variables=variables)
    credentials = Credentials(known, auth, fixed=headers or {})
    builder = ToolBuilder(
        known,
        credentials,
        base=base,
        own_bases=(variables or {}) if base_url is None else None,
        output_schemas=output_schemas,
        count=len(chosen),
    )
    try:
        offers = [offer for listed in chosen if (offer := builder.offer(listed)) is not None]
    except RecursionError as error:
        raise ConfigError(f"{known.name} is nested without end") from error
    title = _title(known)
    apis = {
        each: ApiClient(each, service=title, headers=headers, max_bytes=max_bytes, seconds=seconds)
        for each in {base, *(offer.base for offer in offers)}
    }
    calls = OperationCaller(apis, credentials, fixed=tuple(headers or {}))
    server = _make_empty_server(known, calls, name=name or slug(title))
    kept = [added for offer in offers if (added := _add_tool(server, offer, calls, builder)) is not None]
    if not kept:
        raise ConfigError(f"No operation of {known.name} can be offered")
    # URIs are matched in this order: a literal path comes before a template that would match it too.
    for offer in sorted(kept, key=lambda each: len(each.operation.variables)) if resources else ():
        _add_resource(server, known, offer, calls)
    return server


def _methods(methods: Sequence[str], *, read_only: bool) -> frozenset[str]:
    wanted = frozenset(each.upper() for each in methods)
    if not read_only:
        return wanted
    if wanted and not wanted & _READ_METHODS:
        raise ConfigError("Nothing is left to offer: --read-only leaves GET and HEAD, and --method asks for others")
    return wanted & _READ_METHODS or _READ_METHODS


def _title(document: Document) -> str:
    info = as_dict(document.root.get("info"))
    return one_line(clean_text(info.get("title"), 100)) or "OpenAPI"


def _make_empty_server(document: Document, calls: OperationCaller, *, name: str) -> Server:
    """Create the server without tools; its lifespan closes the connections."""
    info = as_dict(document.root.get("info"))
    title = _title(document)
    return Server(
        name,
        clean_text(info.get("description"), 2000) or f"Tools of the API {title}.",
        version=__version__,
        title=title,
        lifespan=lambda _server: aclosing(calls),
    )


def _add_tool(
    server: Server, offer: OperationTool, calls: OperationCaller, builder: ToolBuilder
) -> OperationTool | None:
    """Add a tool, with simplified schemas if the exact ones are unusable; return the tool that was added."""
    try:
        _register(server, offer, calls)
        return offer
    except TypeError as error:
        log.debug("%s: %s", offer.operation.listed.what, error)
    lesser = builder.simplified(offer)
    if lesser is not None:
        _register(server, lesser, calls)
    return lesser


def _register(server: Server, offer: OperationTool, calls: OperationCaller) -> None:
    operation, base, output = offer.operation, offer.base, offer.output_schema

    @cache
    def output_validator() -> Validator | None:
        return None if output is None else compile_schema(output)

    async def call(**arguments: Any) -> Any:
        return await calls.call(operation, arguments, base=base, output_validator=output_validator())

    server.add_tool(
        call,
        name=operation.listed.name,
        title=operation.title or None,
        description=operation.description,
        annotations=_annotations(operation.listed.method),
        tags=operation.listed.tags,
        input_schema=offer.input_schema,
        output_schema=output,
    )


def _annotations(method: str) -> dict[str, bool]:
    """Return the annotations that a method implies (RFC 9110, 9.2); POST and PATCH imply nothing."""
    if method in _READ_METHODS:
        return {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": True}
    if method == "DELETE":
        return {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True, "openWorldHint": True}
    return {"readOnlyHint": False, "idempotentHint": method == "PUT", "openWorldHint": True}


def _add_resource(server: Server, document: Document, offer: OperationTool, calls: OperationCaller) -> None:
    operation = offer.operation
    uri = resource_uri(document, operation, server.name)
    if uri is None:
        return
    try:
        server.add_resource(
            uri,
            resource_reader(document, operation, calls, base=offer.base, schema=offer.input_schema),
            name=operation.listed.name,
            title=operation.title or None,
            description=operation.description,
            tags=operation.listed.tags,
        )
    except (TypeError, ValueError) as error:
        log.warning("%s is not offered as a resource: %s", operation.listed.what, error)
