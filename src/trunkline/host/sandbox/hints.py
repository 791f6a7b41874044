"""What a sandbox kept from a server that failed: found in what the server wrote, with the settings that would allow it.

The output of a server is not trusted: it is only compared with files and variables that exist, and the result is shown
to the user, never to the server.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

from msgspec import Struct

from trunkline.host.sandbox.file_access import FileAccess, is_within

__all__ = ["SandboxHints"]

_MOST_NAMED = 3  # Paths or variables in one message.
_EXAMINED_CHARACTERS = 16_000  # The end of the output, with a long traceback.
_MOST_EXAMINED = 300  # Each name is looked up, and a server may write what it likes.
_MOST_WORDS = 12  # A path without quotes may contain blanks: so many words are tried as its end.
#: What the output of a failed program may name: a quoted text, a module of Python, or a path with the text behind it.
_NAMED = re.compile(
    r"""'([^'\n]+)'|"([^"\n]+)"|No module named ([\w.]+)"""
    r"""|(?<![\w./~])(?=((?:~|\.{1,2})?/[^\n]{0,300}))[~./]+[^\s'"`:,;()<>]*"""
)
_WORD_END = re.compile(r"""[\s'"`:,;()<>]|$""")
#: A name of a variable: quoted, after a dollar sign, or with an underscore.
_VARIABLE = re.compile(r"""['"`$]\{?([A-Za-z_]\w{2,})|\b([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b""")


class SandboxHints(Struct, frozen=True, kw_only=True):
    """One sandbox, as far as it explains failures of its server."""

    #: The kind of sandbox.
    made: str
    #: The files that the server can access, with its private folder.
    access: FileAccess
    #: The working directory without a sandbox; modules and relative paths are looked up there.
    cwd: str
    #: The user's home, and that of the server.
    home: str
    private_home: str
    #: The names of the variables that the server has, and of those of the host that it does not have.
    passed: frozenset[str]
    withheld: frozenset[str]

    def describe(self, output: str) -> str:
        """Return the sandbox as a text, with what it kept from a server with this output."""
        found = self.find(output)
        return f"its sandbox ({self.made})" + (f", which {found}" if found else "")

    def find(self, output: str) -> str:
        """Return what the sandbox kept from a server with this output, and how to allow it; empty if nothing."""
        output = output[-_EXAMINED_CHARACTERS:]
        paths = self.hidden_paths(output)
        has_home = any(self._is_named_by_home(path, output) for path in paths)
        variables = self._missing_variables(output)
        parts = [
            *([f"hides {', '.join(paths)}"] if paths else []),
            *(["has a private HOME"] if has_home else []),
            *([f"does not pass on {', '.join(variables)}"] if variables else []),
        ]
        names = [*(["HOME"] if has_home else []), *variables]
        settings = {**({"read": list(paths)} if paths else {}), **({"env": names} if names else {})}
        fix = ", ".join(f'"{key}": {json.dumps(value, ensure_ascii=False)}' for key, value in settings.items())
        return f'{", and ".join(parts)} (allow it with {fix} in its "sandbox")' if parts else ""

    def reach(self) -> str:
        """Return what the server can reach, besides the system's own files."""
        read, write = _outermost(self.access.read), _outermost(self.access.write)
        return (
            f"it reads {', '.join(path for path in read if not self._writes(path)) or 'no more than the system'}; it "
            f"writes {', '.join(write)}; HOME is {self.private_home}; variables: {', '.join(sorted(self.passed))}"
        )

    def hidden_paths(self, output: str) -> tuple[str, ...]:
        """Return the existing paths that the output of a failed server names, but that it could not see."""
        hidden: dict[str, None] = {}
        sees_cwd = self.access.covers(self.cwd)
        for names in _named_paths(output):
            name, path = next(
                ((name, path) for name in names for path in self._candidates(name) if os.path.exists(path)), ("/", "/")
            )
            if not name.startswith(("/", "~")) and not sees_cwd:
                # What is relative to it is not found: the whole folder is hidden.
                hidden[self.cwd] = None
            elif path != "/" and not self.access.covers(path):
                hidden[os.path.normpath(path)] = None
        return tuple(hidden)[:_MOST_NAMED]

    def _candidates(self, name: str) -> Iterator[str]:
        """Yield the paths that a name in the output may stand for, outside the sandbox."""
        if name.startswith("~/"):
            yield self.home + name[1:]
        elif is_within(name, self.private_home) and not os.path.lexists(name):
            yield self.home + name[len(self.private_home) :]
        elif name.startswith("/"):
            yield name
        else:
            module = name.replace(".", "/")
            yield from (os.path.join(self.cwd, path) for path in (name, module, f"{module}.py"))

    def _is_named_by_home(self, path: str, output: str) -> bool:
        """Return True if the server looked for a path of the user's home in its private one."""
        inside = path[len(self.home) :]
        is_inside = self.private_home != self.home and is_within(path, self.home)
        return is_inside and any(f"{home}{inside}" in output for home in (self.private_home, "~"))

    def _missing_variables(self, output: str) -> tuple[str, ...]:
        names = (match[1] or match[2] for match in _VARIABLE.finditer(output))
        return tuple(dict.fromkeys(name for name in names if name in self.withheld))[:_MOST_NAMED]

    def _writes(self, path: str) -> bool:
        return any(is_within(path, folder) for folder in self.access.write)


def _named_paths(output: str) -> Iterator[list[str]]:
    """Yield what the output names that may be a path: each with its readings, of which the first that exists counts."""
    for quoted, double_quoted, module, line in _NAMED.findall(output)[-_MOST_EXAMINED:]:
        names = [quoted or double_quoted or module]
        if line:
            ends = [match.start() for match, _ in zip(_WORD_END.finditer(line), range(_MOST_WORDS), strict=False)]
            names = [line[:end] for end in reversed(ends)]
        yield [name.rstrip(". ") for name in names if any(map(str.isalnum, name))]


def _outermost(paths: tuple[str, ...]) -> list[str]:
    """Return paths without those inside others."""
    return [
        path for path in dict.fromkeys(paths) if not any(other != path and is_within(path, other) for other in paths)
    ]
