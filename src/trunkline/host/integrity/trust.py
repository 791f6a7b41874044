"""Whether a server may run: the store of the user's approvals.

Servers that the user configured or named are trusted. A server found in a project folder came with the project, so it
runs only after the user has approved it, under that name, in that folder, with that fingerprint; any difference needs a
new approval. The store must be outside the projects it covers, and a store that cannot be read approves nothing.
Nothing is started here.

Before a server is approved, there are warnings about patterns in its command or URL that have been used to do harm.
They deny nothing; they are shown to the person who decides.
"""

from __future__ import annotations

import os
import re
import shlex
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.host.config.model import ServerEntry
from trunkline.host.integrity.fingerprints import (
    STEERING_VARIABLES,
    Fingerprint,
    executed_code,
    program_name,
    shown_url,
    take_fingerprint,
    writable_text,
)
from trunkline.host.state_files import locked, read_private, write_private
from trunkline.net.addresses import is_loopback

__all__ = [
    "Approval",
    "FingerprintChange",
    "TrustState",
    "TrustStatus",
    "TrustStore",
    "approval_rows",
    "project_folder",
    "shown_command",
    "warnings_for",
]

TrustState: TypeAlias = Literal["trusted", "approved", "new", "changed", "revoked"]

# Folders of a project in which editors store its configuration file.
_EDITORS = frozenset({".vscode", ".cursor"})


class Approval(Struct, frozen=True, kw_only=True):
    """An approval of the user; a revoked one is kept, to distinguish it from one that never existed."""

    name: str
    #: The real path of the project's folder.
    folder: str
    #: The configuration file, as it was named then.
    file: str
    #: Seconds since the epoch.
    at: float
    #: The command or URL, without secrets.
    shown: str
    digest: str
    parts: dict[str, str]
    marks: dict[str, str]
    revoked_at: float | None = None


class FingerprintChange(Struct, frozen=True):
    """A part that differs from what was approved; None where there is, or was, no such part."""

    part: str
    before: str | None
    now: str | None

    def __str__(self) -> str:
        """Describe the change in one line."""
        if self.before == self.now:
            return f"{self.part}: a value that is not shown"
        return f"{self.part}: {self.before or '(nothing)'} -> {self.now or '(nothing)'}"


class TrustStatus(Struct, frozen=True):
    """Whether a server may run, and why: the outcome of a trust check."""

    state: TrustState
    reason: str
    changes: tuple[FingerprintChange, ...] = ()
    #: Why it cannot be approved either.
    obstacle: str | None = None

    @property
    def may_run(self) -> bool:
        """Whether it may be started or contacted."""
        return self.state in ("trusted", "approved")


class _TrustFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the file."""

    version: Literal[1] = 1
    approvals: list[Approval] = []


class TrustStore:
    """The user's approvals, in one file that several processes may write."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Set the path of the file, which is created with the first approval."""
        self._path = Path(os.path.realpath(path))
        self._clock = clock

    def __repr__(self) -> str:
        """Show the path of the file."""
        return f"TrustStore({str(self._path)!r})"

    async def check(self, entry: ServerEntry) -> tuple[bool, str | None]:
        """Return whether a server may run as it is now, and if not, why; called by the supervisor."""
        if entry.source.scope != "project":
            return True, None
        status = self.status(entry, await take_fingerprint(entry))
        return status.may_run, None if status.may_run else status.reason

    def status(self, entry: ServerEntry, now: Fingerprint) -> TrustStatus:
        """Return the trust status of a server; "new", with the reason, if the store cannot be read."""
        if entry.source.scope != "project":
            return TrustStatus("trusted", f"it is in {entry.source}, which the user wrote or named")
        try:
            folder = self._folder(entry)
            kept = self._read().get((entry.name, folder))
        except ConfigError as error:
            return TrustStatus("new", str(error), obstacle=str(error))
        fix = f"run: trunkline trust approve {shlex.quote(entry.name)}"
        if kept is None:
            return TrustStatus("new", f"it came with the project in {folder} and is not approved; {fix}")
        if kept.revoked_at is not None:
            return TrustStatus("revoked", f"its approval was revoked; {fix}", _changes(kept, now))
        if kept.digest != now.digest:
            changes = _changes(kept, now)
            what = ", ".join(change.part for change in changes)
            return TrustStatus("changed", f"it changed since it was approved ({what}); {fix}", changes)
        return TrustStatus("approved", f"it was approved on {time.strftime('%Y-%m-%d', time.localtime(kept.at))}")

    def approve(self, entry: ServerEntry, seen: Fingerprint) -> Approval:
        """Approve a server as the user has seen it; replaces an earlier approval under its name.

        Raises:
            ConfigError: the entry needs no approval or cannot have one, or the store cannot be read or written.
        """
        approval = Approval(
            name=entry.name,
            folder=self._folder(entry),
            file=writable_text(_absolute(entry.source.file or "")),
            at=self._clock(),
            shown=writable_text(shown_command(entry)),
            digest=seen.digest,
            parts=seen.parts,
            marks=seen.marks,
        )
        with self._changing() as kept:
            kept[approval.name, approval.folder] = approval
        return approval

    def revoke(self, name: str, folder: str | os.PathLike[str] | None = None) -> bool:
        """Revoke the approvals of a name, in one folder or in all; return True if there was one.

        Raises:
            ConfigError: the store cannot be read or written.
        """
        real = None if folder is None else writable_text(os.path.realpath(folder))
        with self._changing() as kept:
            taken = {
                key: msgspec.structs.replace(approval, revoked_at=self._clock())
                for key, approval in kept.items()
                if approval.name == name and real in (None, approval.folder) and approval.revoked_at is None
            }
            kept.update(taken)
        return bool(taken)

    def approvals(self) -> list[Approval]:
        """Return all approvals, including revoked ones, by name and folder.

        Raises:
            ConfigError: the store cannot be read.
        """
        return [approval for _, approval in sorted(self._read().items())]

    def _folder(self, entry: ServerEntry) -> str:
        """Return the real path of the project that an entry came with."""
        if entry.source.scope != "project" or entry.source.file is None:
            raise ConfigError(f"{entry.name} is from {entry.source}: only servers of a project's file are approved.")
        folder = project_folder(entry.source.file)
        if self._path.is_relative_to(folder):
            raise ConfigError(
                f"Approvals are stored in {self._path}, inside the project folder {folder}, which could approve its "
                "own servers: set TRUNKLINE_HOME to a folder outside, or name the file yourself with --config."
            )
        return writable_text(folder)

    @contextmanager
    def _changing(self) -> Iterator[dict[tuple[str, str], Approval]]:
        """Read the approvals, let the caller change them, and write them back, under a lock."""
        path = str(self._path)
        try:
            with locked(path):
                kept = self._read()
                before = dict(kept)
                yield kept
                if kept != before:
                    book = _TrustFile(approvals=[approval for _, approval in sorted(kept.items())])
                    write_private(path, msgspec.json.format(msgspec.json.encode(book)) + b"\n")
        except OSError as error:
            raise ConfigError(f"{path}: approvals cannot be stored: {error.strerror or error}.") from error

    def _read(self) -> dict[tuple[str, str], Approval]:
        content = read_private(str(self._path), what="approvals")
        try:
            book = _TrustFile() if content is None else msgspec.json.decode(content, type=_TrustFile)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{self._path}: approvals cannot be parsed ({error}), so nothing is approved. Repair the file, or "
                "delete it and approve again."
            ) from error
        return {(approval.name, approval.folder): approval for approval in book.approvals}


def project_folder(file: str) -> str:
    """Return the real path of the project folder that a configuration file belongs to."""
    folder = os.path.realpath(os.path.dirname(_absolute(file)))
    return os.path.dirname(folder) if os.path.basename(folder) in _EDITORS else folder


def _absolute(file: str) -> str:
    return os.path.abspath(os.path.expanduser(file))


def _changes(before: Approval, now: Fingerprint) -> tuple[FingerprintChange, ...]:
    names = dict.fromkeys([*before.marks, *now.marks])
    return tuple(
        FingerprintChange(name, before.parts.get(name), now.parts.get(name))
        for name in names
        if before.marks.get(name) != now.marks.get(name)
    )


def shown_command(entry: ServerEntry) -> str:
    """Return the whole command or the URL of an entry, with secrets masked."""
    if entry.command is None:
        return shown_url(entry) if entry.url is not None else "(in this process)"
    # Secrets are masked first: once quoted, a secret that contains a quote is no longer found.
    return shlex.join(entry.redact(word) for word in entry.command)


#: The parts of a fingerprint that are shown in addition to the command or URL.
_LABELS: Mapping[str, str] = MappingProxyType(
    {
        "command": "program",
        "binary": "content",
        "scripts": "script",
        "env": "variables",
        "cwd": "directory",
        "headers": "headers",
        "auth": "login",
        "secrets": "secrets",
        "sandbox": "sandbox",
    }
)


def approval_rows(entry: ServerEntry, seen: Fingerprint, status: TrustStatus) -> list[tuple[str, str]]:
    """Return the complete details that the user reads before approving a server, as labels with texts, masked."""
    return [
        ("runs" if entry.url is None else "reaches", shown_command(entry)),
        *((_LABELS[name], text) for name, text in seen.parts.items() if name in _LABELS),
        *(("CHANGED", str(change)) for change in status.changes),
        *(("WARNING", f"it {warning}") for warning in warnings_for(entry)),
    ]


_OTHER_RIGHTS = frozenset({"sudo", "doas", "su", "pkexec", "runas"})


class _Fetcher(NamedTuple):
    """A command that fetches what it runs: its first words, options naming the package, and options with a value."""

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
    """Return warnings about an entry, for the person who is about to approve it; secrets are masked."""
    found = [*_web_warnings(entry)] if entry.url is not None else [*_command_warnings(entry)]
    found += [
        f"sets {name}={value}, which decides what code runs or where it comes from"
        for name, value in sorted(entry.env.items())
        if STEERING_VARIABLES.fullmatch(name)
    ]
    unseen = _invisible_characters([entry.name, *(entry.command or ()), *entry.env, entry.url or "", entry.cwd or ""])
    if unseen:
        found.append(f"has invisible characters: {', '.join(unseen)}")
    return [entry.redact(each) for each in found]


def _web_warnings(entry: ServerEntry) -> Iterator[str]:
    try:
        parts = urlsplit(entry.url or "")
        host = parts.hostname or ""
    except ValueError:
        yield "has an invalid URL"
        return
    if parts.scheme != "https" and not is_loopback(host):
        yield f"is contacted without encryption: anyone on the network path can read and change the traffic with {host}"
    if "@" in parts.netloc:
        yield f"has a user's name in its URL: the host is {host}"
    if not host.isascii() or "xn--" in host:
        yield f"has a host name that is not plain ASCII: {host}"


def _command_warnings(entry: ServerEntry) -> Iterator[str]:
    words = [*(entry.command or ())]
    if not words:
        return
    rights = next((program_name(word) for word in words if program_name(word) in _OTHER_RIGHTS), None)
    if rights is not None:
        yield f"runs with the rights of another user ({rights})"
    for kind, text in executed_code(words, entry.cwd or os.curdir):
        if kind == "code":
            yield f"runs code given on its command line ({text})"
    line = " ".join(words)
    yield from (sentence for pattern, sentence in _PATTERNS if pattern.search(line))
    package = _fetched(words)
    if package is not None and not _FIXED.fullmatch(package):
        yield f"fetches {package} without a fixed version: what runs may change at any time"
    yield from _outside(entry)


def _fetched(words: list[str]) -> str | None:
    """Find the package that is fetched and run."""
    for at, program in enumerate(map(program_name, words)):
        for fetcher in _FETCHERS:
            if (program, *words[at + 1 : at + len(fetcher.start)]) == fetcher.start:
                return _package(words[at + len(fetcher.start) :], fetcher)
    return None


def _package(words: list[str], fetcher: _Fetcher) -> str | None:
    """Return what an option names, else the first word that is neither an option nor its value."""
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
    """Return the paths that lead out of the project."""
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


def _invisible_characters(texts: Sequence[str]) -> list[str]:
    """Return the characters that a screen does not show, or shows in another position."""
    found = {each for text in texts for each in text if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    return [f"U+{ord(each):04X}" for each in sorted(found)]
