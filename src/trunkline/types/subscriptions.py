"""Subscriptions of stateless revisions: one long request that carries change notifications."""

from __future__ import annotations

from trunkline.types.base import NotificationParams, RequestParams, Result, Wire

__all__ = [
    "SubscriptionFilter",
    "SubscriptionsAcknowledgedNotificationParams",
    "SubscriptionsListenRequestParams",
    "SubscriptionsListenResult",
]


class SubscriptionFilter(Wire, frozen=True, kw_only=True):
    """The kinds of notification that are requested, or that will be sent."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] | None = None


class SubscriptionsListenRequestParams(RequestParams, frozen=True, kw_only=True):
    """The params of ``subscriptions/listen``: the notifications to send for as long as the request is open."""

    notifications: SubscriptionFilter


class SubscriptionsAcknowledgedNotificationParams(NotificationParams, frozen=True, kw_only=True):
    """The kinds of notification that this subscription will receive; ``_meta`` names the subscription."""

    notifications: SubscriptionFilter


class SubscriptionsListenResult(Result, frozen=True, kw_only=True):
    """The end of a subscription; ``_meta`` names it."""
