"""Requests and notifications of extensions between the callers of a host and its servers.

A method is judged like a tool, resource or prompt (its act): by the policy, by the pins and by the audit trail. Its pin
is the digest of the settings that the server declares for the extension, and of the listed definition that the request
names, so an approval ends when either changes. A notification of a server is judged by the policy; it is not forwarded
while the settings of its extension wait for approval, because there is no call to ask about. The rate and the size of
notifications are bounded. Which clients may receive one is decided by the gateways, which follow this traffic.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from trunkline.errors import InvalidParams
from trunkline.host.authorization.authorizer import ActSubject, act_for_unlisted
from trunkline.host.requester import Requester
from trunkline.host.session import HostSession
from trunkline.host.upstreams.routing.channels import CallerChannel
from trunkline.protocol.extension_definition import ExtensionAct, ExtensionMethod

if TYPE_CHECKING:
    from trunkline.host.authorization.policy.policy import Policy
    from trunkline.host.core import HostCore

__all__ = ["LONGEST_NOTIFICATION", "ExtensionFollower", "ExtensionTraffic", "ServerNotification"]

log = logging.getLogger("trunkline.host")

#: Bytes of the params of a notification that is forwarded: a notification is news, not content.
LONGEST_NOTIFICATION = 64 * 1024
_BURST = 200.0  # Notifications of one server at once: one for each element of a long list.
_PER_SECOND = 50.0  # And then: more often than a person can follow.


class ServerNotification(Struct, frozen=True, kw_only=True):
    """A notification of a server that is not part of the protocol."""

    server: str
    method: str
    params: Mapping[str, Any]
    #: The session whose dedicated connection it came on; None for a shared connection.
    session: HostSession | None
    #: The requests that are in progress on that connection, each with its session.
    callers: tuple[tuple[HostSession, CallerChannel], ...]


class ExtensionFollower(Protocol):
    """A gateway that forwards notifications of servers."""

    def forwards(self, server: str, method: str) -> bool:
        """Return True if this notification of this server is forwarded to clients."""

    def notified(self, news: ServerNotification) -> None:
        """Called with a notification that is forwarded."""


class ExtensionTraffic:
    """Performs the methods of extensions, and passes notifications of servers to the gateways."""

    def __init__(self, core: HostCore) -> None:
        """Use the servers of this host."""
        self._core = core
        self._followers: list[ExtensionFollower] = []
        self._rates: dict[str, _Rate] = {}

    # --- methods ------------------------------------------------------------------------------------------------------

    async def call(
        self, server: str, extension: str, method: ExtensionMethod, members: Mapping[str, Any], requester: Requester
    ) -> dict[str, Any]:
        """Send a server a request of an extension, judged as its act; return its result as JSON.

        Raises:
            PolicyDenied: the policy or the user denied it.
            InvalidParams: it names a definition that is hidden.
        """
        core = self._core
        upstream = core.upstream(server)

        async def work(judged: Mapping[str, Any]) -> tuple[Any, Raw]:
            async with core.router.client_for(core.upstream_request(upstream, method.name, None, requester)) as client:
                result = await client.request(method.name, dict(judged))
            return self._reviewed(server, extension, method, result), Raw(msgspec.json.encode(result))

        found: dict[str, Any] = await core.authorized(
            method.act or "tool",
            upstream,
            method.name,
            members,
            None,
            requester,
            work=work,
            subject=self.subject(server, extension, method, members),
        )
        return found

    def subject(
        self, server: str, extension: str, method: ExtensionMethod | None, members: Mapping[str, Any]
    ) -> ActSubject:
        """Return what an approval of a method is bound to, with the changes since it was accepted.

        Raises:
            InvalidParams: the params name a definition that is hidden.
        """
        inspector = self._core.inspector
        settings = None if inspector is None else inspector.extension(server, extension)
        if inspector is None or settings is None:
            return ActSubject(title=None if method is None else method.name)
        name = None if method is None or method.item is None else members.get(method.item)
        item = inspector.listed_item(server, extension, name) if isinstance(name, str) else None
        if item is None:
            return ActSubject(
                pin=settings.pin,
                definition={"extension": extension, "settings": settings.definition},
                flagged=settings.flagged,
                changed=settings.changed,
                pinned_as=extension,
            )
        if item.hidden:
            raise InvalidParams(f"Invalid params: {server} has no such item: {name}")
        own = bool(item.changed or item.flagged)
        return ActSubject(
            pin=sha256(f"{settings.pin} {item.pin}".encode()).hexdigest(),
            definition={"extension": extension, "settings": settings.definition, "item": item.definition},
            flagged=(*settings.flagged, *item.flagged),
            changed=(*settings.changed, *item.changed),
            # The command that accepts a change names one pin; the settings come first.
            pinned_as=item.pin_name if own and not settings.changed and not settings.flagged else extension,
        )

    def _reviewed(self, server: str, extension: str, method: ExtensionMethod, result: dict[str, Any]) -> dict[str, Any]:
        """Return a result with the listed definitions that are served; each is pinned and scanned."""
        inspector = self._core.inspector
        elements = None if method.lists is None else result.get(method.lists)
        if inspector is None or method.lists is None or not isinstance(elements, list):
            return result
        review = inspector.review_list(server, extension, method, elements)
        if review.removed:
            log.warning("%s: not served from %s: %s", server, method.name, "; ".join(review.removed[:20]))
        return {**result, method.lists: review.served}

    # --- notifications ------------------------------------------------------------------------------------------------

    def follow(self, follower: ExtensionFollower) -> Callable[[], None]:
        """Pass a gateway the notifications of servers that it forwards; return a function that ends it."""
        self._followers.append(follower)
        return lambda: self._followers.remove(follower) if follower in self._followers else None

    def received(
        self,
        server: str,
        method: str,
        params: Mapping[str, Any],
        *,
        session: HostSession | None = None,
        channel: CallerChannel | None = None,
    ) -> None:
        """Called with a notification of a server that is not part of the protocol.

        ``session`` is set for a dedicated connection, and ``channel`` is then the last request on it.
        """
        upstream = self._core.supervisor.upstreams.get(server)
        followers = [each for each in self._followers if each.forwards(server, method)]
        if upstream is None or not followers:
            return
        callers: tuple[tuple[HostSession, CallerChannel], ...]
        if session is None:
            callers = tuple((each.session, each.channel) for each in self._core.router.on_shared(upstream))
        else:
            callers = () if channel is None else ((session, channel),)
        if not self._within_limits(server, method, params):
            return
        news = ServerNotification(server=server, method=method, params=params, session=session, callers=callers)
        for follower in followers:
            follower.notified(news)

    def admit(
        self, news: ServerNotification, extension: str, act: ExtensionAct, policy: Policy, *, strict: bool
    ) -> bool:
        """Decide whether a notification of a server may be forwarded, and record the decision.

        ``strict`` rejects what no rule allows, as for the questions of a server.
        """
        core, now = self._core, time.time()
        reviewed = None if core.inspector is None else core.inspector.extension(news.server, extension)
        upstream = core.upstream(news.server)
        judged = act_for_unlisted(
            act,
            news.server,
            news.method,
            caller="server",
            trusted=upstream.entry.settings.trusted,
            session=news.session,
        )
        if reviewed is not None:
            changed, flagged = bool(reviewed.changed), bool(reviewed.flagged)
            judged = replace(judged, pin=reviewed.pin, changed=changed, flagged=flagged, pinned_as=extension)
        decision = policy.decide(judged, now=now)
        if judged.changed or judged.flagged or decision.effect == "deny" or (strict and decision.effect == "ask"):
            core.authorizer.record_denied(judged, decision)
            return False
        core.authorizer.record_server_request(judged, decision)
        return True

    def _within_limits(self, server: str, method: str, params: Mapping[str, Any]) -> bool:
        """Return True if a notification is neither too long nor too early; the first of a series is logged."""
        rate = self._rates.setdefault(server, _Rate())
        if not rate.take(time.monotonic()):
            if rate.dropped == 1:
                log.warning("%s sends more than %g notifications a second; the rest is dropped", server, _PER_SECOND)
            return False
        if len(msgspec.json.encode(params)) > LONGEST_NOTIFICATION:
            log.warning("%s sent %s with more than %d bytes; it is dropped", server, method, LONGEST_NOTIFICATION)
            return False
        return True


class _Rate:
    """A token bucket for the notifications of one server."""

    __slots__ = ("_at", "_left", "dropped")

    def __init__(self) -> None:
        self._left = _BURST
        self._at = time.monotonic()
        #: How many were dropped since the last one that was not.
        self.dropped = 0

    def take(self, now: float) -> bool:
        """Use one token; return False if there is none."""
        self._left = min(_BURST, self._left + (now - self._at) * _PER_SECOND)
        self._at = now
        if self._left < 1.0:
            self.dropped += 1
            return False
        self._left -= 1.0
        self.dropped = 0
        return True
