"""The client: one server, with a method for each method of the protocol.

This module is the public API: it builds params and reads results. ``connector`` keeps the connection, ``session``
speaks the agreed revision, ``request_handlers`` answers the server's requests.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec
from msgspec import Raw
from msgspec.structs import replace

import trunkline.types as t
from trunkline.client.changes import ChangeFilter, ChangeStream
from trunkline.client.connector import Connector
from trunkline.client.extension_results import final_result
from trunkline.client.options import CallOptions, ClientOptions, ClientState, ProgressCallback, resolve_settings
from trunkline.client.request_handlers import UNREADABLE, ExtensionResult, all_pages, progress_reporter
from trunkline.client.session import ClientSession, encode
from trunkline.client.skills import SkillMethods
from trunkline.client.targets import resolve_target
from trunkline.client.tool_cache import CallResult, looks_wrapped, names_tasks
from trunkline.errors import (
    HeaderMismatch,
    InvalidParams,
    LocalProtocolError,
    MethodNotFound,
    RemoteProtocolError,
    TrunklineError,
    resource_errors,
)
from trunkline.protocol.input_required import check_result_type
from trunkline.protocol.methods import METHODS, notifications_to_server
from trunkline.types import ProgressNotificationParams

if TYPE_CHECKING:
    from trunkline.client.tasks.client import ClientTasks, TaskHandle, TaskState
    from trunkline.extensions.apps.reading import AppPage

__all__ = ["Client", "completion_argument"]

T = TypeVar("T")
_NOTIFICATIONS = frozenset(row.name for row in METHODS if row.kind == "notification")


class Client(SkillMethods):
    """A client of one server; ``async with`` connects and disconnects.

    The target is a server object, a link, a URL, a ``.py`` file, a command (a list, or one string as in a terminal), or
    one ``mcpServers`` entry. The keyword arguments are those of ``ClientOptions``.
    """

    def __init__(self, target: object, **options: Unpack[ClientOptions]) -> None:
        """Resolve the target and the options; nothing is started yet.

        Raises:
            ConfigError: the target or an option is invalid.
        """
        self._settings = resolve_settings(options, target)
        self._core = Connector(resolve_target(target, self._settings), self._settings)
        self._on_progress = self._settings.on_progress
        self._users = 0
        self._change_task: asyncio.Task[None] | None = None
        self._tools_task: asyncio.Task[None] | None = None
        self._task_client: ClientTasks | None = None

    async def __aenter__(self) -> Client:
        """Connect and negotiate a revision; nested entering is allowed and connects only once."""
        if self._users == 0 or self._core.lifecycle.state is ClientState.TERMINATED:
            self._users = 0
            await self._core.enter()
            if self._settings.on_change is not None:
                self._change_task = asyncio.get_running_loop().create_task(
                    self._watch_changes(self._settings.on_change)
                )
        self._users += 1
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Disconnect when the outermost block ends."""
        self._users -= 1
        if self._users <= 0:
            await self.aclose()

    async def aclose(self) -> None:
        """Disconnect; any task may call this, at any time and more than once."""
        self._users = 0
        follower, self._change_task = self._change_task, None
        await self._core.aclose()
        if follower is not None and follower is not asyncio.current_task():
            follower.cancel()
            await asyncio.wait([follower])

    async def _watch_changes(self, on_change: Callable[[Any], object]) -> None:
        """Pass every change of the lists to the callback; how changes arrive differs between the eras."""
        # Ends with the client, or when the server is gone for good, which the next call will report.
        with contextlib.suppress(TrunklineError):
            async for change in self.listen():
                self._core.callbacks.notify(on_change, change)

    # --- state -------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ClientState:
        """The current lifecycle state of the client."""
        return self._core.lifecycle.state

    @property
    def reason(self) -> Exception | None:
        """Why the client failed, if it did."""
        return self._core.lifecycle.reason

    @property
    def revision(self) -> str | None:
        """The name of the revision negotiated last; None before the first connection."""
        agreement = self._core.agreement
        return None if agreement is None else agreement.revision.name

    @property
    def server_info(self) -> t.Implementation | None:
        """The server's name and version as it reports them; for display only."""
        agreement = self._core.agreement
        return None if agreement is None else agreement.server_info

    @property
    def server_capabilities(self) -> dict[str, Any]:
        """The capabilities that the server declared, unchanged; empty before the first connection."""
        agreement = self._core.agreement
        return {} if agreement is None else agreement.capabilities

    @property
    def instructions(self) -> str | None:
        """The server's instructions for its use."""
        agreement = self._core.agreement
        return None if agreement is None else agreement.instructions

    @property
    def dropped(self) -> int:
        """The number of messages that were dropped: late or unknown answers, unreadable notifications."""
        return self._core.dropped

    # --- lists -------------------------------------------------------------------------------------------------------

    async def list_tools(self) -> list[t.Tool]:
        """List the server's tools, all pages."""
        tool_cache = self._core.tool_cache
        epoch = tool_cache.epoch
        tools: list[t.Tool] = await self._all("tools/list", "tools")
        tool_cache.complete = tool_cache.epoch == epoch
        return tools

    async def list_resources(self) -> list[t.Resource]:
        """List the server's resources, all pages."""
        return await self._all("resources/list", "resources")

    async def list_resource_templates(self) -> list[t.ResourceTemplate]:
        """List the server's resource templates, all pages."""
        return await self._all("resources/templates/list", "resource_templates")

    async def list_prompts(self) -> list[t.Prompt]:
        """List the server's prompts, all pages."""
        return await self._all("prompts/list", "prompts")

    async def list_page(self, method: str, cursor: str | None = None) -> Any:
        """Fetch one page of a list by its method; the result has the items and ``next_cursor``."""
        params = t.PaginatedRequestParams(cursor=cursor)
        page = await self._core.fetch(method, params, key=cursor)
        if isinstance(page, t.ListToolsResult):
            tool_cache, session = self._core.tool_cache, self._core.session
            tool_cache.add(page.tools)
            if (
                session is not None
                and session.mirrors
                and len(tools := tool_cache.usable(page.tools)) < len(page.tools)
            ):
                page = replace(page, tools=tools)
        return page

    async def _all(self, method: str, member: str) -> list[Any]:
        async def fetch(cursor: str | None) -> Any:
            return await self.list_page(method, cursor)

        try:
            return await all_pages(fetch, member, limit=self._settings.limits.pages)
        except InvalidParams:
            # The cursor of a cached page may have expired; the specification says to fetch again from the beginning.
            if not self._core.cache.has(method):
                raise
            self._core.cache.forget(method)
            return await all_pages(fetch, member, limit=self._settings.limits.pages)

    # --- calls -------------------------------------------------------------------------------------------------------

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: ProgressCallback | None = None,
        progress_handler: ProgressCallback | None = None,
        timeout: float | None = None,
        total_timeout: float | None = None,
        raise_on_error: bool = True,
        meta: Mapping[str, Any] | None = None,
    ) -> CallResult:
        """Call a tool; ``timeout`` limits silence, ``total_timeout`` the whole call.

        Cancelling the task cancels the call on the server.

        Raises:
            ToolError: the tool reported a failure.
            RequestFailed: the server rejected the call or failed; the class says how.
            LinkError: the connection was lost, or a timeout fired.
        """
        core = self._core
        params = _call_params(name, arguments)
        session = core.session or await core.get_session()
        progress = self._progress(on_progress or progress_handler or self._on_progress)
        options = core.call_options(timeout, total_timeout, progress, meta)
        if session.core_tasks and core.tool_cache.needs_task(name):
            result = await self._tasks.call(params, options)
        else:
            try:
                result, _ = await self._send_call(session, params, options)
            except MethodNotFound:
                if not (session.core_tasks and await self._requires_task(name)):
                    raise
                result = await self._tasks.call(params, options)
        if isinstance(result, ExtensionResult):
            result = await self._resolve(name, result, options)
        elif result.is_error and session.core_tasks and names_tasks(result) and await self._requires_task(name):
            result = await self._tasks.call(params, options)
        if looks_wrapped(result.structured_content) and not core.tool_cache.has(name):
            await self._load_tools()
        answer = core.tool_cache.read(
            name, result, validate=self._settings.validate, structured_content=session.revision.structured_content
        )
        return answer.raise_for_error() if raise_on_error and answer.is_error else answer

    # --- tasks and other kinds of results ----------------------------------------------------------------------------

    @property
    def _tasks(self) -> ClientTasks:
        """The tasks of this client; the extension is imported on first use."""
        if self._task_client is None:
            from trunkline.client.tasks.client import ClientTasks

            self._task_client = ClientTasks(self, self._core)
        return self._task_client

    async def start_task(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, ttl: float | None = None
    ) -> TaskHandle:
        """Call a tool as a task and return its handle at once; ``ttl`` requests how many seconds to keep the task.

        If the server answers directly, the handle is done at once.

        Raises:
            MissingCapability: the server has no tasks.
        """
        return await self._tasks.start(_call_params(name, arguments), self._core.options, ttl=ttl)

    def task(self, id: str, *, tool: str | None = None) -> TaskHandle:
        """Return the handle of a task by its id, such as one that was started before this program was restarted.

        With the name of the tool, its output schema is used to read the result.
        """
        return self._tasks.find(id, tool)

    async def _wait_for_task(self, handle: TaskHandle, on_state: Callable[[TaskState], None]) -> t.CallToolResult:
        """Wait for a task and return its raw result; internal, for gateways."""
        return await self._tasks.wait_for_result(handle, on_state)

    async def _allows_task(self, name: str) -> bool:
        """Return True if the list of tools allows calling a tool as a task; internal, for tasks."""
        if not self._core.tool_cache.has(name):
            await self._load_tools()
        return self._core.tool_cache.allows_task(name)

    def _send_call(
        self, session: ClientSession, params: t.CallToolRequestParams, options: CallOptions
    ) -> Awaitable[tuple[Any, bool]]:
        """Call a tool, with mirrored headers where the revision has them; internal, for tasks."""
        if session.mirrors:
            return self._call_with_headers(self._core.call, params, options)
        return self._core.call("tools/call", params, options)

    async def _read_call(self, name: str | None, result: t.CallToolResult, *, raise_on_error: bool) -> CallResult:
        """Decode the result of a tool as ``call_tool`` does; internal, for tasks."""
        tool_cache = self._core.tool_cache
        if name is not None and looks_wrapped(result.structured_content) and not tool_cache.has(name):
            await self._load_tools()
        answer = tool_cache.read(name or "", result, validate=self._settings.validate)
        return answer.raise_for_error() if raise_on_error and answer.is_error else answer

    async def _requires_task(self, name: str) -> bool:
        """Return True if a tool whose call failed must be called as a task.

        Only the list says so, and it may not have been read yet.
        """
        if self._core.tool_cache.has(name):
            return False
        await self._load_tools()
        return self._core.tool_cache.needs_task(name)

    async def _resolve(self, name: str, result: ExtensionResult, options: CallOptions) -> t.CallToolResult:
        """Convert a result of a kind that an extension adds into the final result."""
        if result.kind == "task":
            return await self._tasks.wait(self._tasks.handle(result, name), options)
        final: t.CallToolResult = await final_result(self, "tools/call", result)
        return final

    async def forward(
        self,
        method: str,
        params: Any,
        *,
        timeout: float | None = None,
        total_timeout: float | None = None,
        on_progress: Callable[[ProgressNotificationParams], None] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> tuple[Any, Raw]:
        """Forward a request on behalf of another caller for one round; return the result decoded and raw.

        If the server asks for input, that is the result: nothing is answered here. What ``meta`` says about the caller
        replaces what this client would say.
        """
        core = self._core
        session = core.session or await core.get_session()
        options = core.call_options(timeout, total_timeout, on_progress, meta)
        if session.mirrors and isinstance(params, t.CallToolRequestParams):
            return await self._call_with_headers(core.forward, params, options)
        return await core.forward(method, params, options)

    async def _call_with_headers(
        self,
        send: Callable[[str, Any, CallOptions], Awaitable[tuple[Any, T]]],
        params: t.CallToolRequestParams,
        options: CallOptions,
    ) -> tuple[Any, T]:
        """Call a tool whose arguments are mirrored in headers; only the tool list says which ones."""
        core, name = self._core, params.name
        if not core.tool_cache.has(name):
            await self._load_tools_once()
        headers = core.tool_cache.mirrored_headers(name, params.arguments)
        try:
            return await send("tools/call", params, replace(options, headers=headers))
        except HeaderMismatch:
            # Streamable HTTP, Client Behavior: the list may have changed; the call is repeated with the right headers.
            core.cache.forget("tools/list")
            core.tool_cache.forget()
            await self._load_tools()
            again = core.tool_cache.mirrored_headers(name, params.arguments)
            if again == headers or not core.tool_cache.has(name):
                raise
        return await send("tools/call", params, replace(options, headers=again))

    async def _load_tools_once(self) -> None:
        """List the tools unless that was tried before; concurrent calls wait for the same list."""
        if self._tools_task is None:
            if self._core.tool_cache.asked:
                return
            self._core.tool_cache.asked = True
            self._tools_task = asyncio.get_running_loop().create_task(self._load_tools())
            self._tools_task.add_done_callback(self._tools_loaded)
        await asyncio.shield(self._tools_task)

    def _tools_loaded(self, task: asyncio.Task[None]) -> None:
        self._tools_task = None

    async def _load_tools(self) -> None:
        """List the tools for their schemas: only those say whether a result is wrapped, and what goes into headers."""
        with contextlib.suppress(TrunklineError):
            await self.list_tools()

    def _progress(self, callback: ProgressCallback | None) -> Callable[[ProgressNotificationParams], None] | None:
        return None if callback is None else progress_reporter(self._core.callbacks.notify, callback)

    async def read_resource(self, uri: str, *, meta: Mapping[str, Any] | None = None) -> list[t.ResourceContents]:
        """Read a resource; a read with ``_meta`` of its own is not cached, since the result may depend on it."""
        uri = str(uri)
        params = t.ReadResourceRequestParams(uri=uri)
        with resource_errors(uri):
            if meta is None:
                result = await self._core.fetch("resources/read", params, key=uri)
            else:
                options = self._core.call_options(meta=meta)
                result, _ = await self._core.call("resources/read", params, options)
            contents: list[t.ResourceContents] = (await final_result(self, "resources/read", result)).contents
        return contents

    async def read_app(self, app: str | t.Tool) -> AppPage:
        """Read a page (MCP Apps): the page of a tool (a ``Tool`` or its name), or the page with a ``ui://`` URI.

        Raises:
            LocalProtocolError: this client did not declare that it shows pages.
            InvalidParams: there is no such tool, or it has no page.
            RemoteProtocolError: the response is not a page, is too large, or has an invalid declaration.
        """
        from trunkline.extensions.apps.reading import read_page
        from trunkline.protocol.apps import declares_apps

        if not declares_apps({"extensions": self._settings.extensions}):
            raise LocalProtocolError("This client did not declare that it shows pages: pass apps=True to Client.")
        return await read_page(self, app)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, meta: Mapping[str, Any] | None = None
    ) -> t.GetPromptResult:
        """Render a prompt; an argument that is not a string is sent as JSON."""
        texts = None if arguments is None else {key: _as_text(value) for key, value in arguments.items()}
        params = t.GetPromptRequestParams(name=name, arguments=texts)
        result, _ = await self._core.call("prompts/get", params, self._core.call_options(meta=meta))
        prompt: t.GetPromptResult = await final_result(self, "prompts/get", result)
        return prompt

    async def complete(
        self,
        ref: t.CompletionReference | Mapping[str, str],
        argument: t.CompletionArgument | Mapping[str, str],
        *,
        context: Mapping[str, str] | None = None,
    ) -> t.Completion:
        """Complete an argument of a prompt or template; ``context`` holds the arguments filled in before.

        The reference and the argument may be mappings in the form of the protocol, such as ``{"type": "ref/prompt",
        "name": "report"}`` and ``{"name": "city", "value": "Os"}``.

        Raises:
            TypeError: the reference or the argument has another form.
        """
        before = None if context is None else t.CompletionContext(arguments=dict(context))
        params = t.CompleteRequestParams(ref=_reference(ref), argument=completion_argument(argument), context=before)
        result, _ = await self._core.call("completion/complete", params)
        completion: t.Completion = (await final_result(self, "completion/complete", result)).completion
        return completion

    async def ping(self) -> None:
        """Check that the server responds; stateless revisions have no ``ping`` and use ``server/discover``."""
        session = await self._core.get_session()
        method = "ping" if "ping" in session.allowed else "server/discover"
        await self._core.call(method, t.RequestParams())

    async def set_logging_level(self, level: t.LoggingLevel) -> None:
        """Set the minimum level of log messages: sent once, or in stateless revisions with each request."""
        session = await self._core.get_session()
        if session.revision.handshake:
            await self._core.call("logging/setLevel", t.SetLevelRequestParams(level=level))
        self._core.log_level = level
        session.set_log_level(level)

    # --- changes -----------------------------------------------------------------------------------------------------

    def listen(
        self,
        *,
        tools: bool | None = None,
        prompts: bool | None = None,
        resources: bool | str | Iterable[str] | None = None,
        uris: str | Iterable[str] = (),
    ) -> ChangeStream:
        """Iterate over changes: of all lists, or only of the named lists and resources.

        ``resources=True`` is the list of resources; ``resources=["note://one"]`` are these resources, as is ``uris=``.

        ``async for change in client.listen()`` is enough; ``async with client.listen() as changes`` is already
        listening when its block begins.
        """
        return ChangeStream(self._core, ChangeFilter.of(tools=tools, prompts=prompts, resources=resources, uris=uris))

    async def subscribe(self, uri: str) -> None:
        """Subscribe to changes of a resource (handshake revisions; ``listen`` works in all)."""
        await self._core.add_subscription(uri)

    async def unsubscribe(self, uri: str) -> None:
        """Unsubscribe from a resource."""
        await self._core.drop_subscription(uri)

    # --- custom methods ----------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        result: Any = Any,
        on_progress: ProgressCallback | None = None,
        timeout: float | None = None,
        total_timeout: float | None = None,
    ) -> Any:
        """Send a request that is not part of the protocol, and decode its result as JSON or as the given type.

        Raises:
            MissingCapability: it belongs to an extension that the server did not declare; nothing was sent.
        """
        members = dict(params or {})
        progress = self._progress(on_progress or self._on_progress)
        options = self._core.call_options(timeout, total_timeout, progress, members.get("_meta"))

        async def ask(session: ClientSession) -> tuple[Raw, bool, Container[tuple[str, str]]]:
            session.check_extension(method)
            raw = await session.request(method, members, options)
            return raw, session.revision.result_type, session.result_kinds

        raw, has_kind, session_kinds = await self._core.with_session(ask)
        try:
            value = msgspec.json.decode(raw, type=result)
        except UNREADABLE as error:
            raise RemoteProtocolError(f"The answer to {method} cannot be read: {error}") from error
        kind = value.get("resultType") if isinstance(value, dict) else None
        if kind is not None and (method, kind) in session_kinds:
            return value
        return check_result_type(value) if has_kind else value

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification that is not part of the protocol.

        Raises:
            MissingCapability: it belongs to an extension that the server did not declare; nothing was sent.
        """
        session = await self._core.get_session()
        session.check_extension(method)
        if method in _NOTIFICATIONS and method not in notifications_to_server(session.revision):
            raise LocalProtocolError(f"Clients do not send {method} in revision {session.revision.name}.")
        given = session.with_declaration(method, params)
        session.connection.notify(method, None if given is None else Raw(encode(given)))

    async def notify_roots_changed(self) -> None:
        """Notify the server that the roots changed; stateless servers ask each time, so nothing is sent to them."""
        session = await self._core.get_session()
        if session.revision.handshake and self._settings.roots is not None:
            session.connection.notify("notifications/roots/list_changed")


def _call_params(name: str, arguments: Mapping[str, Any] | None) -> t.CallToolRequestParams:
    return t.CallToolRequestParams(name=name, arguments=None if arguments is None else Raw(encode(arguments)))


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def completion_argument(argument: t.CompletionArgument | Mapping[str, str]) -> t.CompletionArgument:
    """Return the argument to complete, from an object or a mapping.

    Raises:
        TypeError: it is neither, or a member is missing.
    """
    if isinstance(argument, t.CompletionArgument):
        return argument
    if isinstance(argument, Mapping) and isinstance(argument.get("name"), str):
        value = argument.get("value", "")
        if isinstance(value, str) and not set(argument) - {"name", "value"}:
            return t.CompletionArgument(name=argument["name"], value=value)
    raise TypeError(
        f'argument= is a CompletionArgument or a mapping such as {{"name": "city", "value": "Os"}}, not {argument!r}'
    )


def _reference(ref: t.CompletionReference | Mapping[str, str]) -> t.CompletionReference:
    if isinstance(ref, t.PromptReference | t.ResourceTemplateReference):
        return ref
    if isinstance(ref, Mapping):
        name, uri = ref.get("name"), ref.get("uri")
        if isinstance(name, str) and ref.get("type", "ref/prompt") == "ref/prompt":
            return t.PromptReference(name=name)
        if isinstance(uri, str) and ref.get("type", "ref/resource") == "ref/resource":
            return t.ResourceTemplateReference(uri=uri)
    raise TypeError(
        "ref= is a PromptReference, a ResourceTemplateReference or a mapping such as "
        f'{{"type": "ref/prompt", "name": "report"}}, not {ref!r}'
    )
