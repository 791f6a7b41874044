"""Chats: list, read, send messages, cancel, switch the model, delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trunkline.console.chats import Chat, ChatMessage, Chats
from trunkline.console.console import ConsolePart
from trunkline.console.routing import ApiError, ApiRequest, Route

if TYPE_CHECKING:
    from trunkline.console.console import Console

__all__ = ["ChatPart"]


class ChatPart(ConsolePart):
    """Serves the chats."""

    def __init__(self, console: Console) -> None:
        """Create the chats; nothing is read before the first request."""
        super().__init__(console)
        self._chats: Chats | None = None

    @property
    def chats(self) -> Chats:
        """The chats of the console."""
        if self._chats is None:
            self._chats = Chats(self.console)
        return self._chats

    def routes(self) -> Sequence[Route]:
        """Return the routes of the API."""
        return (
            Route("GET", "/chats", self._list),
            Route("POST", "/chats", self._create),
            Route("GET", "/chats/{id}", self._read),
            Route("DELETE", "/chats/{id}", self._delete),
            Route("POST", "/chats/{id}/messages", self._send),
            Route("POST", "/chats/{id}/cancel", self._cancel),
            Route("POST", "/chats/{id}/model", self._switch),
        )

    def state(self) -> dict[str, Any]:
        """Return the model of new chats."""
        return {"model": self.chats.default_model()}

    async def aclose(self) -> None:
        """Cancel running turns and close the chats."""
        if self._chats is not None:
            await self._chats.aclose()

    async def _list(self, request: ApiRequest) -> dict[str, Any]:
        chats = self.chats
        return {"chats": await chats.listed(), "models": chats.models(), "model": chats.default_model()}

    async def _create(self, request: ApiRequest) -> dict[str, Any]:
        return {"chat": self.chats.view(await self.chats.create())}

    async def _read(self, request: ApiRequest) -> dict[str, Any]:
        return self.chats.view(await self._chat(request))

    async def _delete(self, request: ApiRequest) -> None:
        await self.chats.delete(request.params["id"])

    async def _send(self, request: ApiRequest) -> dict[str, Any]:
        message = _read_message(request)
        chat = await self._chat(request)
        await self.chats.send(chat, message)
        return {"running": True}

    async def _cancel(self, request: ApiRequest) -> None:
        self.chats.cancel(await self._chat(request))

    async def _switch(self, request: ApiRequest) -> dict[str, Any]:
        chat = await self._chat(request)
        await self.chats.switch(chat, request.member("model"))
        return self.chats.view(chat)

    async def _chat(self, request: ApiRequest) -> Chat:
        return await self.chats.get(request.params["id"])


def _read_message(request: ApiRequest) -> ChatMessage:
    attachments = request.member("attachments", list, required=False) or []
    ids: list[Any] = [each.get("id") if isinstance(each, dict) else None for each in attachments]
    prompt = request.member("prompt", dict, required=False)
    arguments = (prompt or {}).get("arguments") or {}
    name = None if prompt is None else prompt.get("id")
    if not all(isinstance(each, str) for each in ids) or (prompt is not None and not isinstance(name, str)):
        raise ApiError(400, "invalid_request", "Each attachment, and the prompt, must be an object with an id.")
    if not isinstance(arguments, dict) or not all(isinstance(value, str) for value in arguments.values()):
        raise ApiError(400, "invalid_request", "The arguments of a prompt must be an object of strings.")
    return ChatMessage(
        text=request.member("text", required=False) or "",
        attachments=tuple(ids),
        prompt=name,
        prompt_arguments=arguments,
        retry=request.member("retry", bool, required=False) is True,
    )
