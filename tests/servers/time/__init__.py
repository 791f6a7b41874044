"""The time server."""
