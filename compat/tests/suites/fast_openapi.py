"""``FastMCP.from_openapi`` of versions 2 to 4, with an HTTP API of this process."""

import asyncio
import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

import pytest
from fastmcp import Client, FastMCP
from fastmcp.exceptions import ToolError

try:
    import httpx
except ImportError:
    httpx = pytest.importorskip("httpx2")

PET = {"type": "object", "properties": {"path": {"type": "string"}, "query": {"type": "string"}}}
ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
FULL = {"name": "full", "in": "query", "schema": {"type": "boolean"}}
BODY = {"required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/New"}}}}
OK = {"200": {"description": "Fine", "content": {"application/json": {"schema": PET}}}}


def document(url):
    return {
        "openapi": "3.1.0",
        "info": {"title": "Pets", "version": "1"},
        "servers": [{"url": url}],
        "components": {
            "schemas": {
                "New": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                    "required": ["name"],
                }
            }
        },
        "paths": {
            "/pets/{id}": {
                "parameters": [ID],
                "get": {"operationId": "getPet", "summary": "Get a pet", "parameters": [FULL], "responses": OK},
                "delete": {"operationId": "deletePet", "tags": ["danger"], "responses": OK},
            },
            "/pets": {"post": {"operationId": "addPet", "requestBody": BODY, "responses": OK}},
        },
    }


@contextmanager
def api():
    """Serve the API, which answers with what it was asked."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            parts = urlsplit(self.path)
            length = int(self.headers.get("content-length") or 0)
            sent = json.loads(self.rfile.read(length)) if length else None
            known = {"path": parts.path, "query": parts.query, "sent": sent, "key": self.headers.get("x-key")}
            body = json.dumps(known).encode()
            self.send_response(404 if parts.path == "/pets/404" else 200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = answer

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


async def test_operations_are_tools_that_call_the_api(fast):
    with api() as url:
        async with httpx.AsyncClient(base_url=url, headers={"x-key": "k"}) as web:
            server = FastMCP.from_openapi(document(url), client=web, name="Pets")
            async with Client(server) as client:
                tools = {tool.name: tool for tool in await client.list_tools()}
                assert set(tools) == {"getPet", "deletePet", "addPet"}
                schema = tools["addPet"].inputSchema if fast < 4 else tools["addPet"].input_schema
                assert (set(schema["properties"]), schema["required"]) == ({"name", "age"}, ["name"])
                found = (await client.call_tool("getPet", {"id": 7, "full": True})).structured_content
                assert (found["path"], found["query"], found["key"]) == ("/pets/7", "full=true", "k")
                added = (await client.call_tool("addPet", {"name": "Rex", "age": 3})).structured_content
                assert (added["path"], added["sent"]) == ("/pets", {"name": "Rex", "age": 3})
                with pytest.raises(ToolError, match="404"):
                    await client.call_tool("getPet", {"id": 404})
                if fast > 2:  # which sends it
                    with pytest.raises(ToolError):
                        await client.call_tool("getPet", {"id": "../../etc"})


async def test_maps_exclude_operations_and_names_replace_them(fast):
    if fast == 2:
        from fastmcp.server.openapi import MCPType, RouteMap
    else:
        from fastmcp.server.providers.openapi import MCPType, RouteMap
    with api() as url:
        async with httpx.AsyncClient(base_url=url) as web:
            server = FastMCP.from_openapi(
                document(url),
                client=web,
                route_maps=[RouteMap(methods=["DELETE"], pattern=r".*", mcp_type=MCPType.EXCLUDE)],
                mcp_names={"getPet": "fetch_pet"},
            )
            async with Client(server) as client:
                assert {tool.name for tool in await client.list_tools()} == {"fetch_pet", "addPet"}
                assert (await client.call_tool("fetch_pet", {"id": 1})).structured_content["path"] == "/pets/1"


async def test_several_calls_run_at_once():
    with api() as url:
        web = httpx.AsyncClient(base_url=url)
        async with web, Client(FastMCP.from_openapi(document(url), client=web)) as client:
            answers = await asyncio.gather(*(client.call_tool("getPet", {"id": number}) for number in range(5)))
    assert [answer.structured_content["path"] for answer in answers] == [f"/pets/{number}" for number in range(5)]
