"""FastMCP's transformed tools: another tool with other names, defaults or hidden arguments, or a function around it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from trunkline.compat.components import FunctionTool, Tool
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
        given = self.model_dump(exclude_unset=True, exclude={"arguments", "enabled", "version"})
        arguments = {name: each.to_arg_transform() for name, each in self.arguments.items()}
        return TransformedTool.from_tool(tool, transform_args=arguments, **given)


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

    @classmethod
    def from_tool(
        cls,
        tool: Any,
        name: Any = None,
        *,
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
            ValueError: an argument is named that the tool does not have.
        """
        if not isinstance(tool, Tool):
            tool = FunctionTool.from_function(tool)
        args = dict(transform_args or {})
        unknown = set(args) - set(tool.parameters.get("properties", {}))
        if unknown:
            raise ValueError(
                f"Unknown arguments in transform_args: {', '.join(sorted(unknown))}. "
                f"Parent tool `{tool.name}` has: {', '.join(sorted(tool.parameters.get('properties', {})))}"
            )
        parameters = _transformed_schema(tool.parameters, args)
        output = tool.output_schema
        if transform_fn is not None:
            own = FunctionTool.from_function(transform_fn, "transform")
            keeps_rest = any(
                each.kind is each.VAR_KEYWORD for each in inspect.signature(transform_fn).parameters.values()
            )
            parameters = _merged(parameters, own.parameters) if keeps_rest else own.parameters
            output = own.output_schema or output
        return cls(
            name=name or tool.name,
            title=tool.title if title is _NOTHING else title,
            description=tool.description if description is _NOTHING else description,
            tags=tool.tags if tags is None else tags,
            annotations=tool.annotations if annotations is _NOTHING else annotations,
            output_schema=output if output_schema is _NOTHING else (output_schema or None),
            meta=tool.meta if meta is _NOTHING else meta,
            version=tool.version,
            # A check of the tool holds for what is made of it.
            auth=tool.auth,
            parameters=parameters,
            parent_tool=tool,
            transform_args=args,
            fn=transform_fn,
        )

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Run the function around, or the tool behind."""
        token = _CURRENT.set(self)
        try:
            if self.fn is None:
                return await self._run_parent(arguments)
            properties = self.parameters.get("properties", {})
            given = {name: each["default"] for name, each in properties.items() if "default" in each} | arguments
            value = self.fn(**given)
            value = await value if inspect.isawaitable(value) else value
            return value if isinstance(value, ToolResult) else self.convert_result(value)
        finally:
            _CURRENT.reset(token)

    async def _run_parent(self, arguments: dict[str, Any]) -> ToolResult:
        own = {_new_name(old, how): old for old, how in self.transform_args.items() if not how.hide}
        given = {own.get(name, name): value for name, value in arguments.items()}
        for old, how in self.transform_args.items():
            if old not in given and how.default_factory is not _NOTHING:
                given[old] = how.default_factory()
            elif old not in given and how.default is not _NOTHING:
                given[old] = how.default
        result: ToolResult = await self.parent_tool.run(given)
        return result


def _new_name(old: str, how: ArgTransform) -> str:
    return old if how.name is _NOTHING or not how.name else str(how.name)


def _transformed_schema(schema: Mapping[str, Any], args: Mapping[str, ArgTransform]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for old, about in schema.get("properties", {}).items():
        how, about = args.get(old), dict(about)
        needed = old in schema.get("required", ())
        if how is None:
            properties[old] = about
        else:
            if how.hide:
                if needed and how.default is _NOTHING and how.default_factory is _NOTHING:
                    raise ValueError(f"Hidden parameter '{old}' has no default value in parent tool")
                continue
            if how.default is not _NOTHING:
                about["default"], needed = how.default, False
            if how.required is True:
                about.pop("default", None)
                needed = True
            for member in ("description", "examples"):
                value = getattr(how, member)
                if value is not _NOTHING and value is not None:
                    about[member] = value
            if how.type is not _NOTHING:
                from pydantic import TypeAdapter

                about = {**about, **TypeAdapter(how.type).json_schema()}
            name = _new_name(old, how)
            if name in properties:
                raise ValueError(f"Multiple arguments would be mapped to the same names: {name}")
            properties[name] = about
        if needed:
            required.append(old if how is None else _new_name(old, how))
    made: dict[str, Any] = {**schema, "properties": properties}
    made.pop("required", None)
    return {**made, "required": required} if required else made


def _merged(outer: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    properties = {**outer.get("properties", {}), **own.get("properties", {})}
    properties.pop("kwargs", None)
    required = [name for name in properties if name in {*outer.get("required", ()), *own.get("required", ())}]
    return {**outer, "properties": properties, "required": required}
