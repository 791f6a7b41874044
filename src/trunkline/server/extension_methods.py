"""Registers the extensions of a server: methods, notifications, and the checks for both."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trunkline.types as t
from trunkline.errors import InvalidParams
from trunkline.protocol.caller import Caller
from trunkline.protocol.extension_definition import Extension, ExtensionNotification
from trunkline.protocol.extensions import declared_extension
from trunkline.protocol.methods import METHODS, Method
from trunkline.server.handler_functions import HandlerFunction

if TYPE_CHECKING:
    from trunkline.server.server import Server

__all__ = ["may_notify", "register_extension"]

log = logging.getLogger("trunkline")


def register_extension(server: Server, extension: Extension) -> None:
    """Add the methods and notifications of an extension to a server.

    Raises:
        ValueError: a method exists already.
    """
    for each in extension.methods.values():
        if each.name in server.table.custom_methods or any(row.name == each.name for row in METHODS):
            raise ValueError(f"extension {extension.id!r}: the method {each.name!r} exists already")
        if each.function is None:
            continue
        row = Method(
            name=each.name,
            kind="request",
            to_server=extension.span,
            params=t.RequestParams,
            result=dict[str, Any],
            extension=extension.id if each.needs_client else None,
        )
        what = f"method {each.name!r} of {extension.id}"
        server.table.custom_methods[each.name] = (row, HandlerFunction(each.function, owner=server, what=what))
    for notification in extension.notifications.values():
        if notification.receiver == "server" and notification.function is not None:
            server.table.notification_handlers[notification.name] = _notification_handler(extension, notification)


def _notification_handler(extension: Extension, notification: ExtensionNotification) -> Callable[..., Any]:
    """Return a handler that calls the function of a notification; params that do not match it are ignored."""
    from trunkline.protocol.notification_arguments import NotificationFunction

    assert notification.function is not None
    function = NotificationFunction(
        notification.function, what=f"the notification {notification.name} of {extension.id}"
    )

    def handle(params: dict[str, Any]) -> Any:
        try:
            call = function.bind(params)
        except InvalidParams as error:
            log.warning("the notification %s was ignored: %s", notification.name, error.message)
            return None
        return call()

    return handle


def may_notify(server: Server, caller: Caller, method: str) -> bool:
    """Return True if a custom notification may be sent to a client: one of an extension needs its declaration."""
    return all(
        declared_extension(caller.capabilities, each.id) is not None
        for each in server.settings.extension_objects
        if method in each.notifications
    )
