"""How a client of ours opens a conversation."""

from __future__ import annotations

from tests.interaction.rows import ALL, HANDSHAKE, IN_MEMORY, STATELESS, Row

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="client.capabilities",
        spec="2025-11-25 basic/lifecycle#capability-negotiation",
        sentence="A client declares what it has a callback for.",
    ),
    Row(
        id="client.capabilities-experimental",
        spec="2025-11-25 basic/lifecycle#capability-negotiation",
        sentence="A client declares experiments.",
    ),
    Row(
        id="client.closed",
        spec="2025-11-25 basic/lifecycle#shutdown",
        sentence="A closed client rejects calls and has closed its link.",
    ),
    Row(
        id="client.connect-timeout",
        spec="2025-11-25 basic/lifecycle#timeouts",
        sentence="A client does not wait for ever for a silent server.",
    ),
    Row(
        id="client.envelope",
        spec="2026-07-28 basic/index#meta",
        sentence="Each request has the client info version and capabilities.",
        revisions=STATELESS,
    ),
    Row(
        id="client.envelope-absent",
        spec="2026-07-28 basic/versioning#terminology",
        sentence="No request has an envelope after a handshake.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="client.gated",
        spec="2025-11-25 basic/lifecycle#operation",
        sentence="A client does not use what the server did not declare.",
    ),
    Row(
        id="client.gated-revision",
        spec="2026-07-28 changelog#major-changes",
        sentence="A client does not use what the revision does not have.",
        revisions=STATELESS,
    ),
    Row(
        id="client.gated-unknown",
        spec="2024-11-05 server/utilities/completion#capabilities",
        sentence="A client may complete where no capability says that it can.",
        revisions=ALL[:1],
    ),
    Row(
        id="client.initialize",
        spec="2025-11-25 basic/lifecycle#initialization",
        sentence="A client sends its info capabilities and version.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="client.initialize-uncancelled",
        spec="2025-11-25 basic/utilities/cancellation#behavior-requirements",
        sentence="A client does not cancel its handshake on the wire.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="client.initialized",
        spec="2025-11-25 basic/lifecycle#initialization",
        sentence="A client sends initialized before anything else.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="client.ping",
        spec="2025-11-25 basic/utilities/ping#behavior-requirements",
        sentence="A client pings by what the revision has.",
    ),
    Row(
        id="client.probe",
        spec="2026-07-28 basic/transports/stdio#backward-compatibility",
        sentence="A client asks what the server speaks before all else.",
        revisions=STATELESS,
    ),
    Row(
        id="client.probe-disjoint",
        spec="2026-07-28 basic/versioning#protocol-version-negotiation",
        sentence="A client without a common version raises.",
        revisions=STATELESS,
    ),
    Row(
        id="client.probe-modern-error",
        spec="2026-07-28 basic/transports/stdio#backward-compatibility",
        sentence="A client does not fall back from an error that only newer servers know.",
        revisions=STATELESS,
    ),
    Row(
        id="client.probe-refused",
        spec="2026-07-28 basic/transports/stdio#backward-compatibility",
        sentence="A client falls back to the handshake whatever the error.",
        revisions=HANDSHAKE,
        transports=("memory", "http"),
    ),
    Row(
        id="client.probe-silent",
        spec="2026-07-28 basic/transports/stdio#backward-compatibility",
        sentence="A client falls back to the handshake when its probe is not answered.",
        revisions=HANDSHAKE,
        transports=IN_MEMORY,
    ),
    Row(
        id="client.probe-unsupported",
        spec="2026-07-28 basic/versioning#protocol-version-negotiation",
        sentence="A client uses the newest common version of an error.",
        revisions=STATELESS,
    ),
    Row(
        id="client.server-known",
        spec="2025-11-25 basic/lifecycle#initialization",
        sentence="A client has the server info and instructions.",
    ),
    Row(
        id="client.server-lenient",
        spec="2025-11-25 schema#initializeresult",
        sentence="A client accepts missing and unknown members in initialize.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="client.unopened",
        spec="2025-11-25 basic/lifecycle#initialization",
        sentence="A client that was not opened sends nothing.",
    ),
    Row(
        id="client.version-lower",
        spec="2025-11-25 basic/lifecycle#version-negotiation",
        sentence="A client speaks whichever version it knows and was answered.",
        revisions=HANDSHAKE[-1:],
    ),
    Row(
        id="client.version-pinned",
        spec="2025-11-25 basic/lifecycle#version-negotiation",
        sentence="A client with a pinned version uses no other.",
        revisions=HANDSHAKE[1:],
    ),
    Row(
        id="client.version-unknown",
        spec="2025-11-25 basic/lifecycle#version-negotiation",
        sentence="A client leaves when it cannot speak the answer and names both sides.",
        revisions=HANDSHAKE[-1:],
    ),
    Row(
        id="client.waits-for-initialize",
        spec="2025-11-25 basic/lifecycle#initialization",
        sentence="A client sends nothing before its handshake is answered.",
        revisions=HANDSHAKE,
    ),
)
