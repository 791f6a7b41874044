"""A server's configuration entry: how to reach it, where the entry comes from, and its settings.

Entries are parsed and expanded: no variable is left, and values of variables are listed in ``secrets`` so that they are
never printed. Only secrets of the user's vault are not expanded: those values are ``sealed``, with the names of the
secrets in their places, until the server is started. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from trunkline.host.secrecy.names import Sealed

__all__ = ["NO_FILTERS", "Era", "Filters", "Scope", "ServerEntry", "ServerSettings", "Source"]

#: The scope an entry comes from. ``given``: the command line or code; ``managed`` overrides all others; ``project`` is
#: trusted only once approved.
Scope: TypeAlias = Literal["managed", "given", "project", "user"]
#: Which era to use: ``auto``, one of the two, or the name of a revision.
Era: TypeAlias = str
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Source(Struct, frozen=True):
    """Where an entry was written."""

    scope: Scope
    #: The file, as the user would name it; None for an entry given in code.
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        """Return file and line, for messages."""
        if self.file is None:
            return f"the {self.scope} configuration"
        return self.file if self.line is None else f"{self.file}:{self.line}"


class Filters(Struct, frozen=True, kw_only=True):
    """Which of a server's tools, prompts and resources are shown at all; globs over names, deny overrides allow."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    #: Only tools annotated ``readOnly``, ``destructive``, ``idempotent`` or ``openWorld``; a leading ``!`` negates.
    annotations: tuple[str, ...] = ()
    #: Only what has one of these tags (``_meta`` ``tags``).
    tags: tuple[str, ...] = ()


NO_FILTERS = Filters()


class ServerSettings(Struct, frozen=True, kw_only=True):
    """How the host treats one server."""

    era: Era = "auto"
    #: Seconds a call may be silent, a call may take in all, and a start may take; None for the default limits.
    timeout: float | None = None
    total_timeout: float | None = None
    start_timeout: float | None = None
    #: Started with the host, or when it is first used (its cached catalog is shown until then).
    start: Literal["eager", "lazy"] = "eager"
    #: Seconds that the first list of a gateway waits for this server to start; None for the host's default.
    wait: float | None = None
    #: Whether the host is ready only once this server is.
    required: bool = False
    #: Seconds without use after which a server process is stopped, and restarted on demand; None for never.
    idle_stop: float | None = None
    #: Crashes within ``crash_seconds`` after which it is not started again.
    crashes: int = 5
    crash_seconds: float = 60.0
    #: Seconds between health checks; 0 to rely on the process exiting.
    health_seconds: float = 30.0
    #: The roots of the server; None for those of the caller.
    roots: tuple[str, ...] | None = None
    #: What it may request from the caller: ``sampling``, ``elicitation``, ``roots``; None for all that the caller
    #: supports.
    asks: tuple[str, ...] | None = None
    #: Whether its annotations are believed, so that they may also lower the level of a tool.
    trusted: bool = False
    tools: Filters = NO_FILTERS
    prompts: Filters = NO_FILTERS
    resources: Filters = NO_FILTERS
    #: One connection for all sessions, or one for each session that can answer server requests.
    share: Literal["auto", "shared", "session"] = "auto"
    #: Whether each principal has its own connection and credentials.
    per_user: bool = False
    #: Seconds without a call after which a dedicated connection is closed.
    dedicated_idle: float = 110.0
    #: The most dedicated connections; the longest idle one is closed to make room for a new one.
    dedicated_most: int = 32
    #: The most calls in flight; further calls wait.
    concurrency: int = 64
    #: The longest message of a server process, in bytes; None for the default limit.
    message_bytes: int | None = None
    #: Whether its tools are listed in full even when the catalog is searched.
    always_load: bool = False
    #: What happens to a definition that changed since it was accepted: hidden, approval before each use, or nothing.
    pins: Literal["strict", "ask", "off"] = "ask"
    #: The sandbox section, parsed by the sandbox.
    sandbox: Any = None
    #: Its sampling limits: the members of ``SamplingLimits``.
    sampling: Any = None


class ServerEntry(Struct, frozen=True, kw_only=True):
    """One server, ready to be started, or the reason why it cannot be."""

    name: str
    source: Source
    #: Program and arguments; None for a server at a URL.
    command: tuple[str, ...] | None = None
    env: Mapping[str, str] = _NOTHING
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = _NOTHING
    #: The transport of the URL, if the entry names one: ``http`` or ``sse``.
    type: str | None = None
    #: The login at a URL: None, "oauth", or the members of an ``oauth`` object.
    auth: Any = None
    disabled: bool = False
    settings: ServerSettings = ServerSettings()
    #: Values of variables, inputs and env files; never to be printed.
    secrets: frozenset[str] = frozenset()
    #: The values that contain secrets of the vault, which are filled in right before the server is started; until then
    #: they contain ``${secret:name}``.
    sealed: tuple[Sealed, ...] = ()
    #: Why this server cannot run (file, line, key, fix); other servers are not affected.
    problem: str | None = None
    #: A ``Server`` object given in code, in place of a process or URL.
    target: Any = None

    def __repr__(self) -> str:
        """Show name and source, nothing that may be secret."""
        return f"ServerEntry({self.name!r}, {self.source})"

    @property
    def shown(self) -> str:
        """The command or URL as it may be printed, with secrets masked."""
        if self.url is not None:
            return self.redact(self.url.partition("?")[0])
        if self.command is None:
            return "(in this process)"
        import shlex

        # Word by word: quoting could split a secret into parts that would no longer be recognized.
        return shlex.join(self.redact(word) for word in self.command)

    def redact(self, text: str) -> str:
        """Replace every secret with ``***``."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            if secret:
                text = text.replace(secret, "***")
        return text
