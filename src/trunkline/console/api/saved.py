"""The routes of saved calls."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from trunkline.console.calls import Call
from trunkline.console.console import ConsolePart
from trunkline.console.routing import ApiError, ApiRequest, Route
from trunkline.console.saved_calls import SavedCalls, holds_mask
from trunkline.errors import ConfigError

__all__ = ["SavedPart"]

log = logging.getLogger("trunkline.http")


class SavedPart(ConsolePart):
    """Saves calls, and runs them again."""

    def routes(self) -> Sequence[Route]:
        """Return the routes of the API."""
        return (
            Route("GET", "/saved", self._list),
            Route("POST", "/saved", self._save),
            Route("DELETE", "/saved/{id}", self._remove),
            Route("POST", "/saved/{id}/run", self._run),
        )

    def state(self) -> dict[str, Any]:
        """Return the saved calls; none if the file cannot be read."""
        try:
            return {"saved": [call.view() for call in self._saved.all()]}
        except ConfigError as error:
            log.warning("%s", error)
            return {"saved": []}

    @property
    def _saved(self) -> SavedCalls:
        core = self.console.core
        return SavedCalls(core.folder / "console-calls.json", core.secrets.hide_in)

    async def _list(self, request: ApiRequest) -> Any:
        return {"saved": [call.view() for call in self._saved.all()]}

    async def _save(self, request: ApiRequest) -> Any:
        kind = request.member("kind")
        if kind not in ("tool", "resource", "prompt", "skill"):
            raise ApiError(400, "invalid_request", f"{kind!r} cannot be saved: use tool, resource, prompt or skill.")
        ended = request.member("call", required=False)
        result = None if ended is None else self.console.calls.get(ended).result
        arguments = request.member("arguments", dict, required=False) or {}
        saved = self._saved.add(request.member("name"), kind, request.member("id"), arguments, result)
        return {"saved": saved.view()}

    async def _remove(self, request: ApiRequest) -> Any:
        self._saved.remove(request.params["id"])
        return {}

    async def _run(self, request: ApiRequest) -> Any:
        saved = self._saved.get(request.params["id"])
        if holds_mask(saved.arguments):
            raise ApiError(
                409,
                "masked",
                "The arguments contained a secret, which was not saved.",
                fix="Open the call, enter the secret, and run it from there.",
            )

        def ended(call: Call) -> None:
            if call.result is not None:
                call.changes = self._saved.compare(saved.id, call.result)

        call = await self.console.calls.start(saved.kind, saved.target, saved.arguments, by="saved", on_end=ended)
        return {"call": call.view()}
