"""Requests that the policy does not judge, such as lists and pings: they may be sent again unchanged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

import trunkline.types as t
from trunkline.console.routing import ApiError
from trunkline.host.core import HostCore
from trunkline.host.requester import Requester
from trunkline.host.upstreams.catalog.names import split_id

__all__ = ["PLAIN_REQUESTS", "plain_request"]

_COMPLETION = "completion/complete"
#: Methods that may be sent unchanged. Methods that the policy judges are not among them.
PLAIN_REQUESTS = frozenset(
    {"ping", "tools/list", "resources/list", "resources/templates/list", "prompts/list", _COMPLETION}
)


def plain_request(
    core: HostCore, id: str, params: Mapping[str, Any]
) -> tuple[str, str, Callable[[Requester], Awaitable[Any]]]:
    """Return the server, the id (``server/method``), and a function that sends the request.

    Raises:
        ApiError: the method is not one of ``PLAIN_REQUESTS``, or the params cannot be read.
    """
    server, method = split_id(id) or ("", "")
    if method not in PLAIN_REQUESTS:
        raise ApiError(400, "invalid_request", f"{method or id} cannot be sent as a plain request.")
    upstream = core.upstream(server)
    # ``_meta`` belongs to one connection: progress tokens, the revision, the client's capabilities.
    own = {name: value for name, value in params.items() if name != "_meta"}

    async def send(requester: Requester) -> Any:
        client = await upstream.connected_client()
        return await client.request(method, own)

    if method != _COMPLETION:
        return server, id, send
    try:
        wanted = msgspec.convert(own, t.CompleteRequestParams)
    except msgspec.ValidationError as error:
        raise ApiError(400, "invalid_request", f"The params of {method} cannot be read: {error}") from error
    return server, id, lambda requester: core.complete(server, wanted, requester)
