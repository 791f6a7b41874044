"""Every error code of JSON-RPC and MCP, with when it is sent and in which revisions."""

from __future__ import annotations

from msgspec import Struct

from trunkline.protocol.revisions import ALL_REVISIONS, HANDSHAKE, ONLY_2025_11, STATELESS, Span

__all__ = [
    "CODES",
    "HEADER_MISMATCH",
    "INSUFFICIENT_SCOPE",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "MISSING_CLIENT_CAPABILITY",
    "PARSE_ERROR",
    "RESOURCE_NOT_FOUND",
    "TOO_MANY_REQUESTS",
    "UNSUPPORTED_PROTOCOL_VERSION",
    "URL_ELICITATION_REQUIRED",
    "ErrorCode",
]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
RESOURCE_NOT_FOUND = -32002
HEADER_MISMATCH = -32020
MISSING_CLIENT_CAPABILITY = -32021
UNSUPPORTED_PROTOCOL_VERSION = -32022
# 2026-07-28, basic: custom codes must be outside the range that JSON-RPC reserves.
INSUFFICIENT_SCOPE = 403
TOO_MANY_REQUESTS = 429
URL_ELICITATION_REQUIRED = -32042


class ErrorCode(Struct, frozen=True, kw_only=True):
    """One code: its number, its short name, when it is sent, and in which revisions."""

    code: int
    name: str
    when: str
    span: Span = ALL_REVISIONS


CODES: tuple[ErrorCode, ...] = (
    ErrorCode(
        code=PARSE_ERROR,
        name="Parse error",
        when="the message is not JSON, not UTF-8, too deep or too long",
    ),
    ErrorCode(
        code=INVALID_REQUEST,
        name="Invalid request",
        when="the JSON is not an acceptable message: a bad envelope, an id in use, a batch where "
        "the revision has none, a second initialize",
    ),
    ErrorCode(
        code=METHOD_NOT_FOUND,
        name="Method not found",
        when="the method does not exist in this revision, or its capability was not declared; data.method names it",
    ),
    ErrorCode(
        code=INVALID_PARAMS,
        name="Invalid params",
        when="the params do not match the method: a missing or ill-typed member, an unknown tool or prompt, "
        "a stale cursor, an invalid request state, and in stateless revisions an unknown resource",
    ),
    ErrorCode(
        code=INTERNAL_ERROR,
        name="Internal error",
        when="serving failed for a reason that is not the caller's fault",
    ),
    ErrorCode(
        code=RESOURCE_NOT_FOUND,
        name="Resource not found",
        when="no resource has the URI",
        span=HANDSHAKE,
    ),
    ErrorCode(
        code=HEADER_MISMATCH,
        name="Header mismatch",
        when="an HTTP header is missing or disagrees with the body it describes",
        span=STATELESS,
    ),
    ErrorCode(
        code=MISSING_CLIENT_CAPABILITY,
        name="Missing required client capability",
        when="the request needs a capability that the client did not declare; data.requiredCapabilities has it",
        span=STATELESS,
    ),
    ErrorCode(
        code=UNSUPPORTED_PROTOCOL_VERSION,
        name="Unsupported protocol version",
        when="the request names a revision that is not served; data.supported lists those that are",
        span=STATELESS,
    ),
    ErrorCode(
        code=URL_ELICITATION_REQUIRED,
        name="URL elicitation required",
        when="the user must first finish the pages that data.elicitations lists",
        span=ONLY_2025_11,
    ),
    ErrorCode(
        code=INSUFFICIENT_SCOPE,
        name="Insufficient scope",
        when="the caller's token does not allow the request; data.scopes has all required scopes; over HTTP the "
        "status is 403, with a challenge",
    ),
    ErrorCode(
        code=TOO_MANY_REQUESTS,
        name="Too many requests",
        when="the caller has reached a limit of the gateway; data.limit names it, data.allowed is its value and "
        "data.retryAfter the seconds to wait; over HTTP the status stays 200",
    ),
)
