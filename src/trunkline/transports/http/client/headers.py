"""The heads of a client's HTTP requests: what each says besides its body.

The part that all requests share is made once and again only when the revision or the session changes. Nothing is sent
here; which headers mirror a body is ``protocol.headers``' rule.
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
_KEPT = 256  # Header sets kept: one for each method and name in use.
_VISIBLE = re.compile(r"[\x21-\x7e]+")


class _Named(Struct):
    name: Any = None
    uri: Any = None


_named_decoder = Decoder(_Named)


class HeaderBuilder:
    """What the requests of one link say in their heads."""

    __slots__ = ("_bare", "_get", "_made", "_mirrors", "_post", "_rows", "_session", "_version")

    def __init__(self, own: Mapping[str, str], *, user_agent: str) -> None:
        """Take the headers that the user gave."""
        named = any(name.lower() == "user-agent" for name in own)
        self._bare = {**({} if named else {"User-Agent": user_agent}), "Accept-Encoding": ACCEPTED, **own}
        self._version: str | None = None
        self._session: str | None = None
        self._mirrors = False
        self._rows: Mapping[str, Method] = {}
        #: Heads that were made, by method and name: most requests repeat one of a few.
        self._made: dict[tuple[str, str | None], Mapping[str, str]] = {}
        self._make()

    @property
    def session(self) -> str | None:
        """The id of the session, once there is one."""
        return self._session

    @session.setter
    def session(self, id: str | None) -> None:
        self._session = id
        self._make()

    def set_revision(self, revision: Revision) -> None:
        """Build the headers of a revision from now on."""
        self._version = revision.name if Feature.VERSION_HEADER in revision.features else None
        self._mirrors = Feature.ROUTING_HEADERS in revision.features
        self._rows = requests_to_server(revision)
        self._make()

    def _make(self) -> None:
        held = {"Mcp-Session-Id": self._session, "MCP-Protocol-Version": self._version}
        spoken = {name: value for name, value in held.items() if value is not None}
        self._made.clear()
        self._post = {**self._bare, **_POST, **spoken}
        self._get = {**self._bare, "Accept": "text/event-stream", "Cache-Control": "no-store", **spoken}

    def for_message(
        self, message: Message | tuple[Message, ...], repeated: Mapping[str, str] | None = None
    ) -> Mapping[str, str]:
        """Return the headers of the POST that carries a message.

        ``repeated`` are the headers that repeat a request's content, where only its sender can build them.

        Raises:
            ValueError: the method or the name cannot travel in a header.
        """
        if not self._mirrors:
            if type(message) is Request and message.method == "initialize":
                # Nothing is agreed yet, and a session begins with it.
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
        head = self._made.get(key)
        if head is None:
            if len(self._made) >= _KEPT:
                self._made.clear()
            head = self._made[key] = {**self._post, **build_headers(message.method, name)}
        return head

    def for_get(self, last_id: str) -> Mapping[str, str]:
        """Give the head of a GET, which takes a stream up after an event if one is named."""
        return {**self._get, "Last-Event-ID": last_id} if last_id else self._get


def _name(params: Any, member: str) -> str | None:
    """Find the tool, prompt or resource that params name, in whichever form they are."""
    if isinstance(params, Raw):
        try:
            params = _named_decoder.decode(params)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            return None
    name = params.get(member) if isinstance(params, Mapping) else getattr(params, member, None)
    return name if isinstance(name, str) else None


def validate_session_id(id: str) -> str:
    """Give back a session id that may be sent in a header.

    Raises:
        RemoteProtocolError: it has characters that the specification does not allow.
    """
    if not _VISIBLE.fullmatch(id):
        raise RemoteProtocolError(f"the server's session id is not visible ASCII: {id[:40]!a}")
    return id
