"""Draws the state diagrams of a request, from the tables of the peer, into ARCHITECTURE.md; run it after a change."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from trunkline.protocol.peer import INCOMING_TRANSITIONS, OUTGOING_TRANSITIONS

__all__ = ["drawing", "redrawn"]

PAGE = Path(__file__).parent.parent / "ARCHITECTURE.md"
START, END = "<!-- states: start -->\n", "<!-- states: end -->\n"


def drawing() -> str:
    """Return both tables as Mermaid state diagrams."""
    return "\n".join(
        (
            "A request the other side made:",
            "",
            *_diagram(INCOMING_TRANSITIONS),
            "",
            "A request we made:",
            "",
            *_diagram(OUTGOING_TRANSITIONS),
            "",
        )
    )


def redrawn(page: str) -> str:
    """Return the page with the diagrams between its marks."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}{drawing()}{END}{after}"


def _diagram(moves: Mapping[Any, Enum]) -> list[str]:
    first = next(iter(moves))[0]
    ends = dict.fromkeys(end.value for end in moves.values())
    return [
        "```mermaid",
        "stateDiagram-v2",
        f"    [*] --> {first.value}",
        *(f"    {state.value} --> {end.value}: {what}" for (state, what), end in moves.items()),
        *(f"    {end} --> [*]" for end in ends),
        "```",
    ]


if __name__ == "__main__":
    PAGE.write_text(redrawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
