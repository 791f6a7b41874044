"""MCP Apps of both frameworks: the page of a tool, and what a page may load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["AppConfig", "Apps", "ResourceCSP", "ResourcePermissions", "page_meta", "tool_meta"]

PAGE_TYPE = "text/html;profile=mcp-app"


class ResourceCSP(BaseModel):
    """The origins that a page may use."""

    model_config = ConfigDict(populate_by_name=True, extra="allow")

    connect_domains: list[str] | None = Field(default=None, alias="connectDomains")
    resource_domains: list[str] | None = Field(default=None, alias="resourceDomains")
    frame_domains: list[str] | None = Field(default=None, alias="frameDomains")
    base_uri_domains: list[str] | None = Field(default=None, alias="baseUriDomains")


class ResourcePermissions(BaseModel):
    """What a page asks the browser for."""

    model_config = ConfigDict(populate_by_name=True, extra="allow")

    camera: dict[str, Any] | None = None
    microphone: dict[str, Any] | None = None
    geolocation: dict[str, Any] | None = None
    clipboard_write: dict[str, Any] | None = Field(default=None, alias="clipboardWrite")


class AppConfig(BaseModel):
    """The page of a tool, or how a page is shown."""

    model_config = ConfigDict(populate_by_name=True, extra="allow")

    resource_uri: str | None = Field(default=None, alias="resourceUri")
    visibility: list[str] | None = None
    csp: ResourceCSP | None = None
    permissions: ResourcePermissions | None = None
    domain: str | None = None
    prefers_border: bool | None = Field(default=None, alias="prefersBorder")


def tool_meta(app: Any) -> dict[str, Any]:
    """Return the ``_meta.ui`` of a tool."""
    if app is True:
        return {}
    config = app if isinstance(app, AppConfig) else AppConfig.model_validate(app)
    return config.model_dump(by_alias=True, exclude_none=True)


def page_meta(app: Any) -> dict[str, Any]:
    """Return the ``_meta.ui`` of a page."""
    config = app if isinstance(app, AppConfig) else AppConfig.model_validate(app)
    return config.model_dump(by_alias=True, exclude_none=True, exclude={"resource_uri", "visibility"})


class Apps:
    """The official SDK's extension: tools with a page, registered on it and passed as ``extensions=[apps]``."""

    identifier = "io.modelcontextprotocol/ui"

    def __init__(self) -> None:
        """Begin without tools."""
        self._added: list[Callable[[Any], None]] = []

    def tool(self, *, resource_uri: str, visibility: list[str] | None = None, **options: Any) -> Any:
        """Register a function as a tool whose results a page shows."""
        ui = {"resourceUri": resource_uri, **({"visibility": visibility} if visibility else {})}

        def register(function: Any) -> Any:
            meta = {**(options.pop("meta", None) or {}), "ui": ui}
            self._added.append(lambda server: server.add_tool(function, meta=meta, **options))
            return function

        return register

    def add_html_resource(self, uri: str, html: str, **options: Any) -> None:
        """Register the page of tools: its HTML."""
        from trunkline_compat.components import TextResource

        settings = ("csp", "permissions", "domain", "prefers_border")
        ui = page_meta({key: options[key] for key in settings if options.get(key) is not None})
        name = options.get("name") or uri
        page = TextResource(
            uri=uri,
            name=name,
            text=html,
            mime_type=PAGE_TYPE,
            title=options.get("title"),
            meta={"ui": ui} if ui else None,
        )
        self._added.append(lambda server: server.add_resource(page))

    def add_resource(self, resource: Any) -> None:
        """Register a page made as an object."""
        self._added.append(lambda server: server.add_resource(resource))

    def apply(self, server: Any) -> None:
        """Register everything with a server."""
        for add in self._added:
            add(server)
