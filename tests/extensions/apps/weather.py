"""A server with a page, a tool that it shows and a tool that only it calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from trunkline import Server
from trunkline.extensions import AppCsp
from trunkline.protocol.revisions import REVISION_NAMES
from trunkline.server import CallNext, ServerRequest

__all__ = ["ALL_REVISIONS", "HTML", "PANEL", "marking", "weather"]

PANEL = "ui://weather/panel"
HTML = "<!doctype html><title>Weather</title>"
#: Runs a test in every revision.
ALL_REVISIONS = pytest.mark.parametrize("revision", REVISION_NAMES)


def weather(**options: Any) -> Server:
    """Return the server; the page comes first, so that its tools are linked later."""
    server = Server("weather", **options)

    @server.app(PANEL, csp=AppCsp(connect=("https://api.example.com",)), prefers_border=True, tools=["show"])
    def panel() -> str:
        """The weather as a picture."""
        return HTML

    @server.tool
    def show(city: str) -> dict[str, str]:
        """Show the weather of a city."""
        return {"city": city, "sky": "clear"}

    @server.tool(app=PANEL, visibility=["app"])
    def refresh(city: str) -> dict[str, str]:
        """Fetch the weather again."""
        return {"city": city, "sky": "cloudy"}

    return server


def marking(metas: Mapping[str, dict[str, Any]]) -> Any:
    """Return middleware of a server that lists its tools to everyone, these with ``_meta`` of their own."""

    async def mark(request: ServerRequest, call_next: CallNext) -> Any:
        result = await call_next(request)
        if request.method != "tools/list":
            return result
        page = msgspec.json.decode(msgspec.json.encode(result))
        return {**page, "tools": [_with_meta(tool, metas.get(tool["name"])) for tool in page["tools"]]}

    return mark


def _with_meta(tool: dict[str, Any], meta: dict[str, Any] | None) -> dict[str, Any]:
    return tool if meta is None else {**tool, "_meta": meta}
