"""Opening a conversation: the handshake, capabilities, and what is agreed."""

from __future__ import annotations

from tests.interaction.rows import ALL, ELICITING, EVERYWHERE, HANDSHAKE, SINCE_2025_03, Row

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="lifecycle.both-eras",
        spec="2026-07-28 basic/versioning#compatibility-matrix",
        sentence="A request with an envelope is served on the same connection as a session.",
        revisions=HANDSHAKE,
        transports=EVERYWHERE,
    ),
    Row(
        id="lifecycle.capabilities-declared",
        spec="2025-11-25 basic/lifecycle#capability-negotiation",
        sentence="Offered kinds are declared.",
    ),
    Row(
        id="lifecycle.capabilities-honest",
        spec="2025-11-25 basic/lifecycle#capability-negotiation",
        sentence="Kinds that are not offered are not declared.",
        transports=EVERYWHERE,
    ),
    Row(
        id="lifecycle.completions-declared",
        spec="2025-03-26 server/utilities/completion#capabilities",
        sentence="Completions are declared.",
        revisions=SINCE_2025_03,
    ),
    Row(
        id="lifecycle.completions-unknown",
        spec="2024-11-05 schema#servercapabilities",
        sentence="Completions are not declared where no such capability exists.",
        revisions=ALL[:1],
    ),
    Row(
        id="lifecycle.discover-in-session",
        spec="2026-07-28 basic/versioning#backward-compatibility-with-initialization-based-versions",
        sentence="A session has no discover.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="lifecycle.experimental",
        spec="2025-11-25 basic/lifecycle#capability-negotiation",
        sentence="Experimental capabilities are readable on both sides.",
    ),
    Row(
        id="lifecycle.initialize-params",
        spec="2025-11-25 basic/lifecycle#initialization",
        sentence="An incomplete initialize is rejected and may be repeated.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="lifecycle.initialize-unknown-members",
        spec="2025-11-25 basic/lifecycle#initialization",
        sentence="Unknown members of initialize do no harm.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="lifecycle.instructions",
        spec="2025-11-25 schema#initializeresult",
        sentence="The instructions come with the opening.",
    ),
    Row(
        id="lifecycle.own-meta",
        spec="2025-11-25 basic/index#meta",
        sentence="Keys of others in meta reach the handler.",
    ),
    Row(
        id="lifecycle.own-methods",
        spec="2025-11-25 basic/lifecycle#capability-negotiation",
        sentence="A custom method is served.",
    ),
    Row(
        id="lifecycle.ping",
        spec="2025-11-25 basic/utilities/ping#behavior-requirements",
        sentence="A ping is answered by an empty result.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="lifecycle.ping-before-initialize",
        spec="2025-11-25 basic/lifecycle#initialization",
        sentence="A ping is answered before the handshake.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="lifecycle.pipelined",
        spec="2025-11-25 basic/lifecycle#initialization",
        sentence="A request right behind initialize is served.",
        revisions=HANDSHAKE,
        transports=EVERYWHERE,
    ),
    Row(
        id="lifecycle.questions-before-initialized",
        spec="2025-11-25 basic/lifecycle#initialization",
        sentence="No question is asked before the client is ready.",
        revisions=ELICITING,
    ),
    Row(
        id="lifecycle.quiet-before-initialized",
        spec="2025-11-25 basic/lifecycle#initialization",
        sentence="No notice is sent before the client is ready.",
        revisions=HANDSHAKE,
        transports=EVERYWHERE,
    ),
    Row(
        id="lifecycle.request-before-initialize",
        spec="2025-11-25 basic/lifecycle#initialization",
        sentence="Other requests are rejected before the handshake.",
        revisions=HANDSHAKE,
        transports=EVERYWHERE,
    ),
    Row(
        id="lifecycle.second-initialize",
        spec="2025-11-25 basic/lifecycle#initialization",
        sentence="A second initialize is rejected.",
        revisions=HANDSHAKE,
        transports=EVERYWHERE,
    ),
    Row(
        id="lifecycle.server-info",
        spec="2025-11-25 basic/lifecycle#initialization",
        sentence="Initialize returns the server info.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="lifecycle.server-info-fields",
        spec="2025-11-25 schema#implementation",
        sentence="The server info has only members of the revision.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="lifecycle.undeclared",
        spec="2025-11-25 basic/lifecycle#operation",
        sentence="A method of a capability that was not declared is not found.",
    ),
    Row(
        id="lifecycle.unknown-capabilities",
        spec="2025-11-25 schema#clientcapabilities",
        sentence="Unknown capabilities are kept and unlock nothing.",
    ),
    Row(
        id="lifecycle.version-echoed",
        spec="2025-11-25 basic/lifecycle#version-negotiation",
        sentence="The asked version is answered.",
        revisions=HANDSHAKE,
        transports=EVERYWHERE,
    ),
    Row(
        id="lifecycle.version-served",
        spec="2025-11-25 basic/lifecycle#version-negotiation",
        sentence="A server of one revision answers with that one.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="lifecycle.version-unknown",
        spec="2025-11-25 basic/lifecycle#version-negotiation",
        sentence="An unknown version is answered with the newest that has a handshake.",
        revisions=HANDSHAKE[-1:],
    ),
)
