"""What the author of a server works with: the server, its context, and the types their methods take and return.

The names are loaded when first used, so that a server over stdio starts without the parts it does not need.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trunkline.server.asking import (
        AcceptedElicitation,
        CancelledElicitation,
        DeclinedElicitation,
        ElicitationResult,
        SamplingResult,
    )
    from trunkline.server.context import BlockingContext, ClientView, Context

__all__ = [
    "AcceptedElicitation",
    "BlockingContext",
    "CancelledElicitation",
    "ClientView",
    "Context",
    "DeclinedElicitation",
    "ElicitationResult",
    "SamplingResult",
]

_HOMES = MappingProxyType(
    {
        "trunkline.server.asking": (
            "AcceptedElicitation",
            "CancelledElicitation",
            "DeclinedElicitation",
            "ElicitationResult",
            "SamplingResult",
        ),
        "trunkline.server.context": ("BlockingContext", "ClientView", "Context"),
    }
)


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for (PEP 562)."""
    for home, names in _HOMES.items():
        if name in names:
            from importlib import import_module

            value = getattr(import_module(home), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'trunkline.server' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names."""
    return list(__all__)
