"""Round trips that a model needs for wrong calls: 60 of them, the same functions in Trunkline and in FastMCP.

``python -m benchmarks.wrong_calls [PYTHON]`` prints both; PYTHON is an interpreter that has FastMCP. The caller is a
rule, not a model: after each error it corrects every argument that the message names (with all its steps, in one line)
and, where a choice was wrong, only if the message has the right one. What is accepted at once took one round trip.
``errors`` counts what the messages report, ``needless`` what of it is not wrong: branches of a union that the
call did not mean.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

__all__ = ["CORPUS", "TOOLS", "measure"]

MOST_TRIPS = 5
_DROP = "(left out)"


class Walk(BaseModel):
    """A walk."""

    kind: Literal["walk"]
    spot: str
    height: int = 7


class Ride(BaseModel):
    """A ride."""

    kind: Literal["ride"]
    seats: int
    wheels: Literal[2, 3, 4] = 4


class Stay(BaseModel):
    """A night somewhere."""

    kind: Literal["stay"]
    nights: int = Field(ge=1)
    hotel: str


@dataclass
class Item:
    """A line of an order."""

    name: str
    count: int = 1
    due: date | None = None


def forecast(city: str, days: int = 3, unit: Literal["celsius", "fahrenheit"] = "celsius") -> str:
    """Return a forecast."""
    return "done"


def order(customer: str, items: list[Item], express: bool = False) -> str:
    """Order items."""
    return "done"


def trip(title: str, steps: list[Walk | Ride | Stay]) -> str:
    """Plan a trip."""
    return "done"


def one_step(step: Annotated[Walk | Ride | Stay, Field(discriminator="kind")], note: str = "") -> str:
    """Plan one step."""
    return "done"


def meeting(at: datetime, clock: time, until: date, people: list[str], room: int = 1) -> str:
    """Arrange a meeting."""
    return "done"


def search(
    query: Annotated[str, Field(min_length=1)],
    limit: Annotated[int, Field(ge=1, le=100)] = 10,
    tags: list[str] | None = None,
    ratio: float = 0.5,
) -> str:
    """Search."""
    return "done"


TOOLS = (forecast, order, trip, one_step, meeting, search)

ITEM = {"name": "pen", "count": 2}
WALK = {"kind": "walk", "spot": "hill"}
RIDE = {"kind": "ride", "seats": 2}
STAY = {"kind": "stay", "nights": 1, "hotel": "Inn"}
RIGHT: dict[str, dict[str, Any]] = {
    "forecast": {"city": "Oslo", "days": 2, "unit": "celsius"},
    "order": {"customer": "Ann", "items": [ITEM, ITEM], "express": True},
    "trip": {"title": "T", "steps": [WALK, RIDE, STAY]},
    "one_step": {"step": RIDE, "note": "n"},
    "meeting": {"at": "2026-01-02T10:00:00", "clock": "10:00:00", "until": "2026-01-02", "people": ["Ann"], "room": 2},
    "search": {"query": "q", "limit": 5, "tags": ["a"], "ratio": 0.1},
}

#: The tool, and what is wrong: by path the wrong value. A path that the right call lacks is an unknown argument.
CORPUS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("forecast", {"city": _DROP}),
    ("forecast", {"city": 3}),
    ("forecast", {"days": "soon"}),
    ("forecast", {"days": 1.5, "unit": "kelvin"}),
    ("forecast", {"unit": "Celsius"}),
    ("forecast", {"days": None}),
    ("forecast", {"unit": None, "days": None}),
    ("forecast", {"town": "Oslo", "city": _DROP}),
    ("forecast", {"citty": "Oslo", "city": _DROP, "days": "x"}),
    ("forecast", {"city": None, "days": "many", "unit": 7}),
    ("order", {"customer": _DROP, "items": _DROP}),
    ("order", {"items": "pen"}),
    ("order", {"items.0.name": _DROP}),
    ("order", {"items.0.count": "two", "items.1.count": "x"}),
    ("order", {"items.0.due": "tomorrow", "express": "perhaps"}),
    ("order", {"items.1.name": 5, "items.0.name": _DROP, "customer": 1}),
    ("order", {"items.0.count": None}),
    ("order", {"express": None}),
    ("order", {"express": "perhaps", "color": "red"}),
    ("order", {"items.0": "pen", "items.1.count": []}),
    ("trip", {"title": _DROP, "steps.0.spot": _DROP}),
    ("trip", {"steps.0.spot": 3}),
    ("trip", {"steps.1.seats": "two"}),
    ("trip", {"steps.2.nights": 0}),
    ("trip", {"steps.2.hotel": _DROP, "steps.1.seats": _DROP}),
    ("trip", {"steps.0.kind": "hike"}),
    ("trip", {"steps.1.kind": _DROP}),
    ("trip", {"steps.1.wheels": 5}),
    ("trip", {"steps.0.height": None, "steps.1.wheels": None}),
    ("trip", {"steps.0.height": "high", "steps.1.seats": "few", "steps.2.nights": "all"}),
    ("one_step", {"step.seats": "x"}),
    ("one_step", {"step.kind": "rode"}),
    ("one_step", {"step.kind": _DROP}),
    ("one_step", {"step.wheels": 7, "note": 3}),
    ("one_step", {"step": "ride"}),
    ("one_step", {"note": None}),
    ("one_step", {"step.seats": _DROP, "notes": "x"}),
    ("one_step", {"step": _DROP}),
    ("one_step", {"step.seats": None}),
    ("one_step", {"step.wheels": "four", "step.seats": []}),
    ("meeting", {"at": "tomorrow"}),
    ("meeting", {"at": "2026-01-02 10:00"}),
    ("meeting", {"clock": "10:00"}),
    ("meeting", {"clock": "10 am", "until": "Friday"}),
    ("meeting", {"until": "2026-13-01"}),
    ("meeting", {"until": "2026-01-02T00:00:00"}),
    ("meeting", {"at": 1767348000}),
    ("meeting", {"people": "Ann"}),
    ("meeting", {"people.0": 3, "room": "blue"}),
    ("meeting", {"at": "x", "clock": "x", "until": "x", "people": {}, "room": "x"}),
    ("search", {"query": ""}),
    ("search", {"limit": 0}),
    ("search", {"limit": 1000, "ratio": "half"}),
    ("search", {"limit": "5", "ratio": "0.1"}),
    ("search", {"tags": "a"}),
    ("search", {"tags": '["a"]'}),
    ("search", {"tags.0": 1, "query": _DROP}),
    ("search", {"limit": None, "ratio": None, "tags": None}),
    ("search", {"max": 5, "query": 1}),
    ("search", {"query": "", "limit": -1, "ratio": "x", "tags": 3}),
)


async def measure(call: Any) -> dict[str, Any]:
    """Make every wrong call until it is right; ``call(tool, arguments)`` returns the error's text, or None."""
    trips: list[int] = []
    unsolved: list[Any] = []
    errors = needless = 0
    for tool, faults in CORPUS:
        left = dict(faults)
        trips.append(0)
        while trips[-1] < MOST_TRIPS:
            trips[-1] += 1
            message = await call(tool, _arguments(tool, left))
            if message is None:
                break
            told = [path for path, wrong in left.items() if _is_told(message, tool, path, wrong)]
            count = _count(message)
            errors += count
            needless += max(0, count - len(told))
            for path in told:
                del left[path]
        else:
            unsolved.append([tool, faults])
    return {
        "calls": len(CORPUS),
        "round_trips": sum(trips),
        "accepted_at_once": trips.count(1),
        "two_trips": trips.count(2),
        "more": sum(number > 2 for number in trips),
        "errors": errors,
        "needless": needless,
        "unsolved": unsolved,
    }


def _arguments(tool: str, faults: dict[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = json.loads(json.dumps(RIGHT[tool]))
    for path, value in sorted(faults.items()):
        *before, last = [int(step) if step.isdigit() else step for step in path.split(".")]
        holder: Any = arguments
        for step in before:
            holder = holder[step]
        if value == _DROP:
            del holder[last]
        else:
            holder[last] = value
    return arguments


def _is_told(message: str, tool: str, path: str, wrong: Any) -> bool:
    steps = path.split(".")
    # pydantic writes the path in one line and what is wrong there in the next, indented.
    message = re.sub(r"\n\s+", " ", message)
    if not any(re.search(r"\b" + r"\b.*\b".join(map(re.escape, steps)) + r"\b", line) for line in message.splitlines()):
        return False
    right: Any = RIGHT[tool]
    for step in steps:
        right = right[int(step)] if isinstance(right, list) else right.get(step)
    is_choice = steps[-1] in ("kind", "unit") and wrong != _DROP
    return not is_choice or repr(right) in message


def _count(message: str) -> int:
    counted = re.match(r"(\d+) (?:validation )?errors?\b", message)
    return int(counted[1]) if counted else 1


async def _ours() -> dict[str, Any]:
    from trunkline import Client, Server

    async with Client(Server("wrong calls", tools=list(TOOLS))) as client:

        async def call(tool: str, arguments: dict[str, Any]) -> str | None:
            result = await client.call_tool(tool, arguments, raise_on_error=False)
            return result.text if result.is_error else None

        return await measure(call)


async def _fastmcp() -> dict[str, Any]:
    import logging

    import fastmcp  # type: ignore[import-not-found, unused-ignore]

    logging.disable(logging.ERROR)
    server = fastmcp.FastMCP("wrong calls")
    for function in TOOLS:
        server.tool(function)
    async with fastmcp.Client(server) as client:

        async def call(tool: str, arguments: dict[str, Any]) -> str | None:
            result = await client.call_tool(tool, arguments, raise_on_error=False)
            return result.content[0].text if result.is_error else None

        return await measure(call)


if __name__ == "__main__":
    if sys.argv[1:] == ["--fastmcp"]:
        sys.stdout.write(json.dumps(asyncio.run(_fastmcp())))
    else:
        sys.stdout.write(f"trunkline {json.dumps(asyncio.run(_ours()))}\n")
        for python in sys.argv[1:]:
            done = subprocess.run([python, __file__, "--fastmcp"], capture_output=True, text=True, timeout=120)
            sys.stdout.write(f"fastmcp   {done.stdout or done.stderr}\n")
