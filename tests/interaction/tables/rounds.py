"""Calls of several rounds."""

from __future__ import annotations

from tests.interaction.rows import EVERYWHERE, STATELESS, Row

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="rounds.answered",
        spec="2026-07-28 basic/patterns/mrtr#basic-workflow",
        sentence="The retry with the answers gets the result.",
        revisions=STATELESS,
    ),
    Row(
        id="rounds.answers-without-state",
        spec="2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow",
        sentence="Answers without their state are not believed.",
        revisions=STATELESS,
    ),
    Row(
        id="rounds.asked",
        spec="2026-07-28 basic/patterns/mrtr#inputrequiredresult",
        sentence="A question travels inside a result with a key and a state.",
        revisions=STATELESS,
        transports=EVERYWHERE,
    ),
    Row(
        id="rounds.capability-again",
        spec="2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow",
        sentence="Each round declares what the client can.",
        revisions=STATELESS,
    ),
    Row(
        id="rounds.connection-free",
        spec="2026-07-28 basic/index#statelessness",
        sentence="A call goes on over another connection.",
        revisions=STATELESS,
    ),
    Row(
        id="rounds.groups",
        spec="2026-07-28 basic/patterns/mrtr#inputrequests",
        sentence="Questions of a task group leave in one round.",
        revisions=STATELESS,
    ),
    Row(
        id="rounds.left",
        spec="2026-07-28 basic/patterns/mrtr#basic-workflow",
        sentence="A handler that is left for a question cleans up.",
        revisions=STATELESS,
    ),
    Row(
        id="rounds.limit",
        spec="2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow",
        sentence="A question that is never settled ends.",
        revisions=STATELESS,
    ),
    Row(
        id="rounds.no-requests",
        spec="2026-07-28 basic/patterns/index",
        sentence="A server sends no requests of its own.",
        revisions=STATELESS,
        transports=EVERYWHERE,
    ),
    Row(
        id="rounds.other-question",
        spec="2026-07-28 basic/patterns/mrtr#security-considerations",
        sentence="An answer is given only to the question that was asked.",
        revisions=STATELESS,
    ),
    Row(
        id="rounds.partial",
        spec="2026-07-28 basic/patterns/mrtr#error-handling",
        sentence="A question that was not answered is asked again.",
        revisions=STATELESS,
    ),
    Row(
        id="rounds.responses-invalid",
        spec="2026-07-28 basic/patterns/mrtr#error-handling",
        sentence="Answers that are not an object are invalid.",
        revisions=STATELESS,
    ),
    Row(
        id="rounds.shared-keys",
        spec="2026-07-28 basic/index#statelessness",
        sentence="Servers with the same keys take each other's states.",
        revisions=STATELESS,
    ),
    Row(
        id="rounds.single-use",
        spec="2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow",
        sentence="A state that may be used once is rejected the second time.",
        revisions=STATELESS,
    ),
    Row(
        id="rounds.state-expired",
        spec="2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow",
        sentence="A state that is too old is rejected.",
        revisions=STATELESS,
    ),
    Row(
        id="rounds.state-one-sentence",
        spec="2026-07-28 basic/patterns/mrtr#security-considerations",
        sentence="Every refused state is rejected with the same sentence.",
        revisions=STATELESS,
    ),
    Row(
        id="rounds.state-opaque",
        spec="2026-07-28 basic/patterns/mrtr#security-considerations",
        sentence="A state does not show what it holds.",
        revisions=STATELESS,
    ),
    Row(
        id="rounds.state-other-arguments",
        spec="2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow",
        sentence="A state is rejected with other arguments.",
        revisions=STATELESS,
    ),
    Row(
        id="rounds.state-other-method",
        spec="2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow",
        sentence="A state is rejected by another method.",
        revisions=STATELESS,
    ),
    Row(
        id="rounds.state-other-server",
        spec="2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow",
        sentence="A state is rejected by another server.",
        revisions=STATELESS,
    ),
    Row(
        id="rounds.state-other-tool",
        spec="2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow",
        sentence="A state is rejected by another tool.",
        revisions=STATELESS,
    ),
    Row(
        id="rounds.state-tampered",
        spec="2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow",
        sentence="A state that was changed is rejected.",
        revisions=STATELESS,
    ),
    Row(
        id="rounds.swallowed",
        spec="2026-07-28 basic/patterns/mrtr#basic-workflow",
        sentence="A handler that does not want to be left asks nevertheless.",
        revisions=STATELESS,
    ),
    Row(
        id="rounds.together",
        spec="2026-07-28 basic/patterns/mrtr#inputrequests",
        sentence="Questions asked at once leave in one round.",
        revisions=STATELESS,
    ),
    Row(
        id="rounds.told-once",
        spec="2026-07-28 basic/patterns/progress#behavior-requirements",
        sentence="Progress of an earlier round is not sent again.",
        revisions=STATELESS,
    ),
    Row(
        id="rounds.unanswered",
        spec="2026-07-28 basic/patterns/mrtr#error-handling",
        sentence="A retry without any answer is asked again.",
        revisions=STATELESS,
    ),
    Row(
        id="rounds.unexpected",
        spec="2026-07-28 basic/patterns/mrtr#error-handling",
        sentence="An unexpected response is ignored.",
        revisions=STATELESS,
    ),
)
