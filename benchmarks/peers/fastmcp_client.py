"""FastMCP's client under measure."""

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from benchmarks.clients.workload import arguments, measure, run


async def main() -> None:
    """Connect as the arguments say and measure."""
    revision, command = arguments()
    if command and command[0].startswith("http:"):
        target = command[0]
    elif command:
        target = StdioTransport(command[0], command[1:])
    else:
        from benchmarks.peers.fastmcp_server import server as target
    async with Client(target, mode="legacy" if revision < "2026" else "auto") as client:

        async def call() -> object:
            return (await client.call_tool("add", {"a": 1, "b": 2})).structured_content

        await measure(call)


run(main(), loop="asyncio")
