"""The user's filters: which of a server's tools, prompts and resources are shown at all.

A filter only removes: what it hides is in no list and cannot be called. It matches names by globs, tools by their
annotations, and anything by its tags. Annotations of a server are believed here, since a lie can at most make something
visible that the policy then judges; an absent hint has the default of the specification, which is the careful one. No
I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, TypeAlias

import trunkline.types as t
from trunkline.host.entries import Filters
from trunkline.host.policy.acts import Annotations

__all__ = [
    "SELECTORS",
    "Definition",
    "annotations_of",
    "denies",
    "keeps",
    "keeps_name",
    "keeps_unlisted",
    "name_of",
    "tags_of",
]

Definition: TypeAlias = t.Tool | t.Prompt | t.Resource | t.ResourceTemplate

#: The words that ``annotations`` of a filter may contain, and when each is true of a tool (schema, ToolAnnotations: a
#: read-only tool destroys nothing; others may be destructive and open-world unless annotated otherwise).
SELECTORS: Mapping[str, Callable[[Annotations], bool]] = MappingProxyType(
    {
        "readOnly": lambda said: said.read_only is True,
        "destructive": lambda said: said.read_only is not True and said.destructive is not False,
        "idempotent": lambda said: said.read_only is True or said.idempotent is True,
        "openWorld": lambda said: said.open_world is not False,
    }
)
# Where servers put tags in ``_meta``: at the top, or under the name of their framework.
_TAG_HOMES = ("_fastmcp", "fastmcp")


def keeps(filters: Filters, definition: Definition, kind: str) -> str | None:
    """Return why a filter hides a definition; None if it does not. ``kind`` is for the message."""
    name = name_of(definition)
    reason = keeps_name(filters, name)
    if reason is not None:
        return reason
    said = annotations_of(definition)
    for selector in filters.annotations:
        word = selector.removeprefix("!")
        if word not in SELECTORS:
            return f'the filter asks for "{selector}", which no {kind} can be; use {", ".join(SELECTORS)}'
        if not isinstance(definition, t.Tool) or SELECTORS[word](said) is (word != selector):
            return f"the filter keeps only what is {_shown(selector)}"
    if filters.tags and not tags_of(definition) & set(filters.tags):
        return f"it has none of the tags {', '.join(filters.tags)}"
    return None


def keeps_name(filters: Filters, name: str) -> str | None:
    """Return why the globs of a filter hide a name; None if they do not."""
    reason = denies(filters, name)
    if reason is None and filters.allow and _first_match(filters.allow, name) is None:
        return f"no glob of allow matches it: {', '.join(filters.allow)}"
    return reason


def keeps_unlisted(filters: Filters, name: str) -> str | None:
    """Return why a filter hides an unlisted item, of which only the name is known; None if it does not."""
    if filters.annotations or filters.tags:
        return "the filter asks for annotations or tags, and nothing says which it has"
    return keeps_name(filters, name)


def denies(filters: Filters, name: str) -> str | None:
    """Return which glob denies a name; None if none does."""
    glob = _first_match(filters.deny, name)
    return None if glob is None else f'the glob "{glob}" of deny matches it'


def name_of(definition: Definition) -> str:
    """Return the name of a definition within its server: the name, URI or URI template."""
    if isinstance(definition, t.Resource):
        return definition.uri
    return definition.uri_template if isinstance(definition, t.ResourceTemplate) else definition.name


def annotations_of(definition: Definition) -> Annotations:
    """Return the annotations of a tool; empty for other definitions."""
    said = definition.annotations if isinstance(definition, t.Tool) else None
    if said is None:
        return Annotations()
    return Annotations(
        read_only=said.read_only_hint,
        destructive=said.destructive_hint,
        idempotent=said.idempotent_hint,
        open_world=said.open_world_hint,
    )


def tags_of(definition: Definition) -> set[str]:
    """Return the tags in a definition's ``_meta``."""
    meta = definition.meta or {}
    homes = [meta, *(meta.get(home) for home in _TAG_HOMES)]
    lists: list[Any] = [home.get("tags") for home in homes if isinstance(home, dict)]
    return {tag for tags in lists if isinstance(tags, list) for tag in tags if isinstance(tag, str)}


def _first_match(globs: Iterable[str], name: str) -> str | None:
    return next((glob for glob in globs if fnmatchcase(name, glob)), None)


def _shown(selector: str) -> str:
    return f"not {selector[1:]}" if selector.startswith("!") else selector
