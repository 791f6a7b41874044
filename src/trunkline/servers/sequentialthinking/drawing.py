"""Thoughts as boxes on stderr, with control characters made visible.

Some applications never read the stderr of a server, so writing must not block on a full pipe.
"""

from __future__ import annotations

import os
import select
import sys
import textwrap

from trunkline.servers.sequentialthinking.lines import Thought

__all__ = ["draw", "show"]

_WIDTH = 100
_MOST_CHARS = 10_000
#: Bytes that a writable pipe accepts at once, and the seconds to wait for a full one.
_PIECE = 4096
_PATIENCE = 0.1


def draw(thought: Thought) -> str:
    """Return the box of a thought: its kind, number and text."""
    total = max(thought.total, thought.number)
    if thought.is_revision:
        title = f"Revision {thought.number}/{total} (of thought {thought.revises})"
    elif thought.branches_from:
        title = (
            f"Branch {thought.number}/{total} (from thought {thought.branches_from}, id {_inert(thought.branch or '')})"
        )
    else:
        title = f"Thought {thought.number}/{total}"
    text = thought.text if len(thought.text) <= _MOST_CHARS else thought.text[:_MOST_CHARS] + " [...]"
    head = textwrap.wrap(title, _WIDTH)
    body = [piece for line in text.splitlines() for piece in textwrap.wrap(_inert(line), _WIDTH) or [""]] or [""]
    width = max(len(line) for line in (*head, *body))
    rule = "─" * (width + 2)
    rows = [[f"│ {line.ljust(width)} │" for line in part] for part in (head, body)]
    return "\n".join([f"┌{rule}┐", *rows[0], f"├{rule}┤", *rows[1], f"└{rule}┘"])


def _inert(text: str) -> str:
    return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in text)


def show(box: str) -> None:
    """Write a box to stderr, as far as the pipe accepts it."""
    rest = memoryview(f"{box}\n".encode())
    try:
        descriptor = sys.stderr.fileno()
        sys.stderr.flush()
        while rest and select.select([], [descriptor], [], _PATIENCE)[1]:
            rest = rest[os.write(descriptor, rest[:_PIECE]) :]
    except (OSError, ValueError):
        # It is closed, or not a file.
        return
