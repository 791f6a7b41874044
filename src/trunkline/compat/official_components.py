"""Tools, prompts and templates as the official SDK has them: running one gives what its function returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from pydantic import model_validator

from trunkline.compat import calls
from trunkline.compat.components import FunctionPrompt, FunctionTool
from trunkline.compat.results import Message, UserMessage, to_blocks
from trunkline.compat.types import model_class
from trunkline.compat.versions import STATE

__all__ = ["OfficialPrompt", "OfficialTool", "to_official_messages"]


class OfficialTool(FunctionTool):
    """A tool whose ``run`` returns the value, or content if that is asked for."""

    _official: ClassVar[bool] = True

    @model_validator(mode="before")
    @classmethod
    def _derived(cls, data: Any) -> Any:
        """Leave out what is read from the function."""
        if isinstance(data, dict):
            data = {
                key: value for key, value in data.items() if key not in ("is_async", "context_kwarg", "fn_metadata")
            }
        return data

    @property
    def fn_metadata(self) -> Any:
        """The models of what the function takes and gives."""
        return self._own().metadata

    @classmethod
    def from_function(cls, fn: Callable[..., Any], name: str | None = None, *rest: Any, **options: Any) -> Any:
        """Make a tool of a function."""
        if not callable(fn):
            raise AttributeError(f"{fn!r} has no function to call")
        options |= dict(zip(("title", "description", "context_kwarg"), rest, strict=False))
        options.pop("context_kwarg", None)
        if getattr(fn, "__name__", "") == "<lambda>" and name is None:
            raise ValueError("You must provide a name for lambda functions")
        return super().from_function(fn, name or getattr(fn, "__name__", None) or type(fn).__name__, **options)

    async def run(self, arguments: dict[str, Any], context: Any = None, convert_result: bool = False) -> Any:
        """Run the tool.

        Raises:
            ToolError: it failed, or the arguments do not fit.
        """
        result = await calls.run_official(self._own(), arguments, convert=convert_result)
        if not convert_result or not STATE.camel_case or isinstance(result, list | tuple):
            return result
        return result.content if result.structured_content is None else (result.content, result.structured_content)


class OfficialPrompt(FunctionPrompt):
    """A prompt whose ``render`` returns messages."""

    _official: ClassVar[bool] = True

    async def render(self, arguments: dict[str, Any] | None = None, context: Any = None) -> Any:
        """Render the prompt.

        Raises:
            ValueError: an argument is missing, or the function failed.
        """
        value = await calls.run_prompt(self._own(), arguments)
        if isinstance(value, model_class("InputRequiredResult") | model_class("GetPromptResult")):
            return value
        return to_official_messages(value)


def to_official_messages(value: Any) -> list[Message]:
    """Return what a prompt's function returned as messages."""
    return [_message(each) for each in (value if isinstance(value, list | tuple) else [value])]


def _message(value: Any) -> Message:
    if isinstance(value, Message):
        return value
    if isinstance(value, dict) and "role" in value:
        content = value["content"]
        if isinstance(content, dict) and "type" in content:
            from trunkline.compat.results import block_from_dict

            content = block_from_dict(content)
        return Message(content, value["role"])
    return UserMessage(to_blocks(value)[0])
