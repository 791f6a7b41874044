"""A stand-in for the Web API of Slack: three channels and three people, everything in memory.

It keeps what is posted, and can be told to refuse. Start it alone with
``python -m examples.code_review.slack_double --port 0``: it prints its address when it is ready. In a test::

    async with SlackDouble(token="xoxb-secret").running() as url:
        ...
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

__all__ = ["Channel", "Seen", "SlackDouble", "main"]

TEAM = "T0ACME"
BOT = "U0BOT"


@dataclass
class Seen:
    """One request that was made of the double."""

    method: str
    name: str
    arguments: dict[str, Any]
    authorization: str | None


@dataclass
class Channel:
    """A channel and what was said in it, oldest first."""

    id: str
    name: str
    is_archived: bool = False
    is_private: bool = False
    messages: list[dict[str, Any]] = field(default_factory=list)

    def shown(self) -> dict[str, Any]:
        """Show the channel without its messages."""
        described = {"id": self.id, "name": self.name, "is_channel": True, "is_archived": self.is_archived}
        return {**described, "is_private": self.is_private, "topic": {"value": ""}, "num_members": 3}

    def message(self, ts: str) -> dict[str, Any] | None:
        """Find a message by its time."""
        return next((each for each in self.messages if each["ts"] == ts), None)


def _channels() -> dict[str, Channel]:
    general, reviews = Channel("C0GENERAL", "general"), Channel("C0REVIEWS", "code-reviews")
    general.messages.append({"type": "message", "user": "U0ANN", "text": "Good morning", "ts": "1767603600.000100"})
    private = Channel("C0SECRET", "board", is_private=True)
    private.messages.append({"type": "message", "user": "U0BEN", "text": "We sell.", "ts": "1767603600.000200"})
    old = Channel("C0OLD", "old", is_archived=True)
    return {channel.id: channel for channel in (general, reviews, private, old)}


_PEOPLE = {
    "U0ANN": {"real_name": "Ann Author", "email": "ann@example.com", "title": "Engineer"},
    "U0BEN": {"real_name": "Ben Boss", "email": "ben@example.com", "title": "Manager"},
    BOT: {"real_name": "Trunk", "email": "bot@example.com", "title": ""},
}


def _no(error: str) -> dict[str, Any]:
    return {"ok": False, "error": error}


class SlackDouble:
    """The double: its channels, what was asked of it, and what it is to refuse."""

    def __init__(self, *, token: str | None = None) -> None:
        self.token = token
        self.channels = _channels()
        #: Every request, oldest first.
        self.seen: list[Seen] = []
        #: Answers to give once instead of the real ones: (method's name, answer).
        self.planned: list[tuple[str, Callable[[], web.Response]]] = []
        #: Where it listens, while it is running.
        self.port = 0
        self._clock = 1767610000

    @property
    def posted(self) -> list[dict[str, Any]]:
        """What the bot has posted, in all channels."""
        return [each for channel in self.channels.values() for each in channel.messages if each["user"] == BOT]

    def refuse_once(self, name: str, status: int, body: Any = None, headers: dict[str, str] | None = None) -> None:
        """Answer the next call of this method, such as ``chat.postMessage``, with this status."""
        answer = _no("refused_by_plan") if body is None else body
        self.planned.append((name, lambda: web.json_response(answer, status=status, headers=headers)))

    @asynccontextmanager
    async def running(self, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
        """Listen while the block runs; gives the address of the API."""
        runner = web.AppRunner(self.application(), access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
            self.port = runner.addresses[0][1]
            yield f"http://{host}:{self.port}/api"
        finally:
            await runner.cleanup()

    def application(self) -> web.Application:
        """The one route, as an aiohttp application: the method's name is the path."""
        application = web.Application()
        application.add_routes([web.route("*", "/api/{name}", self._answer)])
        return application

    async def _answer(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        body = await request.json() if request.body_exists else {}
        arguments = {**request.query, **body}
        sent = request.headers.get("Authorization")
        self.seen.append(Seen(request.method, name, arguments, sent))
        for plan in self.planned:
            if plan[0] == name:
                self.planned.remove(plan)
                return plan[1]()
        if self.token is not None and sent != f"Bearer {self.token}":
            return web.json_response(_no("not_authed" if sent is None else "invalid_auth"))
        method = getattr(self, "_" + re.sub(r"[.A-Z]", lambda each: f"_{each[0].lower().strip('.')}", name), None)
        return web.json_response(_no("unknown_method") if method is None else method(arguments))

    # -- the methods: each takes the arguments and gives the answer ------------------------------------------------

    def _conversations_list(self, asked: dict[str, Any]) -> dict[str, Any]:
        archived = asked.get("exclude_archived") != "true"
        public = [channel for channel in self.channels.values() if not channel.is_private]
        found = [channel.shown() for channel in public if archived or not channel.is_archived]
        start, size = int(asked.get("cursor") or 0), int(asked.get("limit", 100))
        more = str(start + size) if start + size < len(found) else ""
        return {"ok": True, "channels": found[start : start + size], "response_metadata": {"next_cursor": more}}

    def _conversations_info(self, asked: dict[str, Any]) -> dict[str, Any]:
        channel = self.channels.get(asked["channel"])
        return _no("channel_not_found") if channel is None else {"ok": True, "channel": channel.shown()}

    def _conversations_history(self, asked: dict[str, Any]) -> dict[str, Any]:
        channel = self.channels.get(asked["channel"])
        if channel is None:
            return _no("channel_not_found")
        top = [each for each in reversed(channel.messages) if each.get("thread_ts") in (None, each["ts"])]
        size = int(asked.get("limit", 100))
        return {"ok": True, "messages": top[:size], "has_more": len(top) > size}

    def _conversations_replies(self, asked: dict[str, Any]) -> dict[str, Any]:
        channel = self.channels.get(asked["channel"])
        if channel is None or channel.message(asked["ts"]) is None:
            return _no("channel_not_found" if channel is None else "thread_not_found")
        thread = [each for each in channel.messages if asked["ts"] in (each["ts"], each.get("thread_ts"))]
        return {"ok": True, "messages": thread, "has_more": False}

    def _chat_post_message(self, asked: dict[str, Any]) -> dict[str, Any]:
        channel = self.channels.get(asked["channel"])
        if channel is None or channel.is_archived:
            return _no("channel_not_found" if channel is None else "is_archived")
        if not asked.get("text"):
            return _no("no_text")
        self._clock += 1
        message = {"type": "message", "user": BOT, "text": asked["text"], "ts": f"{self._clock}.000000", "team": TEAM}
        if "thread_ts" in asked:
            message["thread_ts"] = asked["thread_ts"]
        channel.messages.append(message)
        return {"ok": True, "channel": channel.id, "ts": message["ts"], "message": message}

    def _reactions_add(self, asked: dict[str, Any]) -> dict[str, Any]:
        channel = self.channels.get(asked["channel"])
        message = None if channel is None else channel.message(asked["timestamp"])
        if message is None:
            return _no("message_not_found")
        if any(each["name"] == asked["name"] for each in message.get("reactions", [])):
            return _no("already_reacted")
        message.setdefault("reactions", []).append({"name": asked["name"], "users": [BOT], "count": 1})
        return {"ok": True}

    def _users_list(self, asked: dict[str, Any]) -> dict[str, Any]:
        members = [{"id": each, "team_id": TEAM, "real_name": known["real_name"]} for each, known in _PEOPLE.items()]
        start, size = int(asked.get("cursor") or 0), int(asked.get("limit", 100))
        more = str(start + size) if start + size < len(members) else ""
        return {"ok": True, "members": members[start : start + size], "response_metadata": {"next_cursor": more}}

    def _users_profile_get(self, asked: dict[str, Any]) -> dict[str, Any]:
        known = _PEOPLE.get(asked["user"])
        return _no("user_not_found") if known is None else {"ok": True, "profile": known}


async def _serve(double: SlackDouble, port: int) -> None:
    async with double.running(port=port) as url:
        print(url, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Serve until interrupted; print the address first."""
    parser = argparse.ArgumentParser(description="A stand-in for the Web API of Slack.")
    parser.add_argument("--port", type=int, default=0, help="where to listen; any free port unless given")
    parser.add_argument("--token", help="the only token that is accepted; default: any")
    asked = parser.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(SlackDouble(token=asked.token), asked.port))


if __name__ == "__main__":
    main()
