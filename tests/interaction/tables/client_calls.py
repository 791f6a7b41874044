"""How a client of ours calls and takes answers."""

from __future__ import annotations

from tests.interaction.rows import BATCHING, HANDSHAKE, ONE_LINK, SINCE_2025_06, STATELESS, Row

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="client.answer-id-type",
        spec="2025-11-25 basic/index#result-responses",
        sentence="An answer whose id only looks alike is not taken.",
        transports=ONE_LINK,
    ),
    Row(
        id="client.answer-order",
        spec="2025-11-25 basic/index#result-responses",
        sentence="Answers may come in any order.",
    ),
    Row(
        id="client.answer-twice",
        spec="2025-11-25 basic/index#result-responses",
        sentence="A second answer is dropped.",
        transports=ONE_LINK,
    ),
    Row(
        id="client.answer-unknown",
        spec="2025-11-25 basic/index#result-responses",
        sentence="An answer to nothing is dropped and counted.",
        transports=ONE_LINK,
    ),
    Row(
        id="client.answer-unreadable",
        spec="2025-03-26 basic/index#responses",
        sentence="An answer that makes no sense fails its call alone.",
    ),
    Row(
        id="client.batch",
        spec="2025-03-26 basic/index#batching",
        sentence="A client accepts batches.",
        revisions=BATCHING,
    ),
    Row(
        id="client.cancel",
        spec="2026-07-28 basic/transports/stdio#cancellation",
        sentence="A call that is given up is cancelled on the wire.",
    ),
    Row(
        id="client.cancel-done",
        spec="2025-11-25 basic/utilities/cancellation#behavior-requirements",
        sentence="A call that was answered is not cancelled.",
    ),
    Row(
        id="client.cancel-late",
        spec="2025-11-25 basic/utilities/cancellation#behavior-requirements",
        sentence="An answer to a cancelled call is dropped.",
        transports=ONE_LINK,
    ),
    Row(
        id="client.closed-elsewhere",
        spec="2025-11-25 basic/lifecycle#shutdown",
        sentence="Any task may close a client and its calls fail at once.",
    ),
    Row(
        id="client.errors",
        spec="2025-11-25 basic/index#error-responses",
        sentence="An error answer is an exception with its code message and data.",
    ),
    Row(
        id="client.garbage",
        spec="2025-11-25 basic/index#messages",
        sentence="A client survives invalid messages.",
    ),
    Row(
        id="client.ids",
        spec="2025-11-25 basic/index#requests",
        sentence="A client never uses an id twice.",
    ),
    Row(
        id="client.lost",
        spec="2025-11-25 basic/lifecycle#error-handling",
        sentence="Calls fail at once when the connection is lost.",
    ),
    Row(
        id="client.many",
        spec="2025-11-25 basic/lifecycle#shutdown",
        sentence="Clients are closed in any order.",
    ),
    Row(
        id="client.not-found",
        spec="2026-07-28 server/resources#error-handling",
        sentence="Both codes of an unknown resource are understood.",
    ),
    Row(
        id="client.pages",
        spec="2026-07-28 server/utilities/pagination#implementation-guidelines",
        sentence="A client reads all pages and returns cursors unchanged.",
    ),
    Row(
        id="client.pages-limit",
        spec="2025-11-25 server/utilities/pagination#implementation-guidelines",
        sentence="A client ends a list that never ends.",
    ),
    Row(
        id="client.pages-loop",
        spec="2025-11-25 server/utilities/pagination#implementation-guidelines",
        sentence="A client ends a list whose cursor comes again.",
    ),
    Row(
        id="client.progress",
        spec="2025-11-25 basic/utilities/progress#progress-flow",
        sentence="Progress reaches the callback of its call.",
    ),
    Row(
        id="client.progress-bad",
        spec="2025-11-25 basic/utilities/progress#behavior-requirements",
        sentence="Progress that fits nothing or does not increase is ignored.",
    ),
    Row(
        id="client.progress-tokens",
        spec="2025-11-25 basic/utilities/progress#progress-flow",
        sentence="Tokens of calls in flight are different.",
    ),
    Row(
        id="client.progress-unwanted",
        spec="2025-11-25 basic/utilities/progress#progress-flow",
        sentence="A call without a callback asks for no progress.",
    ),
    Row(
        id="client.result-type",
        spec="2026-07-28 basic/index#resulttype",
        sentence="A result of an unknown kind is invalid.",
        revisions=STATELESS,
    ),
    Row(
        id="client.result-type-absent",
        spec="2026-07-28 basic/index#resulttype",
        sentence="A result that does not say its kind is complete.",
        revisions=STATELESS,
    ),
    Row(
        id="client.structured-checked",
        spec="2025-06-18 server/tools#output-schema",
        sentence="A structured result that breaks the tool's schema is rejected.",
        revisions=SINCE_2025_06,
    ),
    Row(
        id="client.structured-error",
        spec="2025-06-18 server/tools#error-handling",
        sentence="A failed tool need not keep its schema.",
        revisions=SINCE_2025_06,
    ),
    Row(
        id="client.structured-schema-broken",
        spec="2026-07-28 basic/index#ref-resolution",
        sentence="A tool with a broken output schema does not break the list.",
        revisions=SINCE_2025_06,
    ),
    Row(
        id="client.timeout",
        spec="2025-11-25 basic/lifecycle#timeouts",
        sentence="A call without an answer in time is cancelled and fails.",
    ),
    Row(
        id="client.timeout-asking",
        spec="2025-11-25 basic/lifecycle#timeouts",
        sentence="The time in which a person is asked does not count.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="client.timeout-call",
        spec="2025-11-25 basic/lifecycle#timeouts",
        sentence="A call may have a time of its own.",
    ),
    Row(
        id="client.timeout-default",
        spec="2025-11-25 basic/lifecycle#timeouts",
        sentence="A call has a default timeout.",
    ),
    Row(
        id="client.timeout-progress",
        spec="2025-11-25 basic/lifecycle#timeouts",
        sentence="Progress keeps a call alive.",
    ),
    Row(
        id="client.timeout-total",
        spec="2025-11-25 basic/lifecycle#timeouts",
        sentence="Progress does not keep a call alive for ever.",
    ),
    Row(
        id="client.tool-error",
        spec="2025-11-25 server/tools#error-handling",
        sentence="A failed tool is an exception with its text.",
    ),
)
