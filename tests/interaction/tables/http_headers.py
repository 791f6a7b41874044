"""Streamable HTTP without sessions: the headers that mirror the body."""

from __future__ import annotations

from tests.interaction.rows import ON_HTTP, STATELESS, Row

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="http.header-case",
        spec="2026-07-28 basic/transports/streamable-http#case-sensitivity",
        sentence="The case of a header's name does not matter.",
        revisions=STATELESS,
        transports=ON_HTTP,
    ),
    Row(
        id="http.header-encoded",
        spec="2026-07-28 basic/transports/streamable-http#value-encoding",
        sentence="A name may be encoded.",
        revisions=STATELESS,
        transports=ON_HTTP,
    ),
    Row(
        id="http.header-missing",
        spec="2026-07-28 basic/transports/streamable-http#server-validation",
        sentence="A request without a header that it needs is a bad request.",
        revisions=STATELESS,
        transports=ON_HTTP,
    ),
    Row(
        id="http.header-name-missing",
        spec="2026-07-28 basic/transports/streamable-http#standard-request-headers",
        sentence="Every method with a name needs it in a header.",
        revisions=STATELESS,
        transports=ON_HTTP,
    ),
    Row(
        id="http.header-other",
        spec="2026-07-28 basic/transports/streamable-http#server-validation",
        sentence="A header that differs from the body is a bad request.",
        revisions=STATELESS,
        transports=ON_HTTP,
    ),
    Row(
        id="http.header-version-other",
        spec="2026-07-28 basic/transports/streamable-http#protocol-version-header",
        sentence="A version in the header that is not the body's is a bad request.",
        revisions=STATELESS,
        transports=ON_HTTP,
    ),
    Row(
        id="http.param",
        spec="2026-07-28 basic/transports/streamable-http#server-behavior-for-custom-headers",
        sentence="An argument that is mirrored as it should be is taken.",
        revisions=STATELESS,
        transports=ON_HTTP,
    ),
    Row(
        id="http.param-wrong",
        spec="2026-07-28 basic/transports/streamable-http#server-behavior-for-custom-headers",
        sentence="An argument that is not mirrored as it should be is a bad request.",
        revisions=STATELESS,
        transports=ON_HTTP,
    ),
)
