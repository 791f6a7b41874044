"""The transport of the first revision, the server's side."""

from __future__ import annotations

from tests.interaction.rows import HANDSHAKE, ON_PAIR, Row

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="sse.at-the-endpoint",
        spec="2025-11-25 basic/transports#backwards-compatibility",
        sentence="A client that falls back finds the stream at the endpoint itself.",
        revisions=HANDSHAKE[:1],
        transports=ON_PAIR,
    ),
    Row(
        id="sse.endpoint-first",
        spec="2024-11-05 basic/transports#http-with-sse",
        sentence="A stream begins with the address to post to.",
        revisions=HANDSHAKE,
        transports=ON_PAIR,
    ),
    Row(
        id="sse.endpoint-secret",
        spec="2024-11-05 basic/transports#http-with-sse",
        sentence="Each stream has its own random address.",
        revisions=HANDSHAKE[:1],
        transports=ON_PAIR,
    ),
    Row(
        id="sse.gone",
        spec="2024-11-05 basic/transports#http-with-sse",
        sentence="An address is gone with its stream.",
        revisions=HANDSHAKE[:1],
        transports=ON_PAIR,
    ),
    Row(
        id="sse.messages",
        spec="2024-11-05 basic/transports#http-with-sse",
        sentence="All messages come as events and nothing on the posts.",
        revisions=HANDSHAKE,
        transports=ON_PAIR,
    ),
    Row(
        id="sse.notices",
        spec="2024-11-05 basic/transports#http-with-sse",
        sentence="Messages without a request come on the stream.",
        revisions=HANDSHAKE,
        transports=ON_PAIR,
    ),
    Row(
        id="sse.off",
        spec="2025-11-25 basic/transports#backwards-compatibility",
        sentence="A server may be without the old transport.",
        revisions=HANDSHAKE[:1],
        transports=ON_PAIR,
    ),
    Row(
        id="sse.origin",
        spec="2024-11-05 basic/transports#security-warning",
        sentence="A web page of another origin is rejected at both addresses.",
        revisions=HANDSHAKE[:1],
        transports=ON_PAIR,
    ),
    Row(
        id="sse.own-stream",
        spec="2024-11-05 basic/transports#http-with-sse",
        sentence="A message comes on the stream of its own client alone.",
        revisions=HANDSHAKE[:1],
        transports=ON_PAIR,
    ),
    Row(
        id="sse.question",
        spec="2024-11-05 basic/transports#http-with-sse",
        sentence="A question comes on the stream and its answer is posted.",
        revisions=HANDSHAKE[:1],
        transports=ON_PAIR,
    ),
    Row(
        id="sse.unknown-address",
        spec="2024-11-05 basic/transports#http-with-sse",
        sentence="An address that no stream named is rejected.",
        revisions=HANDSHAKE[:1],
        transports=ON_PAIR,
    ),
    Row(
        id="sse.unreadable",
        spec="2024-11-05 basic/transports#http-with-sse",
        sentence="A body that is not a message is rejected and the stream lives.",
        revisions=HANDSHAKE,
        transports=ON_PAIR,
    ),
    Row(
        id="sse.verbs",
        spec="2024-11-05 basic/transports#http-with-sse",
        sentence="Each address has one verb.",
        revisions=HANDSHAKE[:1],
        transports=ON_PAIR,
    ),
)
