"""Grants: acts that the user allowed earlier, for a session, for similar arguments, or always.

A grant is bound to the server, the name and the pin of what was shown when it was given, and to the principal and the
profile it was given under. It only ever answers an approval request: it never allows what a policy denies. Grants of a
session live in memory with the session; the others in one file, which is read again whenever it changed, so that a
revocation takes effect at once in every process. A file that cannot be read grants nothing and is not overwritten.

A grant for a whole server is the set of its tools, each with its pin, at the moment of the answer. Tools that are added
or changed later are not in it. A grant may also be deferred, for a server that was never listed: it becomes the set of
the read-only tools in the first list, and allows nothing before.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.host.authorization.policy.decisions import Act, ActKind
from trunkline.host.authorization.policy.patterns import InvalidPointer, parse_pointer
from trunkline.host.secrets.registry import redact
from trunkline.host.state_files import LockTimeout, locked, read_private, write_private

__all__ = [
    "GRANT_DAYS",
    "MAX_TOOLS_PER_GRANT",
    "ArgumentPattern",
    "Grant",
    "GrantKind",
    "GrantScope",
    "GrantStore",
    "ServerTool",
    "SessionGrants",
    "allow_command",
    "argument_pattern",
    "covers",
    "is_same_grant",
    "make_deferred_grant",
    "make_grant",
    "make_origins_grant",
    "make_server_grant",
]

GrantScope: TypeAlias = Literal["session", "alike", "always"]
#: ``origins``: the pages (MCP Apps) of a server may reach origins that need consent; no act has this kind.
GrantKind: TypeAlias = ActKind | Literal["origins"]

#: How long an answer of "always" holds, in days.
GRANT_DAYS = 30
#: Tools in one grant. A server with more tools needs a policy rule, or approval tool by tool.
MAX_TOOLS_PER_GRANT = 2000

_LIFETIME = GRANT_DAYS * 24 * 3600.0
_FORMAT = 1  # A file of another format is not read.
_encoder = msgspec.json.Encoder(order="sorted")


class ArgumentPattern(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Matches arguments that equal those of the approved call, except for one that may differ."""

    #: The digest of all arguments but the one that may differ; the arguments themselves may be secret.
    rest: str
    #: A JSON pointer to the argument that may differ; None if none may.
    vary: str | None = None
    #: The glob it must match, segment by segment between ``/``, ``**`` for any number of segments; None: anything.
    like: str | None = None
    #: The arguments of the approved call, redacted, for display.
    shown: Any = None

    def matches(self, arguments: Mapping[str, Any] | None) -> bool:
        """Return True if these arguments match."""
        taken = _split_at(arguments or {}, self.vary)
        if taken is None:
            return False
        varied, rest = taken
        return rest == self.rest and (self.like is None or (isinstance(varied, str) and _fits_glob(varied, self.like)))


class ServerTool(Struct, frozen=True):
    """A tool that a server offers now, with what a grant for the whole server needs of it."""

    name: str
    pin: str
    #: The server marks the tool as read-only (``readOnlyHint``).
    read_only: bool = False


class Grant(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A permission given in advance."""

    id: str
    scope: GrantScope
    kind: GrantKind
    server: str
    #: The one tool, prompt or resource, or the origins; empty if the grant is for several tools.
    name: str = ""
    #: The pin of what is named; for origins, the identity of the server (``endpoint_identity``).
    pin: str | None = None
    #: For several tools of the server: the pin of each, by name.
    tools: dict[str, str] | None = None
    #: The several tools are those that the server marks as read-only.
    read_only: bool = False
    #: It is deferred to the first list of the server with this identity (``endpoint_identity``).
    awaits: str | None = None
    principal: str | None = None
    profile: str | None = None
    #: The session it is limited to, if any.
    session: str | None = None
    #: The skill (``server/uri``) whose requested tools it allows, while the skill is loaded; None for any other grant.
    skill: str | None = None
    #: The digest of the skill's files, as they were approved.
    skill_pin: str | None = None
    #: The arguments it is limited to; None for any.
    match: ArgumentPattern | None = None
    #: It was given while the session was tainted, and says so.
    tainted: bool = False
    #: It was given with the scan's findings, or the changes of the definition, on display.
    flagged: bool = False
    created: float = 0.0
    #: Seconds since the epoch.
    expires: float | None = None
    #: How many uses are left; None: unlimited.
    uses: int | None = None


class _GrantFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the grants file."""

    format: int
    grants: list[Grant]


def argument_pattern(
    arguments: Mapping[str, Any] | None, *, vary: str | None = None, like: str | None = None
) -> ArgumentPattern:
    """Return the pattern of arguments that equal these, except for the one at the pointer ``vary``.

    Raises:
        ValueError: the pointer leads nowhere, or the glob can never match.
    """
    taken = _split_at(arguments or {}, vary)
    if taken is None:
        raise ValueError(f"there is no argument at {vary}")
    if like is not None and (vary is None or not _is_plain(like)):
        raise ValueError(f"{like!r} matches nothing: use a pattern without . and .. as segments")
    return ArgumentPattern(rest=taken[1], vary=vary, like=like, shown=redact(dict(arguments or {})))


def covers(grant: Grant, act: Act, now: float) -> bool:
    """Return True if a grant allows an act."""
    return (
        (grant.kind, grant.server, grant.principal, grant.profile) == (act.kind, act.server, act.principal, act.profile)
        and _matches_definition(grant, act)
        and (grant.session is None or grant.session == act.session)
        and _is_valid(grant, now)
        # The approval is for the model that reads the skill, not for a page of a server.
        and (grant.skill is None or act.caller != "app")
        and (not act.tainted or _holds_tainted(grant, act))
        and (grant.flagged or not (act.flagged or act.changed))
        and (grant.match is None or (act.arguments is not None and grant.match.matches(act.arguments)))
    )


def allow_command(act: Act, *, by_command: bool = True) -> str | None:
    """Return the command that allows an act without asking from now on; None if no such command exists.

    ``by_command`` is False where the command line has no access to the host's grants: servers that are objects of a
    program, and hosts that keep their files elsewhere.
    """
    target = shlex.quote(f"{act.server}/{act.name if act.pinned_as is None else act.pinned_as}")
    if (act.flagged or act.changed) and act.kind != "skill":
        return f"trunkline pins accept {target}"
    if act.pinned_as is not None:
        # Grants of the command line are for tools that are pinned under their own name.
        return None
    if not by_command or act.kind != "tool" or act.pin is None or act.tainted:
        return None
    words = ["trunkline grants allow", target]
    words += [] if act.profile is None else [f"--profile {shlex.quote(act.profile)}"]
    words += [] if act.principal is None else [f"--principal {shlex.quote(act.principal)}"]
    return " ".join(words)


def is_same_grant(one: Grant, other: Grant) -> bool:
    """Return True if two grants allow the same, regardless of when they were created and expire."""
    plain = [msgspec.structs.replace(grant, id="", created=0.0, expires=None) for grant in (one, other)]
    return plain[0] == plain[1]


def _matches_definition(grant: Grant, act: Act) -> bool:
    """Return True if the grant is for the definition that the act uses."""
    if grant.awaits is not None:
        return False
    if grant.tools is None:
        return (grant.name, grant.pin) == (act.name, act.pin)
    return act.pin is not None and grant.tools.get(act.name) == act.pin


def _holds_tainted(grant: Grant, act: Act) -> bool:
    """Return True if the grant holds in a tainted session.

    A read-only grant holds for tools with ``openWorldHint: false``, like the default for a trusted server: data that
    untrusted text makes the model read has no way out.
    """
    return grant.tainted or (grant.read_only and act.annotations.open_world is False)


def make_grant(
    act: Act,
    scope: GrantScope,
    *,
    now: float,
    match: ArgumentPattern | None = None,
    expires: float | None = None,
    uses: int | None = None,
) -> Grant:
    """Create a grant for an act and similar ones; one that outlives its session expires after 30 days by default.

    Raises:
        ValueError: the act cannot be identified: a tool or skill without a pin, or ``alike`` without arguments.
    """
    if act.kind in ("tool", "skill") and act.pin is None:
        raise ValueError(f"{act.server}/{act.name} has no pin, so nothing identifies what would be allowed")
    if (scope == "alike") is not (match is not None):
        raise ValueError("a grant has an argument pattern if and only if its scope is alike")
    if scope != "session" and expires is None:
        expires = now + _LIFETIME
    return Grant(
        id=_new_id(),
        scope=scope,
        kind=act.kind,
        server=act.server,
        name=act.name,
        pin=act.pin,
        principal=act.principal,
        profile=act.profile,
        session=act.session if scope == "session" else None,
        match=match,
        tainted=act.tainted,
        flagged=act.flagged or act.changed,
        created=now,
        expires=expires,
        uses=uses,
    )


def make_server_grant(
    act: Act,
    scope: GrantScope,
    tools: Iterable[ServerTool],
    *,
    now: float,
    read_only: bool = False,
    expires: float | None = None,
    uses: int | None = None,
) -> Grant:
    """Make a grant for several tools of an act's server, as they are now.

    ``read_only`` leaves out the tools that are not marked read-only.

    Raises:
        ValueError: there are no such tools, or more than a grant can hold.
    """
    pins = {tool.name: tool.pin for tool in tools if tool.read_only or not read_only}
    if not 0 < len(pins) <= MAX_TOOLS_PER_GRANT:
        raise ValueError(f"{act.server} has {len(pins)} such tools; a grant is for 1 to {MAX_TOOLS_PER_GRANT}")
    return Grant(
        id=_new_id(),
        scope=scope,
        kind="tool",
        server=act.server,
        tools=pins,
        read_only=read_only,
        principal=act.principal,
        profile=act.profile,
        session=act.session if scope == "session" else None,
        tainted=act.tainted,
        created=now,
        expires=now + _LIFETIME if scope != "session" and expires is None else expires,
        uses=uses,
    )


def make_deferred_grant(server: str, awaits: str, *, now: float) -> Grant:
    """Make a grant for the read-only tools in the first list of a server that was never listed; it never expires."""
    return Grant(id=_new_id(), scope="always", kind="tool", server=server, read_only=True, awaits=awaits, created=now)


def make_origins_grant(server: str, identity: str, origins: Iterable[str], *, now: float) -> Grant:
    """Make a grant for the pages (MCP Apps) of a server to reach these origins; it never expires."""
    name = " ".join(sorted(origins))
    return Grant(id=_new_id(), scope="always", kind="origins", server=server, name=name, pin=identity, created=now)


def _new_id() -> str:
    return os.urandom(6).hex()


class SessionGrants:
    """The grants of one session, in memory."""

    def __init__(self) -> None:
        """Start without grants."""
        self._kept: dict[str, Grant] = {}
        #: Uses a grant once for all workers of a gateway; None if there is one process.
        self.count_use: Callable[[Grant], Awaitable[bool]] | None = None

    def find(self, act: Act, now: float) -> Grant | None:
        """Return a grant that allows an act; None if there is none."""
        return _first(self._kept.values(), act, now)

    def add(self, grant: Grant) -> None:
        """Add a grant."""
        self._kept[grant.id] = grant

    def replace(self, grants: Iterable[Grant]) -> None:
        """Replace all grants."""
        self._kept = {grant.id: grant for grant in grants}

    def use(self, grant: Grant) -> bool:
        """Use a grant once; return False if it is used up or revoked."""
        kept = _with_one_use_less(self._kept, grant.id)
        if kept is None:
            return False
        self._kept[grant.id] = kept
        return True

    def revoke(self, id: str) -> bool:
        """Revoke a grant; return True if it existed."""
        return self._kept.pop(id, None) is not None

    def all(self) -> list[Grant]:
        """Return all grants."""
        return list(self._kept.values())

    @property
    def has_skills(self) -> bool:
        """Whether any grant came with a skill."""
        return any(grant.skill is not None for grant in self._kept.values())


class GrantStore:
    """The grants that outlive a session, in a file."""

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        """Use the file at this path; it is created with the first grant."""
        self._path = os.path.abspath(os.fspath(path))
        self._clock = clock
        self._mark: tuple[int, int, int] | None = None
        self._known: dict[str, Grant] = {}

    def __repr__(self) -> str:
        """Show the path of the file."""
        return f"GrantStore({self._path!r})"

    def find(self, act: Act, now: float | None = None) -> Grant | None:
        """Return a grant that allows an act; None if there is none.

        Raises:
            ConfigError: the file cannot be read; it grants nothing.
        """
        return _first(self._current().values(), act, self._clock() if now is None else now)

    def add(self, grant: Grant) -> None:
        """Add a grant for all processes; expired ones are removed.

        Raises:
            ConfigError: the file cannot be read or written.
            ValueError: it is a session grant, which is not stored.
        """
        if grant.scope == "session":
            raise ValueError("a grant for a session is not kept in a file")
        self._change(lambda kept: {**kept, grant.id: grant})

    def use(self, grant: Grant) -> bool:
        """Use a grant once; return False if it is used up or revoked. The file is written only if uses are counted.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        if grant.uses is None:
            return grant.id in self._current()
        found: list[Grant] = []

        def change(kept: dict[str, Grant]) -> dict[str, Grant]:
            left = _with_one_use_less(kept, grant.id)
            if left is None:
                return kept
            found.append(left)
            return {**kept, grant.id: left}

        self._change(change)
        return bool(found)

    def revoke(self, id: str) -> bool:
        """Revoke a grant; return True if it existed.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        before = self._change(lambda kept: {each: grant for each, grant in kept.items() if each != id})
        return id in before

    def revoke_all(self) -> int:
        """Revoke all grants; return how many there were.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        return len(self._change(lambda kept: {}))

    def deferred(self) -> list[Grant]:
        """Return the grants that are deferred to the first list of their server.

        Raises:
            ConfigError: the file cannot be read.
        """
        return [grant for grant in self._current().values() if grant.awaits is not None]

    def resolve(self, waiting: Grant, tools: Iterable[ServerTool]) -> None:
        """Turn a deferred grant into one for the read-only tools of a list; without any it is removed.

        Does nothing if another process did it first, or if the grant was revoked.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        pins = {tool.name: tool.pin for tool in tools if tool.read_only}

        def change(kept: dict[str, Grant]) -> dict[str, Grant]:
            found = kept.get(waiting.id)
            if found is None or found.awaits is None:
                return kept
            if not 0 < len(pins) <= MAX_TOOLS_PER_GRANT:
                return {id: grant for id, grant in kept.items() if id != waiting.id}
            return {**kept, waiting.id: msgspec.structs.replace(found, tools=pins, awaits=None)}

        self._change(change)

    def origins(self, server: str, identity: str) -> frozenset[str]:
        """Return the origins that the pages of a server may reach by its grants.

        Raises:
            ConfigError: the file cannot be read.
        """
        wanted = ("origins", server, identity)
        grants = [grant for grant in self.all() if (grant.kind, grant.server, grant.pin) == wanted]
        return frozenset(origin for grant in grants for origin in grant.name.split())

    def all(self) -> list[Grant]:
        """Return the grants that have not expired.

        Raises:
            ConfigError: the file cannot be read.
        """
        now = self._clock()
        return [grant for grant in self._current().values() if _is_valid(grant, now)]

    def _current(self) -> dict[str, Grant]:
        """Return the current grants; the file is read only if it changed."""
        try:
            found = os.stat(self._path)
        except OSError:
            # Absent, or its folder is not accessible: reading tells which.
            self._mark, self._known = None, _read(self._path)
            return self._known
        mark = (found.st_ino, found.st_size, found.st_mtime_ns)
        if mark != self._mark:
            # Cleared first: an unreadable file must not leave the old grants in force.
            self._mark, self._known = None, {}
            self._known = _read(self._path)
            self._mark = mark
        return self._known

    def _change(self, change: Callable[[dict[str, Grant]], dict[str, Grant]]) -> dict[str, Grant]:
        """Read, change and write the file under its lock; return the grants from before."""
        try:
            with locked(self._path):
                # The next access reads the file again, whatever happens here.
                self._mark = None
                before = _read(self._path)
                now = self._clock()
                after = {id: grant for id, grant in change(before).items() if _is_valid(grant, now)}
                if after != before:
                    write_private(self._path, _encode(after.values()))
                return before
        except LockTimeout as error:
            raise ConfigError(f"{self._path}: grants cannot be saved: {error}.") from error
        except OSError as error:
            raise ConfigError(f"{self._path}: grants cannot be saved: {error.strerror}.") from error


def _first(grants: Iterable[Grant], act: Act, now: float) -> Grant | None:
    return next((grant for grant in grants if covers(grant, act, now)), None)


def _is_valid(grant: Grant, now: float) -> bool:
    return (grant.expires is None or now < grant.expires) and (grant.uses is None or grant.uses > 0)


def _with_one_use_less(kept: Mapping[str, Grant], id: str) -> Grant | None:
    """Return a grant with one use less; None if none is left, or there is no such grant."""
    grant = kept.get(id)
    if grant is None or grant.uses is None:
        return grant
    return msgspec.structs.replace(grant, uses=grant.uses - 1) if grant.uses > 0 else None


def _read(path: str) -> dict[str, Grant]:
    data = read_private(path, what="grants")
    if data is None:
        return {}
    try:
        kept = msgspec.json.decode(data, type=_GrantFile)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: the grants cannot be read, so none is used: {error}. Delete the file to be asked again."
        ) from error
    if kept.format != _FORMAT:
        raise ConfigError(
            f"{path}: the grants cannot be read, so none is used: its format is {kept.format}, not {_FORMAT}."
        )
    return {grant.id: grant for grant in kept.grants}


def _encode(grants: Iterable[Grant]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(_GrantFile(_FORMAT, list(grants))), indent=2) + b"\n"


# --- argument patterns -----------------------------------------------------------------------------------------------


def _split_at(arguments: Mapping[str, Any], pointer: str | None) -> tuple[Any, str] | None:
    """Return the value at a pointer and the digest of the rest; None if the pointer leads nowhere."""
    if pointer is None:
        return None, _digest(arguments)
    try:
        varied, rest = _without(arguments, parse_pointer(pointer))
    except (KeyError, IndexError, InvalidPointer):
        return None
    return varied, _digest(rest)


def _without(value: Any, steps: tuple[str, ...]) -> tuple[Any, Any]:
    """Return the value that the steps lead to, and a copy of the whole with null in its place."""
    if not steps:
        return value, None
    step, further = steps[0], steps[1:]
    if isinstance(value, Mapping):
        varied, rest = _without(value[step], further)
        return varied, {**value, step: rest}
    if isinstance(value, list) and step.isascii() and step.isdigit():
        index = int(step)
        varied, rest = _without(value[index], further)
        return varied, [*value[:index], rest, *value[index + 1 :]]
    raise KeyError(step)


def _digest(value: Any) -> str:
    # Of the JSON, in which 1, 1.0 and true are different, as they are for the server.
    return f"sha256:{sha256(_encoder.encode(value)).hexdigest()}"


def _is_plain(text: str) -> bool:
    """Return True if a path is literal: nothing in it leads up or elsewhere when it is resolved."""
    lowered = text.lower()
    odd = any(each in lowered for each in ("\\", "\0", "%2e", "%2f", "%5c", "%00"))
    return not odd and not any(segment in (".", "..") for segment in text.split("/"))


def _fits_glob(value: str, pattern: str) -> bool:
    """Match segment by segment; ``**`` matches any number of segments, the other wildcards stay within one."""
    if not _is_plain(value):
        return False
    segments, wanted = value.split("/"), pattern.split("/")
    at = step = 0
    star, resume = -1, 0
    while at < len(segments):
        if step < len(wanted) and wanted[step] == "**":
            star, resume = step, at
            step += 1
        elif step < len(wanted) and fnmatchcase(segments[at], wanted[step]):
            at, step = at + 1, step + 1
        elif star >= 0:
            # The last ** matches one segment more.
            resume += 1
            at, step = resume, star + 1
        else:
            return False
    return all(each == "**" for each in wanted[step:])
