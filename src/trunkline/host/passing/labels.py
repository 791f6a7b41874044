"""Labels for the questions of servers that a gateway forwards to its client.

To the client every question comes from the gateway. A client that is connected directly shows which server asks, and
its user decides by that. So the server's name is put before the text that the user reads, where the server cannot put
anything in front of it.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

import trunkline.types as t

__all__ = ["label_pages", "labelled"]


def labelled(params: Any, server: str) -> Any:
    """Return a server's question with the server's name before its text."""
    if isinstance(params, t.ElicitRequestParams):
        return replace(params, message=_label(server, params.message))
    if isinstance(params, t.CreateMessageRequestParams):
        # The messages are for the model; clients that let their user review a request show the system prompt too.
        asks = f"[{server}] This request is made by the MCP server {server}."
        return replace(params, system_prompt=f"{asks}\n\n{params.system_prompt}" if params.system_prompt else asks)
    return params


def label_pages(data: Any, server: str) -> Any:
    """Return the data of a -32042 error with the server's name before the text of each page that is to be opened."""
    pages = data.get("elicitations") if isinstance(data, dict) else None
    if not isinstance(pages, list):
        return data
    return {**data, "elicitations": [_page(each, server) for each in pages]}


def _page(page: Any, server: str) -> Any:
    message = page.get("message") if isinstance(page, dict) else None
    return {**page, "message": _label(server, message)} if isinstance(message, str) else page


def _label(server: str, message: str) -> str:
    return f"[{server}] {message}"
