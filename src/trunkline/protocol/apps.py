"""MCP Apps on the wire: the declaration of the extension, and its members in ``_meta``.

In ``_meta.ui`` a tool names its page and who may call it, and a page declares what it needs. Data from a server is
untrusted, so these functions never raise: a member of the wrong type counts as absent. This module knows no HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from trunkline.protocol.extensions import APPS, declared_extension

__all__ = [
    "APP_MIME_TYPE",
    "APP_SCHEME",
    "APP_SETTINGS",
    "DEFAULT_VISIBILITY",
    "VISIBILITY_VALUES",
    "app_uri",
    "declares_apps",
    "has_ui",
    "is_app_type",
    "is_app_uri",
    "tool_visibility",
    "ui_meta",
    "with_app_uris",
    "without_ui",
]

#: The media type of a page; other types are reserved for later versions of the extension.
APP_MIME_TYPE = "text/html;profile=mcp-app"
APP_SCHEME = "ui://"
#: The settings that a client that shows pages declares.
APP_SETTINGS: Mapping[str, Any] = MappingProxyType({"mimeTypes": [APP_MIME_TYPE]})
VISIBILITY_VALUES = ("model", "app")
#: The default visibility of a tool.
DEFAULT_VISIBILITY: tuple[str, ...] = VISIBILITY_VALUES

_UI = "ui"
# Deprecated by the specification in favour of ``ui.resourceUri``; still read, never written.
_FLAT_URI = "ui/resourceUri"


def declares_apps(capabilities: Mapping[str, Any]) -> bool:
    """Return True if a client declared that it shows pages of the media type defined by the extension."""
    settings = declared_extension(capabilities, APPS)
    types = None if settings is None else settings.get("mimeTypes")
    return isinstance(types, list | tuple) and any(is_app_type(each) for each in types)


def is_app_type(value: object) -> bool:
    """Return True if a value is the media type of a page."""
    # Media types are compared without regard to case, and a space may follow the semicolon (RFC 9110, 8.3.1).
    return isinstance(value, str) and value.lower().replace(" ", "") == APP_MIME_TYPE


def is_app_uri(value: object) -> bool:
    """Return True if a value is the URI of a page."""
    return isinstance(value, str) and value.startswith(APP_SCHEME) and len(value) > len(APP_SCHEME)


def ui_meta(meta: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return ``_meta.ui``; None if there is none."""
    found = None if meta is None else meta.get(_UI)
    return found if isinstance(found, Mapping) else None


def has_ui(meta: Mapping[str, Any] | None) -> bool:
    """Return True if ``_meta`` has a member of the extension."""
    return meta is not None and (_UI in meta or _FLAT_URI in meta)


def app_uri(meta: Mapping[str, Any] | None) -> str | None:
    """Return the URI of a tool's page; None if it has none."""
    found = (ui_meta(meta) or {}).get("resourceUri")
    if not is_app_uri(found):
        found = None if meta is None else meta.get(_FLAT_URI)
    return found if isinstance(found, str) and is_app_uri(found) else None


def tool_visibility(meta: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the visibility of a tool: ``model``, ``app`` or both (the default); unknown values are ignored."""
    found = (ui_meta(meta) or {}).get("visibility")
    if not isinstance(found, list | tuple):
        return DEFAULT_VISIBILITY
    return tuple(each for each in VISIBILITY_VALUES if each in found)


def without_ui(meta: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return ``_meta`` without the members of the extension, for a peer that did not declare it; None if empty."""
    return {name: value for name, value in (meta or {}).items() if name not in (_UI, _FLAT_URI)} or None


def with_app_uris(meta: dict[str, Any], rewrite: Callable[[str], str]) -> dict[str, Any]:
    """Return ``_meta`` with the URI of a page rewritten, in both of its forms; the same object if it has none."""
    changes: dict[str, Any] = {}
    nested, flat = ui_meta(meta), meta.get(_FLAT_URI)
    if nested is not None and is_app_uri(nested.get("resourceUri")):
        changes[_UI] = {**nested, "resourceUri": rewrite(nested["resourceUri"])}
    if isinstance(flat, str) and is_app_uri(flat):
        changes[_FLAT_URI] = rewrite(flat)
    return {**meta, **changes} if changes else meta
