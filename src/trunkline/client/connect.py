"""Connects to a server and negotiates a revision: drives ``negotiate`` over a link.

It knows how a step of the negotiation is sent, how to recover when a server exits because of the probe, and when an
older kind of link is tried; when to connect, and for how long, is decided by ``connector``.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial

from msgspec import Raw

import trunkline.types as t
from trunkline.client.options import ClientSettings
from trunkline.client.session import ClientSession, SessionOwner
from trunkline.client.targets import Target
from trunkline.connection import Timeouts
from trunkline.errors import ConnectionLost, HttpError, LinkError, RemoteProtocolError, RequestFailed
from trunkline.protocol.downgrade import adapt_params
from trunkline.protocol.error_codes import (
    HEADER_MISMATCH,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from trunkline.protocol.negotiation import (
    NEGOTIATION_FAILURES,
    Agreement,
    Negotiation,
    NegotiationOutcome,
    NegotiationStep,
    SendDiscover,
    SendInitialize,
    negotiate,
)
from trunkline.protocol.revisions import NEWEST_HANDSHAKE, Revision
from trunkline.timers import Timers
from trunkline.transports.link import Link

__all__ = ["FOREVER", "connect"]

#: No timeout of its own: the wait is bounded elsewhere.
FOREVER = Timeouts(None, None)
_TRY_OLDER = frozenset({400, 404, 405})
_STATELESS_ERRORS = frozenset(
    {HEADER_MISMATCH, METHOD_NOT_FOUND, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION}
)


async def connect(
    target: Target, owner: SessionOwner, *, settings: ClientSettings, timers: Timers, remembered: Revision | None
) -> ClientSession:
    """Open a link and negotiate a revision; if that fails nothing is left open.

    Raises:
        RevisionMismatch, RequestFailed, RemoteProtocolError: see ``negotiate``.
        LinkError: the server cannot be reached, or it exited, or its response is not one of the protocol.
    """
    attempt = partial(_connect_once, owner=owner, settings=settings, timers=timers)
    remembered = NEWEST_HANDSHAKE if target.handshake_only or settings.handshake else remembered
    try:
        return await attempt(target.open, remembered=remembered, separate=target.separate)
    except ConnectionLost as error:
        # Some handshake servers exit when the first message they read is not initialize.
        probed = settings.pinned is None and (remembered is None or not remembered.handshake)
        if not probed or not target.can_reopen or target.separate:
            raise
        try:
            return await attempt(target.open, remembered=NEWEST_HANDSHAKE)
        except ConnectionLost:
            raise error from None
    except (HttpError, RequestFailed) as error:
        if target.fallback is None or not _may_be_older(error):
            raise
        try:
            return await attempt(target.fallback, remembered=NEWEST_HANDSHAKE)
        except (LinkError, RemoteProtocolError) as older:
            error.add_note(f"The HTTP+SSE transport was tried too: {older}")
            raise error from None


def _may_be_older(error: HttpError | RequestFailed) -> bool:
    """Return True if a rejected handshake may mean that the server has only the transport of the first revision.

    Streamable HTTP, Backward Compatibility: a response with one of three statuses, unless it is one of the errors by
    which a stateless server can be recognized.
    """
    return error.status in _TRY_OLDER and not (isinstance(error, RequestFailed) and error.code in _STATELESS_ERRORS)


def _session_class() -> type[ClientSession]:
    """Return the class of a session, which is traced if the program has loaded OpenTelemetry."""
    if "opentelemetry.trace" not in sys.modules:
        return ClientSession
    from trunkline.client.traced_session import TracedSession

    return TracedSession


async def _connect_once(
    open_link: Callable[[], Awaitable[Link]],
    *,
    owner: SessionOwner,
    settings: ClientSettings,
    timers: Timers,
    remembered: Revision | None,
    separate: bool = False,
) -> ClientSession:
    session = _session_class()(await open_link(), owner, settings=settings, timers=timers)
    session.connection.start()
    # Where each request is its own exchange, a late answer to the probe cannot be taken for another one.
    limits = settings.limits
    # A server that stays silent on the probe needs the other half for its handshake.
    seconds = None if separate else min(limits.probe_seconds, limits.connect_seconds / 2)
    try:
        flow = negotiate(settings.pinned, remembered=remembered, probe_seconds=seconds)
        session.agree(await _run_negotiation(flow, session, settings, timers))
        await _until_ready(session, settings, timers)
        if session.lost is not None:
            raise session.lost
        return session
    except BaseException:
        await session.connection.aclose()
        raise


async def _until_ready(session: ClientSession, settings: ClientSettings, timers: Timers) -> None:
    """Wait until the link is ready: a server may send requests as soon as it is called."""
    session.connection.flush()
    ready = asyncio.ensure_future(session.link.wait_ready())

    def go_on() -> None:
        ready.cancel()

    row = timers.after(settings.limits.ready_seconds, go_on)
    try:
        await asyncio.wait([ready])
    finally:
        ready.cancel()
        row.cancel()


async def _run_negotiation(
    flow: Negotiation, session: ClientSession, settings: ClientSettings, timers: Timers
) -> Agreement:
    step = next(flow)
    while True:
        session.use_revision(step.revision)
        try:
            outcome = await _run_step(step, session, settings, timers)
        except NEGOTIATION_FAILURES as failure:
            outcome = failure
        try:
            step = flow.send(outcome)
        except StopIteration as end:
            agreement: Agreement = end.value
            return agreement


async def _run_step(
    step: NegotiationStep, session: ClientSession, settings: ClientSettings, timers: Timers
) -> NegotiationOutcome:
    connection = session.connection
    if isinstance(step, SendDiscover):
        return await _probe(step, session, timers)
    if isinstance(step, SendInitialize):
        params = t.InitializeRequestParams(
            protocol_version=step.revision.name,
            capabilities=session.capabilities,
            client_info=settings.client_info,
        )
        return await connection.request("initialize", adapt_params(params, step.revision), timeouts=FOREVER)
    connection.notify("notifications/initialized")
    return None


async def _probe(step: SendDiscover, session: ClientSession, timers: Timers) -> Raw | None:
    """Send the probe and wait for its answer, at most as long as the step says."""
    connection = session.connection
    id = connection.peer.new_id()
    params = t.RequestParams(meta=session.meta)
    request = asyncio.ensure_future(connection.request("server/discover", params, timeouts=FOREVER, id=id))
    given_up = False

    def give_up() -> None:
        nonlocal given_up
        if connection.peer.waits(id):
            given_up = True
            # No cancellation is sent: a server that knows only the handshake expects initialize before all else. The
            # server may only have been slow to start, so its answer still decides how the next connection begins.
            connection._pending_requests().detach(id, session.discovered_late)
            request.cancel()

    row = None if step.seconds is None else timers.after(step.seconds, give_up)
    try:
        await asyncio.wait([request])
    finally:
        request.cancel()
        if row is not None:
            row.cancel()
    return None if given_up else request.result()
