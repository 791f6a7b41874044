"""One open connection to a server, with the revision and capabilities negotiated on it.

It sends requests in the agreed revision, decodes the answers, runs the input rounds of a call, and answers the server's
requests. It lasts as long as its connection; the client that owns it may have had others before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

import trunkline.types as t
from trunkline.client.extension_results import UnknownKinds
from trunkline.client.options import CallOptions, ClientSettings
from trunkline.client.request_handlers import ExtensionResult, RequestHandlers, UndeclaredCapability, read_result
from trunkline.connection import Connection, Exchange, Timeouts
from trunkline.errors import (
    ConnectionLost,
    LocalProtocolError,
    MissingCapability,
    RemoteProtocolError,
    RequestFailed,
    RequestTimeout,
)
from trunkline.protocol.caller import EXTENSIONS, Origin, supports
from trunkline.protocol.extensions import CLIENT_DEFAULTS, TASKS, declared_extension
from trunkline.protocol.input_required import CollectInput, input_rounds
from trunkline.protocol.methods import (
    METHODS,
    Method,
    capability_needed,
    decode_large_result,
    embedded_requests,
    requests_to_client,
    requests_to_server,
)
from trunkline.protocol.negotiation import Agreement, revision_of_late_answer
from trunkline.protocol.peer import NotificationReceived
from trunkline.protocol.revisions import NEWEST, Feature, Revision
from trunkline.service import ErrorReply
from trunkline.timers import Timers
from trunkline.transports.link import Link
from trunkline.types import InputRequest, InputRequiredResult, RequestId

if TYPE_CHECKING:
    from trunkline.client.tasks.receiver import ReceivedTasks

__all__ = ["ClientSession", "SessionOwner", "encode", "sleep"]

encode = msgspec.json.Encoder().encode
_KNOWN_NAMES = frozenset(row.name for row in METHODS)
# The delay before a request is repeated although the server asked for no input: doubled each time, up to the maximum.
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0  # A server that only waits is asked again every five seconds.


class SessionOwner(Protocol):
    """Receives what a session did not ask for."""

    def notified(self, session: ClientSession, method: str, params: Raw | None) -> None:
        """Called with each notification."""

    def lost(self, session: ClientSession, reason: Exception) -> None:
        """Called when the connection ends."""

    def discovered_late(self, session: ClientSession, revision: Revision) -> None:
        """Called when the server shows, after the handshake was tried, that it speaks a stateless revision."""


class ClientSession:
    """A session with a server."""

    def __init__(self, link: Link, owner: SessionOwner, *, settings: ClientSettings, timers: Timers) -> None:
        """Create the connection; nothing is sent or received before ``connection.start``."""
        self._owner = owner
        self._settings = settings
        self.link = link
        self._timers = timers
        self.connection = Connection(link, self, limits=settings.limits, timers=timers)
        if settings.tap is not None:
            settings.tap.attach(self.connection)
        self.agreement: Agreement | None = None
        #: Why the connection ended, once it has.
        self.lost: Exception | None = None
        #: The requests that revision and server allow, by name.
        self.allowed: Mapping[str, Method] = {}
        #: The kinds of results that extensions add, with their methods.
        self.result_kinds: Container[tuple[str, str]] = frozenset()
        self._log_level: t.LoggingLevel | None = settings.log_level
        self._received_tasks: ReceivedTasks | None = None
        self.use_revision(NEWEST)

    # --- negotiated state --------------------------------------------------------------------------------------------

    def use_revision(self, revision: Revision) -> None:
        """Use a revision from now on."""
        self.revision = revision
        #: Whether headers mirror parts of a request, so that the client must know the tools it calls.
        self.mirrors = self.link.independent_requests and Feature.ROUTING_HEADERS in revision.features
        #: Whether the server may drop the session while the connection stays open.
        self.renews = self.link.independent_requests and revision.handshake
        #: Whether some tools may have to be called as tasks: revision and server have tasks in the core.
        self.core_tasks = False
        self.link.set_revision(revision)
        asked = requests_to_client if revision.handshake else embedded_requests
        self._request_handlers = RequestHandlers(self._settings, revision, asked(revision))
        self._build_meta()

    def agree(self, agreement: Agreement) -> None:
        """Apply the result of the negotiation; requests may be sent from now on."""
        self.agreement = agreement
        self.use_revision(agreement.revision)
        self.core_tasks = Feature.CORE_TASKS in self.revision.features and self.declared("tasks.requests.tools.call")
        rows = requests_to_server(agreement.revision)
        self.allowed = {name: row for name, row in rows.items() if self._offered(row)}
        kinds = frozenset(self._kinds())
        self.result_kinds = UnknownKinds(kinds) if self._has_unknown_kinds() else kinds

    def _offered(self, row: Method) -> bool:
        assert self.agreement is not None
        needed = capability_needed(row, self.revision)
        return needed is None or supports(self.agreement.capabilities, needed)

    def _has_unknown_kinds(self) -> bool:
        """Return True if an extension was declared by its identifier alone: its kinds of results are not known here."""
        known = {*CLIENT_DEFAULTS, *(each.id for each in self._settings.extension_objects)}
        return any(id not in known and self.declared(f"{EXTENSIONS}{id}") for id in self._settings.extensions)

    def _kinds(self) -> Iterator[tuple[str, str]]:
        """Yield the kinds of results of extensions that both sides have declared."""
        if declared_extension(self.capabilities, TASKS) is not None and self.declared(f"{EXTENSIONS}{TASKS}"):
            yield "tools/call", "task"
        for extension in self._settings.extension_objects:
            if self.declared(f"{EXTENSIONS}{extension.id}"):
                yield from ((each.method, each.name) for each in extension.result_kinds.values())

    @property
    def capabilities(self) -> dict[str, Any]:
        """The capabilities that this client declares in the current revision."""
        return self._request_handlers.capabilities

    def declared(self, capability: str) -> bool:
        """Return True if the server declared a capability, given as a dotted path."""
        return self.agreement is not None and supports(self.agreement.capabilities, capability)

    def set_log_level(self, level: t.LoggingLevel | None) -> None:
        """Set the log level that each request asks for from now on."""
        self._log_level = level
        self._build_meta()

    def _build_meta(self) -> None:
        """Build the ``_meta`` of all requests once; stateless requests carry the client and the revision in it."""
        self._meta: dict[str, Any] = {}
        if Feature.ENVELOPE in self.revision.features:
            meta = t.RequestMeta(
                protocol_version=self.revision.name,
                client_info=self._settings.client_info,
                client_capabilities=self._request_handlers.capabilities,
                # Handshake servers send log messages unasked; a client with a log callback should get them in both
                # eras.
                log_level=self._log_level or ("info" if self._settings.logging is not None else None),
            )
            self._meta = msgspec.to_builtins(meta)
        #: The same, encoded; None if it is empty.
        self.meta: Any = Raw(encode(self._meta)) if self._meta else None

    def discovered_late(self, answer: Raw | RequestFailed) -> None:
        """Called with an answer to the era probe that arrived after its timeout."""
        revision = revision_of_late_answer(answer)
        if revision is not None:
            self._owner.discovered_late(self, revision)

    # --- requests ----------------------------------------------------------------------------------------------------

    def row(self, method: str) -> Method:
        """Return the row of a method that may be used on this connection.

        Raises:
            MissingCapability: the server did not declare the capability it needs.
            LocalProtocolError: the revision does not have the method.
        """
        return self.allowed.get(method) or self._refuse(method)

    def _refuse(self, method: str) -> NoReturn:
        row = requests_to_server(self.revision).get(method)
        if row is None:
            raise LocalProtocolError(f"{method} does not exist in {self.revision.name}, the agreed revision.")
        capability = capability_needed(row, self.revision) or ""
        raise MissingCapability(
            f"The server did not declare {capability}, so {method} was not sent.", capability=capability
        )

    def with_declaration(self, method: str, params: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the params of a notification; one of an extension has the client's capabilities in stateless eras."""
        declared = any(method in each.notifications for each in self._settings.extension_objects)
        if not declared or not self._meta:
            return params
        return {**(params or {}), "_meta": {**self._meta, **(params or {}).get("_meta", {})}}

    def check_extension(self, method: str) -> None:
        """Check that a custom method or notification may be sent: one of an extension needs the server's declaration.

        Raises:
            MissingCapability: the server did not declare the extension.
        """
        for extension in self._settings.extension_objects:
            capability = f"{EXTENSIONS}{extension.id}"
            if (method in extension.methods or method in extension.notifications) and not self.declared(capability):
                raise MissingCapability(
                    f"The server did not declare {capability}, so {method} was not sent.", capability=capability
                )

    async def call(self, method: str, params: Any, options: CallOptions) -> tuple[Any, bool]:
        """Send a request and answer the server's input requests; return the result and whether that took more rounds.

        Raises:
            MissingCapability, LocalProtocolError: nothing was sent; see ``row``.
            RequestFailed, LinkError, RemoteProtocolError: see ``Connection.request``.
        """
        row = self.allowed.get(method) or self._refuse(method)
        started = self._timers.clock.now()
        raw = await self._send(method, params, options)
        result = read_result(row, raw, self.revision, self.result_kinds)
        if type(result) is not InputRequiredResult:
            return result, False
        return await self._finish(row, params, result, options, started), True

    async def forward(self, method: str, params: Any, options: CallOptions) -> tuple[Any, Raw]:
        """Forward a request on behalf of another caller for one round; return the result decoded and raw.

        What the options' ``meta`` says about the caller (capabilities, log level) replaces our own values.

        Raises:
            MissingCapability, LocalProtocolError: nothing was sent; see ``row``.
            RequestFailed, LinkError, RemoteProtocolError: see ``Connection.request``.
        """
        row = self.allowed.get(method) or self._refuse(method)
        raw = await self._send(method, params, options, forwarded=True)
        large = decode_large_result(row, raw)
        return read_result(row, raw, self.revision, self.result_kinds) if large is None else large, raw

    def _send(
        self, method: str, params: Any, options: CallOptions, *, forwarded: bool = False
    ) -> Coroutine[Any, Any, Raw]:
        """Send one round of a request, with ``_meta`` added to its params."""
        id, meta = None, self.meta
        if options.on_progress is not None or options.meta is not None:
            id, meta = self._meta_with_token(options, forwarded=forwarded)
        return self.connection.request(
            method,
            params if meta is None else replace(params, meta=meta),
            timeouts=options.timeouts,
            on_progress=options.on_progress,
            id=id,
            headers=options.headers,
        )

    def _meta_with_token(self, options: CallOptions, *, forwarded: bool = False) -> tuple[RequestId, Raw]:
        """Reserve a request id and build its ``_meta``: ours, the caller's, and the id as progress token."""
        id = self.connection.peer.new_id()
        caller_meta = options.meta or {}
        meta = {**self._meta, **caller_meta} if forwarded else {**caller_meta, **self._meta}
        if options.on_progress is not None:
            meta["progressToken"] = id
        return id, Raw(encode(meta))

    async def request(self, method: str, params: dict[str, Any], options: CallOptions) -> Raw:
        """Send a request with params of the caller's choice and return the undecoded result.

        Raises:
            LocalProtocolError: it is a method of the protocol that this revision does not have.
        """
        if method in _KNOWN_NAMES:
            self.row(method)
        id, meta = self._meta_with_token(options)
        whole = {**params, "_meta": meta} if bytes(meta) != b"{}" else params
        return await self.connection.request(
            method, whole, timeouts=options.timeouts, on_progress=options.on_progress, id=id
        )

    # --- input rounds ------------------------------------------------------------------------------------------------

    async def _finish(
        self, row: Method, params: Any, first: InputRequiredResult, options: CallOptions, started: float
    ) -> Any:
        """Run the further rounds of a call; time spent waiting for the user does not count towards the timeout."""
        now = self._timers.clock.now
        flow = input_rounds(params, limit=self._settings.limits.rounds, first=first)
        step = next(flow)
        while True:
            outcome: Any
            if isinstance(step, CollectInput):
                begun = now()
                outcome = await self.answer_all(step.requests)
                started += now() - begun
            else:
                if step.waits:
                    await sleep(self._timers, min(_FIRST_PAUSE * 2 ** (step.waits - 1), _LONGEST_PAUSE))
                left = replace(options, timeouts=_remaining(options.timeouts, now() - started))
                raw = await self._send(row.name, step.params, left)
                outcome = read_result(row, raw, self.revision, self.result_kinds)
                if type(outcome) is ExtensionResult:
                    return outcome
            try:
                step = flow.send(outcome)
            except StopIteration as end:
                return end.value

    async def answer_all(self, requests: Mapping[str, InputRequest]) -> dict[str, Raw]:
        """Answer the input requests one after another: a person can be asked only one thing at a time."""
        try:
            checked = {
                key: self._request_handlers.check(request.method, request.params) for key, request in requests.items()
            }
        except UndeclaredCapability as failure:
            raise RemoteProtocolError(
                f"The server asked for a capability that this client did not declare: {failure.capability}."
            ) from failure
        except RequestFailed as failure:
            raise RemoteProtocolError(f"The server sent an invalid input request: {failure.message}") from failure
        answers: dict[str, Raw] = {}
        for key, params in checked.items():
            answers[key] = Raw(encode(await self._request_handlers.answer(requests[key].method, params)))
        return answers

    # --- called by the connection ------------------------------------------------------------------------------------

    def request_received(self, exchange: Exchange, origin: Origin) -> Coroutine[Any, Any, Any] | ErrorReply:
        """Called with a request of the server; validate it and return its handler or the refusal."""
        if not self.revision.handshake:
            # In stateless revisions servers send no requests, and a client must not write responses.
            self.connection.peer.receive_hangup(exchange.id)
            return _discard_request()
        try:
            question = self._request_handlers.check(exchange.method, exchange.params)
        except RequestFailed as failure:
            return ErrorReply(failure.code, failure.message, UNSET if failure.data is None else failure.data)
        if exchange.method.startswith("tasks/") or self._becomes_task(exchange.method, question):
            return self._tasks().serve(exchange.method, question)
        return self._answer(exchange.method, question)

    def _becomes_task(self, method: str, question: Any) -> bool:
        """Return True if a request asks to run as a task and may; otherwise it runs as an ordinary request."""
        if getattr(question, "task", None) is None:
            return False
        return supports(self.capabilities, f"tasks.requests.{method.replace('/', '.')}")

    def _tasks(self) -> ReceivedTasks:
        """Return the tasks that the server has requested; the extension is imported on first use."""
        if self._received_tasks is None:
            from trunkline.client.tasks.receiver import ReceivedTasks

            self._received_tasks = ReceivedTasks(self._answer)
            self.connection.cleanup = self._stop_tasks
        return self._received_tasks

    async def _stop_tasks(self, connection: Connection) -> None:
        """Stop the tasks of the server after the connection has ended."""
        if self._received_tasks is not None:
            self._received_tasks.close()

    async def _answer(self, method: str, question: Any) -> Any:
        self.connection.pause_clocks()
        try:
            return await self._request_handlers.answer(method, question)
        finally:
            self.connection.resume_clocks()

    def notification_received(self, event: NotificationReceived, origin: Origin) -> None:
        """Called with a notification; pass it to the owner."""
        self._owner.notified(self, event.method, event.params)

    @property
    def session(self) -> None:
        """Always None: a ``Session`` is the server's record of a client."""
        return None

    def accepts_batches(self) -> bool:
        """Return True if the revision allows batches."""
        return Feature.BATCHES in self.revision.features

    def input_ended(self) -> None:
        """Called when the server has closed the connection."""
        self.lost = self.connection._error or ConnectionLost("the connection ended")
        self._owner.lost(self, self.lost)


async def _discard_request() -> NoReturn:
    """End like a cancelled request: no response is wanted."""
    raise asyncio.CancelledError


def _remaining(timeouts: Timeouts, used: float) -> Timeouts:
    total = timeouts.total
    left = None if total is None else total - used
    if total is not None and left is not None and left <= 0:
        raise RequestTimeout(f"no answer within {total:g} s", clock="total", seconds=total)
    return Timeouts(timeouts.idle, left)


async def sleep(timers: Timers, seconds: float) -> None:
    """Sleep by the client's own clock."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    row = timers.after(seconds, lambda: None if over.done() else over.set_result(None))
    try:
        await over
    finally:
        row.cancel()
