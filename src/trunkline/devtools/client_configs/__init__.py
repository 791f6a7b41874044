"""Configuration files of other MCP applications, such as Claude Desktop, VS Code, Codex (TOML) and Goose (YAML).

``files`` knows where they are, reads them, and writes them with a backup; ``formats`` changes one entry of a text and
nothing else, with an editor per format (``json_edit``, ``toml_edit``, ``yaml_edit``); ``entries`` builds the entry that
is installed into one, and masks secrets in a diff; ``import_plan`` plans an import from them. Nothing here starts a
server.
"""

__all__: list[str] = []
