"""The client: one server, with a method for each method of the protocol.

This module is the public API: it builds params and reads results. ``connector`` keeps the connection, ``session``
speaks the agreed revision, ``request_handlers`` answers the server's requests.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Unpack

import msgspec
from msgspec import Raw
from msgspec.structs import replace

import trunkline.types as t
from trunkline.client.contact import Contact, encode
from trunkline.client.core import Core
from trunkline.client.listening import Listener, Wanted
from trunkline.client.options import Options, Progress, settings_from
from trunkline.client.paging import all_pages
from trunkline.client.reading import UNREADABLE
from trunkline.client.state import State
from trunkline.client.targets import find_target
from trunkline.client.tool_facts import CallResult, looks_wrapped
from trunkline.errors import HeaderMismatch, InvalidParams, LocalProtocolError, RemoteProtocolError, TrunklineError
from trunkline.protocol.methods import METHODS, notifications_to_server
from trunkline.protocol.rounds import check_kind
from trunkline.types import ProgressNotificationParams

__all__ = ["Client"]

_NOTIFICATIONS = frozenset(row.name for row in METHODS if row.kind == "notification")


class Client:
    """A client of one server; ``async with`` connects and disconnects.

    The target is a server object, a link, a URL, a ``.py`` file, a command (a list, or one string as in a terminal), or
    one ``mcpServers`` entry. The keyword arguments are those of ``ClientOptions``.
    """

    def __init__(self, target: object, **options: Unpack[Options]) -> None:
        """Resolve the target and the options; nothing is started yet.

        Raises:
            ConfigError: the target or an option is invalid.
        """
        self._settings = settings_from(options, target)
        self._core = Core(find_target(target, self._settings), self._settings)
        self._patience = self._core.patience()
        self._on_progress = self._settings.on_progress
        self._users = 0
        self._follower: asyncio.Task[None] | None = None
        self._learning: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Client:
        """Connect and negotiate a revision; nested entering is allowed and connects only once."""
        if self._users == 0 or self._core.life.state is State.TERMINATED:
            self._users = 0
            await self._core.enter()
            if self._settings.on_change is not None:
                self._follower = asyncio.get_running_loop().create_task(self._follow(self._settings.on_change))
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
        follower, self._follower = self._follower, None
        await self._core.aclose()
        if follower is not None and follower is not asyncio.current_task():
            follower.cancel()
            await asyncio.wait([follower])

    async def _follow(self, on_change: Callable[[Any], object]) -> None:
        """Pass every change of the lists to the callback; how changes arrive differs between the eras."""
        # Ends with the client, or when the server is gone for good, which the next call will report.
        with contextlib.suppress(TrunklineError):
            async for change in self.listen():
                self._core.callbacks.tell(on_change, change)

    # --- state -------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The current lifecycle state of the client."""
        return self._core.life.state

    @property
    def reason(self) -> Exception | None:
        """Why the client failed, if it did."""
        return self._core.life.reason

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
        facts = self._core.facts
        epoch = facts.epoch
        tools: list[t.Tool] = await self._all("tools/list", "tools")
        facts.complete = facts.epoch == epoch
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
        page = await self._core.fetch(method, params, key=cursor, patience=self._patience)
        if isinstance(page, t.ListToolsResult):
            facts, contact = self._core.facts, self._core.contact
            facts.learn(page.tools)
            if contact is not None and contact.mirrors and len(tools := facts.usable(page.tools)) < len(page.tools):
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
        on_progress: Progress | None = None,
        progress_handler: Progress | None = None,
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
        params = t.CallToolRequestParams(name=name, arguments=None if arguments is None else Raw(encode(arguments)))
        contact = core.contact or await core.reach()
        result, _ = await (self._mirror if contact.mirrors else _plainly)(
            core.call,
            params,
            patience=self._patience
            if timeout is None and total_timeout is None
            else core.patience(timeout, total_timeout),
            on_progress=self._progress(on_progress or progress_handler or self._on_progress),
            meta=meta,
            repeat=core.facts.repeatable(name),
        )
        if looks_wrapped(result.structured_content) and not core.facts.knows(name):
            await self._learn()
        answer = core.facts.read(name, result, validate=self._settings.validate)
        return answer.raise_for_error() if raise_on_error and answer.is_error else answer

    async def pass_on(
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
        contact = core.contact or await core.reach()
        patience = (
            self._patience if timeout is None and total_timeout is None else core.patience(timeout, total_timeout)
        )
        if contact.mirrors and isinstance(params, t.CallToolRequestParams):
            return await self._mirror(core.pass_on, params, patience=patience, on_progress=on_progress, meta=meta)
        return await core.pass_on(method, params, patience=patience, on_progress=on_progress, meta=meta)

    async def _mirror(self, call: Callable[..., Any], params: t.CallToolRequestParams, **how: Any) -> tuple[Any, Any]:
        """Call a tool whose arguments are mirrored in headers; only the tool list says which ones."""
        core, name = self._core, params.name
        if not core.facts.knows(name):
            await self._learn_once()
        headers = core.facts.mirrored(name, params.arguments)
        if "repeat" in how:
            how["repeat"] = core.facts.repeatable(name)
        try:
            return await call("tools/call", params, headers=headers, **how)  # type: ignore[no-any-return]
        except HeaderMismatch:
            # Streamable HTTP, Client Behavior: the list may have changed; the call is repeated with the right headers.
            core.cache.forget("tools/list")
            core.facts.forget()
            await self._learn()
            again = core.facts.mirrored(name, params.arguments)
            if again == headers or not core.facts.knows(name):
                raise
        return await call("tools/call", params, headers=again, **how)  # type: ignore[no-any-return]

    async def _learn_once(self) -> None:
        """List the tools unless that was tried before; concurrent calls wait for the same list."""
        if self._learning is None:
            if self._core.facts.asked:
                return
            self._core.facts.asked = True
            self._learning = asyncio.get_running_loop().create_task(self._learn())
            self._learning.add_done_callback(self._learnt)
        await asyncio.shield(self._learning)

    def _learnt(self, task: asyncio.Task[None]) -> None:
        self._learning = None

    async def _learn(self) -> None:
        """List the tools for their schemas: only those say whether a result is wrapped, and what goes into headers."""
        with contextlib.suppress(TrunklineError):
            await self.list_tools()

    def _progress(self, callback: Progress | None) -> Callable[[ProgressNotificationParams], None] | None:
        if callback is None:
            return None
        tell = self._core.callbacks.tell
        return lambda news: tell(callback, news.progress, news.total, news.message)

    async def read_resource(self, uri: str) -> list[t.ResourceContents]:
        """Read a resource."""
        uri = str(uri)
        params = t.ReadResourceRequestParams(uri=uri)
        result = await self._core.fetch("resources/read", params, key=uri, patience=self._patience)
        contents: list[t.ResourceContents] = result.contents
        return contents

    async def get_prompt(self, name: str, arguments: Mapping[str, Any] | None = None) -> t.GetPromptResult:
        """Render a prompt; an argument that is not a string is sent as JSON."""
        texts = None if arguments is None else {key: _as_text(value) for key, value in arguments.items()}
        params = t.GetPromptRequestParams(name=name, arguments=texts)
        result, _ = await self._core.call("prompts/get", params, patience=self._patience, repeat=True)
        prompt: t.GetPromptResult = result
        return prompt

    async def complete(
        self,
        ref: t.CompletionReference,
        argument: t.CompletionArgument | Mapping[str, str],
        *,
        context: Mapping[str, str] | None = None,
    ) -> t.Completion:
        """Complete an argument of a prompt or template; ``context`` holds the arguments filled in before."""
        if isinstance(argument, Mapping):
            argument = t.CompletionArgument(name=argument["name"], value=argument["value"])
        before = None if context is None else t.CompletionContext(arguments=dict(context))
        params = t.CompleteRequestParams(ref=ref, argument=argument, context=before)
        result, _ = await self._core.call("completion/complete", params, patience=self._patience, repeat=True)
        completion: t.Completion = result.completion
        return completion

    async def ping(self) -> None:
        """Check that the server responds; stateless revisions have no ``ping`` and use ``server/discover``."""
        contact = await self._core.reach()
        method = "ping" if "ping" in contact.allowed else "server/discover"
        await self._core.call(method, t.RequestParams(), patience=self._patience, repeat=True)

    async def set_logging_level(self, level: t.LoggingLevel) -> None:
        """Set the minimum level of log messages: sent once, or in stateless revisions with each request."""
        contact = await self._core.reach()
        if contact.revision.handshake:
            params = t.SetLevelRequestParams(level=level)
            await self._core.call("logging/setLevel", params, patience=self._patience, repeat=True)
        self._core.log_level = level
        contact.set_log_level(level)

    # --- changes -----------------------------------------------------------------------------------------------------

    def listen(
        self,
        *,
        tools: bool | None = None,
        prompts: bool | None = None,
        resources: bool | None = None,
        uris: Iterable[str] = (),
    ) -> Listener:
        """Iterate over changes: of all lists, or only of the named lists and resources.

        ``async for change in client.listen()`` is enough; ``async with client.listen() as changes`` is already
        listening when its block begins.
        """
        return Listener(self._core, Wanted.of(tools=tools, prompts=prompts, resources=resources, uris=uris))

    async def subscribe(self, uri: str) -> None:
        """Subscribe to changes of a resource (handshake revisions; ``listen`` works in all)."""
        await self._core.hold(uri)

    async def unsubscribe(self, uri: str) -> None:
        """Unsubscribe from a resource."""
        await self._core.release(uri)

    # --- custom methods ----------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        result: Any = Any,
        on_progress: Progress | None = None,
        timeout: float | None = None,
        total_timeout: float | None = None,
    ) -> Any:
        """Send a request that is not part of the protocol, and decode its result as JSON or as the given type."""
        patience = self._core.patience(timeout, total_timeout)
        progress = self._progress(on_progress or self._on_progress)

        async def ask(contact: Contact) -> tuple[Raw, bool]:
            raw = await contact.request(method, dict(params or {}), patience=patience, on_progress=progress)
            return raw, contact.revision.result_type

        raw, has_kind = await self._core.use(ask)
        try:
            value = msgspec.json.decode(raw, type=result)
        except UNREADABLE as error:
            raise RemoteProtocolError(f"The answer to {method} cannot be read: {error}") from error
        return check_kind(value) if has_kind else value

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification that is not part of the protocol."""
        contact = await self._core.reach()
        if method in _NOTIFICATIONS and method not in notifications_to_server(contact.revision):
            raise LocalProtocolError(f"Clients do not send {method} in revision {contact.revision.name}.")
        contact.connection.notify(method, None if params is None else Raw(encode(params)))

    async def notify_roots_changed(self) -> None:
        """Notify the server that the roots changed; stateless servers ask each time, so nothing is sent to them."""
        contact = await self._core.reach()
        if contact.revision.handshake and self._settings.roots is not None:
            contact.connection.notify("notifications/roots/list_changed")


def _plainly(call: Callable[..., Awaitable[tuple[Any, Any]]], params: Any, **how: Any) -> Awaitable[tuple[Any, Any]]:
    """Call a tool without mirrored headers."""
    return call("tools/call", params, **how)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode()
