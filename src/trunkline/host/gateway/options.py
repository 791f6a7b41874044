"""The options of a gateway or of one of its profiles."""

from __future__ import annotations

from msgspec import Struct

from trunkline.host.entries import NO_FILTERS, Filters
from trunkline.host.judgement.approval import Approval

__all__ = ["GatewayOptions"]


class GatewayOptions(Struct, frozen=True, kw_only=True):
    """The options of a gateway or of one of its profiles."""

    name: str = "trunkline"
    #: The profile: a virtual server with some of the servers, its own filters and its own policy.
    profile: str | None = None
    servers: frozenset[str] | None = None
    tools: Filters = NO_FILTERS
    #: Who asks the user before a call: the client, the gateway, or no one (``authorization/approval.py``).
    approval: Approval = "ask"
    #: Limits of one principal: calls per minute, and concurrent calls.
    per_minute: float | None = None
    concurrent: int = 256
    #: Whether a large catalog is replaced by tools to search it.
    search: str = "auto"
    #: For ``auto``: the size of the model's context window, and the share of it above which tools are searched.
    window_tokens: int = 200_000
    share: float = 0.10
    #: All callers are the user's own (loopback and one token), so that answers may outlive the session. Over stdio
    #: this is known without it.
    own_user: bool = False
