"""Everything of a server that outlives a request: values, logs, channels, limits, queues, indexes.

``Store`` is the interface, for an engine of your own that is passed as ``Server(store=...)``; the engines included are
chosen by a path or a URL. Import from here: the modules inside are not part of the public API, whatever their names.
Nothing here knows sessions, tasks or HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline._lazy import lazy_exports

if TYPE_CHECKING:
    from trunkline.store.interface import (
        Appended,
        Commit,
        Delete,
        Delivery,
        Enqueue,
        Entry,
        Finish,
        FullIndex,
        Index,
        IndexLimits,
        Publish,
        Put,
        Step,
        Store,
        Subscription,
    )

__all__ = [
    "Appended",
    "Commit",
    "Delete",
    "Delivery",
    "Enqueue",
    "Entry",
    "Finish",
    "FullIndex",
    "Index",
    "IndexLimits",
    "Publish",
    "Put",
    "Step",
    "Store",
    "Subscription",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, {"trunkline.store.interface": tuple(__all__)})
