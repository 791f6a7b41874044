"""The requester of an operation at a server: its session, its policy, and the channels back to the caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

import trunkline.types as t
from trunkline.host.authorization.approval import ConsentedBy, Prompter
from trunkline.host.authorization.authorizer import act_for_item, act_for_unlisted
from trunkline.host.authorization.denial_messages import NO_PROMPTER, NoPromptReason
from trunkline.host.authorization.policy.decisions import Act, ActKind
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.config.model import ServerEntry
from trunkline.host.session import HostSession
from trunkline.host.upstreams.catalog.catalog import Catalog
from trunkline.host.upstreams.catalog.items import CatalogItem
from trunkline.host.upstreams.catalog.names import item_id
from trunkline.host.upstreams.routing.channels import CallerChannel

__all__ = ["Requester"]


class Requester(Struct, frozen=True, kw_only=True):
    """The caller of an operation, and the channel for questions back to it."""

    session: HostSession
    channel: CallerChannel
    policy: Policy
    #: Prompts for approval; None if no user can be asked.
    prompter: Prompter | None = None
    caller: str = "user"
    #: The gateways the request came through.
    via: tuple[str, ...] = ()
    #: The trace context that the request carried in ``_meta``.
    trace: Mapping[str, str] | None = None
    #: Who approved the request in advance, and the reason for a missing prompter.
    consented_by: ConsentedBy | None = None
    no_prompt_reason: NoPromptReason = NO_PROMPTER
    #: The gateway tool (``call_tool``) through which a tool is called, if only that name was approved.
    by_proxy: str | None = None
    #: Whether server requests that no rule allows are rejected instead of forwarded to the caller.
    strict: bool = False
    #: Filters the items that the caller may use; None for all.
    serves: Callable[[CatalogItem], bool] | None = None

    def completion_act(
        self, entry: ServerEntry, ref: t.PromptReference | t.ResourceTemplateReference, catalog: Catalog
    ) -> Act:
        """Return the act for any use of the prompt, template or resource whose argument is completed."""
        if isinstance(ref, t.PromptReference):
            kind: ActKind = "prompt"
            name, key = ref.name, item_id(entry.name, ref.name)
            item = catalog.prompts.get(key)
        else:
            kind, name, key = "resource", ref.uri, item_id(entry.name, ref.uri)
            item = catalog.templates.get(key) or catalog.resources.get(key)
        asked: dict[str, Any] = {
            "caller": self.caller,
            "session": self.session,
            "trusted": entry.settings.trusted,
        }
        if item is None:
            return act_for_unlisted(kind, entry.name, name, **asked)
        return act_for_item(item, **asked)
