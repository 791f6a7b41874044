"""The catalog of a host as one MCP server.

It is a ``Server`` whose registry is filled from the catalog and whose handlers forward requests, subject to the policy:
what the policy never allows is not listed, and calling it gets the same error as calling something that does not exist.
Request validation, eras, sessions and lists are the server's; the path from a call to an upstream is the host core's.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

import trunkline.types as t
from trunkline import __version__
from trunkline.connection import Connection, Exchange
from trunkline.errors import (
    ConfigError,
    InvalidParams,
    InvalidRequest,
    MissingCapability,
    PolicyDenied,
    RequestFailed,
    ResourceNotFound,
    TooManyRequests,
)
from trunkline.host.catalog.filters import keeps
from trunkline.host.catalog.items import Item, Kind
from trunkline.host.catalog.names import DEFAULT_NAMING, inner_uri, outer_uri
from trunkline.host.catalog.search import SEARCH_TOOL
from trunkline.host.core import Asker, HostCore
from trunkline.host.gateway.asking import consent_face
from trunkline.host.gateway.failures import answered, is_not_found, not_found
from trunkline.host.gateway.guests import Guests
from trunkline.host.gateway.options import GatewayOptions
from trunkline.host.gateway.searching import MetaTool, Searching
from trunkline.host.gateway.shelves import Shelved, Shelves, outward
from trunkline.host.gateway.watching import Ear, GatewayHub, Watches, Wish
from trunkline.host.judgement.approval import APPROVALS
from trunkline.host.judgement.consent import Face
from trunkline.host.judgement.judging import decoded
from trunkline.host.judgement.refusals import CLIENT_CANNOT, NEVER_ASKS, called_by_proxy
from trunkline.host.passing.fronts import GatewayFront
from trunkline.host.passing.lanes import Needs, prefers_handshake
from trunkline.host.passing.loops import announcement, came_through
from trunkline.host.policy.acts import Act, Annotations
from trunkline.host.policy.policy import Policy
from trunkline.host.session import HostSession
from trunkline.protocol.caller import Caller, Session
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import NEWEST, find
from trunkline.server.dispatch import ServedConnection
from trunkline.server.routes import session_of
from trunkline.server.server import Server
from trunkline.server.subscriptions import Sink, accepted, listen
from trunkline.server.tools import check_headers, failed

__all__ = ["Gateway"]

T = TypeVar("T")
_LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
_SUBSCRIBE_SECONDS = 5.0
#: How long a list waits for what servers list only to clients with certain capabilities.
_LEARN_SECONDS = 10.0


class Gateway(Server):
    """Serves the catalog of a host to the callers that may use it."""

    def __init__(
        self,
        core: HostCore,
        policy: Policy,
        options: GatewayOptions | None = None,
        *,
        face: Face | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Serve a host; ``prompter`` is asked for approval in place of the calling client.

        Raises:
            ConfigError: there is no such approval mode.
        """
        self.options = options or GatewayOptions()
        if self.options.approval not in APPROVALS:
            raise ConfigError(f"{self.options.approval!r} is not an approval mode: use {', '.join(APPROVALS)}.")
        profile = self.options.profile
        super().__init__(
            # The name is part of sealed request state, so state of one profile is invalid in another.
            self.options.name if profile is None else f"{self.options.name}/{profile}",
            version=__version__,
            capabilities=("tools", "prompts", "resources", "completions"),
            visible=self._visible,
            limits=limits,
        )
        self._core = core
        self.policy = policy
        self._face = face
        self._guests = Guests(core, self.options, notify=self._notify_session)
        self._searching = Searching(core, self.options)
        self._watches = Watches(lambda: core.supervisor.upstreams, self.changed)
        self.hub = GatewayHub(self._left)
        self._following = False
        #: The session whose list is being built; building never awaits, so there is one at a time.
        self._listing_for: HostSession | None = None
        #: The URIs that each session and each listener is subscribed to, and on whose connection.
        self._wants: dict[object, tuple[Ear, Callable[[], Iterable[str]]]] = {}
        #: Which items each principal may see; a cache for the current catalog.
        self._seen: dict[tuple[Any, Item], bool] = {}
        self._shelves: Shelves | None = None
        self._meta_tools: dict[str, MetaTool] = {}
        self.routes.update(
            {
                "tools/call": self._tools_call,
                "tools/list": self._tools_list,
                "prompts/list": self._lists("prompts/list"),
                "resources/list": self._lists("resources/list"),
                "resources/templates/list": self._lists("resources/templates/list"),
                "prompts/get": self._prompts_get,
                "resources/read": self._resources_read,
                "completion/complete": self._complete,
                "resources/subscribe": self._subscribe,
                "resources/unsubscribe": self._unsubscribe,
                "subscriptions/listen": self._listens,
                "logging/setLevel": self._sets_level,
            }
        )
        self.routes.update({method: self._after_first_lists(self.routes[method]) for method in _LISTS})
        self._settle()
        self._unfollow = core.follow_catalog(self._catalog_changed)
        self._unfollow_resources = core.follow_resources(self._resource_changed)
        self._fill()

    async def aclose(self) -> None:
        """Stop serving: close listeners, upstream subscriptions and sessions."""
        self._unfollow()
        self._unfollow_resources()
        self.close()
        await self._watches.aclose()
        await self._guests.aclose()

    # --- the catalog -------------------------------------------------------------------------------------------------

    def _catalog_changed(self, kinds: tuple[str, ...]) -> None:
        self._fill()
        for kind in kinds:
            self.hub.notify_change((kind, None))
        self._follow_soon()

    def _resource_changed(self, server: str, uri: str) -> None:
        if self._serves(server):
            self.changed(outer_uri(server, uri))

    def _fill(self) -> None:
        """Fill the registry from the catalog; entries that did not change are reused."""
        catalog = self._core.catalog
        items = [
            item
            for table in (catalog.tools, catalog.prompts, catalog.resources, catalog.templates)
            for item in table.values()
            if self._belongs(item)
        ]
        self._shelves = Shelves.filled(self._searching.choose(items), self._shelves)
        self._meta_tools = self._searching.meta_tools()
        self.registry = self._shelves.registry(self.registry.counter + 1, self._meta_tools)
        self.instructions = _instructions(catalog.instructions, self.options.servers)
        self.experimental = announcement(self._core.id, (part.offering for part in catalog.parts.values()))
        self._seen = {}

    def _belongs(self, item: Item) -> bool:
        if not self._in_profile(item.server):
            return False
        return item.kind != "tool" or keeps(self.options.tools, item.definition, item.kind) is None

    def _serves(self, server: str) -> bool:
        return server in self._core.catalog.parts and self._in_profile(server)

    # --- visibility --------------------------------------------------------------------------------------------------

    def _visible(self, caller: Caller, definition: Any) -> bool:
        if not isinstance(definition, Shelved):
            return True
        return self._sees(caller, definition.item)

    def _sees(self, caller: Caller, item: Item) -> bool:
        """Return True if the policy lets a caller see an item, and the caller's own view of the server lists it."""
        session = self._listing_for or self._guests.find(caller)
        return self._may_see(caller, item) and self._core.views.shows(item, session, caller.capabilities)

    def _may_see(self, caller: Caller, item: Item) -> bool:
        principal = caller.principal
        key = (None if principal is None else principal.identity, item)
        seen = self._seen.get(key)
        if seen is None:
            if len(self._seen) > 100_000:
                self._seen = {}
            act = self._named(caller, item.server, item.name, "resource" if item.kind == "template" else item.kind)
            seen = self._seen[key] = self.policy.sees(
                replace(act, annotations=item.annotations, pin=item.pin, trusted=item.trusted)
            )
        return seen

    def _named(self, caller: Caller, server: str, name: str, kind: Any) -> Act:
        """Return the act for any use of an item, whatever the arguments."""
        principal = caller.principal
        return Act(
            kind=kind,
            server=server,
            name=name,
            annotations=Annotations(),
            caller="gateway",
            principal=None if principal is None else principal.subject,
            profile=self.options.profile,
        )

    # --- the handlers ------------------------------------------------------------------------------------------------

    def _after_first_lists(self, handler: Callable[[Exchange, Any], Any]) -> Callable[[Exchange, Any], Any]:
        """Return a handler that first waits, for a bounded time, for servers that start for the first time.

        Many clients list once, and the stateless era has no ``initialize`` that could wait in its place.
        """

        async def handle(exchange: Exchange, params: Any) -> Any:
            await self._core.first_lists(self.options.servers)
            answer = handler(exchange, params)
            return await answer if inspect.isawaitable(answer) else answer

        return handle

    async def _find_out(self, name: str) -> None:
        """Wait for servers that are starting, one of which may have an item with this unknown name.

        For the server that the name itself points to, it waits as long as a call to it would.
        """
        meant = name.partition(DEFAULT_NAMING.joiner)[0]
        if (upstream := self._core.supervisor.upstreams.get(meant)) is not None and self._in_profile(meant):
            await upstream.wait_for_start()
        await self._core.first_lists(self.options.servers, fresh=True)

    def _in_profile(self, server: str) -> bool:
        return self.options.servers is None or server in self.options.servers

    async def _tools_list(self, exchange: Exchange, params: t.PaginatedRequestParams) -> Any:
        caller: Caller = exchange.admitted.caller
        await self._learn(exchange)
        if not self._meta_tools:
            return self._page("tools/list", exchange, params)
        # The descriptions of the search tools name the other tools, so they depend on the caller.
        shown = self._searching.described(lambda item: self._sees(caller, item))
        listed = {} if self._shelves is None else dict(self._shelves.of["tool"])
        for item in self._searching.found(self._guests.session(exchange)):
            listed.setdefault(item.wire, Shelved(item))
        shown += [each.listed() for each in listed.values() if self._sees(caller, each.item)]
        return t.ListToolsResult(tools=shown, ttl_ms=0, cache_scope="private")

    def _lists(self, method: str) -> Callable[[Exchange, t.PaginatedRequestParams], Awaitable[Any]]:
        async def lists(exchange: Exchange, params: t.PaginatedRequestParams) -> Any:
            await self._learn(exchange)
            return self._page(method, exchange, params)

        return lists

    async def _learn(self, exchange: Exchange) -> None:
        """Load what servers list only to clients with these capabilities; see ``SessionViews.learn``."""
        capabilities = exchange.admitted.caller.capabilities
        if Needs.of(capabilities, logs=False).asks:
            await self._core.views.learn(self._guests.session(exchange), capabilities, _LEARN_SECONDS)

    def _page(self, method: str, exchange: Exchange, params: t.PaginatedRequestParams) -> Any:
        caller: Caller = exchange.admitted.caller
        self._listing_for = self._guests.session(exchange)
        try:
            return self.listing.page(method, self.registry, caller, cursor=params.cursor, stamp=self.stamp)
        finally:
            self._listing_for = None

    async def _tools_call(self, exchange: Exchange, params: t.CallToolRequestParams) -> Any:
        caller: Caller = exchange.admitted.caller
        arguments = decoded(params.arguments)
        by_proxy = params.name in self._meta_tools
        if by_proxy and params.name == SEARCH_TOOL:
            return self._search(exchange, arguments)
        if not by_proxy and self._on_shelf("tool", params.name) is None:
            # Its server may still be starting, or may list it only to clients with these capabilities.
            await self._find_out(params.name)
            await self._learn(exchange)
        if by_proxy:
            meant = self._searching.inner_call(arguments, lambda item: self._sees(caller, item))
            if isinstance(meant, t.CallToolResult):
                return meant
            item, arguments = meant
        else:
            item = self._tool(exchange, params)

        async def call(asker: Asker) -> Any:
            if by_proxy and asker.consented_by is not None:
                # The client's user saw and approved only the name of the proxy.
                unasked = called_by_proxy(params.name, item.wire)
                asker = replace(asker, consented_by=None, unasked=unasked, by_proxy=params.name)
            try:
                return await self._core.call_tool(item, arguments, asker)
            except PolicyDenied as denial:
                # For the model to read: a denial is not a protocol error.
                return failed(denial.told)

        return outward(await self._for(exchange, item.server, call), item.server)

    def _tool(self, exchange: Exchange, params: t.CallToolRequestParams) -> Item:
        """Return the tool that is called.

        Raises:
            InvalidParams: there is none that this caller may see.
            HeaderMismatch: the arguments in headers differ from those in the body.
        """
        name = params.name
        shelved = self._on_shelf("tool", name)
        item = self._searching.hidden(name) if shelved is None else shelved.item
        if item is None or not self._sees(exchange.admitted.caller, item):
            self._note_hidden(exchange, item)
            raise InvalidParams(f"Unknown tool: {name}", data={"name": name})
        if shelved is None and name in self._guests.session(exchange).found:
            # It is listed to this session, with the headers for its arguments.
            shelved = Shelved(item)
        if shelved is not None and shelved.headers:
            check_headers(shelved, exchange, params.arguments)
        return item

    def _note_hidden(self, exchange: Exchange, item: Item | None) -> None:
        """Record the use of an item that the policy never allows; the caller gets an "unknown" error."""
        caller: Caller = exchange.admitted.caller
        if item is None or self._may_see(caller, item):
            return
        act = replace(
            self._named(caller, item.server, item.name, item.kind),
            session=self._guests.session(exchange).id,
            pin=item.pin,
        )
        self._core.judge.note_denied(act, self.policy.decide(act, now=time.time()))

    def _search(self, exchange: Exchange, arguments: dict[str, Any]) -> t.CallToolResult:
        """Search the tools; in mode ``client`` the ones found are listed to this session, to be called by name."""
        caller: Caller = exchange.admitted.caller
        found = self._searching.search(arguments, lambda item: self._sees(caller, item))
        if self.options.approval == "client" and self._searching.remember(self._guests.session(exchange), found.items):
            self._tools_changed_for(caller)
        return found.result

    def _tools_changed_for(self, caller: Caller) -> None:
        """Notify a session that its tools changed; stateless callers cannot be told apart, so all are notified."""
        if caller.session is None:
            self.hub.notify_change(("tools", None))
        for sink in self.hub.sinks():
            if caller.session is not None and getattr(sink, "session", None) is caller.session:
                sink.notify_change(("tools", None))

    def _on_shelf(self, kind: Kind, name: str) -> Shelved | None:
        return None if self._shelves is None else self._shelves.find(kind, name)

    def _prompt(self, exchange: Exchange, name: str) -> Item:
        """Return a prompt.

        Raises:
            InvalidParams: there is none that this caller may see.
        """
        shelved = self._on_shelf("prompt", name)
        if shelved is None or not self._sees(exchange.admitted.caller, shelved.item):
            self._note_hidden(exchange, None if shelved is None else shelved.item)
            raise InvalidParams(f"Unknown prompt: {name}", data={"name": name})
        return shelved.item

    async def _prompts_get(self, exchange: Exchange, params: t.GetPromptRequestParams) -> Any:
        if self._on_shelf("prompt", params.name) is None:
            await self._find_out(params.name)
        item = self._prompt(exchange, params.name)

        async def get(asker: Asker) -> Any:
            return await self._core.get_prompt(item, params.arguments or {}, asker)

        return outward(await self._for(exchange, item.server, get), item.server)

    async def _resources_read(self, exchange: Exchange, params: t.ReadResourceRequestParams) -> Any:
        if inner_uri(params.uri, self._core.catalog.parts) is None:
            await self._find_out(params.uri)
        server, uri, item = self._find(exchange, params.uri)

        async def read(asker: Asker) -> Any:
            try:
                return await self._core.read_resource(server, uri, item, asker)
            except RequestFailed as error:
                if not is_not_found(error, uri):
                    raise
                raise not_found(exchange.admitted.caller, params.uri) from error

        return outward(await self._for(exchange, server, read), server)

    async def _complete(self, exchange: Exchange, params: t.CompleteRequestParams) -> Any:
        caller, ref = exchange.admitted.caller, params.ref
        inner: Any
        if isinstance(ref, t.PromptReference):
            prompt = self._prompt(exchange, ref.name)
            server, inner = prompt.server, replace(ref, name=prompt.name)
        else:
            template = self._on_shelf("template", ref.uri)
            if template is not None and self._sees(caller, template.item):
                server, inner = template.item.server, replace(ref, uri=template.item.name)
            else:
                server, uri, _ = self._find(exchange, ref.uri)
                inner = replace(ref, uri=uri)
        asked = replace(params, ref=inner, meta=None)

        async def complete(asker: Asker) -> Any:
            try:
                return await self._core.complete(server, asked, asker)
            except MissingCapability:
                return t.CompleteResult(completion=t.Completion(values=[]))

        return outward(await self._for(exchange, server, complete), server)

    async def _subscribe(self, exchange: Exchange, params: t.SubscribeRequestParams) -> Any:
        self._find(exchange, params.uri)
        session = session_of(exchange)
        if len(session.subscriptions) >= self.limits.notices:
            raise TooManyRequests(
                f"Too many subscriptions: the limit is {self.limits.notices} for each session; unsubscribe from one",
                data={"limit": "subscriptions", "allowed": self.limits.notices},
            )
        session.subscribe(params.uri)
        ear = self._ear(exchange)
        self._wants[session] = (ear, lambda: session.subscriptions)
        self._follow()
        # Once subscribed, the client may change the resource at once, and expects the notification.
        await self._watches.settled(self._wishes(ear, [params.uri]), _SUBSCRIBE_SECONDS)
        return t.EmptyResult()

    async def _unsubscribe(self, exchange: Exchange, params: t.UnsubscribeRequestParams) -> Any:
        session_of(exchange).unsubscribe(params.uri)
        self._follow_soon()
        return t.EmptyResult()

    def _listens(self, exchange: Exchange, params: t.SubscriptionsListenRequestParams) -> Awaitable[Any]:
        if not exchange.connection.streams:
            raise InvalidRequest(
                "Invalid request: subscriptions/listen answers with a stream; accept text/event-stream"
            )
        wanted = accepted(params.notifications, self.capabilities(exchange.admitted.caller.revision))
        uris = [
            uri for uri in (wanted.resource_subscriptions or ())[: self.limits.notices] if self._knows(exchange, uri)
        ]
        exchange.params = None
        return self._listen(exchange, replace(wanted, resource_subscriptions=uris or None))

    async def _listen(self, exchange: Exchange, wanted: t.SubscriptionFilter) -> Any:
        """Subscribe at the servers first, then acknowledge to the client."""
        uris = wanted.resource_subscriptions or []
        if not uris:
            return await listen(exchange, self.hub, wanted=wanted, most=self.limits.notices)
        ear = self._ear(exchange)
        self._wants[exchange] = (ear, lambda: uris)
        try:
            self._follow()
            await self._watches.settled(self._wishes(ear, uris), _SUBSCRIBE_SECONDS)
            return await listen(exchange, self.hub, wanted=wanted, most=self.limits.notices)
        finally:
            del self._wants[exchange]
            self._follow_soon()

    def _ear(self, exchange: Exchange) -> Ear:
        session = self._guests.session(exchange)
        caller = exchange.admitted.caller
        needs = Needs.of(caller.capabilities, logs=session.log_level is not None)
        return Ear(session, needs, caller.revision.handshake)

    async def _sets_level(self, exchange: Exchange, params: t.SetLevelRequestParams) -> Any:
        session_of(exchange).log_level = params.level
        self._guests.session(exchange).log_level = params.level
        return t.EmptyResult()

    # --- what the handlers share -------------------------------------------------------------------------------------

    def _find(self, exchange: Exchange, outer: str) -> tuple[str, str, Item | None]:
        """Resolve a URI of the gateway to a server, its own URI, and the item if there is one.

        Raises:
            InvalidParams, ResourceNotFound: there is no such resource that this caller may see.
        """
        caller: Caller = exchange.admitted.caller
        catalog = self._core.catalog
        pair = inner_uri(outer, catalog.parts)
        if pair is not None and self._serves(pair[0]):
            found = catalog.find_resource(outer)
            if found is not None:
                server, uri, item = found
                act = self._named(caller, server, uri, "resource")
                if self.policy.sees(replace(act, pin=None if item is None else item.pin)):
                    return server, uri, item
        raise not_found(caller, outer)

    def _knows(self, exchange: Exchange, outer: str) -> bool:
        try:
            self._find(exchange, outer)
        except (InvalidParams, ResourceNotFound):
            return False
        return True

    async def _for(self, exchange: Exchange, server: str, work: Callable[[Asker], Awaitable[T]]) -> T:
        """Run ``work`` for a caller within its budget, and turn failures into errors without internals.

        Raises:
            RequestFailed: the error for the caller.
        """
        via = came_through(exchange.params, self._core.id)
        session = self._guests.session(exchange)
        session.budget.enter()
        try:
            with answered(server):
                return await work(self._asker(exchange, session, via))
        finally:
            session.budget.leave()

    def _asker(self, exchange: Exchange, session: HostSession, via: tuple[str, ...]) -> Asker:
        caller: Caller = exchange.admitted.caller
        level = session.log_level if caller.session is not None else caller.request_log_level
        front = GatewayFront(self, exchange, log_level=level)
        mode = self.options.approval
        return Asker(
            session=session,
            front=front,
            policy=self.policy,
            face=None
            if mode == "deny"
            else self._face or consent_face(front, lasting=self.options.own_user or caller.origin.transport == "stdio"),
            caller="gateway",
            via=via,
            serves=self._belongs,
            consented_by="client" if mode == "client" else None,
            unasked=NEVER_ASKS if mode == "deny" else CLIENT_CANNOT,
            strict=mode == "deny",
        )

    # --- subscriptions -----------------------------------------------------------------------------------------------

    def _follow_soon(self) -> None:
        """Update the upstream subscriptions in the next iteration of the event loop."""
        if not self._following:
            self._following = True
            asyncio.get_running_loop().call_soon(self._follow)

    def _follow(self) -> None:
        self._following = False
        self._watches.follow(wish for ear, uris in self._wants.values() for wish in self._wishes(ear, uris()))

    def _wishes(self, ear: Ear, uris: Iterable[str]) -> Iterator[Wish]:
        """Yield for each resource the server, and the connection to subscribe on."""
        parts, upstreams = self._core.catalog.parts, self._core.supervisor.upstreams
        for pair in (inner_uri(uri, parts) for uri in uris):
            if pair is None or not self._serves(pair[0]) or pair[0] not in upstreams:
                continue
            revision = find(parts[pair[0]].offering.revision) or NEWEST
            upstream = upstreams[pair[0]]
            needs = ear.needs.within(upstream.entry.settings.asks)
            handshake = revision.handshake or (ear.shakes_hands and prefers_handshake(upstream, needs))
            alone = self._core.forwarder.needs_lane(upstream, needs, handshake=handshake)
            yield Wish(*pair, ear if alone else None)

    async def _end(self, connection: Connection) -> None:
        """Clean up after a connection, with the session of a stateless client that used it alone."""
        await super()._end(connection)
        self._guests.disconnected(connection)

    def _notify_session(self, session: Session, method: str, params: Any) -> None:
        """Send one handshake client a notification outside of any request."""
        for sink in self.hub.sinks():
            if isinstance(sink, ServedConnection) and sink.session is session:
                sink.notify(method, params)

    def _left(self, sink: Sink) -> None:
        session = getattr(sink, "session", None)
        if self._wants.pop(session, None) is not None:
            self._follow_soon()
        self._guests.left(session)


def _instructions(by_server: Mapping[str, str], servers: frozenset[str] | None) -> str | None:
    parts = [
        f"## {server}\n{text.strip()[:2048]}"
        for server, text in by_server.items()
        if servers is None or server in servers
    ]
    return "\n\n".join(parts) or None
