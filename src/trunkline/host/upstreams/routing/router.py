"""The router: forwards requests to servers, whatever the eras of both sides, and the servers' questions to the caller.

There are two ways, by the era of the server's connection. A stateless server answers with its questions
(``inputRequests``): each round is a request, and what was asked is recorded with the caller's channel, so that a
stateless caller can leave and come back. A handshake server sends requests of its own while the call runs: the call is
an ``ActiveCall``, on a dedicated connection if the caller can answer requests, and parked while a stateless caller is
away. A server of both eras may be able to ask in only one of them; a handshake client that can answer requests gets a
dedicated connection with a handshake there, as if it were connected directly. Nothing is authorized here: that was done
before, and each question is reviewed by a function that comes with the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.client.client import Client
from trunkline.client.request_handlers import extra_capabilities
from trunkline.errors import (
    ConnectionLost,
    MethodNotFound,
    PolicyDenied,
    RemoteProtocolError,
    RequestTimeout,
    UrlElicitationRequired,
)
from trunkline.host.server_requests.handlers import ServerRoots
from trunkline.host.session import HostSession
from trunkline.host.upstreams.routing.active_calls import (
    ActiveCall,
    ConcurrencyLimiter,
    ConcurrencySlot,
    Parking,
    caller_cancelled,
)
from trunkline.host.upstreams.routing.channels import (
    VIA,
    CallerChannel,
    ConnectionNeeds,
    allowed_capabilities,
    allowed_needs,
    elicited_pages,
    listed_extensions,
    log_wanted,
    plain_questions,
    prefers_handshake,
    shared_needs,
)
from trunkline.host.upstreams.routing.connection_pool import DedicatedConnection, roots_digest
from trunkline.host.upstreams.routing.upstream_tasks import (
    TASK_KEYS,
    call_core_task,
    follow_task,
    is_task,
    send_or_withdraw,
    task_id,
)
from trunkline.host.upstreams.supervision.upstream import Upstream
from trunkline.protocol.caller import supports
from trunkline.protocol.extensions import CLIENT_DEFAULTS, TASKS, declared_extension
from trunkline.protocol.limits import Limits
from trunkline.protocol.methods import decode_params, embedded_requests
from trunkline.protocol.revisions import NEWEST, uses_handshake

__all__ = ["QuestionReview", "Router", "UpstreamRequest"]

#: Returns the host's answer to a question, or None to forward it to the caller; raises to refuse it.
QuestionReview = Callable[[str, Any], Awaitable[Raw | None]]

_FIRST_PAUSE = 0.1  # Pause before the next round if the server asked nothing; it doubles each time.
_LONGEST_PAUSE = 5.0  # A server that only waits is asked again every five seconds.
_PAGES = "pages"  # The ``once`` key of the URLs that the user must open.
_USUAL = Limits()
#: The log level requested from a stateless server for a handshake client that set none: our servers' own default.
_USUAL_LEVEL: t.LoggingLevel = "info"
_MAY_ASK = frozenset({"tools/call", "prompts/get", "resources/read"})
_UNREADABLE = (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError)


class UpstreamRequest(Struct, frozen=True, kw_only=True):
    """A request to forward: the server, the message, the caller, and the review of questions back."""

    upstream: Upstream
    method: str
    params: Any
    session: HostSession
    channel: CallerChannel
    review: QuestionReview
    #: The ids of the gateways it came through.
    via: tuple[str, ...] = ()
    #: The trace context of the caller, which is passed on.
    trace: Mapping[str, str] | None = None


class Router:
    """Forwards requests to servers, and resumes parked calls."""

    def __init__(self, *, name: str, parking: Parking, rounds: int, roots: ServerRoots | None = None) -> None:
        """Set the id that goes into ``VIA``, the parked calls, and the most rounds of a call."""
        self._name = name
        self._parking = parking
        self._rounds = rounds
        self._roots = ServerRoots() if roots is None else roots
        self._busy: dict[Upstream, ConcurrencyLimiter] = {}
        #: The requests in progress on each shared connection, which a notification may belong to.
        self._shared: dict[Upstream, dict[int, UpstreamRequest]] = {}

    async def send(self, request: UpstreamRequest) -> tuple[Any, Raw]:
        """Forward a request; return the result, decoded and raw.

        If a server requires a page to be opened first (-32042), the caller is asked to open it and the request is
        repeated, once, unless the caller's revision knows the error itself.

        Raises:
            ServerUnavailable: the server is not running.
            PolicyDenied: the server requires a page that the policy does not allow.
            RequestFailed, LinkError, RemoteProtocolError: the request failed.
        """
        channel = request.channel
        if channel.did(_PAGES):
            # A stateless caller returned with its answers; they are read before the request is repeated.
            required = await channel.once(_PAGES, dict)
        else:
            try:
                return await self._send_reviewed(request)
            except UrlElicitationRequired as error:
                askable = supports(self._allowed(request), "elicitation.url")
                if channel.knows_url_errors or not askable or not error.data["elicitations"]:
                    raise
                plain = {"message": error.message, "data": error.data}
            required = await channel.once(_PAGES, lambda: plain)
        await self._ask_to_open(request, UrlElicitationRequired(**required))
        return await self._send_reviewed(request)

    async def _send_reviewed(self, request: UpstreamRequest) -> tuple[Any, Raw]:
        """Forward a request; the URLs of a -32042 error are questions too, and are forwarded only if the policy allows.

        The raised error has only the reviewed URLs.
        """
        try:
            return await self._send(request)
        except UrlElicitationRequired as error:
            pages = elicited_pages(error)
            for page in pages:
                if await request.review("elicitation/create", page) is not None:
                    name = request.upstream.entry.name
                    raise PolicyDenied(f"{name} requires opening a page, which the policy does not allow.") from error
            others = error.data if isinstance(error.data, dict) else {}
            data = {**others, "elicitations": msgspec.to_builtins(pages)}
            raise UrlElicitationRequired(error.message, data=data) from error

    async def _ask_to_open(self, request: UpstreamRequest, required: UrlElicitationRequired) -> None:
        """Ask the caller to open the URLs of a -32042 error.

        Raises:
            UrlElicitationRequired: the caller did not open one of them.
        """
        entry = request.upstream.entry
        for number, page in enumerate(elicited_pages(required)):
            raw = await request.channel.ask("elicitation/create", page, key=f"page-{number}", entry=entry)
            if msgspec.json.decode(raw, type=t.ElicitResult).action != "accept":
                raise required

    async def _send(self, request: UpstreamRequest) -> tuple[Any, Raw]:
        upstream, channel = request.upstream, request.channel
        with upstream.track_call():
            if channel.did(_parked_key(channel)):
                return await self._on_connection(request, None)
            # A stateless caller can be asked only by methods whose result may be ``input_required``.
            askable = request.method in _MAY_ASK or not channel.parks
            needs = ConnectionNeeds.of(self._allowed(request) if askable else {}, logs=channel.log_level is not None)
            if upstream.entry.settings.per_user:
                return await self._send_as_user(request, needs)
            client = await upstream.connected_client()
            handshake = uses_handshake(client.revision)
            if channel.is_handshake and prefers_handshake(upstream, needs):
                connection = await self.find_handshake(request.session, upstream, needs)
                if connection is not None:
                    return await self._on_connection(request, connection)
            if self.needs_dedicated(upstream, needs, handshake=handshake):
                connection = await self._connection(request, needs, handshake=handshake)
                return await (self._on_connection if handshake else self._in_rounds_on)(request, connection)
            with self.tracked(request):
                return await (self._on_shared if handshake else self._in_rounds)(request, client)

    @contextmanager
    def tracked(self, request: UpstreamRequest) -> Iterator[None]:
        """Count a request as one in progress on the shared connection while the context is open."""
        requests = self._shared.setdefault(request.upstream, {})
        requests[id(request)] = request
        try:
            yield
        finally:
            del requests[id(request)]

    @asynccontextmanager
    async def client_for(self, request: UpstreamRequest) -> AsyncIterator[Client]:
        """Return the client for a message of an extension: shared, or with the credentials of the caller."""
        upstream = request.upstream
        with upstream.track_call():
            if not upstream.entry.settings.per_user:
                with self.tracked(request):
                    yield await upstream.connected_client()
                return
            connection = self.find_dedicated(request.session, upstream, ConnectionNeeds())
            with connection.hold_open():
                yield await self.open_connection(request.session, connection)

    def on_shared(self, upstream: Upstream) -> list[UpstreamRequest]:
        """Return the requests in progress on the shared connection to a server, which a notification may belong to."""
        return list(self._shared.get(upstream, {}).values())

    async def _send_as_user(self, request: UpstreamRequest, needs: ConnectionNeeds) -> tuple[Any, Raw]:
        """Forward a request with the credentials of the caller, whether or not the host itself has access."""
        upstream, session, connection = request.upstream, request.session, None
        if request.channel.is_handshake and prefers_handshake(upstream, needs):
            connection = await self.find_handshake(session, upstream, needs)
        connection = connection or self.find_dedicated(session, upstream, needs)
        with connection.hold_open():
            client = await self.open_connection(session, connection)
            return await (self._on_connection if uses_handshake(client.revision) else self._in_rounds_on)(
                request, connection
            )

    def find_dedicated(self, session: HostSession, upstream: Upstream, needs: ConnectionNeeds) -> DedicatedConnection:
        """Return the dedicated connection of a session; it declares roots if the server has roots of its own."""
        settings, client = upstream.entry.settings, upstream.client
        may_adopt = settings.share == "auto" and not settings.per_user and self._declares_shared(upstream, needs)
        adopts = may_adopt and client is not None and uses_handshake(client.revision)
        declared, roots = self._with_roots(upstream, needs), self._own_roots(upstream)
        return session.connections.find(upstream, declared, roots=roots, adopts=adopts)

    async def find_handshake(
        self, session: HostSession, upstream: Upstream, needs: ConnectionNeeds
    ) -> DedicatedConnection | None:
        """Return the dedicated connection of a session that uses a handshake; None if the server refuses it."""
        declared, roots = self._with_roots(upstream, needs), self._own_roots(upstream)
        return await session.connections.find_handshake(upstream, declared, roots=roots)

    def logged(self, upstream: Upstream, message: t.LoggingMessageNotificationParams) -> bool:
        """Send a log message of a shared connection to the one session it can belong to; return False if there is none.

        The message does not name its request. While requests of several sessions are in progress it is dropped: no
        client may read what a server logs for another. A client that sets a level has a dedicated connection.
        """
        client = upstream.client
        handshake = client is not None and uses_handshake(client.revision)
        # A stateless server logs only for requests that ask for it, a handshake server may log for any.
        requests = [each for each in self.on_shared(upstream) if handshake or each.channel.receives_logs]
        if not requests:
            return False
        if all(request.session is requests[0].session for request in requests):
            channel = next((request.channel for request in reversed(requests) if request.channel.open), None)
            if channel is not None and log_wanted(message.level, channel.log_level, unasked=channel.receives_logs):
                channel.log(message)
        return True

    async def _connection(
        self, request: UpstreamRequest, needs: ConnectionNeeds, *, handshake: bool
    ) -> DedicatedConnection:
        """Return the dedicated connection for a call.

        A handshake server requests the roots of its client once. Callers without a session may be a different client
        each time: if the server is known to request roots, each list of roots gets its own connection.
        """
        upstream, asks_caller = request.upstream, needs.roots and not self._has_roots(request.upstream)
        if asks_caller and handshake and request.channel.parks and upstream.asks_roots:
            raw = await self._ask(request, "roots/list", t.RequestParams(), key="roots")
            folders = msgspec.json.decode(raw, type=t.ListRootsResult).roots
            needs = replace(needs, roots_digest=roots_digest(folders))
            return await request.session.connections.find_with_roots(upstream, needs, folders)
        return self.find_dedicated(request.session, upstream, needs)

    def _own_roots(self, upstream: Upstream) -> Callable[[], Any] | None:
        """Return a function for the server's own roots, which replace the caller's; None if it has none."""
        return (lambda: self._roots.of(upstream.entry)) if self._has_roots(upstream) else None

    def _with_roots(self, upstream: Upstream, needs: ConnectionNeeds) -> ConnectionNeeds:
        """Return what a connection declares: with roots, if the server has roots of its own."""
        return replace(needs, roots=True) if self._has_roots(upstream) else needs

    def _has_roots(self, upstream: Upstream) -> bool:
        """Return whether a server has roots of its own, in its entry or added since."""
        return upstream.entry.settings.roots is not None or upstream.entry.name in self._roots.added

    def queued(self, upstream: Upstream) -> int:
        """Return how many calls wait for a slot of a server."""
        limiter = self._busy.get(upstream)
        return 0 if limiter is None else limiter.queued

    def forget(self, upstream: Upstream) -> None:
        """Forget a server that was removed."""
        self._busy.pop(upstream, None)
        self._shared.pop(upstream, None)

    def needs_dedicated(self, upstream: Upstream, needs: ConnectionNeeds, *, handshake: bool) -> bool:
        """Return True if a caller with these needs has a dedicated connection to a server.

        Capabilities are declared to a handshake server once. A caller that lacks what the shared connection declares
        does not use it: the server would ask in vain.
        """
        settings = upstream.entry.settings
        if settings.per_user:
            return True
        if settings.share == "shared":
            return False
        if settings.share == "session" or needs.logs:
            return True
        return handshake and (needs.asks or not self._declares_shared(upstream, needs))

    def _declares_shared(self, upstream: Upstream, needs: ConnectionNeeds) -> bool:
        """Return True if the shared connection declares what a caller with these needs supports."""
        declared, shared = self.declares(upstream, needs), shared_needs(upstream)
        # The host removes the MCP Apps metadata for a caller that shows no pages.
        return declared == replace(shared, apps=shared.apps and declared.apps)

    def declares(self, upstream: Upstream, needs: ConnectionNeeds) -> ConnectionNeeds:
        """Return what a connection for a caller with these needs declares."""
        allowed = self._with_roots(upstream, allowed_needs(upstream.entry.settings, needs, upstream.offering))
        return replace(allowed, logs=False, roots_digest=None, handshake=False)

    async def open_dedicated(self, session: HostSession, upstream: Upstream, needs: ConnectionNeeds) -> None:
        """Open a dedicated connection to a server, which is listed if it is the first with these needs."""
        connection = self.find_dedicated(session, upstream, needs)
        with connection.hold_open():
            await self.open_connection(session, connection)

    async def open_connection(self, session: HostSession, connection: DedicatedConnection) -> Client:
        """Open a connection of a session; one that cannot be opened leaves the pool."""
        try:
            return await connection.open()
        except BaseException:
            if not connection.calls and connection.holders <= 1:
                await session.connections.drop(connection)
            raise

    def _allowed(self, request: UpstreamRequest) -> dict[str, Any]:
        upstream, capabilities = request.upstream, request.channel.capabilities
        return allowed_capabilities(upstream.entry.settings, capabilities, upstream.offering)

    def _meta(self, request: UpstreamRequest) -> dict[str, Any]:
        return {VIA: [*request.via, self._name], **(request.trace or {})}

    # --- servers that ask nothing ------------------------------------------------------------------------------------

    async def _on_shared(self, request: UpstreamRequest, client: Client) -> tuple[Any, Raw]:
        slot = await self._acquire_slot(request.upstream)
        try:
            return await self._forward(request, client, request.channel.progress)
        finally:
            slot.release()

    async def _forward(
        self,
        request: UpstreamRequest,
        client: Client,
        progress: Callable[[t.ProgressNotificationParams], None],
        asked: Callable[[], float] = float,
    ) -> tuple[Any, Raw]:
        """Send the authorized request, with our own ``_meta`` and the server's timeouts.

        ``asked`` returns how many seconds the server's questions have waited for answers.
        """
        settings, channel, key = request.upstream.entry.settings, request.channel, _task_key(request.channel)
        if not channel.did(key):
            try:
                return await client.forward(
                    request.method,
                    request.params,
                    timeout=settings.timeout,
                    total_timeout=settings.total_timeout,
                    on_progress=progress if channel.wants_progress() else None,
                    meta=self._meta(request),
                )
            except MethodNotFound:
                # The server's error for a tool that must be called as a task.
                has_tasks = supports(client.server_capabilities, "tasks.requests.tools.call")
                if request.method != "tools/call" or not has_tasks:
                    raise
        return await call_core_task(
            client, request.params, channel, progress, key=key, total=settings.total_timeout, asked=asked
        )

    async def _acquire_slot(self, upstream: Upstream) -> ConcurrencySlot:
        """Acquire a slot within a server's concurrency limit; the caller releases it.

        Raises:
            RequestTimeout: none was available for as long as a call may take.
        """
        settings = upstream.entry.settings
        limiter = self._busy.get(upstream)
        if limiter is None:
            limiter = self._busy[upstream] = ConcurrencyLimiter(settings.concurrency)
        if limiter.most != settings.concurrency:
            limiter.most = settings.concurrency
        if (slot := limiter.acquire_free()) is not None:
            return slot
        return await limiter.acquire_within(settings.total_timeout or _USUAL.total_seconds, upstream.entry.name)

    # --- stateless servers -------------------------------------------------------------------------------------------

    async def _in_rounds_on(self, request: UpstreamRequest, connection: DedicatedConnection) -> tuple[Any, Raw]:
        """Send a request on a dedicated connection, which delivers log messages to the caller."""
        with connection.hold_open(), connection.attach(request.channel):
            try:
                client = await self.open_connection(request.session, connection)
                return await self._in_rounds(request, client)
            except RequestTimeout:
                request.session.connections.check_responsive(connection)
                raise
            finally:
                request.session.connections.used(connection)

    async def _in_rounds(self, request: UpstreamRequest, client: Client) -> tuple[Any, Raw]:
        """Send the request, and repeat it with the answers that the server asked for, until there is a result."""
        channel, params, waits = request.channel, request.params, 0
        meta = self._meta(request)
        meta[t.META_CLIENT_CAPABILITIES] = self._declared(request)
        if channel.log_level is not None or channel.receives_logs:
            meta[t.META_LOG_LEVEL] = channel.log_level or _USUAL_LEVEL
        if channel.did(task_key := _task_key(channel)):
            return await self._follow_task(request, client, await channel.once(task_key, str), continued=True)
        for number in range(self._rounds):
            key = f"round-{number}"
            if channel.did(key):
                asked = await channel.once(key, dict)
            else:
                result, raw = await self._send_round(request, client, params, meta)
                if is_task(result):
                    task = await channel.once(task_key, partial(task_id, raw))
                    return await self._follow_task(request, client, task)
                if not isinstance(result, t.InputRequiredResult):
                    return result, raw
                asked = plain_questions(result)
                await channel.once(key, lambda asked=asked: asked)
            waits = 0 if asked["questions"] else waits + 1
            if waits:
                await asyncio.sleep(min(_FIRST_PAUSE * 2 ** (waits - 1), _LONGEST_PAUSE))
            answers = await self._ask_all(request, asked["questions"], number)
            params = replace(params, input_responses=answers or None, request_state=asked["state"])
        raise RemoteProtocolError(f"The server asked for more input in {self._rounds} rounds in a row.")

    async def _send_round(
        self, request: UpstreamRequest, client: Client, params: Any, meta: dict[str, Any]
    ) -> tuple[Any, Raw]:
        """Send the request of one round, within the server's concurrency limit and timeouts."""
        settings, channel = request.upstream.entry.settings, request.channel
        slot = await self._acquire_slot(request.upstream)
        try:
            sending = client.forward(
                request.method,
                params,
                timeout=settings.timeout,
                total_timeout=settings.total_timeout,
                on_progress=channel.progress if channel.wants_progress() else None,
                meta=meta,
            )
            if request.method != "tools/call" or declared_extension(client.server_capabilities, TASKS) is None:
                return await sending
            return await send_or_withdraw(client, sending, lambda given: task_id(given[1]) if is_task(given[0]) else "")
        finally:
            slot.release()

    async def _follow_task(
        self, request: UpstreamRequest, client: Client, id: str, *, continued: bool = False
    ) -> tuple[Any, Raw]:
        """Wait for a task that a server answered with; its questions are asked like those of any call."""
        total = request.upstream.entry.settings.total_timeout
        ask_all = partial(self._ask_all, request)
        return await follow_task(client, id, request.channel, ask_all, total=total, continued=continued)

    def _declared(self, request: UpstreamRequest) -> dict[str, Any]:
        """Return what is declared to a stateless server: what the caller supports, and roots if the host has some."""
        declared = self._allowed(request)
        if self._has_roots(request.upstream):
            declared["roots"] = {}
        # The router waits for tasks itself, so every server may answer with one, even if the caller has no tasks.
        settings = request.upstream.entry.settings
        listed = listed_extensions(settings, request.channel.capabilities)
        declared["extensions"] = {**CLIENT_DEFAULTS, **listed, **declared.get("extensions", {})}
        return declared

    async def _ask_all(self, request: UpstreamRequest, questions: Mapping[str, Any], number: int) -> dict[str, Raw]:
        """Ask all questions of a round at once, so that a stateless caller gets them together."""
        rows, declared = embedded_requests(NEWEST), self._declared(request)
        asked: dict[str, tuple[str, Any]] = {}
        answers: dict[str, Raw] = {}
        for key, question in questions.items():
            row = rows.get(question["method"])
            if row is None or row.capability is None or not supports(declared, row.capability):
                raise RemoteProtocolError(
                    f"The server sent a request that the caller does not support: {question['method'][:80]!r}."
                )
            try:
                params = decode_params(row, Raw(msgspec.json.encode(question["params"])))
            except _UNREADABLE as error:
                raise RemoteProtocolError(f"The server sent an invalid request: {error}") from error
            if not all(supports(declared, needed) for needed in extra_capabilities(row.name, params)):
                raise RemoteProtocolError(
                    f"The server sent a request with options that the caller does not support: {row.name}."
                )
            asked[key] = (row.name, params)
        # All are reviewed before one is asked: no one should answer in vain.
        for key, (method, params) in asked.items():
            if (answer := await request.review(method, params)) is not None:
                answers[key] = answer
        open_ones = {key: question for key, question in asked.items() if key not in answers}
        entry = request.upstream.entry
        given = await asyncio.gather(
            *(request.channel.ask(*question, key=key, entry=entry) for key, question in open_ones.items())
        )
        return {**answers, **dict(zip(open_ones, given, strict=True))}

    async def _ask(self, request: UpstreamRequest, method: str, params: Any, *, key: str) -> Raw:
        answer = await request.review(method, params)
        return (
            await request.channel.ask(method, params, key=key, entry=request.upstream.entry)
            if answer is None
            else answer
        )

    # --- handshake servers that may ask ------------------------------------------------------------------------------

    async def _on_connection(self, request: UpstreamRequest, connection: DedicatedConnection | None) -> tuple[Any, Raw]:
        """Run a call on a dedicated connection, or resume a parked one; its questions go to the caller."""
        channel = request.channel
        parked = _parked_key(channel)
        if connection is None:
            call = await self._parking.find(await channel.once(parked, str), channel, request.method)
        else:
            call = ActiveCall(lambda call: self._run(request, connection, call), channel)
            connection.calls[call] = connection
            call.task.add_done_callback(lambda task: self._over(request.session, connection, call))
        try:
            while (pending := await call.next_question()) is not None:
                if channel.parks:
                    await channel.once(parked, lambda: self._parking.admit(call))
                await call.settle(pending, self._ask(request, pending.method, pending.params, key=pending.key))
            outcome = await call.task
        except asyncio.CancelledError:
            if channel.left:
                # The questions were sent; the call waits for the client to return with the answers.
                self._parking.park(call)
                raise
            self._end(call)
            if call.task.cancelled() and not caller_cancelled():
                raise ConnectionLost("the server was stopped while it worked") from None
            raise
        except BaseException:
            self._end(call)
            raise
        self._parking.leave(call)
        call.close()
        return outcome

    async def _run(
        self, request: UpstreamRequest, connection: DedicatedConnection, call: ActiveCall
    ) -> tuple[Any, Raw]:
        client = await self.open_connection(request.session, connection)
        await connection.set_log_level(client, request.channel.log_level)

        def progress(news: t.ProgressNotificationParams) -> None:
            request.upstream.record_activity()
            if call.channel is not None and call.channel.open:
                call.channel.progress(news)

        call.slot = await self._acquire_slot(request.upstream)
        try:
            return await self._forward(request, client, progress, lambda: call.asked_seconds)
        except RequestTimeout:
            request.session.connections.check_responsive(connection)
            raise
        finally:
            call.slot.release()

    def _over(self, session: HostSession, connection: DedicatedConnection, call: ActiveCall) -> None:
        connection.calls.pop(call, None)
        session.connections.used(connection)

    def _end(self, call: ActiveCall) -> None:
        self._parking.leave(call)
        call.cancel()


def _task_key(channel: CallerChannel) -> str:
    """Return the ``once`` key of a call's task id; a call that is repeated after a page has another one."""
    return TASK_KEYS[channel.did(_PAGES)]


def _parked_key(channel: CallerChannel) -> str:
    """Return the ``once`` key of a parked call; a call that is repeated after a page has another one."""
    return "parked-again" if channel.did(_PAGES) else "parked"
