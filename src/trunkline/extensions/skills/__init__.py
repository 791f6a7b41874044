"""The extension ``io.modelcontextprotocol/skills``: folders with instructions for an agent; both sides."""

__all__: list[str] = []
