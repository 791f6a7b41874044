"""Warns of functions that block the event loop, with file and line, once for each function.

While an async tool calls ``time.sleep`` or ``requests.get``, no other request is served. A daemon thread looks at the
stack of the loop's thread now and then; the functions that serve requests know nothing of it. If the stack has a
function of the user, a callback is scheduled in the loop: when the same function still runs and the callback did not
after ``Limits.blocking_seconds``, that function blocks. An idle loop is not woken.
"""

from __future__ import annotations

import asyncio
import linecache
import logging
import os
import sys
import time
from collections.abc import Mapping
from threading import Event
from types import CodeType, FrameType, MappingProxyType
from typing import NamedTuple

from trunkline.server.lifespan import Lifespan
from trunkline.server.prompts import CompletionDefinition, PromptDefinition
from trunkline.server.resources import ResourceDefinition
from trunkline.server.tools import ToolDefinition

__all__ = ["watch_loop"]

log = logging.getLogger("trunkline")

_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_STANDARD_LIBRARY = (os.path.join(os.path.dirname(os.__file__), ""), "<frozen ")
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
#: The methods that call the user's functions, and what each of them calls.
_CALLERS: Mapping[CodeType, str] = MappingProxyType(
    {
        ToolDefinition.call.__code__: "tool",
        ResourceDefinition._read.__code__: "resource",
        PromptDefinition.get.__code__: "prompt",
        CompletionDefinition.complete.__code__: "completion of",
    }
)
#: Runs the user's lifespan: it may take its time, since no request is served before it is entered.
_LIFESPAN = Lifespan._run.__code__
#: The modules that run callbacks: what is further out on the stack started the loop.
_RUNNERS = ("asyncio.base_events", "asyncio.runners")


class _RunningFunction(NamedTuple):
    """A function of the user that runs in the event loop."""

    #: The outermost frame of the function.
    outermost: FrameType
    #: The innermost frame of the user's own code, rather than of a library.
    place: FrameType
    #: Such as ``tool 'slow'``.
    name: str


class _Watched:
    """A running function and whether the event loop has turned since it was seen first."""

    __slots__ = ("outermost", "since", "turned")

    def __init__(self, outermost: FrameType, since: float) -> None:
        self.outermost = outermost
        self.since = since
        self.turned = False

    def turn(self) -> None:
        """Called in the event loop."""
        self.turned = True


def watch_loop(loop: asyncio.AbstractEventLoop, thread: int, seconds: float, stop: Event) -> None:
    """Log a warning for each function that blocks a loop, until stopped; ``thread`` is the id of the loop's thread."""
    pause = seconds / 2
    reported: set[CodeType] = set()
    watched: _Watched | None = None
    looked = time.monotonic()
    while not stop.wait(pause) and not loop.is_closed():
        previous, looked = looked, time.monotonic()
        function = _running_function(sys._current_frames().get(thread))
        if function is None or looked - previous > 2 * pause:
            # After a longer pause this thread, and so the whole process, was suspended: by a debugger, a laptop's lid.
            watched = None
        elif watched is None or watched.turned or watched.outermost is not function.outermost:
            watched = _Watched(function.outermost, looked)
            try:
                loop.call_soon_threadsafe(watched.turn)
            except RuntimeError:
                return
        elif looked - watched.since >= seconds:
            _report(function, looked - watched.since, reported)
        # A frame keeps everything alive that its function uses.
        function = None


def _running_function(frame: FrameType | None) -> _RunningFunction | None:
    """Return the user's function on the stack of an event loop; None if there is none."""
    place = outermost = None
    while frame is not None and frame.f_globals.get("__name__") not in _RUNNERS:
        code = frame.f_code
        if code is _LIFESPAN:
            return None
        if (kind := _CALLERS.get(code)) is not None:
            if outermost is None:
                return None
            definition = frame.f_locals["self"]
            name = definition.uri if kind == "resource" else getattr(definition, "name", None) or definition.ref
            return _RunningFunction(outermost, place or outermost, f"{kind} {name!r}")
        if not code.co_filename.startswith((_PACKAGE, *_STANDARD_LIBRARY)) or _is_installed(code):
            outermost = frame
            if place is None and not _is_installed(code):
                place = frame
        frame = frame.f_back
    if frame is None or place is None or outermost is None:
        return None
    # A middleware, or a task that a handler has started.
    return _RunningFunction(outermost, place, f"the function {place.f_code.co_qualname!r}")


def _is_installed(code: CodeType) -> bool:
    """Return whether code belongs to an installed package; such a server has its own functions there, too."""
    path = code.co_filename
    return any(folder in path for folder in _INSTALLED) and not path.startswith(_PACKAGE)


def _report(function: _RunningFunction, seconds: float, reported: set[CodeType]) -> None:
    path, line = function.place.f_code.co_filename, function.place.f_lineno or 0
    if function.place.f_code in reported:
        return
    reported.add(function.place.f_code)
    source = linecache.getline(path, line).strip()
    log.warning(
        "%s blocked the event loop for %.1f s at %s:%d%s. No other request is served meanwhile: make the function a "
        "plain `def`, which runs in a thread, or use `await asyncio.to_thread(...)` or an async library there",
        function.name,
        seconds,
        path,
        line,
        f" (`{source}`)" if source else "",
    )
