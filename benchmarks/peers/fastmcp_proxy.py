"""FastMCP's own proxy before one server. Arguments: the port, the kind, the command as JSON or the URL, a folder."""

import json
import sys

import uvicorn
from fastmcp.server import create_proxy

kind, where = sys.argv[2], sys.argv[3]
command = json.loads(where) if kind == "stdio" else []
entry = {"url": where} if kind == "http" else {"command": command[0], "args": command[1:]}
server = create_proxy({"mcpServers": {"up": entry}}, name="proxy")

if __name__ == "__main__":
    app = server.http_app(path="/mcp", json_response=True)
    uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", access_log=False, log_level="error")
