"""The drop-in proof of the filesystem server."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import MappingProxyType

from tests.interop.dropin.harness import Call, Script, npm, ours

__all__ = ["SCRIPT"]

_MORE = "Files are resources, with subscription; there is more to be had."
_WORDS = "Errors are told in other words, which name the fix."

_PICTURE = bytes.fromhex("89504e470d0a1a0a")


def prepare(folder: Path) -> None:
    """Fill a folder with a bit of everything."""
    (folder / "src" / "deep").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "notes.txt").write_text("one\ntwo\nthree\nfour")
    (folder / "ended.txt").write_text("one\ntwo\nthree\n")
    (folder / "windows.txt").write_bytes(b"one\r\ntwo\r\n")
    (folder / "Upper.TXT").write_text("x" * 2000)
    (folder / ".hidden").write_text("hidden")
    (folder / "src" / "app.py").write_text("def main():\n    if True:\n        return 1\n\n\nmain()\n")
    (folder / "src" / "deep" / "leaf.md").write_text("# Leaf\n")
    (folder / "dot.png").write_bytes(_PICTURE)
    (folder / "tone.wav").write_bytes(b"RIFF")
    (folder / "data.bin").write_bytes(bytes(range(8)))
    (folder / "inner").symlink_to("notes.txt")
    (folder / "outer").symlink_to("/etc/hostname")
    os.chmod(folder / "notes.txt", 0o640)


def _same(text: str) -> str:
    """Blank times, which no two runs share."""
    return re.sub(r"(created|modified|accessed): .*", r"\1: ...", text)


def _edits(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"oldText": old, "newText": new} for old, new in pairs]


_STEPS = (
    Call("list_allowed_directories"),
    Call("read_text_file", {"path": "{folder}/notes.txt"}),
    Call("read_file", {"path": "notes.txt"}),
    Call("read_text_file", {"path": "{folder}/notes.txt", "head": 2}, "head"),
    Call("read_text_file", {"path": "{folder}/notes.txt", "head": 9}, "head of all"),
    Call("read_text_file", {"path": "{folder}/ended.txt", "head": 9}, "head of an ended file"),
    Call("read_text_file", {"path": "{folder}/notes.txt", "tail": 2}, "tail"),
    Call("read_text_file", {"path": "{folder}/ended.txt", "tail": 2}, "tail of an ended file"),
    Call("read_text_file", {"path": "{folder}/notes.txt", "head": 0}, "head of nothing"),
    Call("read_text_file", {"path": "{folder}/notes.txt", "head": 1, "tail": 1}, "both ends"),
    Call("read_text_file", {"path": "{folder}/inner"}, "through a link"),
    Call("read_text_file", {"path": "{folder}/outer"}, "through a link that leads out"),
    Call("read_text_file", {"path": "/etc/hostname"}, "outside"),
    Call("read_text_file", {"path": "{folder}/../x"}, "above"),
    Call("read_text_file", {"path": "{folder}/missing"}, "missing"),
    Call("read_text_file", {"path": "{folder}/src"}, "a folder"),
    Call("read_text_file", {}, "no path"),
    Call("read_media_file", {"path": "{folder}/dot.png"}),
    Call("read_media_file", {"path": "{folder}/tone.wav"}),
    Call("read_media_file", {"path": "{folder}/data.bin"}),
    Call("read_multiple_files", {"paths": ["{folder}/notes.txt", "{folder}/.hidden"]}),
    Call("read_multiple_files", {"paths": ["{folder}/.hidden", "{folder}/missing"]}, "several with a missing one"),
    Call("read_multiple_files", {"paths": []}, "no paths"),
    Call("list_directory", {"path": "{folder}"}),
    Call("list_directory", {"path": "{folder}/empty"}),
    Call("list_directory_with_sizes", {"path": "{folder}"}),
    Call("list_directory_with_sizes", {"path": "{folder}", "sortBy": "size"}),
    Call("directory_tree", {"path": "{folder}"}),
    Call("directory_tree", {"path": "{folder}", "excludePatterns": ["deep", "*.txt"]}),
    Call("search_files", {"path": "{folder}", "pattern": "**/*.md"}),
    Call("search_files", {"path": "{folder}", "pattern": "*.txt"}),
    Call("search_files", {"path": "{folder}", "pattern": "**"}),
    Call("search_files", {"path": "{folder}", "pattern": "**/*", "excludePatterns": ["src"]}),
    Call("search_files", {"path": "{folder}", "pattern": "nothing"}),
    Call("get_file_info", {"path": "{folder}/notes.txt"}),
    Call("get_file_info", {"path": "{folder}/src"}),
    Call("write_file", {"path": "{folder}/new.txt", "content": "new\n"}),
    Call("write_file", {"path": "{folder}/notes.txt", "content": "over\n"}),
    Call("get_file_info", {"path": "{folder}/notes.txt"}, "the mode after writing"),
    Call("write_file", {"path": "{folder}/none/new.txt", "content": ""}, "write into a missing folder"),
    Call("write_file", {"path": "{folder}/src", "content": ""}, "write over a folder"),
    Call("edit_file", {"path": "{folder}/src/app.py", "edits": _edits(("return 1", "return 2")), "dryRun": True}),
    Call("edit_file", {"path": "{folder}/src/app.py", "edits": _edits(("if True:\nreturn 1", "if False:\nreturn 3"))}),
    Call("edit_file", {"path": "{folder}/src/app.py", "edits": _edits(("main()\n", "main()\nmain()"))}),
    Call("edit_file", {"path": "{folder}/src/app.py", "edits": _edits(("nowhere", ""))}, "an edit that fits nowhere"),
    Call("edit_file", {"path": "{folder}/src/app.py", "edits": []}, "no edits"),
    Call("read_text_file", {"path": "{folder}/src/app.py"}, "the edited file"),
    Call("edit_file", {"path": "{folder}/windows.txt", "edits": _edits(("two", "```"))}, "edit lines of Windows"),
    Call("read_text_file", {"path": "{folder}/windows.txt"}, "the edited file of Windows"),
    Call("create_directory", {"path": "{folder}/made"}),
    Call("create_directory", {"path": "{folder}/made"}),
    Call("create_directory", {"path": "{folder}/a/b/c"}, "nested folders"),
    Call("move_file", {"source": "{folder}/new.txt", "destination": "{folder}/made/moved.txt"}),
    Call("move_file", {"source": "{folder}/.hidden", "destination": "{folder}/made/moved.txt"}, "move over a file"),
    Call("read_text_file", {"path": "{folder}/made/moved.txt"}, "what was moved over"),
    Call("move_file", {"source": "{folder}/missing", "destination": "{folder}/x"}, "move what is missing"),
)

SCRIPT = Script(
    server="filesystem",
    official=npm("filesystem", "{folder}"),
    ours=ours("filesystem", "{folder}"),
    steps=_STEPS,
    prepare=prepare,
    normalise=_same,
    differences=MappingProxyType(
        {
            "server:capabilities/logging": _MORE,
            "server:capabilities/resources": _MORE,
            "resources:": _MORE,
            "resourceTemplates:": _MORE,
            "tools:read_*file/inputSchema/properties/*/type": "An argument that is null counts as not given.",
            "tail of an ended file:*": "The line end of the last line does not count as a line of its own.",
            "both ends:content/0/text": _WORDS,
            "through a link that leads out:content/0/text": "The target of a forbidden link is not told.",
            "outside:content/0/text": _WORDS,
            "above:content/0/text": _WORDS,
            "missing:content/0/text": _WORDS,
            "a folder:content/0/text": _WORDS,
            "no path:content/0/text": _WORDS,
            "no paths:content/0/text": _WORDS,
            "several with a missing one:*": _WORDS,
            "call list_directory_with_sizes*": "The size of what a link outside the folders points to is not told.",
            "write into a missing folder:content/0/text": _WORDS,
            "write over a folder:content/0/text": _WORDS,
            "an edit that fits nowhere:content/0/text": _WORDS,
            "the edited file of Windows:*": "Editing keeps the line ends of a file.",
            "move over a file:content/0/text": _WORDS,
            "move what is missing:content/0/text": _WORDS,
        }
    ),
)
