"""``func_metadata`` of the official SDK: what a function takes and gives, for code that looks at it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict

from trunkline.compat.types import to_plain
from trunkline.server.signatures import Signature

__all__ = ["ArgModelBase", "FuncMetadata", "func_metadata"]


class ArgModelBase(BaseModel):
    """The base of argument models."""

    model_config = ConfigDict(arbitrary_types_allowed=True)


class _ArgModel:
    """The arguments of a function, described."""

    def __init__(self, signature: Signature) -> None:
        self._signature = signature

    def model_json_schema(self, **_: Any) -> dict[str, Any]:
        """Return the schema."""
        return self._signature.input_schema()

    @property
    def model_fields(self) -> dict[str, Any]:
        """The parameters by name."""
        return {each.name: each for each in self._signature.parameters}


class FuncMetadata:
    """What a function takes and gives."""

    def __init__(self, function: Callable[..., Any], skip_names: Sequence[str], structured: bool | None) -> None:
        """Read a function."""
        self._signature = Signature.of(function, exclude=tuple(skip_names))
        self.arg_model = _ArgModel(self._signature)
        self.output_schema = None if structured is False else self._signature.output_schema()
        self.wrap_output = self.output_schema is not None and self.output_schema.get("type") != "object"

    def pre_parse_json(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as they are: text that holds JSON is read when it is bound."""
        return dict(data)

    async def call_fn_with_arg_validation(
        self,
        fn: Callable[..., Any],
        fn_is_async: bool,
        arguments_to_validate: dict[str, Any],
        arguments_to_pass_directly: dict[str, Any] | None = None,
        **_: Any,
    ) -> Any:
        """Bind the arguments and call the function."""
        given = self._signature.bind(msgspec.json.encode(to_plain(arguments_to_validate)))
        value = fn(**given, **(arguments_to_pass_directly or {}))
        return await value if inspect.isawaitable(value) else value


def func_metadata(
    func: Callable[..., Any], skip_names: Sequence[str] = (), structured_output: bool | None = None
) -> FuncMetadata:
    """Read a function."""
    return FuncMetadata(func, skip_names, structured_output)
