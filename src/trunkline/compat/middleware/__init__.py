"""FastMCP's middleware: the base class, and the middleware that comes with it."""

__all__: list[str] = []
