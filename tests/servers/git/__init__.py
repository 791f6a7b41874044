"""The git server."""
