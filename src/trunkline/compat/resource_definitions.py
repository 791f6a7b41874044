"""Resources and templates of the stand-ins: which URIs they match, what they refuse, and what a failure says."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import pydantic_core

import trunkline.types as t
from trunkline.compat.definitions import ForeignFunction, OfficialSignature, fast_meta, is_local
from trunkline.compat.exceptions import (
    NotFoundError,
    ResourceError,
    ResourceNotFoundError,
    UnexpectedResourceError,
)
from trunkline.compat.fast_functions import BadArguments, FastSignature
from trunkline.compat.fast_templates import FastUriTemplate
from trunkline.compat.input_required import is_input_required, to_input_required
from trunkline.compat.resource_security import INHERIT_SECURITY, ResourceSecurityError, policy_of
from trunkline.compat.results import ResourceContent, ResourceResult
from trunkline.compat.versions import STATE
from trunkline.errors import HandlerError, InvalidParams, MissingCapability, RequestFailed, ResourceNotFound
from trunkline.protocol.uri_template import UriTemplate
from trunkline.server.handlers import find_resource
from trunkline.server.resources import ResourceDefinition, ResourceOptions, TemplateDefinition

__all__ = [
    "FastResource",
    "FastTemplate",
    "OfficialResource",
    "OfficialTemplate",
    "official_content",
    "public_meta",
    "read_handler",
    "screen",
]

log = logging.getLogger("trunkline")


class _FastFunction(ForeignFunction):
    """The function of a resource of FastMCP's."""

    __slots__ = ()
    _signature_class = FastSignature


class _OfficialFunction(ForeignFunction):
    """The function of a resource of the official SDK's."""

    __slots__ = ()
    _signature_class = OfficialSignature


def public_meta(meta: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return what a component says about itself without the framework's own notes."""
    if not meta:
        return None
    shown = dict(meta)
    inner = shown.get("fastmcp")
    if isinstance(inner, Mapping):
        kept = {name: value for name, value in inner.items() if not name.startswith("_")}
        shown.pop("fastmcp")
        if kept:
            shown["fastmcp"] = kept
    return shown or None


# --- FastMCP ---------------------------------------------------------------------------------------------------------


class FastResource(ResourceDefinition):
    """A resource as FastMCP has it."""

    _function_class = _FastFunction

    def listed(self) -> t.Resource:
        """Return the resource as it is listed, with the tags in ``_meta``."""
        return msgspec.structs.replace(super().listed(), meta=fast_meta(self.options))

    async def _read(self, exchange: Any, uri: str, kwargs: dict[str, Any]) -> t.ReadResourceResult:
        value = await self.function.run(exchange, kwargs)
        return _fast_contents(self, value).to_struct(uri)


class FastTemplate(TemplateDefinition):
    """A template as FastMCP has it."""

    _function_class = _FastFunction

    def __init__(
        self, uri: str, function: Callable[..., Any], options: ResourceOptions, *, owner: Any, security: Any
    ) -> None:
        """Read the template and the function.

        Raises:
            ValueError: the variables and the parameters do not fit together.
        """
        super(TemplateDefinition, self).__init__(uri, function, options, owner=owner)
        #: The policy for values; the server's by default.
        self.security = security
        self.template: Any = FastUriTemplate(uri, _lists(self.function.signature))
        _check_parameters(self.template, self.function.signature)

    def with_uri(self, uri: str) -> FastTemplate:
        """Set the URI template of this copy, and return it."""
        self.uri = uri
        self.template = FastUriTemplate(uri, self.template.list_params)
        return self

    def listed(self) -> t.ResourceTemplate:
        """Return the template as it is listed, with the tags in ``_meta``."""
        return msgspec.structs.replace(super().listed(), meta=fast_meta(self.options))

    def bound(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments for the values of a URI.

        Raises:
            ValueError: a value does not have the type of its parameter.
        """
        return bound_values(self.function.signature, values)

    async def read(self, exchange: Any, uri: str, values: dict[str, Any]) -> t.ReadResourceResult:
        """Read one resource."""
        value = await self.function.run(exchange, self.bound(values))
        return _fast_contents(self, value).to_struct(uri)


def bound_values(signature: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return keyword arguments for values that came as text.

    Raises:
        ValueError: a value does not have the type of its parameter.
    """
    known = {name for name, _, _ in signature._given}
    try:
        found: dict[str, Any] = signature.bind(
            msgspec.json.encode({name: value for name, value in values.items() if name in known})
        )
    except BadArguments as error:
        first = error.error.errors(include_url=False)[0]
        if first["type"].startswith("bool"):
            raise ValueError(f"Invalid boolean value for {first['loc'][0]}: {first['input']!r}") from error.error
        raise ValueError(str(error.error)) from error.error
    return found


def _fast_contents(definition: Any, value: Any) -> ResourceResult:
    return ResourceResult.of(value, definition.options.mime_type, public_meta(definition.options.meta))


def _lists(signature: Any) -> set[str]:
    """Return the parameters that are lists and nothing else: their value is separated by commas."""
    return {name for name, note, _ in signature._given if _is_list(note)}


def _is_list(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        parts = [part for part in get_args(annotation) if part is not type(None)]
        return bool(parts) and all(_is_list(part) for part in parts)
    return annotation is list or get_origin(annotation) is list


def _may_be_list(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        return any(_may_be_list(part) for part in get_args(annotation))
    return annotation in (list, Any) or get_origin(annotation) is list


def _check_parameters(template: FastUriTemplate, signature: Any) -> None:
    if not template.names:
        raise ValueError("URI template must contain at least one parameter")
    collision = template.collision()
    if collision is not None:
        raise ValueError(f"the variables {collision[0]!r} and {collision[1]!r} both normalize to {collision[2]!r}")
    parameters = {each.name: each for each in signature.parameters}
    notes = {name: note for name, note, _ in signature._given}
    required = {name for name, each in parameters.items() if each.required}
    queried = set(template.query_names)
    if queried & required:
        raise ValueError(
            f"Query parameters {sorted(queried & required)} must be optional function parameters with default values"
        )
    for name in template.repeated & set(notes):
        if not _may_be_list(notes[name]):
            raise ValueError(f"the repeated query parameter {name!r} must accept a list")
    path = set(template.path_names)
    if not required <= path:
        raise ValueError(
            f"Required function arguments {sorted(required)} must be a subset of the URI path parameters {sorted(path)}"
        )
    unknown = (path | queried) - set(parameters)
    if unknown:
        raise ValueError(
            f"URI parameters {sorted(path | queried)} must be a subset of the function arguments: {sorted(parameters)}"
        )


# --- the official SDK ------------------------------------------------------------------------------------------------


def official_content(value: Any) -> Any:
    """Return what a function returned as text or bytes: anything else as indented JSON."""
    if isinstance(value, str | bytes | t.ReadResourceResult) or hasattr(value, "contents"):
        return value
    return pydantic_core.to_json(value, fallback=str, indent=2).decode()


class OfficialResource(ResourceDefinition):
    """A resource as the official SDK has it."""

    _function_class = _OfficialFunction
    failure = "Error reading resource {uri}"

    async def _read(self, exchange: Any, uri: str, kwargs: dict[str, Any]) -> t.ReadResourceResult:
        try:
            value = await self.function.run(exchange, kwargs)
            return _official_contents(self, value, uri)
        except (HandlerError, RequestFailed, MissingCapability):
            raise
        except Exception as error:
            raise _crashed(self.failure.format(uri=uri), error) from error


class OfficialTemplate(TemplateDefinition):
    """A template as the official SDK has it."""

    _function_class = _OfficialFunction
    failure = "Error creating resource from template {uri}"

    def __init__(
        self, uri: str, function: Callable[..., Any], options: ResourceOptions, *, owner: Any, security: Any
    ) -> None:
        """Read the template and the function.

        Raises:
            ValueError: the variables and the parameters do not fit together.
        """
        super(TemplateDefinition, self).__init__(uri, function, options, owner=owner)
        self.security = security
        self.template = UriTemplate.parse(uri)
        parameters = {each.name: each for each in self.function.signature.parameters}
        if set(self.template.names) != set(parameters) and not _fits(self.template.names, parameters):
            raise ValueError(
                f"Mismatch between URI parameters {set(self.template.names)} and function parameters {set(parameters)}"
            )
        queried = _query_variables(uri)
        needed = [name for name in queried if name in parameters and parameters[name].required]
        if needed:
            raise ValueError(
                f"Resource {uri!r}: the parameters {needed} are query variables, which a URI may leave out, "
                "so each must declare a default"
            )

    def matches(self, uri: str) -> dict[str, Any] | None:
        """Return the values of the variables, whatever they are; the reader refuses some."""
        return self.template.match(uri, safe=False)

    async def read(self, exchange: Any, uri: str, values: dict[str, Any]) -> t.ReadResourceResult:
        """Read one resource."""
        try:
            kwargs = self.bound(values)
            value = await self.function.run(exchange, kwargs)
            if is_input_required(value):
                if is_local(exchange):
                    # Handed on as it is: a handler may forward it as its own.
                    return value  # type: ignore[no-any-return]
                value = await to_input_required(self.function.owner, exchange, value)
            return _official_contents(self, value, uri)
        except (HandlerError, RequestFailed, MissingCapability):
            raise
        except Exception as error:
            raise _crashed(self.failure.format(uri=uri), error) from error

    def bound(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments for the values of a URI."""
        return bound_values(self.function.signature, values)


def _fits(names: tuple[str, ...], parameters: Mapping[str, Any]) -> bool:
    """Return whether every variable has a parameter, and every other parameter a default."""
    return set(names) <= set(parameters) and all(
        name in names or not each.required for name, each in parameters.items()
    )


def _query_variables(uri: str) -> list[str]:
    import re

    found = re.findall(r"\{[?&]([^{}]*)\}", uri)
    return [name.strip().removesuffix("*").partition(":")[0] for each in found for name in each.split(",")]


def _official_contents(definition: Any, value: Any, uri: str) -> t.ReadResourceResult:
    from trunkline.server.foreign_types import recognise

    if isinstance(value, t.InputRequiredResult):
        return value  # type: ignore[return-value]
    if hasattr(value, "contents"):
        value = recognise(value, uri)
    if isinstance(value, t.ReadResourceResult):
        return value
    options = definition.options
    if getattr(definition.function.function, "__trunkline_object__", False) and not isinstance(value, str | bytes):
        raise TypeError(f"Resource.read() must return str or bytes, not {type(value).__name__}")
    content = ResourceContent(
        official_content(value), options.mime_type, None if options.meta is None else dict(options.meta)
    )
    return ResourceResult([content]).to_struct(uri)


def _crashed(text: str, error: Exception) -> Exception:
    return ResourceError(f"{text}: {error}") if STATE.camel_case else UnexpectedResourceError(text)


# --- reading ---------------------------------------------------------------------------------------------------------


def screen(server: Any, template: Any, values: Mapping[str, Any]) -> None:
    """Check the values of a template's variables by its policy, or else by the server's.

    Raises:
        ResourceSecurityError: one is refused.
    """
    own = getattr(template, "security", INHERIT_SECURITY)
    policy = policy_of(own, server.resource_security)
    refused = None if policy is None else policy.validate(values)
    if refused is not None:
        raise ResourceSecurityError(getattr(template, "uri", None) or template.uri_template, refused)


def read_handler(server: Any) -> Any:
    """Return the handler of ``resources/read``."""

    async def handle(exchange: Any, params: t.ReadResourceRequestParams) -> t.ReadResourceResult:
        uri = params.uri
        try:
            found, values = find_resource(server, exchange, uri)
            if values is not None:
                screen(server, found, values)
        except (ResourceSecurityError, ResourceNotFound, InvalidParams) as error:
            raise server.unknown_resource(exchange, uri, error) from error

        async def read(given: Any) -> t.ReadResourceResult:
            if values is None:
                return await found.read(exchange)  # type: ignore[call-arg]
            return await found.read(exchange, given.uri, values)  # type: ignore[call-arg]

        try:
            if found.mounted_by:
                result: t.ReadResourceResult = await server.call_mounted(found, exchange, params, read)
                return result
            return await read(params)
        except (RequestFailed, MissingCapability):
            raise
        except Exception as error:
            if is_local(exchange) and isinstance(error, HandlerError):
                raise
            raise server.failed_resource(exchange, uri, error) from error

    return handle


def fast_unknown(exchange: Any, uri: str, error: Exception) -> Exception:
    """Return the answer to a URI that names nothing, or nothing that may be read."""
    if is_local(exchange):
        return error if isinstance(error, ResourceSecurityError) else NotFoundError(f"Unknown resource: {uri!r}")
    return not_found(exchange, f"Resource not found: {uri!r}", uri)


def not_found(exchange: Any, text: str, uri: str) -> Exception:
    """Return the protocol's answer to an unknown resource, in the revision of the caller."""
    from trunkline.protocol.revisions import Feature

    features = exchange.admitted.caller.revision.features
    kind = InvalidParams if Feature.NOT_FOUND_IS_INVALID_PARAMS in features else ResourceNotFound
    return kind(text, data={"uri": uri})


def official_unknown(exchange: Any, uri: str) -> Exception:
    """Return the answer to a URI that names nothing, or nothing that may be read."""
    text = f"Unknown resource: {uri}"
    if is_local(exchange):
        return ResourceNotFoundError(text)
    return InvalidParams(text, data={"uri": uri})


def official_failure(exchange: Any, uri: str, error: Exception) -> Exception:
    """Return the answer to a failed read, and log it as the official SDK does."""
    record = logging.getLogger("mcp.server.mcpserver.server")
    data = {"uri": uri}
    if isinstance(error, UnexpectedResourceError):
        record.error("Resource %r raised an unexpected exception", uri, exc_info=error)
        return RequestFailed(str(error), data=data)
    record.info("Resource %r failed: %r", uri, str(error))
    if isinstance(error, ResourceNotFoundError):
        return InvalidParams(str(error), data=data)
    return RequestFailed(str(error), data=data)


def static_problem(function: Callable[..., Any], uri: str) -> str | None:
    """Return why a function cannot be a resource without variables, or None."""
    from trunkline.server.annotations import resolve_hints
    from trunkline.server.context import Context
    from trunkline.server.dependencies import is_context

    try:
        names = list(inspect.signature(function).parameters)
        hints = resolve_hints(function)
    except (TypeError, ValueError, NameError):
        return None
    if names and STATE.camel_case:
        return f"Mismatch between URI parameters set() and function parameters {set(names)}"
    if names and all(is_context(hints.get(name, Any), (Context,)) for name in names):
        return f"Resource {uri!r}: Context injection for static resources is not supported: add a URI template variable"
    if names:
        return f"Resource {uri!r} has no URI template variables, but its function has the parameters {names}"
    return None
