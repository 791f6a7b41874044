"""Extensions of the protocol: the included ones, and what each side declared.

The additions of an extension are defined by an ``Extension`` (``extension_definition``), which most programs never
import.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from trunkline.errors import MissingClientCapability
from trunkline.protocol.revisions import ALL_REVISIONS, STATELESS, Revision, Span

if TYPE_CHECKING:
    from trunkline.protocol.extension_definition import Extension

__all__ = [
    "APPS",
    "BUILT_IN_SPANS",
    "CLIENT_DEFAULTS",
    "SKILLS",
    "TASKS",
    "declared_extension",
    "extensions_in",
    "missing_extension",
    "names_extension",
    "require_extension",
]

TASKS = "io.modelcontextprotocol/tasks"
SKILLS = "io.modelcontextprotocol/skills"
APPS = "io.modelcontextprotocol/ui"

#: The revisions that have an extension of ours; any other extension is in all of them.
BUILT_IN_SPANS: Mapping[str, Span] = MappingProxyType({TASKS: STATELESS})
#: The settings that a client declares by default.
CLIENT_DEFAULTS: Mapping[str, Any] = MappingProxyType({TASKS: {}, SKILLS: {}})


def extensions_in(
    revision: Revision, declared: Mapping[str, Any], extensions: Iterable[Extension] = ()
) -> dict[str, Any]:
    """Return the declared extensions that a revision has, with their settings; settings of None omit an extension."""
    spans = {**BUILT_IN_SPANS, **{each.id: each.span for each in extensions}}
    return {
        id: settings
        for id, settings in declared.items()
        if settings is not None and spans.get(id, ALL_REVISIONS).covers(revision)
    }


def declared_extension(capabilities: Mapping[str, Any], id: str) -> Mapping[str, Any] | None:
    """Return the settings that the other side declared for an extension; None if it did not declare it."""
    declared = capabilities.get("extensions")
    settings = declared.get(id) if isinstance(declared, Mapping) else None
    return settings if isinstance(settings, Mapping) else None


def missing_extension(*ids: str) -> MissingClientCapability:
    """Return the error for a client that did not declare the extensions which the request needs."""
    return MissingClientCapability(
        f"Missing required client capability: the extension {', '.join(ids)}",
        data={"requiredCapabilities": {"extensions": {id: {} for id in ids}}},
    )


def names_extension(error: MissingClientCapability) -> bool:
    """Return True if the missing capability is an extension, not a capability of the protocol itself."""
    required = error.data.get("requiredCapabilities") if isinstance(error.data, Mapping) else None
    return isinstance(required, Mapping) and "extensions" in required


def require_extension(capabilities: Mapping[str, Any], id: str) -> Mapping[str, Any]:
    """Return the settings that a client declared for an extension.

    Raises:
        MissingClientCapability: it did not declare it.
    """
    settings = declared_extension(capabilities, id)
    if settings is None:
        raise missing_extension(id)
    return settings
