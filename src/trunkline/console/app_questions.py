"""Actions of a page (MCP Apps) that need the user's consent: write to the chat, add context, open a link.

Each is a question in the inbox with the id of its view, so that the console shows it beside the frame. No answer is
remembered: the text or the address differs each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from trunkline.console.inbox import Reply
from trunkline.console.routing import ApiError
from trunkline.errors import InvalidParams, PolicyDenied, TrunklineError
from trunkline.host.server_requests.elicitation import InvalidPageUrl, parse_page_url

if TYPE_CHECKING:
    from trunkline.console.apps import PageView
    from trunkline.console.console import Console

__all__ = ["PageQuestions", "page_message_text"]

_SECONDS = 300.0  # The same as the timeout of approvals.
_MOST_TEXT = 32 * 1024  # Characters; the user who decides would not read more.


class PageQuestions:
    """Asks the user about the requests of pages."""

    def __init__(self, console: Console) -> None:
        """Ask through the inbox of the console."""
        self._console = console
        #: The pending questions, by view and kind: a newer context replaces an older one, other kinds are rejected.
        self._waiting: dict[tuple[str, str], asyncio.Task[Any]] = {}
        #: The last allowed context of each view.
        self._known: dict[str, str] = {}

    async def send_message(self, view: PageView, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a message to the chat in the name of the user (``ui/message``).

        Raises:
            PolicyDenied: the user did not allow it.
            InvalidParams: it is not a text of the user's role.
            TrunklineError: there is no model to send it to.
        """
        text = page_message_text(params.get("content"))
        if params.get("role", "user") != "user" or not text.strip():
            raise InvalidParams("ui/message needs the role user and a text")
        question = {
            "title": f"The page {view.title} wants to write to the chat",
            "message": f"The page {view.title} of {view.server} wants to send this to the model as your message:",
        }
        await self._ask(view, "message", text=text, **question)
        await self._send(view, text)
        return {}

    async def _send(self, view: PageView, text: str) -> None:
        from trunkline.console.api.chat import ChatPart
        from trunkline.console.chats import ChatMessage

        chats = self._console.part(ChatPart).chats
        try:
            chat = await (chats.create() if view.chat is None else chats.get(view.chat))
            await chats.send(chat, ChatMessage(text=text, page_of=view.server))
        except ApiError as error:
            raise TrunklineError(error.message) from error
        view.chat = chat.id

    async def update_context(self, view: PageView, params: Mapping[str, Any]) -> dict[str, Any]:
        """Set the context for the model that is added to the next message (``ui/update-model-context``).

        Empty context removes the earlier one, which needs no consent.

        Raises:
            PolicyDenied: the user did not allow it, or the page sent a newer context.
            InvalidParams: it is neither text nor an object, or too long.
        """
        from trunkline.console.api.chat import ChatPart

        text = _context_text(params)
        if self._known.get(view.id, "") == text and (view.id, "context") not in self._waiting:
            return {}
        earlier = self._waiting.get((view.id, "context"))
        if earlier is not None:
            # SEP-1865: a newer update replaces the earlier ones.
            earlier.cancel()
        if not text:
            self._console.part(ChatPart).chats.set_context(view.chat, view.id, view.server, "")
            self._known.pop(view.id, None)
            return {}
        question = {
            "title": f"The page {view.title} wants to add context for the model",
            "message": f"The page {view.title} of {view.server} wants to add this to your next message to the model:",
        }
        await self._ask(view, "context", text=text, **question)
        self._console.part(ChatPart).chats.set_context(view.chat, view.id, view.server, text)
        self._known[view.id] = text
        return {}

    async def open_link(self, view: PageView, params: Mapping[str, Any]) -> dict[str, Any]:
        """Open an address in a new tab (``ui/open-link``); the console's page opens it when the user accepts.

        Raises:
            PolicyDenied: the user did not allow it.
            InvalidParams: it is not an http or https URL.
        """
        url = params.get("url")
        try:
            page = parse_page_url(url if isinstance(url, str) else "")
        except InvalidPageUrl as error:
            raise InvalidParams(f"ui/open-link: {error}") from error
        await self._ask(
            view,
            "link",
            kind="url",
            title=f"The page {view.title} wants to open an address",
            message=f"The page {view.title} of {view.server} wants to open this address in a new tab.",
            url=page.url,
            before=page.before,
            host=page.host,
            after=page.after,
            warnings=list(page.warnings),
        )
        return {}

    def forget(self, view: str) -> None:
        """Forget the allowed context of a view."""
        self._known.pop(view, None)

    async def _ask(self, view: PageView, what: str, *, title: str, kind: str = "page", **members: Any) -> None:
        """Ask a question and wait for the user's consent.

        Raises:
            PolicyDenied: the user declined or did not answer in time, or a question of this kind is pending.
        """
        key = view.id, what
        if what != "context" and key in self._waiting:
            raise PolicyDenied("The user has not yet answered the previous question of this kind.")
        task = asyncio.current_task()
        assert task is not None
        self._waiting[key] = task
        try:
            async with asyncio.timeout(_SECONDS):
                allowed = await self._console.inbox.ask(
                    kind, view.server, title, read=_read, seconds=_SECONDS, caller="app", view=view.id, **members
                )
        except TimeoutError:
            allowed = False
        finally:
            if self._waiting.get(key) is task:
                del self._waiting[key]
        if not allowed:
            raise PolicyDenied("The user did not allow it.")


def _read(body: Mapping[str, Any]) -> Reply:
    action = body.get("action")
    if action not in ("accept", "decline", "cancel"):
        raise ApiError(400, "invalid_answer", '"action" must be one of: accept, decline, cancel.')
    allowed = action == "accept"
    return Reply(allowed, "allowed" if allowed else "denied", f"It was {'allowed' if allowed else 'not allowed'}.")


def page_message_text(content: Any) -> str:
    """Return the text of a content block, or of a list of them.

    Raises:
        InvalidParams: it contains other content, or too many characters.
    """
    blocks = content if isinstance(content, list) else [content]
    texts = [block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None for block in blocks]
    if not all(isinstance(text, str) for text in texts):
        raise InvalidParams("Only text can be sent")
    text = "\n".join(text for text in texts if text)
    if len(text) > _MOST_TEXT:
        raise InvalidParams(f"The text is longer than {_MOST_TEXT} characters")
    return text


def _context_text(params: Mapping[str, Any]) -> str:
    """Return the context as text; empty if a page removes it.

    Raises:
        InvalidParams: it is neither text nor an object, or too long.
    """
    parts = [page_message_text(params["content"])] if params.get("content") else []
    data = params.get("structuredContent")
    if data is not None and not isinstance(data, dict):
        raise InvalidParams("structuredContent must be an object")
    if data:
        parts.append(msgspec.json.encode(data).decode())
    text = "\n".join(part for part in parts if part)
    if len(text) > _MOST_TEXT:
        raise InvalidParams(f"The context is longer than {_MOST_TEXT} characters")
    return text
