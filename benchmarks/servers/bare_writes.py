"""The floor of a notice: writes the same bytes to every connection, once for each line ``!``. Argument: the port."""

import asyncio
import sys
from typing import Any

# A notice as a server sends it: a chunk with one event.
NOTICE = (
    b'a5\r\nevent: message\ndata: {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":'
    b'{"io.modelcontextprotocol/subscriptionId":100000000000}}}\n\n\r\n'
)
CONNECTIONS: set[Any] = set()


class Connection(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport: Any = transport
        CONNECTIONS.add(transport)

    def data_received(self, data: bytes) -> None:
        """Write to all if this is the sign to; answer everything else with a head and the mark of an open stream."""
        if data == b"!\n":
            for transport in CONNECTIONS:
                transport.write(NOTICE)
        else:
            self.transport.write(b"HTTP/1.1 200 OK\r\n\r\nsubscriptions/acknowledged")

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the connection."""
        CONNECTIONS.discard(self.transport)


async def main() -> None:
    """Serve until the process is killed."""
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", int(sys.argv[1]), backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
