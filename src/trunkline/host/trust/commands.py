"""Which code a command runs, as far as its arguments show: known interpreters, and what their arguments mean.

Used by the fingerprint of a launch and by the warnings before an approval. Checks whether files exist; runs nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

__all__ = ["STEERING", "basename", "interpreter", "run_by"]


class _Interpreter(NamedTuple):
    """A program that runs a file or code given by its arguments; the fields are patterns of names and options."""

    name: str
    #: The option that is followed by code.
    code: str = "(?!)"
    #: The option that is followed by the name of a module.
    module: str = "(?!)"
    #: Whether other words may come first: variables, subcommands, or another interpreter.
    wraps: bool = False


_INTERPRETERS = (
    _Interpreter(r"(python|pypy)[\d.]*", r"-\w*c", r"-\w*m"),
    _Interpreter(r"(ba|da|z|k|fi|a)?sh", r"-\w*c"),
    _Interpreter(r"node|nodejs|tsx|ts-node", r"-e|-p|-pe|--eval(=.*)?|--print(=.*)?"),
    _Interpreter(r"perl|ruby|lua[\d.]*", r"-\w*[eE]"),
    _Interpreter(r"php[\d.]*", "-r"),
    _Interpreter("pwsh|powershell", "(?i)-(c|command|e|ec|encodedcommand)"),
    _Interpreter("cmd", "(?i)/[ck]"),
    _Interpreter("java"),
    _Interpreter("bun|deno", "-e|--eval|eval", wraps=True),
    _Interpreter("uv", module="-m|--module", wraps=True),
    _Interpreter("dotnet|env|nice|nohup|timeout|sudo|doas", wraps=True),
)
# Options that name an additional file to run.
_LOADING = frozenset({"-r", "--require", "--import", "--loader", "--experimental-loader", "--preload"})

# Variables that decide which code runs, where code is fetched from, or where data is sent: as powerful as arguments.
STEERING = re.compile(
    r"LD_.+|DYLD_.+|PATH|NODE_(OPTIONS|PATH|EXTRA_CA_CERTS|TLS_REJECT_UNAUTHORIZED)|PYTHON(PATH|HOME|STARTUP|WARNINGS)"
    r"|BASH_ENV|ENV|PERL5(OPT|LIB)|RUBY(OPT|LIB)|(_JAVA|JAVA_TOOL|JDK_JAVA)_OPTIONS|GIT_SSH(_COMMAND)?"
    r"|(HTTP|HTTPS|ALL)_PROXY|SSL_CERT_(FILE|DIR)|NPM_CONFIG_REGISTRY|(PIP|UV)_(EXTRA_)?INDEX(_URL)?|UV_DEFAULT_INDEX",
    re.I,
)


def run_by(words: Sequence[str], cwd: str) -> Iterator[tuple[Literal["code", "file"], str]]:
    """Find what an interpreter would run: code on its command line, or files that exist."""
    kind = interpreter(words[0])
    if kind is None:
        return
    before = ""
    for at, word in enumerate(words[1:], 1):
        if kind.wraps and interpreter(word) is not None:
            yield from run_by(words[at:], cwd)
            return
        if re.fullmatch(kind.code, word):
            yield "code", f"{basename(words[0])} {word}"
            return
        if re.fullmatch(kind.module, word):
            return
        if before == "--directory":
            cwd = os.path.join(cwd, word)
        option = word.startswith("-")
        name, _, value = word.partition("=") if option else (before, "", word)
        path = os.path.join(cwd, value)
        is_file = bool(value) and os.path.isfile(path) and (not option or name in _LOADING)
        if is_file:
            yield "file", os.path.realpath(path)
        # Arguments after the script belong to the script; a word after an option may be the value of that option.
        if name not in _LOADING and (is_file or not (option or kind.wraps or before.startswith("-"))):
            return
        before = word


def interpreter(word: str) -> _Interpreter | None:
    """Return the row of an interpreter, if a word names one."""
    name = basename(word)
    return next((each for each in _INTERPRETERS if re.fullmatch(each.name, name)), None)


def basename(word: str) -> str:
    """Return the name of a program in the form used by these tables."""
    return word.replace("\\", "/").rpartition("/")[2].lower().removesuffix(".exe").removesuffix(".cmd")
