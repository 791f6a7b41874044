"""What a server may ask of its client.

Sampling (a message from the client's model), elicitation (input from the user, by a form or a page in the browser)
and roots (the folders and files the server may work on).
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import field

from trunkline.types.base import NotificationParams, RequestParams, Role, Wire
from trunkline.types.content import SamplingMessageContentBlock
from trunkline.types.tasks import TaskMetadata
from trunkline.types.tools import Tool

__all__ = [
    "CreateMessageRequestParams",
    "CreateMessageResult",
    "ElicitAction",
    "ElicitRequestParams",
    "ElicitResult",
    "ElicitationCompleteNotificationParams",
    "ListRootsResult",
    "ModelHint",
    "ModelPreferences",
    "Root",
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


ElicitAction: TypeAlias = Literal["accept", "decline", "cancel"]


class ElicitRequestParams(RequestParams, frozen=True, kw_only=True):
    """The params of ``elicitation/create``: a form with ``requested_schema``, or with mode ``url`` a page to open."""

    message: str
    mode: Literal["form", "url"] | None = None
    requested_schema: dict[str, Any] | None = None
    url: str | None = None
    elicitation_id: str | None = None
    task: TaskMetadata | None = None


class ElicitResult(Wire, frozen=True, kw_only=True):
    """What the user did, and the filled-in form if the user accepted."""

    action: ElicitAction
    content: dict[str, Any] | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class ElicitationCompleteNotificationParams(NotificationParams, frozen=True, kw_only=True):
    """The user has finished the page of this elicitation."""

    elicitation_id: str


class Root(Wire, frozen=True, kw_only=True):
    """One folder or file, as a ``file:`` URI."""

    uri: str
    name: str | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class ListRootsResult(Wire, frozen=True, kw_only=True):
    """All roots of a client."""

    roots: list[Root]
    meta: dict[str, Any] | None = field(name="_meta", default=None)
