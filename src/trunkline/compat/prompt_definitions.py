"""Prompts of the stand-ins: arguments arrive as text, and are read as the framework reads them."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from pydantic import TypeAdapter
from pydantic import ValidationError as PydanticError

import trunkline.types as t
from trunkline.compat.definitions import ForeignFunction, OfficialSignature, fast_meta, is_local
from trunkline.compat.exceptions import PromptError
from trunkline.compat.fast_functions import BadArguments, FastSignature
from trunkline.compat.input_required import is_input_required, to_input_required
from trunkline.compat.json_schemas import compress_schema
from trunkline.compat.resource_definitions import public_meta
from trunkline.compat.results import PromptResult
from trunkline.compat.types import model_class
from trunkline.errors import HandlerError, MissingCapability, RequestFailed
from trunkline.server.prompts import PromptDefinition
from trunkline.server.results import to_messages

log = logging.getLogger("trunkline")

__all__ = ["FastPrompt", "OfficialPrompt", "check_prompt_function"]


class _FastFunction(ForeignFunction):
    """The function of a prompt of FastMCP's."""

    __slots__ = ()
    _signature_class = FastSignature


class _OfficialFunction(ForeignFunction):
    """The function of a prompt of the official SDK's."""

    __slots__ = ()
    _signature_class = OfficialSignature


def check_prompt_function(function: Any) -> None:
    """Raise ValueError if a function cannot be called with named arguments."""
    for each in inspect.signature(function).parameters.values():
        if each.kind is each.VAR_POSITIONAL:
            raise ValueError("Functions with *args are not supported as prompts")
        if each.kind is each.VAR_KEYWORD:
            raise ValueError("Functions with **kwargs are not supported as prompts")
        if each.kind is each.POSITIONAL_ONLY:
            raise ValueError(
                "Functions with positional-only parameters are not supported as prompts: use standard parameters"
            )


def _takes_text(annotation: Any) -> bool:
    """Return whether a text is a value of a type as it is."""
    if get_origin(annotation) is Annotated:
        return _takes_text(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return any(_takes_text(part) for part in get_args(annotation))
    return annotation in (str, Any, object, inspect.Parameter.empty)


class FastPrompt(PromptDefinition):
    """A prompt as FastMCP has it."""

    _function_class = _FastFunction

    def listed(self) -> t.Prompt:
        """Return the prompt as it is listed: arguments that are not text say what is expected."""
        if self._listed is None:
            listed = super().listed()
            notes = {name: note for name, note, _ in self.function.signature._given}  # type: ignore[union-attr]
            arguments = [
                msgspec.structs.replace(
                    each, description=_with_schema(_written(notes[each.name]) or each.description, notes[each.name])
                )
                for each in listed.arguments or ()
            ]
            self._listed = msgspec.structs.replace(listed, arguments=arguments or None, meta=fast_meta(self.options))
        return self._listed

    def bound(self, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the keyword arguments: text that is meant as another type is read as JSON.

        Raises:
            PromptError: a value does not have the type of its parameter, or one is missing.
        """
        given = dict(arguments or {})
        signature: Any = self.function.signature
        required = {each.name for each in signature.parameters if each.required}
        missing = required - set(given)
        if missing:
            raise PromptValueError(f"Missing required arguments: {missing}")
        made: dict[str, Any] = {}
        for name, note, default in signature._given:
            if name in given:
                made[name] = _converted(name, note, given[name])
            elif default is not msgspec.UNSET:
                made[name] = _default(default)
        return made

    async def render(self, exchange: Any, arguments: Mapping[str, Any] | None) -> Any:
        """Return what the function returned; a failure is worded unless it is meant for the caller."""
        kwargs = self.bound(arguments)
        try:
            return await self.function.run(exchange, kwargs)
        except (HandlerError, RequestFailed, MissingCapability):
            raise
        except Exception as error:
            raise self.function.owner.worded(exchange, error) from error  # type: ignore[attr-defined]

    async def get(self, exchange: Any, arguments: Mapping[str, str] | None) -> t.GetPromptResult:
        """Render the prompt."""
        try:
            value = await self.render(exchange, arguments)
            if is_input_required(value):
                return await to_input_required(self.function.owner, exchange, value)  # type: ignore[return-value]
            return self.convert(value).to_struct()
        except HandlerError as error:
            if is_local(exchange):
                raise
            raise RequestFailed(str(error)) from error

    def convert(self, value: Any) -> PromptResult:
        """Return what the function returned as a result."""
        if isinstance(value, PromptResult):
            return value
        described = self.listed().description
        if isinstance(value, list | tuple) and not isinstance(value, str):
            value = list(value)
        elif not isinstance(value, str):
            value = [value]
        return PromptResult(value, described, public_meta(self.options.meta))


class PromptValueError(PromptError, ValueError):
    """An argument is missing."""


def _default(default: Any) -> Any:
    return default.get_default(call_default_factory=True) if hasattr(default, "get_default") else default


def _converted(name: str, note: Any, value: Any) -> Any:
    if not isinstance(value, str):
        return _validated(name, note, value)
    if _takes_text(note):
        return value
    try:
        parsed = json.loads(value)
    except ValueError:
        return _validated(name, note, value)
    try:
        return TypeAdapter(note).validate_python(parsed)
    except PydanticError:
        return _validated(name, note, value)


def _validated(name: str, note: Any, value: Any) -> Any:
    try:
        return TypeAdapter(note).validate_python(value)
    except PydanticError as error:
        raise PromptError(
            f"Could not convert argument {name!r} with value {value!r} to expected type {_named(note)}: {error}"
        ) from error


def _named(note: Any) -> str:
    return note.__name__ if isinstance(note, type) and get_origin(note) is None else str(note)


def _written(note: Any) -> str | None:
    """Return the description that an annotation has, or None."""
    if get_origin(note) is not Annotated:
        return None
    texts = (each if isinstance(each, str) else getattr(each, "description", None) for each in get_args(note)[1:])
    return next((text for text in texts if text), None)


def _with_schema(description: str | None, note: Any) -> str | None:
    """Return a description with the schema of a value that is not just text."""
    if note in (str, Any, inspect.Parameter.empty):
        return description
    try:
        schema = compress_schema(TypeAdapter(note).json_schema(), prune_titles=True)
    except Exception:  # noqa: BLE001 - a type that pydantic cannot describe is listed without a schema
        return description
    schema.pop("description", None)
    text = json.dumps(schema, separators=(",", ":"), sort_keys=False)
    hint = f"Provide a value matching the following JSON schema: {text}. Encode non-string values as JSON."
    return hint if not description else f"{description}\n\n{hint}"


class OfficialPrompt(PromptDefinition):
    """A prompt as the official SDK has it."""

    _function_class = _OfficialFunction

    def listed(self) -> t.Prompt:
        """Return the prompt as it is listed."""
        if self._listed is None:
            listed = super().listed()
            members = self.function.signature.metadata.arg_model.model_fields  # type: ignore[union-attr]
            fields = {(field.alias or name): field for name, field in members.items()}
            arguments = [
                t.PromptArgument(name=name, description=field.description, required=field.is_required())
                for name, field in fields.items()
            ]
            self._listed = msgspec.structs.replace(listed, arguments=arguments or None)
        return self._listed

    async def render(self, exchange: Any, arguments: Mapping[str, Any] | None) -> Any:
        """Return what the function returned.

        Raises:
            ValueError: an argument is missing or wrong, or the function failed.
        """
        given = dict(arguments or {})
        needed = {each.name for each in self.listed().arguments or () if each.required}
        missing = needed - set(given)
        if missing:
            raise ValueError(f"Missing required arguments: {missing}")
        try:
            kwargs = self.function.signature.bind(msgspec.json.encode(given))
            return await self.function.run(exchange, kwargs)
        except (RequestFailed, MissingCapability):
            raise
        except BadArguments as error:
            raise ValueError(f"Error rendering prompt {self.name}: {error.error}") from error.error
        except Exception as error:
            raise ValueError(f"Error rendering prompt {self.name}: {error}") from error

    async def get(self, exchange: Any, arguments: Mapping[str, str] | None) -> t.GetPromptResult:
        """Render the prompt."""
        try:
            value = await self.render(exchange, arguments)
        except ValueError as error:
            if is_local(exchange):
                raise
            log.error("prompts/get %r failed", self.name, exc_info=error)
            raise RequestFailed(str(error)) from error
        if isinstance(value, model_class("GetPromptResult")):
            from trunkline.compat.types import to_struct

            return to_struct(value, t.GetPromptResult)
        if is_input_required(value):
            return await to_input_required(self.function.owner, exchange, value)  # type: ignore[return-value]
        from trunkline.compat.official_components import to_official_messages

        return t.GetPromptResult(
            description=self.listed().description, messages=to_messages(to_official_messages(value))
        )
