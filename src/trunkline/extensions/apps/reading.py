"""Reads the page of a tool, and checks its HTML and its declaration.

A page is untrusted: its size is limited, its media type must be the one that the extension defines, and its
declaration must be valid by the rules of ``declarations``. It is returned, never run.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

import trunkline.types as t
from trunkline.errors import InvalidParams, RemoteProtocolError, RequestFailed
from trunkline.extensions.apps.content_security import content_security_policy, frame_permissions
from trunkline.extensions.apps.declarations import AppDeclaration, read_declaration
from trunkline.protocol.apps import APP_MIME_TYPE, app_uri, is_app_type, is_app_uri, ui_meta

if TYPE_CHECKING:
    from trunkline.client.client import Client

__all__ = ["AppPage", "page_of", "read_page"]

# A page with a framework, its styles and pictures in one file has one to three megabytes.
_MOST_BYTES = 8 * 1024 * 1024


class AppPage(Struct, frozen=True, kw_only=True):
    """A page: its HTML and its declaration."""

    uri: str
    html: str
    declared: AppDeclaration

    @property
    def content_security_policy(self) -> str:
        """The Content-Security-Policy header to show the page with."""
        return content_security_policy(self.declared.csp)

    @property
    def frame_permissions(self) -> str:
        """The ``allow`` attribute of a frame with all permissions that the page requests; a host may grant fewer."""
        return frame_permissions(self.declared)


async def read_page(client: Client, app: str | t.Tool) -> AppPage:
    """Read the page of a tool (a ``Tool`` or its name), or the page with a URI.

    Raises:
        InvalidParams: there is no such tool, or it has no page.
        RemoteProtocolError: the response is not a page, is too large, or has an invalid declaration.
        RequestFailed, LinkError: the page cannot be read.
    """
    uri = app if isinstance(app, str) and is_app_uri(app) else app_uri((await _tool(client, app)).meta)
    if uri is None:
        name = app if isinstance(app, str) else app.name
        raise InvalidParams(f"The tool {name!r} has no page: its _meta.ui names no ui:// resource")
    contents = await client.read_resource(uri)
    found = next((each for each in contents if is_app_type(each.mime_type)), None)
    # The contents take precedence; some servers send the declaration only in their list.
    listed = None if found is None or ui_meta(found.meta) is not None else await _listed_meta(client, uri)
    return page_of(uri, contents, listed)


def page_of(
    uri: str, contents: list[t.ResourceContents], listed: Mapping[str, Any] | None = None, *, most: int = _MOST_BYTES
) -> AppPage:
    """Return the page from the contents of a resource; ``listed`` is its ``_meta`` in the server's list.

    Raises:
        RemoteProtocolError: the contents are not a page, are too large, or have an invalid declaration.
    """
    found = next((each for each in contents if is_app_type(each.mime_type)), None)
    if found is None:
        said = ", ".join(str(each.mime_type)[:80] for each in contents[:3]) or "nothing"
        raise RemoteProtocolError(f"{uri[:200]} is not a page: expected {APP_MIME_TYPE}, but the server sent {said}.")
    try:
        declared = read_declaration(ui_meta(found.meta) or ui_meta(listed))
    except ValueError as error:
        raise RemoteProtocolError(f"The declaration of the page {uri[:200]} is invalid: {error}") from error
    return AppPage(uri=uri, html=_html(uri, found, most), declared=declared)


def _html(uri: str, contents: t.ResourceContents, most: int) -> str:
    text, blob = contents.text, contents.blob
    # Base64 takes four characters for three bytes.
    size = len(text.encode("utf-8", "replace")) if text is not None else len(blob or "") * 3 // 4
    if size > most:
        raise RemoteProtocolError(f"The page {uri[:200]} has {size} bytes; the limit is {most}.")
    if text is not None:
        return text
    try:
        return b64decode(blob or "", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise RemoteProtocolError(f"The page {uri[:200]} is not HTML in UTF-8: {error}") from error


async def _tool(client: Client, app: str | t.Tool) -> t.Tool:
    if isinstance(app, t.Tool):
        return app
    tools = await client.list_tools()
    found = next((each for each in tools if each.name == app), None)
    if found is None:
        raise InvalidParams(f"The server has no tool {app!r}; pass the name of a tool, or the ui:// URI of a page")
    return found


async def _listed_meta(client: Client, uri: str) -> Mapping[str, Any] | None:
    try:
        resources = await client.list_resources()
    except RequestFailed:
        # Servers may leave pages out of the list, or have none.
        return None
    return next((each.meta for each in resources if each.uri == uri), None)
