"""Resources and resource templates: a function or a value behind a URI, or behind a URI template."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.errors import InvalidParams
from trunkline.server.handler_functions import HandlerFunction
from trunkline.server.results import to_contents
from trunkline.server.validation_errors import InvalidArguments

if TYPE_CHECKING:
    from trunkline.protocol.uri_template import UriTemplate
    from trunkline.server.server import Server

__all__ = ["ResourceDefinition", "ResourceOptions", "TemplateDefinition"]


class ResourceOptions(Struct, frozen=True, kw_only=True):
    """The options of a resource or resource template."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: t.Annotations | Mapping[str, Any] | None = None
    icons: Sequence[t.Icon] | None = None
    tags: frozenset[str] = frozenset()
    meta: Mapping[str, Any] | None = None
    ttl_ms: int | None = None
    cache_scope: Literal["public", "private"] | None = None
    thread: bool = True
    #: The scopes that a caller's token needs; over HTTP, the resource is hidden from other callers.
    scopes: tuple[str, ...] = ()


class _Readable:
    """The common part of resources and templates: options, a function, and converting its value to contents."""

    __slots__ = ("function", "mounted_by", "name", "options", "scopes", "source", "uri")

    def __init__(self, uri: str, function: Callable[..., object], options: ResourceOptions, *, owner: Server) -> None:
        self.uri: str = uri
        self.options: ResourceOptions = replace(options, annotations=_annotations(options.annotations))
        self.scopes: tuple[str, ...] = options.scopes
        name = options.name or getattr(function, "__name__", uri)
        self.name: str | Any = uri if name == "<lambda>" else name
        self.function: HandlerFunction = HandlerFunction(
            function, owner=owner, what=f"resource {uri!r}", thread=options.thread
        )
        self.mounted_by: tuple[Server, ...] = ()
        #: The original of this copy, if it is mounted from another server.
        self.source: ResourceDefinition | TemplateDefinition | None = None

    def _description(self) -> dict[str, Any]:
        options = self.options
        return {
            "name": self.name,
            "title": options.title,
            "description": options.description or self.function.signature.description,
            "mime_type": options.mime_type,
            "annotations": options.annotations,
            "icons": list(options.icons) if options.icons else None,
            "meta": dict(options.meta) if options.meta else None,
        }

    async def _read(self, exchange: Exchange, uri: str, kwargs: dict[str, object]) -> t.ReadResourceResult:
        value = await self.function.run(exchange, kwargs)
        options = self.options
        if hasattr(value, "contents"):
            from trunkline.server.foreign_types import recognise

            value = recognise(value)
        if not isinstance(value, t.ReadResourceResult):
            value = t.ReadResourceResult(contents=to_contents(value, uri, mime_type=options.mime_type))
        if options.ttl_ms is None and options.cache_scope is None:
            return value
        return replace(value, ttl_ms=options.ttl_ms, cache_scope=options.cache_scope)


class ResourceDefinition(_Readable):
    """A resource with one URI."""

    __slots__ = ()

    def __init__(self, uri: str, function: Callable[..., object], options: ResourceOptions, *, owner: Server) -> None:
        """Create a resource from a function without parameters."""
        super().__init__(uri, function, options, owner=owner)
        if self.function.signature.parameters:
            names = ", ".join(each.name for each in self.function.signature.parameters)
            raise TypeError(
                f"resource {uri!r} has a URI without variables, but its function has the parameters {names}; "
                f"put {{{names}}} into the URI"
            )

    def listed(self) -> t.Resource:
        """Return the resource as it is listed."""
        return t.Resource(uri=self.uri, size=self.options.size, **self._description())

    def with_uri(self, uri: str) -> ResourceDefinition:
        """Set the URI of this copy, and return it."""
        self.uri = uri
        return self

    async def read(self, exchange: Exchange) -> t.ReadResourceResult:
        """Read the resource."""
        return await self._read(exchange, self.uri, {})


class TemplateDefinition(_Readable):
    """The resources that match an RFC 6570 URI template."""

    __slots__ = ("template",)

    def __init__(self, uri: str, function: Callable[..., object], options: ResourceOptions, *, owner: Server) -> None:
        """Create a template from a function that has its variables as parameters."""
        super().__init__(uri, function, options, owner=owner)
        self.template: UriTemplate = _parsed(uri)
        known = {each.name for each in self.function.signature.parameters}
        needed = {each.name for each in self.function.signature.parameters if each.required}
        named = set(self.template.names)
        if named - known or needed - named:
            raise TypeError(
                f"resource template {uri!r} has the variables {sorted(named)}, but its function has the parameters "
                f"{sorted(known)}; they must be the same, except for parameters with a default"
            )

    def listed(self) -> t.ResourceTemplate:
        """Return the template as it is listed."""
        return t.ResourceTemplate(uri_template=self.uri, **self._description())

    def with_uri(self, uri: str) -> TemplateDefinition:
        """Set the URI template of this copy, and return it."""
        self.uri = uri
        self.template = _parsed(uri)
        return self

    def matches(self, uri: str) -> dict[str, Any] | None:
        """Return the values of the variables if the URI matches, otherwise None."""
        return self.template.match(uri)

    async def read(self, exchange: Exchange, uri: str, values: dict[str, object]) -> t.ReadResourceResult:
        """Read one resource; the variables are converted to the types of the signature."""
        try:
            kwargs = self.function.signature.bind(msgspec.json.encode(values))
        except InvalidArguments as error:
            raise InvalidParams(f"Invalid params: resource {uri!r}: {error}", data={"uri": uri}) from error
        return await self._read(exchange, uri, kwargs)


def _parsed(uri: str) -> UriTemplate:
    from trunkline.protocol.uri_template import UriTemplate

    return UriTemplate.parse(uri)


def _annotations(given: t.Annotations | Mapping[str, object] | None) -> t.Annotations | None:
    if given is None or isinstance(given, t.Annotations):
        return given
    try:
        return msgspec.convert(dict(given), t.Annotations)
    except msgspec.ValidationError as error:
        raise TypeError(f"annotations: {error}") from error
