"""How a client of ours answers, and what it does with what it is told."""

from __future__ import annotations

from tests.interaction.rows import (
    EVERYWHERE,
    HANDSHAKE,
    SINCE_2025_06,
    SINCE_2025_11,
    STATELESS,
    UNTIL_2025_06,
    URL_COMPLETING,
    Row,
)

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="client.asked-at-once",
        spec="2025-11-25 client/sampling#message-flow",
        sentence="A client answers while its own call waits.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="client.asked-cancelled",
        spec="2025-11-25 basic/utilities/cancellation#behavior-requirements",
        sentence="A question that the server withdraws is dropped and not answered.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="client.asked-never",
        spec="2026-07-28 basic/transports/stdio#sending-messages",
        sentence="A client writes no answers where servers may not ask.",
        revisions=STATELESS,
    ),
    Row(
        id="client.asked-ping",
        spec="2025-11-25 basic/utilities/ping#behavior-requirements",
        sentence="A client answers a ping.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="client.asked-tasks",
        spec="2025-11-25 basic/utilities/tasks#capabilities",
        sentence="A client without tasks does not have their methods.",
        revisions=URL_COMPLETING,
    ),
    Row(
        id="client.asked-undeclared",
        spec="2025-11-25 basic/lifecycle#operation",
        sentence="A client rejects requests that it did not declare.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="client.asked-undeclared-rounds",
        spec="2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow",
        sentence="A call fails that asks what the client did not declare.",
        revisions=STATELESS,
    ),
    Row(
        id="client.asked-unknown",
        spec="2025-11-25 basic/index#error-responses",
        sentence="A client does not know other methods.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="client.callback-fails",
        spec="2025-11-25 basic/index#notifications",
        sentence="A callback that fails does no harm.",
    ),
    Row(
        id="client.changes",
        spec="2025-11-25 server/tools#list-changed-notification",
        sentence="A client is notified of changes and reads the list again.",
        transports=EVERYWHERE,
    ),
    Row(
        id="client.changes-callback",
        spec="2025-11-25 server/tools#list-changed-notification",
        sentence="A callback is notified of changes.",
    ),
    Row(
        id="client.changes-resource",
        spec="2025-11-25 server/resources#subscriptions",
        sentence="A client is notified of a changed resource.",
    ),
    Row(
        id="client.elicitation",
        spec="2025-11-25 client/elicitation#requested-schema",
        sentence="A client fills in a form by its callback and adds defaults.",
        revisions=SINCE_2025_06,
    ),
    Row(
        id="client.elicitation-checked",
        spec="2025-11-25 client/elicitation#form-mode-security",
        sentence="An answer that does not fit the form does not leave.",
        revisions=SINCE_2025_06,
    ),
    Row(
        id="client.elicitation-complete",
        spec="2025-11-25 client/elicitation#completion-notifications-for-url-mode-elicitation",
        sentence="A notification that an unknown page was finished is ignored.",
        revisions=URL_COMPLETING,
    ),
    Row(
        id="client.elicitation-mode-absent",
        spec="2025-11-25 client/elicitation#elicitation-requests",
        sentence="A question without a mode is a form.",
        revisions=SINCE_2025_06,
    ),
    Row(
        id="client.elicitation-refused",
        spec="2025-11-25 client/elicitation#response-actions",
        sentence="A user may refuse and nothing else is said.",
        revisions=SINCE_2025_06,
    ),
    Row(
        id="client.elicitation-required",
        spec="2025-11-25 client/elicitation#url-elicitation-required-error",
        sentence="An error that asks for a page has the page.",
        revisions=URL_COMPLETING,
    ),
    Row(
        id="client.elicitation-url",
        spec="2025-11-25 client/elicitation#url-mode-elicitation-requests",
        sentence="A client with URL elicitation declares it and answers without content.",
        revisions=SINCE_2025_11,
    ),
    Row(
        id="client.elicitation-url-undeclared",
        spec="2025-11-25 client/elicitation#error-handling",
        sentence="A client that cannot open pages rejects them.",
        revisions=URL_COMPLETING,
    ),
    Row(
        id="client.listen-closed",
        spec="2026-07-28 basic/patterns/subscriptions#cancellation",
        sentence="A listener that is closed cancels its subscription.",
        revisions=STATELESS,
    ),
    Row(
        id="client.listen-ended",
        spec="2026-07-28 basic/patterns/subscriptions#graceful-closure",
        sentence="A subscription that the server ends ends the listener.",
        revisions=STATELESS,
    ),
    Row(
        id="client.listen-filter",
        spec="2026-07-28 basic/patterns/subscriptions#acknowledgment",
        sentence="A client asks for what it wants and learns what it gets.",
        revisions=STATELESS,
    ),
    Row(
        id="client.listen-id",
        spec="2026-07-28 basic/patterns/subscriptions#receiving-notifications",
        sentence="A notification belongs to the subscription that it names.",
        revisions=STATELESS,
    ),
    Row(
        id="client.log",
        spec="2025-11-25 server/utilities/logging#log-message-notifications",
        sentence="Log messages reach the callback.",
    ),
    Row(
        id="client.log-level",
        spec="2025-11-25 server/utilities/logging#setting-log-level",
        sentence="A client sets the level by a request.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="client.log-level-request",
        spec="2026-07-28 server/utilities/logging#per-request-log-level",
        sentence="A client sets the level in each request.",
        revisions=STATELESS,
    ),
    Row(
        id="client.notice-unknown",
        spec="2025-11-25 basic/index#notifications",
        sentence="A notification of an unknown kind goes to the callback and does no harm.",
    ),
    Row(
        id="client.notice-unreadable",
        spec="2025-11-25 basic/index#notifications",
        sentence="A notification that cannot be read does no harm.",
    ),
    Row(
        id="client.roots",
        spec="2025-11-25 client/roots#root",
        sentence="A client names its folders as file uris.",
    ),
    Row(
        id="client.roots-changed",
        spec="2025-11-25 client/roots#root-list-changes",
        sentence="A client tells that its folders changed.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="client.rounds",
        spec="2026-07-28 basic/patterns/mrtr#client-requirements-basic-workflow",
        sentence="A retry has the answers by key the same state and a new id.",
        revisions=STATELESS,
    ),
    Row(
        id="client.rounds-apart",
        spec="2026-07-28 basic/patterns/mrtr#client-requirements-basic-workflow",
        sentence="Answers and state go to their own call alone.",
        revisions=STATELESS,
    ),
    Row(
        id="client.rounds-elsewhere",
        spec="2026-07-28 basic/patterns/mrtr#supported-requests",
        sentence="A question where none may be is invalid.",
        revisions=STATELESS,
    ),
    Row(
        id="client.rounds-empty",
        spec="2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow",
        sentence="A result that asks nothing is invalid.",
        revisions=STATELESS,
    ),
    Row(
        id="client.rounds-envelope",
        spec="2026-07-28 basic/index#meta",
        sentence="Each round has the client info.",
        revisions=STATELESS,
    ),
    Row(
        id="client.rounds-handshake",
        spec="2026-07-28 basic/patterns/mrtr#multi-round-trip-requests",
        sentence="A question in a result is invalid where there are none.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="client.rounds-limit",
        spec="2026-07-28 basic/patterns/mrtr#client-requirements-basic-workflow",
        sentence="A client ends a call that asks for ever.",
        revisions=STATELESS,
    ),
    Row(
        id="client.rounds-stateless",
        spec="2026-07-28 basic/patterns/mrtr#client-requirements-basic-workflow",
        sentence="A retry has no state if none was given.",
        revisions=STATELESS,
    ),
    Row(
        id="client.rounds-wait",
        spec="2026-07-28 basic/patterns/mrtr#client-requirements-basic-workflow",
        sentence="A result with a state alone is retried with it.",
        revisions=STATELESS,
    ),
    Row(
        id="client.sampling",
        spec="2025-11-25 client/sampling#creating-messages",
        sentence="A client samples by its callback.",
    ),
    Row(
        id="client.sampling-blocks",
        spec="2025-06-18 schema#createmessageresult",
        sentence="An answer of several blocks is one where only one is known.",
        revisions=UNTIL_2025_06,
    ),
    Row(
        id="client.sampling-failed",
        spec="2025-11-25 client/sampling#error-handling",
        sentence="A client whose model fails has no internal details.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="client.sampling-invalid",
        spec="2025-11-25 client/sampling#error-handling",
        sentence="A client rejects sampling that makes no sense.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="client.sampling-tools-undeclared",
        spec="2025-11-25 client/sampling#tools-in-sampling",
        sentence="A client rejects tools that it did not declare.",
        revisions=SINCE_2025_11,
    ),
)
