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
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.client.answers import further_needs
from trunkline.client.client import Client
from trunkline.errors import ConnectionLost, RemoteProtocolError, RequestTimeout, UrlElicitationRequired
from trunkline.host.passing.fronts import Front, log_wanted
from trunkline.host.passing.lanes import Lane, Needs, folders_of, prefers_handshake
from trunkline.host.passing.loops import VIA
from trunkline.host.passing.places import Place, Places
from trunkline.host.passing.running import Parking, Running
from trunkline.host.roots import Roots
from trunkline.host.session import HostSession
from trunkline.host.supervision.eras import shakes_hands
from trunkline.host.supervision.upstream import Upstream
from trunkline.protocol.caller import supports
from trunkline.protocol.limits import Limits
from trunkline.protocol.methods import decode_params, embedded_requests
from trunkline.protocol.revisions import NEWEST

__all__ = ["Errand", "Forwarder", "Review", "shared_needs"]

#: Returns the host's answer to a question, or None to forward it to the caller; raises to refuse it.
Review = Callable[[str, Any], Awaitable[Raw | None]]

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_MOST_PAGES = 8
_USUAL = Limits()
#: The log level requested from a stateless server for a handshake client that set none: our servers' own default.
_USUAL_LEVEL: t.LoggingLevel = "info"
_MAY_ASK = frozenset({"tools/call", "prompts/get", "resources/read"})
_ASKABLE = ("sampling", "elicitation", "roots")
_UNREADABLE = (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError)


class Errand(Struct, frozen=True, kw_only=True):
    """A request to forward: the server, the message, the caller, and the review of questions back."""

    upstream: Upstream
    method: str
    params: Any
    session: HostSession
    front: Front
    review: Review
    #: The ids of the gateways it came through.
    via: tuple[str, ...] = ()


class Forwarder:
    """Forwards requests to servers, and resumes parked calls."""

    def __init__(self, *, name: str, parking: Parking, rounds: int, roots: Roots | None = None) -> None:
        """Set the id that goes into ``VIA``, the parked calls, and the most rounds of a call."""
        self._name = name
        self._parking = parking
        self._rounds = rounds
        self._roots = Roots() if roots is None else roots
        self._busy: dict[Upstream, Places] = {}
        #: The requests in progress on each shared connection that a log message may belong to.
        self._logging: dict[Upstream, dict[int, Errand]] = {}

    async def send(self, errand: Errand) -> tuple[Any, Raw]:
        """Forward a request; return the result, decoded and raw.

        If a server requires a page to be opened first (-32042), the request is repeated after that, unless the caller's
        revision knows the error itself.

        Raises:
            ServerUnavailable: the server is not running.
            RequestFailed, LinkError, RemoteProtocolError: the request failed.
        """
        try:
            return await self._send(errand)
        except UrlElicitationRequired as error:
            if errand.front.knows_url_errors or not supports(_askable(errand), "elicitation.url"):
                raise
            pages = _pages(error)
            if not pages:
                raise
            for number, page in enumerate(pages):
                raw = await self._ask(errand, "elicitation/create", page, key=f"page-{number}")
                if msgspec.json.decode(raw, type=t.ElicitResult).action != "accept":
                    raise
        return await self._send(errand)

    async def _send(self, errand: Errand) -> tuple[Any, Raw]:
        upstream, front = errand.upstream, errand.front
        with upstream.using():
            if front.did("parked"):
                return await self._on_lane(errand, None)
            # A stateless caller can be asked only by methods whose result may be ``input_required``.
            askable = errand.method in _MAY_ASK or not front.parks
            needs = Needs.of(_askable(errand) if askable else {}, logs=front.log_level is not None)
            if upstream.entry.settings.per_user:
                return await self._send_alone(errand, needs)
            client = await upstream.reach()
            handshake = shakes_hands(client)
            if front.shakes_hands and prefers_handshake(upstream, needs):
                lane = await self._shaken(errand, needs)
                if lane is not None:
                    return await self._on_lane(errand, lane)
            if self.needs_lane(upstream, needs, handshake=handshake):
                lane = await self._lane(errand, needs, handshake=handshake)
                return await (self._on_lane if handshake else self._in_rounds_on)(errand, lane)
            with self._may_log(errand, handshake=handshake):
                return await (self._plainly if handshake else self._in_rounds)(errand, client)

    async def _send_alone(self, errand: Errand, needs: Needs) -> tuple[Any, Raw]:
        """Forward a request with the credentials of the caller, whether or not the host itself has access."""
        upstream, lane = errand.upstream, None
        if errand.front.shakes_hands and needs.asks and upstream.may_shake:
            lane = await self._shaken(errand, needs)
        if lane is None:
            declared, roots = self._with_roots(upstream, needs), self._own_roots(upstream)
            lane = errand.session.lanes.find(upstream, declared, roots=roots)
        with lane.kept():
            client = await self._opened(errand.session, lane)
            return await (self._on_lane if shakes_hands(client) else self._in_rounds_on)(errand, lane)

    async def _shaken(self, errand: Errand, needs: Needs) -> Lane | None:
        upstream = errand.upstream
        declared, roots = self._with_roots(upstream, needs), self._own_roots(upstream)
        return await errand.session.lanes.find_shaken(upstream, declared, roots=roots)

    @contextmanager
    def _may_log(self, errand: Errand, *, handshake: bool) -> Iterator[None]:
        """Register a request on a shared connection while log messages may belong to it.

        A stateless server logs only for requests that ask for it; a handshake server may log for any.
        """
        if not handshake and not errand.front.takes_logs:
            yield
            return
        errands = self._logging.setdefault(errand.upstream, {})
        errands[id(errand)] = errand
        try:
            yield
        finally:
            del errands[id(errand)]

    def logged(self, upstream: Upstream, message: t.LoggingMessageNotificationParams) -> bool:
        """Send a log message of a shared connection to the one session it can belong to; return False if there is none.

        The message does not name its request. While requests of several sessions are in progress it is dropped: no
        client may read what a server logs for another. A client that sets a level has a dedicated connection.
        """
        errands = list(self._logging.get(upstream, {}).values())
        if not errands:
            return False
        if all(errand.session is errands[0].session for errand in errands):
            front = next((errand.front for errand in reversed(errands) if errand.front.open), None)
            if front is not None and log_wanted(message.level, front.log_level, unasked=front.takes_logs):
                front.log(message)
        return True

    async def _lane(self, errand: Errand, needs: Needs, *, handshake: bool) -> Lane:
        """Return the dedicated connection for a call.

        A handshake server requests the roots of its client once. Callers without a session may be a different client
        each time: if the server is known to request roots, each list of roots gets its own connection.
        """
        upstream, roots = errand.upstream, self._own_roots(errand.upstream)
        if roots is None and handshake and needs.roots and errand.front.parks and upstream.asks_roots:
            raw = await self._ask(errand, "roots/list", t.RequestParams(), key="roots")
            folders = msgspec.json.decode(raw, type=t.ListRootsResult).roots
            needs = replace(needs, folders=folders_of(folders))
            return await errand.session.lanes.find_for(upstream, needs, folders)
        return errand.session.lanes.find(upstream, self._with_roots(upstream, needs), roots=roots)

    def _own_roots(self, upstream: Upstream) -> Callable[[], Any] | None:
        """Return a function for the server's own roots, which replace the caller's; None if it has none."""
        return None if self._roots.of(upstream.entry) is None else lambda: self._roots.of(upstream.entry)

    def _with_roots(self, upstream: Upstream, needs: Needs) -> Needs:
        """Return what a connection declares: with roots, if the server has roots of its own."""
        return needs if self._roots.of(upstream.entry) is None else replace(needs, roots=True)

    def forget(self, upstream: Upstream) -> None:
        """Forget a server that was removed."""
        self._busy.pop(upstream, None)
        self._logging.pop(upstream, None)

    def needs_lane(self, upstream: Upstream, needs: Needs, *, handshake: bool) -> bool:
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

    def declares(self, upstream: Upstream, needs: Needs) -> Needs:
        """Return what a connection for a caller with these needs declares."""
        allowed = self._with_roots(upstream, needs.within(upstream.entry.settings.asks))
        return replace(allowed, logs=False, folders=None, handshake=False)

    async def open_lane(self, session: HostSession, upstream: Upstream, needs: Needs) -> None:
        """Open a dedicated connection to a server, which is listed if it is the first with these needs."""
        declared, roots = self._with_roots(upstream, needs), self._own_roots(upstream)
        lane = session.lanes.find(upstream, declared, roots=roots)
        with lane.kept():
            await self._opened(session, lane)

    async def _opened(self, session: HostSession, lane: Lane) -> Client:
        try:
            return await lane.open()
        except BaseException:
            if not lane.calls and lane.keepers <= 1:
                await session.lanes.drop(lane)
            raise

    def _meta(self, errand: Errand) -> dict[str, Any]:
        return {VIA: [*errand.via, self._name]}

    # --- servers that ask nothing ------------------------------------------------------------------------------------

    async def _plainly(self, errand: Errand, client: Client) -> tuple[Any, Raw]:
        place = await self._place(errand.upstream)
        try:
            return await self._pass_on(errand, client, errand.front.progress)
        finally:
            place.free()

    def _pass_on(
        self, errand: Errand, client: Client, progress: Callable[[t.ProgressNotificationParams], None]
    ) -> Awaitable[tuple[Any, Raw]]:
        """Send what was authorized, with our own ``_meta`` and the server's timeouts."""
        settings = errand.upstream.entry.settings
        return client.pass_on(
            errand.method,
            errand.params,
            timeout=settings.timeout,
            total_timeout=settings.total_timeout,
            on_progress=progress if errand.front.progress_wanted() else None,
            meta=self._meta(errand),
        )

    async def _place(self, upstream: Upstream) -> Place:
        """Acquire a slot within a server's concurrency limit; the caller releases it.

        Raises:
            RequestTimeout: none was available for as long as a call may take.
        """
        settings = upstream.entry.settings
        places = self._busy.get(upstream)
        if places is None:
            places = self._busy[upstream] = Places(settings.concurrency)
        places.most = settings.concurrency
        if not places.full:
            return await places.take()
        seconds = settings.total_timeout or _USUAL.total_seconds
        try:
            async with asyncio.timeout(seconds):
                return await places.take()
        except TimeoutError as error:
            what = (
                f"{upstream.entry.name} has {settings.concurrency} calls in progress, and none ended in {seconds:g} s"
            )
            raise RequestTimeout(what, clock="total", seconds=seconds) from error

    # --- stateless servers -------------------------------------------------------------------------------------------

    async def _in_rounds_on(self, errand: Errand, lane: Lane) -> tuple[Any, Raw]:
        """Send a request on a dedicated connection, which delivers log messages to the caller."""
        with lane.kept(), lane.round(errand.front):
            try:
                client = await self._opened(errand.session, lane)
                return await self._in_rounds(errand, client)
            except RequestTimeout:
                errand.session.lanes.doubt(lane)
                raise
            finally:
                errand.session.lanes.used(lane)

    async def _in_rounds(self, errand: Errand, client: Client) -> tuple[Any, Raw]:
        """Send the request, and repeat it with the answers that the server asked for, until there is a result."""
        front, params, waits = errand.front, errand.params, 0
        meta = self._meta(errand)
        meta[t.META_CLIENT_CAPABILITIES] = self._declared(errand)
        if front.log_level is not None or front.takes_logs:
            meta[t.META_LOG_LEVEL] = front.log_level or _USUAL_LEVEL
        settings = errand.upstream.entry.settings
        for number in range(self._rounds):
            key = f"round-{number}"
            if front.did(key):
                asked = await front.once(key, dict)
            else:
                place = await self._place(errand.upstream)
                try:
                    result, raw = await client.pass_on(
                        errand.method,
                        params,
                        timeout=settings.timeout,
                        total_timeout=settings.total_timeout,
                        on_progress=front.progress if front.progress_wanted() else None,
                        meta=meta,
                    )
                finally:
                    place.free()
                if not isinstance(result, t.InputRequiredResult):
                    return result, raw
                asked = _plain(result)
                await front.once(key, lambda asked=asked: asked)
            waits = 0 if asked["questions"] else waits + 1
            if waits:
                await asyncio.sleep(min(_FIRST_PAUSE * 2 ** (waits - 1), _LONGEST_PAUSE))
            answers = await self._ask_all(errand, asked["questions"], number)
            params = replace(params, input_responses=answers or None, request_state=asked["state"])
        raise RemoteProtocolError(f"The server asked for more input in {self._rounds} rounds in a row.")

    def _declared(self, errand: Errand) -> dict[str, Any]:
        """Return what is declared to a stateless server: what the caller supports, and roots if the host has some."""
        declared = _askable(errand)
        if self._roots.of(errand.upstream.entry) is not None:
            declared["roots"] = {}
        return declared

    async def _ask_all(self, errand: Errand, questions: Mapping[str, Any], number: int) -> dict[str, Raw]:
        """Ask all questions of a round at once, so that a stateless caller gets them together."""
        rows, declared = embedded_requests(NEWEST), self._declared(errand)
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
            if not all(supports(declared, needed) for needed in further_needs(row.name, params)):
                raise RemoteProtocolError(
                    f"The server sent a request with options that the caller does not support: {row.name}."
                )
            asked[key] = (row.name, params)
        # All are reviewed before one is asked: no one should answer in vain.
        for key, (method, params) in asked.items():
            if (answer := await errand.review(method, params)) is not None:
                answers[key] = answer
        open_ones = {key: question for key, question in asked.items() if key not in answers}
        entry = errand.upstream.entry
        given = await asyncio.gather(
            *(errand.front.ask(*question, key=key, entry=entry) for key, question in open_ones.items())
        )
        return {**answers, **dict(zip(open_ones, given, strict=True))}

    async def _ask(self, errand: Errand, method: str, params: Any, *, key: str) -> Raw:
        answer = await errand.review(method, params)
        return (
            await errand.front.ask(method, params, key=key, entry=errand.upstream.entry) if answer is None else answer
        )

    # --- handshake servers that may ask ------------------------------------------------------------------------------

    async def _on_lane(self, errand: Errand, lane: Lane | None) -> tuple[Any, Raw]:
        """Run a call on a dedicated connection, or resume a parked one; its questions go to the caller."""
        front = errand.front
        if lane is None:
            running = self._parking.take_up(await front.once("parked", str), front)
        else:
            running = Running(lambda running: self._run(errand, lane, running), front)
            lane.calls[running] = None
            running.task.add_done_callback(lambda task: self._over(errand.session, lane, running))
        try:
            while (pending := await running.news()) is not None:
                if front.parks:
                    await front.once("parked", lambda: self._parking.admit(running))
                await running.settle(pending, self._ask(errand, pending.method, pending.params, key=pending.key))
            outcome = await running.task
        except asyncio.CancelledError:
            if front.left:
                # The questions were sent; the call waits for the client to return with the answers.
                self._parking.park(running)
                raise
            self._end(running)
            if running.task.cancelled() and not _being_cancelled():
                raise ConnectionLost("the server was stopped while it worked") from None
            raise
        except BaseException:
            self._end(running)
            raise
        self._parking.leave(running)
        running.close()
        return outcome

    async def _run(self, errand: Errand, lane: Lane, running: Running) -> tuple[Any, Raw]:
        client = await self._opened(errand.session, lane)
        await lane.want_logs(client, errand.front.log_level)

        def progress(news: t.ProgressNotificationParams) -> None:
            errand.upstream.heard()
            if running.front is not None and running.front.open:
                running.front.progress(news)

        running.place = await self._place(errand.upstream)
        try:
            return await self._pass_on(errand, client, progress)
        except RequestTimeout:
            errand.session.lanes.doubt(lane)
            raise
        finally:
            running.place.free()

    def _over(self, session: HostSession, lane: Lane, running: Running) -> None:
        lane.calls.pop(running, None)
        session.lanes.used(lane)

    def _end(self, running: Running) -> None:
        self._parking.leave(running)
        running.cancel()


def shared_needs(upstream: Upstream) -> Needs:
    """Return what the shared connection to a server declares."""
    return Needs.of(upstream.declared, logs=False)


def _being_cancelled() -> bool:
    """Return True if the caller was cancelled, rather than the work."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _askable(errand: Errand) -> dict[str, Any]:
    """Return what the server may request: what the caller supports, limited by the ``asks`` setting of the server."""
    asks, capabilities = errand.upstream.entry.settings.asks, errand.front.capabilities
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
