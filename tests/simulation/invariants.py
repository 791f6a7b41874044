"""What must hold at the end of a run, whatever happened in it. What clients see as it happens they check themselves."""

from __future__ import annotations

import msgspec

from tests.simulation.clients import LOSS_WINDOW, SessionRecord, SimulatedClient
from tests.simulation.tools import RETRY, TICK
from tests.simulation.world import World
from trunkline.backplane.interface import Entry
from trunkline.transports.http.server.shared.streams import GET_STREAM, LoggedEvent

__all__ = ["check_events", "check_limits", "check_notices", "check_sessions", "check_tasks"]

_event = msgspec.msgpack.Decoder(LoggedEvent)


def is_old(world: World, session: SessionRecord) -> bool:
    """Return whether writes were lost while a session lasted."""
    return world.engine.lost_at is not None and world.engine.lost_at > session.opened


def may_be_old(world: World, session: SessionRecord) -> bool:
    """Return whether a session may have begun in a generation that has ended."""
    lost = world.engine.lost_at
    return lost is not None and lost >= session.began - LOSS_WINDOW


async def check_sessions(world: World, clients: list[SimulatedClient]) -> None:
    """Check that sessions which were deleted or lost answer with 404 at every worker, and all others are served."""
    for client in clients:
        for number, session in enumerate(client.sessions):
            statuses = [await client.status_at(session, slot) for slot in range(len(world.workers))]
            label = f"session {number + 1} of {client.actor.name}"
            if session.deleted or is_old(world, session):
                if set(statuses) != {404}:
                    what = "deleted" if session.deleted else "lost"
                    world.violated(f"{label} was {what}, and is answered with {statuses}")
            elif not session.deleting and not may_be_old(world, session) and set(statuses) != {200}:
                world.violated(f"{label} is answered with {statuses}")


def check_events(world: World, clients: list[SimulatedClient]) -> None:
    """Check that each session has received all events of its GET stream since its first one, once each and in order."""
    stored = {entry.id: (name, entry) for name, log in world.engine.history.items() for entry in log}
    for client in clients:
        for number, session in enumerate(client.sessions):
            if not session.received or session.deleting or session.blind or may_be_old(world, session):
                continue
            found = stored.get(session.received[0])
            if found is None:
                world.violated(f"{client.actor.name} has received {session.received[0]}, which is not stored")
                continue
            ids = _readable(world.engine.history[found[0]])
            expected = ids[ids.index(session.received[0]) :]
            if expected != session.received:
                label = f"session {number + 1} of {client.actor.name}"
                world.violated(f"{label} has received the events {session.received}, and not {expected}")


def _readable(log: list[Entry]) -> list[str]:
    """Return the ids of the events of a GET stream; a notice that two workers have stored counts once."""
    told: tuple[int, ...] = ()
    ids = []
    for entry in log:
        event = _event.decode(entry.data)
        if event.stream == GET_STREAM and not (event.part and event.told <= told):
            told = max(told, event.told)
            ids.append(entry.id)
    return ids


def check_notices(world: World, clients: list[SimulatedClient]) -> None:
    """Check that each session has heard of every change that was stored while it lasted."""
    announced = world.engine.history.get("announcements", [])
    text = b"\n".join(entry.data for entry in announced)
    for number, worker in world.ticks.items():
        if _tick(number) not in text and worker.actor.alive and world.engine.lost_at is None:
            world.violated(f"the tick {number} was not announced")
    for client in clients:
        for session in client.sessions:
            if session.deleting or session.ended or session.blind or may_be_old(world, session):
                continue
            for number, at in world.tick_times.items():
                if at > session.opened and _tick(number) in text and number not in session.ticks:
                    world.violated(f"{client.actor.name} has not heard the tick {number}")
            for uri, at in world.touch_times.items():
                since = session.subscribed.get(uri)
                if since is not None and at > since and uri.encode() in text and uri not in session.updates:
                    world.violated(f"{client.actor.name} has not heard of {uri}")


def _tick(number: int) -> bytes:
    return TICK.encode() + b'\xc4%c{"number":%d}' % (11 + len(str(number)), number)


def check_tasks(world: World) -> None:
    """Check that no task ran more often than it may."""
    for key, tool in world.jobs.items():
        most = 1 + RETRY if tool == "safe_job" else 1
        if world.ran.get(key, 0) > most:
            world.violated(f"the task {key} of {tool} ran {world.ran[key]} times")


def check_limits(world: World) -> None:
    """Check that no span of time has more admitted events than the rate and the burst allow."""
    times = world.engine.admitted
    for first, begin in enumerate(times):
        for last in range(first, len(times)):
            if last - first + 1 > world.burst + world.rate * (times[last] - begin) + 1e-6:
                world.violated(f"{last - first + 1} events were admitted within {times[last] - begin:.3f} s")
                return
