"""The sequential thinking server."""
