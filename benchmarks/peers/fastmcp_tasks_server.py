"""A task on FastMCP over Redis (FASTMCP_DOCKET_URL). Arguments: the port."""

import sys

import fastmcp_tasks
import uvicorn
from fastmcp import FastMCP

server = FastMCP("bench")
server.add_extension(fastmcp_tasks.TasksExtension())


@server.tool(task=True)
async def job(text: str) -> str:
    """Return the text, as a task."""
    return text


if __name__ == "__main__":
    app = server.http_app(path="/mcp")
    uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", access_log=False, log_level="error")
