"""FastMCP's transforms: what changes components between a provider and a client."""
