"""The same two servers as one, over HTTP: clients of every revision, with a token, under the same policy."""

import asyncio
import os
import tempfile

from examples.hosting.script import POLICY
from examples.hosting.servers import clock, shop
from trunkline import Host


def started(url: str, token: str | None) -> None:
    """Print the address and the token."""
    print(f"serving {url} {token}", flush=True)


async def main() -> None:
    """Serve until Ctrl-C."""
    with tempfile.TemporaryDirectory() as folder:
        async with Host.open({"clock": clock, "shop": shop}, policy=POLICY, folder=folder) as host:
            await host.serve(http=os.environ.get("PORT", "8000"), started=started)


if __name__ == "__main__":
    asyncio.run(main())
