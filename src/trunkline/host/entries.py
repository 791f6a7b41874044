"""What the host knows of a server before it runs: how to reach it, who said so, and the settings that go with it.

Everything here is read and expanded already: no variable is left in it, and what came out of one is named in
``secrets``, so that nobody prints it. Only what the user's vault keeps is not: those values are ``sealed``, with the
names of the secrets in their places, until the server is started. It does no I/O and starts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from trunkline.host.secrecy.names import Sealed

__all__ = ["NO_FILTERS", "Era", "Filters", "Scope", "ServerEntry", "ServerSettings", "Source"]

#: Who gave an entry. ``given``: on the command line or in code; ``managed`` beats all others, ``project`` is trusted
#: only once approved.
Scope: TypeAlias = Literal["managed", "given", "project", "user"]
#: Which era to speak: found out, one of the two, or the name of a revision.
Era: TypeAlias = str
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Source(Struct, frozen=True):
    """Where an entry was written."""

    scope: Scope
    #: The file, as the user would name it; None for an entry given in code.
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        """Name the place, for a message."""
        if self.file is None:
            return f"the {self.scope} configuration"
        return self.file if self.line is None else f"{self.file}:{self.line}"


class Filters(Struct, frozen=True, kw_only=True):
    """Which of a server's tools, prompts and resources are shown at all; globs over names, deny beats allow."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    #: Only what says of itself: ``readOnly``, ``destructive``, ``idempotent``, ``openWorld``; ``!`` before it negates.
    annotations: tuple[str, ...] = ()
    #: Only what has one of these tags (``_meta`` ``tags``).
    tags: tuple[str, ...] = ()


NO_FILTERS = Filters()


class ServerSettings(Struct, frozen=True, kw_only=True):
    """How the host treats one server."""

    era: Era = "auto"
    #: Seconds of silence a call may take, in all, and to start; None for the usual limits.
    timeout: float | None = None
    total_timeout: float | None = None
    start_timeout: float | None = None
    #: Started with the host, or from the catalog that is kept when something of it is first used.
    start: Literal["eager", "lazy"] = "eager"
    #: Seconds that the first list of a gateway waits for this server to start; None for what the host waits.
    wait: float | None = None
    #: Whoever waits for the host to be ready waits for this server too.
    required: bool = False
    #: Seconds without use after which a server process is stopped, to be started again on demand; None: never.
    idle_stop: float | None = None
    #: Crashes within ``crash_seconds`` after which it is not started again.
    crashes: int = 5
    crash_seconds: float = 60.0
    #: Seconds between looks whether it is alive; 0: only what its process says.
    health_seconds: float = 30.0
    #: The folders the server may know of; None: those of whoever calls.
    roots: tuple[str, ...] | None = None
    #: What it may ask of whoever calls: ``sampling``, ``elicitation``, ``roots``; None: all that one can be asked.
    asks: tuple[str, ...] | None = None
    #: What it says of its tools is believed: hints may lower the level, too.
    trusted: bool = False
    tools: Filters = NO_FILTERS
    prompts: Filters = NO_FILTERS
    resources: Filters = NO_FILTERS
    #: One connection for all, or one for each session that may be asked something.
    share: Literal["auto", "shared", "session"] = "auto"
    #: Each principal has a connection and credentials of its own.
    per_user: bool = False
    #: Seconds without a call after which a session's own connection to it is closed.
    dedicated_idle: float = 110.0
    #: How many such connections there may be; the one that was idle for the longest time is closed for a new one.
    dedicated_most: int = 32
    #: Calls in flight at once; those beyond wait.
    concurrency: int = 64
    #: Longest message of a server process, in bytes; None for the usual limit.
    message_bytes: int | None = None
    #: Its tools are shown whole even when the catalog is searched.
    always_load: bool = False
    #: A definition that changed since it was accepted is hidden, or asked about before every use, or not noticed.
    pins: Literal["strict", "ask", "off"] = "ask"
    #: Kept for the sandbox.
    sandbox: Any = None
    #: What it may have of the user's models: the members of ``SamplingLimits``.
    sampling: Any = None


class ServerEntry(Struct, frozen=True, kw_only=True):
    """One server, ready to be started, or the reason why it is not."""

    name: str
    source: Source
    #: Program and arguments of a server that is started; None for one that has a URL.
    command: tuple[str, ...] | None = None
    env: Mapping[str, str] = _NOTHING
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = _NOTHING
    #: What the entry says about the transport of its URL: ``http``, ``sse``, or nothing.
    type: str | None = None
    #: How to log in at a URL: None, "oauth", or the members of an ``oauth`` object.
    auth: Any = None
    disabled: bool = False
    settings: ServerSettings = ServerSettings()
    #: Values that came out of variables, inputs and files; never to be printed.
    secrets: frozenset[str] = frozenset()
    #: The values that have secrets of the vault in them, which are filled in right before the server is started; until
    #: then ``${secret:name}`` stands in their places.
    sealed: tuple[Sealed, ...] = ()
    #: Why this server cannot run (file, line, key, the fix); the others are not disturbed.
    problem: str | None = None
    #: An object to talk to instead of a process or a URL (a ``Server``), given in code.
    target: Any = None

    def __repr__(self) -> str:
        """Name it, without anything that may be secret."""
        return f"ServerEntry({self.name!r}, {self.source})"

    @property
    def shown(self) -> str:
        """The command or URL as it may be printed: secrets are left out, nothing else is."""
        if self.url is not None:
            return self.redact(self.url.partition("?")[0])
        if self.command is None:
            return "(in this process)"
        import shlex

        # Word by word: quoting could break a secret into pieces that nobody would know again.
        return shlex.join(self.redact(word) for word in self.command)

    def redact(self, text: str) -> str:
        """Put ``***`` in place of every secret."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            if secret:
                text = text.replace(secret, "***")
        return text
