"""Tools, prompts and resources of the stand-ins: definitions that read functions and answer as the frameworks do.

Inside a call from code (``server.call_tool``, ``tool.run``) a failure is raised, with the original exception as its
cause; in a request it becomes the answer that the framework sends, and is logged as there.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from types import GeneratorType
from typing import Any

import msgspec
from msgspec import Raw
from pydantic import ValidationError as PydanticError

import trunkline.types as t
from trunkline.compat.exceptions import ToolError, UnexpectedResourceError, UnexpectedToolError, ValidationError
from trunkline.compat.fast_functions import BadArguments, FastSignature, decode_arguments, to_fast_result
from trunkline.compat.input_required import is_input_required, to_input_required
from trunkline.compat.json_schemas import dereference_refs
from trunkline.compat.metadata import FuncMetadata, func_metadata
from trunkline.compat.results import ToolResult
from trunkline.compat.types import model_class, to_struct
from trunkline.compat.versions import STATE
from trunkline.errors import HandlerError, MissingCapability, RequestFailed
from trunkline.server.handler_functions import HandlerFunction, find_caller_error
from trunkline.server.signatures import Signature
from trunkline.server.tools import ToolDefinition, ToolOptions, error_result
from trunkline.server.validation_errors import InvalidArguments

__all__ = [
    "FastTool",
    "FastToolFunction",
    "ForeignFunction",
    "OfficialTool",
    "ToolBodyError",
    "fast_meta",
    "is_local",
    "title_of",
]

log = logging.getLogger("trunkline")
#: What both frameworks let through as it is: errors of the protocol.
_PROTOCOL = (RequestFailed, MissingCapability)


class ToolBodyError(Exception):
    """The function of a tool raised pydantic's exception itself: not the caller's arguments were wrong."""


def is_local(exchange: Any) -> bool:
    """Return whether a call came from code, so that failures are raised there."""
    return bool(getattr(exchange, "local", False))


class ForeignFunction(HandlerFunction):
    """A function whose exceptions are always converted to the framework's wording."""

    __slots__ = ()

    @property
    def is_plain(self) -> bool:
        """Never: failures are worded by the framework."""
        return False

    async def run(self, exchange: Any, kwargs: dict[str, Any]) -> Any:
        """Run the function; its dependencies may ask for its arguments."""
        if not self.signature.dependencies:
            return await super().run(exchange, kwargs)
        from trunkline.compat.features.injection import CALL_ARGUMENTS

        token = CALL_ARGUMENTS.set(kwargs)
        try:
            return await super().run(exchange, kwargs)
        finally:
            CALL_ARGUMENTS.reset(token)


class FastToolFunction(ForeignFunction):
    """The function of a tool of FastMCP's; what a generator yields is a list."""

    __slots__ = ()
    _signature_class = FastSignature

    async def run(self, exchange: Any, kwargs: dict[str, Any]) -> Any:
        """Run the function with these arguments and return its value."""
        value = await super().run(exchange, kwargs)
        return list(value) if isinstance(value, GeneratorType) else value

    async def _run(self, context: Any, kwargs: dict[str, Any]) -> Any:
        signature = self.signature
        if signature.is_async:
            value = await self.function(**kwargs)
        elif signature.is_async_generator:
            value = self.function(**kwargs)
        elif self._in_loop:
            value = self._collected(kwargs)
        else:
            value = await self.owner.pool.submit(self._collected, {"kwargs": kwargs}, contextvars.copy_context())
        value = await value if inspect.isawaitable(value) else value
        # Consumed while the dependencies are open.
        if isinstance(value, GeneratorType):
            return list(value)
        return [item async for item in value] if inspect.isasyncgen(value) else value

    def _collected(self, kwargs: dict[str, Any]) -> Any:
        """Call the function, and consume a generator where it was called."""
        value = self.function(**kwargs)
        return list(value) if isinstance(value, GeneratorType) else value


class FastTool(ToolDefinition):
    """A tool as FastMCP has it."""

    _function_class = FastToolFunction

    def __init__(self, function: Any, options: ToolOptions, *, owner: Any) -> None:
        """Read the function.

        Raises:
            ValueError: the output schema describes no object, or a timeout could not be kept.
        """
        given = options.output_schema
        if isinstance(given, dict) and given.get("type", "object") != "object" and "properties" not in given:
            raise ValueError(f"Output schemas must represent object types, not {given.get('type')!r}")
        super().__init__(function, options, owner=owner)
        signature = self.function.signature
        if getattr(owner, "strict_input_validation", False) and options.input_schema is None:
            signature._arguments.strict = True  # type: ignore[union-attr]
        stoppable = options.thread or signature.is_async or signature.is_async_generator
        if options.timeout is not None and not stoppable:
            raise ValueError("the timeout cannot be enforced: a sync function needs run_in_thread=True for it")

    def listed(self) -> t.Tool:
        """Return the tool as it is listed: pydantic's schemas without titles, a title, and the tags in ``_meta``."""
        if self._listed is None:
            given = self.options.output_schema
            listed = super().listed()
            output = self._output_schema() if given is msgspec.UNSET else given
            title = listed.title or getattr(listed.annotations, "title", None) or title_of(self.name)
            sent = dereference_refs if self.function.owner.dereferences else dict  # type: ignore[attr-defined]
            self._listed = msgspec.structs.replace(
                listed,
                title=title,
                input_schema=sent(listed.input_schema),
                output_schema=sent(output) if output else None,
                meta=fast_meta(self.options),
            )
        return self._listed

    @property
    def parameters(self) -> dict[str, Any]:
        """The schema of the arguments, with definitions and references."""
        given = self.options.input_schema
        return self.function.signature.input_schema() if given is None else given

    @property
    def output(self) -> dict[str, Any] | None:
        """The schema of the result, with definitions and references."""
        return self._output_schema() or None

    async def run(self, exchange: Any, arguments: Raw | None) -> ToolResult:
        """Run the tool and return its result; whatever its function raises is raised.

        Raises:
            ValidationError: the arguments do not match.
            ToolBodyError: the function raised pydantic's exception.
        """
        if not self._prepared:
            self._prepare()
        try:
            kwargs = self._bind(arguments)
        except BadArguments as error:
            raise ValidationError(str(error.error)) from error.error
        except InvalidArguments as error:
            raise ValidationError(str(error)) from error
        try:
            value = await self._in_time(exchange, kwargs)
        except PydanticError as error:
            raise ToolBodyError(str(error)) from error
        return self.convert(value)

    async def _in_time(self, exchange: Any, kwargs: dict[str, Any]) -> Any:
        seconds = self.options.timeout
        if seconds is None:
            return await self.function.run(exchange, kwargs)
        try:
            async with asyncio.timeout(seconds) as bound:
                return await self.function.run(exchange, kwargs)
        except TimeoutError as error:
            if not bound.expired():
                raise
            log.warning("tool %r timed out after %g s", self.name, seconds)
            raise ToolError(f"Tool {self.name!r} execution timed out after {seconds:g} seconds") from error

    def convert(self, value: Any) -> ToolResult:
        """Return what the function returned as a result."""
        if is_input_required(value):
            return value  # type: ignore[no-any-return]
        annotation = getattr(self.function.signature, "return_type", None)
        return to_fast_result(value, self.output, None, annotation)

    async def call(self, exchange: Any, arguments: Raw | None) -> t.CallToolResult:
        """Call the tool in a request; from code, raise what it raises."""
        try:
            result: Any = await self.run(exchange, arguments)
            if is_input_required(result):
                return await to_input_required(self.function.owner, exchange, result)  # type: ignore[return-value]
            return result.to_struct()  # type: ignore[no-any-return]
        except _PROTOCOL:
            raise
        except ExceptionGroup as group:
            found = find_caller_error(group)
            if isinstance(found, _PROTOCOL):
                raise found from group
            failure: BaseException = found or group
        except (Exception, SystemExit) as error:  # noqa: BLE001 - worded below, and logged
            failure = error
        worded = self.function.owner.worded(exchange, failure)  # type: ignore[attr-defined]
        if is_local(exchange):
            raise worded from failure
        if not isinstance(failure, HandlerError):
            log.error("Error calling tool %r", self.name, exc_info=failure)
        return error_result(str(worded))


class _OfficialArguments:
    """The arguments of a function, validated by the model of its metadata."""

    def __init__(self, signature: OfficialSignature) -> None:
        self._signature = signature

    def bind(self, raw: Any) -> dict[str, Any]:
        """Return the keyword arguments of a call.

        Raises:
            BadArguments: they do not match.
        """
        try:
            return self._signature.metadata.validate_arguments(decode_arguments(raw))
        except PydanticError as error:
            raise BadArguments(error) from error

    def arguments_schema(self, descriptions: Any) -> dict[str, Any]:
        """Return the schema of the arguments."""
        return self._signature.metadata.arg_model.model_json_schema(by_alias=True)


def title_of(name: str) -> str:
    """Return a title made from a name: some clients leave out tools without one."""
    return name.replace("_", " ").replace("-", " ").title()


def fast_meta(options: Any) -> dict[str, Any]:
    """Return ``_meta`` of a component as FastMCP lists it, with the tags."""
    meta = dict(options.meta or {})
    given = meta.get("fastmcp")
    own = {key: value for key, value in (given if isinstance(given, dict) else {}).items() if key != "_internal"}
    return {**meta, "fastmcp": {**own, "tags": sorted(options.tags)}}


class OfficialSignature(Signature):
    """The signature of a function as the official SDK reads it."""

    __slots__ = ("metadata",)

    def _read_arguments(self, label: str) -> Any:
        self.metadata: FuncMetadata = func_metadata(self.function, self._filled(), structured_output=False)
        return _OfficialArguments(self)

    def read_result(self, structured_output: bool | None) -> None:
        """Read the return annotation, too."""
        if structured_output is not False:
            self.metadata = func_metadata(self.function, self._filled(), structured_output)

    def _filled(self) -> list[str]:
        """Return the parameters that are not sent."""
        given = {name for name, _, _ in self._given}
        return [name for name in inspect.signature(self.function).parameters if name not in given]

    @property
    def promises_result(self) -> bool:
        """Never: results are made by the definition, as the framework makes them."""
        return False

    def _described(self) -> tuple[str | None, dict[str, str]]:
        if self._texts is None:
            # An object that was registered says itself what it is.
            own = None if getattr(self.function, "__trunkline_object__", False) else ""
            self._texts = getattr(self.function, "__doc__", None) or own, {}
        return self._texts


class OfficialToolFunction(ForeignFunction):
    """The function of a tool of the official SDK's."""

    __slots__ = ()
    _signature_class = OfficialSignature


class OfficialTool(ToolDefinition):
    """A tool as the official SDK has it."""

    _function_class = OfficialToolFunction

    def __init__(
        self, function: Any, options: ToolOptions, *, owner: Any, structured_output: bool | None = None
    ) -> None:
        """Read the function.

        Raises:
            InvalidSignature: a structured result is asked for, and its type has no schema.
        """
        super().__init__(function, options, owner=owner)
        signature = self.function.signature
        #: The models of the arguments and the result; None if the schema of the arguments was given.
        self.metadata: FuncMetadata | None = None
        if isinstance(signature, OfficialSignature):
            signature.read_result(structured_output)
            self.metadata = signature.metadata

    def listed(self) -> t.Tool:
        """Return the tool as it is listed."""
        if self._listed is None:
            listed = super().listed()
            if self.metadata is not None:
                listed = msgspec.structs.replace(listed, output_schema=self.metadata.output_schema)
            self._listed = listed
        return self._listed

    async def run(self, exchange: Any, arguments: Raw | None, *, convert: bool = True) -> Any:
        """Run the tool and return the protocol's result, or what its function returned.

        Raises:
            ToolError: the arguments do not match, or the tool failed; the exception behind it is the cause.
        """
        prefix = f"Error executing tool {self.name}"
        try:
            if not self._prepared:
                self._prepare()
            kwargs = self._bind(arguments)
            value = await self.function.run(exchange, kwargs)
            return self.convert(value) if convert else value
        except _PROTOCOL:
            raise
        except BadArguments as error:
            raise ToolError(f"{prefix}: {error.error}") from error.error
        except (UnexpectedToolError, UnexpectedResourceError) as error:
            raise UnexpectedToolError(f"{prefix}: {error}") from error
        except (HandlerError, InvalidArguments) as error:
            raise ToolError(f"{prefix}: {error}") from error
        except ExceptionGroup as group:
            found = find_caller_error(group)
            if isinstance(found, _PROTOCOL):
                raise found from group
            if found is not None:
                raise ToolError(f"{prefix}: {found}") from found
            raise self._crashed(prefix, group) from group
        except Exception as error:
            raise self._crashed(prefix, error) from error

    @staticmethod
    def _crashed(prefix: str, error: Exception) -> Exception:
        """Return the exception for a failure that the tool did not mean: version 2 keeps its text to itself."""
        return ToolError(f"{prefix}: {error}") if STATE.camel_case else UnexpectedToolError(prefix)

    def convert(self, value: Any) -> Any:
        """Return what the function returned as the protocol's result."""
        if self.metadata is None:
            return value
        made = self.metadata.convert_result(value)
        if isinstance(made, tuple):
            return model_class("CallToolResult")(content=made[0], structured_content=made[1])
        return model_class("CallToolResult")(content=made) if isinstance(made, list) else made

    async def call(self, exchange: Any, arguments: Raw | None) -> t.CallToolResult:
        """Call the tool in a request; from code, raise what it raises."""
        try:
            result = await self.run(exchange, arguments)
            if is_input_required(result) and not is_local(exchange):
                result = await to_input_required(self.function.owner, exchange, result)
            return self._struct(result)
        except ToolError as error:
            if is_local(exchange):
                raise
            self._log(error)
            return error_result(str(error))

    def _struct(self, result: Any) -> t.CallToolResult:
        if isinstance(result, t.CallToolResult | t.InputRequiredResult):
            return result  # type: ignore[return-value]
        if isinstance(result, model_class("CallToolResult")):
            return to_struct(result, t.CallToolResult)
        from trunkline.server.results import to_tool_result

        return to_tool_result(result, wrap=None)

    def _log(self, error: ToolError) -> None:
        record = logging.getLogger("mcp.server.mcpserver.server")
        cause: Any = error.__cause__
        if isinstance(error, UnexpectedToolError):
            record.error("Tool %r raised an unexpected exception", self.name, exc_info=error)
        elif hasattr(cause, "errors") and callable(cause.errors):
            # The names only: the values are the caller's.
            names = sorted({str(each["loc"][0]) for each in cause.errors(include_url=False) if each["loc"]})
            record.info("Tool %r rejected arguments: %r", self.name, names)
        else:
            record.info("Tool %r failed: %r", self.name, str(error))
