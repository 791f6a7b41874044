"""Messages, and what is none."""

from __future__ import annotations

from tests.interaction.rows import (
    ALL,
    BATCHING,
    EVERYWHERE,
    HANDSHAKE,
    IN_MEMORY,
    ONE_LINK,
    STATELESS,
    WITHOUT_BATCHES,
    Row,
)

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="jsonrpc.batch",
        spec="2025-03-26 basic/index#batching",
        sentence="A batch is answered by one array.",
        revisions=BATCHING,
        transports=EVERYWHERE,
    ),
    Row(
        id="jsonrpc.batch-bad-item",
        spec="2025-03-26 basic/index#batching",
        sentence="A bad message in a batch is answered among the others.",
        revisions=BATCHING,
    ),
    Row(
        id="jsonrpc.batch-empty",
        spec="2025-03-26 basic/index#batching",
        sentence="An empty batch is an invalid request.",
        revisions=BATCHING,
    ),
    Row(
        id="jsonrpc.batch-initialize",
        spec="2025-03-26 basic/lifecycle#initialization",
        sentence="Initialize cannot be part of a batch.",
        revisions=BATCHING,
    ),
    Row(
        id="jsonrpc.batch-limit",
        spec="2025-03-26 basic/index#batching",
        sentence="A batch over the limit is rejected whole.",
        revisions=BATCHING,
    ),
    Row(
        id="jsonrpc.batch-mixed",
        spec="2025-03-26 basic/index#batching",
        sentence="A batch of requests and answers is rejected.",
        revisions=BATCHING,
    ),
    Row(
        id="jsonrpc.batch-notifications",
        spec="2025-03-26 basic/index#batching",
        sentence="A batch of notifications is not answered.",
        revisions=BATCHING,
    ),
    Row(
        id="jsonrpc.batch-refused",
        spec="2025-06-18 changelog#major-changes",
        sentence="A batch is rejected where the revision has none.",
        revisions=WITHOUT_BATCHES,
    ),
    Row(
        id="jsonrpc.concurrent",
        spec="2025-11-25 basic/index#messages",
        sentence="Requests run at once and are answered in any order.",
        transports=EVERYWHERE,
    ),
    Row(
        id="jsonrpc.error-id",
        spec="2025-11-25 basic/index#error-responses",
        sentence="An error has the id of a bad request where it can be read.",
    ),
    Row(
        id="jsonrpc.flood",
        spec="2025-11-25 basic/index#messages",
        sentence="Many requests at once are all answered.",
        revisions=ALL[-2:],
        transports=EVERYWHERE,
    ),
    Row(
        id="jsonrpc.id-again",
        spec="2026-07-28 basic/index#requests",
        sentence="An id may come again once it was answered.",
    ),
    Row(
        id="jsonrpc.id-echoed",
        spec="2025-11-25 basic/index#result-responses",
        sentence="An answer has the id of its request.",
    ),
    Row(
        id="jsonrpc.id-in-flight",
        spec="2026-07-28 basic/index#requests",
        sentence="An id in flight is rejected and the first request is still answered.",
        transports=ONE_LINK,
    ),
    Row(
        id="jsonrpc.id-types",
        spec="2025-11-25 basic/index#requests",
        sentence="A number and a text that look alike are different ids.",
        transports=EVERYWHERE,
    ),
    Row(
        id="jsonrpc.in-flight-limit",
        spec="2025-11-25 server/tools#security-considerations",
        sentence="Too many requests at once are rejected and the connection lives.",
        transports=ONE_LINK,
    ),
    Row(
        id="jsonrpc.invalid-request",
        spec="2025-11-25 basic/index#requests",
        sentence="JSON that is not a message is an invalid request and the connection lives.",
    ),
    Row(
        id="jsonrpc.large",
        spec="2025-11-25 basic/transports#stdio",
        sentence="A message of some megabytes arrives whole.",
        revisions=ALL[-2:],
        transports=("memory", "stdio"),
    ),
    Row(
        id="jsonrpc.large-body",
        spec="2025-11-25 basic/transports#sending-messages-to-the-server",
        sentence="A message of a megabyte arrives whole over HTTP.",
        transports=("http", "sse"),
    ),
    Row(
        id="jsonrpc.method-not-found",
        spec="2025-11-25 basic/index#error-responses",
        sentence="An unknown method is named in the error.",
    ),
    Row(
        id="jsonrpc.odd-values",
        spec="2025-11-25 basic/index#messages",
        sentence="Odd values are answered and the connection lives.",
    ),
    Row(
        id="jsonrpc.params-members",
        spec="2025-11-25 server/tools#error-handling",
        sentence="Params with a missing or ill typed member are rejected.",
    ),
    Row(
        id="jsonrpc.params-object",
        spec="2025-11-25 basic/index#requests",
        sentence="Params that are not an object are rejected.",
    ),
    Row(
        id="jsonrpc.parse-error",
        spec="2025-11-25 basic/index#messages",
        sentence="Invalid JSON is a parse error and the connection lives.",
    ),
    Row(
        id="jsonrpc.stray",
        spec="2025-11-25 basic/index#notifications",
        sentence="Notifications are never answered.",
    ),
    Row(
        id="jsonrpc.stray-answers",
        spec="2025-11-25 basic/index#responses",
        sentence="Stray answers are never answered.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="jsonrpc.stray-answers-stateless",
        spec="2026-07-28 basic/index#responses",
        sentence="Answers where nothing is ever asked are never answered.",
        revisions=STATELESS,
        transports=IN_MEMORY,
    ),
    Row(
        id="jsonrpc.too-deep",
        spec="2025-11-25 basic/index#messages",
        sentence="A message nested too deep is a parse error and the connection lives.",
    ),
    Row(
        id="jsonrpc.unicode",
        spec="2025-11-25 basic/transports#transports",
        sentence="Every character arrives as it was sent.",
        transports=EVERYWHERE,
    ),
    Row(
        id="jsonrpc.unknown-members",
        spec="2025-11-25 basic/index#messages",
        sentence="Unknown members are ignored.",
    ),
)
