"""Whether a server may run: the fingerprint of what would be started, and the book of what the user approved.

What the user wrote or named is trusted. What was found in a project folder came with the project, so it runs only after
the user has approved it, under that name, in that folder, with that fingerprint; anything else is asked again. The book
lies outside every project that it speaks of, and one that cannot be read approves nothing. Nothing here starts
anything. A fingerprint reads the program's file, so it is taken in a thread.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shlex
import stat
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import Struct

from trunkline.errors import ConfigError, LinkError
from trunkline.host.entries import ServerEntry
from trunkline.host.state_files import locked, read_private, write_private
from trunkline.net.addresses import is_loopback
from trunkline.transports.launch import _find as find_program
from trunkline.transports.launch import server_environment

__all__ = [
    "Approval",
    "Change",
    "Fingerprint",
    "Standing",
    "State",
    "TrustBook",
    "fingerprint",
    "fingerprint_of",
    "project_folder",
    "shown_command",
    "warnings_for",
]

State: TypeAlias = Literal["trusted", "approved", "new", "changed", "revoked"]

# Larger files are told apart by their size, time and beginning: nobody waits for a gigabyte before each start.
_WHOLE = 64 * 1024 * 1024
_HEAD = 1024 * 1024


class _Interpreter(NamedTuple):
    """A program that runs a file or code which its arguments give; the patterns are of names and options."""

    name: str
    #: After this option stands code.
    code: str = "(?!)"
    #: After this option stands a module's name.
    module: str = "(?!)"
    #: Other words may come first: variables, subcommands, or another interpreter.
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
# Options that name a file which is run besides.
_LOADING = frozenset({"-r", "--require", "--import", "--loader", "--experimental-loader", "--preload"})

# Variables that decide which code runs, or where it gets code from and sends what it is given: as good as arguments.
_STEERING = re.compile(
    r"LD_.+|DYLD_.+|PATH|NODE_(OPTIONS|PATH|EXTRA_CA_CERTS|TLS_REJECT_UNAUTHORIZED)|PYTHON(PATH|HOME|STARTUP|WARNINGS)"
    r"|BASH_ENV|ENV|PERL5(OPT|LIB)|RUBY(OPT|LIB)|(_JAVA|JAVA_TOOL|JDK_JAVA)_OPTIONS|GIT_SSH(_COMMAND)?"
    r"|(HTTP|HTTPS|ALL)_PROXY|SSL_CERT_(FILE|DIR)|NPM_CONFIG_REGISTRY|(PIP|UV)_(EXTRA_)?INDEX(_URL)?|UV_DEFAULT_INDEX",
    re.I,
)
# Folders inside a project in which editors keep its file.
_EDITORS = frozenset({".vscode", ".cursor"})


# --- the fingerprint -------------------------------------------------------------------------------------------------


class Fingerprint(Struct, frozen=True):
    """What would be started or reached: one digest over all of it, and its parts as they may be shown."""

    digest: str
    #: By name: ``type``, ``command``, ``args``, ``env``, ``cwd``, ``binary``, ``scripts``, ``url``, ``headers``,
    #: ``auth``, ``sandbox``; without secrets, and without what there is not.
    parts: dict[str, str]
    #: A digest of each part, secrets included: two parts may look alike and differ.
    marks: dict[str, str]


def fingerprint(entry: ServerEntry) -> Fingerprint:
    """Take the fingerprint of a server as it would be started now; it reads files, so call it in a thread."""
    found = dict(_web_parts(entry) if entry.url is not None else _process_parts(entry))
    if entry.settings.sandbox is not None:
        found["sandbox"] = (entry.settings.sandbox, entry.redact(_canonical(entry.settings.sandbox).decode()))
    values = {name: value for name, (value, _) in found.items()}
    return Fingerprint(
        _digest({"format": 1, **values}),
        {name: _unicode(shown) for name, (_, shown) in found.items()},
        {name: _digest([name, value]) for name, value in values.items()},
    )


async def fingerprint_of(entry: ServerEntry) -> Fingerprint:
    """Take a fingerprint without blocking the event loop."""
    return await asyncio.to_thread(fingerprint, entry)


_Parts: TypeAlias = Iterator[tuple[str, tuple[Any, str]]]


def _web_parts(entry: ServerEntry) -> _Parts:
    yield "type", (entry.type, entry.type or "http or sse")
    yield "url", (entry.url, _shown_url(entry))
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
        # The name it was called by is an argument too: some programs are several.
        yield "command", ([written, path, real], entry.redact(path if real == path else f"{path} -> {real}"))
        yield "binary", (mark := _file_mark(path), mark)
    yield "args", (args, shlex.join(entry.redact(each) for each in args))
    if entry.env:
        steering = {name: value for name, value in entry.env.items() if _STEERING.fullmatch(name)}
        yield "env", ([sorted(entry.env), steering], ", ".join(sorted(entry.env)))
    cwd = os.path.realpath(entry.cwd or os.curdir)
    yield "cwd", (cwd, entry.redact(cwd))
    # What a link to an interpreter is called says nothing.
    called = written if path is None or _interpreter(written) else os.path.realpath(path)
    scripts = [[text, _file_mark(text)] for kind, text in _run_by([called, *args], cwd) if kind == "file"]
    if scripts:
        yield "scripts", (scripts, entry.redact(", ".join(f"{path} {mark}" for path, mark in scripts)))


def _found(entry: ServerEntry) -> str | None:
    """Find the program as starting it would."""
    try:
        return find_program((entry.command or ("",))[0], server_environment(entry.env), cwd=entry.cwd)
    except LinkError:
        return None


def _run_by(words: Sequence[str], cwd: str) -> Iterator[tuple[Literal["code", "file"], str]]:
    """Find what an interpreter is told to run: code on its command line, or files, as far as they are there."""
    kind = _interpreter(words[0])
    if kind is None:
        return
    before = ""
    for at, word in enumerate(words[1:], 1):
        if kind.wraps and _interpreter(word) is not None:
            yield from _run_by(words[at:], cwd)
            return
        if re.fullmatch(kind.code, word):
            yield "code", f"{_basename(words[0])} {word}"
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
        # What comes after the script is for the script; a word after an option may be that option's value.
        if name not in _LOADING and (is_file or not (option or kind.wraps or before.startswith("-"))):
            return
        before = word


def _interpreter(word: str) -> _Interpreter | None:
    name = _basename(word)
    return next((each for each in _INTERPRETERS if re.fullmatch(each.name, name)), None)


def _basename(word: str) -> str:
    """Give the name of a program, as the tables here have it."""
    return word.replace("\\", "/").rpartition("/")[2].lower().removesuffix(".exe").removesuffix(".cmd")


def _file_mark(path: str) -> str:
    """Tell a file's content apart from every other's; the largest ones by size, time and beginning alone."""
    try:
        # Opened like this, a pipe that took the file's place does not make us wait for its other end.
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


def _shown_url(entry: ServerEntry) -> str:
    """Show a URL without what may be secret in it: the password and the values of its query."""
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
    """Write a value in the one way in which equal values are equal bytes; what is no Unicode is escaped."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain).encode("ascii")


def _plain(value: object) -> object:
    """Give something for what is no JSON: an object that was given in code counts by its kind."""
    return dict(value) if isinstance(value, Mapping) else type(value).__name__


def _unicode(text: str) -> str:
    """Give a text that can be written, where a file's name can not."""
    return text.encode("utf-8", "backslashreplace").decode()


def _digest(value: Any) -> str:
    return hashlib.sha256(_canonical(value)).hexdigest()


# --- the book --------------------------------------------------------------------------------------------------------


class Approval(Struct, frozen=True, kw_only=True):
    """What the user approved once; a revoked one is kept, so that it can be told from one that never was."""

    name: str
    #: The real path of the project's folder.
    folder: str
    #: The file that it stood in, as it was named then.
    file: str
    #: Seconds since the epoch.
    at: float
    #: The command or URL, without secrets.
    shown: str
    digest: str
    parts: dict[str, str]
    marks: dict[str, str]
    revoked_at: float | None = None


class Change(Struct, frozen=True):
    """A part that is not as it was approved; None where there is, or was, nothing."""

    part: str
    before: str | None
    now: str | None

    def __str__(self) -> str:
        """Say it in a line."""
        if self.before == self.now:
            return f"{self.part}: a value that is not shown"
        return f"{self.part}: {self.before or '(nothing)'} -> {self.now or '(nothing)'}"


class Standing(Struct, frozen=True):
    """Whether a server may run, and why."""

    state: State
    reason: str
    changes: tuple[Change, ...] = ()
    #: Why it cannot even be approved.
    obstacle: str | None = None

    @property
    def may_run(self) -> bool:
        """Tell whether it may be started or reached."""
        return self.state in ("trusted", "approved")


class _Book(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file, as it lies there."""

    version: Literal[1] = 1
    approvals: list[Approval] = []


class TrustBook:
    """The user's approvals, in one file that several processes may write."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Take the file's path; it is made when something is first approved."""
        self._path = Path(os.path.realpath(path))
        self._clock = clock

    def __repr__(self) -> str:
        """Name the file."""
        return f"TrustBook({str(self._path)!r})"

    async def check(self, entry: ServerEntry) -> tuple[bool, str | None]:
        """Say whether a server may run as it is now, and if not why; this is what a supervisor asks."""
        if entry.source.scope != "project":
            return True, None
        standing = self.standing(entry, await fingerprint_of(entry))
        return standing.may_run, None if standing.may_run else standing.reason

    def standing(self, entry: ServerEntry, now: Fingerprint) -> Standing:
        """Say where a server stands; a book that cannot be read says "new", and why."""
        if entry.source.scope != "project":
            return Standing("trusted", f"it is in {entry.source}, which is the user's own word")
        try:
            folder = self._folder(entry)
            kept = self._read().get((entry.name, folder))
        except ConfigError as error:
            return Standing("new", str(error), obstacle=str(error))
        fix = f"run: trunkline trust approve {shlex.quote(entry.name)}"
        if kept is None:
            return Standing("new", f"it came with the project in {folder} and is not approved; {fix}")
        if kept.revoked_at is not None:
            return Standing("revoked", f"its approval was revoked; {fix}", _changes(kept, now))
        if kept.digest != now.digest:
            changes = _changes(kept, now)
            what = ", ".join(change.part for change in changes)
            return Standing("changed", f"it changed since it was approved ({what}); {fix}", changes)
        return Standing("approved", f"it was approved on {time.strftime('%Y-%m-%d', time.localtime(kept.at))}")

    def approve(self, entry: ServerEntry, seen: Fingerprint) -> Approval:
        """Approve a server as the user has seen it, in place of what was approved under its name before.

        Raises:
            ConfigError: the entry needs no approval or cannot have one, or the book cannot be read or written.
        """
        approval = Approval(
            name=entry.name,
            folder=self._folder(entry),
            file=_unicode(_absolute(entry.source.file or "")),
            at=self._clock(),
            shown=_unicode(shown_command(entry)),
            digest=seen.digest,
            parts=seen.parts,
            marks=seen.marks,
        )
        with self._changing() as kept:
            kept[approval.name, approval.folder] = approval
        return approval

    def revoke(self, name: str, folder: str | os.PathLike[str] | None = None) -> bool:
        """Take back the approvals of a name, in one folder or in all; tell whether there was one.

        Raises:
            ConfigError: the book cannot be read or written.
        """
        real = None if folder is None else _unicode(os.path.realpath(folder))
        with self._changing() as kept:
            taken = {
                key: msgspec.structs.replace(approval, revoked_at=self._clock())
                for key, approval in kept.items()
                if approval.name == name and real in (None, approval.folder) and approval.revoked_at is None
            }
            kept.update(taken)
        return bool(taken)

    def approvals(self) -> list[Approval]:
        """List what was approved, what is revoked included, by name and folder.

        Raises:
            ConfigError: the book cannot be read.
        """
        return [approval for _, approval in sorted(self._read().items())]

    def _folder(self, entry: ServerEntry) -> str:
        """Give the real path of the project that an entry came with."""
        if entry.source.scope != "project" or entry.source.file is None:
            raise ConfigError(f"{entry.name} is from {entry.source}: only servers of a project's file are approved.")
        folder = project_folder(entry.source.file)
        if self._path.is_relative_to(folder):
            raise ConfigError(
                f"Approvals are kept in {self._path}, inside the project folder {folder}, which could so approve its "
                "own servers: set TRUNKLINE_HOME to a folder outside, or name the file yourself with --config."
            )
        return _unicode(folder)

    @contextmanager
    def _changing(self) -> Iterator[dict[tuple[str, str], Approval]]:
        """Read, have it changed and write it back while nobody else does."""
        path = str(self._path)
        try:
            with locked(path):
                kept = self._read()
                before = dict(kept)
                yield kept
                if kept != before:
                    book = _Book(approvals=[approval for _, approval in sorted(kept.items())])
                    write_private(path, msgspec.json.format(msgspec.json.encode(book)) + b"\n")
        except OSError as error:
            raise ConfigError(f"{path}: approvals cannot be kept: {error.strerror or error}.") from error

    def _read(self) -> dict[tuple[str, str], Approval]:
        content = read_private(str(self._path), what="approvals")
        try:
            book = _Book() if content is None else msgspec.json.decode(content, type=_Book)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{self._path}: approvals cannot be understood ({error}), so nothing is approved. Repair the file, or "
                "delete it and approve anew."
            ) from error
        return {(approval.name, approval.folder): approval for approval in book.approvals}


def project_folder(file: str) -> str:
    """Give the real path of the folder that a file is the project's file of."""
    folder = os.path.realpath(os.path.dirname(_absolute(file)))
    return os.path.dirname(folder) if os.path.basename(folder) in _EDITORS else folder


def _absolute(file: str) -> str:
    return os.path.abspath(os.path.expanduser(file))


def _changes(before: Approval, now: Fingerprint) -> tuple[Change, ...]:
    names = dict.fromkeys([*before.marks, *now.marks])
    return tuple(
        Change(name, before.parts.get(name), now.parts.get(name))
        for name in names
        if before.marks.get(name) != now.marks.get(name)
    )


def shown_command(entry: ServerEntry) -> str:
    """Show the whole command or the URL of an entry, without what is secret in it."""
    if entry.command is None:
        return _shown_url(entry) if entry.url is not None else "(in this process)"
    # Secrets are taken out first: once quoted, one that holds a quote is no longer found.
    return shlex.join(entry.redact(word) for word in entry.command)


# --- what to look at before approving --------------------------------------------------------------------------------

_OTHER_RIGHTS = frozenset({"sudo", "doas", "su", "pkexec", "runas"})


class _Fetcher(NamedTuple):
    """A command that fetches what it runs: its first words, options that name what, and others with a value."""

    start: tuple[str, ...]
    naming: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()


_NODE = frozenset({"-p", "--package"})
_UV = frozenset({"-p", "--python", "--with", "--index", "--index-url", "--default-index", "--extra-index-url"})
_DOCKER = frozenset(
    {"-e", "--env", "--env-file", "-v", "--volume", "--mount", "-p", "--publish", "-w", "--workdir", "-u", "--user",
     "--name", "--network", "--net", "--entrypoint", "--platform", "--pull", "-l", "--label", "--add-host", "--gpus"}
)  # fmt: skip
_FETCHERS = (
    *(_Fetcher(start, _NODE) for start in (("npx",), ("bunx",), ("pnpx",), ("npm", "exec"), ("npm", "x"))),
    *(_Fetcher(start, _NODE) for start in (("pnpm", "dlx"), ("yarn", "dlx"))),
    *(_Fetcher(start, frozenset({"--from"}), _UV) for start in (("uvx",), ("uv", "tool", "run"))),
    _Fetcher(("pipx", "run"), frozenset({"--spec"}), frozenset({"--python"})),
    *(_Fetcher((program, "run"), valued=_DOCKER) for program in ("docker", "podman", "nerdctl")),
)
_FIXED = re.compile(
    r".+(@v?\d+\.\d+\.\d+[\w.+-]*|(==|@)\d+(\.\d+)+[\w.+!-]*|@sha256:[0-9a-f]{64}|:v?\d+\.\d+[\w.-]*)|[.~/].*"
)
_PATTERNS = (
    (re.compile(r"\b(curl|wget|iwr|Invoke-WebRequest)\b.*\|\s*(sudo\s+)?\S*(sh|python[\d.]*|node|perl|iex)\b", re.S),
     "fetches a script and runs it unseen"),
    (re.compile(r"\brm\s+(-\w+\s+)*-\w*([rR]\w*f|f\w*[rR])"), "deletes whole folders (rm -rf)"),
    (re.compile(r"\bbase64\b.*(-d|-D|--decode)\b.*\|", re.S), "decodes something and passes it on"),
    (re.compile(r"/dev/(tcp|udp)/|\b(nc|ncat|netcat)\b.*\s-\w*[ec]\b"), "opens a connection of its own"),
    (re.compile(r"\bmkfs\b|\bdd\b.*\bof=/dev/"), "writes to a disk directly"),
    (re.compile(r"--privileged\b|docker\.sock\b|(-v|--volume|source=|src=)[ =]?/:"),
     "gives a container the whole machine"),
)  # fmt: skip


def warnings_for(entry: ServerEntry) -> list[str]:
    """Name what is dangerous about an entry, for whoever is about to approve it; secrets are left out."""
    found = [*_web_warnings(entry)] if entry.url is not None else [*_command_warnings(entry)]
    found += [
        f"sets {name}={value}, which decides what code runs or where it comes from"
        for name, value in sorted(entry.env.items())
        if _STEERING.fullmatch(name)
    ]
    unseen = _unseen([entry.name, *(entry.command or ()), *entry.env, entry.url or "", entry.cwd or ""])
    if unseen:
        found.append(f"has characters that cannot be seen: {', '.join(unseen)}")
    return [entry.redact(each) for each in found]


def _web_warnings(entry: ServerEntry) -> Iterator[str]:
    try:
        parts = urlsplit(entry.url or "")
        host = parts.hostname or ""
    except ValueError:
        yield "has a URL that is none"
        return
    if parts.scheme != "https" and not is_loopback(host):
        yield f"is reached without encryption: anybody on the way can read and change what {host} is told and says"
    if "@" in parts.netloc:
        yield f"has a user's name in its URL: the host is {host}"
    if not host.isascii() or "xn--" in host:
        yield f"has a host name that is not plain ASCII: {host}"


def _command_warnings(entry: ServerEntry) -> Iterator[str]:
    words = [*(entry.command or ())]
    if not words:
        return
    rights = next((_basename(word) for word in words if _basename(word) in _OTHER_RIGHTS), None)
    if rights is not None:
        yield f"runs with the rights of another user ({rights})"
    for kind, text in _run_by(words, entry.cwd or os.curdir):
        if kind == "code":
            yield f"runs code that stands on its command line ({text})"
    line = " ".join(words)
    yield from (sentence for pattern, sentence in _PATTERNS if pattern.search(line))
    package = _fetched(words)
    if package is not None and not _FIXED.fullmatch(package):
        yield f"fetches {package} in no fixed version: what runs may change at any time"
    yield from _outside(entry)


def _fetched(words: list[str]) -> str | None:
    """Find the package that is fetched and run."""
    for at, program in enumerate(map(_basename, words)):
        for fetcher in _FETCHERS:
            if (program, *words[at + 1 : at + len(fetcher.start)]) == fetcher.start:
                return _package(words[at + len(fetcher.start) :], fetcher)
    return None


def _package(words: list[str], fetcher: _Fetcher) -> str | None:
    """Take what an option names, else the first word that is neither an option nor its value."""
    before, first = "", None
    for word in words:
        name, _, value = word.partition("=")
        if before in fetcher.naming or (name in fetcher.naming and value):
            return value if name in fetcher.naming else word
        if first is None and not word.startswith("-") and before not in fetcher.valued:
            first = word
        before = word
    return first


def _outside(entry: ServerEntry) -> Iterator[str]:
    """Name the paths that lead out of the project."""
    if entry.source.scope != "project" or entry.source.file is None:
        return
    folder = project_folder(entry.source.file)
    cwd = entry.cwd or folder
    values = [word.partition("=")[2] if word.startswith("-") else word for word in (entry.command or ("",))[1:]]
    for value in [*values, *([entry.cwd] if entry.cwd else [])]:
        if value.startswith(("/", "~", "..")) or "/../" in value:
            path = os.path.realpath(os.path.join(cwd, os.path.expanduser(value)))
            if not Path(path).is_relative_to(folder):
                yield f"names a path outside the project: {value}"


def _unseen(texts: Sequence[str]) -> list[str]:
    """List the characters that a screen does not show, or shows elsewhere."""
    found = {each for text in texts for each in text if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    return [f"U+{ord(each):04X}" for each in sorted(found)]
