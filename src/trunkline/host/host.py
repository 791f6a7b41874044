"""The Python API of the host: many servers under one user's control, opened from a configuration and used by name.

::

    async with Host.open("mcp.json") as host:
        for id, tool in host.catalog.tools.items(): ...
        await host.call_tool("files/read_text_file", {"path": "README.md"})

Every operation goes through the user's policy, approvals and audit trail, whichever caller makes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from msgspec.structs import replace

import trunkline.types as t
from trunkline.client.answers import Answers
from trunkline.client.options import Progress, settings_from
from trunkline.client.tool_facts import CallResult, ToolFacts
from trunkline.errors import ConfigError, InvalidParams
from trunkline.host.assembly import Assembly, HostOptions, Reload, assemble
from trunkline.host.catalog.catalog import Catalog
from trunkline.host.catalog.items import Item
from trunkline.host.catalog.names import id_of
from trunkline.host.config.records import Configuration
from trunkline.host.core import Asker
from trunkline.host.desks import CallbackDesk, Desk, HostDesk
from trunkline.host.events import Follower, Inspected
from trunkline.host.gateway.gateway import Gateway
from trunkline.host.gateway.options import GatewayOptions
from trunkline.host.gateway.serving import ServeOptions
from trunkline.host.passing.fronts import LocalFront
from trunkline.host.policy.policy import Policy
from trunkline.host.reviewed_desk import DeskOptions, open_desk
from trunkline.host.sampling.limits import SamplingLimits
from trunkline.host.session import HostSession
from trunkline.host.supervision.upstream import Status
from trunkline.host.usable import counted, usable
from trunkline.protocol.methods import embedded_requests
from trunkline.protocol.revisions import NEWEST

if TYPE_CHECKING:
    from trunkline.host.chat.conversation import Attachment, Conversation, Parties
    from trunkline.host.chat.options import ChatOptions
    from trunkline.host.chat.reply import ChatReply
    from trunkline.host.chat.saving import Saved
    from trunkline.host.models.interface import Model

__all__ = ["Host"]


class Host:
    """Runs servers side by side and uses them on behalf of one user; ``async with`` starts and closes it."""

    def __init__(self, sources: Sequence[object] = (), **options: Unpack[HostOptions]) -> None:
        """Set the sources; nothing is read or started yet. See ``Host.open``."""
        self._sources = tuple(sources)
        self._options = options
        self._assembly: Assembly | None = None
        self._session: HostSession | None = None
        #: For each tool the definition (one pin may have several forms) and the cache that parses its results.
        self._facts: dict[str, tuple[Any, ToolFacts]] = {}
        self._own_desk: HostDesk | None = None

    @classmethod
    def open(cls, *sources: object, **options: Unpack[HostOptions]) -> Host:
        """Create a host from configuration files (paths), mappings of servers, or the default locations.

        A mapping has an ``mcpServers`` entry or a ``Server`` object under each name. Options are those of
        ``HostOptions``.
        """
        return cls(sources, **options)

    async def __aenter__(self) -> Host:
        """Load the configuration and start the servers that may run.

        Raises:
            ConfigError: a named configuration or policy cannot be read, or the host is already open.
        """
        if self._assembly is not None:
            raise ConfigError("The host is open already: open another one, or close it first.")
        self._assembly = await assemble(self._sources, self._options)
        try:
            self._own_desk = self._made_desk(self._assembly)
            self._assembly.askable = self._own_desk.capabilities
            await self._assembly.start()
        except BaseException:
            await self.aclose()
            raise
        self._session = self.session()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop all servers; when it returns, none of their processes is left."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close the host; calling it again does nothing."""
        assembly, self._assembly = self._assembly, None
        desk, self._own_desk = self._own_desk, None
        if desk is not None:
            await desk.aclose()
        if assembly is not None:
            await assembly.aclose()

    # --- state -------------------------------------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        """The current catalog: what all servers offer together."""
        return self._open.core.catalog

    @property
    def configuration(self) -> Configuration:
        """The loaded configuration: active and inactive entries, and problems."""
        return self._open.configuration

    @property
    def policy(self) -> Policy:
        """The current rules."""
        return self._open.policy

    def status(self) -> list[Status]:
        """Return the state of each server, with its reason and the number of tools that can be used."""
        counts = usable(self.catalog, self.policy)
        upstreams = self._open.core.supervisor.upstreams.values()
        return [counted(upstream.status, counts.get(upstream.entry.name, {})) for upstream in upstreams]

    def inspected(self) -> list[Inspected]:
        """Return the findings on the servers' definitions: changed, flagged, hidden or not in the lock file."""
        return list(self._open.core.inspected)

    def events(self) -> Follower:
        """Subscribe to events: ``async for event in host.events()``."""
        return self._open.core.events.follow()

    @property
    def _open(self) -> Assembly:
        if self._assembly is None:
            raise ConfigError("The host is not open: use it inside `async with Host.open(...) as host:`.")
        return self._assembly

    # --- servers -----------------------------------------------------------------------------------------------------

    async def add_server(self, name: str, entry: object) -> None:
        """Add or replace a server: an ``mcpServers`` entry or a ``Server`` object."""
        await self._open.add(name, entry)

    async def remove_server(self, name: str) -> None:
        """Remove a server; its process has ended when this returns.

        Raises:
            KeyError: there is no server of that name.
        """
        await self._open.remove(name)

    async def reload(self) -> Reload:
        """Reload the configuration and the policies; only servers that changed are touched.

        Raises:
            ConfigError: something cannot be read; everything stays as it was.
        """
        return await self._open.reload()

    async def restart(self, name: str) -> None:
        """Restart a server, also one that is no longer restarted automatically."""
        await self._open.core.upstream(name).restart()

    async def add_root(self, server: str, root: object) -> None:
        """Add a root for a server: a path or a ``file:`` URI; a handshake server is notified at once."""
        await self._open.core.add_root(server, root)

    async def remove_root(self, server: str, root: object) -> None:
        """Remove a root of a server."""
        await self._open.core.remove_root(server, root)

    # --- operations --------------------------------------------------------------------------------------------------

    def session(self) -> HostSession:
        """Open a session with its own grants, budget and connections."""
        return self._open.core.open_session(HostSession(now=time.monotonic))

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        session: HostSession | None = None,
        on_progress: Progress | None = None,
        raise_on_error: bool = True,
    ) -> CallResult:
        """Call a tool by its id, ``server/tool``.

        Raises:
            PolicyDenied: the policy or the user denied it.
            ServerUnavailable: the server is not running.
            ToolError: the tool reports an error.
        """
        if self.catalog.find_tool(name) is None:
            await self._open.core.first_lists(fresh=True)
        item = self._named("tool", name, self.catalog.find_tool(name))
        asker = self._asker(session, on_progress)
        result = await self._open.core.call_tool(item, dict(arguments or {}), asker)
        answer = self._read(item, result)
        return answer.raise_for_error() if raise_on_error and answer.is_error else answer

    async def read_resource(self, uri: str, *, session: HostSession | None = None) -> list[t.ResourceContents]:
        """Read a resource by its id, ``server/uri``, or by its URI if only one server has it."""
        if self.catalog.find_resource(uri) is None:
            await self._open.core.first_lists(fresh=True)
        found = self.catalog.find_resource(uri)
        if found is None:
            raise InvalidParams(f"No server has a resource {uri!r}; host.catalog.resources has the list")
        server, own, item = found
        result = await self._open.core.read_resource(server, own, item, self._asker(session))
        return result.contents

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, session: HostSession | None = None
    ) -> t.GetPromptResult:
        """Render a prompt by its id, ``server/prompt``."""
        if self.catalog.find_prompt(name) is None:
            await self._open.core.first_lists(fresh=True)
        item = self._named("prompt", name, self.catalog.find_prompt(name))
        return await self._open.core.get_prompt(item, dict(arguments or {}), self._asker(session))

    async def complete(
        self,
        name: str,
        argument: str,
        value: str,
        *,
        context: Mapping[str, str] | None = None,
        session: HostSession | None = None,
    ) -> t.Completion:
        """Complete an argument of a prompt (by its id) or of a resource template."""
        ref: t.CompletionReference
        item = self.catalog.find_prompt(name)
        if item is not None:
            ref = t.PromptReference(name=item.name)
        else:
            item = self._named("prompt or template", name, self.catalog.find_template(name))
            ref = t.ResourceTemplateReference(uri=item.name)
        params = t.CompleteRequestParams(
            ref=ref,
            argument=t.CompletionArgument(name=argument, value=value),
            context=None if context is None else t.CompletionContext(arguments=dict(context)),
        )
        result = await self._open.core.complete(item.server, params, self._asker(session))
        return result.completion

    def conversation(
        self,
        model: Model,
        *,
        session: HostSession | None = None,
        options: ChatOptions | None = None,
        saved: Saved | None = None,
    ) -> Conversation:
        """Start a conversation with a model that uses the servers, or resume a saved one."""
        from trunkline.host.chat.conversation import Conversation

        return Conversation(self._open.core, model, self._parties(session), options=options, saved=saved)

    async def chat(
        self,
        prompt: str,
        *,
        model: Model | str | None = None,
        attachments: Sequence[Attachment] = (),
        options: ChatOptions | None = None,
    ) -> ChatReply:
        """Send a prompt to a model, which may use the servers, and return its reply.

        ``model`` is an open model, or ``provider:model``.

        Raises:
            ModelError: there is no answer, or it is incomplete.
            ConfigError: no model was chosen, or it is unknown.
        """
        from trunkline.host.chat.reply import chat

        parties = self._parties(None)
        try:
            return await chat(self._open.core, prompt, parties, model=model, attachments=attachments, options=options)
        finally:
            await self._open.core.close_session(parties.session)

    def _parties(self, session: HostSession | None) -> Parties:
        from trunkline.host.chat.conversation import Parties

        assembly = self._open
        face = self._options.get("consent")
        return Parties(session=session or self.session(), policy=assembly.policy, desk=self._desk(), face=face)

    async def serve(self, **options: Unpack[ServeOptions]) -> None:
        """Serve the catalog as one MCP server, over stdio or HTTP, until stopped."""
        from trunkline.host.gateway.serving import serve

        await serve(self._open, self._held(options))

    def gateway(self, options: GatewayOptions | None = None) -> Gateway:
        """Return the gateway as an in-process server, for ``Client(host.gateway())``; close it after use."""
        assembly = self._open
        return Gateway(assembly.core, assembly.policy, options, face=self._options.get("consent"))

    def asgi(self, **options: Unpack[ServeOptions]) -> Any:
        """Return the gateway as an ASGI application, to run or to mount in another."""
        from trunkline.host.gateway.serving import application

        return application(self._open, self._held(options))

    def _held(self, options: ServeOptions) -> ServeOptions:
        """Resolve the policies of profiles, so that they are reloaded with everything else."""
        assembly, profiles = self._open, options.get("profiles") or {}
        held = {
            name: each if each.policy is None else replace(each, policy=assembly.policy_at(each.policy))
            for name, each in profiles.items()
        }
        return {**options, "profiles": held}

    # --- requests ----------------------------------------------------------------------------------------------------

    def _asker(self, session: HostSession | None, on_progress: Progress | None = None) -> Asker:
        assembly = self._open
        told = None if on_progress is None else _progress(on_progress)
        assert self._session is not None
        session = session or self._session
        front = LocalFront(self._desk(), session, on_progress=told, on_log=self._options.get("logging"))
        return Asker(
            session=session,
            front=front,
            policy=assembly.policy,
            face=self._options.get("consent"),
            caller=self._options.get("caller", "user"),
            consented_by="user" if self._options.get("typed") else None,
        )

    def _desk(self) -> Desk:
        assert self._own_desk is not None
        return self._own_desk

    def _made_desk(self, assembly: Assembly) -> HostDesk:
        """Build the handler of server requests: reviewed models, forms for a person, else the program's callbacks."""
        options, core = self._options, assembly.core
        given = {name: options[name] for name in _CALLBACKS if name in options}  # type: ignore[literal-required]
        parts = DeskOptions(
            models=options.get("models", ()),
            review=options.get("review"),
            forms=options.get("forms"),
            limits=options.get("sampling_limits", SamplingLimits()),
            notice=options.get("notice"),
            results=lambda session, server: session.results.text(server),
            environ=options.get("environ"),
        )
        rest = CallbackDesk(Answers(settings_from(given), NEWEST, embedded_requests(NEWEST)))
        return open_desk(parts, assembly.policy, audit=core.audit, events=core.events, rest=rest)

    def _named(self, what: str, name: str, item: Item | None) -> Item:
        if item is None:
            raise InvalidParams(f"No server has a {what} {name!r}{self._left_out(name) or self._near(name)}")
        return item

    def _left_out(self, name: str) -> str | None:
        """Return why something that a server offers is not served."""
        catalog = self.catalog
        drops = [*catalog.dropped, *catalog.hidden]
        reason = next((each.reason for each in drops if id_of(each.server, each.name) == name), None)
        return None if reason is None else f" that is served: {reason}"

    def _near(self, name: str) -> str:
        import difflib

        ids = [*self.catalog.tools, *self.catalog.prompts, *self.catalog.templates]
        near = difflib.get_close_matches(name, ids, n=1)
        return f"; did you mean {near[0]!r}?" if near else "; host.catalog has the list"

    def _read(self, item: Item, result: t.CallToolResult) -> CallResult:
        """Parse a result with its structured value, as a client does."""
        known, facts = self._facts.get(item.id, (None, ToolFacts()))
        if known is not item.definition:
            assert isinstance(item.definition, t.Tool)
            facts = ToolFacts()
            facts.learn([item.definition])
            self._facts[item.id] = item.definition, facts
        return facts.read(item.name, result, validate=True)


_CALLBACKS = ("sampling", "sampling_tools", "elicitation", "elicitation_urls", "roots")


def _progress(callback: Progress) -> Callable[[t.ProgressNotificationParams], object]:
    return lambda news: callback(news.progress, news.total, news.message)
