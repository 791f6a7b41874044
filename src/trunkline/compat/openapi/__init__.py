"""FastMCP's OpenAPI: documents as routes, routes as schemas of tools, arguments as HTTP requests."""

__all__: list[str] = []
