"""How one gateway, or one profile of it, behaves."""

from __future__ import annotations

from msgspec import Struct

from trunkline.host.entries import NO_FILTERS, Filters
from trunkline.host.judgement.approval import Approval

__all__ = ["GatewayOptions"]


class GatewayOptions(Struct, frozen=True, kw_only=True):
    """How one gateway, or one profile of it, behaves."""

    name: str = "trunkline"
    #: A virtual server: some of the servers, with filters and a policy of its own.
    profile: str | None = None
    servers: frozenset[str] | None = None
    tools: Filters = NO_FILTERS
    #: Who asks the user before a call: the client in front, the gateway, or no one (``judgement/approval.py``).
    approval: Approval = "ask"
    #: Calls a minute, and at once, of one principal.
    per_minute: float | None = None
    concurrent: int = 256
    #: Whether a large catalog is replaced by tools to search it.
    search: str = "auto"
    #: The share of a model's context, in tokens, above which it is.
    window_tokens: int = 200_000
    share: float = 0.10
    #: All callers are the user's own (loopback and one token), so that answers may outlive the session. Over stdio
    #: this is known without it.
    own_user: bool = False
