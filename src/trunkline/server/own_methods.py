"""Methods and notifications of one's own: functions whose parameters are the members of params.

A function whose only parameter is called ``params`` is given all of them as one dictionary.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from trunkline.connection import Exchange
from trunkline.errors import InvalidParams
from trunkline.protocol.events import NotificationReceived
from trunkline.server.functions import UserFunction
from trunkline.server.mismatch import ArgumentError
from trunkline.server.routes import Route
from trunkline.server.scopes import demand
from trunkline.types import RequestParams

__all__ = ["hear", "route_of"]

log = logging.getLogger("trunkline")


def route_of(function: UserFunction, scopes: tuple[str, ...] = ()) -> Route:
    """Make the handler of a method out of a function, for who has the scopes; what it returns becomes an object."""

    async def serve(exchange: Exchange, params: RequestParams) -> Any:
        if scopes:
            demand(exchange, scopes, exchange.connection.owner.hierarchy)
        members = _members(exchange.params)
        if [each.name for each in function.signature.parameters] == ["params"]:
            members = {"params": members}
        try:
            kwargs = function.signature.bind(msgspec.json.encode(members))
        except ArgumentError as error:
            raise InvalidParams(f"Invalid params: {error}") from error
        value = msgspec.to_builtins(await function.run(exchange, kwargs))
        return value if isinstance(value, dict) else {} if value is None else {"result": value}

    return serve


def hear(function: Callable[..., object], event: NotificationReceived, running: set[asyncio.Future[object]]) -> None:
    """Call a function with a notification's params; what it raises is logged, what runs on is kept in ``running``."""
    try:
        members = _members(event.params)
        wants = list(inspect.signature(function).parameters)
        heard = function(members) if wants == ["params"] else function(**members)
    except Exception:
        log.exception("hearing %s failed", event.method)
        return
    if inspect.isawaitable(heard):
        task = asyncio.ensure_future(heard)
        running.add(task)
        task.add_done_callback(lambda ended: _report(ended, event.method, running))


def _report(ended: asyncio.Future[object], method: str, running: set[asyncio.Future[object]]) -> None:
    running.discard(ended)
    if not ended.cancelled() and ended.exception() is not None:
        log.error("hearing %s failed", method, exc_info=ended.exception())


def _members(params: Raw | None) -> dict[str, Any]:
    members: dict[str, Any] = {} if params is None else msgspec.json.decode(params, type=dict[str, Any])
    members.pop("_meta", None)
    return members
