"""The router: forwards requests to servers, whatever the eras of both sides, and the servers' questions to the caller.

There are two ways, by the era of the server's connection. A stateless server answers with its questions
(``inputRequests``): each round is a request, and what was asked is recorded with the caller's channel, so that a
stateless caller can leave and come back. A handshake server sends requests of its own while the call runs: the call is
an ``ActiveCall``, on a dedicated connection if the caller can answer requests, and parked while a stateless caller is
away. A server of both eras may be able to ask in only one of them; a handshake client that can answer requests gets a
dedicated connection with a handshake there, as if it were connected directly. Nothing is authorized here: that was done
before, and each question is reviewed by a function that comes with the request.

Per-user credentials are for servers that are used on behalf of many users: one user's are never used for another. The
logins of a user are in a separate store, found by the identity from the gateway's authentication. A server with
per-user credentials never receives those of the host.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.client.client import Client
from trunkline.client.request_handlers import extra_capabilities
from trunkline.errors import (
    ConnectionLost,
    RemoteProtocolError,
    RequestTimeout,
    ServerUnavailable,
    UrlElicitationRequired,
)
from trunkline.host.config.model import ServerEntry
from trunkline.host.server_requests.handlers import ServerRoots
from trunkline.host.session import HostSession
from trunkline.host.upstreams.routing.active_calls import ActiveCall, ConcurrencyLimiter, ConcurrencySlot, Parking
from trunkline.host.upstreams.routing.channels import VIA, CallerChannel, ConnectionNeeds, log_wanted
from trunkline.host.upstreams.routing.connection_pool import (
    Credentials,
    DedicatedConnection,
    prefers_handshake,
    roots_digest,
)
from trunkline.host.upstreams.supervision.clients import StoredLogins, has_authorization_header
from trunkline.host.upstreams.supervision.upstream import Upstream
from trunkline.protocol.caller import Principal, supports
from trunkline.protocol.limits import Limits
from trunkline.protocol.methods import decode_params, embedded_requests
from trunkline.protocol.revisions import NEWEST, uses_handshake

__all__ = ["QuestionReview", "Router", "UpstreamRequest", "shared_needs", "user_credentials", "user_store_path"]

#: Returns the host's answer to a question, or None to forward it to the caller; raises to refuse it.
QuestionReview = Callable[[str, Any], Awaitable[Raw | None]]

_FIRST_PAUSE = 0.1  # Pause before the next round if the server asked nothing; it doubles each time.
_LONGEST_PAUSE = 5.0  # A server that only waits is asked again every five seconds.
_MOST_PAGES = 8  # Pages that one error may ask a user to open.
_USUAL = Limits()
#: The log level requested from a stateless server for a handshake client that set none: our servers' own default.
_USUAL_LEVEL: t.LoggingLevel = "info"
_MAY_ASK = frozenset({"tools/call", "prompts/get", "resources/read"})
_ASKABLE = ("sampling", "elicitation", "roots")
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


class Router:
    """Forwards requests to servers, and resumes parked calls."""

    def __init__(self, *, name: str, parking: Parking, rounds: int, roots: ServerRoots | None = None) -> None:
        """Set the id that goes into ``VIA``, the parked calls, and the most rounds of a call."""
        self._name = name
        self._parking = parking
        self._rounds = rounds
        self._roots = ServerRoots() if roots is None else roots
        self._busy: dict[Upstream, ConcurrencyLimiter] = {}
        #: The requests in progress on each shared connection that a log message may belong to.
        self._logging: dict[Upstream, dict[int, UpstreamRequest]] = {}

    async def send(self, request: UpstreamRequest) -> tuple[Any, Raw]:
        """Forward a request; return the result, decoded and raw.

        If a server requires a page to be opened first (-32042), the request is repeated after that, unless the caller's
        revision knows the error itself.

        Raises:
            ServerUnavailable: the server is not running.
            RequestFailed, LinkError, RemoteProtocolError: the request failed.
        """
        try:
            return await self._send(request)
        except UrlElicitationRequired as error:
            if request.channel.knows_url_errors or not supports(_allowed_capabilities(request), "elicitation.url"):
                raise
            pages = _pages(error)
            if not pages:
                raise
            for number, page in enumerate(pages):
                raw = await self._ask(request, "elicitation/create", page, key=f"page-{number}")
                if msgspec.json.decode(raw, type=t.ElicitResult).action != "accept":
                    raise
        return await self._send(request)

    async def _send(self, request: UpstreamRequest) -> tuple[Any, Raw]:
        upstream, channel = request.upstream, request.channel
        with upstream.track_call():
            if channel.did("parked"):
                return await self._on_connection(request, None)
            # A stateless caller can be asked only by methods whose result may be ``input_required``.
            askable = request.method in _MAY_ASK or not channel.parks
            needs = ConnectionNeeds.of(
                _allowed_capabilities(request) if askable else {}, logs=channel.log_level is not None
            )
            if upstream.entry.settings.per_user:
                return await self._send_as_user(request, needs)
            client = await upstream.connected_client()
            handshake = uses_handshake(client.revision)
            if channel.is_handshake and prefers_handshake(upstream, needs):
                connection = await self._handshake_connection(request, needs)
                if connection is not None:
                    return await self._on_connection(request, connection)
            if self.needs_dedicated(upstream, needs, handshake=handshake):
                connection = await self._connection(request, needs, handshake=handshake)
                return await (self._on_connection if handshake else self._in_rounds_on)(request, connection)
            if not handshake and not channel.receives_logs:
                return await self._in_rounds(request, client)
            # Log messages may belong to it: a stateless server logs only for requests that ask for it, a handshake
            # server may log for any.
            requests = self._logging.setdefault(upstream, {})
            requests[id(request)] = request
            try:
                return await (self._on_shared if handshake else self._in_rounds)(request, client)
            finally:
                del requests[id(request)]

    async def _send_as_user(self, request: UpstreamRequest, needs: ConnectionNeeds) -> tuple[Any, Raw]:
        """Forward a request with the credentials of the caller, whether or not the host itself has access."""
        upstream, connection = request.upstream, None
        if request.channel.is_handshake and needs.asks and upstream.may_handshake:
            connection = await self._handshake_connection(request, needs)
        if connection is None:
            declared, roots = self._with_roots(upstream, needs), self._own_roots(upstream)
            connection = request.session.connections.find(upstream, declared, roots=roots)
        with connection.hold_open():
            client = await self._opened(request.session, connection)
            return await (self._on_connection if uses_handshake(client.revision) else self._in_rounds_on)(
                request, connection
            )

    async def _handshake_connection(
        self, request: UpstreamRequest, needs: ConnectionNeeds
    ) -> DedicatedConnection | None:
        upstream = request.upstream
        declared, roots = self._with_roots(upstream, needs), self._own_roots(upstream)
        return await request.session.connections.find_handshake(upstream, declared, roots=roots)

    def logged(self, upstream: Upstream, message: t.LoggingMessageNotificationParams) -> bool:
        """Send a log message of a shared connection to the one session it can belong to; return False if there is none.

        The message does not name its request. While requests of several sessions are in progress it is dropped: no
        client may read what a server logs for another. A client that sets a level has a dedicated connection.
        """
        requests = list(self._logging.get(upstream, {}).values())
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
        upstream, roots = request.upstream, self._own_roots(request.upstream)
        if roots is None and handshake and needs.roots and request.channel.parks and upstream.asks_roots:
            raw = await self._ask(request, "roots/list", t.RequestParams(), key="roots")
            folders = msgspec.json.decode(raw, type=t.ListRootsResult).roots
            needs = replace(needs, roots_digest=roots_digest(folders))
            return await request.session.connections.find_with_roots(upstream, needs, folders)
        return request.session.connections.find(upstream, self._with_roots(upstream, needs), roots=roots)

    def _own_roots(self, upstream: Upstream) -> Callable[[], Any] | None:
        """Return a function for the server's own roots, which replace the caller's; None if it has none."""
        return (lambda: self._roots.of(upstream.entry)) if self._has_roots(upstream) else None

    def _with_roots(self, upstream: Upstream, needs: ConnectionNeeds) -> ConnectionNeeds:
        """Return what a connection declares: with roots, if the server has roots of its own."""
        return replace(needs, roots=True) if self._has_roots(upstream) else needs

    def _has_roots(self, upstream: Upstream) -> bool:
        """Return whether a server has roots of its own, in its entry or added since."""
        return upstream.entry.settings.roots is not None or upstream.entry.name in self._roots.added

    def forget(self, upstream: Upstream) -> None:
        """Forget a server that was removed."""
        self._busy.pop(upstream, None)
        self._logging.pop(upstream, None)

    def needs_dedicated(self, upstream: Upstream, needs: ConnectionNeeds, *, handshake: bool) -> bool:
        """Return True if a caller with these needs has a dedicated connection to a server.

        Capabilities are declared to a handshake server once. A caller that lacks what the shared connection declares
        does not use it: the server would ask in vain.
        """
        settings = upstream.entry.settings
        if settings.share == "shared":
            return False
        if settings.share == "session" or needs.logs:
            return True
        return handshake and (needs.asks or self.declares(upstream, needs) != shared_needs(upstream))

    def declares(self, upstream: Upstream, needs: ConnectionNeeds) -> ConnectionNeeds:
        """Return what a connection for a caller with these needs declares."""
        allowed = self._with_roots(upstream, needs.within(upstream.entry.settings.asks))
        return replace(allowed, logs=False, roots_digest=None, handshake=False)

    async def open_dedicated(self, session: HostSession, upstream: Upstream, needs: ConnectionNeeds) -> None:
        """Open a dedicated connection to a server, which is listed if it is the first with these needs."""
        declared, roots = self._with_roots(upstream, needs), self._own_roots(upstream)
        connection = session.connections.find(upstream, declared, roots=roots)
        with connection.hold_open():
            await self._opened(session, connection)

    async def _opened(self, session: HostSession, connection: DedicatedConnection) -> Client:
        try:
            return await connection.open()
        except BaseException:
            if not connection.calls and connection.holders <= 1:
                await session.connections.drop(connection)
            raise

    def _meta(self, request: UpstreamRequest) -> dict[str, Any]:
        return {VIA: [*request.via, self._name]}

    # --- servers that ask nothing ------------------------------------------------------------------------------------

    async def _on_shared(self, request: UpstreamRequest, client: Client) -> tuple[Any, Raw]:
        slot = await self._acquire_slot(request.upstream)
        try:
            return await self._forward(request, client, request.channel.progress)
        finally:
            slot.release()

    def _forward(
        self, request: UpstreamRequest, client: Client, progress: Callable[[t.ProgressNotificationParams], None]
    ) -> Awaitable[tuple[Any, Raw]]:
        """Send what was authorized, with our own ``_meta`` and the server's timeouts."""
        settings = request.upstream.entry.settings
        return client.forward(
            request.method,
            request.params,
            timeout=settings.timeout,
            total_timeout=settings.total_timeout,
            on_progress=progress if request.channel.wants_progress() else None,
            meta=self._meta(request),
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
        seconds = settings.total_timeout or _USUAL.total_seconds
        try:
            async with asyncio.timeout(seconds):
                return await limiter.acquire()
        except TimeoutError as error:
            what = (
                f"{upstream.entry.name} has {settings.concurrency} calls in progress, and none ended in {seconds:g} s"
            )
            raise RequestTimeout(what, clock="total", seconds=seconds) from error

    # --- stateless servers -------------------------------------------------------------------------------------------

    async def _in_rounds_on(self, request: UpstreamRequest, connection: DedicatedConnection) -> tuple[Any, Raw]:
        """Send a request on a dedicated connection, which delivers log messages to the caller."""
        with connection.hold_open(), connection.attach(request.channel):
            try:
                client = await self._opened(request.session, connection)
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
        settings = request.upstream.entry.settings
        for number in range(self._rounds):
            key = f"round-{number}"
            if channel.did(key):
                asked = await channel.once(key, dict)
            else:
                slot = await self._acquire_slot(request.upstream)
                try:
                    result, raw = await client.forward(
                        request.method,
                        params,
                        timeout=settings.timeout,
                        total_timeout=settings.total_timeout,
                        on_progress=channel.progress if channel.wants_progress() else None,
                        meta=meta,
                    )
                finally:
                    slot.release()
                if not isinstance(result, t.InputRequiredResult):
                    return result, raw
                asked = _plain(result)
                await channel.once(key, lambda asked=asked: asked)
            waits = 0 if asked["questions"] else waits + 1
            if waits:
                await asyncio.sleep(min(_FIRST_PAUSE * 2 ** (waits - 1), _LONGEST_PAUSE))
            answers = await self._ask_all(request, asked["questions"], number)
            params = replace(params, input_responses=answers or None, request_state=asked["state"])
        raise RemoteProtocolError(f"The server asked for more input in {self._rounds} rounds in a row.")

    def _declared(self, request: UpstreamRequest) -> dict[str, Any]:
        """Return what is declared to a stateless server: what the caller supports, and roots if the host has some."""
        declared = _allowed_capabilities(request)
        if self._has_roots(request.upstream):
            declared["roots"] = {}
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
        if connection is None:
            call = self._parking.resume(await channel.once("parked", str), channel)
        else:
            call = ActiveCall(lambda call: self._run(request, connection, call), channel)
            connection.calls[call] = None
            call.task.add_done_callback(lambda task: self._over(request.session, connection, call))
        try:
            while (pending := await call.next_question()) is not None:
                if channel.parks:
                    await channel.once("parked", lambda: self._parking.admit(call))
                await call.settle(pending, self._ask(request, pending.method, pending.params, key=pending.key))
            outcome = await call.task
        except asyncio.CancelledError:
            if channel.left:
                # The questions were sent; the call waits for the client to return with the answers.
                self._parking.park(call)
                raise
            self._end(call)
            if call.task.cancelled() and not _caller_cancelled():
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
        client = await self._opened(request.session, connection)
        await connection.set_log_level(client, request.channel.log_level)

        def progress(news: t.ProgressNotificationParams) -> None:
            request.upstream.record_activity()
            if call.channel is not None and call.channel.open:
                call.channel.progress(news)

        call.slot = await self._acquire_slot(request.upstream)
        try:
            return await self._forward(request, client, progress)
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


def shared_needs(upstream: Upstream) -> ConnectionNeeds:
    """Return what the shared connection to a server declares."""
    return ConnectionNeeds.of(upstream.declared, logs=False)


def _caller_cancelled() -> bool:
    """Return True if the caller was cancelled, rather than the work."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _allowed_capabilities(request: UpstreamRequest) -> dict[str, Any]:
    """Return what the server may request: what the caller supports, limited by the ``asks`` setting of the server."""
    capabilities = request.channel.capabilities
    if not capabilities:
        return {}
    asks = request.upstream.entry.settings.asks
    return {name: capabilities[name] for name in _ASKABLE if name in capabilities and (asks is None or name in asks)}


def _pages(error: UrlElicitationRequired) -> list[t.ElicitRequestParams]:
    """Parse the pages that a server requires to be opened; empty if they cannot be parsed."""
    found = error.data.get("elicitations") if isinstance(error.data, dict) else None
    try:
        return msgspec.convert(found, list[t.ElicitRequestParams])[:_MOST_PAGES] if found else []
    except msgspec.ValidationError:
        return []


def _plain(result: t.InputRequiredResult) -> dict[str, Any]:
    """Return what was asked as plain data that can travel in sealed state."""
    questions = {
        key: {"method": each.method, "params": {} if each.params is None else msgspec.json.decode(each.params)}
        for key, each in (result.input_requests or {}).items()
    }
    if not questions and result.request_state is None:
        raise RemoteProtocolError("The server requires input, but sent neither input requests nor a request state.")
    return {"state": result.request_state, "questions": questions}


def user_store_path(folder: Path, *, issuer: str | None, subject: str) -> Path:
    """Return the path of a user's logins; a digest, so it reveals no one and no subject can inject a path."""
    name = hashlib.sha256(f"{issuer or ''}\0{subject}".encode()).hexdigest()[:32]
    return folder / "users" / name / "logins"


def user_credentials(folder: Path, principal: Principal | None) -> Credentials:
    """Return the credentials of one user, as a function of a server's entry.

    Raises (when called):
        ServerUnavailable: the caller is not authenticated, or the user has no login for this server.
    """

    async def credentials(entry: ServerEntry) -> Mapping[str, Any]:
        if entry.url is None or has_authorization_header(entry):
            return {}
        if principal is None:
            raise ServerUnavailable(
                f"{entry.name} needs each user's own login, and the caller is not authenticated: serve with auth"
            )
        from trunkline.auth.credential_store import FileStore

        path = user_store_path(folder, issuer=principal.issuer, subject=principal.subject)
        login = await StoredLogins(FileStore(path)).find(entry)
        if login is None:
            raise ServerUnavailable(
                f"{entry.name} needs a login of {principal.subject}; run: "
                f"trunkline auth login {entry.name} --user {principal.subject}"
            )
        return {"auth": login}

    return credentials
