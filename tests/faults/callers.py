"""The clients that call through the gateway all the while, and what they make of the answers.

Each call carries a name of its own, which comes back in the answer with the server's: an answer that belongs to another
call, or to another server, is seen at once.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable, Sequence

from tests.faults.casting import Part
from tests.faults.claims import Claims, Row, Tally
from trunkline import Client
from trunkline.errors import RequestFailed, ToolError, TrunklineError
from trunkline.types import TextContent

__all__ = ["BOUND", "Caller"]

#: Seconds after which a call hangs, whatever it waits for.
BOUND = 30.0

_SIZES = (0, 5, 5, 5, 5, 100, 1000, 100_000)
_QUOTED = re.compile(r"'[^']*'|\d+(\.\d+)?|\{.*|\[.*")


class Caller:
    """One client, and the calls it makes."""

    def __init__(self, name: str, make: Callable[[], Client], *, claims: Claims, tally: Tally) -> None:
        """Take what makes a client."""
        self.name = name
        self.make = make
        self._claims = claims
        self._tally = tally
        self._made = 0

    async def keep_calling(
        self, client: Client, parts: Sequence[Part], chance: random.Random, stopping: asyncio.Event
    ) -> None:
        """Call one server after the other until told to stop; a few calls are given up half-way."""
        while not stopping.is_set():
            part = chance.choice(parts)
            await self.call(client, part, chance, give_up=chance.random() < 0.05)
            await asyncio.sleep(chance.choice((0.0, 0.01, 0.03)))

    async def keep_visiting(self, parts: Sequence[Part], chance: random.Random, stopping: asyncio.Event) -> None:
        """Come, call, and go again, until told to stop; now and then while calls are under way."""
        while not stopping.is_set():
            async with self.make() as client:
                calls = [
                    asyncio.create_task(self.call(client, chance.choice(parts), chance))
                    for _ in range(chance.randrange(1, 4))
                ]
                if chance.random() < 0.5:
                    await asyncio.sleep(chance.choice((0.0, 0.005, 0.05)))
                    for call in calls:
                        call.cancel()
                await asyncio.wait(calls)
            await asyncio.sleep(0.05)

    async def call(self, client: Client, part: Part, chance: random.Random, *, give_up: bool = False) -> bool:
        """Make one call and judge what comes of it; tell whether it was answered."""
        self._made += 1
        call = f"{self.name}.{self._made}"
        value = f"{chance.random()} " + "v" * chance.choice(_SIZES)
        row = self._tally.row(part.kind.name)
        row.calls += 1
        patience = chance.choice((0.0, 0.003, 0.02, 0.5)) if give_up else BOUND
        started = time.monotonic()
        try:
            async with asyncio.timeout(patience):
                result = await client.call_tool(part.tool, {"call": call, "value": value})
        except TimeoutError:
            row.withdrawn += 1
            self._claims.hold(give_up, f"{part.name}: call {call} hung for {BOUND:g} s")
            return False
        except asyncio.CancelledError:
            row.withdrawn += 1
            raise
        except TrunklineError as error:
            self._failed(part, row, error)
            return False
        finally:
            row.slowest = max(row.slowest, time.monotonic() - started)
        first = result.content[0] if result.content else None
        text = first.text if isinstance(first, TextContent) else ""
        self._answered(part, row, text, f"{part.name} {call} {value}")
        return True

    def _answered(self, part: Part, row: Row, text: str, right: str) -> None:
        row.answered += 1
        if text != right:
            self._claims.hold(False, f"{part.name}: answered {text[:80]!r} instead of {right[:80]!r}")

    def _failed(self, part: Part, row: Row, error: TrunklineError) -> None:
        reason = str(error)
        row.failures[_kind_of(reason)] += 1
        self._claims.hold(not part.honest, f"{part.name} is well, but a call of {self.name} failed: {reason[:300]}")
        # The gateway is always there: whatever it cannot do, it says.
        said = isinstance(error, RequestFailed | ToolError)
        self._claims.hold(said, f"{part.name}: the gateway did not answer {self.name}: {error!r:.300}")
        self._claims.hold("internal error" not in reason.lower(), f"{part.name}: {reason[:300]}")
        self._claims.hold("LIE" not in reason or not part.honest, f"{part.name}: {reason[:300]}")


def _kind_of(reason: str) -> str:
    """Leave out of a reason what differs from call to call."""
    return _QUOTED.sub("…", reason.partition("\n")[0])[:100]
