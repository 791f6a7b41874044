"""Subscriptions."""

from __future__ import annotations

from tests.interaction.rows import EVERYWHERE, STATELESS, Row

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="subscriptions.acknowledged",
        spec="2026-07-28 basic/patterns/subscriptions#acknowledgment",
        sentence="The acknowledgement comes first and names the subscription.",
        revisions=STATELESS,
        transports=EVERYWHERE,
    ),
    Row(
        id="subscriptions.acknowledged-offered",
        spec="2026-07-28 basic/patterns/subscriptions#acknowledgment",
        sentence="Only what the server can tell is acknowledged.",
        revisions=STATELESS,
    ),
    Row(
        id="subscriptions.cancelled",
        spec="2026-07-28 basic/patterns/subscriptions#cancellation",
        sentence="A listener that cancels gets no more notifications and is not answered.",
        revisions=STATELESS,
        transports=EVERYWHERE,
    ),
    Row(
        id="subscriptions.ended",
        spec="2026-07-28 basic/patterns/subscriptions#graceful-closure",
        sentence="A server that ends a subscription sends a cancellation and a result.",
        revisions=STATELESS,
        transports=EVERYWHERE,
    ),
    Row(
        id="subscriptions.notified",
        spec="2026-07-28 basic/patterns/subscriptions#receiving-notifications",
        sentence="A listener is notified of a changed list under the id of its subscription.",
        revisions=STATELESS,
    ),
    Row(
        id="subscriptions.once",
        spec="2026-07-28 server/tools#list-changed-notification",
        sentence="Many changes at once are one notice.",
        revisions=STATELESS,
    ),
    Row(
        id="subscriptions.params",
        spec="2026-07-28 basic/patterns/subscriptions#notification-filter",
        sentence="A subscription needs a filter.",
        revisions=STATELESS,
    ),
    Row(
        id="subscriptions.removal",
        spec="2026-07-28 server/tools#list-changed-notification",
        sentence="Removing a tool is a change.",
        revisions=STATELESS,
    ),
    Row(
        id="subscriptions.resource",
        spec="2026-07-28 server/resources#subscriptions",
        sentence="A listener is notified of a changed resource.",
        revisions=STATELESS,
    ),
    Row(
        id="subscriptions.several",
        spec="2026-07-28 basic/patterns/subscriptions#multiple-concurrent-subscriptions",
        sentence="Each subscription gets its own notifications.",
        revisions=STATELESS,
        transports=EVERYWHERE,
    ),
    Row(
        id="subscriptions.unasked",
        spec="2026-07-28 basic/patterns/subscriptions#opening-a-stream",
        sentence="A client without a subscription is not notified.",
        revisions=STATELESS,
    ),
    Row(
        id="subscriptions.unwanted",
        spec="2026-07-28 basic/patterns/subscriptions#opening-a-stream",
        sentence="A subscription gets no changes outside its filter.",
        revisions=STATELESS,
    ),
)
