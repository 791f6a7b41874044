"""``func_metadata`` of the official SDK: a pydantic model of what a function takes and one of what it gives.

Servers of ours read functions themselves; this is for code that looks at the models, or calls a function through them.
"""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin, get_type_hints, is_typeddict

import pydantic
from pydantic import BaseModel, ConfigDict, Field, RootModel, WithJsonSchema, create_model
from pydantic.fields import FieldInfo

from trunkline.compat.exceptions import InvalidSignature
from trunkline.compat.results import to_blocks
from trunkline.compat.types import Model, model_class
from trunkline.server.dependencies import is_context
from trunkline.server.results import Audio, Image

__all__ = ["ArgModelBase", "FuncMetadata", "func_metadata"]


class ArgModelBase(BaseModel):
    """The base of models of arguments."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    def model_dump_one_level(self) -> dict[str, Any]:
        """Return the arguments by the names of the parameters; what is inside them stays as it is."""
        return {(field.alias or name): getattr(self, name) for name, field in type(self).model_fields.items()}


class FuncMetadata(BaseModel):
    """What a function takes and gives."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    arg_model: Annotated[type[ArgModelBase], WithJsonSchema(None)]
    output_schema: dict[str, Any] | None = None
    output_model: Annotated[type[BaseModel], WithJsonSchema(None)] | None = None
    wrap_output: bool = False

    #: Values that a text is not turned into: what was sent as text is text.
    _SCALARS: ClassVar[tuple[type, ...]] = (str, int, float)

    def pre_parse_json(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with lists and objects that were sent as text read."""
        made = dict(data)
        fields = {(field.alias or name): field for name, field in self.arg_model.model_fields.items()}
        for name, value in data.items():
            if name not in fields or not isinstance(value, str) or fields[name].annotation is str:
                continue
            try:
                parsed = json.loads(value)
            except json.JSONDecodeError:
                continue
            if not isinstance(parsed, self._SCALARS):
                made[name] = parsed
        return made

    async def call_fn_with_arg_validation(
        self,
        fn: Callable[..., Any | Awaitable[Any]],
        fn_is_async: bool,
        arguments_to_validate: dict[str, Any],
        arguments_to_pass_directly: dict[str, Any] | None = None,
        **_: Any,
    ) -> Any:
        """Validate the arguments and call the function."""
        model = self.arg_model.model_validate(self.pre_parse_json(arguments_to_validate))
        value = fn(**model.model_dump_one_level(), **(arguments_to_pass_directly or {}))
        return await value if fn_is_async or inspect.isawaitable(value) else value

    def convert_result(self, result: Any) -> Any:
        """Return content, with the structured value beside it where there is a model."""
        if isinstance(result, model_class("CallToolResult")):
            if self.output_model is not None:
                self.output_model.model_validate(result.structured_content)
            return result
        blocks = to_blocks(result)
        if self.output_model is None:
            return blocks
        value = {"result": result} if self.wrap_output else result
        validated = self.output_model.model_validate(value, from_attributes=not isinstance(value, dict))
        return blocks, validated.model_dump(mode="json", by_alias=True)


def func_metadata(
    func: Callable[..., Any], skip_names: Sequence[str] = (), structured_output: bool | None = None
) -> FuncMetadata:
    """Read a function.

    Raises:
        InvalidSignature: a parameter cannot be sent, or a result has no schema although one is asked for.
    """
    signature = inspect.signature(func)
    try:
        hints = get_type_hints(func, include_extras=True)
    except NameError as error:
        raise InvalidSignature(f"Unable to evaluate type annotations for callable {func.__name__!r}") from error
    members: dict[str, Any] = {}
    for parameter in signature.parameters.values():
        name = parameter.name
        if name in skip_names or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name.startswith("_"):
            raise InvalidSignature(f"Parameter {name} of {func.__name__} cannot start with '_'")
        from trunkline.server.context import Context

        annotation = hints.get(name, Any)
        if is_context(annotation, (Context,)):
            continue
        members |= _member(name, annotation, parameter.default)
    arguments = create_model(f"{func.__name__}Arguments", __base__=ArgModelBase, **members)
    metadata = FuncMetadata(arg_model=arguments)
    if structured_output is not False:
        _describe_output(metadata, func, hints.get("return", inspect.Parameter.empty), structured_output)
    return metadata


def _member(name: str, annotation: Any, default: Any) -> dict[str, Any]:
    """Return a field; a name that pydantic has itself is kept as an alias."""
    default = ... if default is inspect.Parameter.empty else default
    if hasattr(BaseModel, name) or name.startswith("model_"):
        given: Any = Field(default, alias=name) if not isinstance(default, FieldInfo) else default
        return {f"field_{name}": (annotation, given)}
    return {name: (annotation, default)}


def _describe_output(metadata: FuncMetadata, func: Any, annotation: Any, wanted: bool | None) -> None:
    if annotation is inspect.Parameter.empty:
        if wanted:
            raise InvalidSignature(f"Function {func.__name__}: return annotation required for structured output")
        return
    if get_origin(annotation) is Annotated and get_args(annotation)[0] is model_class("CallToolResult"):
        annotation = get_args(annotation)[1]
    if _is_content(annotation):
        return
    try:
        model, wrap = _output_model(func.__name__, annotation)
        schema = model.model_json_schema(mode="serialization", by_alias=True)
    except (TypeError, ValueError, pydantic.errors.PydanticUserError) as error:
        if wanted:
            raise InvalidSignature(
                f"Function {func.__name__}: return type {annotation} is not serializable for structured output"
            ) from error
        return
    metadata.output_model, metadata.wrap_output, metadata.output_schema = model, wrap, schema


def _is_content(annotation: Any) -> bool:
    kinds = (model_class("CallToolResult"), Image, Audio)
    parts = get_args(annotation) if get_origin(annotation) in (list, Union, types.UnionType) else (annotation,)
    return any(
        isinstance(part, type)
        and (issubclass(part, kinds) or (issubclass(part, Model) and "type" in part.model_fields))
        for part in parts
    )


def _output_model(name: str, annotation: Any) -> tuple[type[BaseModel], bool]:
    """Return a model of the result, and whether the result is wrapped in it."""
    inner = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        return inner, False
    if get_origin(inner) is dict and get_args(inner)[0] is str:
        return types.new_class(
            f"{name}DictOutput",
            (RootModel[inner],),  # type: ignore[valid-type]
        ), False
    if isinstance(inner, type) and is_typeddict(inner):
        required: frozenset[str] = getattr(inner, "__required_keys__", frozenset())
        members = {
            key: (note, ...) if key in required else (note | None, None) for key, note in get_type_hints(inner).items()
        }
        return create_model(inner.__name__, **members), False  # type: ignore[call-overload]
    if isinstance(inner, type) and get_origin(inner) is None and inner.__module__ != "builtins":
        hints = get_type_hints(inner)
        if hints:
            fields = {key: (note, getattr(inner, key, ...)) for key, note in hints.items() if not key.startswith("_")}
            config = ConfigDict(from_attributes=True)
            return create_model(inner.__name__, __config__=config, **fields), False  # type: ignore[call-overload]
        if not hasattr(inner, "__get_pydantic_core_schema__") and not _is_known(inner):
            raise TypeError(f"{inner} has no annotations")
    return create_model(f"{name}Output", result=(annotation, ...)), True


def _is_known(kind: Any) -> bool:
    try:
        pydantic.TypeAdapter(kind)
    except (TypeError, pydantic.errors.PydanticUserError):
        return False
    return True
