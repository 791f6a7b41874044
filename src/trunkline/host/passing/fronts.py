"""Who stands in front of an act: whom a server's questions go to, who hears progress and log messages.

A front is the gateway's client for one request, or the program that uses the host. Both look the same to what passes
requests on: what may be asked, a way to ask, and ``once`` for what must not be done twice when a stateless client's
request is taken up again.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, get_args

from msgspec import Raw
from msgspec.structs import replace

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.errors import LocalProtocolError
from trunkline.host.desks import Desk
from trunkline.host.entries import ServerEntry
from trunkline.host.passing.labels import labelled
from trunkline.protocol.revisions import Feature
from trunkline.server.questions import Question
from trunkline.server.server import Server

if TYPE_CHECKING:
    from trunkline.host.session import HostSession

__all__ = ["Front", "GatewayFront", "LocalFront", "log_wanted"]

_LEVELS: tuple[t.LoggingLevel, ...] = get_args(t.LoggingLevel)


def log_wanted(level: t.LoggingLevel, least: t.LoggingLevel | None, *, unasked: bool) -> bool:
    """Return True if a log message is for a client that asked for ``least``, or for nothing.

    ``unasked`` is true for handshake clients: until they set a level, a server sends what it sends by default.
    """
    return unasked if least is None else _LEVELS.index(level) >= _LEVELS.index(least)


class Front(Protocol):
    """The side that wants something done."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What may be asked of it, as it declared."""

    @property
    def log_level(self) -> t.LoggingLevel | None:
        """The log messages it asked for; None for those it did not."""

    @property
    def takes_logs(self) -> bool:
        """Whether log messages are sent to it although it did not ask for a level, as handshake servers do."""

    @property
    def shakes_hands(self) -> bool:
        """Whether it is a client of a handshake revision, which would speak such a revision to the server directly."""

    @property
    def knows_url_errors(self) -> bool:
        """Whether it understands that a page must be opened first when it is told so by an error."""

    @property
    def parks(self) -> bool:
        """Whether it goes away to find an answer, and comes back with it."""

    @property
    def left(self) -> bool:
        """Whether the request was left so that questions can go out: it will come again with the answers."""

    @property
    def open(self) -> bool:
        """Whether somebody still waits for the answer here."""

    def progress_wanted(self) -> bool:
        """Tell whether news of progress would be heard."""

    def progress(self, news: t.ProgressNotificationParams) -> None:
        """Tell how far the work has come."""

    def log(self, message: t.LoggingMessageNotificationParams) -> None:
        """Pass on a log message."""

    def page_finished(self, name: str) -> None:
        """Tell that a page that was to be opened is finished with, by the id it was asked under."""

    async def ask(self, method: str, params: Any, *, key: str, entry: ServerEntry | None = None) -> Raw:
        """Get an answer to a question of a server's, or of the host's own, undecoded."""

    async def once(self, key: str, function: Callable[..., Any]) -> Any:
        """Do something once, however often the request comes; its result is plain data."""

    def did(self, key: str) -> bool:
        """Tell whether ``once`` has a result for this key."""


class GatewayFront:
    """A client of the gateway, for one request."""

    __slots__ = ("_exchange", "_server", "_token", "log_level", "takes_logs")

    def __init__(self, server: Server, exchange: Exchange, *, log_level: t.LoggingLevel | None) -> None:
        """Take the request that is being served."""
        self._server = server
        self._exchange = exchange
        self.log_level: t.LoggingLevel | None = log_level
        self.takes_logs: bool = exchange.admitted.caller.session is not None
        meta: t.RequestMeta | None = getattr(exchange.admitted.params, "meta", None)
        self._token = None if meta is None else meta.progress_token

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client declared."""
        found: Mapping[str, Any] = self._exchange.admitted.caller.capabilities
        return found

    @property
    def shakes_hands(self) -> bool:
        """Whether the client's revision has a handshake."""
        return bool(self._exchange.admitted.caller.revision.handshake)

    @property
    def knows_url_errors(self) -> bool:
        """Whether the client's revision has that error."""
        return Feature.URL_ELICITATION_ERROR in self._exchange.admitted.caller.revision.features

    @property
    def parks(self) -> bool:
        """Whether the client's revision has questions in results."""
        return Feature.INPUT_REQUIRED in self._exchange.admitted.caller.revision.features

    @property
    def left(self) -> bool:
        """Whether the request was left for its questions."""
        return bool(getattr(self._exchange.questions, "left", False))

    @property
    def open(self) -> bool:
        """Whether the client still waits."""
        return self._exchange.open

    def progress_wanted(self) -> bool:
        """Tell whether the client gave a token."""
        return self._token is not None

    def progress(self, news: t.ProgressNotificationParams) -> None:
        """Pass progress on under the client's own token."""
        if self._token is not None:
            params = t.ProgressNotificationParams(
                progress_token=self._token, progress=news.progress, total=news.total, message=news.message
            )
            self._exchange.notify("notifications/progress", params)

    def log(self, message: t.LoggingMessageNotificationParams) -> None:
        """Pass a log message on, on the stream of this request."""
        self._exchange.notify("notifications/message", message)

    def page_finished(self, name: str) -> None:
        """Tell the client, if its revision has ids for pages."""
        if self.knows_url_errors:
            params = t.ElicitationCompleteNotificationParams(elicitation_id=name)
            self._exchange.notify("notifications/elicitation/complete", params)

    async def ask(self, method: str, params: Any, *, key: str, entry: ServerEntry | None = None) -> Raw:
        """Ask the client, in the way of its era; it is told which server asks."""
        if entry is not None:
            params = labelled(params, entry.name)
        if isinstance(params, t.ElicitRequestParams) and params.mode == "url" and self.knows_url_errors:
            # A page has an id in this revision; the server's may have none.
            params = replace(params, elicitation_id=params.elicitation_id or os.urandom(16).hex())
        return await self._server.asking(self._exchange).ask(Question(method, params, key))

    async def once(self, key: str, function: Callable[..., Any]) -> Any:
        """Do something once in all rounds of the request."""
        return await self._server.asking(self._exchange).once(key, function)

    def did(self, key: str) -> bool:
        """Tell whether an earlier round did it."""
        return self._exchange.questions is not None and self._exchange.questions.did(key)


class LocalFront:
    """A program that uses the host: a desk of its own answers."""

    __slots__ = ("_desk", "_log", "_progress", "_session", "log_level")

    #: The program waits as long as its call lasts, and its request runs once.
    left = False
    open = True
    takes_logs = False
    #: Its connections would each be a second process for a single call.
    shakes_hands = False
    knows_url_errors = False
    parks = False

    def __init__(
        self,
        desk: Desk,
        session: HostSession,
        *,
        on_progress: Callable[[t.ProgressNotificationParams], object] | None = None,
        on_log: Callable[[t.LoggingMessageNotificationParams], object] | None = None,
    ) -> None:
        """Take what answers questions, and who hears."""
        self._desk = desk
        self._session = session
        self._progress = on_progress
        self._log = on_log
        self.log_level: t.LoggingLevel | None = None if on_log is None else "info"

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What can be asked at the desk."""
        return self._desk.capabilities

    def progress_wanted(self) -> bool:
        """Tell whether there is a callback."""
        return self._progress is not None

    def progress(self, news: t.ProgressNotificationParams) -> None:
        """Call back."""
        if self._progress is not None:
            self._progress(news)

    def log(self, message: t.LoggingMessageNotificationParams) -> None:
        """Call back."""
        if self._log is not None:
            self._log(message)

    def page_finished(self, name: str) -> None:
        """Keep it: callbacks are not told."""

    async def ask(self, method: str, params: Any, *, key: str, entry: ServerEntry | None = None) -> Raw:
        """Ask at the desk."""
        if entry is None:
            raise LocalProtocolError(f"nobody asks {method}")
        return await self._desk.answer(entry, method, params, self._session)

    async def once(self, key: str, function: Callable[..., Any]) -> Any:
        """Do it: the request runs once."""
        done = function()
        return await done if inspect.isawaitable(done) else done

    def did(self, key: str) -> bool:
        """Tell that nothing was done before."""
        return False
