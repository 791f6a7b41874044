"""Tools for developers: the doctor, recordings, and the configuration files of other MCP clients."""

__all__: list[str] = []
