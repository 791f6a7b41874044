"""The bench tools on the official Python SDK over HTTP. Arguments: the port, and `json` or `sse` for the answers."""

import sys

import uvicorn
from mcp.server.mcpserver import Context

from benchmarks.peers.mcp_server import server
from benchmarks.servers.gate import GATE_AT, opened


@server.tool()
async def progress(count: int, message: str, gate: str, ctx: Context) -> bool:
    """Report progress, and say whether the gate was opened before the 100th report was made."""
    early = True
    for number in range(1, count + 1):
        if number == GATE_AT and gate:
            early = opened(gate)
        await ctx.report_progress(number, count, message or None)
    return early


if __name__ == "__main__":
    app = server.streamable_http_app(json_response=sys.argv[2] == "json")
    uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", access_log=False, log_level="error")
