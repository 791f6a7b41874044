"""What must hold at the end of a run, whatever happened in it. What clients see as it happens they check themselves."""

from __future__ import annotations

import msgspec

from tests.simulation.clients import SimulatedClient, get_position, is_own
from tests.simulation.loop import EPOCH
from tests.simulation.stateless import StatelessClient
from tests.simulation.tools import RETRY
from tests.simulation.world import World
from trunkline.store.interface import Entry, entry_position
from trunkline.transports.http.server.sessions.streams import GET_STREAM, LoggedEvent

__all__ = [
    "check_events",
    "check_limits",
    "check_listeners",
    "check_lost_writes",
    "check_notices",
    "check_sessions",
    "check_tasks",
]

_event = msgspec.msgpack.Decoder(LoggedEvent)
decode = msgspec.json.decode


async def check_sessions(world: World, clients: list[SimulatedClient]) -> None:
    """Check that sessions which were deleted or lost answer with 404 at every worker, and all others are served."""
    for client in clients:
        for number, session in enumerate(client.sessions):
            statuses = [await client.status_at(session, slot) for slot in range(len(world.workers))]
            gone = session.deleted or world.is_terminated(session.key) or client.is_lost(session)
            if set(statuses) != {404 if gone else 200}:
                what = "deleted" if session.deleted else "lost" if client.is_lost(session) else "open"
                world.violated(f"session {number + 1} of {client.actor.name} is {what}, and answered with {statuses}")


def check_events(world: World, clients: list[SimulatedClient]) -> None:
    """Check that each session has received all messages of its own on its GET stream, once each and in order.

    Before the first event that a client has received it has no id to resume from: what was written to a response that
    broke is not sent again. Nothing else may be missing.
    """
    for client in clients:
        for number, session in enumerate(client.sessions):
            if world.is_terminated(session.key) or client.is_lost(session) or session.ended:
                continue
            label = f"session {number + 1} of {client.actor.name}"
            log = world.redis.history.get(f"events:{session.key}", [])
            stored = [entry.id for entry in log if _event.decode(entry.data).stream == GET_STREAM]
            first = next((index for index, id in enumerate(stored) if id in session.received[:1]), len(stored))
            if stored[first:] != session.received:
                world.violated(f"{label} has received the messages {session.received}, and not {stored[first:]}")
            events = [event for event in client.vanished(session) if event.data and is_own(decode(event.data))]
            vanished = {(event.id or "").partition("~")[0] for event in events}
            if missing := [id for id in stored[:first] if id not in vanished]:
                world.violated(f"{label} has not received the messages {missing} before {session.received[:1]}")


def check_notices(world: World, clients: list[SimulatedClient]) -> None:
    """Check that each change was stored, unless its worker died first, and that each session has heard of it."""
    announced = world.announced()
    for number in world.ticks.keys() - announced - world.unannounced - world.lost_ticks:
        world.violated(f"the tick {number} was not announced")
    for client in clients:
        for session in client.sessions:
            if world.is_terminated(session.key) or client.is_lost(session) or session.ended:
                continue
            vanished_events = client.vanished(session)
            vanished = b"\n".join(event.data for event in vanished_events)
            for number, at in world.tick_times.items():
                missed = number in announced and number not in session.ticks
                if at > session.opened and missed and b'{"number":%d}' % number not in vanished:
                    world.violated(f"{client.actor.name} has not heard the tick {number}")
            for uri, since in session.subscribed.items():
                # A notice that was heard after a change is enough: its client reads the resource after it.
                heard = max((at for updated, at in session.updates if updated == uri), default=-1.0)
                changed = max((_announced_at(entry) for entry in world.changes(uri)), default=-1.0)
                # Before the first event that arrived it had no id to resume from.
                unheard = [get_position(event.id or "")[1] for event in vanished_events if uri.encode() in event.data]
                latest = max((entry_position(entry.id) or (0, 0) for entry in world.changes(uri)), default=(0, 0))
                if changed > since and heard < changed and max(unheard, default=(-1, -1)) < latest:
                    world.violated(f"{client.actor.name} has not heard of the last change of {uri}")


def _announced_at(entry: Entry) -> float:
    """Return when an entry was stored, at the beginning of its millisecond."""
    return (entry_position(entry.id) or (0, 0))[0] / 1000 - EPOCH


def check_listeners(world: World, clients: list[StatelessClient]) -> None:
    """Check that each listen stream which is open has heard of every change since it was acknowledged."""
    for client in clients:
        for stream in client.streams:
            for uri in stream.uris:
                since = stream.acknowledged
                before = [at for at in world.touched.get(uri, ()) if since is None or at <= since]
                # More announcements than changes before: at least one of them is of a change since then. After lost
                # writes a change may be announced twice.
                told = since is not None and len(world.changes(uri)) > len(before)
                told = told and not (before and world.redis.lost_at is not None)
                if stream.open and told and uri not in stream.heard:
                    world.violated(f"{client.actor.name} has not heard of {uri} on its listen stream")


def check_tasks(world: World) -> None:
    """Check that no task ran more often than it may."""
    for key, tool in world.jobs.items():
        most = 1 + RETRY if tool == "safe_job" else 1
        if world.ran.get(key, 0) > most:
            world.violated(f"the task {key} of {tool} ran {world.ran[key]} times")


def check_lost_writes(world: World) -> None:
    """Check that a new generation has begun, and every worker knows it, if acknowledged writes were lost."""
    if world.redis.unnoticed_since(world.loop.time()):
        world.violated("lost writes were not noticed")


def check_limits(world: World) -> None:
    """Check that no span of time has more admitted events than the rate and the burst allow."""
    times = world.redis.admitted
    for first, begin in enumerate(times):
        for last in range(first, len(times)):
            if last - first + 1 > world.burst + world.rate * (times[last] - begin) + 1e-6:
                world.violated(f"{last - first + 1} events were admitted within {times[last] - begin:.3f} s")
                return
