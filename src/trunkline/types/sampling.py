"""Sampling: a server asks the client's model for a message."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import field

from trunkline.types.base import RequestParams, Role, Wire
from trunkline.types.content import SamplingMessageContentBlock
from trunkline.types.tasks import TaskMetadata
from trunkline.types.tools import Tool

__all__ = [
    "CreateMessageRequestParams",
    "CreateMessageResult",
    "ModelHint",
    "ModelPreferences",
    "SamplingMessage",
    "ToolChoice",
]


class ModelHint(Wire, frozen=True, kw_only=True):
    """A part of the name of a suitable model."""

    name: str | None = None


class ModelPreferences(Wire, frozen=True, kw_only=True):
    """What matters in the choice of a model, each from 0 to 1."""

    hints: list[ModelHint] | None = None
    cost_priority: int | float | None = None
    speed_priority: int | float | None = None
    intelligence_priority: int | float | None = None


class ToolChoice(Wire, frozen=True, kw_only=True):
    """Whether the model may, must or must not use the given tools."""

    mode: Literal["auto", "required", "none"] | None = None


class SamplingMessage(Wire, frozen=True, kw_only=True):
    """One message to or from a model: one block, or several."""

    role: Role
    content: SamplingMessageContentBlock | list[SamplingMessageContentBlock]
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class CreateMessageRequestParams(RequestParams, frozen=True, kw_only=True):
    """The params of ``sampling/createMessage``: a conversation and how to continue it."""

    messages: list[SamplingMessage]
    max_tokens: int
    model_preferences: ModelPreferences | None = None
    system_prompt: str | None = None
    include_context: Literal["none", "thisServer", "allServers"] | None = None
    temperature: int | float | None = None
    stop_sequences: list[str] | None = None
    metadata: dict[str, Any] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    task: TaskMetadata | None = None


class CreateMessageResult(SamplingMessage, frozen=True, kw_only=True):
    """The message, the model that generated it, and why it stopped."""

    model: str
    stop_reason: str | None = None
