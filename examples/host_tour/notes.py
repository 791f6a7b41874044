"""A small server for a folder of notes: reads and writes them."""

import os
from pathlib import Path

from trunkline import Server, ToolError

FOLDER = Path(os.environ.get("NOTES", Path(__file__).with_name("workspace"))).resolve()
server = Server("notes", instructions="Notes are short texts in Markdown; list them before you read one.")


def _path(name: str) -> Path:
    if name not in {path.name for path in FOLDER.glob("*.md")} and not (name.endswith(".md") and name.isidentifier()):
        plain = name.removesuffix(".md")
        if not plain.isidentifier():
            raise ToolError(
                f"{name!r} is not the name of a note; use letters, digits and underscores, and .md at the end"
            )
    return FOLDER / (name if name.endswith(".md") else f"{name}.md")


@server.tool(annotations={"readOnlyHint": True, "openWorldHint": False})
def list_notes() -> list[str]:
    """List the notes."""
    return sorted(path.name for path in FOLDER.glob("*.md"))


@server.tool(annotations={"readOnlyHint": True, "openWorldHint": False})
def read_note(name: str) -> str:
    """Read a note."""
    path = _path(name)
    if not path.is_file():
        raise ToolError(f"there is no note {name!r}; list_notes lists them")
    return path.read_text(encoding="utf-8")


@server.tool(annotations={"destructiveHint": True, "openWorldHint": False})
def write_note(name: str, text: str) -> str:
    """Write a note; replaces a note of that name."""
    _path(name).write_text(text, encoding="utf-8")
    return f"{name} is written"


@server.tool(annotations={"destructiveHint": True, "openWorldHint": False})
def delete_all() -> str:
    """Delete every note."""
    for path in FOLDER.glob("*.md"):
        path.unlink()
    return "all notes are deleted"


if __name__ == "__main__":
    server.run()
