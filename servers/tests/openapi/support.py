"""Shared by the tests of this server: the documents, one call, and a minimal document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from servers.tests.openapi.fake_api import Double, running_double
from tests.support import run_async
from trunkline import Client
from trunkline.client.tool_cache import CallResult
from trunkline_servers.openapi import make_server

__all__ = ["PETS", "TRACKER", "call", "document", "operation", "schema_of"]

_DOCUMENTS = Path(__file__).with_name("documents")
PETS = _DOCUMENTS / "pet_shop.json"
TRACKER = _DOCUMENTS / "tracker.json"


def document(paths: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Make a small document."""
    return {"openapi": "3.1.0", "info": {"title": "Small", "version": "1"}, "paths": paths, **more}


def operation(**more: Any) -> dict[str, Any]:
    """Make an operation that is called ``it``."""
    return {"operationId": "it", "responses": {"200": {"description": "OK"}}, **more}


def call(
    source: Any, tool: str, arguments: dict[str, Any], answers: Any = None, **options: Any
) -> tuple[CallResult, Double]:
    """Call a tool of a document, alone unless ``include`` says more; give the result and what the double heard."""

    async def main() -> tuple[CallResult, Double]:
        async with running_double(answers) as double:
            server = make_server(source, base_url=double.url, **{"include": [tool], **options})
            async with Client(server) as client:
                return await client.call_tool(tool, arguments, raise_on_error=False), double

    return run_async(main())


def schema_of(source: Any, tool: str, **options: Any) -> dict[str, Any]:
    """Return the schema of a tool's arguments."""
    server = make_server(source, base_url="https://api.example.com", **{"include": [tool], **options})
    found: dict[str, Any] = server.registry.tools[tool].listed().input_schema
    return found
