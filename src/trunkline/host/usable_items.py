"""Counts the usable items of a catalog: those that the policy does not deny for all arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec.structs import replace

from trunkline.host.authorization.authorizer import act_for_item
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.upstreams.catalog.catalog import Catalog
from trunkline.host.upstreams.catalog.items import ITEM_KINDS, CatalogItem, ItemKind
from trunkline.host.upstreams.supervision.upstream import ServerStatus

__all__ = ["is_usable", "usable_counts", "with_usable_counts"]


def is_usable(item: CatalogItem, policy: Policy) -> bool:
    """Return False if the policy denies every use of an item by the user."""
    return policy.is_visible(act_for_item(item, caller="user"))


def usable_counts(catalog: Catalog, policy: Policy) -> Mapping[str, Mapping[ItemKind, int]]:
    """Return the number of usable items of each server, by kind.

    Items that a filter, the catalog or a review removed are not in the catalog, and are not counted.
    """
    counts: dict[str, Counter[ItemKind]] = {server: Counter() for server in catalog.parts}
    for kind in ITEM_KINDS:
        for item in catalog.of(kind).values():
            if is_usable(item, policy):
                counts[item.server][kind] += 1
    return counts


def with_usable_counts(status: ServerStatus, counts: Mapping[ItemKind, int]) -> ServerStatus:
    """Return a status with the numbers of usable items, and of listed items that are not usable."""
    tools, prompts = counts.get("tool", 0), counts.get("prompt", 0)
    resources = counts.get("resource", 0) + counts.get("template", 0)
    listed = status.tools + status.prompts + status.resources
    return replace(
        status, tools=tools, prompts=prompts, resources=resources, unusable=max(0, listed - tools - prompts - resources)
    )
