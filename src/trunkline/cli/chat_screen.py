"""Shows a conversation as it happens: the model's words on stdout, all that is about them on stderr.

What models and servers say is made inert before it is shown, is never read as markup, and where it could pretend to be
ours it is marked line by line. The escapes here are our own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import click

from trunkline.cli.output import clip, one_line, plain, wire_json
from trunkline.cli.screen import Screen
from trunkline.host.chat.events import Began, ChatEvent, Ended, Noticed, Progressed, Proposed, Said, TurnOver
from trunkline.host.models.interface import Usage

__all__ = ["ChatScreen", "cost_text", "marked", "usage_text"]

_LONGEST_ARGUMENTS = 1000
_MOST_LINES = 12
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


class ChatScreen:
    """What a person sees of a conversation."""

    def __init__(self, screen: Screen, *, words: bool = True) -> None:
        """Write beside what else stands on the screen; without ``words`` the model's own are not shown."""
        self._screen = screen
        self._words = words
        self._styled = _takes_styles()
        self._here = sys.stdout.isatty()
        #: The last line of the model's is not ended.
        self._open = False
        self._rest = ""
        self._calls: dict[str, str] = {}
        self._running: set[str] = set()

    # --- events ------------------------------------------------------------------------------------------------------

    def show(self, event: ChatEvent) -> None:
        """Show what happened."""
        match event:
            case Said():
                self._say(event.text)
            case Proposed():
                self._propose(event)
            case Began():
                self._running.add(event.call_id)
            case Progressed():
                self._progress(event)
            case Ended():
                self._end_call(event)
            case Noticed():
                self.line("note", event.text)
            case TurnOver():
                self._end_turn(event)

    def _say(self, text: str) -> None:
        if not self._words:
            return
        # A line end may come in two pieces, and half of it is a control character.
        text, self._rest = self._rest + text, ""
        if text.endswith("\r"):
            text, self._rest = text[:-1], "\r"
        if text:
            self._screen.clear()
            safe = plain(text)
            sys.stdout.write(self._told_apart(safe) if self._here else safe)
            sys.stdout.flush()
            self._open = not text.endswith("\n")

    def _told_apart(self, text: str) -> str:
        """Move a bracket from the beginning of a line: the lines that begin with one are ours."""
        lines = text.split("\n")
        first = lines[0] if self._open else _moved(lines[0])
        return "\n".join([first, *map(_moved, lines[1:])])

    def _propose(self, event: Proposed) -> None:
        name = event.tool if event.server is None else f"{event.server}/{event.tool}"
        self._calls[event.call_id] = name
        written = "(no arguments that can be read)" if event.arguments is None else _json(event.arguments)
        self.line("call", f"{one_line(name)} {clip(written, _LONGEST_ARGUMENTS)}")

    def _progress(self, event: Progressed) -> None:
        self.end_line()
        name = self._calls.get(event.call_id, "")
        self._screen.progress(event.progress, event.total, f"{name} {event.message or ''}")

    def _end_call(self, event: Ended) -> None:
        self._running.discard(event.call_id)
        name, took = one_line(self._calls.pop(event.call_id, "")), f"{event.seconds:.1f} s"
        if event.cancelled:
            self.line("stopped", f"{name} was called off after {took}")
            return
        kind = "denied" if event.denied else "failed" if event.is_error else "done"
        self.line(kind, f"{name} ({took})")
        if event.preview.strip():
            self._err(marked(event.preview), dim=True)
        if event.spilled is not None:
            self._err(f"  The whole result is in {one_line(event.spilled)}", dim=True)

    def _end_turn(self, event: TurnOver) -> None:
        self._rest = ""
        self._calls.clear()
        self._running.clear()
        self._screen.clear()
        self.end_line()
        if event.detail is not None:
            self.line("stopped" if event.fault is None else "failed", event.detail)
        if self._words and event.usage != Usage():
            self._err(f"({usage_text(event.usage)}{cost_text(event.cost)})", dim=True)

    # --- lines of our own --------------------------------------------------------------------------------------------

    def line(self, kind: str, text: str) -> None:
        """Write a line about the conversation, with the word for what it is about in front."""
        self.end_line()
        self._err(f"[{kind}] {one_line(text)}", **_STYLES.get(kind, {}))

    def tell(self, text: str) -> None:
        """Write what the person asked to see."""
        self.end_line()
        click.echo(plain(text))

    def end_line(self) -> None:
        """End the model's line, if it stands open."""
        if self._open:
            self._open = False
            click.echo()

    def _err(self, text: str, **style: Any) -> None:
        self._screen.clear()
        safe = plain(text)
        click.echo(click.style(safe, **style) if self._styled else safe, err=True)


def _takes_styles() -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(sys.stdout.isatty() and sys.stderr.isatty())


def _moved(line: str) -> str:
    return f" {line}" if line.startswith("[") else line


def _json(value: Any) -> str:
    return wire_json(value).decode()


def marked(text: str, *, most: int = _MOST_LINES) -> str:
    """Mark words that are not ours, line by line; only so many lines are shown."""
    lines = plain(text).splitlines()
    shown = [f"  | {line}" for line in lines[:most]]
    return "\n".join([*shown, *([f"  ({len(lines) - most} more lines)"] if len(lines) > most else [])])


def usage_text(usage: Usage) -> str:
    """Say what something took, in tokens."""
    cached = f", {usage.cached_tokens:,} of them from a cache" if usage.cached_tokens else ""
    return f"{usage.input_tokens:,} tokens in{cached}, {usage.output_tokens:,} out"


def cost_text(cost: float | None) -> str:
    """Say what something cost, after a comma; nothing if that is not known."""
    return "" if cost is None else f", ${cost:.4f}"
