"""Messages over pipes."""

from __future__ import annotations

from tests.interaction.rows import HANDSHAKE, ON_PIPES, STATELESS, Row

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="stdio.client-auto",
        spec="2026-07-28 basic/transports/stdio#backward-compatibility",
        sentence="A client finds out by itself what a program speaks.",
        revisions=STATELESS,
        transports=ON_PIPES,
    ),
    Row(
        id="stdio.client-environment",
        spec="2025-11-25 basic/index#auth",
        sentence="A program gets a small environment and what it was given.",
        revisions=HANDSHAKE,
        transports=ON_PIPES,
    ),
    Row(
        id="stdio.client-fallback",
        spec="2026-07-28 basic/transports/stdio#backward-compatibility",
        sentence="A client falls back to the handshake with an older program.",
        revisions=HANDSHAKE,
        transports=ON_PIPES,
    ),
    Row(
        id="stdio.client-lines",
        spec="2025-11-25 basic/transports#stdio",
        sentence="A client writes one message a line.",
        revisions=HANDSHAKE,
        transports=ON_PIPES,
    ),
    Row(
        id="stdio.client-listens-again",
        spec="2026-07-28 basic/transports/stdio#unexpected-termination",
        sentence="A listener continues after a restart of the server.",
        transports=ON_PIPES,
    ),
    Row(
        id="stdio.client-noise",
        spec="2025-11-25 basic/transports#stdio",
        sentence="A client skips lines that are no messages and does not mind stderr.",
        revisions=HANDSHAKE,
        transports=ON_PIPES,
    ),
    Row(
        id="stdio.client-restarts",
        spec="2026-07-28 basic/transports/stdio#unexpected-termination",
        sentence="The next call starts a dead program again and the lost one is not repeated.",
        revisions=HANDSHAKE,
        transports=ON_PIPES,
    ),
    Row(
        id="stdio.client-server-dies",
        spec="2026-07-28 basic/transports/stdio#unexpected-termination",
        sentence="A call fails at once with the exit reason when the program dies.",
        revisions=HANDSHAKE,
        transports=ON_PIPES,
    ),
    Row(
        id="stdio.client-stderr-in-errors",
        spec="2026-07-28 basic/transports/stdio#unexpected-termination",
        sentence="A program that cannot start says why.",
        transports=ON_PIPES,
    ),
    Row(
        id="stdio.client-works",
        spec="2025-11-25 basic/transports#stdio",
        sentence="A client starts a program and ends it.",
        transports=ON_PIPES,
    ),
    Row(
        id="stdio.eof-answers",
        spec="2026-07-28 basic/transports/stdio#shutdown",
        sentence="Requests before the end of input are answered.",
        transports=ON_PIPES,
    ),
    Row(
        id="stdio.eof-cut",
        spec="2026-07-28 basic/transports/stdio#shutdown",
        sentence="A line that input ends in is a message.",
        transports=ON_PIPES,
    ),
    Row(
        id="stdio.eof-exits",
        spec="2026-07-28 basic/transports/stdio#shutdown",
        sentence="A server exits when its input ends.",
        transports=ON_PIPES,
    ),
    Row(
        id="stdio.eof-listen",
        spec="2026-07-28 basic/transports/stdio#shutdown",
        sentence="An open subscription does not keep a server alive.",
        revisions=STATELESS,
        transports=ON_PIPES,
    ),
    Row(
        id="stdio.garbage",
        spec="2025-11-25 basic/transports#stdio",
        sentence="Bytes that are not a message are rejected and the next line is served.",
        transports=ON_PIPES,
    ),
    Row(
        id="stdio.line-ends",
        spec="2025-11-25 basic/transports#stdio",
        sentence="Blank lines and carriage returns do no harm.",
        transports=ON_PIPES,
    ),
    Row(
        id="stdio.notices",
        spec="2025-11-25 server/tools#list-changed-notification",
        sentence="A change is notified over stdio.",
        transports=ON_PIPES,
    ),
    Row(
        id="stdio.one-line",
        spec="2025-11-25 basic/transports#stdio",
        sentence="A message is one line whatever it holds.",
        transports=ON_PIPES,
    ),
    Row(
        id="stdio.pieces",
        spec="2025-11-25 basic/transports#stdio",
        sentence="A message may come in pieces and several in one.",
        transports=ON_PIPES,
    ),
    Row(
        id="stdio.stderr-quiet",
        spec="2025-11-25 basic/transports#stdio",
        sentence="An idle server writes nothing.",
        transports=ON_PIPES,
    ),
    Row(
        id="stdio.stdin-ours",
        spec="2025-11-25 basic/transports#stdio",
        sentence="The server's code cannot eat messages.",
        transports=ON_PIPES,
    ),
    Row(
        id="stdio.stdout-ours",
        spec="2025-11-25 basic/transports#stdio",
        sentence="Output printed by the server is not on the wire.",
        transports=ON_PIPES,
    ),
    Row(
        id="stdio.terminated",
        spec="2025-11-25 basic/lifecycle#shutdown",
        sentence="A server ends when it is told to.",
        transports=ON_PIPES,
    ),
    Row(
        id="stdio.too-long",
        spec="2025-11-25 basic/transports#stdio",
        sentence="A line over the limit is rejected and the next one is served.",
        transports=ON_PIPES,
    ),
)
