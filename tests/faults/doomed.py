"""A host that is about to be killed: servers that could outlive it, calls without end, and a line for each answer.

The arguments are its folder, the mark of its processes, and a seed.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import sys
from pathlib import Path

from tests.faults.casting import Part, choose
from tests.faults.kinds import DOOMED
from tests.faults.scenes import open_host
from trunkline import Client
from trunkline.errors import TrunklineError
from trunkline.host.gateway.gateway import Gateway
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE

__all__ = ["main"]


async def main(folder: Path, mark: str, seed: str) -> None:
    """Run until killed."""
    logging.getLogger("trunkline").addHandler(logging.NullHandler())
    chance = random.Random(seed)
    parts = choose(DOOMED, chance, ledger=folder / "ledger", mark=mark)
    async with open_host(parts, folder) as host:
        gateway = Gateway(host._open.core, host.policy)
        async with (
            Client(gateway, revision=NEWEST.name) as new,
            Client(gateway, revision=NEWEST_HANDSHAKE.name, elicitation=lambda params: None) as old,
            asyncio.TaskGroup() as group,
        ):
            for number, client in enumerate((new, old)):
                for part in parts:
                    group.create_task(_call(client, part, f"c{number}"))


async def _call(client: Client, part: Part, name: str) -> None:
    """Call one server for ever, and say which calls were answered; each name ends with a full stop."""
    for number in itertools.count():
        call = f"{part.name}.{name}.{number}."
        try:
            await client.call_tool(part.tool, {"call": call, "value": "v"})
        except TrunklineError:
            await asyncio.sleep(0.1)
            continue
        os.write(1, f"{call}\n".encode())
        await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
