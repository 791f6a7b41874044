"""Serve any OpenAPI 3.x document: its operations become tools and, optionally, resources."""

from __future__ import annotations

from trunkline_servers.openapi.document import Document, fetch_document, read_document
from trunkline_servers.openapi.server import make_server

__all__ = ["Document", "fetch_document", "make_server", "read_document"]
