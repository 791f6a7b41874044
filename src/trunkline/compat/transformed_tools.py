"""FastMCP's transformed tools: another tool with other names, defaults or hidden arguments, or a function around it."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, TypeAdapter
from pydantic import ValidationError as PydanticError

from trunkline.compat.components import FunctionTool, Tool
from trunkline.compat.json_schemas import compress_schema
from trunkline.compat.results import ToolResult

__all__ = [
    "ArgTransform",
    "ArgTransformConfig",
    "ToolTransformConfig",
    "TransformedTool",
    "forward",
    "forward_raw",
]

_CURRENT: ContextVar[Any] = ContextVar("trunkline.compat.transformed", default=None)
_NOTHING: Any = ...


class ArgTransform:
    """What becomes of one argument: ``...`` leaves a part as it is."""

    def __init__(
        self,
        name: Any = _NOTHING,
        description: Any = _NOTHING,
        default: Any = _NOTHING,
        default_factory: Any = _NOTHING,
        type: Any = _NOTHING,
        hide: bool = False,
        required: Any = _NOTHING,
        examples: Any = _NOTHING,
    ) -> None:
        """Initialize with the changes.

        Raises:
            ValueError: two of them contradict each other.
        """
        if default is not _NOTHING and default_factory is not _NOTHING:
            raise ValueError("Cannot specify both 'default' and 'default_factory' in ArgTransform.")
        if default_factory is not _NOTHING and not hide:
            raise ValueError(
                "default_factory can only be used with hide=True. Visible parameters must use static 'default' values."
            )
        if required is True and default is not _NOTHING:
            raise ValueError("Cannot specify 'required=True' with 'default'. Required parameters cannot have defaults.")
        if required is True and hide:
            raise ValueError("Cannot specify both 'hide=True' and 'required=True'.")
        if required is False:
            raise ValueError("Cannot specify 'required=False'. Set a default value instead.")
        self.name, self.description, self.default, self.default_factory = name, description, default, default_factory
        self.type, self.hide, self.required, self.examples = type, hide, required, examples


class ArgTransformConfig(BaseModel):
    """The same as data."""

    model_config = ConfigDict(extra="forbid")

    name: str | None = None
    description: str | None = None
    default: str | int | float | bool | None = None
    hide: bool = False
    required: Literal[True] | None = None
    examples: Any = None

    def to_arg_transform(self) -> ArgTransform:
        """Return the transform."""
        return ArgTransform(**self.model_dump(exclude_unset=True))


class ToolTransformConfig(BaseModel):
    """What becomes of a tool, as data."""

    model_config = ConfigDict(extra="forbid")

    name: str | None = None
    version: str | None = None
    title: str | None = None
    description: str | None = None
    tags: set[str] = Field(default_factory=set)
    meta: dict[str, Any] | None = None
    annotations: Any = None
    enabled: bool = True
    arguments: dict[str, ArgTransformConfig] = Field(default_factory=dict)

    def apply(self, tool: Any) -> TransformedTool:
        """Return the changed tool."""
        given = self.model_dump(exclude_unset=True, exclude={"arguments", "enabled", "annotations"})
        if "annotations" in self.model_fields_set:
            given["annotations"] = self.annotations
        arguments = {name: each.to_arg_transform() for name, each in self.arguments.items()}
        made = TransformedTool.from_tool(tool, transform_args=arguments, **given)
        if "enabled" not in self.model_fields_set:
            return made
        from trunkline.compat.transforms.base import mark

        marked: TransformedTool = mark(made, self.enabled)
        return marked


async def forward(**arguments: Any) -> ToolResult:
    """Call the tool behind the one that is running, with its new argument names."""
    current = _CURRENT.get()
    if current is None:
        raise RuntimeError("forward() can only be called within a transformed tool")
    result: ToolResult = await current._run_parent(arguments)
    return result


async def forward_raw(**arguments: Any) -> ToolResult:
    """Call the tool behind the one that is running, with its own argument names."""
    current = _CURRENT.get()
    if current is None:
        raise RuntimeError("forward_raw() can only be called within a transformed tool")
    result: ToolResult = await current.parent_tool.run(arguments)
    return result


class TransformedTool(Tool):
    """A tool made of another."""

    parent_tool: Any = None
    transform_args: dict[str, Any] = Field(default_factory=dict)
    fn: Callable[..., Any] | None = None
    #: The definition of the function around, without what ``**kwargs`` takes.
    _around: Any = PrivateAttr(default=None)

    @classmethod
    def from_tool(
        cls,
        tool: Any,
        name: Any = None,
        *,
        version: Any = _NOTHING,
        title: Any = _NOTHING,
        description: Any = _NOTHING,
        tags: Any = None,
        transform_fn: Callable[..., Any] | None = None,
        transform_args: Mapping[str, Any] | None = None,
        annotations: Any = _NOTHING,
        output_schema: Any = _NOTHING,
        meta: Any = _NOTHING,
        **_: Any,
    ) -> TransformedTool:
        """Make a tool of another one.

        Raises:
            ValueError: an argument is named that the tool does not have, or two would have one name.
        """
        if not isinstance(tool, Tool):
            tool = FunctionTool.from_function(tool)
        args = dict(transform_args or {})
        known = tool.parameters.get("properties", {})
        unknown = set(args) - set(known)
        if unknown:
            raise ValueError(
                f"Unknown arguments in transform_args: {', '.join(sorted(unknown))}. "
                f"Parent tool `{tool.name}` has: {', '.join(sorted(known))}"
            )
        parameters = _transformed_schema(tool.parameters, args)
        output, around = tool.output_schema, None
        if transform_fn is not None:
            around = _definition_of(transform_fn)
            parameters = _around_schema(transform_fn, around, parameters)
            output = _output_of(around, output)
        made = cls(
            name=name or tool.name,
            title=tool.title if title is _NOTHING else title,
            description=tool.description if description is _NOTHING else description,
            icons=tool.icons,
            tags=tool.tags if tags is None else tags,
            annotations=tool.annotations if annotations is _NOTHING else annotations,
            output_schema=output if output_schema is _NOTHING else (output_schema or None),
            meta=tool.meta if meta is _NOTHING else _kept_meta(tool.meta, meta),
            version=tool.version if version is _NOTHING else version,
            # A check of the tool holds for what is made of it.
            auth=tool.auth,
            parameters=parameters,
            parent_tool=tool,
            transform_args=args,
            fn=transform_fn,
        )
        made._around = around
        return made

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Run the function around, or the tool behind.

        Raises:
            TypeError: an argument is given that the tool does not have.
        """
        token = _CURRENT.set(self)
        try:
            properties = self.parameters.get("properties", {})
            _refuse_unknown(arguments, properties)
            if self.fn is None:
                return self._fitted(await self._run_parent(arguments))
            given = {name: each["default"] for name, each in properties.items() if "default" in each} | arguments
            value = await self._run_around(given)
            return self._fitted(value) if isinstance(value, ToolResult) else self.convert_result(value)
        finally:
            _CURRENT.reset(token)

    async def _run_around(self, given: dict[str, Any]) -> Any:
        import trunkline.types as t
        from trunkline.compat.calls import run_function

        signature = self._around.function.signature
        for name, note, _ in signature._given:
            if name in given:
                # A value that does not match is left to the function: the schema may say another type.
                with suppress(PydanticError):
                    given[name] = TypeAdapter(note).validate_python(given[name])
        return await run_function(self._around, "tools/call", t.CallToolRequestParams(name=self.name), given)

    def _fitted(self, result: ToolResult) -> ToolResult:
        """Return a result without its structured value if the schema describes no object."""
        schema = self.output_schema
        if schema is None or schema.get("type", "object") == "object" or "properties" in schema:
            return result
        return ToolResult(result.content, meta=result.meta, is_error=result.is_error)

    async def _run_parent(self, arguments: dict[str, Any]) -> ToolResult:
        own = {_new_name(old, how): old for old, how in self.transform_args.items() if not how.hide}
        passed = [name for name in self.parent_tool.parameters.get("properties", {}) if name not in self.transform_args]
        _refuse_unknown(arguments, {*own, *passed})
        given = {own.get(name, name): value for name, value in arguments.items()}
        for old, how in self.transform_args.items():
            if old not in given and how.default_factory is not _NOTHING:
                given[old] = how.default_factory()
            elif old not in given and how.default is not _NOTHING:
                given[old] = how.default
        result: ToolResult = await self.parent_tool.run(given)
        return result

    @staticmethod
    def _merge_schema_with_precedence(base: dict[str, Any], override: dict[str, Any]) -> dict[str, Any]:
        """Return two schemas of arguments as one: what the second says of an argument wins."""
        return merge_schemas(base, override)


def _refuse_unknown(arguments: Mapping[str, Any], known: Any) -> None:
    unknown = sorted(set(arguments) - set(known))
    if unknown:
        raise TypeError(f"Got unexpected keyword argument(s): {', '.join(unknown)}")


def _kept_meta(before: Any, given: Any) -> dict[str, Any] | None:
    """Return new ``_meta`` with the framework's own notes of the tool behind."""
    kept = (before or {}).get("fastmcp")
    if not kept:
        return given  # type: ignore[no-any-return]
    return {**(given or {}), "fastmcp": {**kept, **((given or {}).get("fastmcp") or {})}}


def _definition_of(function: Callable[..., Any]) -> Any:
    from trunkline.compat.callables import named_parameters
    from trunkline.compat.servers import blank_server

    return blank_server().make_tool(named_parameters(function), {"name": "transform"})


def _output_of(around: Any, inherited: Any) -> Any:
    """Return the schema of what the function around returns; one that says nothing inherits that of the tool."""
    annotation = around.function.signature.return_type
    own = around.output
    whole = isinstance(annotation, type) and issubclass(annotation, ToolResult)
    return own if own is not None or whole else inherited


def _around_schema(function: Callable[..., Any], around: Any, outer: dict[str, Any]) -> dict[str, Any]:
    own = around.parameters
    takes_rest = any(each.kind is each.VAR_KEYWORD for each in inspect.signature(function).parameters.values())
    if takes_rest:
        return merge_schemas(own, outer)
    missing = [name for name in outer.get("properties", {}) if name not in own.get("properties", {})]
    if missing:
        raise ValueError(f"Function missing parameters required after transformation: {', '.join(missing)}")
    return merge_schemas(own, {**outer, "properties": outer.get("properties", {})})


def merge_schemas(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Return two schemas of arguments as one: what the second says of an argument wins."""
    first, second = base.get("properties", {}), override.get("properties", {})
    properties = {name: {**first.get(name, {}), **second.get(name, {})} for name in {**first, **second}}
    for name in properties:
        # A type given anew replaces all that described the old one.
        if name in second and name in first and ("anyOf" in second[name] or "$ref" in second[name]):
            properties[name] = dict(second[name])
    needed = {*base.get("required", ()), *override.get("required", ())}
    required = [
        name
        for name in properties
        if name in needed
        and "default" not in properties[name]
        and not (name in second and name not in override.get("required", ()))
    ]
    definitions = {**base.get("$defs", {}), **override.get("$defs", {})}
    made = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
        **({"$defs": definitions} if definitions else {}),
    }
    return compress_schema(made)


def _new_name(old: str, how: ArgTransform) -> str:
    return old if how.name is _NOTHING or not how.name else str(how.name)


def _transformed_schema(schema: Mapping[str, Any], args: Mapping[str, ArgTransform]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    definitions = dict(schema.get("$defs", {}))
    names = [
        _new_name(old, args[old]) if old in args else old
        for old in schema.get("properties", {})
        if old not in args or not args[old].hide
    ]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"Multiple arguments would be mapped to the same names: {', '.join(twice)}")
    for old, about in schema.get("properties", {}).items():
        how = args.get(old)
        needed = old in schema.get("required", ())
        if how is not None and how.hide:
            if needed and how.default is _NOTHING and how.default_factory is _NOTHING:
                raise ValueError(f"Hidden parameter '{old}' has no default value in parent tool")
            continue
        name = old if how is None else _new_name(old, how)
        made = copy.deepcopy(about)
        if how is not None:
            made, needed = _changed(made, how, needed, definitions)
        properties[name] = made
        if needed:
            required.append(name)
    result: dict[str, Any] = {**schema, "properties": properties, "$defs": definitions}
    if not definitions:
        del result["$defs"]
    result.pop("required", None)
    if required or "required" in schema:
        result["required"] = required
    return compress_schema(result)


def _changed(
    about: dict[str, Any], how: ArgTransform, needed: bool, definitions: dict[str, Any]
) -> tuple[dict[str, Any], bool]:
    if how.type is not _NOTHING:
        new = compress_schema(TypeAdapter(how.type).json_schema(), prune_titles=True)
        for name, value in new.pop("$defs", {}).items():
            if definitions.get(name, value) != value:
                raise ValueError(f"$defs collision for {name!r}: the tool has another type of that name")
            definitions[name] = value
        kept = {key: value for key, value in about.items() if key in ("description", "default", "examples", "title")}
        about = {**kept, **new}
    if how.default is not _NOTHING:
        about["default"], needed = _plain(how.default), False
    if how.required is True:
        about.pop("default", None)
        needed = True
    for member in ("description", "examples"):
        value = getattr(how, member)
        if value is not _NOTHING and value is not None:
            about[member] = value
    return about, needed


def _plain(value: Any) -> Any:
    return TypeAdapter(Any).dump_python(value, mode="json", fallback=str)
