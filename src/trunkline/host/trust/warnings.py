"""Warnings to show before a server is approved: patterns in its command or URL that have been used to do harm.

They deny nothing; they are shown to the person who decides.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from trunkline.host.entries import ServerEntry
from trunkline.host.trust.book import project_folder
from trunkline.host.trust.commands import STEERING, basename, run_by
from trunkline.net.addresses import is_loopback

__all__ = ["warnings_for"]

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
        if STEERING.fullmatch(name)
    ]
    unseen = _unseen([entry.name, *(entry.command or ()), *entry.env, entry.url or "", entry.cwd or ""])
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
    rights = next((basename(word) for word in words if basename(word) in _OTHER_RIGHTS), None)
    if rights is not None:
        yield f"runs with the rights of another user ({rights})"
    for kind, text in run_by(words, entry.cwd or os.curdir):
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
    for at, program in enumerate(map(basename, words)):
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


def _unseen(texts: Sequence[str]) -> list[str]:
    """Return the characters that a screen does not show, or shows in another position."""
    found = {each for text in texts for each in text if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    return [f"U+{ord(each):04X}" for each in sorted(found)]
