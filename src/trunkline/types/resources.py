"""Resources, by URI or by URI template, and subscriptions to changes.

``resources/subscribe`` in handshake revisions, the long request ``subscriptions/listen`` in stateless ones.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from trunkline.types.base import (
    Annotations,
    CacheableResult,
    Cursor,
    Icon,
    InputResponses,
    NotificationParams,
    RequestParams,
    Result,
    Wire,
)
from trunkline.types.content import ResourceContents

__all__ = [
    "ListResourceTemplatesResult",
    "ListResourcesResult",
    "ReadResourceRequestParams",
    "ReadResourceResult",
    "Resource",
    "ResourceTemplate",
    "ResourceUpdatedNotificationParams",
    "SubscribeRequestParams",
    "SubscriptionFilter",
    "SubscriptionsAcknowledgedNotificationParams",
    "SubscriptionsListenRequestParams",
    "SubscriptionsListenResult",
    "UnsubscribeRequestParams",
]


class SubscriptionFilter(Wire, frozen=True, kw_only=True):
    """The kinds of notification that are requested, or that will be sent."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] | None = None
    #: The tasks of the extension whose changes are requested.
    task_ids: list[str] | None = None


class SubscriptionsListenRequestParams(RequestParams, frozen=True, kw_only=True):
    """The params of ``subscriptions/listen``: the notifications to send for as long as the request is open."""

    notifications: SubscriptionFilter


class SubscriptionsAcknowledgedNotificationParams(NotificationParams, frozen=True, kw_only=True):
    """The kinds of notification that this subscription will receive; ``_meta`` names the subscription."""

    notifications: SubscriptionFilter


class SubscriptionsListenResult(Result, frozen=True, kw_only=True):
    """The end of a subscription; ``_meta`` names it."""


class Resource(Wire, frozen=True, kw_only=True):
    """A resource as a server lists it."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class ResourceTemplate(Wire, frozen=True, kw_only=True):
    """A family of resources, one for each expansion of an RFC 6570 template."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class ListResourcesResult(CacheableResult, frozen=True, kw_only=True):
    """One page of a server's resources."""

    resources: list[Resource]
    next_cursor: Cursor | None = None


class ListResourceTemplatesResult(CacheableResult, frozen=True, kw_only=True):
    """One page of a server's resource templates."""

    resource_templates: list[ResourceTemplate]
    next_cursor: Cursor | None = None


class ReadResourceRequestParams(RequestParams, frozen=True, kw_only=True):
    """The params of ``resources/read``."""

    uri: str
    input_responses: InputResponses | None = None
    request_state: str | None = None


class ReadResourceResult(CacheableResult, frozen=True, kw_only=True):
    """The contents of a resource, or of several that belong to it."""

    contents: list[ResourceContents]


class SubscribeRequestParams(RequestParams, frozen=True, kw_only=True):
    """The params of ``resources/subscribe``: request notifications of changes of a resource."""

    uri: str


class UnsubscribeRequestParams(RequestParams, frozen=True, kw_only=True):
    """The params of ``resources/unsubscribe``."""

    uri: str


class ResourceUpdatedNotificationParams(NotificationParams, frozen=True, kw_only=True):
    """The resource with this URI changed."""

    uri: str
