"""The configuration as data.

Server entries with their settings, the administrator's rules over servers, and everything that is known about how the
entries were read (sources, problems, provenance). Nothing in the provenance records is secret; in an entry, values
that came out of variables are listed in ``secrets``, and values from the vault stay sealed until the server is
started. No I/O.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct

from trunkline.host.secrets.references import SecretTemplate

if TYPE_CHECKING:
    from trunkline.host.config.loading import ScopedDocument

__all__ = [
    "NO_FILTERS",
    "ConfigProblem",
    "Configuration",
    "Era",
    "Filters",
    "InactiveEntry",
    "InputVariable",
    "LoadedFile",
    "Provenance",
    "Scope",
    "ServerDenial",
    "ServerEntry",
    "ServerRule",
    "ServerRules",
    "ServerSettings",
    "Source",
    "ValueOrigin",
    "VariableState",
    "VariableUse",
]

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
    #: The extensions of the server that the gateway forwards, by identifier, each with its methods.
    extensions: dict[str, tuple[str, ...]] = {}
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
    sealed: tuple[SecretTemplate, ...] = ()
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


_PORTS = (("http", 80), ("https", 443))


class ServerRule(Struct, frozen=True, kw_only=True):
    """One rule over servers; a member that is None matches everything."""

    name: str | None = None
    command: tuple[str, ...] | None = None
    url: str | None = None
    line: int | None = None

    def matches(self, entry: ServerEntry, *, lenient: bool) -> bool:
        """Return True if the rule matches a server; if lenient, also by another spelling of the same URL path."""
        if self.name is not None and self.name.casefold() != entry.name.casefold():
            return False
        if self.command is not None and (entry.command is None or not _matches_command(self.command, entry.command)):
            return False
        return self.url is None or (entry.url is not None and _matches_url(self.url, entry.url, lenient=lenient))


class ServerDenial(Struct, frozen=True):
    """Why a server may not be used, and the line of the rule."""

    why: str
    line: int | None = None


class ServerRules(Struct, frozen=True, kw_only=True):
    """The rules of the managed file for servers of other files."""

    exclusive: bool = False
    #: None allows whatever is not denied.
    allowed: tuple[ServerRule, ...] | None = None
    denied: tuple[ServerRule, ...] = ()
    #: If set, everything is denied, for this reason.
    closed: ServerDenial | None = None

    def denial(self, entry: ServerEntry) -> ServerDenial | None:
        """Return why a server that is not managed is denied; None if it is allowed."""
        if self.exclusive:
            return ServerDenial("the managed file is exclusive")
        if self.closed is not None:
            return self.closed
        for rule in self.denied:
            if rule.matches(entry, lenient=True):
                return ServerDenial("deniedServers of the managed file denies it", rule.line)
        if self.allowed is None or any(rule.matches(entry, lenient=False) for rule in self.allowed):
            return None
        return ServerDenial("allowedServers of the managed file does not name it")


# --- comparing -------------------------------------------------------------------------------------------------------


def _matches_command(globs: tuple[str, ...], words: tuple[str, ...]) -> bool:
    if globs[-1] == "**":
        globs, words = globs[:-1], words[: len(globs) - 1]
    if len(globs) != len(words):
        return False
    return all(fnmatchcase(word, glob) for glob, word in zip(globs, words, strict=True))


def _matches_url(glob: str, url: str, *, lenient: bool) -> bool:
    # A glob over the whole URL would let "*.example.com" match a path of another host.
    scheme, _, rest = glob.partition("://")
    host, _, path = rest.partition("/")
    parts = urlsplit(url)
    if not fnmatchcase(parts.scheme, scheme.lower()) or not fnmatchcase(_authority(parts), _plain_port(host, scheme)):
        return False
    if not path:
        return True
    straight = posixpath.normpath(unquote(parts.path))
    ways = [fnmatchcase(each, f"/{path}") for each in (parts.path, straight)]
    return any(ways) if lenient else all(ways)


def _authority(parts: SplitResult) -> str:
    host = (parts.hostname or "").rstrip(".")
    port = parts.port
    return host if port is None or (parts.scheme, port) in _PORTS else f"{host}:{port}"


def _plain_port(host: str, scheme: str) -> str:
    for known, port in _PORTS:
        if scheme == known:
            host = host.removesuffix(f":{port}")
    return host.lower()


#: ``set``: its value is used; ``unset``; ``default``: the default in the file is used; ``unanswered``: an input without
#: an answer; ``known``: a predefined folder; ``sealed``: a secret that is looked up right before the server is started.
VariableState: TypeAlias = Literal["set", "unset", "default", "unanswered", "known", "sealed"]


class ConfigProblem(Struct, frozen=True, kw_only=True):
    """What is wrong, where, and how to fix it."""

    message: str
    fix: str | None = None
    #: An error disables a server or a file; a warning does not.
    severity: Literal["error", "warning"] = "error"
    file: str | None = None
    line: int | None = None
    column: int | None = None
    server: str | None = None
    #: The member, as a path within the entry, or within the file where no server is named.
    key: str | None = None

    def __str__(self) -> str:
        """Return all of it on one line."""
        path = ".".join(part for part in (self.server, self.key) if part)
        return ": ".join(part for part in (self.place, path, self.sentence) if part)

    @property
    def place(self) -> str:
        """The file with the line, as editors and terminals link it."""
        numbers = [str(number) for number in (self.line, self.column) if number]
        return ":".join((self.file or "", *numbers)) if self.file else ""

    @property
    def sentence(self) -> str:
        """What is wrong and the fix, without the place."""
        return self.message if self.fix is None else f"{self.message}; {self.fix}"


class InputVariable(Struct, frozen=True, kw_only=True):
    """A value that a person is prompted for."""

    id: str
    description: str = ""
    #: Whether it is masked while it is typed.
    password: bool = False
    default: str | None = None
    #: The values to choose from; empty for any value.
    options: tuple[str, ...] = ()
    #: The file that declares it.
    file: str | None = None

    @property
    def variable(self) -> str:
        """The environment variable that can provide the answer."""
        word = "".join(each if each.isascii() and each.isalnum() else "_" for each in self.id)
        return f"TRUNKLINE_INPUT_{word.upper()}"


class VariableUse(Struct, frozen=True):
    """A variable that a value uses, without its content."""

    name: str
    kind: Literal["variable", "input", "folder", "secret"]
    state: VariableState


class ValueOrigin(Struct, frozen=True, kw_only=True):
    """Where one value of an entry was written, and how it may be shown."""

    key: str
    shown: str
    file: str | None = None
    line: int | None = None
    variables: tuple[VariableUse, ...] = ()


class Provenance(Struct, frozen=True, kw_only=True):
    """Where the values of one entry came from, and what is wrong with it."""

    values: tuple[ValueOrigin, ...] = ()
    problems: tuple[ConfigProblem, ...] = ()


class InactiveEntry(Struct, frozen=True, kw_only=True):
    """An entry that is not active: overridden by another, or denied by a rule."""

    entry: ServerEntry
    why: str
    #: The entry or the rule that makes it inactive.
    by: Source | None = None


class LoadedFile(Struct, frozen=True, kw_only=True):
    """A file that was read, or could not be."""

    path: str
    scope: Scope
    #: The names of its entries, including inactive ones.
    servers: tuple[str, ...] = ()
    problem: ConfigProblem | None = None


class Configuration(Struct, frozen=True, kw_only=True):
    """The effective configuration after all files were loaded."""

    #: The active entries by name, including those that cannot run.
    entries: Mapping[str, ServerEntry] = MappingProxyType({})
    hidden: tuple[InactiveEntry, ...] = ()
    #: Problems of whole files, and warnings; errors of one entry are in its ``problem`` and its provenance.
    problems: tuple[ConfigProblem, ...] = ()
    files: tuple[LoadedFile, ...] = ()
    #: The administrator's rules for servers that are not managed; they also apply to servers that are added later.
    rules: ServerRules = ServerRules()
    written: Mapping[str, Provenance] = MappingProxyType({})
    #: The parsed files that this was built from, in the order of ``files``, without those that have a problem.
    documents: tuple[ScopedDocument, ...] = ()

    def provenance(self, name: str) -> Provenance:
        """Return where the values of an active entry came from."""
        return self.written.get(name, Provenance())
