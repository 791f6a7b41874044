"""Opens a connection to a server and agrees with it on a revision: drives ``negotiate`` over a link.

It knows how a step of the negotiation is sent and how a server that dies of the probe is helped; when to connect, and
for how long, is the client's business.
"""

from __future__ import annotations

import asyncio

from msgspec import Raw

import trunkline.types as t
from trunkline.client.contact import Contact, Owner
from trunkline.client.options import Settings
from trunkline.client.targets import Target
from trunkline.connection import Patience
from trunkline.errors import ConnectionLost, RequestFailed
from trunkline.protocol.negotiation import Agreement, Handshake, Outcome, Probe, Step, negotiate
from trunkline.protocol.revisions import NEWEST_HANDSHAKE, Revision
from trunkline.protocol.shaping import shape_params
from trunkline.timekeeper import Timekeeper

__all__ = ["FOREVER", "connect"]

#: No clock of its own: whoever waits is bounded otherwise.
FOREVER = Patience(None, None)


async def connect(
    target: Target, owner: Owner, *, settings: Settings, timekeeper: Timekeeper, remembered: Revision | None
) -> Contact:
    """Open a link and agree on a revision; if that fails nothing is left open.

    Raises:
        RevisionMismatch, RequestFailed, RemoteProtocolError: see ``negotiate``.
        LinkError: the server cannot be reached, or it ended.
    """
    try:
        return await _attempt(target, owner, settings=settings, timekeeper=timekeeper, remembered=remembered)
    except ConnectionLost as error:
        # Some handshake servers end themselves when the first thing they read is not initialize.
        probed = settings.pinned is None and (remembered is None or not remembered.handshake)
        if not probed or not target.reopens:
            raise
        try:
            return await _attempt(target, owner, settings=settings, timekeeper=timekeeper, remembered=NEWEST_HANDSHAKE)
        except ConnectionLost:
            raise error from None


async def _attempt(
    target: Target, owner: Owner, *, settings: Settings, timekeeper: Timekeeper, remembered: Revision | None
) -> Contact:
    link = await target.open()
    contact = Contact(link, owner, settings=settings, timekeeper=timekeeper)
    contact.connection.start()
    try:
        contact.agree(await _negotiate(contact, settings, timekeeper, remembered))
        if contact.lost is not None:
            raise contact.lost
        return contact
    except BaseException:
        await contact.connection.aclose()
        raise


async def _negotiate(
    contact: Contact, settings: Settings, timekeeper: Timekeeper, remembered: Revision | None
) -> Agreement:
    flow = negotiate(settings.pinned, remembered=remembered, probe_seconds=settings.limits.probe_seconds)
    step = next(flow)
    while True:
        contact.speak(step.revision)
        try:
            outcome = await _perform(step, contact, settings, timekeeper)
        except RequestFailed as failure:
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
            # Forgotten without a word: a server that knows only the handshake expects initialize before all else,
            # and an answer that comes late after all will be dropped.
            connection.peer.send_cancel(id, tell=False)
            request.cancel()

    row = None if step.seconds is None else timekeeper.after(step.seconds, give_up)
    try:
        await asyncio.wait([request])
    finally:
        request.cancel()
        if row is not None:
            row.cancel()
    return None if given_up else request.result()
