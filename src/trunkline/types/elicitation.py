"""Elicitation: a server asks the user for input, by a form or by a page in the browser."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import field

from trunkline.types.base import NotificationParams, RequestParams, Wire
from trunkline.types.tasks import TaskMetadata

__all__ = ["ElicitAction", "ElicitRequestParams", "ElicitResult", "ElicitationCompleteNotificationParams"]

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
