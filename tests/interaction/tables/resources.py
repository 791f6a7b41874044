"""Resources."""

from __future__ import annotations

from tests.interaction.rows import ALL, EVERYWHERE, HANDSHAKE, SINCE_2025_06, STATELESS, Row

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="resources.annotations-modified",
        spec="2025-06-18 server/resources#annotations",
        sentence="Annotations say when a resource changed.",
        revisions=SINCE_2025_06,
    ),
    Row(
        id="resources.annotations-modified-absent",
        spec="2025-03-26 schema#annotations",
        sentence="Annotations do not say when a resource changed where they cannot.",
        revisions=ALL[:2],
    ),
    Row(
        id="resources.failure-unexpected",
        spec="2025-11-25 server/resources#error-handling",
        sentence="An unexpected failure is internal and has no internal details.",
        transports=EVERYWHERE,
    ),
    Row(
        id="resources.failure-wanted",
        spec="2025-11-25 server/resources#error-handling",
        sentence="A resource's own error is reported.",
    ),
    Row(
        id="resources.list",
        spec="2025-11-25 server/resources#listing-resources",
        sentence="Resources are listed by uri and templates are not among them.",
    ),
    Row(
        id="resources.list-members",
        spec="2025-11-25 server/resources#resource",
        sentence="A resource is listed with the members that the revision has.",
    ),
    Row(
        id="resources.not-found",
        spec="2025-11-25 server/resources#error-handling",
        sentence="An unknown resource has an error of its own.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="resources.not-found-invalid",
        spec="2026-07-28 server/resources#error-handling",
        sentence="An unknown resource is a case of invalid params.",
        revisions=STATELESS,
    ),
    Row(
        id="resources.read-blob",
        spec="2025-11-25 server/resources#binary-content",
        sentence="Bytes are read as base64.",
    ),
    Row(
        id="resources.read-template",
        spec="2025-11-25 server/resources#resource-templates",
        sentence="A uri of a template is read with its variables decoded.",
    ),
    Row(
        id="resources.read-text",
        spec="2025-11-25 server/resources#reading-resources",
        sentence="A text is read with its uri and type.",
        transports=EVERYWHERE,
    ),
    Row(
        id="resources.subscribe",
        spec="2025-11-25 server/resources#subscriptions",
        sentence="A subscriber is notified of a change by uri.",
        revisions=HANDSHAKE,
        transports=EVERYWHERE,
    ),
    Row(
        id="resources.subscribe-others",
        spec="2025-11-25 server/resources#subscriptions",
        sentence="A subscriber is not notified of other resources.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="resources.subscribe-own",
        spec="2025-11-25 server/resources#subscriptions",
        sentence="A subscription belongs to the client that made it.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="resources.subscribe-twice",
        spec="2025-11-25 server/resources#subscriptions",
        sentence="A client that subscribed twice is notified once.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="resources.subscribe-unknown",
        spec="2025-11-25 server/resources#error-handling",
        sentence="A subscription to an unknown resource is rejected.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="resources.templates",
        spec="2025-11-25 server/resources#resource-templates",
        sentence="Templates are listed apart.",
    ),
    Row(
        id="resources.traversal",
        spec="2026-07-28 server/resources#security-considerations",
        sentence="A uri that climbs out of its template is rejected.",
    ),
    Row(
        id="resources.unsubscribe",
        spec="2025-11-25 schema#unsubscriberequest",
        sentence="An unsubscribed client is not notified.",
        revisions=HANDSHAKE,
    ),
)
