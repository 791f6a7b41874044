"""What a handler sees of the request it serves: the caller, the way to ask and tell them things, the server.

The same in all revisions. ``BlockingContext`` is the twin for sync functions: the same names as blocking calls, made
from their threads.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.protocol.caller import Caller, Principal
from trunkline.protocol.methods import read_meta
from trunkline.protocol.shaping import shape_params
from trunkline.server.scopes import demand

if TYPE_CHECKING:
    from trunkline.server.asking import Elicited, Sampled
    from trunkline.server.server import Server

__all__ = ["BlockingContext", "ClientView", "Context", "HandlerLeft"]

T = TypeVar("T")
_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class ClientView:
    """What the caller said about itself; for showing and degrading, never for security decisions."""

    __slots__ = ("_caller",)

    def __init__(self, caller: Caller) -> None:
        """Look at a caller."""
        self._caller = caller

    @property
    def info(self) -> t.Implementation | None:
        """The client's name and version, if it said."""
        return self._caller.client_info

    @property
    def name(self) -> str | None:
        """The client's name, if it said."""
        return None if self.info is None else self.info.name

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """Everything the client declared, unknown members included."""
        return self._caller.capabilities

    @property
    def revision(self) -> str:
        """The protocol revision of this request."""
        return self._caller.revision.name

    def supports(self, capability: str) -> bool:
        """Tell whether the client declared a capability, such as ``elicitation`` or ``sampling.tools``."""
        return self._caller.supports(capability)


class _Kept:
    """What all contexts of one request share."""

    __slots__ = ("progress", "state")

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}
        self.progress: float | None = None


class _View:
    """What both contexts can say without waiting."""

    __slots__ = ("_exchange", "_server")

    def __init__(self, server: Server, exchange: Exchange) -> None:
        """Look at one exchange of one server."""
        self._server = server
        self._exchange = exchange

    @property
    def server(self) -> Server:
        """The server whose handler this is; with composition, the mounted one."""
        return self._server

    @property
    def fastmcp(self) -> Server:
        """The same as ``server``, under the name other frameworks give it."""
        return self._server

    @property
    def exchange(self) -> Exchange:
        """The exchange behind it: the connection, the caller and the parameters, for what this face does not show."""
        return self._exchange

    @property
    def request_id(self) -> str:
        """The id of the request, as text."""
        return str(self._exchange.id)

    @property
    def method(self) -> str:
        """The method being served."""
        return self._exchange.method

    @property
    def meta(self) -> dict[str, Any]:
        """The request's whole ``_meta``, keys of others included."""
        return read_meta(self._exchange.params)

    @property
    def client(self) -> ClientView:
        """What the caller said about itself."""
        return ClientView(self._exchange.admitted.caller)

    @property
    def client_id(self) -> str | None:
        """The authenticated client, if any."""
        return None if self.auth is None else self.auth.client

    @property
    def session_id(self) -> str | None:
        """The id of the caller's session where the transport has one."""
        session = self._exchange.admitted.caller.session
        return None if session is None else session.id

    @property
    def auth(self) -> Principal | None:
        """Who was authenticated for this request."""
        principal: Principal | None = self._exchange.admitted.caller.principal
        return principal

    def require_scopes(self, *scopes: str) -> None:
        """See that the caller's token allows something, where that depends on the arguments.

        Raises:
            InsufficientScope: it does not; over HTTP the client is asked for a token that does.
        """
        demand(self._exchange, scopes, self._exchange.connection.owner.hierarchy)

    @property
    def lifespan_context(self) -> Any:
        """What the server's lifespan gave."""
        return self._server.lifespan_value

    @property
    def request_context(self) -> _View:
        """This context, under the name the official SDK gives its inner record."""
        return self

    @property
    def cancelled(self) -> bool:
        """Whether the caller no longer wants an answer."""
        return not self._exchange.open

    @property
    def round(self) -> int:
        """How often the caller has been asked before, in this call."""
        return getattr(self._exchange.questions, "round", 0)

    def get_state(self, key: str) -> Any:
        """Give what ``set_state`` kept during this request."""
        return self._kept().state.get(key)

    def set_state(self, key: str, value: Any) -> None:
        """Keep something for the rest of this request: middleware, dependencies and the handler share it."""
        self._kept().state[key] = value

    def _kept(self) -> _Kept:
        kept: _Kept | None = getattr(self._exchange, "kept", None)
        if kept is None:
            kept = self._exchange.kept = _Kept()
        return kept

    def _tell(self, method: str, params: Any) -> None:
        questions = self._exchange.questions
        # What was told in an earlier round of this call need not be told again.
        if questions is None or not questions.replaying:
            self._exchange.notify(method, shape_params(params, self._exchange.admitted.caller.revision))

    def _progress_token(self) -> t.ProgressToken | None:
        meta = self._exchange.admitted.params.meta
        return None if meta is None else meta.progress_token

    def _report(self, progress: float, total: float | None, message: str | None) -> None:
        token, kept = self._progress_token(), self._kept()
        # The specification: progress MUST increase with each notification.
        if token is None or (kept.progress is not None and progress <= kept.progress):
            return
        kept.progress = progress
        params = t.ProgressNotificationParams(progress_token=token, progress=progress, total=total, message=message)
        self._tell("notifications/progress", params)

    def _log(self, level: t.LoggingLevel, data: Any, logger: str | None) -> None:
        if level not in _LEVELS:
            raise ValueError(f"unknown log level {level!r}; the levels are {', '.join(_LEVELS)}")
        least = self._exchange.admitted.caller.log_level
        if least is None or _LEVELS.index(level) < _LEVELS.index(least):
            return
        params = t.LoggingMessageNotificationParams(level=level, logger=logger, data=data)
        self._tell("notifications/message", params)


class Context(_View):
    """The request being served, for an async handler."""

    __slots__ = ()

    # --- telling -----------------------------------------------------------------------------------------------------

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the caller how far the work has come, if it wants to know."""
        self._report(progress, total, message)
        await self._exchange.connection.drain()

    async def close_stream(self) -> bool:
        """End the HTTP response that is open and go on working: the caller comes back for the rest.

        Tell whether it does: only 2025-11-25 over HTTP has that; elsewhere nothing happens.
        """
        return self._exchange.connection.release_stream()

    async def log(
        self, first: Any, second: Any = None, *, level: Any = None, logger_name: str | None = None, **extra: Any
    ) -> None:
        """Send the caller a log message, if its level is wanted; ``extra`` goes along as data.

        Level and message may come in either order, the level also by name: frameworks disagree.
        """
        if level is not None:
            message = first
        elif first not in _LEVELS and second in _LEVELS:
            message, level = first, second
        else:
            level, message = first, second
        if isinstance(extra.get("extra"), Mapping):
            extra = {**extra.pop("extra"), **extra}
        self._log(level, {"message": message, **extra} if extra else message, logger_name)
        await self._exchange.connection.drain()

    async def debug(self, message: Any, logger_name: str | None = None, **extra: Any) -> None:
        """Log at level debug."""
        await self.log("debug", message, logger_name=logger_name, **extra)

    async def info(self, message: Any, logger_name: str | None = None, **extra: Any) -> None:
        """Log at level info."""
        await self.log("info", message, logger_name=logger_name, **extra)

    async def warning(self, message: Any, logger_name: str | None = None, **extra: Any) -> None:
        """Log at level warning."""
        await self.log("warning", message, logger_name=logger_name, **extra)

    async def error(self, message: Any, logger_name: str | None = None, **extra: Any) -> None:
        """Log at level error."""
        await self.log("error", message, logger_name=logger_name, **extra)

    async def notify(self, method: str, params: Any = None) -> None:
        """Send the caller a notification of one's own, as part of this request."""
        self._tell(method, params)
        await self._exchange.connection.drain()

    # --- asking ------------------------------------------------------------------------------------------------------

    async def elicit(
        self,
        message: str,
        type: Any = None,
        *,
        response_type: Any = None,
        schema: Any = None,
        key: str | None = None,
    ) -> Elicited:
        """Ask the user to fill in a form; the answer's ``data`` has the type that was asked for.

        Raises:
            MissingCapability: the client cannot ask its user.
        """
        kind = next((each for each in (type, response_type, schema) if each is not None), None)
        # Most handlers never ask; what asking needs (digests, forms) is loaded by the first that does.
        from trunkline.server.asking import elicit

        return await elicit(self._server, self._exchange, message=message, kind=kind, key=key)

    async def elicit_url(
        self,
        message: str,
        url: str,
        *,
        done: Callable[[], bool | Awaitable[bool]] | None = None,
        elicitation_id: str | None = None,
        key: str | None = None,
    ) -> Elicited:
        """Ask the user to open a page, and wait until ``done`` says that it was finished.

        Where the revision names such questions, the client learns under that id that the page is finished; without an
        ``elicitation_id`` it is one that nobody can guess.

        Raises:
            MissingCapability: the client cannot open pages.
            LocalProtocolError: the URL or the id cannot be one.
        """
        # Most handlers never ask; what asking needs (digests, forms) is loaded by the first that does.
        from trunkline.server.asking import elicit_url

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
        key: str | None = None,
        **options: Any,
    ) -> Sampled:
        """Ask the client's model; ``options`` are the other members of the request, such as ``system_prompt``.

        Raises:
            MissingCapability: the client has no model for us, or not with tools.
        """
        from trunkline.server.asking import sample

        return await sample(self._server, self._exchange, messages=messages, max_tokens=max_tokens, key=key, **options)

    async def list_roots(self, *, key: str | None = None) -> list[t.Root]:
        """Ask the client for the folders it works in.

        Raises:
            MissingCapability: the client does not share them.
        """
        # Most handlers never ask; what asking needs (digests, forms) is loaded by the first that does.
        from trunkline.server.asking import list_roots

        return await list_roots(self._server, self._exchange, key=key)

    async def once(self, key: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function at most once in all rounds of this call that reach the client, and give its result.

        A handler that asks runs again from its start when the answers come; what must not happen again stands here.
        If the connection breaks before the round's answer arrives, the client may start over: at least once, then.
        """
        return await self._server.asking(self._exchange).once(key, function, *args, **kwargs)

    # --- using the server --------------------------------------------------------------------------------------------

    async def read_resource(self, uri: str) -> list[t.ResourceContents]:
        """Read a resource of this server."""
        return (await self._server.read(self._exchange, uri)).contents


class BlockingContext(_View):
    """The request being served, for a sync function in its own thread: the same names, as blocking calls."""

    __slots__ = ("_loop",)

    def __init__(self, server: Server, exchange: Exchange) -> None:
        """Remember the loop that serves; made there."""
        super().__init__(server, exchange)
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Give the blocking twin of a method of ``Context``."""
        method = getattr(Context, name, None)
        if name.startswith("_") or method is None:
            raise AttributeError(f"a context has no {name!r}")

        def blocking(*args: Any, **kwargs: Any) -> Any:
            return self._wait(method(Context(self._server, self._exchange), *args, **kwargs))

        return blocking

    def once(self, key: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function at most once in all rounds of this call, in this thread: the loop must not wait for it."""
        made = None if self._wait(self._did(key)) else function(*args, **kwargs)
        return self._wait(Context(self._server, self._exchange).once(key, lambda: made))

    async def _did(self, key: str) -> bool:
        return self._server.asking(self._exchange).did(key)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the server's loop and wait for it, for as long as the request lives."""
        if self.cancelled:
            work.close()
            _leave()
        outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._loop.call_soon_threadsafe(self._start, work, outcome)
        try:
            return outcome.result()
        except concurrent.futures.CancelledError:
            _leave()

    def _start(self, work: Coroutine[Any, Any, T], outcome: concurrent.futures.Future[T]) -> None:
        task = self._loop.create_task(work)
        serving = self._exchange.task
        assert serving is not None

        def over(_: object) -> None:
            task.cancel()

        def finished(ended: asyncio.Task[T]) -> None:
            serving.remove_done_callback(over)
            if ended.cancelled():
                outcome.cancel()
            elif (error := ended.exception()) is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(ended.result())

        task.add_done_callback(finished)
        serving.add_done_callback(over)


class HandlerLeft(BaseException):
    """Leaves a sync function whose request is over, or whose question goes out to the caller."""


def _leave() -> NoReturn:
    raise HandlerLeft("the request is over; nothing this function does will reach the caller")
