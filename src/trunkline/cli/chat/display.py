"""Shows a conversation as it happens: the model's text on stdout, everything about it on stderr.

Text from models and servers is made safe before it is shown, is never interpreted as markup, and is quoted line by line
where it could pass for output of this program. The escape sequences here are our own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import click

from trunkline.cli.ui.output import clip, one_line, quote_lines, terminal_width, wire_json, wrap_lines
from trunkline.cli.ui.terminal import Screen
from trunkline.host.chat.events import (
    CallFinished,
    CallProgressed,
    CallProposed,
    CallStarted,
    ChatEvent,
    ChatNotice,
    TextReceived,
    TurnEnded,
)
from trunkline.host.models.interface import Usage
from trunkline.protocol.printable import printable

__all__ = ["MOST_LINES", "ChatDisplay", "cost_text", "usage_text"]

_LONGEST_ARGUMENTS = 1000  # About ten lines of a terminal.
#: The lines of a result, a description or a message that are shown.
MOST_LINES = 12  # Half the height of the smallest usual terminal (24 lines).
_STYLES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "call": {"fg": "cyan"},
        "done": {"dim": True},
        "failed": {"fg": "red"},
        "denied": {"fg": "red"},
        "stopped": {"fg": "yellow"},
        "note": {"fg": "yellow"},
    }
)


class ChatDisplay:
    """Prints the events of a conversation."""

    def __init__(self, screen: Screen, *, words: bool = True) -> None:
        """Share the terminal with this screen; without ``words``, the text of the model is not shown."""
        self._screen = screen
        self._words = words
        self._styled = _takes_styles()
        self._here = sys.stdout.isatty()
        #: The model's last line has no line end yet.
        self._open = False
        self._rest = ""
        self._calls: dict[str, str] = {}
        self._running: set[str] = set()

    # --- events ------------------------------------------------------------------------------------------------------

    def show(self, event: ChatEvent) -> None:
        """Print an event."""
        match event:
            case TextReceived():
                self._say(event.text)
            case CallProposed():
                self._propose(event)
            case CallStarted():
                self._running.add(event.call_id)
            case CallProgressed():
                self._progress(event)
            case CallFinished():
                self._end_call(event)
            case ChatNotice():
                self.line("note", event.text)
            case TurnEnded():
                self._end_turn(event)

    def _say(self, text: str) -> None:
        if not self._words:
            return
        # A CRLF may arrive in two pieces, and a lone CR is a control character.
        text, self._rest = self._rest + text, ""
        if text.endswith("\r"):
            text, self._rest = text[:-1], "\r"
        if text:
            self._screen.clear()
            safe = printable(text)
            sys.stdout.write(self._told_apart(safe) if self._here else safe)
            sys.stdout.flush()
            self._open = not text.endswith("\n")

    def _told_apart(self, text: str) -> str:
        """Indent lines that begin with a bracket: only our own lines begin with one."""
        lines = text.split("\n")
        first = lines[0] if self._open else _moved(lines[0])
        return "\n".join([first, *map(_moved, lines[1:])])

    def _propose(self, event: CallProposed) -> None:
        name = event.tool if event.server is None else f"{event.server}/{event.tool}"
        self._calls[event.call_id] = name
        written = "(unreadable arguments)" if event.arguments is None else _json(event.arguments)
        self.line("call", f"{one_line(name)} {clip(written, _LONGEST_ARGUMENTS)}")

    def _progress(self, event: CallProgressed) -> None:
        self.end_line()
        name = self._calls.get(event.call_id, "")
        self._screen.progress(event.progress, event.total, f"{name} {event.message or ''}")

    def _end_call(self, event: CallFinished) -> None:
        self._running.discard(event.call_id)
        name, took = one_line(self._calls.pop(event.call_id, "")), f"{event.seconds:.1f} s"
        if event.cancelled:
            self.line("stopped", f"{name} was cancelled after {took}")
            return
        kind = "denied" if event.denied else "failed" if event.is_error else "done"
        self.line(kind, f"{name} ({took})")
        if event.preview.strip():
            self._err(quote_lines(event.preview, most=MOST_LINES), dim=True)
        if event.spilled is not None:
            self._err(f"  The full result is in {one_line(event.spilled)}", dim=True)

    def _end_turn(self, event: TurnEnded) -> None:
        self._rest = ""
        self._calls.clear()
        self._running.clear()
        self._screen.clear()
        self.end_line()
        if event.detail is not None:
            self.line("stopped" if event.fault is None else "failed", event.detail)
        if self._words and event.usage != Usage():
            self._err(f"({usage_text(event.usage)}{cost_text(event.cost)})", dim=True)

    # --- our own lines ------------------------------------------------------------------------------------------------

    def line(self, kind: str, text: str) -> None:
        """Write a line about the conversation, prefixed with its kind."""
        self.end_line()
        self._err(f"[{kind}] {one_line(text)}", **_STYLES.get(kind, {}))

    def show_text(self, text: str) -> None:
        """Write text that the user asked for to stdout."""
        self.end_line()
        click.echo(wrap_lines(printable(text), terminal_width() - 1))

    def end_line(self) -> None:
        """End the model's current line, if it is not ended."""
        if self._open:
            self._open = False
            click.echo()

    def _err(self, text: str, **style: Any) -> None:
        self._screen.clear()
        safe = wrap_lines(printable(text), terminal_width(sys.stderr) - 1)
        click.echo(click.style(safe, **style) if self._styled else safe, err=True)


def _takes_styles() -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(sys.stdout.isatty() and sys.stderr.isatty())


def _moved(line: str) -> str:
    return f" {line}" if line.startswith("[") else line


def _json(value: Any) -> str:
    return wire_json(value).decode()


def usage_text(usage: Usage) -> str:
    """Format token usage."""
    cached = f", {usage.cached_tokens:,} of them from a cache" if usage.cached_tokens else ""
    return f"{usage.input_tokens:,} tokens in{cached}, {usage.output_tokens:,} out"


def cost_text(cost: float | None) -> str:
    """Format a cost, preceded by a comma; empty if unknown."""
    return "" if cost is None else f", ${cost:.4f}"
