"""Views of MCP Apps: open and close them, and the messages of their pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from trunkline.console.api.calls import CallsPart
from trunkline.console.api.chat import ChatPart
from trunkline.console.app_frames import FRAME_HOST, AppFrames
from trunkline.console.app_questions import PageQuestions
from trunkline.console.apps import AppViews, PageView, to_wire
from trunkline.console.console import ConsolePart
from trunkline.console.routing import ApiError, ApiRequest, Route

if TYPE_CHECKING:
    from trunkline.console.console import Console

__all__ = ["AppsPart"]

_LONGEST_FRAME = 64  # Characters of the id of a frame, which the console's page generates.
#: Asked for beside the permissions of a page: to reach internal origins, see ``PageView.withheld``.
_INTERNAL = "internal_addresses"


class AppsPart(ConsolePart):
    """Serves the views, and their frames on a second origin."""

    def __init__(self, console: Console) -> None:
        """Create the views; the listener is started with the console."""
        super().__init__(console)
        self._questions = PageQuestions(console)
        self.views: AppViews = AppViews(console, self._questions)
        self._stack = AsyncExitStack()

    def routes(self) -> Sequence[Route]:
        """Return the routes of the API."""
        return (
            Route("POST", "/apps", self._open),
            Route("GET", "/apps/{view}", self._read),
            Route("DELETE", "/apps/{view}", self._close),
            Route("GET", "/apps/{view}/page", self._page),
            Route("POST", "/apps/{view}/message", self._message),
            Route("POST", "/apps/{view}/permissions", self._permit),
        )

    def state(self) -> dict[str, Any]:
        """Return the origin of the frames."""
        origin = self.console.apps_origin
        return {"apps": None if origin is None else {"origin": origin}}

    async def start(self) -> None:
        """Start the second listener, unless the host was opened without ``apps=True``: its servers name no pages."""
        if not self.console.assembly.options.get("apps"):
            return
        from trunkline.console.serve import listening

        self.console.apps_origin = await self._stack.enter_async_context(
            listening(AppFrames(self.views.find), host=FRAME_HOST)
        )

    async def aclose(self) -> None:
        """Close the views, and stop the listener."""
        await self.views.aclose()
        self.console.apps_origin = None
        await self._stack.aclose()

    async def _open(self, request: ApiRequest) -> dict[str, Any]:
        tool, resource = request.member("tool", required=False), request.member("resource", required=False)
        if self.console.apps_origin is None:
            raise ApiError(409, "no_apps", "This host does not show pages of servers (MCP Apps).")
        if (tool is None) == (resource is None):
            raise ApiError(400, "invalid_request", 'The body must have the member "tool" or "resource".')
        view = await self.views.open(tool=tool, resource=resource, origin=request.member("origin", required=False))
        view.chat = request.member("chat", required=False)
        call = request.member("call", required=False)
        if call is not None:
            await self._show_call(view, call)
        return self._view(view)

    async def _show_call(self, view: PageView, call: str) -> None:
        """Send the page the arguments and the outcome of a call, made by a chat or by the user."""
        if view.chat is None:
            self.views.show(view, self.console.part(CallsPart).log.get(call))
        else:
            output = (await self.console.part(ChatPart).chats.get(view.chat)).outputs.get(call)
            if output is not None and output.item.server == view.server:
                view.arguments, view.result = output.arguments, to_wire(output.result)

    async def _read(self, request: ApiRequest) -> dict[str, Any]:
        return self._view(self._find(request))

    async def _close(self, request: ApiRequest) -> None:
        self._questions.forget(request.params["view"])
        await self.views.close(request.params["view"])

    async def _page(self, request: ApiRequest) -> dict[str, Any]:
        """Return the params of ``ui/notifications/sandbox-resource-ready``; ``again`` reads the page again first."""
        view = self._find(request)
        if request.query.get("again"):
            await self.views.reload(view)
        return {"html": view.page.html, **view.sandbox}

    async def _message(self, request: ApiRequest) -> Any:
        view = self._find(request)
        frame = request.member("frame", required=False) or ""
        context: Mapping[str, Any] = request.member("context", dict, required=False) or {}
        message = request.member("message", dict)
        return self.views.receive(view, message, frame=frame[:_LONGEST_FRAME], context=context)

    async def _permit(self, request: ApiRequest) -> dict[str, Any]:
        """Set the permissions that the user grants; they apply when the frame is loaded again."""
        view = self._find(request)
        names = request.member("permissions", list)
        view.granted = tuple(name for name in view.page.declared.permissions if name in names)
        if _INTERNAL in names:
            await self.views.allow_origins(view)
        return self._view(view)

    def _find(self, request: ApiRequest) -> PageView:
        return self.views.get(request.params["view"])

    def _view(self, view: PageView) -> dict[str, Any]:
        declared = view.page.declared
        csp = view.csp
        reached = () if csp is None else dict.fromkeys((*csp.connect, *csp.resources, *csp.frames))
        return {
            "view": view.id,
            "url": f"{self.console.apps_origin}/{view.id}/",
            "title": view.title,
            "server": view.server,
            "uri": view.page.uri,
            "tool": None if view.tool is None else view.tool.id,
            "border": declared.prefers_border is not False,
            "reaches": list(reached),
            "permissions": [*declared.permissions, *([_INTERNAL] if view.withheld else [])],
            "granted": list(view.granted),
        }
