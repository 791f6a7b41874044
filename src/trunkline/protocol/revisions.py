"""The five revisions of the protocol and what each has; the only file that knows a revision's date.

A feature, method, field or content type is a row with a ``Span`` of revisions, and a ``Revision`` is built once from
the rows. Code tests ``Feature.X in revision.features`` or looks a row up; it never compares names, which are an
enumerated set and not an order.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType

from msgspec import Struct

__all__ = [
    "ALL_REVISIONS",
    "APPS_REVISION",
    "ASSUMED_WITHOUT_HEADER",
    "FEATURES",
    "HANDSHAKE",
    "HANDSHAKE_NAMES",
    "NEWEST",
    "NEWEST_HANDSHAKE",
    "ONLY_2025_03",
    "ONLY_2025_11",
    "REVISIONS",
    "REVISION_NAMES",
    "SINCE_2025_03",
    "SINCE_2025_06",
    "SINCE_2025_06_HANDSHAKE",
    "SINCE_2025_11",
    "STATELESS",
    "STATELESS_NAMES",
    "Feature",
    "Revision",
    "Span",
    "find_revision",
    "uses_handshake",
]

#: The revision of MCP Apps, which has its own dates, that a page and its host agree on.
APPS_REVISION = "2026-01-26"

#: Oldest first, like every sequence of revisions here.
REVISION_NAMES = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")


class Feature(Enum):
    """What some revisions have and others lack, beyond single methods and fields."""

    #: Each request carries revision, client and capabilities in ``_meta``; absent: handshake, ping, set level.
    ENVELOPE = auto()
    #: Requests to the client travel inside results; absent: the server sends requests.
    INPUT_REQUIRED = auto()
    #: Change notifications come on an open request; absent: ``resources/subscribe``.
    LISTEN = auto()
    #: ``server/discover``.
    DISCOVER = auto()
    #: Each result states its kind.
    RESULT_TYPE = auto()
    #: Lists and contents state how long they may be cached.
    CACHE_HINTS = auto()
    #: HTTP headers mirror the method and the name.
    ROUTING_HEADERS = auto()
    #: Several messages in one array.
    BATCHES = auto()
    #: An HTTP header names the revision.
    VERSION_HEADER = auto()
    #: Tools return a JSON object beside their content.
    STRUCTURED_CONTENT = auto()
    #: A server may end a stream and let the client poll.
    STREAM_POLLING = auto()
    #: Tasks are part of the core protocol.
    CORE_TASKS = auto()
    #: An error may require a page to be opened.
    URL_ELICITATION_ERROR = auto()
    #: Structured content may be any JSON value.
    ANY_STRUCTURED_CONTENT = auto()
    #: An unknown resource is reported as invalid params; absent: it has its own code.
    NOT_FOUND_IS_INVALID_PARAMS = auto()


class Span(Struct, frozen=True):
    """The revisions from one to another, both included, by their index in ``REVISIONS``."""

    since: int = 0
    until: int = len(REVISION_NAMES) - 1

    def covers(self, revision: Revision) -> bool:
        """Return True if a revision is in the span."""
        return self.since <= revision.index <= self.until


ALL_REVISIONS = Span()
HANDSHAKE = Span(0, 3)
STATELESS = Span(4)
SINCE_2025_03 = Span(1)
SINCE_2025_06 = Span(2)
SINCE_2025_06_HANDSHAKE = Span(2, 3)
SINCE_2025_11 = Span(3)
ONLY_2025_03 = Span(1, 1)
ONLY_2025_11 = Span(3, 3)

FEATURES: Mapping[Feature, Span] = MappingProxyType(
    {
        Feature.ENVELOPE: STATELESS,
        Feature.INPUT_REQUIRED: STATELESS,
        Feature.LISTEN: STATELESS,
        Feature.DISCOVER: STATELESS,
        Feature.RESULT_TYPE: STATELESS,
        Feature.CACHE_HINTS: STATELESS,
        Feature.ROUTING_HEADERS: STATELESS,
        Feature.BATCHES: ONLY_2025_03,
        Feature.VERSION_HEADER: SINCE_2025_06,
        Feature.STRUCTURED_CONTENT: SINCE_2025_06,
        Feature.STREAM_POLLING: ONLY_2025_11,
        Feature.CORE_TASKS: ONLY_2025_11,
        Feature.URL_ELICITATION_ERROR: ONLY_2025_11,
        Feature.ANY_STRUCTURED_CONTENT: STATELESS,
        Feature.NOT_FOUND_IS_INVALID_PARAMS: STATELESS,
    }
)


# Compared and hashed by identity: there are five, and they are keys of caches on the path of each call.
class Revision(Struct, frozen=True, eq=False, kw_only=True):
    """One revision: its name, its index, its features; the flags repeat the features that each result needs."""

    name: str
    index: int
    features: frozenset[Feature] = frozenset()
    handshake: bool = False
    result_type: bool = False
    cache_hints: bool = False
    structured_content: bool = False
    any_structured_content: bool = False

    def __repr__(self) -> str:
        """Return the name."""
        return f"<Revision {self.name}>"


def _make(index: int, name: str) -> Revision:
    bare = Revision(name=name, index=index)
    features = frozenset(feature for feature, span in FEATURES.items() if span.covers(bare))
    return Revision(
        name=name,
        index=index,
        features=features,
        handshake=Feature.ENVELOPE not in features,
        result_type=Feature.RESULT_TYPE in features,
        cache_hints=Feature.CACHE_HINTS in features,
        structured_content=Feature.STRUCTURED_CONTENT in features,
        any_structured_content=Feature.ANY_STRUCTURED_CONTENT in features,
    )


REVISIONS: tuple[Revision, ...] = tuple(_make(index, name) for index, name in enumerate(REVISION_NAMES))
HANDSHAKE_NAMES = tuple(revision.name for revision in REVISIONS if revision.handshake)
STATELESS_NAMES = tuple(revision.name for revision in REVISIONS if not revision.handshake)
NEWEST = REVISIONS[-1]

_BY_NAME: Mapping[str, Revision] = MappingProxyType({revision.name: revision for revision in REVISIONS})
NEWEST_HANDSHAKE = _BY_NAME[HANDSHAKE_NAMES[-1]]
#: The revision of a client that should name it in a header and does not: the last one without that header.
ASSUMED_WITHOUT_HEADER = next(
    revision for revision in reversed(REVISIONS) if Feature.VERSION_HEADER not in revision.features
)


def find_revision(name: str) -> Revision | None:
    """Return the revision with exactly this name, or None."""
    return _BY_NAME.get(name)


def uses_handshake(name: str | None) -> bool:
    """Return whether the revision with this name begins with a handshake; an unknown one does not."""
    return (find_revision(name or "") or NEWEST).handshake
