"""The context of a handler: the caller, requests and notifications to it, and the server.

It is the same in all revisions. ``BaseContext`` has what does not wait, for both kinds of functions: ``Context`` is for
async ones, and ``BlockingContext``, in a module of its own, for sync ones in worker threads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

from msgspec import Struct

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.protocol.caller import Principal, Session
from trunkline.protocol.channel import Channel, RequestStore
from trunkline.protocol.methods import read_meta
from trunkline.server.client_view import ClientView
from trunkline.server.scopes import check_scopes

if TYPE_CHECKING:
    from trunkline.server.client_requests import ElicitationResult, ModelChoice, RunAsTask, SamplingResult
    from trunkline.server.handles import Handle
    from trunkline.server.runtime import ServerRuntime
    from trunkline.server.server import Server
    from trunkline.types.json_values import JsonInput, JsonObject

    #: Strings of which the user chooses one.
    Choices = list[str] | tuple[str, ...]

__all__ = ["BaseContext", "Context", "wants_level"]

T = TypeVar("T")
P = ParamSpec("P")
_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def wants_level(least: t.LoggingLevel | None, level: t.LoggingLevel) -> bool:
    """Return True if a client that set the least level wants messages of a level; None wants no messages."""
    return least is not None and _LEVELS.index(level) >= _LEVELS.index(least)


class BaseContext:
    """The members of both contexts that do not block."""

    __slots__ = ("_exchange", "_server")

    def __init__(self, server: Server, exchange: Exchange) -> None:
        """Create the context of an exchange for a handler of ``server``."""
        self._server = server
        self._exchange = exchange

    @property
    def server(self) -> Server:
        """The server that the handler belongs to; with composition, the mounted one."""
        return self._server

    @property
    def exchange(self) -> Exchange:
        """The exchange of the request; internal, and may change."""
        return self._exchange

    @property
    def request_id(self) -> str:
        """The id of the request, as a string."""
        return str(self._exchange.id)

    @property
    def method(self) -> str:
        """The method being served."""
        return self._exchange.method

    @property
    def meta(self) -> dict[str, Any]:
        """The request's whole ``_meta``, including keys that are not the protocol's."""
        return read_meta(self._exchange.params)

    @property
    def client(self) -> ClientView:
        """What the client declared about itself."""
        from trunkline.server.client_view import ClientView

        return ClientView(self._exchange.admitted.caller)

    @property
    def client_id(self) -> str | None:
        """The authenticated client, if any."""
        return None if self.auth is None else self.auth.client

    @property
    def session_id(self) -> str | None:
        """The id of the caller's session, if the transport has one."""
        session = self._exchange.admitted.caller.session
        return None if session is None else session.id

    @property
    def auth(self) -> Principal | None:
        """The principal that was authenticated for this request, if any."""
        return self._exchange.admitted.caller.principal

    @property
    def session(self) -> Session | None:
        """The caller's session, which all its requests share; None in the stateless era."""
        return self._exchange.admitted.caller.session

    @property
    def transport(self) -> str:
        """How the request arrived: ``stdio``, ``http``, ``memory``, ``stream``, or another transport's name."""
        return self._exchange.admitted.caller.origin.transport

    @property
    def connection(self) -> Hashable:
        """The connection of the request, as a key: equal for all its requests, and weakly referencable."""
        return self._exchange.connection

    @property
    def params(self) -> t.RequestParams:
        """The params of the request, in the type of its method."""
        params: t.RequestParams = self._exchange.admitted.params
        return params

    @property
    def root_server(self) -> Server:
        """The server that serves the connection; with composition, the outermost one."""
        from trunkline.server.dispatch import root_server

        return root_server(self._exchange)

    @property
    def _runtime(self) -> ServerRuntime:
        """What serves the connection in this event loop: worker threads, timers, the store."""
        from trunkline.server.dispatch import runtime_of

        return runtime_of(self._exchange)

    @property
    def can_ask(self) -> bool:
        """Whether the handler may send requests to the caller: those of tools, prompts and resources may."""
        return self._exchange.admitted.row.input_required

    def check_resource(self, uri: str) -> None:
        """Check that the caller may read a resource of this server, without reading it.

        Raises:
            InsufficientScope: the caller's token does not allow it.
            RequestFailed: there is no such resource that is visible to the caller.
        """
        from trunkline.server.handlers import find_resource

        find_resource(self._server, self._exchange, uri)

    def require_scopes(self, *scopes: str) -> None:
        """Check that the caller's token has scopes, where that depends on the arguments of the call.

        Raises:
            InsufficientScope: it lacks one; over HTTP the client is asked for a token that has them.
        """
        check_scopes(self._exchange, scopes, self.root_server.settings.hierarchy)

    @property
    def lifespan_context(self) -> Any:
        """The value that the server's lifespan yielded."""
        return self._runtime.lifespan_value(self._server)

    @property
    def cancelled(self) -> bool:
        """Whether the caller no longer expects a response."""
        return not self._exchange.open

    @property
    def round(self) -> int:
        """The number of earlier rounds of this call, each of which ended with requests to the caller."""
        channel = self._exchange.channel
        return 0 if channel is None else channel.round

    def get_state(self, key: str) -> Any:
        """Return the value that ``set_state`` stored during this request; None if there is none."""
        return self._store().state.get(key)

    def set_state(self, key: str, value: object) -> None:
        """Store a value for the rest of this request; middleware, dependencies and the handler share it."""
        self._store().state[key] = value

    def _store(self) -> RequestStore:
        if self._exchange.store is None:
            self._exchange.store = RequestStore()
        return self._exchange.store

    def _notify(self, method: str, params: Struct | Mapping[str, object] | None) -> None:
        self._channel().notify(method, params)

    def _channel(self) -> Channel:
        """Return the channel to the caller, created on first use: most handlers neither ask nor notify."""
        channel = self._exchange.channel
        if channel is None:
            from trunkline.server.channels import channel_for

            channel = channel_for(self._exchange)
        return channel

    def _progress_token(self) -> t.ProgressToken | None:
        meta = self._exchange.admitted.params.meta
        return None if meta is None else meta.progress_token

    def _report(self, progress: float, total: float | None, message: str | None) -> None:
        if not isinstance(progress, int | float) or not isinstance(total, int | float | None):
            raise TypeError('report_progress takes numbers, and the text last: report_progress(1, 4, "reading")')
        token, store = self._progress_token(), self._store()
        if token is None and self._exchange.may_become_task:
            # Not sent, but used as the status of the task.
            token = ""
        # The specification: progress MUST increase with each notification.
        if token is None or (store.progress is not None and progress <= store.progress):
            return
        store.progress = progress
        params = t.ProgressNotificationParams(progress_token=token, progress=progress, total=total, message=message)
        self._notify("notifications/progress", params)

    def _log(self, level: t.LoggingLevel, data: JsonInput, logger: str | None) -> None:
        if level not in _LEVELS:
            raise ValueError(
                f"unknown log level {level!r}: the level comes first, then the message; "
                f"the levels are {', '.join(_LEVELS)}"
            )
        least = self._exchange.admitted.caller.log_level
        if least is None and self._exchange.reports_status:
            least = "info"
        if not wants_level(least, level):
            return
        params = t.LoggingMessageNotificationParams(level=level, logger=logger, data=data)
        self._notify("notifications/message", params)


class Context(BaseContext):
    """The request being served, for an async handler."""

    __slots__ = ()

    # --- notifications -----------------------------------------------------------------------------------------------

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Send the caller a progress notification, if it sent a progress token."""
        self._report(progress, total, message)
        await self._exchange.connection.drain()

    async def close_stream(self) -> bool:
        """End the open HTTP response and continue; the caller reconnects for the rest.

        Return whether the caller can do so: only 2025-11-25 over HTTP has this, elsewhere nothing happens.
        """
        return self._exchange.connection.release_stream()

    async def log(
        self,
        level: t.LoggingLevel,
        message: JsonInput,
        *,
        logger_name: str | None = None,
        extra: Mapping[str, JsonInput] | None = None,
        **fields: JsonInput,
    ) -> None:
        """Send the caller a log message, if its log level includes it; ``extra`` and other keywords become data.

        Raises:
            ValueError: there is no such level.
        """
        more = {**(extra or {}), **fields}
        self._log(level, {"message": message, **more} if more else message, logger_name)
        await self._exchange.connection.drain()

    async def debug(
        self,
        message: JsonInput,
        logger_name: str | None = None,
        *,
        extra: Mapping[str, JsonInput] | None = None,
        **fields: JsonInput,
    ) -> None:
        """Log at level debug."""
        await self.log("debug", message, logger_name=logger_name, extra=extra, **fields)

    async def info(
        self,
        message: JsonInput,
        logger_name: str | None = None,
        *,
        extra: Mapping[str, JsonInput] | None = None,
        **fields: JsonInput,
    ) -> None:
        """Log at level info."""
        await self.log("info", message, logger_name=logger_name, extra=extra, **fields)

    async def warning(
        self,
        message: JsonInput,
        logger_name: str | None = None,
        *,
        extra: Mapping[str, JsonInput] | None = None,
        **fields: JsonInput,
    ) -> None:
        """Log at level warning."""
        await self.log("warning", message, logger_name=logger_name, extra=extra, **fields)

    async def error(
        self,
        message: JsonInput,
        logger_name: str | None = None,
        *,
        extra: Mapping[str, JsonInput] | None = None,
        **fields: JsonInput,
    ) -> None:
        """Log at level error."""
        await self.log("error", message, logger_name=logger_name, extra=extra, **fields)

    async def notify(self, method: str, params: Struct | Mapping[str, object] | None = None) -> None:
        """Send the caller a custom notification that belongs to this request.

        A notification of an extension is sent only if the client declared the extension.
        """
        from trunkline.server.extension_methods import may_notify

        if may_notify(self.root_server, self._exchange.admitted.caller, method):
            self._notify(method, params)
        await self._exchange.connection.drain()

    # --- requests to the caller --------------------------------------------------------------------------------------

    @overload
    async def elicit(
        self, message: str, type: None = None, *, key: str | None = None, task: RunAsTask = False
    ) -> ElicitationResult[None]: ...
    @overload
    async def elicit(
        self, message: str, type: type[T], *, key: str | None = None, task: RunAsTask = False
    ) -> ElicitationResult[T]: ...
    @overload
    async def elicit(
        self, message: str, type: Choices, *, key: str | None = None, task: RunAsTask = False
    ) -> ElicitationResult[str]: ...
    @overload
    async def elicit(
        self, message: str, type: Mapping[str, JsonInput], *, key: str | None = None, task: RunAsTask = False
    ) -> ElicitationResult[JsonObject]: ...
    @overload
    async def elicit(
        self, message: str, type: object, *, key: str | None = None, task: RunAsTask = False
    ) -> ElicitationResult[Any]: ...
    @overload
    async def elicit(
        self, message: str, *, response_type: type[T], key: str | None = None, task: RunAsTask = False
    ) -> ElicitationResult[T]: ...
    @overload
    async def elicit(
        self, message: str, *, response_type: Choices, key: str | None = None, task: RunAsTask = False
    ) -> ElicitationResult[str]: ...
    @overload
    async def elicit(
        self, message: str, *, response_type: object, key: str | None = None, task: RunAsTask = False
    ) -> ElicitationResult[Any]: ...
    @overload
    async def elicit(
        self, message: str, *, schema: type[T], key: str | None = None, task: RunAsTask = False
    ) -> ElicitationResult[T]: ...
    @overload
    async def elicit(
        self, message: str, *, schema: Mapping[str, JsonInput], key: str | None = None, task: RunAsTask = False
    ) -> ElicitationResult[JsonObject]: ...
    @overload
    async def elicit(
        self, message: str, *, schema: object, key: str | None = None, task: RunAsTask = False
    ) -> ElicitationResult[Any]: ...
    async def elicit(
        self,
        message: str,
        type: object = None,
        *,
        response_type: object = None,
        schema: object = None,
        key: str | None = None,
        task: RunAsTask = False,
    ) -> ElicitationResult[Any]:
        """Ask the user to fill in a form; if accepted, the result's ``data`` has the requested type.

        ``response_type`` and ``schema`` are the names of ``type`` in FastMCP and the official SDK. With ``task`` the
        client runs the request as a task, if it supports that; a function is called with every state of the task.

        Raises:
            MissingCapability: the client does not support elicitation.
        """
        kind = next((each for each in (type, response_type, schema) if each is not None), None)
        # Imported on first use: most handlers never send requests, which need digests and forms.
        from trunkline.server.client_requests import elicit

        return await elicit(self._server, self._exchange, message=message, kind=kind, key=key, task=task)

    async def elicit_url(
        self,
        message: str,
        url: str,
        *,
        done: Callable[[], bool | Awaitable[bool]] | None = None,
        elicitation_id: str | None = None,
        key: str | None = None,
    ) -> ElicitationResult[None]:
        """Ask the user to open a URL, and wait until ``done`` returns True.

        In revisions that have elicitation ids, the client is notified under ``elicitation_id`` when the user has
        finished; by default the id is random.

        Raises:
            MissingCapability: the client does not support URL elicitation.
            LocalProtocolError: the URL or the id is not valid.
        """
        # Imported on first use: most handlers never send requests, which need digests and forms.
        from trunkline.server.client_requests import elicit_url

        return await elicit_url(
            self._server,
            self._exchange,
            message=message,
            url=url,
            done=done,
            elicitation_id=elicitation_id,
            key=key,
        )

    async def sample(
        self,
        messages: str | t.SamplingMessage | Sequence[str | t.SamplingMessage],
        *,
        max_tokens: int = 1024,
        system_prompt: str | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        model_preferences: ModelChoice | None = None,
        tools: Sequence[t.Tool] | None = None,
        tool_choice: t.ToolChoice | Literal["auto", "required", "none"] | None = None,
        include_context: Literal["none", "thisServer", "allServers"] | None = None,
        metadata: Mapping[str, JsonInput] | None = None,
        key: str | None = None,
        task: RunAsTask = False,
    ) -> SamplingResult:
        """Ask the client's model for a message.

        ``model_preferences`` may also be the name of a model, or several names in order of preference. With ``task``
        the client runs the request as a task, if it supports that; a function is called with every state of the task.

        Raises:
            MissingCapability: the client does not support sampling, or not with tools.
        """
        from trunkline.server.client_requests import sample

        return await sample(
            self._server,
            self._exchange,
            messages=messages,
            max_tokens=max_tokens,
            system_prompt=system_prompt,
            temperature=temperature,
            stop_sequences=stop_sequences,
            model_preferences=model_preferences,
            tools=tools,
            tool_choice=tool_choice,
            include_context=include_context,
            metadata=metadata,
            key=key,
            task=task,
        )

    async def list_roots(self, *, key: str | None = None) -> list[t.Root]:
        """Ask the client for its roots: the folders that it works in.

        Raises:
            MissingCapability: the client does not support roots.
        """
        # Imported on first use: most handlers never send requests, which need digests and forms.
        from trunkline.server.client_requests import list_roots

        return await list_roots(self._server, self._exchange, key=key)

    async def once(self, key: str, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call a function at most once in all rounds of this call that reach the client, and return its result.

        A handler that sends requests to the caller runs again from its start when the responses arrive; this is for
        what must not be repeated then. If the connection breaks before the result of a round arrives, the client may
        start over, so the guarantee is at least once in that case.
        """
        return await self._channel().once(key, function, *args, **kwargs)

    async def continue_as_task(self) -> bool:
        """Answer the caller with a task now, and continue in the background; return True if that was possible.

        It needs a tool with ``task=`` and a caller with the tasks extension; otherwise the call continues unchanged.
        Pending requests to the caller are answered first; later ones are questions of the task.
        """
        tasks = self._runtime.tasks
        return tasks is not None and await tasks.continue_as_task(self._exchange)

    # --- using the server --------------------------------------------------------------------------------------------

    @overload
    async def handle(
        self, value: type[T], *, ttl: float = 3600.0, stored: bool = False, key: str | None = None
    ) -> Handle[T]: ...
    @overload
    async def handle(
        self,
        value: T,
        *,
        type: type[T] | UnionType | None = None,
        ttl: float = 3600.0,
        stored: bool = False,
        key: str | None = None,
    ) -> Handle[T]: ...
    async def handle(
        self,
        value: Any,
        *,
        type: Any = None,
        ttl: float = 3600.0,
        stored: bool = False,
        key: str | None = None,
    ) -> Handle[Any]:
        """Store a value for later calls and return its handle, whose ``id`` is the text for the model to pass back.

        A class stands for a new object of it: ``ctx.handle(Cart)`` is ``ctx.handle(Cart())``.

        ``type`` is the ``T`` of the parameters ``Handle[T]`` that accept the handle; by default the value's class. It
        expires ``ttl`` seconds after the value was created or changed. A small immutable value is sealed into the text
        and cannot be changed or deleted, unless ``stored`` is true. In a call with several rounds, a handle is created
        once: handles are identified by their order, or by ``key``.

        Raises:
            HandleStoreFull: a limit of the store is reached.
        """
        from trunkline.server.handle_service import create_handle
        from trunkline.server.handles import Handle

        given: dict[str, Any] = {"kind": type, "ttl": ttl, "stored": stored, "key": key}
        return Handle(await create_handle(self._server, self._exchange, value, **given))

    async def read_resource(self, uri: str) -> list[t.ResourceContents]:
        """Read a resource of this server."""
        from trunkline.server.handlers import read_resource

        return (await read_resource(self._server, self._exchange, t.ReadResourceRequestParams(uri=uri))).contents
