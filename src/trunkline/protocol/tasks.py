"""What both sides of a task need: the final states, times, and status messages that tell of progress."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

import trunkline.types as t

__all__ = [
    "FINISHED",
    "StatusProgress",
    "from_milliseconds",
    "is_progress",
    "progress_text",
    "related",
    "status_line",
    "timestamp",
]

#: The final states.
FINISHED = frozenset({"completed", "failed", "cancelled"})
# A number as ``_number`` writes it.
_NUMBER = r"([0-9]{1,20}(?:\.[0-9]{1,10})?(?:e[+-]?[0-9]{1,2})?)"
#: A status message with progress: ``3/10``, ``2.5/1e+30: step 3``.
_PROGRESS = re.compile(rf"{_NUMBER}/{_NUMBER}(?:: (.*))?", re.DOTALL)
_LARGEST_INTEGER = 2**53  # The largest that every JSON parser reads exactly; as milliseconds 285,000 years.
_MAX_MESSAGE = 500  # Characters of a status message, which is one line; a handler may log whole documents.


def timestamp(seconds: float) -> str:
    """Return wall time as ISO 8601 in UTC, with milliseconds."""
    whole = int(seconds)
    return f"{_full_seconds(whole)}.{int((seconds - whole) * 1000):03d}Z"


# Every response about a task has two timestamps, mostly of the last few seconds.
@lru_cache(maxsize=64)
def _full_seconds(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def related(id: str) -> dict[str, Any]:
    """Return the ``_meta`` that relates a message to a task."""
    return {t.META_RELATED_TASK: {"taskId": id}}


def progress_text(method: str, params: Any) -> str | None:
    """Return the status message for a progress notification or log message; None for other notifications."""
    if isinstance(params, t.ProgressNotificationParams):
        total = "" if params.total is None else f"/{_number(params.total)}"
        line = f"{_number(params.progress)}{total}" + (f": {params.message}" if params.message else "")
    elif isinstance(params, t.LoggingMessageNotificationParams):
        data = params.data
        text = data.get("message") if isinstance(data, dict) else data
        line = text if isinstance(text, str) else msgspec.json.encode(data).decode()
    else:
        return None
    return status_line(line)


def is_progress(status: t.TaskStatus, message: str) -> bool:
    """Return True if a status message of a task tells of its progress.

    The message of a task that has ended is about the end, such as the text of an error. A completed task may still have
    the last progress that it reported.
    """
    if status == "completed":
        return _PROGRESS.fullmatch(message) is not None
    return status in ("working", "input_required")


class StatusProgress:
    """The progress that the status messages of a task tell of.

    A task of the extension has no progress notifications, only a status message. `progress_text` is how a server of
    ours writes progress into it; any other message is shown as it is.
    """

    def __init__(self) -> None:
        """Start before the first message."""
        self._progress = 0.0
        self._total: float | None = None

    def read(self, message: str) -> tuple[float, float | None, str | None]:
        """Return the progress, the total if there is one, and the rest of the next message."""
        match = _PROGRESS.fullmatch(message)
        if match is not None:
            self._progress, self._total = float(match[1]), float(match[2])
            return self._progress, self._total, match[3]
        if self._total is None:
            # Without numbers each message is one step.
            self._progress += 1
        return self._progress, self._total, message


def _number(number: float) -> str:
    """Return a number as text; an integer has all of its digits."""
    whole = -_LARGEST_INTEGER < number < _LARGEST_INTEGER and number == int(number)
    return str(int(number)) if whole else f"{number:g}"


def status_line(text: str) -> str:
    """Return a text as a status message, cut if it is too long."""
    return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 1] + "…"


def from_milliseconds(milliseconds: int) -> float:
    """Return a number of milliseconds from the other side in seconds; a peer may send more than a float can hold."""
    if not -_LARGEST_INTEGER <= milliseconds <= _LARGEST_INTEGER:
        milliseconds = _LARGEST_INTEGER if milliseconds > 0 else -_LARGEST_INTEGER
    return milliseconds / 1000
