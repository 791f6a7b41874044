"""The same call in both eras, as the lines a client would write."""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["ERAS", "each_era"]

HANDSHAKE: tuple[dict[str, Any], ...] = (
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1, "b": 2}}},
)  # fmt: skip
STATELESS: tuple[dict[str, Any], ...] = (
    {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "add", "arguments": {"a": 1, "b": 2}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {}}}},
)  # fmt: skip
ERAS = {"handshake": HANDSHAKE, "stateless": STATELESS}

each_era = pytest.mark.parametrize("era", list(ERAS))
