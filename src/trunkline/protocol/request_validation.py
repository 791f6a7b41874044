"""Validation of a request: its caller, its revision and its typed params, or the error to answer with.

Decides the era of a request; the modules that ask for it afterwards are listed in
``tests/architecture/test_map.py``. The order of the checks is the specification's: a request whose ``_meta``
names a revision is stateless, whatever was sent before on the same pipe; ``initialize`` creates a session; with a
session, its revision applies; without one only ``ping`` is answered. What is wrong with a request is found out on a
separate path, so that the common request pays for one decode and a few look-ups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.protocol.caller import Caller, Origin, Session
from trunkline.protocol.error_codes import HEADER_MISMATCH
from trunkline.protocol.methods import METHODS, MISNAMED_METHODS, Method, requests_to_server
from trunkline.protocol.revisions import NEWEST_HANDSHAKE, REVISIONS, Revision

__all__ = [
    "RawRequest",
    "RejectedRequest",
    "ServerProfile",
    "ValidatedRequest",
    "make_server_profile",
    "validate_request",
]

_VERSION = "mcp-protocol-version"
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class ValidatedRequest(Struct, frozen=True, gc=False):
    """A request that will be served: its caller, the row of its method, and its typed params."""

    caller: Caller
    row: Method
    params: Any


class RejectedRequest(Struct, frozen=True):
    """A request that will not be served, and the error that says why."""

    code: int
    message: str
    data: Any = UNSET


class RawRequest(Protocol):
    """A request as it was received."""

    @property
    def method(self) -> str:
        """The method."""

    @property
    def params(self) -> Raw | None:
        """The params, undecoded."""


class ServerProfile(Struct, frozen=True):
    """What a server accepts: its requests by name, and its revisions by name, newest first."""

    requests: Mapping[str, Method]
    revisions: Mapping[str, Revision]
    #: The same rows by revision, each with only the methods it has.
    methods: Mapping[Revision, Mapping[str, Method]]
    #: Decoders of params by method, created on first use.
    decoders: dict[str, msgspec.json.Decoder[Any]]


def make_server_profile(own: Mapping[str, Method], revisions: tuple[str, ...] | None = None) -> ServerProfile:
    """Create the profile of a server with custom methods, for all revisions or some."""
    requests = {row.name: row for row in METHODS if row.kind == "request" and row.to_server is not None}
    spoken = [revision for revision in reversed(REVISIONS) if revisions is None or revision.name in revisions]
    methods = {
        revision: {
            **requests_to_server(revision),
            **{name: row for name, row in own.items() if row.to_server is not None and row.to_server.covers(revision)},
        }
        for revision in REVISIONS
    }
    return ServerProfile({**requests, **own}, {revision.name: revision for revision in spoken}, methods, {})


def validate_request(
    request: RawRequest, session: Session | None, origin: Origin, profile: ServerProfile
) -> ValidatedRequest | RejectedRequest:
    """Validate a request; a valid ``initialize`` has the new session in its caller."""
    method = request.method
    row = profile.requests.get(method)
    if row is None:
        return _reject_unknown_method(request, session, origin, profile)
    decoder = profile.decoders.get(method)
    if decoder is None:
        decoder = profile.decoders[method] = msgspec.json.Decoder(row.params)
    try:
        params = decoder.decode(request.params or b"{}")
    except _UNREADABLE as error:
        return _reject_unreadable(request, row, session, origin, profile, error)
    meta = params.meta
    if meta is not None and meta.protocol_version is not None:
        return _stateless(row, params, meta, origin, profile)
    if origin.headers is not None and (wrong := _check_version_header(origin.headers, profile)) is not None:
        return wrong
    if method == "initialize":
        return _initialize(row, params, session, origin, profile)
    if session is not None:
        caller = session.caller
        if origin.principal is not caller.origin.principal or origin.address != caller.origin.address:
            caller = replace(caller, origin=origin)
        if method not in profile.methods[caller.revision]:
            return _not_found(method, caller.revision)
        return ValidatedRequest(caller, row, params)
    return _without_session(request, row, params, origin)


def _stateless(
    row: Method, params: Any, meta: t.RequestMeta, origin: Origin, profile: ServerProfile
) -> ValidatedRequest | RejectedRequest:
    if origin.headers is not None and origin.headers.get(_VERSION) != meta.protocol_version:
        return _version_header_mismatch(origin.headers, meta.protocol_version)
    revision = profile.revisions.get(meta.protocol_version or "")
    if revision is None or revision.handshake:
        return _unsupported(meta.protocol_version, profile)
    if origin.headers is not None and (problem := _routing_header_problem(row, params, origin.headers)) is not None:
        return RejectedRequest(HEADER_MISMATCH, f"Header mismatch: {problem}")
    if meta.client_capabilities is None:
        return RejectedRequest(-32602, f"Invalid params: _meta lacks {t.META_CLIENT_CAPABILITIES!r}")
    if row.name not in profile.methods[revision]:
        return _not_found(row.name, revision)
    caller = Caller(revision, meta.client_info, meta.client_capabilities, origin, None, meta.log_level)
    return ValidatedRequest(caller, row, params)


def _routing_header_problem(row: Method, params: Any, headers: Mapping[str, str]) -> str | None:
    """Return where the headers that mirror method and name disagree with the body."""
    name = None if row.name_member is None else getattr(params, row.name_member)
    if row.name_member == "task_id" and "mcp-name" not in headers:
        # The tasks extension, Routing Headers: clients must send it, so that the right instance is reached; servers are
        # not told to require it, and FastMCP 4.1 sends none. One that names another task is rejected as ever.
        name = None
    if headers.get("mcp-method") == row.name and (
        name is None or (headers.get("mcp-name") == name and name[:1] != "=")
    ):
        return None
    # Encoded, padded or wrong headers are compared exactly; stdio never loads this module.
    from trunkline.protocol.headers import compare_headers

    return compare_headers(headers, row.name, name=name)


def _initialize(
    row: Method, params: t.InitializeRequestParams, session: Session | None, origin: Origin, profile: ServerProfile
) -> ValidatedRequest | RejectedRequest:
    if session is not None:
        return RejectedRequest(-32600, "Invalid request: this connection is initialized already")
    spoken = [revision for revision in profile.revisions.values() if revision.handshake]
    if not spoken:
        # 2026-07-28, basic/versioning: this message may be all that an older client can show its user.
        return _unsupported(params.protocol_version, profile)
    asked = profile.revisions.get(params.protocol_version)
    revision = asked if asked is not None and asked.handshake else spoken[0]
    opened = Session(revision, params.client_info, params.capabilities, origin=origin)
    return ValidatedRequest(opened.caller, row, params)


def _without_session(
    request: RawRequest, row: Method, params: Any, origin: Origin
) -> ValidatedRequest | RejectedRequest:
    if request.method == "ping":
        return ValidatedRequest(Session(NEWEST_HANDSHAKE, None, {}, origin=origin).caller, row, params)
    return RejectedRequest(
        -32602,
        f"Invalid params: {request.method} needs {t.META_PROTOCOL_VERSION!r} in _meta, or an initialize request first",
    )


# --- errors ----------------------------------------------------------------------------------------------------------


def _check_version_header(headers: Mapping[str, str], profile: ServerProfile) -> RejectedRequest | None:
    """Reject a request whose header names a stateless or an unknown revision while its body names none."""
    named = headers.get(_VERSION)
    revision = None if named is None else profile.revisions.get(named)
    if named is None or (revision is not None and revision.handshake):
        return None
    if revision is None:
        return _unsupported(named, profile)
    return RejectedRequest(-32602, f"Invalid params: _meta lacks {t.META_PROTOCOL_VERSION!r}")


def _version_header_mismatch(headers: Mapping[str, str], named: str | None) -> RejectedRequest:
    said = headers.get(_VERSION)
    what = "is missing" if said is None else f"says {said[:40]!r}"
    return RejectedRequest(
        HEADER_MISMATCH, f"Header mismatch: MCP-Protocol-Version header {what} but the body names {named!r}."
    )


def _reject_unknown_method(
    request: RawRequest, session: Session | None, origin: Origin, profile: ServerProfile
) -> RejectedRequest:
    """Reject an unknown method; an unknown revision is reported first."""
    named = _named_revision(request)
    if origin.headers is not None:
        if named is not None and origin.headers.get(_VERSION) != named:
            return _version_header_mismatch(origin.headers, named)
        if named is None and (wrong := _check_version_header(origin.headers, profile)) is not None:
            return wrong
    if named is None:
        return _not_found(request.method, None if session is None else session.revision)
    revision = profile.revisions.get(named)
    if revision is None or revision.handshake:
        return _unsupported(named, profile)
    return _not_found(request.method, revision)


def _reject_unreadable(
    request: RawRequest, row: Method, session: Session | None, origin: Origin, profile: ServerProfile, error: Exception
) -> RejectedRequest:
    if not isinstance(error, msgspec.ValidationError):
        return RejectedRequest(-32700, f"Parse error: {error}")
    named = _named_revision(request)
    if named is not None and origin.headers is not None and origin.headers.get(_VERSION) != named:
        return _version_header_mismatch(origin.headers, named)
    if named is not None:
        revision = profile.revisions.get(named)
        if revision is None or revision.handshake:
            return _unsupported(named, profile)
        if row.name not in profile.methods[revision]:
            return _not_found(row.name, revision)
    elif session is None and request.method not in ("initialize", "ping"):
        return RejectedRequest(
            -32602, f"Invalid params: {request.method} needs an initialize request first, or a complete _meta: {error}"
        )
    return RejectedRequest(-32602, f"Invalid params: {error}")


def _named_revision(request: RawRequest) -> str | None:
    try:
        params = msgspec.json.decode(request.params or b"{}", type=_Lenient)
    except _UNREADABLE:
        return None
    version = params.meta.get(t.META_PROTOCOL_VERSION) if isinstance(params.meta, dict) else None
    return version if isinstance(version, str) else None


class _Lenient(Struct):
    meta: Any = msgspec.field(name="_meta", default=None)


def _unsupported(requested: str | None, profile: ServerProfile) -> RejectedRequest:
    supported = list(profile.revisions)
    message = f"Unsupported protocol version {requested!r}; this server speaks {', '.join(supported)}"
    return RejectedRequest(-32022, message, {"supported": supported, "requested": requested})


def _not_found(method: str, revision: Revision | None) -> RejectedRequest:
    right = MISNAMED_METHODS.get(method)
    hint = f"; the method is called {right}" if right is not None else ""
    where = "" if revision is None else f" in revision {revision.name}"
    return RejectedRequest(-32601, f"Method not found{where}: {method}{hint}", {"method": method})
