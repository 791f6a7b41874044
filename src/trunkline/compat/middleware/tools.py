"""FastMCP's middleware around tools: limits of their results, and tools that a middleware adds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from trunkline.compat.middleware.base import CallNext, Middleware, MiddlewareContext
from trunkline.compat.results import ToolResult
from trunkline.compat.types import model_class, to_plain

__all__ = ["PromptToolMiddleware", "ResourceToolMiddleware", "ResponseLimitingMiddleware", "ToolInjectionMiddleware"]


class ResponseLimitingMiddleware(Middleware):
    """Cuts off results of tools that are too long.

    A result that was cut has no structured value, so a tool that is limited is listed without an output schema.
    """

    def __init__(
        self,
        *,
        max_size: int = 1_000_000,
        truncation_suffix: str = "\n\n[Response truncated due to size limit]",
        tools: list[str] | None = None,
    ) -> None:
        """Initialize with the size in bytes, and the tools that are limited: all by default.

        Raises:
            ValueError: the size is not positive.
        """
        if max_size <= 0:
            raise ValueError(f"max_size must be positive, got {max_size}")
        self.max_size = max_size
        self.truncation_suffix = truncation_suffix
        self.tools = None if tools is None else set(tools)

    def _limits(self, name: str) -> bool:
        return self.tools is None or name in self.tools

    async def on_list_tools(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """List limited tools without their output schema."""
        found = await call_next(context)
        return [
            each.model_copy(update={"output_schema": None}) if self._limits(each.name) and each.output_schema else each
            for each in found
        ]

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Cut off the result of a limited tool."""
        result = await call_next(context)
        if not self._limits(context.message.name) or not isinstance(result, ToolResult):
            return result
        encoded = json.dumps(to_plain(result.to_struct()), ensure_ascii=False)
        if len(encoded.encode()) <= self.max_size:
            return result
        blocks: Any = result.content
        texts = [each.text for each in blocks if getattr(each, "type", None) == "text"]
        return self._truncate_to_result("\n\n".join(texts) if texts else encoded, result.meta, result.is_error)

    def _truncate_to_result(self, text: str, meta: Any = None, is_error: bool = False) -> ToolResult:
        """Return a result with as much of a text as the size allows, without half characters."""
        # What surrounds the text: the members of the result and of its one content block.
        around = len(json.dumps({"content": [{"type": "text", "text": ""}], "isError": True, "_meta": to_plain(meta)}))
        room = max(0, self.max_size - len(self.truncation_suffix.encode()) - around)
        kept = text.encode()[:room].decode(errors="ignore")
        block = model_class("TextContent")(type="text", text=kept + self.truncation_suffix)
        return ToolResult([block], meta=meta, is_error=is_error)


class ToolInjectionMiddleware(Middleware):
    """Adds tools to those of the server; a tool of the same name is hidden by them."""

    def __init__(self, tools: Sequence[Any]) -> None:
        """Initialize with the tools; the server that has this middleware lists and calls them."""
        self.injected_tools = {each.name: each for each in tools}


class PromptToolMiddleware(ToolInjectionMiddleware):
    """Adds the tools ``list_prompts`` and ``get_prompt``, for clients without prompts."""

    def __init__(self) -> None:
        """Make the tools: they ask the server that is serving."""
        from trunkline.compat.transforms.catalog import PromptsAsTools

        super().__init__(PromptsAsTools(_ServingServer())._tools())


class ResourceToolMiddleware(ToolInjectionMiddleware):
    """Adds the tools ``list_resources`` and ``read_resource``, for clients without resources."""

    def __init__(self) -> None:
        """Make the tools: they ask the server that is serving."""
        from trunkline.compat.transforms.catalog import ResourcesAsTools

        super().__init__(ResourcesAsTools(_ServingServer())._tools())


class _ServingServer:
    """Stands for the server of the request being served."""

    def __getattr__(self, name: str) -> Any:
        from trunkline.compat.dependencies import get_server

        return getattr(get_server(), name)
