"""``gzip-file-as-resource``: fetches a file within limits, compresses it, and keeps it for the caller.

The URL comes from an untrusted caller, so it goes through the guarded fetcher. Files of a session have the official
URIs and are visible to that session only. A caller without a session gets a URI with an unguessable handle.
"""

from __future__ import annotations

import asyncio
import binascii
import gzip
import os
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote, unquote_to_bytes, urlsplit

from msgspec import Meta, Struct

from trunkline import Context, Server, ToolError
from trunkline.errors import FetchError, ResourceNotFound
from trunkline.server import Caller, Session
from trunkline.types import EmbeddedResource, ResourceContents, ResourceLink
from trunkline_servers.everything.basic_tools import ACTS_OUTSIDE
from trunkline_servers.everything.state import ServerState, identity_of, state_of

if TYPE_CHECKING:
    from trunkline.net import Fetcher

__all__ = ["KEPT_URI_TEMPLATE", "SESSION_URI_PREFIX", "FetchLimits", "add_gzip_tool", "can_see_file"]

SESSION_URI_PREFIX = "demo://resource/session/"
KEPT_URI_TEMPLATE = "demo://resource/kept/{handle}/{name}"

_README = "https://raw.githubusercontent.com/modelcontextprotocol/servers/refs/heads/main/README.md"
_TYPE = "application/gzip"
_LONGEST_NAME = 128
_LEVEL = 6


class FetchLimits(Struct, frozen=True, kw_only=True):
    """The limits of fetching; no domains means any public one, no fetcher the default one."""

    max_bytes: int = 10 * 1024 * 1024
    seconds: float = 30.0
    domains: Sequence[str] = ()
    fetcher: Fetcher | None = None


def add_gzip_tool(server: Server, fetching: FetchLimits) -> None:
    """Register the tool, and the resource template for callers without a session."""

    async def gzip_file_as_resource(
        ctx: Context,
        name: Annotated[str, Meta(description="The name of the compressed file")] = "README.md.gz",
        data: Annotated[
            str, Meta(description="The file: an https URL or a data URI", extra_json_schema={"format": "uri"})
        ] = _README,
        outputType: Annotated[
            Literal["resourceLink", "resource"],
            Meta(description="Return a link to read later, or the compressed file itself"),
        ] = "resourceLink",
    ) -> ResourceLink | EmbeddedResource:
        """Compress a file and keep it as a resource for the caller."""
        _check_name(name)
        plain = (
            _from_data_uri(data, fetching.max_bytes) if data[:5].lower() == "data:" else await _fetch(data, fetching)
        )
        packed = await asyncio.to_thread(gzip.compress, plain, _LEVEL, mtime=0)
        uri = _store(ctx, name, packed)
        if outputType == "resource":
            blob = b64encode(packed).decode()
            return EmbeddedResource(resource=ResourceContents(uri=uri, mime_type=_TYPE, blob=blob))
        return ResourceLink(uri=uri, name=name, mime_type=_TYPE)

    hints = {**ACTS_OUTSIDE, "idempotentHint": True}
    server.add_tool(
        gzip_file_as_resource, name="gzip-file-as-resource", title="Compress", annotations=hints, output_schema=None
    )
    server.add_resource(
        KEPT_URI_TEMPLATE,
        read_kept,
        name="kept",
        description="Files that gzip-file-as-resource made for a caller without a session.",
        mime_type=_TYPE,
        tags={"stateless"},
    )


# --- fetching --------------------------------------------------------------------------------------------------------


async def _fetch(url: str, fetching: FetchLimits) -> bytes:
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
    except ValueError as error:
        raise ToolError("data is not a URL: give an https URL or a data URI.") from error
    if parts.scheme.lower() not in ("http", "https"):
        raise ToolError("data must be an https URL or a data URI.")
    allowed = [domain.lower() for domain in fetching.domains]
    if allowed and not any(host == domain or host.endswith("." + domain) for domain in allowed):
        raise ToolError(f"Domain {host} is not in the allowed domains list (GZIP_ALLOWED_DOMAINS).")
    try:
        # If only some domains are allowed, a redirect must not leave the one that was checked.
        answer = await _fetcher(fetching).fetch(
            "GET", url, max_bytes=fetching.max_bytes, seconds=fetching.seconds, cross_origin=not allowed
        )
    except FetchError as error:
        raise ToolError(str(error)) from error
    except ImportError as error:
        raise ToolError(
            "Fetching needs more packages: pip install 'trunkline[servers]', or give a data URI."
        ) from error
    if answer.status != 200:
        raise ToolError(f"{host} answered with status {answer.status}; there is nothing to compress.")
    return answer.body


def _fetcher(fetching: FetchLimits) -> Fetcher:
    from trunkline.net import Fetcher

    return fetching.fetcher or Fetcher()


def _from_data_uri(uri: str, most: int) -> bytes:
    head, comma, body = uri[5:].partition(",")
    if not comma:
        raise ToolError("The data URI has no comma between its type and its data.")
    if len(body) > 4 * most:
        raise ToolError(f"The data URI holds more than {most} bytes.")
    data = unquote_to_bytes(body)
    if head.lower().endswith(";base64"):
        try:
            data = b64decode(data, validate=True)
        except binascii.Error as error:
            raise ToolError(f"The data URI is not valid base64: {error}.") from error
    if len(data) > most:
        raise ToolError(f"The data URI holds more than {most} bytes.")
    return data


def _check_name(name: str) -> None:
    if not 1 <= len(name) <= _LONGEST_NAME or not name.isprintable() or name in (".", ".."):
        raise ToolError(f"name must be 1 to {_LONGEST_NAME} printable characters, and not '.' or '..'.")


# --- storing ---------------------------------------------------------------------------------------------------------


def _store(ctx: Context, name: str, packed: bytes) -> str:
    """Store a file for the caller and return its URI."""
    state, session = state_of(ctx), ctx.session
    escaped = quote(name, safe="")
    if session is None:
        handle = os.urandom(16).hex()
        uri = KEPT_URI_TEMPLATE.replace("{handle}", handle).replace("{name}", escaped)
        state.files.put(identity_of(ctx), uri, packed)
    else:
        uri = SESSION_URI_PREFIX + escaped
        state.files.put(session, uri, packed)
    _prune(ctx, state)
    if session is not None and uri in ctx.server.registry.resources:
        ctx.server.changed(uri)
    elif session is not None:
        ctx.server.add_resource(uri, _reader(uri), name=name, mime_type=_TYPE, tags={"session"})
    return uri


def _prune(ctx: Context, state: ServerState) -> None:
    """Remove the files of sessions that are over, and the resources that no session has any more."""
    serving, current = ctx.root_server, ctx.session
    state.files.keep_only(
        lambda owner: not isinstance(owner, Session) or owner is current or serving.subscriber(owner) is not None
    )
    kept = state.files.uris()
    for uri in [uri for uri in ctx.server.registry.resources if uri.startswith(SESSION_URI_PREFIX) and uri not in kept]:
        ctx.server.remove_resource(uri)


def _reader(uri: str) -> Any:
    async def read(ctx: Context) -> bytes:
        return _found(state_of(ctx).files.get(ctx.session, uri))

    return read


def can_see_file(state: ServerState, caller: Caller, uri: str) -> bool:
    """Return True if a caller has a file under a session URI."""
    return caller.session is not None and state.files.get(caller.session, uri) is not None


async def read_kept(handle: str, name: str, ctx: Context) -> bytes:
    """Return a file that was compressed for a caller without a session."""
    uri = KEPT_URI_TEMPLATE.replace("{handle}", handle).replace("{name}", quote(name, safe=""))
    return _found(state_of(ctx).files.get(identity_of(ctx), uri))


def _found(data: bytes | None) -> bytes:
    if data is None:
        raise ResourceNotFound("This file is gone: it was replaced by newer ones; compress it again.")
    return data
