"""What the user allowed earlier, so that the same is not asked again: for a session, for arguments like these, always.

A grant is bound to the server, the name and the pin of what was shown when it was given, and to the principal and the
profile it was given under. It only ever answers a question: what a policy denies it does not allow. Grants of a session
live in memory with the session; the others in one file, which is read again whenever it changed, so that a revocation
holds at once in every process. A file that cannot be read grants nothing and is not written over.

A grant for a whole server is the set of its tools, each with its pin, at the moment of the answer. Tools that are added
or changed later are not in it. A grant may also wait for a server that was never listed: it becomes the set of the
read-only tools in the first list, and allows nothing before.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.host.policy.acts import Act, ActKind
from trunkline.host.policy.pointers import PointerError, parse_pointer
from trunkline.host.secrecy.redaction import redact
from trunkline.host.state_files import Busy, locked, read_private, write_private

__all__ = [
    "GRANT_DAYS",
    "MOST_TOOLS",
    "Grant",
    "GrantBook",
    "GrantScope",
    "Likeness",
    "ServerTool",
    "SessionGrants",
    "alike",
    "allow_command",
    "covers",
    "is_same",
    "make_grant",
    "make_server_grant",
    "make_waiting_grant",
]

GrantScope: TypeAlias = Literal["session", "alike", "always"]

#: How long an answer of "always" holds, in days.
GRANT_DAYS = 30
#: Tools in one grant. A server with more tools needs a rule, or is asked about tool by tool.
MOST_TOOLS = 2000

_LIFETIME = GRANT_DAYS * 24 * 3600.0
_FORMAT = 1
_encoder = msgspec.json.Encoder(order="sorted")


class Likeness(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Which arguments are like those that were shown: all the same, but for one that may differ."""

    #: The digest of all arguments but the one that may differ; they themselves may be secret.
    rest: str
    #: A JSON pointer to the one that may differ; None if none may.
    vary: str | None = None
    #: What it must look like: a glob over its segments between ``/``, ``**`` for any number of them; None: anything.
    like: str | None = None
    #: The arguments as they were, redacted, for people to read.
    shown: Any = None

    def fits(self, arguments: Mapping[str, Any] | None) -> bool:
        """Tell whether other arguments are like these."""
        taken = _take(arguments or {}, self.vary)
        if taken is None:
            return False
        varied, rest = taken
        return rest == self.rest and (self.like is None or (isinstance(varied, str) and _fits_glob(varied, self.like)))


class ServerTool(Struct, frozen=True):
    """A tool that a server offers at this moment, as far as a grant for the whole server needs to know it."""

    name: str
    pin: str
    #: The server says that the tool only reads (``readOnlyHint``).
    read_only: bool = False


class Grant(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Something that was allowed in advance."""

    id: str
    scope: GrantScope
    kind: ActKind
    server: str
    #: The one tool, prompt or resource; empty if the grant is for several tools.
    name: str = ""
    pin: str | None = None
    #: For several tools of the server: the pin of each, by name.
    tools: dict[str, str] | None = None
    #: The several tools are those that only read, by the server's own word.
    read_only: bool = False
    #: It waits for the first list of the server that is reached in this way (``pins.book.reach_of``).
    awaits: str | None = None
    principal: str | None = None
    profile: str | None = None
    #: The session it is for, if it is for one.
    session: str | None = None
    #: The arguments it is for; None for any.
    match: Likeness | None = None
    #: It was given knowing that something untrusted had come into the session.
    tainted: bool = False
    #: It was given knowing what the scan found in the definition, or how the definition changed.
    flagged: bool = False
    created: float = 0.0
    #: Seconds since the epoch.
    expires: float | None = None
    #: How often it may still be used; None: any number of times.
    uses: int | None = None


class _Kept(Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    format: int
    grants: list[Grant]


def alike(arguments: Mapping[str, Any] | None, *, vary: str | None = None, like: str | None = None) -> Likeness:
    """Say which arguments are like these: equal in all, but for the one that the pointer ``vary`` leads to.

    Raises:
        ValueError: the pointer leads nowhere, or the pattern could never fit.
    """
    taken = _take(arguments or {}, vary)
    if taken is None:
        raise ValueError(f"there is no argument at {vary}")
    if like is not None and (vary is None or not _is_plain(like)):
        raise ValueError(f"{like!r} fits nothing: give a pattern without . and .. between the slashes")
    return Likeness(rest=taken[1], vary=vary, like=like, shown=redact(dict(arguments or {})))


def covers(grant: Grant, act: Act, now: float) -> bool:
    """Tell whether a grant allows an act."""
    return (
        (grant.kind, grant.server, grant.principal, grant.profile) == (act.kind, act.server, act.principal, act.profile)
        and _is_for(grant, act)
        and (grant.session is None or grant.session == act.session)
        and _lasts(grant, now)
        and (not act.tainted or _holds_tainted(grant, act))
        and (grant.flagged or not (act.flagged or act.changed))
        and (grant.match is None or (act.arguments is not None and grant.match.fits(act.arguments)))
    )


def allow_command(act: Act, *, by_command: bool = True) -> str | None:
    """Return the command that allows an act from now on without asking; None if no grant made by a command can.

    ``by_command`` is False where the command line does not reach the host's grants: servers that are objects of a
    program, and hosts that keep their files elsewhere.
    """
    target = shlex.quote(f"{act.server}/{act.name}")
    if act.flagged or act.changed:
        return f"trunkline pins accept {target}"
    if not by_command or act.kind != "tool" or act.pin is None or act.tainted:
        return None
    words = ["trunkline grants allow", target]
    words += [] if act.profile is None else [f"--profile {shlex.quote(act.profile)}"]
    words += [] if act.principal is None else [f"--principal {shlex.quote(act.principal)}"]
    return " ".join(words)


def is_same(one: Grant, other: Grant) -> bool:
    """Return True if two grants allow the same; when they were made and when they end does not count."""
    plain = [msgspec.structs.replace(grant, id="", created=0.0, expires=None) for grant in (one, other)]
    return plain[0] == plain[1]


def _is_for(grant: Grant, act: Act) -> bool:
    """Return True if the grant is for the definition that the act uses."""
    if grant.awaits is not None:
        return False
    if grant.tools is None:
        return (grant.name, grant.pin) == (act.name, act.pin)
    return act.pin is not None and grant.tools.get(act.name) == act.pin


def _holds_tainted(grant: Grant, act: Act) -> bool:
    """Return True if the grant holds in a tainted session.

    A read-only grant holds for tools with ``openWorldHint: false``, like the default for a trusted server: what
    untrusted text could have read has no way out.
    """
    return grant.tainted or (grant.read_only and act.annotations.open_world is False)


def make_grant(
    act: Act,
    scope: GrantScope,
    *,
    now: float,
    match: Likeness | None = None,
    expires: float | None = None,
    uses: int | None = None,
) -> Grant:
    """Make a grant for an act and those like it; one that outlives its session ends after 30 days if nobody says when.

    Raises:
        ValueError: nothing fixes what was allowed: a tool without a pin, or likeness without arguments.
    """
    if act.kind == "tool" and act.pin is None:
        raise ValueError(f"{act.server}/{act.name} has no pin: what would be allowed is not known")
    if (scope == "alike") is not (match is not None):
        raise ValueError("a grant for arguments like these says which; no other does")
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
    if not 0 < len(pins) <= MOST_TOOLS:
        raise ValueError(f"{act.server} has {len(pins)} such tools; a grant is for 1 to {MOST_TOOLS}")
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


def make_waiting_grant(server: str, awaits: str, *, now: float) -> Grant:
    """Make a grant for the read-only tools in the first list of a server that was never listed; it has no end."""
    return Grant(id=_new_id(), scope="always", kind="tool", server=server, read_only=True, awaits=awaits, created=now)


def _new_id() -> str:
    return os.urandom(6).hex()


class SessionGrants:
    """What was allowed for one session; it ends with the object."""

    def __init__(self) -> None:
        """Start with nothing allowed."""
        self._kept: dict[str, Grant] = {}

    def find(self, act: Act, now: float) -> Grant | None:
        """Find what allows an act."""
        return _first(self._kept.values(), act, now)

    def add(self, grant: Grant) -> None:
        """Allow something."""
        self._kept[grant.id] = grant

    def spend(self, grant: Grant) -> bool:
        """Use a grant once; false if it is used up or revoked."""
        kept = _spent(self._kept, grant.id)
        if kept is None:
            return False
        self._kept[grant.id] = kept
        return True

    def revoke(self, id: str) -> bool:
        """Take a grant back; tells whether there was one."""
        return self._kept.pop(id, None) is not None

    def all(self) -> list[Grant]:
        """List what is allowed."""
        return list(self._kept.values())


class GrantBook:
    """What was allowed beyond a session, in a file."""

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        """Take the file's path; it is made when something is first allowed."""
        self._path = os.path.abspath(os.fspath(path))
        self._clock = clock
        self._mark: tuple[int, int, int] | None = None
        self._known: dict[str, Grant] = {}

    def __repr__(self) -> str:
        """Show where it is."""
        return f"GrantBook({self._path!r})"

    def find(self, act: Act, now: float | None = None) -> Grant | None:
        """Find what allows an act.

        Raises:
            ConfigError: the file cannot be read; nothing is allowed by it.
        """
        return _first(self._current().values(), act, self._clock() if now is None else now)

    def add(self, grant: Grant) -> None:
        """Allow something, for all processes; what is over meanwhile is forgotten.

        Raises:
            ConfigError: the file cannot be read or written.
            ValueError: it is a session's grant, which is not kept.
        """
        if grant.scope == "session":
            raise ValueError("a grant for a session is not kept in a file")
        self._change(lambda kept: {**kept, grant.id: grant})

    def spend(self, grant: Grant) -> bool:
        """Use a grant once; false if it is used up or revoked. Only one that is counted is written.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        if grant.uses is None:
            return grant.id in self._current()
        found: list[Grant] = []

        def change(kept: dict[str, Grant]) -> dict[str, Grant]:
            left = _spent(kept, grant.id)
            if left is None:
                return kept
            found.append(left)
            return {**kept, grant.id: left}

        self._change(change)
        return bool(found)

    def revoke(self, id: str) -> bool:
        """Take a grant back; tells whether there was one.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        before = self._change(lambda kept: {each: grant for each, grant in kept.items() if each != id})
        return id in before

    def revoke_all(self) -> int:
        """Take every grant back; tells how many there were.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        return len(self._change(lambda kept: {}))

    def waiting(self) -> list[Grant]:
        """Return the grants that wait for the first list of their server.

        Raises:
            ConfigError: the file cannot be read.
        """
        return [grant for grant in self._current().values() if grant.awaits is not None]

    def settle(self, waiting: Grant, tools: Iterable[ServerTool]) -> None:
        """Turn a grant that waits into one for the read-only tools of a list; without any it is removed.

        Does nothing if another process did it first, or if the grant was revoked.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        pins = {tool.name: tool.pin for tool in tools if tool.read_only}

        def change(kept: dict[str, Grant]) -> dict[str, Grant]:
            found = kept.get(waiting.id)
            if found is None or found.awaits is None:
                return kept
            if not 0 < len(pins) <= MOST_TOOLS:
                return {id: grant for id, grant in kept.items() if id != waiting.id}
            return {**kept, waiting.id: msgspec.structs.replace(found, tools=pins, awaits=None)}

        self._change(change)

    def all(self) -> list[Grant]:
        """List what is allowed, and not over.

        Raises:
            ConfigError: the file cannot be read.
        """
        now = self._clock()
        return [grant for grant in self._current().values() if _lasts(grant, now)]

    def _current(self) -> dict[str, Grant]:
        """Give what the file says now; it is read only if it changed."""
        try:
            found = os.stat(self._path)
        except OSError:
            # Absent, or hidden by its folder: reading tells which.
            self._mark, self._known = None, _read(self._path)
            return self._known
        mark = (found.st_ino, found.st_size, found.st_mtime_ns)
        if mark != self._mark:
            # Forgotten first: what cannot be read must not leave the old ones standing.
            self._mark, self._known = None, {}
            self._known = _read(self._path)
            self._mark = mark
        return self._known

    def _change(self, change: Callable[[dict[str, Grant]], dict[str, Grant]]) -> dict[str, Grant]:
        """Read, change and write as the only one; give what there was before."""
        try:
            with locked(self._path):
                # Whatever is found here, the next look is a fresh one.
                self._mark = None
                before = _read(self._path)
                now = self._clock()
                after = {id: grant for id, grant in change(before).items() if _lasts(grant, now)}
                if after != before:
                    write_private(self._path, _encode(after.values()))
                return before
        except Busy as error:
            raise ConfigError(f"{self._path}: what was allowed cannot be kept: {error}.") from error
        except OSError as error:
            raise ConfigError(f"{self._path}: what was allowed cannot be kept: {error.strerror}.") from error


def _first(grants: Iterable[Grant], act: Act, now: float) -> Grant | None:
    return next((grant for grant in grants if covers(grant, act, now)), None)


def _lasts(grant: Grant, now: float) -> bool:
    return (grant.expires is None or now < grant.expires) and (grant.uses is None or grant.uses > 0)


def _spent(kept: Mapping[str, Grant], id: str) -> Grant | None:
    """Give a grant with one use less; None if there is none left, or no such grant."""
    grant = kept.get(id)
    if grant is None or grant.uses is None:
        return grant
    return msgspec.structs.replace(grant, uses=grant.uses - 1) if grant.uses > 0 else None


def _read(path: str) -> dict[str, Grant]:
    data = read_private(path, what="what was allowed")
    if data is None:
        return {}
    try:
        kept = msgspec.json.decode(data, type=_Kept)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: nothing is allowed by it, since it cannot be read: {error}. Delete it to be asked anew."
        ) from error
    if kept.format != _FORMAT:
        raise ConfigError(
            f"{path}: nothing is allowed by it: its format is {kept.format}, and this version knows {_FORMAT}."
        )
    return {grant.id: grant for grant in kept.grants}


def _encode(grants: Iterable[Grant]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(_Kept(_FORMAT, list(grants))), indent=2) + b"\n"


# --- arguments like these --------------------------------------------------------------------------------------------


def _take(arguments: Mapping[str, Any], pointer: str | None) -> tuple[Any, str] | None:
    """Give what a pointer leads to, and the digest of all the rest; None if it leads nowhere."""
    if pointer is None:
        return None, _digest(arguments)
    try:
        varied, rest = _without(arguments, parse_pointer(pointer))
    except (KeyError, IndexError, PointerError):
        return None
    return varied, _digest(rest)


def _without(value: Any, steps: tuple[str, ...]) -> tuple[Any, Any]:
    """Give what the steps lead to, and a copy of the value with null in its place."""
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
    # By their JSON, in which 1, 1.0 and true are different, as they are to whoever receives them.
    return f"sha256:{sha256(_encoder.encode(value)).hexdigest()}"


def _is_plain(text: str) -> bool:
    """Tell whether a path means what it says: nothing in it leads up, back or elsewhere when it is resolved."""
    lowered = text.lower()
    odd = any(each in lowered for each in ("\\", "\0", "%2e", "%2f", "%5c", "%00"))
    return not odd and not any(segment in (".", "..") for segment in text.split("/"))


def _fits_glob(value: str, pattern: str) -> bool:
    """Match segment by segment; ``**`` stands for any number of segments, the other signs for none of them."""
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
            # The last ** takes one segment more.
            resume += 1
            at, step = resume, star + 1
        else:
            return False
    return all(each == "**" for each in wanted[step:])
