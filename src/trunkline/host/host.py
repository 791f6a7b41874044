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
from trunkline.client.options import ProgressCallback, check_option_names, resolve_settings
from trunkline.client.request_handlers import RequestHandlers
from trunkline.client.tool_cache import CallResult, ToolCache
from trunkline.errors import ConfigError, InvalidParams
from trunkline.host.assembly import Assembly, HostOptions, ReloadResult, assemble
from trunkline.host.authorization.authorizer import usable_counts, with_usable_counts
from trunkline.host.authorization.denial_messages import NO_CONSENT_OPTION, NO_PROMPTER
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.config.model import Configuration
from trunkline.host.events import DefinitionInspected, EventSubscription
from trunkline.host.gateway.app import ServeOptions
from trunkline.host.gateway.gateway import Gateway
from trunkline.host.gateway.sessions import GatewayOptions
from trunkline.host.requester import Requester
from trunkline.host.server_requests.elicitation import ElicitationHandler
from trunkline.host.server_requests.handlers import (
    CallbackRequestHandler,
    HostRequestHandler,
    ServerRequestHandler,
    review_recorder,
)
from trunkline.host.server_requests.sampling.handler import SamplingHandler, SamplingOptions
from trunkline.host.server_requests.sampling.limits import SamplingLimits
from trunkline.host.server_requests.sampling.model_request import SamplingModels
from trunkline.host.session import HostSession
from trunkline.host.upstreams.catalog.catalog import Catalog
from trunkline.host.upstreams.catalog.items import CatalogItem
from trunkline.host.upstreams.catalog.names import item_id
from trunkline.host.upstreams.routing.channels import LocalChannel
from trunkline.host.upstreams.supervision.sharing import ProcessSharing
from trunkline.host.upstreams.supervision.supervisor import StartProgress
from trunkline.host.upstreams.supervision.upstream import ServerStatus
from trunkline.protocol.methods import embedded_requests
from trunkline.protocol.revisions import NEWEST, find_revision

if TYPE_CHECKING:
    from trunkline.extensions.apps.reading import AppPage
    from trunkline.extensions.skills.loading import LoadedSkill
    from trunkline.host.chat.conversation import Attachment, ChatParticipants, ChatReply, Conversation
    from trunkline.host.chat.events import ChatOptions
    from trunkline.host.chat.history import SavedConversation
    from trunkline.host.gateway.worker_links import WorkerLinks
    from trunkline.host.models.interface import Model
    from trunkline.host.skills import HostSkill

__all__ = ["Host"]


class Host:
    """Runs servers side by side and uses them on behalf of one user; ``async with`` starts and closes it."""

    def __init__(self, sources: Sequence[object] = (), **options: Unpack[HostOptions]) -> None:
        """Set the sources; nothing is read or started yet. See ``Host.open``.

        Raises:
            TypeError: an unknown option.
        """
        check_option_names("Host", options, HostOptions.__annotations__)
        self._sources = tuple(sources)
        self._options = options
        self._assembly: Assembly | None = None
        self._session: HostSession | None = None
        #: For each tool the definition (one pin may have several forms) and the cache that parses its results.
        self._facts: dict[str, tuple[Any, ToolCache]] = {}
        self._own_handler: HostRequestHandler | None = None
        #: How server processes are shared with the other processes of a gateway; set before it is opened.
        self._sharing: ProcessSharing | None = None

    @classmethod
    def open(cls, *sources: object, **options: Unpack[HostOptions]) -> Host:
        """Create a host from configuration files (paths), mappings of servers, or the default locations.

        A mapping has an ``mcpServers`` entry, a ``Server`` object or a ``.py`` file under each name. Options are those
        of ``HostOptions``.
        """
        return cls(sources, **options)

    async def __aenter__(self) -> Host:
        """Load the configuration and start the servers that may run.

        Raises:
            ConfigError: a named configuration or policy cannot be read, or the host is already open.
        """
        if self._assembly is not None:
            raise ConfigError("The host is already open. Close it first, or create another one.")
        self._assembly = await assemble(self._sources, self._options, self._sharing)
        try:
            self._own_handler = self._build_handler(self._assembly)
            self._assembly.declared_capabilities = self._own_handler.capabilities
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
        request_handler, self._own_handler = self._own_handler, None
        if request_handler is not None:
            await request_handler.aclose()
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

    def status(self) -> list[ServerStatus]:
        """Return the state of each server, with its reason and the number of tools that can be used."""
        counts = usable_counts(self.catalog, self.policy)
        upstreams = self._open.core.supervisor.upstreams.values()
        return [with_usable_counts(upstream.status, counts.get(upstream.entry.name, {})) for upstream in upstreams]

    def start_progress(self) -> StartProgress:
        """Return how far the start of the enabled servers is; also while the host is being opened."""
        return StartProgress() if self._assembly is None else self._assembly.core.supervisor.start_progress

    def inspected(self) -> list[DefinitionInspected]:
        """Return the findings on the servers' definitions: changed, flagged, hidden or not in the lock file."""
        return list(self._open.core.inspected)

    def events(self) -> EventSubscription:
        """Subscribe to events: ``async for event in host.events()``."""
        return self._open.core.events.subscribe()

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

    async def reload(self) -> ReloadResult:
        """Reload the configuration and the policies; only servers that changed are touched.

        Raises:
            ConfigError: something cannot be read; everything stays as it was.
        """
        return await self._open.reload()

    async def restart(self, name: str) -> None:
        """Restart a server, also one that is no longer restarted automatically."""
        await self._open.core.upstream(name).restart()

    async def start(self, name: str) -> None:
        """Start a server that is stopped, idle or failed, and wait for the outcome; a running one is not changed."""
        upstream = self._open.core.upstream(name)
        if not upstream.running and not upstream.busy:
            await upstream.restart()

    async def stop(self, name: str) -> None:
        """Stop a server until it is started again; returns when its process has ended."""
        await self._open.core.upstream(name).stop()

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
        on_progress: ProgressCallback | None = None,
        raise_on_error: bool = True,
    ) -> CallResult:
        """Call a tool by its id, ``server/tool``.

        Raises:
            PolicyDenied: the policy or the user denied it.
            ServerUnavailable: the server is not running.
            ToolError: the tool reports an error.
        """
        if self.catalog.find_tool(name) is None:
            await self._open.core.find_late(name.partition("/")[0])
        item = self._named("tool", name, self.catalog.find_tool(name))
        requester = self._requester(session, on_progress)
        result = await self._open.core.call_tool(item, dict(arguments or {}), requester)
        answer = self._read(item, result)
        return answer.raise_for_error() if raise_on_error and answer.is_error else answer

    async def read_resource(self, uri: str, *, session: HostSession | None = None) -> list[t.ResourceContents]:
        """Read a resource by its id, ``server/uri``, or by its URI if only one server has it."""
        if self.catalog.find_resource(uri) is None:
            await self._open.core.find_late(uri.partition("/")[0])
        found = self.catalog.find_resource(uri)
        if found is None:
            raise InvalidParams(f"No server has a resource {uri!r}; host.catalog.resources has the list")
        server, own, item = found
        result = await self._open.core.read_resource(server, own, item, self._requester(session))
        return result.contents

    async def read_app(self, name: str, *, session: HostSession | None = None) -> AppPage:
        """Read a page (MCP Apps) by the id of a tool that has one, or by the id or URI of the page.

        Raises:
            ConfigError: the host was not opened with ``apps=True``, so servers do not name their pages.
            InvalidParams: there is no such tool or page, or the tool has no page.
            RemoteProtocolError: the response is not a page, is too large, or has an invalid declaration.
        """
        from trunkline.extensions.apps.reading import page_of

        if not self._options.get("apps"):
            raise ConfigError("This host does not show pages: open it with apps=True.")
        tool = self.catalog.find_tool(name)
        if tool is not None and tool.app_uri is None:
            raise InvalidParams(f"The tool {tool.id} has no page: its _meta.ui names no ui:// resource")
        uri = name if tool is None or tool.app_uri is None else item_id(tool.server, tool.app_uri)
        contents = await self.read_resource(uri, session=session)
        found = self.catalog.find_resource(uri)
        listed = None if found is None or found[2] is None else found[2].definition.meta
        return page_of(uri if found is None else found[1], contents, listed)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, session: HostSession | None = None
    ) -> t.GetPromptResult:
        """Render a prompt by its id, ``server/prompt``."""
        if self.catalog.find_prompt(name) is None:
            await self._open.core.find_late(name.partition("/")[0])
        item = self._named("prompt", name, self.catalog.find_prompt(name))
        return await self._open.core.get_prompt(item, dict(arguments or {}), self._requester(session))

    async def list_skills(self, *, session: HostSession | None = None) -> list[HostSkill]:
        """List the skills of all servers without reading their files."""
        from trunkline.host.skills import act_for_skill

        core, requester = self._open.core, self._requester(session)
        await core.first_lists()
        skills = await core.skills.listed(requester.session)
        acts = ((each, act_for_skill(each, caller=requester.caller, session=requester.session)) for each in skills)
        return [each for each, act in acts if self.policy.is_visible(act)]

    async def load_skill(self, skill: str | HostSkill, *, session: HostSession | None = None) -> LoadedSkill:
        """Load a skill, by its label (``server/name``), as ``server/uri``, or as it was listed.

        Raises:
            PolicyDenied: the policy or the user denied it.
            VerificationError: its text does not match its entry.
            InvalidParams: there is no such skill.
        """
        core, requester = self._open.core, self._requester(session)
        if isinstance(skill, str):
            await core.find_late(skill.partition("/")[0])
            found = await core.skills.find(skill, requester.session)
        else:
            found = await core.skills.refresh(skill.server, skill.uri, requester.session, label=skill.label)
        return await core.skills.load(found, requester)

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
        result = await self._open.core.complete(item.server, params, self._requester(session))
        return result.completion

    def conversation(
        self,
        model: Model,
        *,
        session: HostSession | None = None,
        options: ChatOptions | None = None,
        saved: SavedConversation | None = None,
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
        from trunkline.host.chat.conversation import chat

        parties = self._parties(None)
        try:
            return await chat(self._open.core, prompt, parties, model=model, attachments=attachments, options=options)
        finally:
            await self._open.core.close_session(parties.session)

    def _parties(self, session: HostSession | None) -> ChatParticipants:
        from trunkline.host.chat.conversation import ChatParticipants

        assembly = self._open
        prompter = self._options.get("consent")
        return ChatParticipants(
            session=session or self.session(),
            policy=assembly.policy,
            request_handler=self._request_handler(),
            prompter=prompter,
        )

    async def serve(self, **options: Unpack[ServeOptions]) -> None:
        """Serve the catalog as one MCP server, over stdio or HTTP, until stopped."""
        await self._serve(options)

    async def _serve(self, options: ServeOptions, worker: WorkerLinks | None = None) -> None:
        """Serve as above; ``worker`` connects the gateway to the other workers of its supervisor."""
        from trunkline.host.gateway.app import serve

        await serve(self._open, self._held(options), worker)

    def gateway(self, options: GatewayOptions | None = None) -> Gateway:
        """Return the gateway as an in-process server, for ``Client(host.gateway())``; close it after use."""
        assembly = self._open
        return Gateway(assembly.core, assembly.policy, options, prompter=self._options.get("consent"))

    def asgi(self, **options: Unpack[ServeOptions]) -> Any:
        """Return the gateway as an ASGI application, to run or to mount in another."""
        from trunkline.host.gateway.app import application

        return application(self._open, self._held(options))

    def _held(self, options: ServeOptions) -> ServeOptions:
        """Check the names of the options, and resolve the policies of profiles: they are reloaded with everything."""
        check_option_names("The gateway", options, ServeOptions.__annotations__)
        assembly, profiles = self._open, options.get("profiles") or {}
        held = {
            name: each if each.policy is None else replace(each, policy=assembly.policy_at(each.policy))
            for name, each in profiles.items()
        }
        return {**options, "profiles": held}

    # --- requests ----------------------------------------------------------------------------------------------------

    def _requester(self, session: HostSession | None, on_progress: ProgressCallback | None = None) -> Requester:
        assembly = self._open
        told = None if on_progress is None else _progress(on_progress)
        assert self._session is not None
        session = session or self._session
        channel = LocalChannel(self._request_handler(), session, on_progress=told, on_log=self._options.get("logging"))
        return Requester(
            session=session,
            channel=channel,
            policy=assembly.policy,
            prompter=self._options.get("consent"),
            caller=self._options.get("caller", "user"),
            consented_by="user" if self._options.get("typed") else None,
            no_prompt_reason=NO_PROMPTER if self._options.get("typed") else NO_CONSENT_OPTION,
        )

    def _request_handler(self) -> ServerRequestHandler:
        assert self._own_handler is not None
        return self._own_handler

    def _build_handler(self, assembly: Assembly) -> HostRequestHandler:
        """Build the handler of server requests: reviewed models, forms for a person, else the program's callbacks."""
        options, core = self._options, assembly.core
        tell, notice = review_recorder(core.audit, core.events), options.get("notice")
        sampling = elicitation = None
        if models := options.get("models", ()):
            sampling = SamplingHandler(
                _sampling_models(models, options.get("environ")),
                assembly.policy,
                SamplingOptions(
                    review=options.get("review"),
                    limits=options.get("sampling_limits", SamplingLimits()),
                    results=lambda session, server: session.results.text(server),
                    notice=notice,
                    tell=tell,
                ),
            )
        if (forms := options.get("forms")) is not None:
            elicitation = ElicitationHandler(forms, notice=notice, tell=tell)
        given = {name: options[name] for name in _CALLBACKS if name in options}  # type: ignore[literal-required]
        rest = CallbackRequestHandler(RequestHandlers(resolve_settings(given), NEWEST, embedded_requests(NEWEST)))
        apps = options.get("apps", False)
        return HostRequestHandler(sampling=sampling, elicitation=elicitation, rest=rest, apps=apps)

    def _named(self, what: str, name: str, item: CatalogItem | None) -> CatalogItem:
        if item is None:
            raise InvalidParams(f"No server has a {what} {name!r}{self._left_out(name) or self._near(name)}")
        return item

    def _left_out(self, name: str) -> str | None:
        """Return why something that a server offers is not served."""
        catalog = self.catalog
        drops = [*catalog.dropped, *catalog.hidden]
        reason = next((each.reason for each in drops if item_id(each.server, each.name) == name), None)
        return None if reason is None else f" that is served: {reason}"

    def _near(self, name: str) -> str:
        import difflib

        ids = [*self.catalog.tools, *self.catalog.prompts, *self.catalog.templates]
        near = difflib.get_close_matches(name, ids, n=1)
        return f"; did you mean {near[0]!r}?" if near else "; host.catalog has the list"

    def _read(self, item: CatalogItem, result: t.CallToolResult) -> CallResult:
        """Parse a result with its structured value, as a client does."""
        known, facts = self._facts.get(item.id, (None, ToolCache()))
        if known is not item.definition:
            assert isinstance(item.definition, t.Tool)
            facts = ToolCache()
            facts.add([item.definition])
            self._facts[item.id] = item.definition, facts
        revision = find_revision(self.catalog.parts[item.server].offering.revision)
        structured = revision is None or revision.structured_content
        return facts.read(item.name, result, validate=True, structured_content=structured)


_CALLBACKS = ("sampling", "sampling_tools", "elicitation", "elicitation_urls", "roots")


def _sampling_models(models: Sequence[Model | str], environ: Mapping[str, str] | None) -> SamplingModels:
    """Return the models that answer sampling requests, in the user's order; names are opened on demand."""

    def opener(name: str) -> Model:
        from trunkline.host.models.selection import open_model

        return open_model(name, environ=environ)

    opened = [model for model in models if not isinstance(model, str)]
    names = [name for name in models if isinstance(name, str)]
    return SamplingModels(*opened, names=names, opener=opener)


def _progress(callback: ProgressCallback) -> Callable[[t.ProgressNotificationParams], object]:
    return lambda news: callback(news.progress, news.total, news.message)
