"""What tests of conversations share: a host over servers in this process, a scripted model, and all that happened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from trunkline import Server
from trunkline.host.authorization.approval import Prompter
from trunkline.host.authorization.policy.loader import parse_policy
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.chat.conversation import Conversation
from trunkline.host.chat.events import (
    CallFinished,
    ChatEvent,
    ChatLimits,
    ChatNotice,
    ChatOptions,
    TextReceived,
    TurnEnded,
)
from trunkline.host.host import Host
from trunkline.host.models.interface import ModelMessage, TextBlock, ToolResultBlock, Traits
from trunkline.host.models.scripted import ScriptedCall, ScriptedModel, ScriptedTurn

__all__ = [
    "LoopClock",
    "Talking",
    "calls",
    "consistent",
    "ended",
    "heard",
    "limits",
    "noticed",
    "of",
    "policy",
    "results",
    "talking",
    "text_in",
    "texts",
    "traits",
]

T = TypeVar("T")


def policy(*servers: str, more: str = "") -> Policy:
    """Allow all tools of these servers."""
    rules = "".join(f'[[rule]]\neffect = "allow"\nserver = "{server}"\ntool = "*"\n' for server in servers)
    return parse_policy(rules + more, file="policy.toml")


def traits(**more: Any) -> Traits:
    """Make the traits of a model."""
    return Traits(**{"images": True, "input_price": 1.0, "output_price": 2.0, **more})


def calls(*made: tuple[str, dict[str, Any]] | str, says: str = "", **more: Any) -> ScriptedTurn:
    """Make a turn that calls tools."""
    wanted = [
        ScriptedCall(tool=each) if isinstance(each, str) else ScriptedCall(tool=each[0], arguments=each[1])
        for each in made
    ]
    return ScriptedTurn(says=says, calls=tuple(wanted), **more)


def limits(**more: Any) -> ChatOptions:
    """Make options with these limits."""
    return ChatOptions(limits=ChatLimits(**more))


class Talking:
    """A conversation, its host and its model."""

    def __init__(self, host: Host, model: ScriptedModel, conversation: Conversation) -> None:
        """Keep the three."""
        self.host = host
        self.model = model
        self.conversation = conversation

    async def say(self, text: str = "Hello.", **more: Any) -> list[ChatEvent]:
        """Say something and hear all of it."""
        return [event async for event in self.conversation.say(text, **more)]

    async def settled(self) -> None:
        """Wait until what the servers offer is known."""
        await self.host._open.core.supervisor.settled(5.0)
        await asyncio.sleep(0)

    @property
    def last_request(self) -> str:
        """All text of the last message that the model was sent."""
        return "\n".join(texts(self.model.requests[-1].messages[-1]))


@asynccontextmanager
async def talking(
    folder: Path,
    servers: Mapping[str, Server],
    script: Sequence[Any],
    *,
    rules: Policy | None = None,
    prompter: Prompter | None = None,
    options: ChatOptions | None = None,
    model: Traits | None = None,
    **more: Any,
) -> AsyncIterator[Talking]:
    """Open a host over servers and begin a conversation; without rules, all of their tools are allowed."""
    rules = policy(*servers) if rules is None else rules
    scripted = ScriptedModel(script, traits=model or traits())
    async with Host.open(dict(servers), folder=folder, policy=rules, consent=prompter, **more) as host:
        yield Talking(host, scripted, host.conversation(scripted, options=options))


class LoopClock:
    """The clock of the running event loop, which can be moved forward."""

    def __init__(self) -> None:
        """Take the place of the loop's own clock."""
        loop = asyncio.get_running_loop()
        real_time = loop.time
        self._ahead = 0.0
        loop.time = lambda: real_time() + self._ahead  # type: ignore[method-assign]

    async def advance(self, seconds: float) -> None:
        """Move the clock forward, and let run whatever is due by then."""
        self._ahead += seconds
        for _ in range(5):
            await asyncio.sleep(0)


def of(events: Sequence[ChatEvent], kind: type[T]) -> list[T]:
    """Give the events of one kind."""
    return [event for event in events if isinstance(event, kind)]


def heard(events: Sequence[ChatEvent]) -> tuple[str, TurnEnded]:
    """Give what the model said, and how the turn ended."""
    last = events[-1]
    assert isinstance(last, TurnEnded)
    return "".join(event.text for event in of(events, TextReceived)), last


def texts(message: ModelMessage) -> list[str]:
    """Give the texts of a message, those of results included."""
    found = []
    for block in message.content:
        if isinstance(block, TextBlock):
            found.append(block.text)
        elif isinstance(block, ToolResultBlock):
            found += [each.text for each in block.content if isinstance(each, TextBlock)]
    return found


def results(conversation: Conversation) -> list[ToolResultBlock]:
    """Give all results of a conversation."""
    return [
        block for message in conversation.messages for block in message.content if isinstance(block, ToolResultBlock)
    ]


def text_in(result: ToolResultBlock) -> str:
    """Give the first text of a result."""
    return next(block.text for block in result.content if isinstance(block, TextBlock))


def consistent(messages: Sequence[ModelMessage]) -> bool:
    """Tell whether a provider would take these messages: each call is answered right after, and nothing else is."""
    expected: list[str] = []
    for message in messages:
        answered = [block.id for block in message.content if isinstance(block, ToolResultBlock)]
        if answered != expected or not message.content:
            return False
        expected = [use.id for use in message.tool_uses]
    return not expected


def ended(events: Sequence[ChatEvent]) -> list[CallFinished]:
    """Give the ends of calls."""
    return of(events, CallFinished)


def noticed(events: Sequence[ChatEvent]) -> str:
    """Give all notices as one text."""
    return "\n".join(event.text for event in of(events, ChatNotice))
