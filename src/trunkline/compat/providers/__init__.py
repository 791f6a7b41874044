"""FastMCP's providers: what offers components to a server beside its own registrations."""

__all__: list[str] = []
