"""Pages of a server: registered like resources, read as HTML with their declaration.

The server imports this module when the first page is registered. A page is listed only to clients that declared the
extension, and only they get its declaration. Any client that knows its URI can read its HTML, as with any resource.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.errors import ConfigError
from trunkline.extensions.apps.declarations import AppDeclaration, declaration
from trunkline.protocol.apps import APP_MIME_TYPE, declares_apps
from trunkline.server.app_options import AppKeywords, PageSource, check_app_uri
from trunkline.server.options import resource_options
from trunkline.server.resources import ResourceDefinition, ResourceOptions
from trunkline.server.results import File
from trunkline.server.validation_errors import did_you_mean

if TYPE_CHECKING:
    from trunkline.server.registry import RegistrySnapshot
    from trunkline.server.server import Server

__all__ = ["PageDefinition", "add_page", "check_links"]

_DECLARED = ("csp", "permissions", "domain", "prefers_border")


class PageDefinition(ResourceDefinition):
    """A page of a server."""

    __slots__ = ("page",)

    def __init__(
        self,
        uri: str,
        function: Callable[..., object],
        options: ResourceOptions,
        *,
        owner: Server,
        declared: AppDeclaration,
    ) -> None:
        """Create a page from a function without parameters."""
        super().__init__(uri, function, options, owner=owner)
        self.page: AppDeclaration = declared

    def _description(self) -> dict[str, Any]:
        described = super()._description()
        meta = self._with_ui(described["meta"])
        return {**described, "mime_type": APP_MIME_TYPE, "meta": meta}

    def _with_ui(self, meta: dict[str, Any] | None) -> dict[str, Any] | None:
        declared = self.page.to_wire()
        return {**(meta or {}), "ui": declared} if declared else meta

    async def _read(self, exchange: Exchange, uri: str, kwargs: dict[str, object]) -> t.ReadResourceResult:
        html = await _html(await self.function.run(exchange, kwargs), uri)
        meta = self._with_ui(None) if declares_apps(exchange.admitted.caller.capabilities) else None
        contents = t.ResourceContents(uri=uri, mime_type=APP_MIME_TYPE, text=html, meta=meta)
        options = self.options
        return t.ReadResourceResult(contents=[contents], ttl_ms=options.ttl_ms, cache_scope=options.cache_scope)


async def _html(value: object, uri: str) -> str:
    """Return the HTML that the function of a page returned.

    Raises:
        TypeError: it returned something else.
    """
    if isinstance(value, os.PathLike):
        value = await asyncio.to_thread(Path(value).read_bytes)
    elif isinstance(value, File):
        file = value
        value = await asyncio.to_thread(lambda: file.data)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode()
    if isinstance(value, str):
        return value
    raise TypeError(f"the page {uri} must return its HTML as text, a Path or a File, not a {type(value).__name__}")


def add_page(server: Server, uri: str, page: Callable[..., object] | PageSource, options: Mapping[str, Any]) -> None:
    """Register a page and link its tools to it.

    Raises:
        TypeError: an option is unknown, or of the wrong type.
        ValueError: the URI or the declaration is not valid, or the URI is taken; the message names the fix.
    """
    check_app_uri(uri, "a page's URI")
    known = AppKeywords.__annotations__
    for name in options:
        if name not in known:
            raise TypeError(f"unknown option {name!r}{did_you_mean(name, known) or f'; a page has {_names(known)}'}")
    tools = options.get("tools") or ()
    if isinstance(tools, str) or callable(tools):
        raise TypeError(f"page {uri!r}: tools= is a list of functions or names")
    try:
        declared = declaration(**{name: options.get(name) for name in _DECLARED})
    except ValueError as error:
        raise ValueError(f"page {uri!r}: {error}") from None
    rest = {name: value for name, value in options.items() if name not in _DECLARED and name != "tools"}
    if not callable(page):
        _check_source(uri, page)
        rest.setdefault("name", uri.removeprefix("ui://"))
    function = page if callable(page) else lambda: page
    definition = PageDefinition(uri, function, resource_options(rest), owner=server, declared=declared)
    server._put_page(uri, definition, tools)


def _names(known: Mapping[str, Any]) -> str:
    return ", ".join(sorted(known))


def _check_source(uri: str, page: object) -> None:
    if isinstance(page, os.PathLike) and not Path(page).is_file():
        raise ValueError(f"page {uri!r}: there is no file {os.fspath(page)!r}; build its path from __file__")
    if not isinstance(page, str | os.PathLike | File):
        raise TypeError(f"page {uri!r} must be HTML, a path, a File or a function, not a {type(page).__name__}")


def check_links(own: RegistrySnapshot, links: Sequence[tuple[Callable[..., Any] | str, str]]) -> None:
    """Check that the tools named by a server's pages exist, and the pages named by its tools.

    Raises:
        ConfigError: one does not exist; the message names the fix.
    """
    tools, resources = own.tools, own.resources
    functions = [tool.function.function for tool in tools.values()]
    for named, uri in links:
        if named not in tools and named not in functions:
            name = named if isinstance(named, str) else getattr(named, "__name__", repr(named))
            hint = did_you_mean(name, tools) or "; register it with @server.tool"
            raise ConfigError(f"page {uri!r} names the tool {name!r}, which does not exist{hint}")
    for name, tool in tools.items():
        if tool.app is None:
            continue
        page = tool.app.uri
        if page is not None and page not in resources:
            hint = did_you_mean(page, resources) or f'; register it with @server.app("{page}")'
            raise ConfigError(f"tool {name!r} has the page {page!r}, which does not exist{hint}")
        if (
            tool.options.visibility is not None
            and not tool.app.for_model
            and not any(each.startswith("ui://") for each in resources)
        ):
            raise ConfigError(
                f'tool {name!r} can be called only by pages (visibility=["app"]), but the server has no page; register '
                'one with @server.app, or add "model" to visibility='
            )
