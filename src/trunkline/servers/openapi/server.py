"""Serve an OpenAPI document: each operation as a tool, and optionally as a resource."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from functools import cache
from pathlib import Path
from typing import Any

from trunkline import __version__
from trunkline.errors import ConfigError
from trunkline.server import Server, Validator, compile_schema
from trunkline.servers.members import as_dict
from trunkline.servers.openapi.bases import base_of
from trunkline.servers.openapi.calling import Calls
from trunkline.servers.openapi.document import Document, as_text, read_document
from trunkline.servers.openapi.names import slug
from trunkline.servers.openapi.offers import Choice, Making, Offer, choose
from trunkline.servers.openapi.resources import resource_reader, resource_uri
from trunkline.servers.openapi.security import Credentials
from trunkline.servers.rest import Api
from trunkline.servers.wording import one_line

__all__ = ["MAX_OPERATIONS", "make_server"]

log = logging.getLogger("trunkline.servers")

#: Default limit of operations: no model can choose among more.
MAX_OPERATIONS = 1000
_MIB = 1024 * 1024
_READING = frozenset({"GET", "HEAD"})


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
    choice = Choice(include, exclude, frozenset(tags), _methods(methods, read_only=read_only))
    chosen = choose(known, choice, most=max_operations)
    base = base_of(known, base_url, variables=variables)
    credentials = Credentials(known, auth, fixed=headers or {})
    making = Making(
        known,
        credentials,
        base=base,
        own_bases=(variables or {}) if base_url is None else None,
        output_schemas=output_schemas,
        count=len(chosen),
    )
    try:
        offers = [offer for listed in chosen if (offer := making.offer(listed)) is not None]
    except RecursionError as error:
        raise ConfigError(f"{known.name} is nested without end") from error
    title = _title(known)
    apis = {
        each: Api(each, service=title, headers=headers, max_bytes=max_bytes, seconds=seconds)
        for each in {base, *(offer.base for offer in offers)}
    }
    calls = Calls(apis, credentials, fixed=tuple(headers or {}))
    server = _empty(known, calls, name=name or slug(title))
    kept = [added for offer in offers if (added := _add_tool(server, offer, calls, making)) is not None]
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
    if wanted and not wanted & _READING:
        raise ConfigError("Nothing is left to offer: --read-only leaves GET and HEAD, and --method asks for others")
    return wanted & _READING or _READING


def _title(document: Document) -> str:
    info = as_dict(document.root.get("info"))
    return one_line(as_text(info.get("title"), 100)) or "OpenAPI"


def _empty(document: Document, calls: Calls, *, name: str) -> Server:
    """Create the server without tools; its lifespan closes the connections."""
    info = as_dict(document.root.get("info"))
    title = _title(document)
    return Server(
        name,
        as_text(info.get("description"), 2000) or f"Tools of the API {title}.",
        version=__version__,
        title=title,
        lifespan=lambda _server: aclosing(calls),
    )


def _add_tool(server: Server, offer: Offer, calls: Calls, making: Making) -> Offer | None:
    """Add a tool, with simplified schemas if the exact ones are unusable; return the tool that was added."""
    try:
        _register(server, offer, calls)
        return offer
    except TypeError as error:
        log.debug("%s: %s", offer.operation.listed.what, error)
    lesser = making.lesser(offer)
    if lesser is not None:
        _register(server, lesser, calls)
    return lesser


def _register(server: Server, offer: Offer, calls: Calls) -> None:
    operation, base, output = offer.operation, offer.base, offer.output_schema

    @cache
    def promise() -> Validator | None:
        return None if output is None else compile_schema(output)

    async def call(**arguments: Any) -> Any:
        return await calls.call(operation, arguments, base=base, promise=promise())

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
    if method in _READING:
        return {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": True}
    if method == "DELETE":
        return {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True, "openWorldHint": True}
    return {"readOnlyHint": False, "idempotentHint": method == "PUT", "openWorldHint": True}


def _add_resource(server: Server, document: Document, offer: Offer, calls: Calls) -> None:
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
