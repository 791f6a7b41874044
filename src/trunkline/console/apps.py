"""Views of MCP Apps: pages of servers shown in the console, and the requests they may make.

A page exchanges JSON-RPC messages with its host. It may call the tools of its own server that are visible to apps, and
read resources of that server; the policy judges both, and approvals go to the inbox, as for the calls of a model. A
message to the chat, context for the model and a link need the user's consent each time. Other methods are rejected.

Everything that a page sends is untrusted: messages are limited in size, rate and number in flight. Replies that need
the user or a server are published as events: a browser has few connections to one origin, and a pending request would
occupy one of them.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.console.api.calls import CallsPart
from trunkline.console.app_questions import PageQuestions
from trunkline.console.calls import Call
from trunkline.console.inbox import asked_by
from trunkline.console.routing import ApiError
from trunkline.errors import ConfigError, InvalidParams, PolicyDenied, RequestFailed, TrunklineError
from trunkline.extensions.apps.content_security import content_security_policy, internal_origins, without_origins
from trunkline.extensions.apps.declarations import AppCsp
from trunkline.extensions.apps.reading import AppPage
from trunkline.host.authorization.grants import make_origins_grant
from trunkline.host.config.model import ServerEntry
from trunkline.host.integrity.pins.store import endpoint_identity
from trunkline.host.session import HostSession
from trunkline.host.upstreams.catalog.items import CatalogItem
from trunkline.host.upstreams.catalog.names import item_id
from trunkline.net.addresses import is_loopback
from trunkline.protocol.apps import is_app_uri
from trunkline.protocol.revisions import APPS_REVISION

if TYPE_CHECKING:
    from trunkline.console.console import Console

__all__ = ["AppReply", "AppViews", "PageView", "to_wire"]

log = logging.getLogger("trunkline.console")

_MOST_VIEWS = 32  # Each holds a page of up to 8 MiB; the oldest is closed.
_MOST_MESSAGE = 1024 * 1024  # Bytes of one message, as much as the arguments of any real call.
_MESSAGES_A_SECOND = 50.0  # Messages a second; only a page that reports pointer moves sends more.
_BURST = 200.0  # Burst of messages: a page sends many when it starts.
_MOST_FRAMES = 32  # Frames of one view: each window that shows it has one, and a new one when it is loaded again.
_MOST_REQUESTS = 16  # Requests in flight for one view; a working page needs fewer.
_ORIGIN = re.compile(r"http://(?:127\.0\.0\.1|localhost|\[::1\]):\d{1,5}")
_CONTEXT_MEMBERS = ("theme", "styles", "containerDimensions", "locale", "timeZone", "deviceCapabilities")
_NOT_FOUND = -32601  # JSON-RPC: method not found.
_FAILED = -32000  # SEP-1865: implementation-defined error.
_DENIED = "The user or the policy did not allow it."


class AppReply(Struct, frozen=True, kw_only=True):
    """The immediate response to a message of a page: its reply, and notifications that follow."""

    reply: dict[str, Any] | None = None
    messages: tuple[dict[str, Any], ...] = ()


class PageView:
    """An open page."""

    def __init__(self, server: str, page: AppPage, session: HostSession, *, tool: CatalogItem | None) -> None:
        """Create a view of a page of a server, with its tool if there is one."""
        #: Unguessable: the address of the page has no token, so the id is its only protection.
        self.id: str = secrets.token_urlsafe(24)
        self.server = server
        self.page = page
        self.session = session
        self.tool = tool
        self.title: str = _title(page, tool)
        #: The arguments and the result of the call that the page shows; None before there is one.
        self.arguments: dict[str, Any] | None = None
        self.result: dict[str, Any] | None = None
        self.cancelled: str | None = None
        #: The declared origins that the page may not reach without the user's consent (``internal_origins``).
        self.withheld: tuple[str, ...] = ()
        #: The permissions that the user granted, among the declared ones.
        self.granted: tuple[str, ...] = ()
        #: The origins of the console, which may frame the page.
        self.ancestors: str = "http://127.0.0.1:* http://localhost:*"
        #: The chat that receives its messages; None for a new one.
        self.chat: str | None = None
        self.requests: dict[tuple[str, str | int], asyncio.Task[None]] = {}
        #: The frames that were initialized; True if the call was sent since the last ``ui/initialize`` of the frame.
        self.frames: dict[str, bool] = {}
        self._left = _BURST
        self._at = time.monotonic()

    def admits(self) -> bool:
        """Count a message; return False if the rate limit is exceeded."""
        now = time.monotonic()
        self._left = min(_BURST, self._left + (now - self._at) * _MESSAGES_A_SECOND)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    def first_messages(self, frame: str) -> tuple[dict[str, Any], ...]:
        """Return the messages that a frame gets once it is initialized: once only, until it initializes again."""
        if self.frames.pop(frame, False):
            messages: tuple[dict[str, Any], ...] = ()
        else:
            # SEP-1865: the arguments are sent at most once, and before the result.
            given = self.arguments
            first = None if given is None else _notification("ui/notifications/tool-input", {"arguments": given})
            messages = () if first is None else tuple(each for each in (first, self.outcome()) if each is not None)
        self.frames[frame] = True
        while len(self.frames) > _MOST_FRAMES:
            del self.frames[next(iter(self.frames))]
        return messages

    @property
    def csp(self) -> AppCsp | None:
        """The origins that the page may reach: those that it declares, without those that need consent."""
        declared = self.page.declared.csp
        return None if declared is None else without_origins(declared, self.withheld)

    @property
    def sandbox(self) -> dict[str, Any]:
        """The ``csp`` and ``permissions`` of the frame in wire form: the allowed CSP and the granted permissions."""
        wire = replace(self.page.declared, csp=self.csp, permissions=self.granted).to_wire()
        return {"csp": wire.get("csp", {}), "permissions": wire.get("permissions", {})}

    def outcome(self) -> dict[str, Any] | None:
        """Return the notification with the outcome of the call; None if it has not ended."""
        if self.cancelled is not None:
            return _notification("ui/notifications/tool-cancelled", {"reason": self.cancelled})
        return None if self.result is None else _notification("ui/notifications/tool-result", self.result)


class AppViews:
    """The views of a console."""

    def __init__(self, console: Console, questions: PageQuestions) -> None:
        """Start without views; ``questions`` asks the user about messages, context and links."""
        self._console = console
        self._questions = questions
        self._views: OrderedDict[str, PageView] = OrderedDict()
        self._requests: Mapping[str, Callable[[PageView, Mapping[str, Any]], Awaitable[Any]]] = {
            "tools/call": self._call_tool,
            "resources/read": self._read_resource,
            "ui/message": self._questions.send_message,
            "ui/open-link": self._questions.open_link,
            "ui/update-model-context": self._questions.update_context,
        }

    def find(self, id: str) -> PageView | None:
        """Return a view."""
        return self._views.get(id)

    def get(self, id: str) -> PageView:
        """Return a view.

        Raises:
            ApiError: it was closed.
        """
        view = self._views.get(id)
        if view is None:
            raise ApiError(404, "not_found", "This view was closed.", fix="Open it again from its tool.")
        self._views.move_to_end(id)
        return view

    async def open(self, *, tool: str | None, resource: str | None, origin: str | None = None) -> PageView:
        """Read the page of a tool, or a page by its id, and show it; the user's click is the consent to read it.

        Raises:
            ApiError, TrunklineError: there is no such page, or it cannot be read.
        """
        console = self._console
        catalog = console.host.catalog
        item = None if tool is None else catalog.find_tool(tool)
        if tool is not None and item is None:
            raise ApiError(404, "not_found", f"No server has a tool {tool[:200]!r}.")
        if item is not None and item.app_uri is None:
            raise ApiError(400, "no_app", f"The tool {item.id} has no page.")
        name = item_id(item.server, item.app_uri) if item is not None and item.app_uri is not None else resource or ""
        found = catalog.find_resource(name)
        if found is None or not is_app_uri(found[1]):
            raise ApiError(404, "not_found", f"No server has a page {name[:200]!r}.")
        page = await self._read_page(*found)
        view = PageView(found[0], page, console.open_session(), tool=item)
        if origin is not None and _ORIGIN.fullmatch(origin):
            view.ancestors = origin
        view.withheld = await self._withheld(view)
        self._views[view.id] = view
        log.info("showing %s of %s under %s", page.uri, found[0], content_security_policy(view.csp))
        while len(self._views) > _MOST_VIEWS:
            await self.close(next(iter(self._views)))
        return view

    async def _read_page(self, server: str, uri: str, item: CatalogItem | None) -> AppPage:
        from trunkline.extensions.apps.reading import page_of

        requester = self._console.requesters.typed()
        result = await self._console.core.read_resource(server, uri, item, requester)
        return page_of(uri, result.contents, None if item is None else item.definition.meta)

    async def reload(self, view: PageView) -> None:
        """Read the page again after its author edited it; permissions that it no longer declares are revoked.

        Raises:
            TrunklineError: it can no longer be read.
        """
        found = self._console.host.catalog.find_resource(item_id(view.server, view.page.uri))
        if found is None:
            raise InvalidParams(f"{view.server} no longer has the page {view.page.uri}")
        view.page = await self._read_page(*found)
        view.withheld = await self._withheld(view)
        view.granted = tuple(name for name in view.granted if name in view.page.declared.permissions)

    async def allow_origins(self, view: PageView) -> None:
        """Allow the pages of a server to reach the internal origins that this one declares, until it is revoked.

        Raises:
            ConfigError: it cannot be stored with the other grants.
        """
        identity = endpoint_identity(self._console.core.upstream(view.server).entry)[0]
        grant = make_origins_grant(view.server, identity, view.withheld, now=time.time())
        await asyncio.to_thread(self._console.assembly.grants.add, grant)
        self._console.events.publish("policy")
        view.withheld = await self._withheld(view)

    async def _withheld(self, view: PageView) -> tuple[str, ...]:
        """Return the origins that the page may not reach: a server of this machine reaches them anyway."""
        csp, entry = view.page.declared.csp, self._console.core.upstream(view.server).entry
        if csp is None or _is_of_this_machine(entry):
            return ()
        try:
            allowed = await asyncio.to_thread(
                self._console.assembly.grants.origins, view.server, endpoint_identity(entry)[0]
            )
        except ConfigError:
            # A file that cannot be read grants nothing.
            allowed = frozenset()
        return tuple(origin for origin in internal_origins(csp) if origin not in allowed)

    async def close(self, id: str) -> None:
        """Close a view: cancel its requests, and stop serving its page."""
        view = self._views.pop(id, None)
        if view is None:
            return
        tasks = tuple(view.requests.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._console.core.close_session(view.session)

    async def aclose(self) -> None:
        """Close all views."""
        for id in tuple(self._views):
            await self.close(id)

    def show(self, view: PageView, call: Call) -> None:
        """Send a page the arguments of a call of its tool, and the outcome when the call ends."""
        if call.kind != "tool" or call.server != view.server or call.arguments is None:
            raise ApiError(409, "no_call", "This call can no longer be shown in the page.", fix="Run the tool again.")
        view.arguments = dict(call.arguments)
        if call.state == "running":
            key = "", "call"
            view.requests[key] = asyncio.get_running_loop().create_task(self._follow(view, call, key))
        else:
            _finish(view, call)

    async def _follow(self, view: PageView, call: Call, key: tuple[str, str | int]) -> None:
        try:
            await self._console.part(CallsPart).log.wait(call)
        finally:
            view.requests.pop(key, None)
        _finish(view, call)
        # A frame that is not initialized yet gets it with the arguments.
        for frame in view.frames:
            self._publish(view, frame, view.outcome())

    # --- messages ----------------------------------------------------------------------------------------------------

    def receive(self, view: PageView, message: Any, *, frame: str, context: Mapping[str, Any]) -> AppReply:
        """Handle a message of a page; a reply that takes longer is published as an event for its frame.

        ``context`` is sent by the console's page: the theme, the size of the frame, the language.
        """
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            raise ApiError(400, "invalid_message", "A message of a page must be a JSON-RPC 2.0 object.")
        id, method = message.get("id"), message.get("method")
        if not isinstance(method, str):
            # A reply to a request of the host, such as ``ui/resource-teardown``; its content is ignored.
            return AppReply()
        if id is not None and (isinstance(id, bool) or not isinstance(id, str | int)):
            raise ApiError(400, "invalid_message", "The id of a request must be a string or an integer.")
        if not view.admits():
            return AppReply(reply=_error(id, _FAILED, "Too many messages; wait a moment."))
        if len(msgspec.json.encode(message)) > _MOST_MESSAGE:
            return AppReply(reply=_error(id, _FAILED, f"The message is larger than {_MOST_MESSAGE} bytes."))
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if id is None:
            return self._notified(view, method, params, frame)
        return self._requested(view, id, method, params, frame=frame, context=context)

    def _notified(self, view: PageView, method: str, params: dict[str, Any], frame: str) -> AppReply:
        if method == "ui/notifications/initialized":
            return AppReply(messages=view.first_messages(frame))
        if method == "notifications/cancelled":
            id = params.get("requestId")
            task = view.requests.get((frame, id)) if isinstance(id, str | int) else None
            if task is not None:
                task.cancel()
        elif method == "notifications/message":
            level, logger = params.get("level"), params.get("logger")
            self._console.events.publish(
                "log",
                server=view.server,
                level=level if isinstance(level, str) else "info",
                logger=f"page {logger}" if isinstance(logger, str) else "page",
                data=params.get("data"),
            )
        return AppReply()

    def _requested(
        self,
        view: PageView,
        id: str | int,
        method: str,
        params: dict[str, Any],
        *,
        frame: str,
        context: Mapping[str, Any],
    ) -> AppReply:
        match method:
            case "ui/initialize":
                if frame in view.frames:
                    # Its document was loaded again.
                    view.frames[frame] = False
                return AppReply(reply=_result(id, _initialize_result(view, context)))
            case "ping":
                return AppReply(reply=_result(id, {}))
            case "ui/request-display-mode":
                # The only supported mode; SEP-1865: the host answers with the mode that is in effect.
                return AppReply(reply=_result(id, {"mode": "inline"}))
        handler = self._requests.get(method)
        if handler is None:
            return AppReply(reply=_error(id, _NOT_FOUND, "Method not found"))
        key = frame, id
        if key in view.requests or len(view.requests) >= _MOST_REQUESTS:
            return AppReply(reply=_error(id, _FAILED, "Too many requests in flight, or the id is in use."))
        task = asyncio.get_running_loop().create_task(self._answer(view, key, handler, params))
        view.requests[key] = task
        return AppReply()

    async def _answer(
        self,
        view: PageView,
        key: tuple[str, str | int],
        handler: Callable[[PageView, Mapping[str, Any]], Awaitable[Any]],
        params: dict[str, Any],
    ) -> None:
        """Handle a request, and publish its reply."""
        frame, id = key
        reply: dict[str, Any] | None
        try:
            with asked_by(view.id):
                reply = _result(id, await handler(view, params))
        except asyncio.CancelledError:
            reply = _error(id, _FAILED, "It was cancelled.")
        except PolicyDenied:
            # The reason and the fix are for the user; a page could use them to work around the denial.
            reply = _error(id, _FAILED, _DENIED)
        except RequestFailed as error:
            reply = _error(id, error.code, str(error))
        except TrunklineError as error:
            reply = _error(id, _FAILED, str(error) or type(error).__name__)
        except Exception as error:
            log.exception("a request of the page %s failed", view.page.uri)
            reply = _error(id, -32603, f"The host failed: {type(error).__name__}")
        finally:
            view.requests.pop(key, None)
        self._publish(view, frame, reply)

    def _publish(self, view: PageView, frame: str, message: dict[str, Any] | None) -> None:
        self._console.events.publish("app", view=view.id, frame=frame, message=message)

    # --- its server --------------------------------------------------------------------------------------------------

    async def _call_tool(self, view: PageView, params: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool of the page's own server; the core checks that it is visible to apps."""
        name, arguments = params.get("name"), params.get("arguments", {})
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise InvalidParams("tools/call needs a name and, if any, an object of arguments")
        item = self._console.host.catalog.tools.get(item_id(view.server, name))
        if item is None or "app" not in item.visibility:
            # The same for both cases, so that a page cannot find out the names of hidden tools.
            raise InvalidParams(f"There is no tool {name[:100]!r} for pages")
        calls, requesters = self._console.part(CallsPart).log, self._console.requesters
        call = await calls.start(
            "tool",
            item.id,
            arguments,
            by="app",
            requester=lambda observer: requesters.asked("app", view.session, observer=observer),
        )
        # The console's page shows questions about this call beside the frame.
        self._console.events.publish("app", view=view.id, call=call.id)
        try:
            await calls.wait(call)
        finally:
            calls.cancel(call.id)
        return _call_result(call)

    async def _read_resource(self, view: PageView, params: Mapping[str, Any]) -> dict[str, Any]:
        """Read a resource of the page's own server."""
        uri = params.get("uri")
        if not isinstance(uri, str):
            raise InvalidParams("resources/read needs a uri")
        found = self._console.host.catalog.find_resource(item_id(view.server, uri))
        if found is None or found[0] != view.server:
            raise InvalidParams(f"There is no resource {uri[:200]!r}")
        requester = self._console.requesters.asked("app", view.session)
        return to_wire(await self._console.core.read_resource(*found, requester))


def _finish(view: PageView, call: Call) -> None:
    if call.result is not None:
        view.result = msgspec.json.decode(call.result)
    else:
        view.cancelled = str((call.error or {}).get("message") or "The call was cancelled.")


def _call_result(call: Call) -> dict[str, Any]:
    """Return the result of a call.

    Raises:
        PolicyDenied, RequestFailed, TrunklineError: it has none.
    """
    if call.state == "denied":
        raise PolicyDenied(_DENIED)
    if call.result is not None:
        result: dict[str, Any] = msgspec.json.decode(call.result)
        return result
    error = call.error or {"message": "The call was cancelled."}
    if "rpc_code" in error:
        raise RequestFailed(error["message"], code=error["rpc_code"])
    raise TrunklineError(error["message"])


def _initialize_result(view: PageView, context: Mapping[str, Any]) -> dict[str, Any]:
    from trunkline import __version__

    known: dict[str, Any] = {name: context[name] for name in _CONTEXT_MEMBERS if name in context}
    if view.tool is not None:
        known["toolInfo"] = {"tool": to_wire(view.tool.definition)}
    return {
        "protocolVersion": APPS_REVISION,
        "hostInfo": {"name": "trunkline", "version": __version__},
        "hostCapabilities": {
            "openLinks": {},
            "serverTools": {},
            "serverResources": {},
            "logging": {},
            "sandbox": view.sandbox,
        },
        "hostContext": {
            **known,
            "displayMode": "inline",
            "availableDisplayModes": ["inline"],
            "userAgent": f"trunkline/{__version__}",
            "platform": "web",
        },
    }


def _title(page: AppPage, tool: CatalogItem | None) -> str:
    definition = None if tool is None else tool.definition
    title = definition.title if isinstance(definition, t.Tool) else None
    return title or (page.uri if tool is None else tool.name)


def to_wire(value: Any) -> dict[str, Any]:
    """Return the wire form of a protocol value."""
    wire: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return wire


def _notification(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def _result(id: str | int, result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def _error(id: Any, code: int, message: str) -> dict[str, Any] | None:
    return None if id is None else {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}


def _is_of_this_machine(entry: ServerEntry) -> bool:
    """Return True if a server can reach the network of this machine itself: a sandbox may keep it from that."""
    if entry.url is not None:
        return is_loopback(urlsplit(entry.url).hostname, below=False)
    return entry.settings.sandbox is None
