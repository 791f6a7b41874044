"""The catalog of a host as one MCP server.

It is a ``Server`` whose registry is filled from the catalog and whose handlers forward requests, subject to the policy:
what the policy never allows is not listed, and calling it gets the same error as calling something that does not exist.
Request validation, eras, sessions and lists are the server's; the path from a call to an upstream is the host core's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from msgspec.structs import replace

import trunkline.types as t
from trunkline import __version__
from trunkline.connection import Connection, Exchange
from trunkline.errors import (
    ConfigError,
    InvalidParams,
    MissingCapability,
    MissingClientCapability,
    PolicyDenied,
    ResourceNotFound,
)
from trunkline.host.authorization.approval import APPROVAL_MODES, Prompter
from trunkline.host.authorization.authorizer import act_for_item, act_for_unlisted, decode_arguments
from trunkline.host.authorization.denial_messages import CLIENT_CANNOT_ELICIT, MODE_NEVER_ASKS, called_by_proxy_reason
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.authorization.prompters import asks_beside_client, is_available, race
from trunkline.host.config.model import NO_FILTERS
from trunkline.host.core import HostCore
from trunkline.host.gateway.consent import client_prompter
from trunkline.host.gateway.extension_notifications import GatewayNotifications
from trunkline.host.gateway.extension_routes import ExtensionRoutes, extension_handler
from trunkline.host.gateway.long_calls import LongCalls, PreparedCall
from trunkline.host.gateway.registry import (
    GatewayRegistry,
    MetaTool,
    RegistryEntry,
    ToolSearch,
    error_for_client,
    joined_instructions,
    not_found,
    tool_of_page,
)
from trunkline.host.gateway.resource_handlers import resource_handlers, skill_settings
from trunkline.host.gateway.sessions import GatewayOptions, GatewaySessions
from trunkline.host.gateway.stream_handlers import subscription_handlers
from trunkline.host.gateway.subscriptions import GatewayHub, GatewaySubscriptions
from trunkline.host.requester import Requester
from trunkline.host.session import HostSession
from trunkline.host.upstreams.catalog.items import CatalogItem, ItemKind, hidden_reason
from trunkline.host.upstreams.catalog.names import DEFAULT_NAMING, inner_uri, outer_uri
from trunkline.host.upstreams.catalog.search import SEARCH_TOOL
from trunkline.host.upstreams.routing.channels import (
    ConnectionNeeds,
    GatewayChannel,
    gateway_capability,
    passed_trace,
    request_gateways,
)
from trunkline.protocol.apps import declares_apps
from trunkline.protocol.caller import Caller, Origin, Session
from trunkline.protocol.extensions import SKILLS, names_extension
from trunkline.protocol.limits import Limits
from trunkline.protocol.peer import NotificationReceived
from trunkline.protocol.request_validation import make_server_profile
from trunkline.server.dispatch import ServerConnection
from trunkline.server.handlers import session_of
from trunkline.server.registry import RegistrySnapshot
from trunkline.server.server import Server
from trunkline.server.subscriptions import ChangeListener
from trunkline.server.tools import check_headers, error_result

__all__ = ["Gateway"]

T = TypeVar("T")
_LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")


class Gateway(Server):
    """Serves the catalog of a host to the callers that may use it."""

    def __init__(
        self,
        core: HostCore,
        policy: Policy,
        options: GatewayOptions | None = None,
        *,
        prompter: Prompter | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Serve a host; ``prompter`` is asked for approval in place of the calling client.

        Raises:
            ConfigError: there is no such approval mode.
        """
        self.options: GatewayOptions = options or GatewayOptions()
        if self.options.approval not in APPROVAL_MODES:
            raise ConfigError(f"{self.options.approval!r} is not an approval mode: use {', '.join(APPROVAL_MODES)}.")
        profile = self.options.profile
        super().__init__(
            # The name is part of sealed request state, so state of one profile is invalid in another.
            self.options.name if profile is None else f"{self.options.name}/{profile}",
            version=__version__,
            capabilities=("tools", "prompts", "resources", "completions"),
            visible=self._visible,
            limits=limits,
            tasks=self.options.task_settings,
            store=self.options.store,
        )
        self.core = core
        self.policy = policy
        self._prompter = prompter
        self.sessions = GatewaySessions(core, self.options, notify=self._notify_session)
        self._tool_search = ToolSearch(core, self.options)
        self.subscriptions = GatewaySubscriptions(core, serves=self._serves, notify=self.changed)
        self.hub: GatewayHub = GatewayHub(self._left)
        #: The session whose list is being built; building never awaits, so there is one at a time.
        self._listing_for: HostSession | None = None
        #: Which items each principal may see; a cache for the current catalog.
        self._seen: dict[tuple[Any, CatalogItem], bool] = {}
        self._entries: GatewayRegistry | None = None
        self._meta_tools: dict[str, MetaTool] = {}
        self._long_calls = LongCalls(self)
        self.routes: ExtensionRoutes = ExtensionRoutes({}, {})
        core.pin_extensions(self.options.extensions)
        self._notifications = GatewayNotifications(self)
        self.table.handlers.update(
            {
                "tools/call": self._tools_call,
                "tools/list": self._tools_list,
                "prompts/list": self._lists("prompts/list"),
                "resources/list": self._lists("resources/list"),
                "resources/templates/list": self._lists("resources/templates/list"),
                "prompts/get": self._prompts_get,
                "completion/complete": self._complete,
                **resource_handlers(self, self._run_for),
                **subscription_handlers(self),
                "logging/setLevel": self._sets_level,
            }
        )
        self.table.handlers.update({method: self._after_first_lists(method) for method in _LISTS})
        self._refresh()
        self._unfollow = core.follow_catalog(self._catalog_changed)
        self._unfollow_resources = core.follow_resources(self._resource_changed)
        self._refresh_registry()

    async def aclose(self) -> None:
        """Stop serving: close listeners, upstream subscriptions and sessions."""
        self._unfollow()
        self._unfollow_resources()
        await self._notifications.aclose()
        await super().aclose()
        await self.subscriptions.aclose()
        await self.sessions.aclose()

    # --- the catalog -------------------------------------------------------------------------------------------------

    def _catalog_changed(self, kinds: tuple[str, ...]) -> None:
        self._refresh_registry()
        for kind in kinds:
            self.hub.notify_change((kind, None))
        self.subscriptions.follow_soon()

    def _resource_changed(self, server: str, uri: str) -> None:
        if self._serves(server):
            self.changed(outer_uri(server, uri))

    def _refresh_registry(self) -> None:
        """Fill the registry from the catalog; entries that did not change are reused."""
        catalog = self.core.catalog
        items = [
            item
            for table in (catalog.tools, catalog.prompts, catalog.resources, catalog.templates)
            for item in table.values()
            if self._belongs(item)
        ]
        self._entries = GatewayRegistry.build(self._tool_search.choose(items), self._entries)
        self._meta_tools = self._tool_search.meta_tools()
        own: dict[str, Any] = {**self._meta_tools, **self._long_calls.tools}
        has_apps = any(catalog.parts[name].offering.has_apps for name in self.served())
        self.registry: RegistrySnapshot = self._entries.registry(self.registry.counter + 1, own, has_apps=has_apps)
        self.instructions: str | None = joined_instructions(catalog.instructions, self.options.servers)
        self.settings.experimental = gateway_capability(
            self.core.id, (part.offering for part in catalog.parts.values())
        )
        known = (*self.core.extensions, *self.options.extensions)
        self._pass_extensions(ExtensionRoutes.build(catalog, known, self.served()))
        self._seen = {}

    def served(self) -> list[str]:
        """Return the servers that this gateway serves."""
        return [server for server in self.core.catalog.parts if self._in_profile(server)]

    def _pass_extensions(self, routes: ExtensionRoutes) -> None:
        """Advertise and serve exactly the extensions that are forwarded now."""
        before, self.routes = self.routes, routes
        skills, had_skills = skill_settings(self), SKILLS in self.settings.extensions
        own = {} if skills is None else {SKILLS: skills}
        self.settings.extensions = {**routes.declared, **own}
        if (skills is not None) is not had_skills:
            self._refresh()
        if before.methods == routes.methods:
            return
        for name in before.methods:
            self.table.handlers.pop(name, None)
        self.table.handlers.update(
            {name: extension_handler(self.core, each, self._run_for) for name, each in routes.methods.items()}
        )
        rows = {name: each.row for name, each in routes.methods.items()}
        self.table.profile = make_server_profile(rows, self.settings.revisions)

    def _belongs(self, item: CatalogItem) -> bool:
        if not self._in_profile(item.server):
            return False
        filters = self.options.tools
        if item.kind != "tool" or filters == NO_FILTERS:
            return True
        return hidden_reason(filters, item.definition, item.kind) is None

    def _serves(self, server: str) -> bool:
        return server in self.core.catalog.parts and self._in_profile(server)

    # --- visibility --------------------------------------------------------------------------------------------------

    def _visible(self, caller: Caller, definition: Any) -> bool:
        return not isinstance(definition, RegistryEntry) or self._sees(caller, definition.item)

    def _sees(self, caller: Caller, item: CatalogItem) -> bool:
        """Return True if the policy lets a caller see an item, and the caller's own view of the server lists it.

        A tool that only pages may call is visible only to callers that show pages.
        """
        if not self._may_see(caller, item) or not (item.for_model or declares_apps(caller.capabilities)):
            return False
        views = self.core.views
        if item.server not in views.varied:
            return True
        return views.shows(item, self._listing_for or self.sessions.find(caller), caller.capabilities)

    def _may_see(self, caller: Caller, item: CatalogItem) -> bool:
        principal = caller.principal
        key = (None if principal is None else principal.identity, item)
        seen = self._seen.get(key)
        if seen is None:
            if len(self._seen) > 100_000:
                self._seen = {}
            seen = self._seen[key] = self.policy.is_visible(act_for_item(item, **self.asker(caller)))
        return seen

    def asker(self, caller: Caller) -> dict[str, Any]:
        """Return who asks, for an act that is the same in every session of a caller, as lists are."""
        subject = None if caller.principal is None else caller.principal.subject
        return {"caller": "gateway", "principal": subject, "profile": self.options.profile}

    # --- the handlers ------------------------------------------------------------------------------------------------

    def _after_first_lists(self, method: str) -> Callable[[Exchange, Any], Any]:
        """Return a handler that first waits, for a bounded time, for servers that start for the first time.

        Many clients list once, and the stateless era has no ``initialize`` that could wait in its place. Some give up
        after five seconds, so one bound holds for both waits.
        """
        handler, kind = self.table.handlers[method], method.partition("/")[0]

        async def handle(exchange: Exchange, params: Any) -> Any:
            now = asyncio.get_running_loop().time
            deadline = now() + self.core.list_seconds
            with self.hub.waiting(exchange.admitted.caller.session, kind):
                await self.core.first_lists(self.options.servers)
                await self._learn_views(exchange, deadline - now())
            return await handler(exchange, params)

        return handle

    async def _wait_for_server(self, name: str) -> None:
        """Wait for servers that are starting, one of which may have an item with this unknown name.

        For the server that the name itself points to, it waits as long as a call to it would.
        """
        meant = name.partition(DEFAULT_NAMING.joiner)[0]
        await self.core.find_late(meant if self._in_profile(meant) else None, self.options.servers)

    async def wait_for_resource(self, uri: str) -> None:
        """Wait for servers that are starting, if this URI belongs to none of those that are known."""
        if inner_uri(uri, self.core.catalog.parts) is None:
            await self._wait_for_server(uri)

    def _in_profile(self, server: str) -> bool:
        return self.options.servers is None or server in self.options.servers

    async def _tools_list(self, exchange: Exchange, params: t.PaginatedRequestParams) -> Any:
        caller: Caller = exchange.admitted.caller
        if not self._meta_tools:
            return self._page("tools/list", exchange, params)
        # The descriptions of the search tools name the other tools, so they depend on the caller.
        shown = self._tool_search.described(lambda item: self._sees(caller, item))
        own = [each for each in self._long_calls.tools.values() if self.table.listing.is_visible(caller, each)]
        shown += self.table.listing.listed(self.registry, caller, own)
        listed = {} if self._entries is None else dict(self._entries.of["tool"])
        for item in self._tool_search.found(self.sessions.session(exchange)):
            listed.setdefault(item.wire, RegistryEntry(item))
        shown += self.table.listing.listed(
            self.registry, caller, (each for each in listed.values() if self._sees(caller, each.item))
        )
        return t.ListToolsResult(tools=shown, ttl_ms=0, cache_scope="private")

    def _lists(self, method: str) -> Callable[[Exchange, t.PaginatedRequestParams], Awaitable[Any]]:
        async def lists(exchange: Exchange, params: t.PaginatedRequestParams) -> Any:
            return self._page(method, exchange, params)

        return lists

    async def _learn_views(self, exchange: Exchange, seconds: float) -> None:
        """Load what servers list only to clients with these capabilities; see ``SessionViews.list_extras``."""
        capabilities = exchange.admitted.caller.capabilities
        if ConnectionNeeds.of(capabilities, logs=False).shows_more:
            await self.core.views.list_extras(self.sessions.session(exchange), capabilities, seconds)

    def _page(self, method: str, exchange: Exchange, params: t.PaginatedRequestParams) -> Any:
        caller: Caller = exchange.admitted.caller
        self._listing_for = self.sessions.session(exchange)
        try:
            return self.table.listing.page(method, self.registry, caller, cursor=params.cursor, stamp=self.table.stamp)
        finally:
            self._listing_for = None

    async def _tools_call(self, exchange: Exchange, params: t.CallToolRequestParams) -> Any:
        if (own := self._long_calls.tools.get(params.name)) is not None:
            return await own.call(exchange, params.arguments)
        call = await self._prepare_call(exchange, params)
        return call if isinstance(call, t.CallToolResult) else await self._long_calls.call(exchange, params, call)

    async def _perform_call(self, exchange: Exchange, params: t.CallToolRequestParams) -> Any:
        """Continue a call of an earlier process, only if it is a task at its server."""
        self._long_calls.check_restarted(exchange)
        call = await self._prepare_call(exchange, params)
        return call if isinstance(call, t.CallToolResult) else await call.work(exchange)

    async def _prepare_call(
        self, exchange: Exchange, params: t.CallToolRequestParams
    ) -> PreparedCall | t.CallToolResult:
        """Find the called tool; return the prepared call, or the result if it is already known."""
        caller: Caller = exchange.admitted.caller
        arguments = decode_arguments(params.arguments)
        by_proxy = params.name in self._meta_tools
        if by_proxy and params.name == SEARCH_TOOL:
            return self._search(exchange, arguments)
        if not by_proxy and self._entry("tool", params.name) is None:
            # Its server may still be starting.
            await self._wait_for_server(params.name)
            if self._entry("tool", params.name) is None and self._tool_search.hidden(params.name) is None:
                # A server may list it only to clients with these capabilities; to know, each starts a process.
                await self._learn_views(exchange, self.core.list_seconds)
        if by_proxy:
            meant = self._tool_search.inner_call(arguments, lambda item: self._sees(caller, item))
            if isinstance(meant, t.CallToolResult):
                return meant
            item, arguments = meant
        else:
            item = self._tool(exchange, params)

        async def call(requester: Requester) -> Any:
            if by_proxy and requester.consented_by is not None:
                # The client's user saw and approved only the name of the proxy.
                no_prompt_reason = called_by_proxy_reason(params.name, item.wire)
                requester = replace(
                    requester, consented_by=None, no_prompt_reason=no_prompt_reason, by_proxy=params.name
                )
            try:
                return await self.core.call_tool(item, arguments, requester)
            except PolicyDenied as denial:
                # For the model to read: a denial is not a protocol error.
                return error_result(denial.public_message)
            except MissingClientCapability as error:
                if not caller.revision.handshake or names_extension(error):
                    raise
                # As a server of that era does: its revisions have no such error, and the model can read the reason.
                return error_result(error.message)

        async def work(given: Exchange) -> Any:
            result = await self._run_for(given, item.server, call)
            return self.routes.forwarded(result, "tools/call", item.server, caller.capabilities)

        return PreparedCall.of(item, work, self.core.catalog)

    def _tool(self, exchange: Exchange, params: t.CallToolRequestParams) -> CatalogItem:
        """Return the tool that is called.

        Raises:
            InvalidParams: there is none that this caller may see.
            HeaderMismatch: the arguments in headers differ from those in the body.
        """
        name = params.name
        entry = self._entry("tool", name)
        item = self._tool_search.hidden(name) if entry is None else entry.item
        if item is None and declares_apps(exchange.admitted.caller.capabilities):
            item = tool_of_page(self.core.catalog, name, self._belongs)
        if item is None or not self._sees(exchange.admitted.caller, item):
            self._record_hidden_use(exchange, item)
            raise InvalidParams(f"Unknown tool: {name}", data={"name": name})
        if entry is None and name in self.sessions.session(exchange).found:
            # It is listed to this session, with the headers for its arguments.
            entry = RegistryEntry(item)
        if entry is not None and entry.headers:
            check_headers(entry, exchange, params.arguments)
        return item

    def _record_hidden_use(self, exchange: Exchange, item: CatalogItem | None) -> None:
        """Record the use of an item that the policy never allows; the caller gets an "unknown" error."""
        caller: Caller = exchange.admitted.caller
        if item is None or self._may_see(caller, item):
            return
        act = act_for_item(item, caller="gateway", session=self.sessions.session(exchange))
        self.core.authorizer.record_denied(act, self.policy.decide(act, now=time.time()))

    def _search(self, exchange: Exchange, arguments: dict[str, Any]) -> t.CallToolResult:
        """Search the tools; in mode ``client`` the ones found are listed to this session, to be called by name."""
        caller: Caller = exchange.admitted.caller
        found = self._tool_search.search(arguments, lambda item: self._sees(caller, item))
        if self.options.approval == "client" and self._tool_search.remember(
            self.sessions.session(exchange), found.items
        ):
            self._tools_changed_for(caller)
        return found.result

    def _tools_changed_for(self, caller: Caller) -> None:
        """Notify a session that its tools changed; stateless callers cannot be told apart, so all are notified."""
        if caller.session is None:
            self.hub.notify_change(("tools", None))
        for sink in self.hub.listeners():
            if isinstance(sink, ServerConnection) and caller.session is not None and sink.session is caller.session:
                sink.send_notice(("tools", None))

    def _entry(self, kind: ItemKind, name: str) -> RegistryEntry | None:
        return None if self._entries is None else self._entries.find(kind, name)

    def _prompt(self, exchange: Exchange, name: str) -> CatalogItem:
        """Return a prompt.

        Raises:
            InvalidParams: there is none that this caller may see.
        """
        entry = self._entry("prompt", name)
        if entry is None or not self._sees(exchange.admitted.caller, entry.item):
            self._record_hidden_use(exchange, None if entry is None else entry.item)
            raise InvalidParams(f"Unknown prompt: {name}", data={"name": name})
        return entry.item

    async def _prompts_get(self, exchange: Exchange, params: t.GetPromptRequestParams) -> Any:
        if self._entry("prompt", params.name) is None:
            await self._wait_for_server(params.name)
        item = self._prompt(exchange, params.name)

        async def get(requester: Requester) -> Any:
            return await self.core.get_prompt(item, params.arguments or {}, requester)

        result = await self._run_for(exchange, item.server, get)
        return self.routes.forwarded(result, exchange.method, item.server, exchange.admitted.caller.capabilities)

    async def _complete(self, exchange: Exchange, params: t.CompleteRequestParams) -> Any:
        caller, ref = exchange.admitted.caller, params.ref
        inner: Any
        if isinstance(ref, t.PromptReference):
            prompt = self._prompt(exchange, ref.name)
            server, inner = prompt.server, replace(ref, name=prompt.name)
        else:
            template = self._entry("template", ref.uri)
            if template is not None and self._sees(caller, template.item):
                server, inner = template.item.server, replace(ref, uri=template.item.name)
            else:
                server, uri, _ = self.find_resource(exchange, ref.uri)
                inner = replace(ref, uri=uri)
        asked = replace(params, ref=inner, meta=None)

        async def complete(requester: Requester) -> Any:
            try:
                return await self.core.complete(server, asked, requester)
            except MissingCapability:
                return t.CompleteResult(completion=t.Completion(values=[]))

        result = await self._run_for(exchange, server, complete)
        return self.routes.forwarded(result, exchange.method, server, exchange.admitted.caller.capabilities)

    async def _sets_level(self, exchange: Exchange, params: t.SetLevelRequestParams) -> Any:
        session_of(exchange).log_level = params.level
        self.sessions.session(exchange).log_level = params.level
        await self.subscriptions.refresh(session_of(exchange))
        return t.EmptyResult()

    # --- what the handlers share -------------------------------------------------------------------------------------

    def find_resource(self, exchange: Exchange, outer: str) -> tuple[str, str, CatalogItem | None]:
        """Resolve a URI of the gateway to a server, its own URI, and the item if there is one.

        Raises:
            InvalidParams, ResourceNotFound: there is no such resource that this caller may see.
        """
        caller: Caller = exchange.admitted.caller
        catalog = self.core.catalog
        pair = inner_uri(outer, catalog.parts)
        if pair is not None and self._serves(pair[0]):
            found = catalog.find_resource(outer)
            if found is not None:
                server, uri, item = found
                trusted, asker = catalog.parts[server].settings.trusted, self.asker(caller)
                if item is None:
                    act = act_for_unlisted("resource", server, uri, trusted=trusted, **asker)
                else:
                    act = act_for_item(item, uri=uri, **asker)
                if self.policy.is_visible(act):
                    return server, uri, item
        raise not_found(caller, outer)

    def knows_resource(self, exchange: Exchange, outer: str) -> bool:
        """Return True if there is a resource with this URI that the caller may see."""
        try:
            self.find_resource(exchange, outer)
        except (InvalidParams, ResourceNotFound):
            return False
        return True

    async def _run_for(self, exchange: Exchange, server: str, work: Callable[[Requester], Awaitable[T]]) -> T:
        """Run ``work`` for a caller within its budget, and turn failures into errors without internals.

        Raises:
            RequestFailed: the error for the caller.
        """
        via = request_gateways(exchange.params, self.core.id)
        session = self.sessions.session(exchange)
        session.budget.enter()
        try:
            return await work(self._requester(exchange, session, via))
        except Exception as error:
            failure = error_for_client(error, server)
            if failure is None:
                raise
            raise failure from error
        finally:
            session.budget.leave()

    def _requester(self, exchange: Exchange, session: HostSession, via: tuple[str, ...]) -> Requester:
        caller: Caller = exchange.admitted.caller
        level = session.log_level if caller.session is not None else caller.request_log_level
        channel = GatewayChannel(self, exchange, log_level=level)
        mode = self.options.approval
        return Requester(
            session=session,
            channel=channel,
            policy=self.policy,
            prompter=None if mode == "deny" else self._choose_prompter(caller, channel),
            caller="gateway",
            via=via,
            trace=passed_trace(exchange.params),
            serves=self._belongs,
            consented_by="client" if mode == "client" else None,
            no_prompt_reason=MODE_NEVER_ASKS if mode == "deny" else CLIENT_CANNOT_ELICIT,
            strict=mode == "deny",
        )

    def _choose_prompter(self, caller: Caller, channel: GatewayChannel) -> Prompter | None:
        """Return the host's prompter, or else the client; a console page is asked in addition to the client."""
        lasting = self.options.own_user or caller.origin.transport == "stdio"
        if self._prompter is None or not is_available(self._prompter):
            return client_prompter(channel, lasting=lasting)
        if not asks_beside_client(self._prompter) or (client := client_prompter(channel, lasting=lasting)) is None:
            return self._prompter
        # A stateless client gets the question as its response, so its request ends before another prompter can answer.
        return client if channel.parks else race(self._prompter, client)

    def _notification_received(
        self, event: NotificationReceived, origin: Origin, session: Session | None, running: set[asyncio.Future[Any]]
    ) -> None:
        """Forward a notification of an extension; any other is the server's."""
        if not self._notifications.received(event, origin, session):
            super()._notification_received(event, origin, session, running)

    # --- clients that leave ------------------------------------------------------------------------------------------

    def _connection_ended(self, connection: Connection) -> None:
        """End the session of a stateless client that used the connection alone."""
        self.sessions.disconnected(connection)

    def _make_hub(self) -> GatewayHub:
        return self.hub

    def _notify_session(self, session: Session, method: str, params: Any) -> None:
        """Send one handshake client a notification outside of any request."""
        for sink in self.hub.listeners():
            if isinstance(sink, ServerConnection) and sink.session is session:
                sink.notify(method, params)

    def _left(self, sink: ChangeListener) -> None:
        session = getattr(sink, "session", None)
        self.subscriptions.remove(session)
        self.sessions.session_ended(session, goes_on=self._long_calls.goes_on(session))
