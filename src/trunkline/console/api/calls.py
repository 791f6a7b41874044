"""The routes of calls: start, list, cancel, and download results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trunkline.console.calls import CallLog
from trunkline.console.console import Console, ConsolePart
from trunkline.console.routing import ApiError, ApiRequest, Download, Route

__all__ = ["CallsPart"]

_LATEST = 100  # Calls in ``GET /api/state``.


class CallsPart(ConsolePart):
    """Runs the calls that the user starts in the page; other parts add their calls to its log."""

    def __init__(self, console: Console) -> None:
        """Start without calls."""
        super().__init__(console)
        self.log: CallLog = CallLog(console)

    def routes(self) -> Sequence[Route]:
        """Return the routes of the API."""
        return (
            Route("GET", "/calls", self._list),
            Route("POST", "/calls", self._start),
            Route("GET", "/calls/{id}", self._get),
            Route("GET", "/calls/{id}/result", self._result),
            Route("POST", "/calls/{id}/cancel", self._cancel),
        )

    def state(self) -> dict[str, Any]:
        """Return the latest calls."""
        return {"calls": [call.view() for call in self.log.latest(_LATEST)]}

    async def aclose(self) -> None:
        """Cancel the running calls."""
        await self.log.aclose()

    async def _list(self, request: ApiRequest) -> Any:
        return self.state()

    async def _start(self, request: ApiRequest) -> Any:
        arguments = request.member("arguments", dict, required=False) or {}
        call = await self.log.start(request.member("kind"), request.member("id"), arguments)
        return {"call": call.view()}

    async def _get(self, request: ApiRequest) -> Any:
        return {"call": self.log.get(request.params["id"]).full_view()}

    async def _result(self, request: ApiRequest) -> Any:
        call = self.log.get(request.params["id"])
        if call.result is None:
            dropped = call.bytes is not None
            why = "The result was dropped to save memory. Run the call again." if dropped else "The call has no result."
            raise ApiError(404, "no_result", why)
        return Download(content=call.result, media_type="application/json", name=f"{call.kind}-{call.id}.json")

    async def _cancel(self, request: ApiRequest) -> Any:
        return {"call": self.log.cancel(request.params["id"]).view()}
