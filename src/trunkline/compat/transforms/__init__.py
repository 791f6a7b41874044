"""FastMCP's transforms: what changes components between a provider and a client."""

__all__: list[str] = []
