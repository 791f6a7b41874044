"""The fingerprint of what would be started or contacted: a digest over all of it, and its parts as they may be shown.

The program's file is read, so a fingerprint is taken in a thread; nothing is started.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shlex
import stat
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from trunkline.errors import LinkError
from trunkline.host.entries import ServerEntry
from trunkline.host.trust.commands import STEERING, interpreter, run_by
from trunkline.transports.launch import find_program, server_environment

__all__ = ["Fingerprint", "fingerprint", "fingerprint_of", "readable", "shown_url"]

# Larger files are identified by size, time and beginning: hashing a gigabyte before each start would take too long.
_WHOLE = 64 * 1024 * 1024
_HEAD = 1024 * 1024


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
        {name: readable(shown) for name, (_, shown) in found.items()},
        {name: _digest([name, value]) for name, value in values.items()},
    )


async def fingerprint_of(entry: ServerEntry) -> Fingerprint:
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
    path = _found(entry)
    if path is None:
        yield "command", ([written], f"{entry.redact(written)} (not found)")
    else:
        real = os.path.realpath(path)
        # The name a program is called by is an argument too: some programs behave differently by name.
        yield "command", ([written, path, real], entry.redact(path if real == path else f"{path} -> {real}"))
        yield "binary", (mark := _file_mark(path), mark)
    yield "args", (args, shlex.join(entry.redact(each) for each in args))
    if entry.env:
        steering = {name: value for name, value in entry.env.items() if STEERING.fullmatch(name)}
        yield "env", ([sorted(entry.env), steering], ", ".join(sorted(entry.env)))
    cwd = os.path.realpath(entry.cwd or os.curdir)
    yield "cwd", (cwd, entry.redact(cwd))
    # The name of a link to an interpreter does not identify the interpreter.
    called = written if path is None or interpreter(written) else os.path.realpath(path)
    scripts = [[text, _file_mark(text)] for kind, text in run_by([called, *args], cwd) if kind == "file"]
    if scripts:
        yield "scripts", (scripts, entry.redact(", ".join(f"{path} {mark}" for path, mark in scripts)))


def _found(entry: ServerEntry) -> str | None:
    """Find the program as a start would."""
    try:
        return find_program((entry.command or ("",))[0], server_environment(entry.env), cwd=entry.cwd)
    except LinkError:
        return None


def _file_mark(path: str) -> str:
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


def readable(text: str) -> str:
    """Return a text that can be encoded as UTF-8, also for undecodable file names."""
    return text.encode("utf-8", "backslashreplace").decode()


def _digest(value: Any) -> str:
    return hashlib.sha256(_canonical(value)).hexdigest()
