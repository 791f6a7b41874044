"""Tools: a function of the user's as the protocol sees it, and one call of it.

What a tool does wrong is an answer for the model (``isError``); what the server does wrong is logged whole and answered
without its text.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.errors import HandlerError, HeaderMismatch, InvalidParams, MissingCapability, RequestFailed, ToolError
from trunkline.protocol.downgrade import needs_wrapping, wrap_schema
from trunkline.protocol.revisions import Feature
from trunkline.server.handler_functions import HandlerFunction, UncheckedSignature, find_caller_error
from trunkline.server.results import ToolResult, to_tool_result, with_structured
from trunkline.server.scopes import check_scopes
from trunkline.server.signatures import Signature
from trunkline.server.validation_errors import InvalidArguments, InvalidResult, check_names

if TYPE_CHECKING:
    from trunkline.protocol.headers import HeaderParameter
    from trunkline.protocol.json_schema import Validator
    from trunkline.server.server import Server

__all__ = ["HasHeaderParameters", "ToolDefinition", "ToolOptions", "check_headers", "error_result", "make_tool_handler"]

log = logging.getLogger("trunkline")


class ToolOptions(Struct, frozen=True, kw_only=True):
    """What may be said about a tool beside its function."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    annotations: t.ToolAnnotations | Mapping[str, Any] | None = None
    icons: Sequence[t.Icon] | None = None
    tags: frozenset[str] = frozenset()
    meta: Mapping[str, Any] | None = None
    input_schema: dict[str, Any] | None = None
    output_schema: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    thread: bool = True
    exclude_args: Sequence[str] = ()
    timeout: float | None = None
    single_use: bool = False
    #: Whether a value that is no object is sent as ``{"result": …}`` in every revision; None: as the server says.
    wrap_result: bool | None = None
    #: What a caller's token must allow; over HTTP who lacks it neither sees nor calls the tool.
    scopes: tuple[str, ...] = ()


class HasHeaderParameters(Protocol):
    """What knows which arguments HTTP repeats in headers."""

    @property
    def headers(self) -> tuple[HeaderParameter, ...]:
        """The arguments."""


class ToolDefinition:
    """A tool of a server: how it is listed and how it is called."""

    __slots__ = (
        "_bind",
        "_encode",
        "_finish",
        "_listed",
        "_plain",
        "_prepared",
        "_validator",
        "_wrap",
        "_wraps",
        "function",
        "headers",
        "mounted_by",
        "name",
        "options",
        "scopes",
        "source",
    )

    def __init__(self, function: Callable[..., object], options: ToolOptions, *, owner: Server) -> None:
        """Make a tool of a function."""
        name = options.name or getattr(function, "__name__", "")
        if not name or name == "<lambda>":
            raise TypeError("a tool needs a name: give name= for a lambda or a callable object")
        self.name: str = name
        options = replace(options, annotations=_annotations(options.annotations))
        self.options: ToolOptions = options
        self.scopes: tuple[str, ...] = options.scopes
        self.function: HandlerFunction = HandlerFunction(
            function,
            owner=owner,
            what=f"tool {name!r}",
            thread=options.thread,
            exclude=options.exclude_args,
            unchecked=options.input_schema is not None,
        )
        #: The servers whose middleware stands around a call, outermost first, the root left out.
        self.mounted_by: tuple[Server, ...] = ()
        #: What this is a copy of, if it is mounted from another server.
        self.source: ToolDefinition | None = None
        #: The arguments that HTTP repeats in headers.
        self.headers: tuple[HeaderParameter, ...] = ()
        self._listed: t.Tool | None = None
        schema = options.input_schema
        self._validator = None if schema is None else _compiled(schema, f"tool {name!r}: input_schema")
        #: What is done to a result before it leaves, where something was said about it by hand.
        self._finish: Callable[[Any, t.CallToolResult], t.CallToolResult] | None = None
        if options.output_schema is None:
            self._finish = _drop_structured
        elif options.output_schema is not msgspec.UNSET:
            self._finish = partial(_check_output, _compiled(options.output_schema, f"tool {name!r}: output_schema"))
        self._encode: Callable[[Any], bytes] | None = None
        #: Whether results go into ``{"result": …}`` in all revisions, or only where the revision demands an object.
        self._wraps = owner.wraps_results if options.wrap_result is None else options.wrap_result
        self._wrap: Callable[[], bool] = self._describes_other_than_objects
        self._prepared = False
        # The function itself, where nothing stands between the arguments and its call.
        self._plain: Callable[..., Awaitable[Any]] | None = None
        self._bind: Callable[[Raw | None], dict[str, Any]] = self._bind_by_schema
        self._check()

    # --- listing -----------------------------------------------------------------------------------------------------

    def listed(self) -> t.Tool:
        """Describe the tool; made when first wanted, since schemas cost more than registration."""
        if self._listed is None:
            options, signature = self.options, self.function.signature
            output = self._output_schema()
            if output and self._wraps and needs_wrapping(output):
                output = wrap_schema(output)
            self._listed = t.Tool(
                name=self.name,
                title=options.title,
                description=options.description or signature.description,
                input_schema=signature.input_schema() if options.input_schema is None else options.input_schema,
                output_schema=output or None,
                annotations=options.annotations,  # type: ignore[arg-type]
                icons=list(options.icons) if options.icons else None,
                meta=dict(options.meta) if options.meta else None,
            )
        return self._listed

    def _output_schema(self) -> dict[str, Any] | None:
        """Return the schema of what the function returns, not yet in an object."""
        written = self.options.output_schema
        return self.function.signature.output_schema() if written is msgspec.UNSET else written

    def _describes_other_than_objects(self) -> bool:
        """Return True if the output schema allows anything but objects; computed once, when first needed."""
        output = self._output_schema()
        found = bool(output) and needs_wrapping(output or {})
        self._wrap = partial(bool, found)
        return found

    # --- calling -----------------------------------------------------------------------------------------------------

    async def call(self, exchange: Exchange, arguments: Raw | None) -> t.CallToolResult:
        """Call the tool; only a cancellation, a refusal for the caller or a fault of ours is raised."""
        function = self.function
        if not self._prepared:
            self._prepare()
        if self.options.single_use:
            self._spend(exchange)
        try:
            kwargs = self._bind(arguments)
            if self._plain is not None:
                value = await self._plain(**kwargs)
            elif self.options.timeout is None:
                value = await function.run(exchange, kwargs)
            else:
                value = await self._run_in_time(exchange, kwargs, self.options.timeout)
            bare = not self._wraps and exchange.admitted.caller.revision.any_structured_content
            return to_tool_result(value, encode=self._encode, finish=self._finish, wrap=None if bare else self._wrap)
        except (InvalidArguments, HandlerError) as error:
            if isinstance(error, InvalidArguments) and not _is_object(arguments):
                raise InvalidParams("Invalid params: arguments must be an object") from error
            return error_result(str(error))
        except MissingCapability as error:
            if not exchange.admitted.caller.revision.handshake:
                raise
            return error_result(str(error))
        except InvalidResult as error:
            log.error("tool %r returned what its output schema forbids: %s", self.name, error)
            return error_result(f"Tool {self.name!r} failed: its result does not fit its output schema.")
        except RequestFailed:
            raise
        except ExceptionGroup as error:
            return self._failed_in_group(error, exchange)
        except (Exception, SystemExit) as error:
            # A tool that wants to end the program (argument parsers do) has failed; the server goes on.
            log.exception("tool %r failed (request %r)", self.name, exchange.id)
            return error_result(
                str(error) if not function.owner.masks_errors else f"Tool {self.name!r} failed unexpectedly."
            )

    async def _run_in_time(self, exchange: Exchange, kwargs: dict[str, object], seconds: float) -> Any:
        try:
            async with asyncio.timeout(seconds) as bound:
                return await self.function.run(exchange, kwargs)
        except TimeoutError as error:
            if not bound.expired():
                raise
            raise ToolError(f"Tool {self.name!r} took longer than {seconds:g} s.") from error

    def _failed_in_group(self, group: ExceptionGroup[Exception], exchange: Exchange) -> t.CallToolResult:
        """Answer what a task group of the tool raised: by the failure that was meant for the caller, if there is one.

        Raises:
            RequestFailed, MissingCapability: that is what there is.
        """
        meant = find_caller_error(group)
        if meant is None:
            log.error("tool %r failed (request %r)", self.name, exchange.id, exc_info=group)
            masked = f"Tool {self.name!r} failed unexpectedly."
            return error_result(masked if self.function.owner.masks_errors else str(group))
        if isinstance(meant, RequestFailed) or not (
            isinstance(meant, HandlerError) or exchange.admitted.caller.revision.handshake
        ):
            raise meant from group
        return error_result(str(meant))

    def _check(self) -> None:
        """Refuse what clients would have to refuse: a schema of no object, or headers that break their rules.

        Raises:
            TypeError: the reason.
        """
        schema, signature = self.options.input_schema, self.function.signature
        if schema is None and isinstance(signature, Signature) and _declares_header(signature.annotations):
            schema = signature.input_schema()
        if schema is None:
            return
        if schema.get("type") != "object":
            raise TypeError(f'tool {self.name!r}: input_schema needs "type": "object"')
        from trunkline.protocol.headers import header_parameters

        try:
            self.headers = header_parameters(schema)
        except ValueError as error:
            raise TypeError(f"tool {self.name!r}: {error}") from error

    def _spend(self, exchange: Exchange) -> None:
        """Let sealed state resume this tool once only."""
        nonce = None if exchange.questions is None else exchange.questions.nonce
        if nonce is not None and not self.function.owner.seal.spend(nonce):
            raise InvalidParams("The request state was used already; start the call again.")

    def _prepare(self) -> None:
        """Find out, at the first call, how arguments come in and how the result goes out."""
        options, signature = self.options, self.function.signature
        if options.input_schema is not None:
            self._bind = self._bind_by_schema
        else:
            assert isinstance(signature, Signature)
            self._bind = signature.bind
            if options.output_schema is msgspec.UNSET and signature.promises_result:
                self._encode = signature.encode_result
        if self.function.is_plain and options.timeout is None:
            self._plain = self.function.function
        self._prepared = True

    def _bind_by_schema(self, arguments: Raw | None) -> dict[str, Any]:
        """Check the arguments against a hand-written schema."""
        assert self._validator is not None
        try:
            value = {} if arguments is None else msgspec.json.decode(arguments)
            value = {} if value is None else value
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidArguments(f"the arguments are not JSON: {error}") from error
        problem = self._validator.first_violation(value)
        if problem is not None:
            raise InvalidArguments(
                problem.message if problem.path else f"arguments: {problem.message}", path=problem.path
            )
        signature = self.function.signature
        assert isinstance(signature, UncheckedSignature)
        if signature.names is not None:
            # A schema may let pass what its function cannot be given.
            check_names(value, signature.names, required=signature.required)
        return value


def make_tool_handler(server: Server) -> Callable[[Exchange, t.CallToolRequestParams], Awaitable[t.CallToolResult]]:
    """Make the handler of ``tools/call``.

    It has no coroutine of its own: the tool's is awaited in its place, since this is the path that matters most.
    """

    def tools_call(exchange: Exchange, params: t.CallToolRequestParams) -> Awaitable[t.CallToolResult]:
        tool = server.registry.tools.get(params.name)
        if tool is None or (server.has_hidden and not server.listing.is_visible(exchange.admitted.caller, tool)):
            raise InvalidParams(f"Unknown tool: {params.name}", data={"name": params.name})
        if tool.scopes:
            check_scopes(exchange, tool.scopes, server.hierarchy)
        if tool.headers:
            check_headers(tool, exchange, params.arguments)
        if tool.mounted_by:
            found = tool
            return server.call_mounted(tool, exchange, params, lambda given: found.call(exchange, given.arguments))
        return tool.call(exchange, params.arguments)

    return tools_call


def check_headers(tool: HasHeaderParameters, exchange: Exchange, arguments: Raw | None) -> None:
    """See that the arguments that HTTP repeats in headers are the same in both places.

    Raises:
        HeaderMismatch: they are not, so whoever routed the request by its headers was misled.
    """
    caller = exchange.admitted.caller
    if caller.origin.headers is None or Feature.ROUTING_HEADERS not in caller.revision.features:
        return
    from trunkline.protocol.headers import compare_parameter_headers

    try:
        given = {} if arguments is None else msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Whoever reads them next says what is wrong.
        return
    members = given if isinstance(given, dict) else {}
    problem = compare_parameter_headers(caller.origin.headers, members, parameters=tool.headers)
    if problem is not None:
        raise HeaderMismatch(f"Header mismatch: {problem}")


def error_result(message: str) -> t.CallToolResult:
    """Make the result of a tool that failed in a way the model should read."""
    return t.CallToolResult(content=[t.TextContent(text=message)], is_error=True)


def _declares_header(annotations: Iterable[object]) -> bool:
    """Tell whether an annotation puts its argument into a header, without making schemas of all the others."""
    return any("x-mcp-header" in repr(getattr(each, "__metadata__", "")) for each in annotations)


def _compiled(schema: dict[str, object], what: str) -> Validator:
    """Compile a schema written by hand, so that what is wrong with it is said where it was written."""
    from trunkline.protocol.json_schema import SchemaError, compile_schema

    try:
        return compile_schema(schema)
    except SchemaError as error:
        raise TypeError(f"{what}: {error}") from error


def _drop_structured(value: object, result: t.CallToolResult) -> t.CallToolResult:
    """Leave the structured value out, unless the function made the whole result."""
    whole = isinstance(value, t.CallToolResult | ToolResult)
    return result if whole else replace(result, structured_content=msgspec.UNSET)


def _check_output(promise: Validator, value: object, result: t.CallToolResult) -> t.CallToolResult:
    """See that a result keeps the promise of an output schema written by hand.

    Raises:
        ResultError: it does not.
    """
    if result.is_error:
        return result
    if result.structured_content is msgspec.UNSET:
        # A text or a list goes out as content by itself; the schema says that it is a value.
        result = with_structured(value, result)
    if result.structured_content is msgspec.UNSET:
        raise InvalidResult("there is no structured value")
    problem = promise.first_violation(msgspec.json.decode(msgspec.json.encode(result.structured_content)))
    if problem is not None:
        raise InvalidResult(problem.message, path=problem.path)
    return result


def _is_object(arguments: Raw | None) -> bool:
    """Tell whether arguments were left out or are an object, whatever is in it."""
    return arguments is None or bytes(arguments)[:1] in (b"{", b"n")


def _annotations(given: t.ToolAnnotations | Mapping[str, object] | None) -> t.ToolAnnotations | None:
    if given is None or isinstance(given, t.ToolAnnotations):
        return given
    try:
        return msgspec.convert(dict(given), t.ToolAnnotations)
    except msgspec.ValidationError as error:
        raise TypeError(f"annotations: {error}") from error
