"""FastMCP's caching middleware: answers that were given before are given again for a while.

An answer belongs to the caller's token: what a component's own check shows one caller is never shown to another. Keys
are digests, so that arguments are not stored in the open.
"""

from __future__ import annotations

import hashlib
import json
import time
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any, TypedDict

from pydantic import BaseModel, Field

from trunkline.compat.authorization import current_token
from trunkline.compat.component_versions import requested_version
from trunkline.compat.components import Prompt, Resource, Tool
from trunkline.compat.middleware.base import CallNext, Middleware, MiddlewareContext
from trunkline.compat.results import Message, PromptResult, ResourceContent, ResourceResult, ToolResult
from trunkline.compat.types import model_class, to_plain

__all__ = [
    "ANONYMOUS_AUTH_KEY",
    "CacheableMessage",
    "CacheablePromptResult",
    "CacheableResourceContent",
    "CacheableResourceResult",
    "CacheableToolResult",
    "CallToolSettings",
    "GetPromptSettings",
    "ListPromptsSettings",
    "ListResourcesSettings",
    "ListToolsSettings",
    "ReadResourceSettings",
    "ResponseCachingMiddleware",
    "ResponseCachingStatistics",
]

ANONYMOUS_AUTH_KEY = "anonymous"
_ONE_HOUR = 3600.0  # FastMCP's lifetime of results.
_FIVE_MINUTES = 300.0  # FastMCP's lifetime of lists.
_LARGEST = 1024 * 1024  # FastMCP's limit for what is kept.
#: Beyond this number the oldest answers are forgotten.
_MAX_ENTRIES = 10_000


class _Settings(TypedDict, total=False):
    ttl: float
    enabled: bool


class ListToolsSettings(_Settings):
    """How the list of tools is cached."""


class ListResourcesSettings(_Settings):
    """How the list of resources is cached."""


class ListPromptsSettings(_Settings):
    """How the list of prompts is cached."""


class ReadResourceSettings(_Settings):
    """How resources are cached."""


class GetPromptSettings(_Settings):
    """How prompts are cached."""


class CallToolSettings(_Settings, total=False):
    """How results of tools are cached: of all, of those included, of all but those excluded."""

    included_tools: list[str]
    excluded_tools: list[str]


# --- what is stored --------------------------------------------------------------------------------------------------


class CacheableToolResult(BaseModel):
    """A tool's result as data."""

    content: list[Any]
    structured_content: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None
    is_error: bool = False

    @classmethod
    def wrap(cls, value: Any) -> CacheableToolResult:
        """Make one from a result."""
        return cls(
            content=[to_plain(each) for each in value.content],
            structured_content=value.structured_content,
            meta=None if value.meta is None else dict(value.meta),
            is_error=value.is_error,
        )

    def unwrap(self) -> ToolResult:
        """Return the result."""
        model = model_class("CallToolResult").model_validate(
            {"content": self.content, "structuredContent": self.structured_content, "isError": self.is_error}
        )
        result = ToolResult.from_mcp_result(model)
        result.meta = self.meta
        return result


class CacheableResourceContent(BaseModel):
    """One of the contents of a resource as data; bytes are base64."""

    content: str
    mime_type: str | None = None
    meta: dict[str, Any] | None = None
    is_binary: bool = False


class CacheableResourceResult(BaseModel):
    """The contents of a resource as data."""

    contents: list[CacheableResourceContent]
    meta: dict[str, Any] | None = None

    @classmethod
    def wrap(cls, value: Any) -> CacheableResourceResult:
        """Make one from a result."""
        contents = [
            CacheableResourceContent(
                content=b64encode(each.content).decode() if isinstance(each.content, bytes) else each.content,
                mime_type=each.mime_type,
                meta=None if each.meta is None else dict(each.meta),
                is_binary=isinstance(each.content, bytes),
            )
            for each in value.contents
        ]
        return cls(contents=contents, meta=value.meta)

    def unwrap(self) -> ResourceResult:
        """Return the result."""
        return ResourceResult(
            [
                ResourceContent(b64decode(each.content) if each.is_binary else each.content, each.mime_type, each.meta)
                for each in self.contents
            ],
            self.meta,
        )


class CacheableMessage(BaseModel):
    """A message of a prompt as data."""

    role: str
    content: Any


class CacheablePromptResult(BaseModel):
    """A rendered prompt as data."""

    messages: list[CacheableMessage]
    description: str | None = None
    meta: dict[str, Any] | None = None

    @classmethod
    def wrap(cls, value: Any) -> CacheablePromptResult:
        """Make one from a result."""
        messages = [CacheableMessage(role=each.role, content=to_plain(each.content)) for each in value.messages]
        return cls(messages=messages, description=value.description, meta=value.meta)

    def unwrap(self) -> PromptResult:
        """Return the result."""
        kind = model_class("PromptMessage")
        found = [kind.model_validate({"role": each.role, "content": each.content}) for each in self.messages]
        return PromptResult([Message(each.content, each.role) for each in found], self.description, self.meta)


# --- keys ------------------------------------------------------------------------------------------------------------


def _digest(*parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _version_of(message: Any) -> str | None:
    found = requested_version(to_plain(message.meta) if message.meta is not None else None)
    return None if found is None else found.eq


def _make_call_tool_cache_key(message: Any, auth_key: str = ANONYMOUS_AUTH_KEY) -> str:
    return _digest(auth_key, message.name, to_plain(message.arguments), _version_of(message))


def _make_read_resource_cache_key(message: Any, auth_key: str = ANONYMOUS_AUTH_KEY) -> str:
    return _digest(auth_key, str(message.uri), _version_of(message))


def _make_get_prompt_cache_key(message: Any, auth_key: str = ANONYMOUS_AUTH_KEY) -> str:
    return _digest(auth_key, message.name, to_plain(message.arguments), _version_of(message))


def _auth_key() -> str:
    token = current_token()
    return ANONYMOUS_AUTH_KEY if token is None else _digest(token.token, sorted(token.scopes), token.client_id)


# --- where it is stored ----------------------------------------------------------------------------------------------


class _Counts(BaseModel):
    count: int = 0
    hit: int = 0
    miss: int = 0


class _CollectionStatistics(BaseModel):
    """How often something was looked up and stored."""

    get: _Counts = Field(default_factory=_Counts)
    put: _Counts = Field(default_factory=_Counts)


class ResponseCachingStatistics(BaseModel):
    """How often each kind of answer was looked up and stored; None: never."""

    list_tools: Any = None
    list_resources: Any = None
    list_prompts: Any = None
    read_resource: Any = None
    get_prompt: Any = None
    call_tool: Any = None


class _Memory:
    """Answers of this process, with an end."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], tuple[float, Any]] = {}

    async def get(self, key: str, *, collection: str) -> Any:
        """Return what was stored and is not too old, or None."""
        found = self._entries.get((collection, key))
        if found is None:
            return None
        if found[0] < time.monotonic():
            del self._entries[collection, key]
            return None
        return found[1]

    async def put(self, key: str, value: Any, *, collection: str, ttl: float) -> None:
        """Store something for so many seconds."""
        self._entries.pop((collection, key), None)
        self._entries[collection, key] = (time.monotonic() + ttl, value)
        while len(self._entries) > _MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]


class ResponseCachingMiddleware(Middleware):
    """Caches lists, results of tools, resources and prompts, each for its time."""

    def __init__(
        self,
        cache_storage: Any = None,
        list_tools_settings: ListToolsSettings | None = None,
        list_resources_settings: ListResourcesSettings | None = None,
        list_prompts_settings: ListPromptsSettings | None = None,
        read_resource_settings: ReadResourceSettings | None = None,
        get_prompt_settings: GetPromptSettings | None = None,
        call_tool_settings: CallToolSettings | None = None,
        max_item_size: int = _LARGEST,
    ) -> None:
        """Initialize with a key-value store, or memory, and the settings of each kind."""
        self._store = _Memory() if cache_storage is None else cache_storage
        self._settings: dict[str, Any] = {
            "list_tools": list_tools_settings or {},
            "list_resources": list_resources_settings or {},
            "list_prompts": list_prompts_settings or {},
            "read_resource": read_resource_settings or {},
            "get_prompt": get_prompt_settings or {},
            "call_tool": call_tool_settings or {},
        }
        self._max_item_size = max_item_size
        self._statistics: dict[str, _CollectionStatistics] = {}

    def statistics(self) -> ResponseCachingStatistics:
        """Return how often each kind of answer was looked up and stored."""
        return ResponseCachingStatistics(**self._statistics)

    def _matches_tool_cache_settings(self, tool_name: str) -> bool:
        settings = self._settings["call_tool"]
        included, excluded = settings.get("included_tools"), settings.get("excluded_tools")
        return (not included or tool_name in included) and tool_name not in (excluded or ())

    async def _cached(self, kind: str, key: str, context: Any, call_next: CallNext, how: tuple[Any, Any]) -> Any:
        """Return the stored answer, or ask for one and store it; ``how`` writes and reads one."""
        settings = self._settings[kind]
        if settings.get("enabled") is False:
            return await call_next(context)
        wrap, unwrap = how
        counts = self._statistics.setdefault(kind, _CollectionStatistics())
        counts.get.count += 1
        stored = await self._store.get(key, collection=kind)
        if stored is not None:
            counts.get.hit += 1
            return unwrap(stored)
        counts.get.miss += 1
        answer = await call_next(context)
        data = wrap(answer)
        if data is not None and len(json.dumps(data, default=str)) <= self._max_item_size:
            ttl = settings.get("ttl", _FIVE_MINUTES if kind.startswith("list") else _ONE_HOUR)
            await self._store.put(key, data, collection=kind, ttl=ttl)
            counts.put.count += 1
            return unwrap(data)
        return answer

    async def on_list_tools(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Cache the list of tools."""
        return await self._cached("list_tools", _auth_key(), context, call_next, _list_of(Tool))

    async def on_list_resources(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Cache the list of resources."""
        return await self._cached("list_resources", _auth_key(), context, call_next, _list_of(Resource))

    async def on_list_prompts(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Cache the list of prompts."""
        return await self._cached("list_prompts", _auth_key(), context, call_next, _list_of(Prompt))

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Cache the result of a tool, unless it is an error or a question."""
        if not self._matches_tool_cache_settings(context.message.name) or _continues(context):
            return await call_next(context)
        key = _make_call_tool_cache_key(context.message, _auth_key())
        how = _result_of(ToolResult, CacheableToolResult)
        return await self._cached("call_tool", key, context, call_next, how)

    async def on_read_resource(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Cache a resource."""
        if _continues(context):
            return await call_next(context)
        key = _make_read_resource_cache_key(context.message, _auth_key())
        how = _result_of(ResourceResult, CacheableResourceResult)
        return await self._cached("read_resource", key, context, call_next, how)

    async def on_get_prompt(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Cache a prompt."""
        if _continues(context):
            return await call_next(context)
        key = _make_get_prompt_cache_key(context.message, _auth_key())
        how = _result_of(PromptResult, CacheablePromptResult)
        return await self._cached("get_prompt", key, context, call_next, how)


def _continues(context: Any) -> bool:
    """Return whether a request answers a question of an earlier round: its result belongs to that round alone."""
    return bool(getattr(context.message, "input_responses", None) or getattr(context.message, "request_state", None))


def _list_of(kind: type[Any]) -> tuple[Any, Any]:
    """Return how a list of components is written and read: as plain components that only can be listed."""
    left_out = ("definition", "auth", "serializer", "return_type", "task_config")
    names = [name for name in kind.model_fields if name not in left_out]

    def wrap(components: Sequence[Any]) -> dict[str, Any]:
        return {
            "items": [
                {name: _data(getattr(each, name)) for name in names if getattr(each, name, None) is not None}
                for each in components
            ]
        }

    def unwrap(stored: Any) -> list[Any]:
        return [kind(**each) for each in stored["items"]]

    return wrap, unwrap


def _data(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, str | int | float | bool | dict):
        return value
    if hasattr(value, "unicode_string"):
        return str(value)
    return to_plain(value)


def _result_of(kind: type[Any], record: Any) -> tuple[Any, Any]:
    """Return how a result is written and read; only a plain answer is stored."""

    def wrap(result: Any) -> Any:
        if type(result) is not kind or getattr(result, "is_error", False):
            return None
        return record.wrap(result).model_dump(mode="json")

    def unwrap(stored: Any) -> Any:
        return record.model_validate(stored).unwrap()

    return wrap, unwrap
