"""The channel back to the caller of a request.

It answers the server's questions and receives progress and log messages. The caller is a gateway client for one
request, or the program that uses the host; the router sees both through ``CallerChannel``. Questions forwarded to a
gateway client carry the name of the server that asks.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, get_args

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.errors import InvalidRequest, LocalProtocolError, RemoteProtocolError, UrlElicitationRequired
from trunkline.host.config.model import ServerEntry, ServerSettings
from trunkline.host.server_requests.handlers import ServerRequestHandler
from trunkline.host.upstreams.catalog.items import Offering
from trunkline.protocol.apps import APP_SETTINGS, declares_apps
from trunkline.protocol.caller import supports
from trunkline.protocol.channel import RequestToClient
from trunkline.protocol.extensions import APPS, declared_extension
from trunkline.protocol.methods import read_meta
from trunkline.protocol.revisions import Feature, uses_handshake
from trunkline.protocol.tasks import progress_text
from trunkline.protocol.trace_context import trace_members
from trunkline.server.channels import channel_for
from trunkline.server.server import Server
from trunkline.server.tasks.exchange import TaskExchange

__all__ = [
    "GATEWAYS",
    "VIA",
    "CallerChannel",
    "ConnectionNeeds",
    "GatewayChannel",
    "LocalChannel",
    "TaskProgress",
    "allowed_capabilities",
    "allowed_needs",
    "elicited_pages",
    "gateway_capability",
    "label_pages",
    "leads_back",
    "listed_extensions",
    "log_wanted",
    "passed_trace",
    "plain_questions",
    "prefers_handshake",
    "request_gateways",
    "shared_needs",
    "tells_of_pages",
    "with_server_label",
]


class ConnectionNeeds(Struct, frozen=True):
    """What a connection must declare: the capabilities of the caller."""

    sampling: bool = False
    sampling_tools: bool = False
    elicitation: bool = False
    elicitation_urls: bool = False
    roots: bool = False
    logs: bool = False
    #: Digest of the roots that were requested before the call, where each call may have others.
    roots_digest: str | None = None
    #: Whether to use a handshake although the shared connection uses a stateless revision.
    handshake: bool = False
    #: Whether the caller shows pages of MCP Apps.
    apps: bool = False

    @classmethod
    def of(cls, capabilities: Mapping[str, Any], *, logs: bool) -> ConnectionNeeds:
        """Return the needs for declared capabilities."""
        if not capabilities:
            return _ONLY_LOGS if logs else _NOTHING
        return cls(
            sampling=supports(capabilities, "sampling"),
            sampling_tools=supports(capabilities, "sampling.tools"),
            elicitation=supports(capabilities, "elicitation"),
            elicitation_urls=supports(capabilities, "elicitation.url"),
            roots=supports(capabilities, "roots"),
            logs=logs,
            apps=_shows_pages(capabilities),
        )

    def within(self, asks: Collection[str] | None) -> ConnectionNeeds:
        """Return only what a server may ask for; None means everything."""
        if asks is None:
            return self
        elicitation, sampling = "elicitation" in asks, "sampling" in asks
        return replace(
            self,
            sampling=self.sampling and sampling,
            sampling_tools=self.sampling_tools and sampling,
            elicitation=self.elicitation and elicitation,
            elicitation_urls=self.elicitation_urls and elicitation,
            roots=self.roots and "roots" in asks,
        )

    @property
    def asks(self) -> bool:
        """Whether any server request can be answered."""
        return self.sampling or self.elicitation or self.roots

    @property
    def capabilities(self) -> dict[str, Any]:
        """These needs as the capabilities that a client declares."""
        declared: dict[str, Any] = {}
        if self.sampling:
            declared["sampling"] = {"tools": {}} if self.sampling_tools else {}
        if self.elicitation:
            declared["elicitation"] = {"form": {}, "url": {}} if self.elicitation_urls else {"form": {}}
        if self.roots:
            declared["roots"] = {}
        if self.apps:
            declared["extensions"] = {APPS: dict(APP_SETTINGS)}
        return declared

    @property
    def shows_more(self) -> bool:
        """Whether a server may list more items to a client that declares these capabilities."""
        return self.asks or self.apps


def _shows_pages(capabilities: Mapping[str, Any]) -> bool:
    return declared_extension(capabilities, APPS) is not None and declares_apps(capabilities)


_MOST_PAGES = 8  # URLs in one error that the user is asked to open.
_ASKABLE = ("sampling", "elicitation", "roots")
_NOTHING = ConnectionNeeds()
_ONLY_LOGS = ConnectionNeeds(logs=True)


def with_server_label(params: Any, server: str) -> Any:
    """Return a server's question with the server's name before its text."""
    if isinstance(params, t.ElicitRequestParams):
        return replace(params, message=_label(server, params.message))
    if isinstance(params, t.CreateMessageRequestParams):
        # The messages are for the model; clients that let their user review a request show the system prompt too.
        asks = f"[{server}] This request is made by the MCP server {server}."
        return replace(params, system_prompt=f"{asks}\n\n{params.system_prompt}" if params.system_prompt else asks)
    return params


def label_pages(data: Any, server: str) -> Any:
    """Return the data of a -32042 error with the server's name before the text of each page that is to be opened."""
    pages = data.get("elicitations") if isinstance(data, dict) else None
    if not isinstance(pages, list):
        return data
    return {**data, "elicitations": [_page(each, server) for each in pages]}


def elicited_pages(error: UrlElicitationRequired) -> list[t.ElicitRequestParams]:
    """Parse the URLs that the user must open first (-32042); empty if they cannot be parsed."""
    found = error.data.get("elicitations") if isinstance(error.data, dict) else None
    try:
        pages = msgspec.convert(found, list[t.ElicitRequestParams])[:_MOST_PAGES] if found else []
    except msgspec.ValidationError:
        return []
    return [page for page in pages if page.mode == "url" and page.url]


def _page(page: Any, server: str) -> Any:
    message = page.get("message") if isinstance(page, dict) else None
    return {**page, "message": _label(server, message)} if isinstance(message, str) else page


def _label(server: str, message: str) -> str:
    return f"[{server}] {message}"


if TYPE_CHECKING:
    from trunkline.host.session import HostSession
    from trunkline.host.upstreams.supervision.upstream import Upstream


_LEVELS: tuple[t.LoggingLevel, ...] = get_args(t.LoggingLevel)


def log_wanted(level: t.LoggingLevel, least: t.LoggingLevel | None, *, unasked: bool) -> bool:
    """Return True if a log message is for a client that asked for ``least``, or for nothing.

    ``unasked`` is true for handshake clients: until they set a level, a server sends what it sends by default.
    """
    return unasked if least is None else _LEVELS.index(level) >= _LEVELS.index(least)


class TaskProgress(t.ProgressNotificationParams, frozen=True):
    """Progress that represents the status of a server's task; its message is shown unchanged."""


class CallerChannel(Protocol):
    """The channel back to the caller of a request."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the caller declared."""

    @property
    def log_level(self) -> t.LoggingLevel | None:
        """The log level it requested; None if it requested none."""

    @property
    def receives_logs(self) -> bool:
        """Whether log messages are sent to it although it set no level, as handshake servers do."""

    @property
    def is_handshake(self) -> bool:
        """Whether it is a client of a handshake revision, which would use that with the server directly."""

    @property
    def knows_url_errors(self) -> bool:
        """Whether its revision has the error that requires a page to be opened first."""

    @property
    def parks(self) -> bool:
        """Whether it leaves with a question and comes back with the answer, so that the call is parked."""

    @property
    def left(self) -> bool:
        """Whether the request ended with questions: it will be repeated with the answers."""

    @property
    def suspended(self) -> bool:
        """Whether the process is stopping and the next one continues this call, which is a task."""

    @property
    def open(self) -> bool:
        """Whether the caller still waits for the result."""

    def wants_progress(self) -> bool:
        """Return True if the caller wants progress."""

    def progress(self, news: t.ProgressNotificationParams) -> None:
        """Send progress."""

    def log(self, message: t.LoggingMessageNotificationParams) -> None:
        """Send a log message."""

    def elicitation_completed(self, name: str) -> None:
        """Notify that an elicitation by URL was completed, by its id."""

    async def ask(self, method: str, params: Any, *, key: str, entry: ServerEntry | None = None) -> Raw:
        """Ask the caller a question of a server, or of the host itself; return the raw answer."""

    async def once(self, key: str, function: Callable[..., Any]) -> Any:
        """Call a function once, however often the request is repeated; its result is plain data."""

    def did(self, key: str) -> bool:
        """Return True if ``once`` has a result for this key."""


class GatewayChannel:
    """The channel to a client of the gateway, for one request."""

    __slots__ = ("_exchange", "_reported", "_server", "_token", "log_level", "receives_logs")

    def __init__(self, server: Server, exchange: Exchange, *, log_level: t.LoggingLevel | None) -> None:
        """Set the request that is being served."""
        self._server = server
        self._exchange = exchange
        self.log_level: t.LoggingLevel | None = log_level
        self.receives_logs: bool = exchange.admitted.caller.session is not None
        meta: t.RequestMeta | None = getattr(exchange.admitted.params, "meta", None)
        self._token = None if meta is None else meta.progress_token
        #: The last report: the server's progress, the total and the message.
        self._reported: tuple[float, float | None, str | None] | None = None

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client declared."""
        found: Mapping[str, Any] = self._exchange.admitted.caller.capabilities
        return found

    @property
    def is_handshake(self) -> bool:
        """Whether the client's revision has a handshake."""
        return bool(self._exchange.admitted.caller.revision.handshake)

    @property
    def knows_url_errors(self) -> bool:
        """Whether the client's revision has the error."""
        return Feature.URL_ELICITATION_ERROR in self._exchange.admitted.caller.revision.features

    @property
    def parks(self) -> bool:
        """Whether the client's revision has ``input_required`` results; a task waits for its answers instead."""
        features = self._exchange.admitted.caller.revision.features
        return Feature.INPUT_REQUIRED in features and not self._exchange.reports_status

    @property
    def left(self) -> bool:
        """Whether the request ended with questions."""
        channel = self._exchange.channel
        return channel is not None and channel.interrupted

    @property
    def suspended(self) -> bool:
        """Whether the call is a task that the next process continues."""
        return self._exchange.suspended

    @property
    def open(self) -> bool:
        """Whether the client still waits."""
        return self._exchange.open

    def wants_progress(self) -> bool:
        """Return True if the client sent a progress token, or may get a task, whose status shows the progress."""
        return self._token is not None or self._exchange.may_become_task

    def progress(self, news: t.ProgressNotificationParams) -> None:
        """Forward progress under the client's own token, or as the status of a task; each report is sent once."""
        exchange = self._exchange
        report = (news.progress, news.total, news.message)
        if report == self._reported:
            return
        self._reported = report
        increased = self._increased(news)
        token = "" if self._token is None and exchange.may_become_task else self._token
        if token is not None and increased is not None:
            params = t.ProgressNotificationParams(
                progress_token=token, progress=increased, total=news.total, message=news.message
            )
            exchange.notify("notifications/progress", params)
        if isinstance(exchange, TaskExchange) and news.message is not None:
            if isinstance(news, TaskProgress):
                exchange.set_status(news.message)
            elif increased is None and (line := progress_text("notifications/progress", news)) is not None:
                # The status of a task may change without an increase.
                exchange.set_status(line)

    def _increased(self, news: t.ProgressNotificationParams) -> float | None:
        """Return the progress to send, which is more than the last; None if that would exceed the total."""
        progress, store = news.progress, self._exchange.store
        if store is None:
            return progress
        if store.progress is not None and progress <= store.progress:
            # A keep-alive may have increased the progress, which must grow with each notification.
            progress = math.nextafter(store.progress, math.inf)
            if news.total is not None and progress > news.total:
                return None
        store.progress = progress
        return progress

    def serves(self, server: Server) -> bool:
        """Return True if the request was made to this gateway."""
        return self._server is server

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send the client a notification of an extension on the stream of this request."""
        self._exchange.notify(method, params)

    def log(self, message: t.LoggingMessageNotificationParams) -> None:
        """Forward a log message on the stream of this request."""
        self._exchange.notify("notifications/message", message)

    def elicitation_completed(self, name: str) -> None:
        """Notify the client, if its revision has elicitation ids."""
        if self.knows_url_errors:
            params = t.ElicitationCompleteNotificationParams(elicitation_id=name)
            self._exchange.notify("notifications/elicitation/complete", params)

    async def ask(self, method: str, params: Any, *, key: str, entry: ServerEntry | None = None) -> Raw:
        """Ask the client, in the way of its era; the question names the server that asks."""
        if entry is not None:
            params = with_server_label(params, entry.name)
        if isinstance(params, t.ElicitRequestParams) and params.mode == "url" and self.knows_url_errors:
            # This revision requires an elicitation id; the server may not have sent one.
            params = replace(params, elicitation_id=params.elicitation_id or os.urandom(16).hex())
        return await channel_for(self._exchange).ask(RequestToClient(method, params, key))

    async def once(self, key: str, function: Callable[..., Any]) -> Any:
        """Call a function once in all rounds of the request."""
        return await channel_for(self._exchange).once(key, function)

    def did(self, key: str) -> bool:
        """Return True if an earlier round did it."""
        return self._exchange.channel is not None and self._exchange.channel.did(key)


class LocalChannel:
    """The channel to a program that uses the host, with its own request handler."""

    __slots__ = ("_log", "_progress", "_request_handler", "_session", "log_level")

    #: The program waits as long as its call lasts, and its request runs once.
    left = suspended = False
    open = True
    receives_logs = False
    #: Dedicated connections would each be a second process for a single call.
    is_handshake = False
    knows_url_errors = False
    parks = False

    def __init__(
        self,
        request_handler: ServerRequestHandler,
        session: HostSession,
        *,
        on_progress: Callable[[t.ProgressNotificationParams], object] | None = None,
        on_log: Callable[[t.LoggingMessageNotificationParams], object] | None = None,
    ) -> None:
        """Set the request handler and the callbacks."""
        self._request_handler = request_handler
        self._session = session
        self._progress = on_progress
        self._log = on_log
        self.log_level: t.LoggingLevel | None = None if on_log is None else "info"

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities of the request handler."""
        return self._request_handler.capabilities

    def wants_progress(self) -> bool:
        """Return True if there is a callback."""
        return self._progress is not None

    def progress(self, news: t.ProgressNotificationParams) -> None:
        """Call the progress callback."""
        if self._progress is not None:
            self._progress(news)

    def log(self, message: t.LoggingMessageNotificationParams) -> None:
        """Call the log callback."""
        if self._log is not None:
            self._log(message)

    def elicitation_completed(self, name: str) -> None:
        """Do nothing: there is no callback for it."""

    async def ask(self, method: str, params: Any, *, key: str, entry: ServerEntry | None = None) -> Raw:
        """Call the request handler."""
        if entry is None:
            raise LocalProtocolError(f"no server asks for {method}")
        return await self._request_handler.answer(entry, method, params, self._session)

    async def once(self, key: str, function: Callable[..., Any]) -> Any:
        """Call the function: the request runs once."""
        done = function()
        return await done if inspect.isawaitable(done) else done

    def did(self, key: str) -> bool:
        """Return False: nothing was done before."""
        return False


def listed_extensions(settings: ServerSettings, capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return the extensions of a caller that are declared to a server: those that its entry lists."""
    declared = capabilities.get("extensions")
    found = declared if isinstance(declared, Mapping) else {}
    return {id: found[id] for id in settings.extensions if id in found}


def allowed_capabilities(
    settings: ServerSettings, capabilities: Mapping[str, Any], offering: Offering | None
) -> dict[str, Any]:
    """Return the capabilities declared to a server: the caller's, limited by the server's ``asks`` setting."""
    asks = settings.asks
    allowed = {name: capabilities[name] for name in _ASKABLE if name in capabilities and (asks is None or name in asks)}
    if _shows_pages(capabilities) and tells_of_pages(offering, asks=bool(allowed)):
        allowed["extensions"] = {APPS: dict(APP_SETTINGS)}
    return allowed


def prefers_handshake(upstream: Upstream, needs: ConnectionNeeds) -> bool:
    """Return True if a handshake client with these needs gets a dedicated connection with a handshake.

    That is so where the shared connection is stateless and the server may support the handshake too. Some servers of
    both eras can send requests only after a handshake. A server with ``perUser`` may have no shared connection.
    """
    client, settings = upstream.client, upstream.entry.settings
    if not needs.asks or not upstream.may_handshake:
        return False
    is_stateless = client is not None and settings.share != "shared" and not uses_handshake(client.revision)
    return settings.per_user or is_stateless


def shared_needs(upstream: Upstream) -> ConnectionNeeds:
    """Return what the shared connection to a server declares."""
    return ConnectionNeeds.of(upstream.declared, logs=False)


def allowed_needs(settings: ServerSettings, needs: ConnectionNeeds, offering: Offering | None) -> ConnectionNeeds:
    """Return the needs of a caller at a server: those of its ``allowed_capabilities``."""
    within = needs.within(settings.asks)
    return replace(within, apps=needs.apps and tells_of_pages(offering, asks=within.asks))


def tells_of_pages(offering: Offering | None, *, asks: bool) -> bool:
    """Return True if MCP Apps is declared to a server on behalf of its caller.

    Some servers name their pages, and declare the extension, only to clients that declared it. A dedicated connection
    just for this would be a second process for every server; if the caller has one anyway, it costs nothing.
    """
    return asks or (offering is not None and offering.has_apps)


def plain_questions(result: t.InputRequiredResult) -> dict[str, Any]:
    """Return what was asked as plain data that can travel in sealed state."""
    questions = {
        key: {"method": each.method, "params": {} if each.params is None else msgspec.json.decode(each.params)}
        for key, each in (result.input_requests or {}).items()
    }
    if not questions and result.request_state is None:
        raise RemoteProtocolError("The server requires input, but sent neither input requests nor a request state.")
    return {"state": result.request_state, "questions": questions}


#: The experimental capability with the ids of a gateway and of those behind it.
GATEWAYS = "dev.trunkline/gateways"

#: The member of ``_meta`` with the ids of the gateways a request came through.
VIA = "dev.trunkline/via"

_VIA = VIA.encode()
_MOST_HOPS = 8  # Gateways behind gateways: real chains have two or three.
_MAX_GATEWAYS = 64  # Gateways behind one gateway, announced in a capability.
_MAX_ID_LENGTH = 64  # An id has 16 hexadecimal digits.


def gateway_capability(own: str, offerings: Iterable[Offering]) -> dict[str, Any]:
    """Return the capability that announces a gateway with this id and these offerings."""
    behind = dict.fromkeys(each for offering in offerings for each in _named(offering))
    return {GATEWAYS: {"ids": [own, *behind][:_MAX_GATEWAYS]}}


def leads_back(own: str, offering: Offering) -> bool:
    """Return True if an offering came through the gateway with this id."""
    return own in _named(offering)


def _named(offering: Offering) -> list[str]:
    """Return the gateways that a server announces; malformed announcements are ignored."""
    experimental = offering.capabilities.get("experimental")
    named = experimental.get(GATEWAYS) if isinstance(experimental, dict) else None
    ids = named.get("ids") if isinstance(named, dict) else None
    return (
        [each for each in ids[:_MAX_GATEWAYS] if isinstance(each, str) and len(each) <= _MAX_ID_LENGTH]
        if isinstance(ids, list)
        else []
    )


def passed_trace(params: Raw | None) -> dict[str, str]:
    """Return the trace context of a request that is passed on to servers.

    Without baggage, which is the caller's data and may be meant for this gateway only. OpenTelemetry, if the program
    has loaded it, passes what its propagators are set to.
    """
    members = trace_members(params)
    members.pop("baggage", None)
    return members


def request_gateways(params: Raw | None, own: str) -> tuple[str, ...]:
    """Return the ids of the gateways that a request came through.

    Raises:
        InvalidRequest: the gateway with the id ``own`` is among them, or there are too many.
    """
    if params is None or _VIA not in bytes(params):
        return ()
    hops = read_meta(params).get(VIA)
    via = tuple(str(hop)[:_MAX_ID_LENGTH] for hop in hops) if isinstance(hops, list) else ()
    if own in via or len(via) >= _MOST_HOPS:
        raise InvalidRequest(
            "Invalid request: it already came through this gateway; one of its servers leads back to it"
        )
    return via
