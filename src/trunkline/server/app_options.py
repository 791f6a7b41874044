"""The server's side of MCP Apps: the page of a tool, who may call the tool, and the keywords of a page.

Pages are implemented by ``trunkline.extensions.apps``, which is imported when the first page is registered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from trunkline.protocol.apps import DEFAULT_VISIBILITY, VISIBILITY_VALUES, is_app_uri, tool_visibility
from trunkline.server.options import ComponentKeywords

if TYPE_CHECKING:
    import os

    from trunkline.extensions.apps.declarations import CspDeclaration, Permissions
    from trunkline.server.results import File

__all__ = ["AppKeywords", "PageSource", "ToolApp", "check_app_uri", "tool_app"]

#: The accepted forms of a page, besides a function that returns one of them: its HTML, or a file.
PageSource: TypeAlias = "str | os.PathLike[str] | File"


class AppKeywords(ComponentKeywords, total=False):
    """The keywords of a page."""

    #: The origins that the page may reach; without it, none.
    csp: CspDeclaration | None
    #: The permissions that the page requests: ``camera``, ``microphone``, ``geolocation``, ``clipboard_write``.
    permissions: Permissions | None
    #: The origin that the page requests; see the documentation of the host.
    domain: str | None
    #: Whether the host should draw a border; None lets the host decide.
    prefers_border: bool | None
    #: The tools whose results the page shows: functions or names, registered before or after the page.
    tools: Sequence[Callable[..., Any] | str] | None
    ttl_ms: int | None
    cache_scope: Literal["public", "private"] | None


class ToolApp(Struct, frozen=True):
    """The page of a tool, and who may call the tool."""

    #: The page that shows its results; None if it has none.
    uri: str | None = None
    #: ``model``, ``app`` or both; None is the default, both.
    visibility: tuple[str, ...] | None = None

    @property
    def for_model(self) -> bool:
        """Whether models may call it; otherwise it is hidden from clients that did not declare the extension."""
        return "model" in (DEFAULT_VISIBILITY if self.visibility is None else self.visibility)

    def linked_to(self, uri: str, tool: str) -> ToolApp:
        """Return a copy with a page.

        Raises:
            ValueError: it has another page already.
        """
        if self.uri not in (None, uri):
            raise ValueError(f"tool {tool!r} already has the page {self.uri}, so it cannot have the page {uri} too")
        return replace(self, uri=uri)

    def add_to(self, meta: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the ``_meta`` of the tool with ``ui`` in it."""
        given = dict(meta or {})
        ui = dict(given["ui"]) if isinstance(given.get("ui"), Mapping) else {}
        if self.uri is not None:
            ui["resourceUri"] = self.uri
        if self.visibility is not None:
            ui["visibility"] = list(self.visibility)
        return {**given, "ui": ui}


def tool_app(app: str | None, visibility: Iterable[str] | None, tool: str) -> ToolApp:
    """Parse ``app=`` and ``visibility=`` of a tool.

    Raises:
        ValueError, TypeError: a value is not allowed; the message names the fix.
    """
    if app is not None:
        check_app_uri(app, f"tool {tool!r}: app=")
    return ToolApp(app, None if visibility is None else _visibility(visibility, tool))


def hidden_by_meta(meta: Mapping[str, Any]) -> ToolApp | None:
    """Return who may call a tool whose ``_meta.ui`` hides it from models; None if it does not."""
    visibility = tool_visibility(meta)
    return None if "model" in visibility else ToolApp(None, visibility)


def check_app_uri(uri: object, what: str) -> None:
    """Check the URI of a page.

    Raises:
        TypeError: it is not a string.
        ValueError: it is not a ``ui://`` URI of one page.
    """
    if not isinstance(uri, str):
        raise TypeError(f'{what} must be the URI of a page, such as "ui://weather/panel", not {uri!r:.100}')
    if not is_app_uri(uri):
        name = uri.partition("://")[2] or uri
        raise ValueError(f"{what} is {uri!r}, but pages have the scheme ui: use {'ui://' + name.lstrip('/')!r}")
    if "{" in uri:
        raise ValueError(f"{what} is {uri!r}, but the URI of a page has no variables; pass data in a tool's result")
    if not (uri.isascii() and uri.isprintable()) or " " in uri:
        raise ValueError(f"{what} is {uri!r}, but a URI has no spaces and only ASCII; percent-encode other characters")


def _visibility(given: Iterable[str], tool: str) -> tuple[str, ...]:
    if isinstance(given, str):
        raise TypeError(f'tool {tool!r}: visibility= must be a list, such as ["{given}"]')
    values = list(given)
    unknown = [each for each in values if each not in VISIBILITY_VALUES]
    if unknown or not values:
        said = f"has the unknown value {unknown[0]!r}" if unknown else "is empty, so the tool could not be called"
        raise ValueError(f'tool {tool!r}: visibility= {said}; use ["model", "app"], ["model"] or ["app"]')
    return tuple(each for each in VISIBILITY_VALUES if each in values)
