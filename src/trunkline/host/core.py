"""The core of a host: servers, catalog, authorization and routing, without any user interface.

The Python API (``host``) and the gateway are both built on it. Each operation names its caller by a ``Requester``, and
goes through the ``Authorizer`` and the ``Router``, and through nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.client.notices import KINDS
from trunkline.errors import InvalidParams, PolicyDenied, ServerUnavailable
from trunkline.host.audit.trail import AuditTrail
from trunkline.host.catalog.catalog import Catalog, build, differences
from trunkline.host.catalog.items import Item
from trunkline.host.catalog.keeping import KeptCatalogs
from trunkline.host.catalog.names import DEFAULT_NAMING, Naming
from trunkline.host.desks import question_act
from trunkline.host.entries import ServerEntry
from trunkline.host.events import CatalogChanged, Events, Inspected
from trunkline.host.folders import state_folder
from trunkline.host.judgement.approval import ConsentedBy
from trunkline.host.judgement.consent import Consent, Face
from trunkline.host.judgement.first_lists import grantable_tools
from trunkline.host.judgement.judging import Case, Judge
from trunkline.host.judgement.refusals import NO_ONE, Unasked
from trunkline.host.passing.forwarding import Errand, Forwarder
from trunkline.host.passing.fronts import Front
from trunkline.host.passing.loops import leads_back
from trunkline.host.passing.running import Parking
from trunkline.host.passing.views import Views
from trunkline.host.pins.inspecting import Inspector
from trunkline.host.policy.acts import Act, ActKind
from trunkline.host.policy.policy import Policy
from trunkline.host.roots import Roots
from trunkline.host.secrecy.book import SecretBook
from trunkline.host.session import HostSession
from trunkline.host.supervision.supervisor import Supervisor
from trunkline.host.supervision.upstream import Upstream
from trunkline.protocol.caller import supports
from trunkline.protocol.limits import Limits
from trunkline.protocol.shaping import with_object

__all__ = ["LIST_SECONDS", "Asker", "HostCore"]

log = logging.getLogger("trunkline.host")

#: How long the first list waits for a starting server, unless configured.
LIST_SECONDS = 10.0
_SWEEP_SECONDS = 5.0
_MOST_PARKED = 1000
_LISTS = ("tools", "prompts", "resources")


class Asker(Struct, frozen=True, kw_only=True):
    """The caller of an operation, and the channel for questions back to it."""

    session: HostSession
    front: Front
    policy: Policy
    #: Prompts for approval; None if there is no one to ask.
    face: Face | None = None
    caller: str = "user"
    #: The gateways the request came through.
    via: tuple[str, ...] = ()
    #: Who approved the request before it arrived, and why no one can be prompted if there is no prompter.
    consented_by: ConsentedBy | None = None
    unasked: Unasked = NO_ONE
    #: The gateway tool (``call_tool``) through which a tool is called, if the approval was for that name only.
    by_proxy: str | None = None
    #: Server requests that no rule allows are refused instead of forwarded to the caller.
    strict: bool = False
    #: Which items the caller is served at all; None for all.
    serves: Callable[[Item], bool] | None = None


class HostCore:
    """Supervised servers, their catalog, and the one way to use it."""

    def __init__(
        self,
        *,
        consent: Consent,
        audit: AuditTrail | None,
        supervisor: Callable[[HostCore], Supervisor],
        events: Events,
        folder: Path,
        naming: Naming = DEFAULT_NAMING,
        limits: Limits | None = None,
        inspector: Inspector | None = None,
        secrets: SecretBook | None = None,
        on_catalog: Callable[[Catalog], None] | None = None,
        list_seconds: float = LIST_SECONDS,
    ) -> None:
        """Assemble the parts; nothing runs before ``start``.

        ``on_catalog`` is called with each catalog before it is used; ``list_seconds`` is how long the first list waits
        for a starting server.
        """
        limits = limits or Limits()
        #: Identifies this host to other gateways, so that none forwards a request to itself.
        self.id = os.urandom(8).hex()
        self.events = events
        #: The folder of the host's files.
        self.folder = folder
        self.limits = limits
        self.audit = audit
        self.parking = Parking(most=_MOST_PARKED, seconds=limits.state_seconds)
        #: Secrets that must not occur in anything shown or stored.
        self.secrets = SecretBook() if secrets is None else secrets
        self.judge = Judge(consent=consent, audit=audit, events=events, secrets=self.secrets)
        self.roots = Roots()
        self.forwarder = Forwarder(name=self.id, parking=self.parking, rounds=limits.rounds, roots=self.roots)
        self.supervisor = supervisor(self)
        self.catalog: Catalog = build({}, {}, naming=naming, counter=0)
        #: The catalog before inspection.
        self._whole = self.catalog
        self.sessions: set[HostSession] = set()
        #: What each session sees, including what its dedicated connections list.
        self.views = Views(
            forwarder=self.forwarder,
            sessions=lambda: self.sessions,
            upstreams=lambda: self.supervisor.upstreams,
            changed=self._view_changed,
            updated=self._resource_updated,
            list_seconds=list_seconds,
            cache=KeptCatalogs(folder / "extras"),
            holds_secret=self.secrets.holds,
        )
        self._naming = naming
        #: Checks a catalog before it is used, and removes what must not be served.
        self._inspector = inspector
        self._on_catalog = on_catalog
        self._followers: list[Callable[[tuple[str, ...]], None]] = []
        self._resource_followers: list[Callable[[str, str], None]] = []
        #: The kinds of lists that changed for some session, even if the catalog as a whole did not.
        self._differing: set[str] = set()
        self._rebuilding = False
        self._list_seconds = list_seconds
        self._house: asyncio.Task[None] | None = None
        self._stopped = False

    # --- lifecycle ---------------------------------------------------------------------------------------------------

    async def start(self, entries: Mapping[str, ServerEntry]) -> None:
        """Start the servers that may run, without waiting for them."""
        self._house = asyncio.get_running_loop().create_task(self._keep_house())
        await self.apply(entries)

    async def apply(self, entries: Mapping[str, ServerEntry]) -> Any:
        """Apply a new set of servers; those that did not change are not touched."""
        before = list(self.supervisor.upstreams.values())
        changes = await self.supervisor.apply(entries)
        for upstream in before:
            if self.supervisor.upstreams.get(upstream.entry.name) is not upstream:
                self.forwarder.forget(upstream)
                self.views.forget(upstream)
        await self._sweep()
        self._rebuild()
        return changes

    async def aclose(self) -> None:
        """Close sessions, servers and the audit trail."""
        self._stopped = True
        house, self._house = self._house, None
        if house is not None:
            house.cancel()
            await asyncio.wait([house])
        self.parking.close()
        await self.views.aclose()
        await asyncio.gather(*(session.aclose() for session in self.sessions))
        await self.supervisor.aclose()
        self.events.end()
        if self.audit is not None:
            self.audit.close()

    def open_session(self, session: HostSession) -> HostSession:
        """Register a session; idle connections of it are closed from now on."""
        self.sessions.add(session)
        session.lanes.house = self.views
        return session

    async def close_session(self, session: HostSession) -> None:
        """Close a session."""
        self.sessions.discard(session)
        await session.aclose()

    async def abandon_session(self, session: HostSession) -> None:
        """Close the session of a client that is gone, except for calls that wait for it to return with an answer."""
        session.lanes.abandoned = True
        await session.lanes.sweep(None, lambda upstream: True)
        if not session.lanes:
            await self.close_session(session)

    async def _keep_house(self) -> None:
        while True:
            idle = (each.entry.settings.dedicated_idle for each in self.supervisor.upstreams.values())
            await asyncio.sleep(min(_SWEEP_SECONDS, *idle, _SWEEP_SECONDS))
            try:
                await self._sweep()
                if self._inspector is not None and self._inspector.outdated:
                    self._rebuild()
                if self.audit is not None:
                    await asyncio.to_thread(self.audit.sync)
            except Exception:
                log.exception("housekeeping failed")

    async def _sweep(self) -> None:
        upstreams = self.supervisor.upstreams

        def keeps(upstream: Upstream) -> bool:
            return upstreams.get(upstream.entry.name) is upstream

        for session in tuple(self.sessions):
            await session.lanes.sweep(None, keeps)
            if session.lanes.abandoned and not session.lanes:
                await self.close_session(session)

    # --- the catalog -------------------------------------------------------------------------------------------------

    def follow_catalog(self, follower: Callable[[tuple[str, ...]], None]) -> Callable[[], None]:
        """Call a function with the kinds of lists that changed; return a function that ends this."""
        self._followers.append(follower)
        return lambda: self._followers.remove(follower) if follower in self._followers else None

    def follow_resources(self, follower: Callable[[str, str], None]) -> Callable[[], None]:
        """Call a function with server and URI of each unsolicited resource update; return a function that ends this."""
        self._resource_followers.append(follower)
        return lambda: self._resource_followers.remove(follower) if follower in self._resource_followers else None

    def rules_changed(self) -> None:
        """Notify the followers of the catalog: other parts of it may be visible now."""
        for follower in tuple(self._followers):
            follower(_LISTS)

    def offered(self, upstream: Upstream) -> None:
        """Called when the offering of a server changed; the catalog is rebuilt in the next loop iteration."""
        self._rebuild_soon()

    def _view_changed(self, kinds: Collection[str]) -> None:
        """Called when a dedicated connection of a session lists something else."""
        self._differing.update(kinds)
        self._rebuild_soon()

    def _rebuild_soon(self) -> None:
        if not self._rebuilding and not self._stopped:
            self._rebuilding = True
            asyncio.get_running_loop().call_soon(self._rebuild_if_due)

    async def first_lists(self, servers: Collection[str] | None = None, *, fresh: bool = False) -> None:
        """Wait, for a bounded time, until the catalog has the servers that are starting for the first time.

        ``fresh``: also wait for starting servers whose cached list is shown meanwhile, for a name that it lacks.
        """
        await self.supervisor.listed(self._list_seconds, servers, fresh=fresh)
        self._rebuild_if_due()

    def _rebuild_if_due(self) -> None:
        if self._rebuilding:
            self._rebuild()

    def _rebuild(self) -> None:
        self._rebuilding = False
        upstreams = self.supervisor.upstreams
        offerings = {
            name: offering
            for name, each in upstreams.items()
            if (offering := self.views.offering(each)) is not None and not leads_back(self.id, offering)
        }
        settings = {name: each.entry.settings for name, each in upstreams.items()}
        before = self.catalog
        after = build(offerings, settings, naming=self._naming, counter=before.counter + 1, before=self._whole)
        self._whole = after
        if self._inspector is not None:
            after = self._inspector(after)
        if self._on_catalog is not None:
            self._on_catalog(after)
        changed, self._differing = {*differences(before, after), *self._differing}, set()
        kinds = tuple(kind for kind in _LISTS if kind in changed)
        self.catalog = after
        if kinds:
            self.events.tell(CatalogChanged(kinds, after.counter))
            for follower in tuple(self._followers):
                follower(kinds)

    @property
    def inspected(self) -> tuple[Inspected, ...]:
        """The definitions of the current catalog that changed, were flagged or are hidden."""
        return () if self._inspector is None else self._inspector.lasting

    def upstream(self, name: str) -> Upstream:
        """Return a server by name.

        Raises:
            ServerUnavailable: there is no server of that name.
        """
        found = self.supervisor.upstreams.get(name)
        if found is None:
            raise ServerUnavailable(f"There is no server {name!r}")
        return found

    def notified(self, name: str, method: str, params: Mapping[str, Any]) -> None:
        """Called with each notification of a shared connection."""
        upstream, kind = self.supervisor.upstreams.get(name), KINDS.get(method)
        if upstream is None:
            return
        if kind == "resource":
            if isinstance(params.get("uri"), str):
                self._resource_updated(upstream, params["uri"])
        elif kind is not None:
            # Handled even if the server did not declare ``listChanged``.
            upstream.changed({kind})
        elif method == "notifications/message":
            try:
                self._logged(upstream, msgspec.convert(params, t.LoggingMessageNotificationParams))
            except msgspec.ValidationError as error:
                log.debug("a log message of %s cannot be read: %s", name, error)

    def _resource_updated(self, upstream: Upstream, uri: str) -> None:
        """Forward a resource update of a server without subscriptions; those of other servers come by subscription."""
        client = upstream.client
        if client is None or not supports(client.server_capabilities, "resources.subscribe"):
            for follower in tuple(self._resource_followers):
                follower(upstream.entry.name, uri)

    def _logged(self, upstream: Upstream, message: t.LoggingMessageNotificationParams) -> None:
        """Forward a log message to the client whose call it belongs to; one without a call, to the only client."""
        if self.forwarder.logged(upstream, message):
            return
        clients = [session.lanes.on_log for session in self.sessions if session.lanes.on_log is not None]
        if len(clients) == 1:
            clients[0](message)

    # --- roots -------------------------------------------------------------------------------------------------------

    async def add_root(self, server: str, root: object) -> None:
        """Add a root for a server; a handshake server is notified at once."""
        upstream = self.upstream(server)
        if self.roots.add(server, root):
            await upstream.tell_roots_changed()

    async def remove_root(self, server: str, root: object) -> None:
        """Remove a root of a server."""
        upstream = self.upstream(server)
        if self.roots.remove(upstream.entry, root):
            await upstream.tell_roots_changed()

    # --- operations --------------------------------------------------------------------------------------------------

    async def call_tool(self, item: Item, arguments: Mapping[str, Any], asker: Asker) -> t.CallToolResult:
        """Call a tool of a server."""

        def params(judged: Mapping[str, Any]) -> Any:
            return t.CallToolRequestParams(name=item.name, arguments=Raw(msgspec.json.encode(judged)))

        result: t.CallToolResult = await self._perform(
            "tool", item.server, item.name, arguments, item, asker, method="tools/call", params=params
        )
        # One shape for every caller, however the server's era and library represent a value that is not an object.
        shaped: t.CallToolResult = with_object(result, (item.wraps and not result.is_error) or None)
        return shaped

    async def get_prompt(self, item: Item, arguments: Mapping[str, str], asker: Asker) -> t.GetPromptResult:
        """Render a prompt of a server."""

        def params(judged: Mapping[str, Any]) -> Any:
            return t.GetPromptRequestParams(name=item.name, arguments=dict(judged))

        result: t.GetPromptResult = await self._perform(
            "prompt", item.server, item.name, arguments, item, asker, method="prompts/get", params=params
        )
        return result

    async def read_resource(self, server: str, uri: str, item: Item | None, asker: Asker) -> t.ReadResourceResult:
        """Read a resource of a server."""

        def params(judged: Mapping[str, Any]) -> Any:
            return t.ReadResourceRequestParams(uri=uri)

        result: t.ReadResourceResult = await self._perform(
            "resource", server, uri, {"uri": uri}, item, asker, method="resources/read", params=params
        )
        return result

    async def complete(self, server: str, params: t.CompleteRequestParams, asker: Asker) -> t.CompleteResult:
        """Complete an argument; allowed to every caller that may use the prompt or resource.

        Raises:
            PolicyDenied: the prompt or resource may not be used at all.
        """
        kind: ActKind = "prompt" if isinstance(params.ref, t.PromptReference) else "resource"
        name = params.ref.name if isinstance(params.ref, t.PromptReference) else params.ref.uri
        act = Act(kind=kind, server=server, name=name, caller=asker.caller, principal=asker.session.subject)
        if not asker.policy.sees(replace(act, profile=asker.session.profile)):
            raise PolicyDenied(f"the policy does not allow {server}/{name}")
        errand = self._errand(self.upstream(server), "completion/complete", params, asker)
        try:
            result, _ = await self.forwarder.send(errand)
        except Exception as error:
            self.secrets.clean(error)
            raise
        found: t.CompleteResult = result
        return found

    async def _perform(
        self,
        kind: ActKind,
        server: str,
        name: str,
        arguments: Mapping[str, Any],
        item: Item | None,
        asker: Asker,
        *,
        method: str,
        params: Callable[[Mapping[str, Any]], Any],
    ) -> Any:
        upstream = self.upstream(server)
        if item is not None and not upstream.running:
            item = await self._confirmed(upstream, item)

        async def work(judged: Mapping[str, Any]) -> tuple[Any, Raw]:
            return await self.forwarder.send(self._errand(upstream, method, params(judged), asker))

        case = Case(
            kind=kind,
            entry=upstream.entry,
            name=name,
            arguments=arguments,
            item=item,
            session=asker.session,
            front=asker.front,
            policy=asker.policy,
            face=asker.face,
            caller=asker.caller,
            work=work,
            consented_by=asker.consented_by,
            unasked=asker.unasked,
            by_proxy=asker.by_proxy,
            by_command=upstream.entry.target is None and self.folder == state_folder(),
            tools=lambda: grantable_tools(self.catalog, server, lambda each: _is_usable(each, asker)),
        )
        try:
            result = await self.judge.perform(case)
        except Exception as error:
            self.secrets.clean(error)
            raise
        # A failure is shown, logged and forwarded, and a failing server may repeat secrets that it was given.
        failed = isinstance(result, t.CallToolResult) and result.is_error
        if failed:
            return self.secrets.clean_result(result)
        if asker.caller != "gateway":
            # A gateway's client has its own model and its own context.
            asker.session.results.keep(server, name, result)
        return result

    async def _confirmed(self, upstream: Upstream, item: Item) -> Item:
        """Start a server that is not running, and return the item as it defines it now.

        A cached catalog may be out of date; what is authorized must be what will be called.

        Raises:
            ServerUnavailable: the server does not start.
            InvalidParams: the server no longer offers the item.
        """
        if upstream.entry.settings.per_user:
            # Each principal connects with its own credentials; the host itself may have none.
            return item
        await upstream.reach()
        self._rebuild_if_due()
        catalog = self.catalog
        found = catalog.of(item.kind).get(item.id)
        if found is None:
            gone = (drop for drop in (*catalog.dropped, *catalog.hidden) if drop.server == item.server)
            why = next((drop.reason for drop in gone if (drop.kind, drop.name) == (item.kind, item.name)), None)
            raise InvalidParams(f"The {item.kind} {item.id} cannot be used: {why or 'the server no longer offers it'}")
        return found

    def _errand(self, upstream: Upstream, method: str, params: Any, asker: Asker) -> Errand:
        async def review(question: str, asked: Any) -> Raw | None:
            return self._review(upstream.entry, question, asked, asker)

        return Errand(
            upstream=upstream,
            method=method,
            params=params,
            session=asker.session,
            front=asker.front,
            review=review,
            via=asker.via,
        )

    def _review(self, entry: ServerEntry, method: str, params: Any, asker: Asker) -> Raw | None:
        """Return the host's own answer to a server request; None to forward it to the caller.

        Raises:
            PolicyDenied: the policy denies it, and the protocol has no answer for that.
        """
        roots = self.roots.of(entry)
        if method == "roots/list" and roots is not None:
            return Raw(msgspec.json.encode(t.ListRootsResult(roots=roots)))
        act = question_act(entry, method, params, asker.session)
        decision = asker.policy.decide(act, now=time.time())
        self.judge.note_question(act, decision)
        if decision.effect == "allow" or (decision.effect == "ask" and not asker.strict):
            return None
        if act.kind == "elicitation":
            return Raw(b'{"action":"decline"}')
        raise PolicyDenied(f"{entry.name} asks for {method}, which is not allowed ({decision.rule}).")


def _is_usable(item: Item, asker: Asker) -> bool:
    """Return True if the caller may see a tool; an approval for a whole server covers only such tools."""
    act = Act(
        kind="tool",
        server=item.server,
        name=item.name,
        annotations=item.annotations,
        pin=item.pin,
        trusted=item.trusted,
        caller=asker.caller,
        principal=asker.session.subject,
        profile=asker.session.profile,
    )
    return (asker.serves is None or asker.serves(item)) and asker.policy.sees(act)
