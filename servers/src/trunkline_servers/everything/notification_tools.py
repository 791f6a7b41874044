"""Tools whose effects come later or elsewhere: timers, list changes, a shared note, cancellation, custom notifications.

A timer belongs to a session and ends with it. A stateless client has no session: its log messages come with the call,
and simulated updates reach all listeners.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta

import trunkline.types as t
from trunkline import Context, Server, ToolError
from trunkline.server import Session
from trunkline_servers.everything.basic_tools import ACTS, READS, sleep
from trunkline_servers.everything.state import identity_of, state_of

__all__ = [
    "CUSTOM_NOTIFICATION",
    "EXPERIMENTAL",
    "NOTE_URI",
    "ChooseLevel",
    "add_extra_notification_tools",
    "add_timer_tools",
]

#: Picks one of several levels; tests pass their own function.
ChooseLevel = Callable[[Sequence[t.LoggingLevel]], t.LoggingLevel]

NOTE_URI = "demo://resource/shared/note"
#: The experimental capability, the custom notification and the custom method of this server.
EXPERIMENTAL = "trunkline.everything"
CUSTOM_NOTIFICATION = "trunkline.everything/notice"
CUSTOM_METHOD = "trunkline.everything/reverse"

_LEVELS: tuple[t.LoggingLevel, ...] = get_args(t.LoggingLevel)
_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}\Z")
_MOST_ADDED = 20
_LONGEST_NOTE = 10_000
_MOST_SECONDS = 600.0


def add_timer_tools(server: Server, choose: ChooseLevel = random.choice) -> None:
    """Register the two timers of the official server."""

    async def toggle_simulated_logging(ctx: Context) -> str:
        """Start or stop sending the caller a log message at a random level every few seconds."""
        state, session = state_of(ctx), ctx.session
        if session is None:
            for level in _LEVELS:
                await ctx.log(level, _log_text(level))
            return "Logged one message of each level with this call: without a session no later ones are possible."
        serving = ctx.root_server
        on = state.logging.toggle(session, ctx.server, lambda: _log(serving, session, choose(_LEVELS)))
        if not on:
            return "Stopped simulated logging for this session."
        return (
            f"Started simulated logging for this session, every {state.logging.seconds:g} seconds at a random level; "
            "messages below the requested level are not sent."
        )

    async def toggle_subscriber_updates(ctx: Context) -> str:
        """Start or stop notifying the caller every few seconds that its subscribed resources have changed."""
        state, session = state_of(ctx), ctx.session
        serving = ctx.root_server
        act = (lambda: _update_listeners(serving)) if session is None else (lambda: _update(serving, session))
        # A caller without a session is identified by its principal, so that it cannot stop another caller's timer.
        whose = identity_of(ctx) if session is None else session
        on = state.updates.toggle(whose, ctx.server, act)
        if on is None:
            return "There are no listeners for updates: listen to a resource first, then call this again."
        whom = "all listeners" if session is None else "this session"
        if not on:
            return f"Stopped simulated resource updates for {whom}."
        return f"Started simulated resource updates for {whom}, every {state.updates.seconds:g} seconds."

    for function, name in (
        (toggle_simulated_logging, "toggle-simulated-logging"),
        (toggle_subscriber_updates, "toggle-subscriber-updates"),
    ):
        title = name.replace("-", " ").capitalize()
        server.add_tool(function, name=name, title=title, annotations=ACTS, output_schema=None)


def _log_text(level: str) -> str:
    return f"{level.capitalize()}-level message"


def _log(server: Server, session: Session, level: t.LoggingLevel) -> bool:
    """Send a log message to a session if it wants that level; return False once the session is over."""
    subscriber = server.subscriber(session)
    if subscriber is not None:
        subscriber.log(level, _log_text(level))
    return subscriber is not None


def _update(server: Server, session: Session) -> bool:
    """Notify a session that everything it subscribed to has changed; return False once the session is over."""
    subscriber = server.subscriber(session)
    if subscriber is not None:
        for uri in sorted(subscriber.uris):
            subscriber.resource_updated(uri)
    return subscriber is not None


def _update_listeners(server: Server) -> bool:
    """Notify all listeners without a session; return False if there are none."""
    listeners = [each for each in server.subscribers() if each.session is None]
    for listener in listeners:
        for uri in sorted(listener.uris):
            listener.resource_updated(uri)
    return bool(listeners)


# --- additional tools ------------------------------------------------------------------------------------------------


def add_extra_notification_tools(server: Server) -> None:
    """Register the additional tools, the note, and the custom method."""
    server.add_tool(change_lists, name="change-lists", title="Change lists", annotations=ACTS, output_schema=None)
    server.add_tool(write_note, name="write-note", title="Write the note", annotations=ACTS, output_schema=None)
    server.add_tool(
        observe_cancellation, name="observe-cancellation", title="Cancel me", annotations=ACTS, output_schema=None
    )
    server.add_tool(send_notice, name="send-notice", title="Own notice", annotations=ACTS, output_schema=None)
    server.add_resource(NOTE_URI, read_note, name="note", title="Shared note", mime_type="text/plain")
    server.add_resource(
        "demo://resource/cancellations", read_cancellations, name="cancellations", mime_type="application/json"
    )
    server.method(CUSTOM_METHOD)(reverse)


async def change_lists(
    ctx: Context,
    what: Annotated[Literal["tool", "prompt", "resource"], Meta(description="Which list")],
    action: Annotated[Literal["add", "remove"], Meta(description="Whether to add or remove it")],
    name: Annotated[str, Meta(description="Lower-case letters, digits and dashes")],
) -> str:
    """Add an item to a list for all clients, or remove one that was added; clients are notified."""
    added, server, full = state_of(ctx).added, ctx.server, f"added-{name}"
    if not _NAME.match(name):
        raise ToolError("name must be 1 to 32 lower-case letters, digits and dashes, a letter first.")
    if action == "add" and (what, name) in added:
        raise ToolError(f"The {what} {full} exists already.")
    if action == "remove" and (what, name) not in added:
        raise ToolError(f"No {what} {full} was added.")
    if action == "add" and len(added) >= _MOST_ADDED:
        raise ToolError(f"{_MOST_ADDED} items were added already; remove one first.")
    uri = f"demo://resource/added/{name}"
    if action == "remove":
        added.remove((what, name))
        remove: dict[str, Callable[[], None]] = {
            "tool": lambda: server.remove_tool(full),
            "prompt": lambda: server.remove_prompt(full),
            "resource": lambda: server.remove_resource(uri),
        }
        remove[what]()
        return f"Removed the {what} {full}."
    added.add((what, name))
    _add(server, what, full, uri)
    return f"Added the {what} {full}."


def _add(server: Server, what: str, name: str, uri: str) -> None:
    async def speak() -> str:
        return f"This is {name}."

    options: dict[str, Any] = {"name": name, "description": "Added while the server was running."}
    if what == "tool":
        server.add_tool(speak, **options, annotations=READS, output_schema=None)
    elif what == "prompt":
        server.add_prompt(speak, **options)
    else:
        server.add_resource(uri, speak, **options, mime_type="text/plain")


async def write_note(ctx: Context, text: Annotated[str, Meta(max_length=_LONGEST_NOTE)]) -> str:
    """Write the note shared by all clients; subscribers are notified."""
    state_of(ctx).note = text
    ctx.server.changed(NOTE_URI)
    return f"Noted {len(text)} characters."


async def read_note(ctx: Context) -> str:
    """The note shared by all clients."""
    return state_of(ctx).note


async def observe_cancellation(
    ctx: Context,
    label: Annotated[
        str, Meta(description="The name of this call in the list of cancelled calls", max_length=64)
    ] = "call",
    seconds: Annotated[float, Meta(description="Seconds to wait to be cancelled", ge=0, le=_MOST_SECONDS)] = 60,
) -> str:
    """Wait to be cancelled; demo://resource/cancellations lists the calls that were."""
    finished = False
    try:
        await ctx.report_progress(0, 1, "waiting to be cancelled")
        await sleep(ctx, seconds)
        finished = True
    finally:
        if not finished:
            state_of(ctx).cancelled.append(label)
    return "This call was not cancelled."


async def read_cancellations(ctx: Context) -> list[str]:
    """List the calls of observe-cancellation that were cancelled, the newest last."""
    return list(state_of(ctx).cancelled)


async def send_notice(ctx: Context, text: Annotated[str, Meta(max_length=1000)] = "hello") -> str:
    """Send the caller a custom notification of this server, which is not part of the protocol."""
    await ctx.notify(CUSTOM_NOTIFICATION, {"text": text})
    return f"Sent {CUSTOM_NOTIFICATION}."


async def reverse(text: Annotated[str, Meta(max_length=10_000)]) -> dict[str, str]:
    """Reverse a text: a custom method of this server."""
    return {"text": text[::-1]}
