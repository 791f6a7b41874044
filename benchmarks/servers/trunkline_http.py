"""The bench tools on Trunkline over HTTP. Arguments: the port, and the form of answers, which it chooses by itself."""

import sys

from benchmarks.servers.gate import GATE_AT, opened
from benchmarks.servers.trunkline_server import add, add_sync
from trunkline import Context, Limits, Server

server = Server("bench", tools=[add, add_sync], limits=Limits(connections=20_000, sessions=20_000, streams=20_000))


@server.tool
async def progress(count: int, message: str, gate: str, ctx: Context) -> bool:
    """Report progress, and say whether the gate was opened before the 100th report was made."""
    early = True
    for number in range(1, count + 1):
        if number == GATE_AT and gate:
            early = opened(gate)
        await ctx.report_progress(number, count, message or None)
    return early


@server.tool
async def change() -> bool:
    """Tell every listener that the list of tools has changed."""
    server.changed("tools")
    return True


if __name__ == "__main__":
    server.run("http", host="127.0.0.1", port=int(sys.argv[1]), path="/mcp")
