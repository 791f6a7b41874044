"""Handlers that answer servers' requests on the host's side: by a person, a model or a callback.

A handler takes the place of the gateway's client: ``LocalChannel`` calls it when a program, a chat or the command line
uses the host. Requests that the policy denies do not reach it.

``ServerRoots`` has the roots of each server: those of its entry, plus and minus those added and removed while the host
runs. Roots are set per server, so that each learns only of the folders it needs. A server without roots in its entry,
and without added ones, gets those of the caller. The sandbox opens the same list (``paths``). Servers are not notified
here; that is up to the caller that changes the list.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Raw, Struct

import trunkline.types as t
from trunkline.client.request_handlers import RequestHandlers, to_root
from trunkline.errors import ConfigError, MethodNotFound
from trunkline.host.audit.trail import AuditTrail, note_entry
from trunkline.host.authorization.policy.decisions import Act
from trunkline.host.config.model import ServerEntry
from trunkline.host.events import ConsentAsked, EventBus
from trunkline.protocol.apps import APP_SETTINGS
from trunkline.protocol.extensions import APPS

__all__ = [
    "CallbackRequestHandler",
    "HostRequestHandler",
    "OnReviewed",
    "ReviewOutcome",
    "ServerRequestHandler",
    "ServerRoots",
    "UserNotice",
    "review_recorder",
    "root_path",
]

if TYPE_CHECKING:
    from trunkline.host.server_requests.elicitation import ElicitationHandler
    from trunkline.host.server_requests.sampling.handler import SamplingHandler
    from trunkline.host.session import HostSession


#: Called with a message for the user: what was refused or failed, and what to do about it.
UserNotice: TypeAlias = Callable[[str], object]


class ServerRequestHandler(Protocol):
    """Answers requests of servers."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The client capabilities that this handler provides."""

    async def answer(self, entry: ServerEntry, method: str, params: Any, session: HostSession) -> Raw:
        """Answer a request of a server with an encoded result.

        Raises:
            RequestFailed: the request is refused.
        """


class CallbackRequestHandler:
    """Answers with callbacks of the user, which do not learn which server asks."""

    def __init__(self, answers: RequestHandlers) -> None:
        """Set the callbacks, in the form that a client has them."""
        self._answers = answers

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the callbacks provide."""
        declared = self._answers.capabilities
        return {name: declared[name] for name in ("sampling", "elicitation", "roots") if name in declared}

    async def answer(self, entry: ServerEntry, method: str, params: Any, session: HostSession) -> Raw:
        """Call the callback for a request."""
        return Raw(msgspec.json.encode(await self._answers.answer(method, params)))


class HostRequestHandler:
    """Answers sampling with a reviewed model and elicitation with forms and pages; the rest with another handler."""

    def __init__(
        self,
        *,
        sampling: SamplingHandler | None = None,
        elicitation: ElicitationHandler | None = None,
        rest: ServerRequestHandler | None = None,
        apps: bool = False,
    ) -> None:
        """Set the parts; ``rest`` handles requests that no part handles, ``apps`` declares that pages are shown."""
        self._sampling = sampling
        self._elicitation = elicitation
        self._rest = rest
        self._apps = apps

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities of all parts; those of a part override those of ``rest``."""
        declared: dict[str, Any] = {} if self._rest is None else dict(self._rest.capabilities)
        for part in (self._sampling, self._elicitation):
            if part is not None:
                declared |= part.capabilities
        return {**declared, "extensions": {APPS: dict(APP_SETTINGS)}} if self._apps else declared

    async def answer(self, entry: ServerEntry, method: str, params: Any, session: HostSession) -> Raw:
        """Dispatch to the handler for this kind of request."""
        kind = method.partition("/")[0]
        if kind == "sampling" and self._sampling is not None and self._sampling.capabilities:
            return Raw(msgspec.json.encode(await self._sampling.answer(entry, params, session)))
        if kind == "elicitation" and self._elicitation is not None and self._elicitation.capabilities:
            return Raw(msgspec.json.encode(await self._elicitation.answer(entry, params, session)))
        if self._rest is None or kind not in self._rest.capabilities:
            raise MethodNotFound(f"{method} cannot be answered here: it was not declared")
        return await self._rest.answer(entry, method, params, session)

    async def aclose(self) -> None:
        """Close what the parts opened."""
        if self._sampling is not None:
            await self._sampling.aclose()


# --- outcomes --------------------------------------------------------------------------------------------------------


class ReviewOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of a server request: whether it was allowed, by what, and a note."""

    act: Act
    allowed: bool
    #: ``policy``, ``grant:<id>``, ``user``, ``deadline`` or ``budget``.
    by: str
    note: str | None = None


#: Called with the outcome of each request.
OnReviewed: TypeAlias = Callable[[ReviewOutcome], object]


def review_recorder(audit: AuditTrail | None, events: EventBus | None) -> OnReviewed:
    """Return a callback that records outcomes in the audit trail and publishes them as events, without the content."""

    def tell(reviewed: ReviewOutcome) -> None:
        act = reviewed.act
        if audit is not None:
            outcome = "ok" if reviewed.allowed else "denied"
            audit.record(note_entry(act, by=reviewed.by, outcome=outcome, note=reviewed.note))
        if events is not None:
            events.publish(ConsentAsked(act.server, act.name, reviewed.allowed, reviewed.by))

    return tell


def root_path(root: object) -> str:
    """Return the absolute path of a root that is given as a path, a ``file:`` URI or a ``Root``.

    Raises:
        ConfigError: it is not a local folder or file.
    """
    text = root.uri if isinstance(root, t.Root) else os.fspath(root) if isinstance(root, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise ConfigError(f"{root!r} is not a root: give a path or a file: URI.")
    if text.startswith("file:"):
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query or parts.fragment:
            raise ConfigError(f"{text!r} is not a root: it names no local folder.")
        text = unquote(parts.path)
    elif "://" in text:
        raise ConfigError(f"{text!r} is not a root: give a path or a file: URI.")
    # Percent-decoding may have produced one.
    if "\0" in text:
        raise ConfigError("A root has a zero byte in it.")
    return os.path.abspath(os.path.expanduser(text))


class ServerRoots:
    """The roots of all servers of a host."""

    def __init__(self) -> None:
        """Start with the roots of the entries."""
        #: The roots that were added while the host runs, by server.
        self.added: dict[str, list[str]] = {}
        self._removed: dict[str, set[str]] = {}

    def of(self, entry: ServerEntry) -> list[t.Root] | None:
        """Return the roots of a server; None for those of the caller."""
        found = self._texts(entry)
        return None if found is None else [to_root(each) for each in found]

    def paths(self, entry: ServerEntry) -> tuple[str, ...]:
        """Return the roots as absolute paths, for a sandbox; URIs that name no local path are omitted."""
        found = []
        for each in self._texts(entry) or ():
            try:
                found.append(root_path(each))
            except ConfigError:
                continue
        return tuple(found)

    def add(self, server: str, root: object) -> bool:
        """Add a root for a server; return True if it was not there before.

        Raises:
            ConfigError: it is not a local folder or file.
        """
        path = root_path(root)
        removed, added = self._removed.get(server, set()), self.added.setdefault(server, [])
        news = path in removed or path not in added
        removed.discard(path)
        if path not in added:
            added.append(path)
        return news

    def remove(self, entry: ServerEntry, root: object) -> bool:
        """Remove a root of a server; return True if it was there.

        Raises:
            ConfigError: it is not a local folder or file.
        """
        path = root_path(root)
        known = path in self.paths(entry)
        if known:
            self.added[entry.name] = [each for each in self.added.get(entry.name, ()) if each != path]
            self._removed.setdefault(entry.name, set()).add(path)
        return known

    def _texts(self, entry: ServerEntry) -> list[str] | None:
        configured, added = entry.settings.roots, self.added.get(entry.name)
        if configured is None and added is None:
            return None
        removed: Collection[str] = self._removed.get(entry.name, ())
        return [
            *(each for each in configured or () if _path_or_text(each) not in removed),
            *_added_only(configured or (), added or ()),
        ]


def _path_or_text(root: str) -> str:
    try:
        return root_path(root)
    except ConfigError:
        return root


def _added_only(configured: tuple[str, ...], added: list[str] | tuple[str, ...]) -> list[str]:
    """Return the added roots that are not configured anyway."""
    known = {_path_or_text(each) for each in configured}
    return [each for each in added if each not in known]
