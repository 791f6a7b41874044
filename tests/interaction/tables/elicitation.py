"""Elicitation."""

from __future__ import annotations

from tests.interaction.rows import (
    ALL,
    ELICITING,
    EVERYWHERE,
    SINCE_2025_06,
    SINCE_2025_11,
    STATELESS,
    URL_COMPLETING,
    Row,
)

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="elicitation.at-once",
        spec="2026-07-28 basic/patterns/mrtr#inputrequests",
        sentence="Several questions are asked at once.",
        revisions=SINCE_2025_06,
    ),
    Row(
        id="elicitation.choices",
        spec="2025-11-25 client/elicitation#requested-schema",
        sentence="A choice is a list of values.",
        revisions=SINCE_2025_06,
    ),
    Row(
        id="elicitation.degrade",
        spec="2025-11-25 basic/lifecycle#operation",
        sentence="A handler can find out beforehand.",
    ),
    Row(
        id="elicitation.effects",
        spec="2026-07-28 basic/patterns/mrtr#basic-workflow",
        sentence="Once runs a function once in all rounds.",
        revisions=SINCE_2025_06,
    ),
    Row(
        id="elicitation.elsewhere",
        spec="2026-07-28 basic/patterns/mrtr#supported-requests",
        sentence="Other methods cannot send requests to the caller.",
        revisions=SINCE_2025_06,
    ),
    Row(
        id="elicitation.failed",
        spec="2025-11-25 client/elicitation#error-handling",
        sentence="A client that fails to ask fails the call and nothing else.",
        revisions=ELICITING,
    ),
    Row(
        id="elicitation.form",
        spec="2025-06-18 client/elicitation#protocol-messages",
        sentence="A form has a message and a flat schema and its answer is typed.",
        revisions=SINCE_2025_06,
        transports=EVERYWHERE,
    ),
    Row(
        id="elicitation.form-flat",
        spec="2025-11-25 client/elicitation#requested-schema",
        sentence="A form that is not flat is never sent.",
        revisions=SINCE_2025_06,
    ),
    Row(
        id="elicitation.form-members",
        spec="2025-06-18 schema#elicitrequest",
        sentence="A form has only the members of a revision without modes.",
        revisions=ALL[2:3],
    ),
    Row(
        id="elicitation.form-mode",
        spec="2025-11-25 client/elicitation#form-mode-elicitation-requests",
        sentence="A form request has only the mode form.",
        revisions=SINCE_2025_11,
    ),
    Row(
        id="elicitation.form-undeclared",
        spec="2025-11-25 client/elicitation#capabilities",
        sentence="A client of pages alone is not asked to show a form.",
        revisions=SINCE_2025_11,
    ),
    Row(
        id="elicitation.invalid",
        spec="2025-11-25 client/elicitation#form-mode-security",
        sentence="An answer that does not fit the form is asked again.",
        revisions=SINCE_2025_06,
    ),
    Row(
        id="elicitation.loop",
        spec="2026-07-28 basic/patterns/mrtr#inputrequests",
        sentence="The same question in a loop is asked each time.",
        revisions=SINCE_2025_06,
    ),
    Row(
        id="elicitation.places",
        spec="2026-07-28 basic/patterns/mrtr#supported-requests",
        sentence="Prompts and resources can ask too.",
        revisions=SINCE_2025_06,
    ),
    Row(
        id="elicitation.refused",
        spec="2025-06-18 client/elicitation#response-actions",
        sentence="A user may decline or cancel.",
        revisions=SINCE_2025_06,
    ),
    Row(
        id="elicitation.several",
        spec="2026-07-28 basic/patterns/mrtr#basic-workflow",
        sentence="Several questions are asked one after the other.",
        revisions=SINCE_2025_06,
    ),
    Row(
        id="elicitation.thread",
        spec="2025-11-25 client/elicitation#message-flow",
        sentence="A function in a thread asks like any other.",
        revisions=SINCE_2025_06,
        transports=EVERYWHERE,
    ),
    Row(
        id="elicitation.two-calls",
        spec="2025-11-25 client/elicitation#message-flow",
        sentence="Two calls ask and each gets its own answer.",
        revisions=ELICITING,
    ),
    Row(
        id="elicitation.undeclared",
        spec="2025-11-25 client/elicitation#capabilities",
        sentence="A client that cannot ask its user is not asked and the tool fails.",
        revisions=ELICITING,
    ),
    Row(
        id="elicitation.undeclared-error",
        spec="2026-07-28 basic/index#meta",
        sentence="A request that needs a capability says which it lacks.",
        revisions=STATELESS,
        transports=EVERYWHERE,
    ),
    Row(
        id="elicitation.unknown",
        spec="2025-06-18 changelog#major-changes",
        sentence="A client of a revision without elicitation gets no form even if it declares it.",
        revisions=ALL[:2],
    ),
    Row(
        id="elicitation.url",
        spec="2025-11-25 client/elicitation#url-mode-elicitation-requests",
        sentence="A page to open has its mode message and url.",
        revisions=SINCE_2025_11,
        transports=EVERYWHERE,
    ),
    Row(
        id="elicitation.url-id",
        spec="2025-11-25 client/elicitation#completion-notifications-for-url-mode-elicitation",
        sentence="A URL elicitation has an id and its completion is notified under it.",
        revisions=URL_COMPLETING,
        transports=EVERYWHERE,
    ),
    Row(
        id="elicitation.url-scheme",
        spec="2025-11-25 client/elicitation#safe-url-handling",
        sentence="Only pages of the web are asked for.",
        revisions=SINCE_2025_11,
    ),
    Row(
        id="elicitation.url-undeclared",
        spec="2025-11-25 client/elicitation#capabilities",
        sentence="A client of forms alone is not sent to a page.",
        revisions=SINCE_2025_11,
    ),
    Row(
        id="elicitation.url-unknown",
        spec="2025-11-25 changelog#minor-changes",
        sentence="A revision without pages is never sent to one.",
        revisions=ALL[2:3],
    ),
    Row(
        id="elicitation.wrong-kind",
        spec="2026-07-28 basic/patterns/mrtr#error-handling",
        sentence="An answer of the wrong kind fails the call.",
        revisions=SINCE_2025_06,
    ),
)
