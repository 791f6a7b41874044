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
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

import trunkline.types as t
from trunkline.client.notifications import CHANGE_KINDS
from trunkline.client.request_handlers import ExtensionResult
from trunkline.errors import InvalidParams, PolicyDenied, ServerUnavailable, resource_errors
from trunkline.host.audit.trail import AuditTrail
from trunkline.host.authorization.approval import Approver
from trunkline.host.authorization.authorizer import (
    ActSubject,
    Authorizer,
    CallRequest,
    PerformCall,
    act_for_server_request,
    grantable_tools,
    may_use,
)
from trunkline.host.authorization.policy.decisions import ActKind
from trunkline.host.config.model import ServerEntry
from trunkline.host.events import CatalogChanged, DefinitionInspected, EventBus
from trunkline.host.extension_traffic import ExtensionTraffic
from trunkline.host.integrity.pins.inspector import Inspector
from trunkline.host.requester import Requester
from trunkline.host.secrets.registry import SecretRegistry
from trunkline.host.server_requests.handlers import ServerRoots
from trunkline.host.session import HostSession
from trunkline.host.state_files import state_folder
from trunkline.host.traffic import HostTraffic
from trunkline.host.upstreams.catalog.catalog import (
    Catalog,
    CatalogCache,
    build_catalog,
    changed_lists,
    extensions_changed,
)
from trunkline.host.upstreams.catalog.items import CatalogItem
from trunkline.host.upstreams.catalog.names import DEFAULT_NAMING, NamingScheme
from trunkline.host.upstreams.routing.active_calls import Parking
from trunkline.host.upstreams.routing.channels import leads_back
from trunkline.host.upstreams.routing.router import Router, UpstreamRequest
from trunkline.host.upstreams.routing.session_views import SessionViews
from trunkline.host.upstreams.supervision.supervisor import Supervisor
from trunkline.host.upstreams.supervision.upstream import Upstream
from trunkline.protocol.caller import supports
from trunkline.protocol.downgrade import wrap_structured_content
from trunkline.protocol.extension_definition import Extension
from trunkline.protocol.limits import Limits
from trunkline.protocol.methods import decode_structured_content

if TYPE_CHECKING:
    from trunkline.host.skills import SkillRegistry

__all__ = ["LIST_SECONDS", "HostCore"]

log = logging.getLogger("trunkline.host")

#: How long the first list waits for a starting server, unless configured.
LIST_SECONDS = 4.0
_SWEEP_SECONDS = 5.0  # Idle connections and abandoned sessions are closed this much late at most.
_MOST_PARKED = 1000  # Calls that wait for the next round of their client, each with its upstream call open.
_LISTS = ("tools", "prompts", "resources")


class HostCore:
    """Supervised servers, their catalog, and the one way to use it."""

    #: Extensions of the protocol that every gateway of the host forwards; set before ``start``.
    extensions: tuple[Extension, ...] = ()

    def __init__(
        self,
        *,
        consent: Approver,
        audit: AuditTrail | None,
        supervisor: Callable[[HostCore], Supervisor],
        events: EventBus,
        folder: Path,
        naming: NamingScheme = DEFAULT_NAMING,
        limits: Limits | None = None,
        inspector: Inspector | None = None,
        secrets: SecretRegistry | None = None,
        on_catalog: Callable[[Catalog], None] | None = None,
        list_seconds: float = LIST_SECONDS,
    ) -> None:
        """Assemble the parts; nothing runs before ``start``.

        ``on_catalog`` is called with each catalog before it is used; ``list_seconds`` is how long the first list waits
        for a starting server.
        """
        limits = limits or Limits()
        #: Identifies this host to other gateways, so that none forwards a request to itself.
        self.id: str = os.urandom(8).hex()
        self.events = events
        #: The folder of the host's files.
        self.folder = folder
        # Commands write to the user's own folder: the grants of a host with another folder are not theirs to change.
        self._in_user_folder = folder == state_folder()
        self.limits = limits
        self.audit = audit
        self.parking: Parking = Parking(most=_MOST_PARKED, seconds=limits.state_seconds)
        #: Secrets that must not occur in anything shown or stored.
        self.secrets: SecretRegistry = SecretRegistry() if secrets is None else secrets
        self.authorizer: Authorizer = Authorizer(consent=consent, audit=audit, events=events, secrets=self.secrets)
        self.roots: ServerRoots = ServerRoots()
        self.router: Router = Router(name=self.id, parking=self.parking, rounds=limits.rounds, roots=self.roots)
        self.supervisor: Supervisor = supervisor(self)
        self.catalog: Catalog = build_catalog({}, {}, naming=naming, counter=0)
        #: The catalog before inspection.
        self._whole = self.catalog
        self.sessions: set[HostSession] = set()
        #: What each session sees, including what its dedicated connections list.
        self.views: SessionViews = SessionViews(
            router=self.router,
            sessions=lambda: self.sessions,
            upstreams=lambda: self.supervisor.upstreams,
            changed=self._view_changed,
            updated=self._resource_updated,
            list_seconds=list_seconds,
            cache=CatalogCache(folder / "extras"),
            holds_secret=self.secrets.holds,
        )
        self._naming = naming
        #: Checks a catalog before it is used, and removes what must not be served.
        self.inspector = inspector
        self._on_catalog = on_catalog
        self._followers: list[Callable[[tuple[str, ...]], None]] = []
        self._resource_followers: list[Callable[[str, str], None]] = []
        #: The kinds of lists that changed for some session, even if the catalog as a whole did not.
        self._differing: set[str] = set()
        self._rebuilding = False
        self.list_seconds = list_seconds
        self._housekeeper: asyncio.Task[None] | None = None
        self._stopped = False

    # --- lifecycle ---------------------------------------------------------------------------------------------------

    async def start(self, entries: Mapping[str, ServerEntry]) -> None:
        """Start the servers that may run, without waiting for them."""
        self._housekeeper = asyncio.get_running_loop().create_task(self._housekeeping())
        await self.apply(entries)

    async def apply(self, entries: Mapping[str, ServerEntry]) -> Any:
        """Apply a new set of servers; those that did not change are not touched."""
        before = list(self.supervisor.upstreams.values())
        changes = await self.supervisor.apply(entries)
        for upstream in before:
            if self.supervisor.upstreams.get(upstream.entry.name) is not upstream:
                self.router.forget(upstream)
                self.views.forget(upstream)
        await self._sweep()
        self._rebuild()
        return changes

    async def aclose(self) -> None:
        """Close sessions, servers and the audit trail."""
        self._stopped = True
        housekeeper, self._housekeeper = self._housekeeper, None
        if housekeeper is not None:
            housekeeper.cancel()
            await asyncio.wait([housekeeper])
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
        session.connections.registry = self.views
        session.connections.on_notification = partial(self.extension_traffic.received, session=session)
        return session

    async def close_session(self, session: HostSession) -> None:
        """Close a session."""
        self.sessions.discard(session)
        await session.aclose()

    async def abandon_session(self, session: HostSession) -> None:
        """Close the session of a client that is gone, except for calls that wait for it to return with an answer."""
        session.connections.abandoned = True
        await session.connections.sweep(None, lambda upstream: True)
        if not session.connections:
            await self.close_session(session)

    async def _housekeeping(self) -> None:
        while True:
            idle = (each.entry.settings.dedicated_idle for each in self.supervisor.upstreams.values())
            await asyncio.sleep(min(_SWEEP_SECONDS, *idle, _SWEEP_SECONDS))
            try:
                await self._sweep()
                if self.inspector is not None and self.inspector.outdated:
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
            await session.connections.sweep(None, keeps)
            if session.connections.abandoned and not session.connections:
                await self.close_session(session)

    # --- the catalog -------------------------------------------------------------------------------------------------

    def follow_catalog(self, follower: Callable[[tuple[str, ...]], None]) -> Callable[[], None]:
        """Call a function with the kinds of lists that changed; return a function that ends this.

        There are none if only the extensions of a server changed.
        """
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

    def offering_changed(self, upstream: Upstream) -> None:
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

    async def first_lists(self, servers: Collection[str] | None = None) -> None:
        """Wait, for a bounded time, until the catalog has the servers that are starting for the first time."""
        await self.supervisor.listed(self.list_seconds, servers)
        self._rebuild_if_due()

    async def find_late(self, server: str | None, servers: Collection[str] | None = None) -> None:
        """Wait for starting servers, with cached lists or not, for a name; for its ``server`` as a call does."""
        if server is not None and (upstream := self.supervisor.upstreams.get(server)) is not None:
            await upstream.wait_for_start()
        await self.supervisor.listed(self.list_seconds, servers, fresh=True)
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
        after = build_catalog(offerings, settings, naming=self._naming, counter=before.counter + 1, before=self._whole)
        self._whole = after
        if self.inspector is not None:
            after = self.inspector(after)
        if self._on_catalog is not None:
            self._on_catalog(after)
        changed, self._differing = {*changed_lists(before, after), *self._differing}, set()
        kinds = tuple(kind for kind in _LISTS if kind in changed)
        self.catalog = after
        if kinds:
            self.events.publish(CatalogChanged(kinds, after.counter))
        if kinds or extensions_changed(before, after):
            for follower in tuple(self._followers):
                follower(kinds)

    def review_definitions(self) -> None:
        """Review the catalog again, after the user accepted or blocked a changed definition."""
        self._rebuild()

    @cached_property
    def extension_traffic(self) -> ExtensionTraffic:
        """Methods and notifications of extensions."""
        return ExtensionTraffic(self)

    @cached_property
    def traffic(self) -> HostTraffic:
        """The messages of all connections to servers, for observers."""
        return HostTraffic()

    @cached_property
    def skills(self) -> SkillRegistry:
        """The skills of the servers."""
        from trunkline.host.skills import SkillRegistry

        return SkillRegistry(self)

    @property
    def inspected(self) -> tuple[DefinitionInspected, ...]:
        """The definitions of the current catalog that changed, were flagged or are hidden."""
        return () if self.inspector is None else self.inspector.lasting

    def pin_extensions(self, extensions: Collection[Extension]) -> None:
        """Pin what these extensions define; the catalog is reviewed again if there is one."""
        if self.inspector is not None and extensions:
            self.inspector.add_extensions(extensions)
            if self.inspector.last is not None:
                self._rebuild()

    def upstream(self, name: str) -> Upstream:
        """Return a server by name.

        Raises:
            ServerUnavailable: there is no server of that name.
        """
        found = self.supervisor.upstreams.get(name)
        if found is None:
            raise ServerUnavailable(f"There is no server {name!r}")
        return found

    def handle_notification(self, name: str, method: str, params: Mapping[str, Any]) -> None:
        """Called with each notification of a shared connection."""
        upstream, kind = self.supervisor.upstreams.get(name), CHANGE_KINDS.get(method)
        if upstream is None:
            return
        if kind == "resource":
            if isinstance(params.get("uri"), str):
                self._resource_updated(upstream, params["uri"])
        elif kind is not None:
            if kind == "resources" and self.skills.forget(name):
                # The files of skills are resources, which need not be listed.
                self._view_changed({kind})
            # Handled even if the server did not declare ``listChanged``.
            upstream.changed({kind})
        elif method == "notifications/message":
            try:
                self._logged(upstream, msgspec.convert(params, t.LoggingMessageNotificationParams))
            except msgspec.ValidationError as error:
                log.debug("a log message of %s cannot be read: %s", name, error)
        else:
            self.extension_traffic.received(name, method, params)

    def _resource_updated(self, upstream: Upstream, uri: str) -> None:
        """Forward a resource update of a server without subscriptions; those of other servers come by subscription."""
        client = upstream.client
        if client is None or not supports(client.server_capabilities, "resources.subscribe"):
            for follower in tuple(self._resource_followers):
                follower(upstream.entry.name, uri)

    def _logged(self, upstream: Upstream, message: t.LoggingMessageNotificationParams) -> None:
        """Forward a log message to the client whose call it belongs to; one without a call, to the only client."""
        if self.router.logged(upstream, message) or (upstream.adopters and upstream.adopters[-1].deliver_log(message)):
            return
        clients = [session.connections.on_log for session in self.sessions if session.connections.on_log is not None]
        if len(clients) == 1:
            clients[0](message)

    # --- roots -------------------------------------------------------------------------------------------------------

    async def add_root(self, server: str, root: object) -> None:
        """Add a root for a server; a handshake server is notified at once."""
        upstream = self.upstream(server)
        if self.roots.add(server, root):
            await upstream.notify_roots_changed()

    async def remove_root(self, server: str, root: object) -> None:
        """Remove a root of a server."""
        upstream = self.upstream(server)
        if self.roots.remove(upstream.entry, root):
            await upstream.notify_roots_changed()

    # --- operations --------------------------------------------------------------------------------------------------

    async def call_tool(
        self, item: CatalogItem, arguments: Mapping[str, Any], requester: Requester
    ) -> t.CallToolResult:
        """Call a tool of a server."""

        def params(allowed: Mapping[str, Any]) -> Any:
            return t.CallToolRequestParams(name=item.name, arguments=Raw(msgspec.json.encode(allowed)))

        result: t.CallToolResult = await self._perform(
            "tool", item.server, item.name, arguments, item, requester, method="tools/call", params=params
        )
        if isinstance(result, ExtensionResult) or (type(result.structured_content) is dict and not item.wraps):
            return result
        # Servers represent a value that is not an object in different ways, by era and library; callers get one shape.
        shaped: t.CallToolResult = wrap_structured_content(result, (item.wraps and not result.is_error) or None)
        return shaped

    async def get_prompt(
        self, item: CatalogItem, arguments: Mapping[str, str], requester: Requester
    ) -> t.GetPromptResult:
        """Render a prompt of a server."""

        def params(allowed: Mapping[str, Any]) -> Any:
            return t.GetPromptRequestParams(name=item.name, arguments=dict(allowed))

        result: t.GetPromptResult = await self._perform(
            "prompt", item.server, item.name, arguments, item, requester, method="prompts/get", params=params
        )
        return result

    async def read_resource(
        self, server: str, uri: str, item: CatalogItem | None, requester: Requester
    ) -> t.ReadResourceResult:
        """Read a resource of a server."""

        def params(allowed: Mapping[str, Any]) -> Any:
            return t.ReadResourceRequestParams(uri=uri)

        with resource_errors(uri):
            result: t.ReadResourceResult = await self._perform(
                "resource", server, uri, {"uri": uri}, item, requester, method="resources/read", params=params
            )
        return result

    async def complete(self, server: str, params: t.CompleteRequestParams, requester: Requester) -> t.CompleteResult:
        """Complete an argument; allowed to every caller that may use the prompt or resource.

        Raises:
            PolicyDenied: the prompt or resource may not be used at all.
        """
        upstream = self.upstream(server)
        act = requester.completion_act(upstream.entry, params.ref, self.catalog)
        if not requester.policy.is_visible(act):
            raise PolicyDenied(f"the policy does not allow {server}/{act.name}")
        request = self.upstream_request(upstream, "completion/complete", params, requester)
        try:
            return (await self.router.send(request))[0]  # type: ignore[no-any-return]
        except Exception as error:
            self.secrets.redact_error(error)
            raise

    async def _perform(
        self,
        kind: ActKind,
        server: str,
        name: str,
        arguments: Mapping[str, Any],
        item: CatalogItem | None,
        requester: Requester,
        *,
        method: str,
        params: Callable[[Mapping[str, Any]], Any],
    ) -> Any:
        upstream = self.upstream(server)
        if item is not None and not upstream.running:
            item = await self._refresh_item(upstream, item)
        if item is not None and requester.caller in ("model", "app") and requester.caller not in item.visibility:
            # MCP Apps, Visibility: a tool may be visible only to apps, or only to models.
            raise PolicyDenied(f"{item.id} cannot be called by {requester.caller!r}: its server does not allow it.")

        if item is not None and requester.session.grants.has_skills:
            await self.skills.check_grants(requester.session, item)

        async def work(judged: Mapping[str, Any]) -> tuple[Any, Raw]:
            return await self.router.send(self.upstream_request(upstream, method, params(judged), requester))

        return await self.authorized(kind, upstream, name, arguments, item, requester, work=work)

    async def authorized(
        self,
        kind: ActKind,
        upstream: Upstream,
        name: str,
        arguments: Mapping[str, Any],
        item: CatalogItem | None,
        requester: Requester,
        *,
        work: PerformCall,
        subject: ActSubject | None = None,
    ) -> Any:
        """Run an act at a server if it is authorized; secrets are removed from error messages."""
        server = upstream.entry.name
        case = CallRequest(
            kind=kind,
            entry=upstream.entry,
            command=upstream.shown,
            name=name,
            arguments=arguments,
            item=item,
            session=requester.session,
            channel=requester.channel,
            policy=requester.policy,
            prompter=requester.prompter,
            caller=requester.caller,
            work=work,
            consented_by=requester.consented_by,
            no_prompt_reason=requester.no_prompt_reason,
            by_proxy=requester.by_proxy,
            by_command=self._in_user_folder and upstream.entry.target is None,
            # An approval for all tools of a server would not cover a subject that is none of them.
            tools=tuple
            if subject is not None
            else lambda: grantable_tools(self.catalog, server, lambda each: may_use(each, requester)),
            subject=subject,
        )
        try:
            result = await self.authorizer.perform(case)
        except Exception as error:
            self.secrets.redact_error(error)
            upstream.explain_failure(error)
            raise
        # A failure is shown, logged and forwarded, and a failing server may repeat secrets that it was given.
        failed = isinstance(result, t.CallToolResult) and result.is_error
        if requester.caller != "gateway" or (failed and self.secrets.may_occur_in(result.structured_content)):
            result = decode_structured_content(result)
        if failed:
            upstream.explain_failure(result)
            return self.secrets.redact_result(result)
        if requester.caller != "gateway":
            # A gateway's client has its own model and its own context.
            requester.session.results.keep(server, name, result)
        return result

    async def _refresh_item(self, upstream: Upstream, item: CatalogItem) -> CatalogItem:
        """Start a server that is not running, and return the item as it defines it now.

        A cached catalog may be out of date; what is authorized must be what will be called.

        Raises:
            ServerUnavailable: the server does not start.
            InvalidParams: the server no longer offers the item.
        """
        if upstream.entry.settings.per_user:
            # Each principal connects with its own credentials; the host itself may have none.
            return item
        await upstream.connected_client()
        self._rebuild_if_due()
        catalog = self.catalog
        found = catalog.of(item.kind).get(item.id)
        if found is None:
            gone = (drop for drop in (*catalog.dropped, *catalog.hidden) if drop.server == item.server)
            why = next((drop.reason for drop in gone if (drop.kind, drop.name) == (item.kind, item.name)), None)
            raise InvalidParams(f"The {item.kind} {item.id} cannot be used: {why or 'the server no longer offers it'}")
        return found

    def upstream_request(self, upstream: Upstream, method: str, params: Any, requester: Requester) -> UpstreamRequest:
        """Return a request to a server on behalf of a caller, with the review of the server's own requests."""

        async def review(question: str, asked: Any) -> Raw | None:
            return self._review(upstream.entry, question, asked, requester)

        return UpstreamRequest(
            upstream=upstream,
            method=method,
            params=params,
            session=requester.session,
            channel=requester.channel,
            review=review,
            via=requester.via,
            trace=requester.trace,
        )

    def _review(self, entry: ServerEntry, method: str, params: Any, requester: Requester) -> Raw | None:
        """Return the host's own answer to a server request; None to forward it to the caller.

        Raises:
            PolicyDenied: the policy denies it, and the protocol has no answer for that.
        """
        roots = self.roots.of(entry)
        if method == "roots/list" and roots is not None:
            return Raw(msgspec.json.encode(t.ListRootsResult(roots=roots)))
        act = act_for_server_request(entry, method, params, requester.session)
        decision = requester.policy.decide(act, now=time.time())
        self.authorizer.record_server_request(act, decision)
        if decision.effect == "allow" or (decision.effect == "ask" and not requester.strict):
            return None
        if act.kind == "elicitation":
            return Raw(b'{"action":"decline"}')
        raise PolicyDenied(f"{entry.name} asks for {method}, which is not allowed ({decision.rule}).")
