"""The fingerprint of what would be started or contacted.

One digest over all of it, its parts as they may be shown, and the table of interpreters that says which code a
command runs. Files are read, so fingerprints are taken in a thread; nothing is started.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from trunkline.errors import LinkError
from trunkline.host.config.model import ServerEntry
from trunkline.transports.process import find_program, server_environment

__all__ = [
    "STEERING_VARIABLES",
    "Fingerprint",
    "executed_code",
    "find_interpreter",
    "fingerprint",
    "program_name",
    "shown_url",
    "take_fingerprint",
    "writable_text",
]


class _Interpreter(NamedTuple):
    """A program that runs a file or code given by its arguments; the fields are patterns of names and options."""

    name: str
    #: The option that is followed by code.
    code: str = "(?!)"
    #: The option that is followed by the name of a module.
    module: str = "(?!)"
    #: Whether other words may come first: variables, subcommands, or another interpreter.
    wraps: bool = False
    #: Whether the file may be followed by the name of an object in it, ``FILE:OBJECT``.
    names_object: bool = False


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
    _Interpreter("trunkline|fastmcp|mcp", module="-m", wraps=True, names_object=True),
)
# Options that name an additional file to run.
_LOADING = frozenset({"-r", "--require", "--import", "--loader", "--experimental-loader", "--preload"})

# Variables that decide which code runs, where code is fetched from, or where data is sent: as powerful as arguments.
STEERING_VARIABLES = re.compile(
    r"LD_.+|DYLD_.+|PATH|NODE_(OPTIONS|PATH|EXTRA_CA_CERTS|TLS_REJECT_UNAUTHORIZED)|PYTHON(PATH|HOME|STARTUP|WARNINGS)"
    r"|BASH_ENV|ENV|PERL5(OPT|LIB)|RUBY(OPT|LIB)|(_JAVA|JAVA_TOOL|JDK_JAVA)_OPTIONS|GIT_SSH(_COMMAND)?"
    r"|(HTTP|HTTPS|ALL)_PROXY|SSL_CERT_(FILE|DIR)|NPM_CONFIG_REGISTRY|(PIP|UV)_(EXTRA_)?INDEX(_URL)?|UV_DEFAULT_INDEX",
    re.I,
)


def executed_code(words: Sequence[str], cwd: str) -> Iterator[tuple[Literal["code", "file"], str]]:
    """Find what an interpreter would run: code on its command line, or files that exist."""
    kind = find_interpreter(words[0])
    if kind is None:
        return
    before = ""
    for at, word in enumerate(words[1:], 1):
        if kind.wraps and (wrapped := find_interpreter(word)) is not None:
            program = os.path.join(cwd, word)
            # A runner is a script itself, which may be one of the project.
            if wrapped.names_object and os.path.isfile(program):
                yield "file", os.path.realpath(program)
            yield from executed_code(words[at:], cwd)
            return
        if re.fullmatch(kind.code, word):
            yield "code", f"{program_name(words[0])} {word}"
            return
        if re.fullmatch(kind.module, word):
            runner = find_interpreter(words[at + 1]) if at + 1 < len(words) else None
            if runner is not None and runner.names_object:
                # ``python -m trunkline run FILE``: the module runs a file as the program of that name does.
                yield from executed_code(words[at + 1 :], cwd)
            return
        if before == "--directory":
            cwd = os.path.join(cwd, word)
        option = word.startswith("-")
        name, _, value = word.partition("=") if option else (before, "", word)
        path = os.path.join(cwd, value)
        if kind.names_object and not os.path.exists(path):
            path = path.rpartition(":")[0]
        is_file = bool(value) and os.path.isfile(path) and (not option or name in _LOADING)
        if is_file:
            yield "file", os.path.realpath(path)
        # Arguments after the script belong to the script; a word after an option may be the value of that option.
        if name not in _LOADING and (is_file or not (option or kind.wraps or before.startswith("-"))):
            return
        before = word


def find_interpreter(word: str) -> _Interpreter | None:
    """Return the row of an interpreter, if a word names one."""
    name = program_name(word)
    return next((each for each in _INTERPRETERS if re.fullmatch(each.name, name)), None)


def program_name(word: str) -> str:
    """Return the name of a program in the form used by these tables."""
    return word.replace("\\", "/").rpartition("/")[2].lower().removesuffix(".exe").removesuffix(".cmd")


# Larger files are identified by size, time and beginning: hashing a gigabyte before each start would take too long.
_WHOLE = 64 * 1024 * 1024
_HEAD = 1024 * 1024  # The beginning that is hashed of such a file.


class Fingerprint(Struct, frozen=True):
    """What would be started or contacted: one digest over all of it, and its parts as they may be shown."""

    digest: str
    #: By name: ``type``, ``command``, ``args``, ``env``, ``cwd``, ``binary``, ``scripts``, ``url``, ``headers``,
    #: ``auth``, ``secrets`` (which it gets, by name), ``sandbox``; with secrets masked; absent parts are left out.
    parts: dict[str, str]
    #: A digest of each part, secrets included: two parts may look the same and differ.
    marks: dict[str, str]


def fingerprint(entry: ServerEntry) -> Fingerprint:
    """Compute the fingerprint of a server as it would be started now; reads files, so call it in a thread."""
    found = dict(_web_parts(entry) if entry.url is not None else _process_parts(entry))
    if entry.sealed:
        given = [[each.key, [*map(str, each.names)]] for each in entry.sealed]
        found["secrets"] = (given, ", ".join(f"{', '.join(names)} as {key}" for key, names in given))
    if entry.settings.sandbox is not None:
        found["sandbox"] = (entry.settings.sandbox, entry.redact(_canonical(entry.settings.sandbox).decode()))
    values = {name: value for name, (value, _) in found.items()}
    return Fingerprint(
        _digest({"format": 1, **values}),
        {name: writable_text(shown) for name, (_, shown) in found.items()},
        {name: _digest([name, value]) for name, value in values.items()},
    )


async def take_fingerprint(entry: ServerEntry) -> Fingerprint:
    """Compute a fingerprint without blocking the event loop."""
    return await asyncio.to_thread(fingerprint, entry)


_Parts: TypeAlias = Iterator[tuple[str, tuple[Any, str]]]


def _web_parts(entry: ServerEntry) -> _Parts:
    yield "type", (entry.type, entry.type or "http or sse")
    yield "url", (entry.url, shown_url(entry))
    if entry.headers:
        names = sorted(name.lower() for name in entry.headers)
        yield "headers", (names, ", ".join(names))
    if entry.auth is not None:
        yield "auth", (entry.auth, entry.redact(_canonical(entry.auth).decode()))


def _process_parts(entry: ServerEntry) -> _Parts:
    if entry.command is None:
        yield "type", ("in this process", "in this process")
        return
    yield "type", ("stdio", "stdio")
    written, *args = entry.command
    path = _find_program(entry)
    if path is None:
        yield "command", ([written], f"{entry.redact(written)} (not found)")
    else:
        real = os.path.realpath(path)
        # The name a program is called by is an argument too: some programs behave differently by name.
        yield "command", ([written, path, real], entry.redact(path if real == path else f"{path} -> {real}"))
        yield "binary", (mark := _file_digest(path), mark)
    yield "args", (args, shlex.join(entry.redact(each) for each in args))
    if entry.env:
        steering = {name: value for name, value in entry.env.items() if STEERING_VARIABLES.fullmatch(name)}
        yield "env", ([sorted(entry.env), steering], ", ".join(sorted(entry.env)))
    cwd = os.path.realpath(entry.cwd or os.curdir)
    yield "cwd", (cwd, entry.redact(cwd))
    # The name of a link to an interpreter does not identify the interpreter.
    called = written if path is None or find_interpreter(written) else os.path.realpath(path)
    scripts = [[text, _file_digest(text)] for kind, text in executed_code([called, *args], cwd) if kind == "file"]
    if scripts:
        yield "scripts", (scripts, entry.redact(", ".join(f"{path} {mark}" for path, mark in scripts)))


def _find_program(entry: ServerEntry) -> str | None:
    """Find the program as a start would."""
    try:
        return find_program((entry.command or ("",))[0], server_environment(entry.env), cwd=entry.cwd)
    except LinkError:
        return None


def _file_digest(path: str) -> str:
    """Return a digest of a file; very large files are identified by size, time and beginning alone."""
    try:
        # Non-blocking: a pipe in the file's place must not make us wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except OSError as error:
        return f"unreadable ({error.strerror})"
    with open(descriptor, "rb") as file:
        known = os.fstat(descriptor)
        if not stat.S_ISREG(known.st_mode):
            return "no file"
        if known.st_size <= _WHOLE:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
        head = hashlib.sha256(file.read(_HEAD)).hexdigest()
        return f"{known.st_size} bytes of {known.st_mtime_ns}, beginning with sha256:{head}"


def shown_url(entry: ServerEntry) -> str:
    """Return a URL with the password and the values of the query masked."""
    try:
        parts = urlsplit(entry.url or "")
        names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    except ValueError:
        return "(no URL)"
    user, at, host = parts.netloc.rpartition("@")
    query = "&".join(f"{name}=***" for name in names)
    shown = f"{parts.scheme}://{user.partition(':')[0]}{':***' if ':' in user else ''}{at}{host}{parts.path}"
    return entry.redact(f"{shown}?{query}" if query else shown)


def _canonical(value: Any) -> bytes:
    """Encode a value so that equal values give equal bytes; invalid Unicode is escaped."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain).encode("ascii")


def _plain(value: object) -> object:
    """Return a JSON form for other values: an object given in code is represented by its type."""
    return dict(value) if isinstance(value, Mapping) else type(value).__name__


def writable_text(text: str) -> str:
    """Return a text that can be encoded as UTF-8, also for undecodable file names."""
    return text.encode("utf-8", "backslashreplace").decode()


def _digest(value: Any) -> str:
    return hashlib.sha256(_canonical(value)).hexdigest()
