"""Log lines as JSON on stderr, each with the request and the trace that it belongs to, and secrets masked."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from trunkline.protocol.secret_patterns import hide_secrets
from trunkline.telemetry.requests import CURRENT_REQUEST

__all__ = ["NOTICES", "JsonFormatter", "JsonLogHandler", "install_json_logs"]

#: The logger of what a command tells its user: secrets are masked there already, but for a token that is shown once.
NOTICES = "trunkline.notices"


def _unchanged(text: str) -> str:
    return text


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def __init__(self, mask: Callable[[str], str] = _unchanged) -> None:
        """Mask what looks like a secret, and what ``mask`` knows to be one."""
        super().__init__()
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        message = self._mask(record.getMessage())
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message if record.name == NOTICES else hide_secrets(message),
        }
        line |= _process(record)
        line |= _request()
        if record.exc_info:
            line["exception"] = hide_secrets(self._mask(self.formatException(record.exc_info)))
        return msgspec.json.encode(line).decode()


def _process(record: logging.LogRecord) -> dict[str, Any]:
    """Return which of several processes a record is from; nothing if there is one."""
    label: str | None = getattr(record, "trunkline_process", None)
    if label is None:
        return {}
    kind, _, number = label.partition(" ")
    return {"pid": record.process, **({"worker": int(number)} if number.isdigit() else {"process": kind})}


def _request() -> dict[str, str]:
    """Return the ids of the request and the trace that the current code belongs to."""
    found: dict[str, str] = {}
    request = CURRENT_REQUEST.get()
    if request is not None:
        found |= {"request_id": request.id, "method": request.method}
        if request.trace_id is not None:
            found["trace_id"] = request.trace_id
    trace = sys.modules.get("opentelemetry.trace")
    if trace is not None and (context := trace.get_current_span().get_span_context()).is_valid:
        found |= {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}
    return found


class JsonLogHandler(logging.StreamHandler[Any]):
    """Writes lines of JSON to stderr."""

    #: Servers record which request they serve if a log handler has this attribute.
    shows_requests = True

    def __init__(self, mask: Callable[[str], str] = _unchanged) -> None:
        """Write to the stderr of the process."""
        super().__init__(sys.stderr)
        self.setFormatter(JsonFormatter(mask))


def install_json_logs(mask: Callable[[str], str] = _unchanged) -> None:
    """Write all log records of the process as JSON from now on, beginning with informational ones."""
    root = logging.getLogger()
    if not any(isinstance(each, JsonLogHandler) for each in root.handlers):
        root.addHandler(JsonLogHandler(mask))
    if root.level in (logging.NOTSET, logging.WARNING):
        root.setLevel(logging.INFO)
