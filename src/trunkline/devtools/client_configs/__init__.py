"""Configuration files of other MCP applications: Claude Desktop, Claude Code, Cursor and VS Code.

``files`` knows where they are, reads them, and writes them with a backup; ``json_edit`` changes one entry of a text and
nothing else; ``masking`` hides secrets in a diff; ``import_plan`` plans an import from them; ``entries`` builds the
entry that is installed into one. Nothing here starts a server.
"""

__all__: list[str] = []
