"""Clients of the everything server with every capability, and a record of what they received."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import trunkline.types as t
from trunkline import Client, Server
from trunkline_servers.everything import make_server

__all__ = [
    "ERAS",
    "HANDSHAKE",
    "MIDDLE",
    "ROOT",
    "STATELESS",
    "Heard",
    "call",
    "connected",
    "everything",
    "forms",
    "model",
    "settle",
]

MIDDLE, HANDSHAKE, STATELESS = "2025-06-18", "2025-11-25", "2026-07-28"
ERAS = (MIDDLE, HANDSHAKE, STATELESS)
ROOT = "file:///srv/data"

_ANSWERS: Mapping[str, Any] = {
    "Who is travelling?": {"name": "Ann", "bags": 2},
    "What does Ann eat on the way?": {"meal": "fish"},
    "What should the resource say?": {"value": "good morning"},
    "What shall the prompt be about?": {"value": "rails"},
    "Please provide inputs for the following fields:": {"name": "Ann", "check": True, "number": 2.5},
    "Please provide inputs for the following fields (async task demo):": {"name": "Ann", "agreeToTerms": False},
    '"Python" can mean several things. Which one is meant?': {"interpretation": "snake"},
}


@cache
def everything() -> Server:
    """Return the server shared by all tests that leave it unchanged: a definition keeps no state between clients."""
    return make_server()


class Heard:
    """What a client was told and asked."""

    def __init__(self) -> None:
        self.logs: list[tuple[str, Any]] = []
        self.notices: list[tuple[str, Any]] = []
        self.asked: list[t.ElicitRequestParams] = []
        self.sampled: list[t.CreateMessageRequestParams] = []

    def log(self, message: t.LoggingMessageNotificationParams) -> None:
        self.logs.append((message.level, message.data))

    def notice(self, method: str, params: Any) -> None:
        self.notices.append((method, params))

    def of(self, method: str) -> list[Any]:
        return [params for name, params in self.notices if name == method]


def forms(question: t.ElicitRequestParams) -> Any:
    """Fill in any form of this server, and visit any page."""
    return True if question.mode == "url" else _ANSWERS[question.message]


def model(question: t.CreateMessageRequestParams) -> Any:
    """Use a tool if there is one and it was not used yet, else say something."""
    if question.tools and len(question.messages) == 1:
        use = t.ToolUseContent(id="u1", name=question.tools[0].name, input={"station": "Harbour"})
        return t.CreateMessageResult(role="assistant", content=[use], model="m", stop_reason="toolUse")
    return t.CreateMessageResult(
        role="assistant", content=t.TextContent(text="a lantern"), model="m", stop_reason="endTurn"
    )


@asynccontextmanager
async def connected(
    revision: str, server: Server | None = None, *, heard: Heard | None = None, **options: Any
) -> AsyncIterator[Client]:
    """Connect a client that can be asked everything, in memory; give a server if the test changes what it offers."""
    ear = heard or Heard()

    def ask(question: t.ElicitRequestParams) -> Any:
        ear.asked.append(question)
        return options.get("answers", forms)(question)

    def sample(question: t.CreateMessageRequestParams) -> Any:
        ear.sampled.append(question)
        return model(question)

    able = {"elicitation": ask, "elicitation_urls": True, "sampling": sample, "sampling_tools": True, "roots": [ROOT]}
    given = {**able, "logging": ear.log, "on_notification": ear.notice, **options}
    given.pop("answers", None)
    async with Client(server or everything(), revision=revision, **given) as client:
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """Call a tool."""
    return await client.call_tool(tool, arguments)


async def settle(until: Callable[[], bool] = lambda: False) -> None:
    """Let the loop turn until something is so, or a fixed number of times."""
    turns = 0
    while not until() and turns < 50:
        turns += 1
        await asyncio.sleep(0)
