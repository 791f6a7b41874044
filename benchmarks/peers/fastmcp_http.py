"""The bench tools on FastMCP over HTTP. Arguments: the port, and `json` or `sse` for the answers."""

import sys

import uvicorn
from fastmcp import Context

from benchmarks.peers.fastmcp_server import server
from benchmarks.servers.gate import GATE_AT, opened


@server.tool
async def progress(count: int, message: str, gate: str, ctx: Context) -> bool:
    """Report progress, and say whether the gate was opened before the 100th report was made."""
    early = True
    for number in range(1, count + 1):
        if number == GATE_AT and gate:
            early = opened(gate)
        await ctx.report_progress(number, count, message or None)
    return early


if __name__ == "__main__":
    app = server.http_app(path="/mcp", json_response=sys.argv[2] == "json")
    uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", access_log=False, log_level="error")
