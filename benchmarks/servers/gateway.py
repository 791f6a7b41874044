"""Our gateway as it is meant to be run: policy of 50 rules, audit trail, HTTP, before one server.

Arguments: the port; ``stdio`` or ``http``; the server's command as JSON, or its URL; a folder for the host's files.
"""

import asyncio
import json
import sys
from pathlib import Path

from trunkline.host.host import Host

RULES = 50


def policy(path: Path) -> Path:
    """Write a policy whose last rule allows the tool that is called."""
    others = (
        f'[[rule]]\neffect = "ask"\nserver = "up"\ntool = "other_{at}_*"\nwhen = [{{ arg = "/a", min = {at} }}]\n'
        for at in range(RULES - 1)
    )
    path.write_text("".join(others) + '[[rule]]\neffect = "allow"\nserver = "up"\ntool = "add"\n', encoding="utf-8")
    return path


async def main(port: int, kind: str, where: str, folder: Path) -> None:
    """Serve until killed."""
    command = json.loads(where) if kind == "stdio" else []
    entry = {"url": where} if kind == "http" else {"command": command[0], "args": command[1:]}
    servers = {"mcpServers": {"up": entry}}
    async with Host.open(servers, folder=folder, policy=policy(folder / "policy.toml")) as host:
        await host.serve(http=port, no_auth=True)


if __name__ == "__main__":
    import uvloop

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4])))
