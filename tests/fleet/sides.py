"""The clients that look at a server: the official one, and ours."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import mcp
import msgspec
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from msgspec import Struct

from tests.fleet.servers import Call
from tests.fleet.snapshots import KINDS, Snapshot, answer, definition, failure
from trunkline import Client
from trunkline.errors import MissingCapability, RequestFailed

__all__ = ["CALL_SECONDS", "LOOK_SECONDS", "Target", "look_officially", "look_ourselves", "official"]

#: Seconds a single request may take, on however busy a machine.
CALL_SECONDS = 60.0
#: Seconds a look at a whole server may take: its start, its lists and its calls.
LOOK_SECONDS = 180.0

_NO_SUCH_METHOD = -32601


class Target(Struct, frozen=True, kw_only=True):
    """What a client connects to: a command, or a URL with its headers."""

    command: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = {}


@asynccontextmanager
async def official(target: Target, mode: str, **options: Any) -> AsyncIterator[mcp.Client]:
    """Connect the official client; ``mode`` is "auto" or "legacy", as it calls the two eras."""
    options.setdefault("read_timeout_seconds", CALL_SECONDS)
    if target.url:
        async with httpx2.AsyncClient(headers=target.headers, timeout=CALL_SECONDS) as web:
            transport: Any = streamable_http_client(target.url, http_client=web)
            async with mcp.Client(transport, mode=mode, **options) as client:
                yield client
        return
    program, *arguments = target.command
    given = mcp.StdioServerParameters(command=program, args=arguments, env=target.env, cwd=target.cwd)
    with open(os.devnull, "w") as nowhere:  # noqa: ASYNC230 - a device that never blocks
        async with mcp.Client(mcp.stdio_client(given, errlog=nowhere), mode=mode, **options) as client:
            yield client


async def look_officially(
    target: Target,
    calls: tuple[Call, ...],
    *,
    mode: str = "auto",
    named: Callable[[Call], str] = lambda call: call.name,
) -> Snapshot:
    """Return what the official client sees; ``named`` gives the name that a call has there."""
    async with asyncio.timeout(LOOK_SECONDS), official(target, mode) as client:
        snapshot = Snapshot(client.protocol_version)
        for kind, fetch, member in (
            ("tools", client.list_tools, "tools"),
            ("prompts", client.list_prompts, "prompts"),
            ("resources", client.list_resources, "resources"),
            ("templates", client.list_resource_templates, "resource_templates"),
        ):
            items = [each.model_dump(by_alias=True, mode="json") for each in await _pages(fetch, member)]
            snapshot.lists[kind] = _by_key(kind, items)
        for call in calls:
            snapshot.calls.append(await _called_officially(client, call, named(call)))
        return snapshot


async def _pages(fetch: Callable[..., Awaitable[Any]], member: str) -> list[Any]:
    """Fetch all pages of a list; a server without the method has an empty one."""
    found: list[Any] = []
    cursor = None
    try:
        while True:
            page = await fetch(cursor=cursor)
            found += getattr(page, member)
            cursor = page.next_cursor
            if cursor is None:
                return found
    except MCPError as error:
        if error.error.code == _NO_SUCH_METHOD and not found:
            return []
        raise


async def _called_officially(client: mcp.Client, call: Call, name: str) -> Any:
    try:
        if call.kind == "tool":
            result: Any = await client.call_tool(name, call.arguments)
        elif call.kind == "prompt":
            result = await client.get_prompt(name, {key: str(value) for key, value in call.arguments.items()})
        else:
            result = await client.read_resource(name)
    except MCPError as error:
        return failure(call, error.error.code, error.error.message)
    except RuntimeError as error:  # a result that does not fit the tool's own schema
        return failure(call, None, str(error))
    return answer(call, result.model_dump(by_alias=True, mode="json"))


async def look_ourselves(target: Target, calls: tuple[Call, ...]) -> Snapshot:
    """Return what our client sees."""
    options: dict[str, Any] = {"timeout": CALL_SECONDS, "env": target.env, "cwd": target.cwd}
    async with asyncio.timeout(LOOK_SECONDS), Client(list(target.command), **options) as client:
        snapshot = Snapshot(client.revision or "")
        for kind, fetch in (
            ("tools", client.list_tools),
            ("prompts", client.list_prompts),
            ("resources", client.list_resources),
            ("templates", client.list_resource_templates),
        ):
            snapshot.lists[kind] = _by_key(kind, msgspec.to_builtins(await _listed(fetch)))
        for call in calls:
            snapshot.calls.append(await _called_ourselves(client, call))
        return snapshot


async def _listed(fetch: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
    try:
        return await fetch()
    except MissingCapability:
        return []
    except RequestFailed as error:
        if error.code == _NO_SUCH_METHOD:
            return []
        raise


async def _called_ourselves(client: Client, call: Call) -> Any:
    try:
        if call.kind == "tool":
            result: Any = await client.call_tool(call.name, call.arguments, raise_on_error=False)
            seen = {
                "content": result.content,
                "structuredContent": result.structured_content,
                "isError": result.is_error,
            }
        elif call.kind == "prompt":
            seen = msgspec.to_builtins(await client.get_prompt(call.name, call.arguments))
        else:
            seen = {"contents": await client.read_resource(call.name)}
    except RequestFailed as error:
        return failure(call, error.code, error.message)
    return answer(call, msgspec.to_builtins(seen))


def _by_key(kind: str, items: list[Any]) -> dict[str, Any]:
    key = KINDS[kind][0]
    return {str(item[key]): definition(kind, item) for item in items}
