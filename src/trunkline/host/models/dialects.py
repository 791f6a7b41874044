"""Builds requests to providers that want a model's reasoning back: what they share, and where they differ.

Such a request contains the whole conversation, with the model's reasoning before each tool call in its place; so what
is sent is digested message by message while it is built. A ``RequestFormat`` holds a provider's names of the members
and its forms of tools, choices and messages; no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from trunkline.host.models.echoes import Echoes, Trail
from trunkline.host.models.interface import Message, ModelRequest, ToolSpec, Traits

__all__ = ["Dialect", "write_request"]


class Dialect(Struct, frozen=True, kw_only=True):
    """One provider's names and forms."""

    #: The names of the members with the conversation, the instructions, and the limit of the answer.
    messages: str
    system: str
    limit: str
    #: The smallest limit that the provider accepts.
    least_tokens: int
    write_tool: Callable[[ToolSpec], dict[str, Any]]
    #: Writes ``auto``, ``any``, ``none`` or the name of a tool.
    write_choice: Callable[[str], Any]
    #: Writes the items of a message; for an answer of the model, its stored form in the provider's words is passed, if
    #: any.
    write_message: Callable[[Message, list[Any] | None, Traits], Iterable[Any]]
    most_temperature: float | None = None


def write_request(
    request: ModelRequest, dialect: Dialect, *, model: str, traits: Traits, echoes: Echoes
) -> tuple[dict[str, Any], Trail]:
    """Build the request body, and the digest under which its answer is remembered."""
    tools = [dialect.write_tool(tool) for tool in request.tools]
    trail = Trail(model, request.system, tools)
    body: dict[str, Any] = {
        "model": model,
        dialect.limit: max(dialect.least_tokens, min(request.max_tokens, traits.output_tokens)),
        dialect.messages: _conversation(request.messages, trail, dialect, traits=traits, echoes=echoes),
    }
    if request.system:
        body[dialect.system] = request.system
    if tools:
        body["tools"] = tools
        body["tool_choice"] = dialect.write_choice(request.tool_choice)
    if request.temperature is not None and traits.temperature:
        most = dialect.most_temperature
        body["temperature"] = request.temperature if most is None else min(request.temperature, most)
    return body, trail


def _conversation(
    messages: tuple[Message, ...], trail: Trail, dialect: Dialect, *, traits: Traits, echoes: Echoes
) -> list[Any]:
    written: list[Any] = []
    for message in messages:
        own = echoes.recall(trail.key(message.content)) if message.role == "assistant" else None
        for one in dialect.write_message(message, own, traits):
            trail.add(one)
            written.append(one)
    return written
