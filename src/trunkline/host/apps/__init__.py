"""Other applications that have servers configured: Claude Desktop, Claude Code, Cursor and VS Code.

``places`` knows where their files are, ``documents`` reads one, ``spans`` and ``editing`` change its text and nothing
else of it, ``rewriting`` writes it back with a backup and takes that back again. ``importing`` plans what is taken from
them, ``translating`` makes the entry that is put into one. Nothing here starts a server.
"""

__all__: list[str] = []
