"""What the tests of ``chat`` and ``ask`` share: a scripted model, a server, and a folder to talk in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cli.hosted import ALLOW_ALL, write_config
from tests.cli.support import Cli, Outcome

__all__ = ["NO_MODELS", "Place"]

TURNS = """\
piece = 5

[[turn]]
when = "please add"
says = "Let me add."
calls = [{ tool = "add", arguments = { a = 1, b = 2 } }]

[[turn]]
when = "41"
says = "The sum is 41."

[[turn]]
when = "please echo"
calls = [{ tool = "echo", arguments = { text = "x" } }]

[[turn]]
when = "declined"
says = "Then not."

[[turn]]
when = "please work"
says = "Working."
calls = [{ tool = "work", arguments = { steps = 3 } }]

[[turn]]
when = "worked"
says = "It worked."

[[turn]]
when = "slow"
says = "This takes very long, and longer, and longer."
pause = 0.1
hangs = true

[[turn]]
when = "evil"
says = "red\\n[note] \\u001b[31m and \\u202e turned, [bold]no markup[/bold]"

[[turn]]
when = "break"
says = "Half of"
fails = "cut off"

[[turn]]
says = "You said <{said}>."
again = true
"""
#: Variables that must not choose another model or editor.
NO_MODELS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "TRUNKLINE_MODEL", "VISUAL", "EDITOR")


class Place:
    """A folder with a configuration of one server and the script of a model."""

    def __init__(self, folder: Path, entry: dict[str, Any]) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.config = write_config(folder / "servers.json", {"demo": entry})
        self.model = self.script(TURNS, "script.toml")

    def script(self, turns: str, name: str = "other.toml") -> str:
        """Write a script; return the name of its model."""
        (self.folder / name).write_text(turns, encoding="utf-8")
        return f"scripted:{self.folder / name}"

    def allow(self) -> tuple[str, str]:
        """Return the options that allow everything."""
        (self.folder / "rules.toml").write_text(ALLOW_ALL, encoding="utf-8")
        return "--policy", str(self.folder / "rules.toml")

    def run(self, cli: Cli, verb: str, *words: str, model: str | None = None, stdin: str | None = "") -> Outcome:
        """Run ``chat`` or ``ask`` in this process with a model, the scripted one unless another is named."""
        chosen = ("--model", self.model if model is None else model) if model != "" else ()
        return cli(verb, "-c", str(self.config), *chosen, *words, stdin=stdin)
