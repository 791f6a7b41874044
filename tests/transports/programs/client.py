"""A client that starts the command it is given, passes its first message on, and then waits to be killed."""

import asyncio
import sys

from trunkline.protocol.caller import Origin
from trunkline.protocol.jsonrpc import Incoming, Notification
from trunkline.transports.process import ProcessLink


class Printer:
    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        if isinstance(incoming, Notification):
            sys.stdout.write(bytes(incoming.params).decode() + "\n")
            sys.stdout.flush()

    def eof_received(self, error: Exception | None = None, *, about: object = None) -> None:
        sys.stderr.write(f"{error}\n")


async def main() -> None:
    ProcessLink.spawn(sys.argv[1:]).attach(Printer())
    await asyncio.sleep(60)


asyncio.run(main())
