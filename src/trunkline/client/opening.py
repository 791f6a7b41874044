"""Connects to a server and negotiates a revision: drives ``negotiate`` over a link.

It knows how a step of the negotiation is sent, how to recover when a server exits because of the probe, and when an
older kind of link is tried; when to connect, and for how long, is decided by ``connector``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from msgspec import Raw

import trunkline.types as t
from trunkline.client.contact import Contact, Owner
from trunkline.client.options import Settings
from trunkline.client.targets import Target
from trunkline.connection import Patience
from trunkline.errors import ConnectionLost, HttpError, LinkError, RemoteProtocolError, RequestFailed
from trunkline.protocol.codes import (
    HEADER_MISMATCH,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from trunkline.protocol.negotiation import (
    FAILURES,
    Agreement,
    Handshake,
    Negotiation,
    Outcome,
    Probe,
    Step,
    negotiate,
)
from trunkline.protocol.revisions import NEWEST_HANDSHAKE, Revision
from trunkline.protocol.shaping import shape_params
from trunkline.timekeeper import Timekeeper
from trunkline.transports.link import Link

__all__ = ["FOREVER", "connect"]

#: No timeout of its own: the wait is bounded elsewhere.
FOREVER = Patience(None, None)
_TRY_OLDER = frozenset({400, 404, 405})
_MODERN = frozenset({HEADER_MISMATCH, METHOD_NOT_FOUND, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION})


async def connect(
    target: Target, owner: Owner, *, settings: Settings, timekeeper: Timekeeper, remembered: Revision | None
) -> Contact:
    """Open a link and negotiate a revision; if that fails nothing is left open.

    Raises:
        RevisionMismatch, RequestFailed, RemoteProtocolError: see ``negotiate``.
        LinkError: the server cannot be reached, or it exited, or its response is not one of the protocol.
    """
    attempt = partial(_attempt, owner=owner, settings=settings, timekeeper=timekeeper)
    remembered = NEWEST_HANDSHAKE if target.handshake_only or settings.handshake else remembered
    try:
        return await attempt(target.open, remembered=remembered, separate=target.separate)
    except ConnectionLost as error:
        # Some handshake servers exit when the first message they read is not initialize.
        probed = settings.pinned is None and (remembered is None or not remembered.handshake)
        if not probed or not target.reopens or target.separate:
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
    return error.status in _TRY_OLDER and not (isinstance(error, RequestFailed) and error.code in _MODERN)


async def _attempt(
    open_link: Callable[[], Awaitable[Link]],
    *,
    owner: Owner,
    settings: Settings,
    timekeeper: Timekeeper,
    remembered: Revision | None,
    separate: bool = False,
) -> Contact:
    contact = Contact(await open_link(), owner, settings=settings, timekeeper=timekeeper)
    contact.connection.start()
    # Where each request is its own exchange, a late answer to the probe cannot be taken for another one.
    limits = settings.limits
    # A server that stays silent on the probe needs the other half for its handshake.
    seconds = None if separate else min(limits.probe_seconds, limits.connect_seconds / 2)
    try:
        flow = negotiate(settings.pinned, remembered=remembered, probe_seconds=seconds)
        contact.agree(await _drive(flow, contact, settings, timekeeper))
        await _until_ready(contact, settings, timekeeper)
        if contact.lost is not None:
            raise contact.lost
        return contact
    except BaseException:
        await contact.connection.aclose()
        raise


async def _until_ready(contact: Contact, settings: Settings, timekeeper: Timekeeper) -> None:
    """Give the link time to become ready: a server may want to ask something as soon as it is called."""
    contact.connection.flush()
    ready = asyncio.ensure_future(contact.link.wait_ready())

    def go_on() -> None:
        ready.cancel()

    row = timekeeper.after(settings.limits.ready_seconds, go_on)
    try:
        await asyncio.wait([ready])
    finally:
        ready.cancel()
        row.cancel()


async def _drive(flow: Negotiation, contact: Contact, settings: Settings, timekeeper: Timekeeper) -> Agreement:
    step = next(flow)
    while True:
        contact.speak(step.revision)
        try:
            outcome = await _perform(step, contact, settings, timekeeper)
        except FAILURES as failure:
            outcome = failure
        try:
            step = flow.send(outcome)
        except StopIteration as end:
            agreement: Agreement = end.value
            return agreement


async def _perform(step: Step, contact: Contact, settings: Settings, timekeeper: Timekeeper) -> Outcome:
    connection = contact.connection
    if isinstance(step, Probe):
        return await _probe(step, contact, timekeeper)
    if isinstance(step, Handshake):
        params = t.InitializeRequestParams(
            protocol_version=step.revision.name,
            capabilities=contact.capabilities,
            client_info=settings.client_info,
        )
        return await connection.request("initialize", shape_params(params, step.revision), patience=FOREVER)
    connection.notify("notifications/initialized")
    return None


async def _probe(step: Probe, contact: Contact, timekeeper: Timekeeper) -> Raw | None:
    """Send the probe and wait for its answer, at most as long as the step says."""
    connection = contact.connection
    id = connection.peer.new_id()
    params = t.RequestParams(meta=contact.meta)
    request = asyncio.ensure_future(connection.request("server/discover", params, patience=FOREVER, id=id))
    given_up = False

    def give_up() -> None:
        nonlocal given_up
        if connection.peer.waits(id):
            given_up = True
            # No cancellation is sent: a server that knows only the handshake expects initialize before all else. The
            # server may only have been slow to start, so its answer still decides how the next connection begins.
            connection._wait().set_aside(id, contact.discovered_late)
            request.cancel()

    row = None if step.seconds is None else timekeeper.after(step.seconds, give_up)
    try:
        await asyncio.wait([request])
    finally:
        request.cancel()
        if row is not None:
            row.cancel()
    return None if given_up else request.result()
