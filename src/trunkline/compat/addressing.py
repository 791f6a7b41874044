"""Identities of an app's tools: a name that reaches a tool whatever transforms call it, as FastMCP makes it."""

from __future__ import annotations

import hashlib
from typing import Any

__all__ = [
    "HASH_LENGTH",
    "hash_tool",
    "hashed_backend_name",
    "hashed_resource_uri",
    "is_app_tool_with_identity",
    "parse_hashed_backend_name",
    "parse_hashed_resource_uri",
    "tool_identity",
]

HASH_LENGTH = 12  # Hexadecimal digits; FastMCP's own, since pages of apps contain such names.
_DIGITS = frozenset("0123456789abcdef")
_KEY = "tool_hash"
_START, _END = "ui://prefab/tool/", "/renderer.html"


def hash_tool(app_name: str, tool_name: str) -> str:
    """Return the identity of a tool of an app."""
    return hashlib.sha256(f"{app_name}\0{tool_name}".encode()).hexdigest()[:HASH_LENGTH]


def _is_hash(text: str) -> bool:
    return len(text) == HASH_LENGTH and _DIGITS.issuperset(text)


def hashed_backend_name(app_name: str, tool_name: str) -> str:
    """Return the name that an app's page calls a tool by."""
    return f"{hash_tool(app_name, tool_name)}_{tool_name}"


def parse_hashed_backend_name(name: str) -> tuple[str, str] | None:
    """Return the identity and the tool's own name, or None if it is another name."""
    digest, separator, local = name[:HASH_LENGTH], name[HASH_LENGTH : HASH_LENGTH + 1], name[HASH_LENGTH + 1 :]
    return (digest, local) if separator == "_" and local and _is_hash(digest) else None


def hashed_resource_uri(app_name: str, tool_name: str) -> str:
    """Return the URI of the page of a tool."""
    return f"{_START}{hash_tool(app_name, tool_name)}{_END}"


def parse_hashed_resource_uri(uri: str) -> str | None:
    """Return the identity in the URI of a page, or None if it is another URI."""
    digest = uri.removeprefix(_START).removesuffix(_END)
    return digest if uri == f"{_START}{digest}{_END}" and _is_hash(digest) else None


def tool_identity(tool: Any) -> str | None:
    """Return the identity of a tool that belongs to an app, or None."""
    own = (tool.meta or {}).get("fastmcp")
    found = own.get(_KEY) if isinstance(own, dict) else None
    return found if isinstance(found, str) else None


def is_app_tool_with_identity(tool: Any, tool_hash: str) -> bool:
    """Return whether a tool has an identity and an app's page may call it."""
    ui = (tool.meta or {}).get("ui")
    audience = ui.get("visibility") if isinstance(ui, dict) else None
    return tool_identity(tool) == tool_hash and "app" in (audience or ())
