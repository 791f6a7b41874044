"""An MCP server inside a FastAPI application: both work on the same notes.

Run it with ``uvicorn examples.mounted.app:app``; the notes are at ``/notes``, the server is at ``/mcp``.
"""

from fastapi import FastAPI

from trunkline import Server

notes: list[str] = []
server = Server("notes", version="1.0.0")


@server.tool
async def add_note(text: str) -> int:
    """Add a note and return the number of notes."""
    notes.append(text)
    return len(notes)


# The lifespan ends sessions and streams when the application stops.
mcp = server.asgi("/mcp")
app = FastAPI(lifespan=mcp.lifespan)


@app.get("/notes")
async def list_notes() -> list[str]:
    """Show the notes to a browser."""
    return notes


# Last: requests that match no route above go to the MCP server.
app.mount("/", mcp)
