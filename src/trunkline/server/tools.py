"""Tools: how a function is listed, and how it is called.

An error that a tool raises for the model becomes a result with ``isError``. An unexpected error is logged in full, and
the result does not contain its message unless the server's ``mask_error_details`` is off. Under development
(``trunkline dev`` and ``inspect`` set ``TRUNKLINE_TRACEBACKS``) it has the traceback.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import warnings
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.errors import (
    HandlerError,
    HeaderMismatch,
    InvalidParams,
    MethodNotFound,
    MissingCapability,
    RequestFailed,
    ToolError,
)
from trunkline.protocol.downgrade import needs_wrapping, wrap_schema
from trunkline.protocol.revisions import Feature
from trunkline.server.dispatch import call_mounted, runtime_of
from trunkline.server.handler_functions import (
    TRACEBACKS,
    HandlerFunction,
    UncheckedSignature,
    find_caller_error,
    users_traceback,
)
from trunkline.server.results import ToolResult, to_tool_result, with_structured
from trunkline.server.scopes import check_scopes
from trunkline.server.signatures import Signature
from trunkline.server.validation_errors import (
    MOST_PROBLEMS,
    InvalidArguments,
    InvalidResult,
    check_names,
    did_you_mean,
    quote,
)

if TYPE_CHECKING:
    from trunkline.protocol.headers import HeaderParameter
    from trunkline.protocol.json_schema import SchemaViolation, Validator
    from trunkline.server.app_options import ToolApp
    from trunkline.server.server import Server
    from trunkline.server.task_options import TaskOptions

__all__ = [
    "HasHeaderParameters",
    "ToolDefinition",
    "ToolOptions",
    "check_headers",
    "error_result",
    "make_tool_handler",
    "perform_tool",
]

log = logging.getLogger("trunkline")


class ToolOptions(Struct, frozen=True, kw_only=True):
    """The options of a tool."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    annotations: t.ToolAnnotations | Mapping[str, Any] | None = None
    icons: Sequence[t.Icon] | None = None
    tags: frozenset[str] = frozenset()
    meta: Mapping[str, Any] | None = None
    input_schema: dict[str, Any] | None = None
    output_schema: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    #: Whether arguments and results are checked against the given schemas; False leaves that to the function, which is
    #: called with the arguments as they were sent.
    checked: bool = True
    thread: bool = True
    exclude_args: Sequence[str] = ()
    timeout: float | None = None
    single_use: bool = False
    #: Whether a value that is not an object is sent as ``{"result": …}`` in every revision; None uses the server's
    #: ``wrap_results``.
    wrap_result: bool | None = None
    #: The scopes that a caller's token needs; over HTTP, the tool is hidden from other callers.
    scopes: tuple[str, ...] = ()
    #: The task options of the tool; None if it does not run as a task.
    task: TaskOptions | None = None
    #: The URI of the page that shows the tool's results, ``ui://…``.
    app: str | None = None
    #: Who may call the tool: ``model``, ``app`` (a page) or both; None means both.
    visibility: Sequence[str] | None = None


class HasHeaderParameters(Protocol):
    """A tool with arguments that HTTP repeats in headers."""

    @property
    def headers(self) -> tuple[HeaderParameter, ...]:
        """The arguments that HTTP repeats in headers."""


class ToolDefinition:
    """A tool of a server: how it is listed and how it is called."""

    __slots__ = (
        "_bind",
        "_bind_values",
        "_encode",
        "_finish",
        "_listed",
        "_plain",
        "_prepared",
        "_strict",
        "_validator",
        "_wrap",
        "_wraps",
        "app",
        "function",
        "headers",
        "mounted_by",
        "name",
        "options",
        "scopes",
        "source",
        "task",
    )

    #: Whether servers that mount the tool's server offer it too.
    mountable: ClassVar[bool] = True

    def __init__(self, function: Callable[..., object], options: ToolOptions, *, owner: Server) -> None:
        """Create a tool from a function."""
        name = options.name or getattr(function, "__name__", "")
        if not name or name == "<lambda>":
            raise TypeError("a tool needs a name: pass name= for a lambda or a callable object")
        self.name: str = name
        options = replace(options, annotations=_annotations(options.annotations))
        self.options: ToolOptions = options
        self.scopes: tuple[str, ...] = options.scopes
        #: The task options; None if it does not run as a task.
        self.task: TaskOptions | None = options.task
        #: Its page and who may call it; None if neither was declared.
        self.app: ToolApp | None = None
        if options.app is not None or options.visibility is not None:
            from trunkline.server.app_options import tool_app

            self.app = tool_app(options.app, options.visibility, name)
        elif options.meta is not None and "ui" in options.meta:
            from trunkline.server.app_options import hidden_by_meta

            self.app = hidden_by_meta(options.meta)
        self.function: HandlerFunction = HandlerFunction(
            function,
            owner=owner,
            what=f"tool {name!r}",
            thread=options.thread,
            exclude=options.exclude_args,
            unchecked=options.input_schema is not None,
        )
        self._strict = owner.settings.strict_arguments
        if self._strict and isinstance(self.function.signature, Signature):
            self.function.signature.read_strictly()
        #: The servers whose middleware wraps a call, outermost first, without the root server.
        self.mounted_by: tuple[Server, ...] = ()
        #: The original of this copy, if it is mounted from another server.
        self.source: ToolDefinition | None = None
        #: The arguments that HTTP repeats in headers.
        self.headers: tuple[HeaderParameter, ...] = ()
        self._listed: t.Tool | None = None
        schema = options.input_schema if options.checked else None
        self._validator = None if schema is None else _compiled(schema, f"tool {name!r}: input_schema")
        #: Applied to a result if ``output_schema`` was given.
        self._finish: Callable[[Any, t.CallToolResult], t.CallToolResult] | None = None
        if options.output_schema is None:
            self._finish = _drop_structured
        elif options.output_schema is not msgspec.UNSET and options.checked:
            self._finish = partial(_check_output, _compiled(options.output_schema, f"tool {name!r}: output_schema"))
        self._encode: Callable[[Any], bytes] | None = None
        #: Whether results are wrapped as ``{"result": …}`` in all revisions, or only where the revision requires it.
        self._wraps = owner.settings.wraps_results if options.wrap_result is None else options.wrap_result
        self._wrap: Callable[[], bool] = self._describes_other_than_objects
        self._prepared = False
        # The function itself, if it can be called with the values of the arguments alone.
        self._plain: Callable[..., Awaitable[Any]] | None = None
        self._bind: Callable[[Raw | None], dict[str, Any]] = self._bind_by_schema
        self._bind_values: Callable[[Raw | None], tuple[Any, ...]]
        self._check()

    # --- listing -----------------------------------------------------------------------------------------------------

    def listed(self) -> t.Tool:
        """Return the tool as it is listed; built on first use, since schemas cost more than registration."""
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
                execution=_execution(self.task),
                icons=list(options.icons) if options.icons else None,
                meta=self._meta(),
            )
        return self._listed

    def _meta(self) -> dict[str, Any] | None:
        meta = self.options.meta
        if self.app is not None:
            return self.app.add_to(meta)
        return dict(meta) if meta else None

    def with_app(self, app: ToolApp) -> ToolDefinition:
        """Return a copy with another page."""
        changed = copy.copy(self)
        changed.app, changed._listed = app, None
        return changed

    def _output_schema(self) -> dict[str, Any] | None:
        """Return the schema of what the function returns, not yet wrapped."""
        written = self.options.output_schema
        return self.function.signature.output_schema() if written is msgspec.UNSET else written

    def _describes_other_than_objects(self) -> bool:
        """Return whether the output schema allows anything but objects; computed on first use."""
        output = self._output_schema()
        found = bool(output) and needs_wrapping(output or {})
        self._wrap = partial(bool, found)
        return found

    # --- calling -----------------------------------------------------------------------------------------------------

    async def call(self, exchange: Exchange, arguments: Raw | None) -> t.CallToolResult:
        """Call the tool and return its result.

        Errors of the tool become results; only a cancellation or an error response is raised.
        """
        function = self.function
        if not self._prepared:
            self._prepare()
        if self.options.single_use:
            await self._spend(exchange)
        try:
            if self._plain is not None:
                value = await self._plain(*self._bind_values(arguments))
            elif self.options.timeout is None:
                value = await function.run(exchange, self._bind(arguments))
            else:
                value = await self._run_in_time(exchange, self._bind(arguments), self.options.timeout)
            if type(value) is CoroutineType:
                _warn_of_missing_await(function.function, value)
                value = await value
            bare = not self._wraps and exchange.admitted.caller.revision.any_structured_content
            return to_tool_result(value, self._encode, self._finish, None if bare else self._wrap)
        except (InvalidArguments, HandlerError) as error:
            if isinstance(error, InvalidArguments) and not _is_object(arguments):
                raise InvalidParams("Invalid params: arguments must be an object") from error
            return error_result(str(error))
        except MissingCapability as error:
            if not exchange.admitted.caller.revision.handshake:
                raise
            return error_result(str(error))
        except InvalidResult as error:
            log.error("the result of tool %r does not match its output schema: %s", self.name, error)
            why = f"\n\n{error}" if os.environ.get(TRACEBACKS) else ""
            return error_result(f"Tool {self.name!r} failed: its result does not match its output schema.{why}")
        except RequestFailed:
            raise
        except ExceptionGroup as error:
            return self._failed_in_group(error, exchange)
        except (Exception, SystemExit) as error:
            # A tool that exits the program (argument parsers do) has failed; the server continues.
            log.exception("tool %r failed (request %r)", self.name, exchange.id)
            return self._failed_unexpectedly(error)

    async def _run_in_time(self, exchange: Exchange, kwargs: dict[str, object], seconds: float) -> Any:
        try:
            async with asyncio.timeout(seconds) as bound:
                return await self.function.run(exchange, kwargs)
        except TimeoutError as error:
            if not bound.expired():
                raise
            raise ToolError(f"Tool {self.name!r} took longer than {seconds:g} s.") from error

    def _failed_unexpectedly(self, error: BaseException) -> t.CallToolResult:
        masked = f"Tool {self.name!r} failed unexpectedly."
        if os.environ.get(TRACEBACKS):
            return error_result(f"{masked}\n\n{users_traceback(error)}")
        return error_result(masked if self.function.owner.settings.masks_errors else str(error))

    def _failed_in_group(self, group: ExceptionGroup[Exception], exchange: Exchange) -> t.CallToolResult:
        """Return the result for an exception group of the tool: the first error meant for the caller counts.

        Raises:
            RequestFailed, MissingCapability: that error is an error response.
        """
        found = find_caller_error(group)
        if found is None:
            log.error("tool %r failed (request %r)", self.name, exchange.id, exc_info=group)
            return self._failed_unexpectedly(group)
        if isinstance(found, RequestFailed) or not (
            isinstance(found, HandlerError) or exchange.admitted.caller.revision.handshake
        ):
            raise found from group
        return error_result(str(found))

    def _check(self) -> None:
        """Check what clients would reject: an input schema that is not an object, or invalid header parameters.

        Raises:
            TypeError: the tool is not valid; the message says why.
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

    async def _spend(self, exchange: Exchange) -> None:
        """Mark the sealed state of a resumed call as used, so that it cannot be used again."""
        nonce = None if exchange.channel is None else exchange.channel.nonce
        if nonce is None:
            return
        # The server of the connection sealed the state, also for a server mounted in it.
        if not await runtime_of(exchange).seal.keeper.spend(nonce, owner=exchange.admitted.caller.owner):
            raise InvalidParams("The request state was used already; start the call again.")

    def _prepare(self) -> None:
        """Choose, at the first call, how arguments are bound and how the result is encoded."""
        options, signature = self.options, self.function.signature
        if options.input_schema is not None:
            self._bind = self._bind_by_schema
        else:
            assert isinstance(signature, Signature)
            self._bind = signature.bind
            if options.output_schema is msgspec.UNSET and signature.promises_result:
                self._encode = signature.encode_result
            by_position = signature.bind_values
            if self.function.is_plain and options.timeout is None and by_position is not None:
                self._plain, self._bind_values = self.function.function, by_position
        self._prepared = True

    def _bind_by_schema(self, arguments: Raw | None) -> dict[str, Any]:
        """Read the arguments, and validate them against the given input schema."""
        try:
            value = {} if arguments is None else msgspec.json.decode(arguments)
            value = {} if value is None else value
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidArguments(f"the arguments are not JSON: {error}") from error
        if self._validator is None:
            if not isinstance(value, dict):
                raise InvalidArguments("the arguments are not an object")
            return value
        signature = self.function.signature
        assert isinstance(signature, UncheckedSignature)
        violations = self._validator.check(value)
        if violations and not self._strict and isinstance(value, dict):
            value = self._without_nulls(value, signature, {violation.path for violation in violations})
            violations = self._validator.check(value)
        if violations:
            raise InvalidArguments.of([(each.path, _with_value(each, value)) for each in violations[:MOST_PROBLEMS]])
        if signature.names is not None:
            # A schema may allow arguments that its function does not have.
            check_names(value, signature.names, required=signature.required)
        return value

    def _without_nulls(
        self, value: dict[str, Any], signature: UncheckedSignature, rejected: Collection[str]
    ) -> dict[str, Any]:
        """Return the arguments without the nulls at rejected places where the function has a default."""
        optional = (signature.names or frozenset()) - signature.required
        return {
            name: argument
            for name, argument in value.items()
            if argument is not None or name not in optional or f"/{name}" not in rejected
        }


def _with_value(violation: SchemaViolation, value: Any) -> str:
    """Return the message of a violation with the rejected value, if that is no object or array."""
    step = ""
    for step in violation.path.split("/")[1:]:
        value = value[int(step) if isinstance(value, list) else step.replace("~1", "/").replace("~0", "~")]
    expected, found, _ = violation.message.rpartition(", found ")
    is_scalar = found and not isinstance(value, dict | list)
    message = f"{expected}, got {quote(value, step)}" if is_scalar else violation.message
    return message if violation.path else f"arguments: {message}"


def _warn_of_missing_await(function: Callable[..., object], value: CoroutineType[Any, Any, Any]) -> None:
    """Warn, once, that an async function returned a coroutine; Python itself warns where one is dropped."""
    code = getattr(function, "__code__", value.cr_code)
    text = f"{function!r} returned the coroutine {value.__qualname__!r}: an await is missing; it is awaited for now"
    # Each module remembers what was warned of in it, as for `warnings.warn`.
    registry = getattr(function, "__globals__", {}).setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, RuntimeWarning, code.co_filename, code.co_firstlineno, registry=registry)


def make_tool_handler(server: Server) -> Callable[[Exchange, t.CallToolRequestParams], Awaitable[t.CallToolResult]]:
    """Return the handler of ``tools/call``.

    It is not a coroutine function: it returns the tool's coroutine, since this is the hottest path.
    """
    table = server.table

    def tools_call(exchange: Exchange, params: t.CallToolRequestParams) -> Awaitable[t.CallToolResult]:
        tool = server.registry.tools.get(params.name)
        if tool is None or (table.has_hidden and not table.listing.is_visible(exchange.admitted.caller, tool)):
            raise InvalidParams(f"Unknown tool: {params.name}", data={"name": params.name})
        if tool.scopes:
            check_scopes(exchange, tool.scopes, server.settings.hierarchy)
        if tool.headers:
            check_headers(tool, exchange, params.arguments)
        if tool.task is not None and (tasks := runtime_of(exchange).tasks) is not None:
            return tasks.call(
                tool.task, exchange, params, lambda given: perform_tool(tool, given, params), keep_alive=True
            )
        if params.task is not None and table.task_settings is not None:
            refuse_task(exchange, params)
        for mounted in tool.mounted_by:
            if mounted.table.middleware:
                return perform_tool(tool, exchange, params)
        return tool.call(exchange, params.arguments)

    return tools_call


def refuse_task(exchange: Exchange, params: t.CallToolRequestParams) -> None:
    """Reject a call as a task of a tool without ``task=``, where clients may request that.

    Raises:
        MethodNotFound: the error that the specification requires for such a tool.
    """
    if Feature.CORE_TASKS in exchange.admitted.caller.revision.features:
        raise MethodNotFound(
            f"Method not found: the tool {params.name!r} cannot be called as a task",
            data={"method": exchange.method, "taskSupport": "forbidden"},
        )


def perform_tool(
    tool: ToolDefinition, exchange: Exchange, params: t.CallToolRequestParams
) -> Awaitable[t.CallToolResult]:
    """Call a tool inside the middleware of the servers it was mounted with."""
    if not tool.mounted_by:
        return tool.call(exchange, params.arguments)
    return call_mounted(tool, exchange, params, lambda given: tool.call(exchange, given.arguments))


def _execution(task: TaskOptions | None) -> t.ToolExecution | None:
    return None if task is None else t.ToolExecution(task_support="required" if task.required else "optional")


def check_headers(tool: HasHeaderParameters, exchange: Exchange, arguments: Raw | None) -> None:
    """Check that arguments which HTTP repeats in headers have the same values in both places.

    Raises:
        HeaderMismatch: they differ, so a proxy that routed the request by its headers was misled.
    """
    caller = exchange.admitted.caller
    if caller.origin.headers is None or Feature.ROUTING_HEADERS not in caller.revision.features:
        return
    from trunkline.protocol.headers import compare_parameter_headers

    try:
        given = {} if arguments is None else msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Binding the arguments reports what is wrong with them.
        return
    members = given if isinstance(given, dict) else {}
    problem = compare_parameter_headers(caller.origin.headers, members, parameters=tool.headers)
    if problem is not None:
        raise HeaderMismatch(f"Header mismatch: {problem}")


def error_result(message: str) -> t.CallToolResult:
    """Return the result of a tool that failed with a message for the model."""
    return t.CallToolResult(content=[t.TextContent(text=message)], is_error=True)


def _declares_header(annotations: Iterable[object]) -> bool:
    """Return whether an annotation declares a header, without building a schema."""
    return any("x-mcp-header" in repr(getattr(each, "__metadata__", "")) for each in annotations)


def _compiled(schema: dict[str, object], what: str) -> Validator:
    """Compile a given schema, so that an error in it is raised at registration."""
    from trunkline.protocol.json_schema import SchemaError, compile_schema

    try:
        return compile_schema(schema)
    except SchemaError as error:
        raise TypeError(f"{what}: {error}") from error


def _drop_structured(value: object, result: t.CallToolResult) -> t.CallToolResult:
    """Remove the structured content, unless the function returned the whole result."""
    whole = isinstance(value, t.CallToolResult | ToolResult)
    return result if whole else replace(result, structured_content=msgspec.UNSET)


def _check_output(validator: Validator, value: object, result: t.CallToolResult) -> t.CallToolResult:
    """Validate a result against a given output schema.

    Raises:
        InvalidResult: it does not match.
    """
    if result.is_error:
        return result
    if result.structured_content is msgspec.UNSET:
        # A string or a list is sent as content by default; the schema declares it to be a value.
        result = with_structured(value, result)
    if result.structured_content is msgspec.UNSET:
        raise InvalidResult("there is no structured value")
    problem = validator.first_violation(msgspec.json.decode(msgspec.json.encode(result.structured_content)))
    if problem is not None:
        raise InvalidResult(problem.message, path=problem.path)
    return result


def _is_object(arguments: Raw | None) -> bool:
    """Return whether the arguments are missing, null or an object."""
    return arguments is None or bytes(arguments)[:1] in (b"{", b"n")


def _annotations(given: t.ToolAnnotations | Mapping[str, object] | None) -> t.ToolAnnotations | None:
    if given is None or isinstance(given, t.ToolAnnotations):
        return given
    known = t.ToolAnnotations.__struct_encode_fields__
    if unknown := [name for name in given if name not in known]:
        # A hint that nobody reads would be lost without a word, and hosts decide by them what to ask about.
        raise TypeError(f"annotations: unknown hint {unknown[0]!r}{did_you_mean(unknown[0], known)}")
    try:
        return msgspec.convert(dict(given), t.ToolAnnotations)
    except msgspec.ValidationError as error:
        raise TypeError(f"annotations: {error}") from error
