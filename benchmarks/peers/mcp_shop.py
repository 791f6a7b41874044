"""The shop on the official Python SDK. Argument: the port."""

import sys

import uvicorn
from mcp.server import MCPServer

from benchmarks.servers.shop_tools import TOOLS

server = MCPServer("shop", log_level="ERROR")
# Text alone, as the others respond to clients of this age.
for tool in TOOLS:
    server.add_tool(tool, structured_output=False)

if __name__ == "__main__":
    app = server.streamable_http_app(json_response=True)
    uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", access_log=False, log_level="error")
