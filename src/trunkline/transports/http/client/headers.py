"""The headers of a client's HTTP requests.

The headers that all requests share are built once, and again only when the revision or the session changes. Nothing is
sent here; which headers mirror a body is defined in ``protocol.headers``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import DecodeError, Raw, Struct
from msgspec.json import Decoder

from trunkline.errors import RemoteProtocolError
from trunkline.protocol.headers import build_headers
from trunkline.protocol.jsonrpc import Message, Notification, Request
from trunkline.protocol.methods import Method, requests_to_server
from trunkline.protocol.revisions import Feature, Revision
from trunkline.transports.http.client.response_body import ACCEPTED

__all__ = ["HeaderBuilder", "validate_session_id"]

_POST: Mapping[str, str] = MappingProxyType(
    {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
)
_MAX_CACHED = 256  # Header sets kept: one for each method and name in use.
_VISIBLE = re.compile(r"[\x21-\x7e]+")


class _Named(Struct, rename="camel"):
    name: Any = None
    uri: Any = None
    task_id: Any = None


_named_decoder = Decoder(_Named)
#: The members as they are written on the wire.
_WIRE_NAMES: Mapping[str, str] = MappingProxyType({"name": "name", "uri": "uri", "task_id": "taskId"})


class HeaderBuilder:
    """Builds the headers of the requests of one link."""

    __slots__ = ("_bare", "_built", "_get", "_mirrors", "_post", "_rows", "_session", "_version")

    def __init__(self, own: Mapping[str, str], *, user_agent: str) -> None:
        """Set the user's own headers and the default ``User-Agent``."""
        named = any(name.lower() == "user-agent" for name in own)
        self._bare = {**({} if named else {"User-Agent": user_agent}), "Accept-Encoding": ACCEPTED, **own}
        self._version: str | None = None
        self._session: str | None = None
        self._mirrors = False
        self._rows: Mapping[str, Method] = {}
        #: Headers already built, by method and name: most requests repeat one of a few.
        self._built: dict[tuple[str, str | None], Mapping[str, str]] = {}
        self._rebuild()

    @property
    def session(self) -> str | None:
        """The id of the session, once there is one."""
        return self._session

    @session.setter
    def session(self, id: str | None) -> None:
        self._session = id
        self._rebuild()

    def set_revision(self, revision: Revision) -> None:
        """Build the headers of a revision from now on."""
        self._version = revision.name if Feature.VERSION_HEADER in revision.features else None
        self._mirrors = Feature.ROUTING_HEADERS in revision.features
        self._rows = requests_to_server(revision)
        self._rebuild()

    def _rebuild(self) -> None:
        optional = {"Mcp-Session-Id": self._session, "MCP-Protocol-Version": self._version}
        present = {name: value for name, value in optional.items() if value is not None}
        self._built.clear()
        self._post = {**self._bare, **_POST, **present}
        self._get = {**self._bare, "Accept": "text/event-stream", "Cache-Control": "no-store", **present}

    def for_message(
        self, message: Message | tuple[Message, ...], repeated: Mapping[str, str] | None = None
    ) -> Mapping[str, str]:
        """Return the headers of the POST that carries a message.

        ``repeated`` are the headers that repeat a request's content, where only its sender can build them.

        Raises:
            ValueError: the method or the name cannot be sent in a header.
        """
        if not self._mirrors:
            if type(message) is Request and message.method == "initialize":
                # No revision is agreed yet, and a session begins with it.
                return {**self._bare, **_POST}
            return self._post
        if type(message) is not Request:
            return {**self._post, "Mcp-Method": message.method} if type(message) is Notification else self._post
        if repeated is not None:
            return {**self._post, **repeated}
        row = self._rows.get(message.method)
        member = None if row is None else row.name_member
        name = None if member is None else _name(message.params, member)
        key = message.method, name
        head = self._built.get(key)
        if head is None:
            if len(self._built) >= _MAX_CACHED:
                self._built.clear()
            head = self._built[key] = {**self._post, **build_headers(message.method, name)}
        return head

    def for_get(self, last_id: str) -> Mapping[str, str]:
        """Return the headers of a GET, which resumes a stream after an event if one is named."""
        return {**self._get, "Last-Event-ID": last_id} if last_id else self._get


def _name(params: Any, member: str) -> str | None:
    """Return the name of the tool, prompt, resource or task in params of any form."""
    if isinstance(params, Raw):
        try:
            params = _named_decoder.decode(params)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            return None
    name = params.get(_WIRE_NAMES[member]) if isinstance(params, Mapping) else getattr(params, member, None)
    return name if isinstance(name, str) else None


def validate_session_id(id: str) -> str:
    """Return a session id if it may be sent in a header.

    Raises:
        RemoteProtocolError: it has characters that the specification does not allow.
    """
    if not _VISIBLE.fullmatch(id):
        raise RemoteProtocolError(f"the server's session id is not visible ASCII: {id[:40]!a}")
    return id
