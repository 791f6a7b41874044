"""The session of FastMCP's client: whole results, one page of a list, and requests of any method."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

from trunkline.compat.sessions import ClientSession, as_theirs, is_by_hand
from trunkline.compat.types import to_model, to_plain

__all__ = ["SessionOfClient", "all_items"]


class SessionOfClient:
    """A client's session; what it does not have itself is the client's."""

    def __init__(self, client: Any) -> None:
        """Look at a client."""
        self._client = client

    def __getattr__(self, name: str) -> Any:
        """Read from the client."""
        return getattr(self._client, name)

    async def _page(self, method: str, params: Any, cursor: str | None) -> Any:
        cursor = cursor if params is None else params.cursor
        return to_model(await as_theirs(self._client._client.list_page(method, cursor)))

    async def list_tools(self, *, params: Any = None, cursor: str | None = None, **_: Any) -> Any:
        """List one page of the tools."""
        return await self._page("tools/list", params, cursor)

    async def list_resources(self, *, params: Any = None, cursor: str | None = None, **_: Any) -> Any:
        """List one page of the resources."""
        return await self._page("resources/list", params, cursor)

    async def list_resource_templates(self, *, params: Any = None, cursor: str | None = None, **_: Any) -> Any:
        """List one page of the templates."""
        return await self._page("resources/templates/list", params, cursor)

    async def list_prompts(self, *, params: Any = None, cursor: str | None = None, **_: Any) -> Any:
        """List one page of the prompts."""
        return await self._page("prompts/list", params, cursor)

    async def _by_hand(self, method: str, params: dict[str, Any], kind: str, rounds: Any) -> Any:
        inner: Any = SimpleNamespace(_client=self._client._client)
        return await ClientSession._by_hand(inner, method, params, kind, rounds)

    async def read_resource(self, uri: Any, **options: Any) -> Any:
        """Read a resource: the whole result."""
        if is_by_hand(options):
            return await self._by_hand("resources/read", {"uri": str(uri)}, "ReadResourceResult", options)
        return await self._client.read_resource_mcp(uri, **options)

    async def call_tool(self, name: str, arguments: Any = None, **options: Any) -> Any:
        """Call a tool: the whole result; a failure of the tool is one."""
        if is_by_hand(options):
            params = {"name": name, "arguments": to_plain(arguments or {})}
            return await self._by_hand("tools/call", params, "CallToolResult", options)
        known = {key: options[key] for key in ("meta", "progress_handler") if key in options}
        return await self._client.call_tool_mcp(name, arguments, **known)

    async def get_prompt(self, name: str, arguments: Any = None, **options: Any) -> Any:
        """Render a prompt."""
        if is_by_hand(options):
            params = {"name": name, "arguments": to_plain(arguments or {})}
            return await self._by_hand("prompts/get", params, "GetPromptResult", options)
        return await self._client.get_prompt(name, arguments, **options)

    async def send_request(self, request: Any, result_type: Any = None, **_: Any) -> Any:
        """Send a request of any method, and return its result as a model."""
        plain = to_plain(getattr(request, "root", request))
        found = await as_theirs(self._client._client.request(plain["method"], plain.get("params") or {}))
        if result_type is None or not hasattr(result_type, "model_validate"):
            return found
        return result_type.model_validate(found)


async def all_items(list_page: Any, member: str, max_pages: int, **options: Any) -> list[Any]:
    """Return the items of all pages.

    Raises:
        RuntimeError: there are more pages than allowed.
    """
    items: list[Any] = []
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(max_pages):
        page = list_page(cursor=cursor, **options)
        page = await page if inspect.isawaitable(page) else page
        items += getattr(page, member)
        cursor = page.next_cursor
        if cursor is None or cursor in seen:
            return items
        seen.add(cursor)
    raise RuntimeError(
        f"auto-pagination limit of {max_pages} pages reached: raise max_pages, or list page by page with a cursor"
    )
