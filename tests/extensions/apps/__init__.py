"""Tests of MCP Apps."""
