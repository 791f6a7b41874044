"""The shop on FastMCP. Argument: the port."""

import sys

import uvicorn
from fastmcp import FastMCP

from benchmarks.servers.shop_tools import TOOLS

server = FastMCP("shop")
# Text alone, as the others respond to clients of this age.
for tool in TOOLS:
    server.tool(tool, output_schema=None)

if __name__ == "__main__":
    app = server.http_app(path="/mcp", json_response=True)
    uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", access_log=False, log_level="error")
