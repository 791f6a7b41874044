"""What each revision has, and how a revision is found."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocol import schema_index
from trunkline.protocol.revisions import (
    FEATURES,
    HANDSHAKE_NAMES,
    NEWEST,
    NEWEST_HANDSHAKE,
    ONLY_2025_11,
    REVISION_NAMES,
    REVISIONS,
    STATELESS_NAMES,
    Feature,
    Revision,
    find_revision,
)

INDEX = schema_index.load()

#: One row per group of features, one column per revision, oldest first.
TABLE = {
    "....x": {
        Feature.ENVELOPE,
        Feature.INPUT_REQUIRED,
        Feature.LISTEN,
        Feature.DISCOVER,
        Feature.RESULT_TYPE,
        Feature.CACHE_HINTS,
        Feature.ROUTING_HEADERS,
        Feature.ANY_STRUCTURED_CONTENT,
        Feature.NOT_FOUND_IS_INVALID_PARAMS,
    },
    ".x...": {Feature.BATCHES},
    "..xxx": {Feature.VERSION_HEADER, Feature.STRUCTURED_CONTENT},
    "...x.": {Feature.STREAM_POLLING, Feature.CORE_TASKS, Feature.URL_ELICITATION_ERROR},
}

#: What in a revision's schema shows that it has a feature.
EVIDENCE: dict[Feature, Any] = {
    Feature.ENVELOPE: lambda schema: "initialize" not in schema["requests_to_server"],
    Feature.INPUT_REQUIRED: lambda schema: "InputRequiredResult" in schema["names"],
    Feature.LISTEN: lambda schema: "subscriptions/listen" in schema["requests_to_server"],
    Feature.DISCOVER: lambda schema: "server/discover" in schema["requests_to_server"],
    Feature.RESULT_TYPE: lambda schema: "resultType" in schema["definitions"]["CallToolResult"]["properties"],
    Feature.CACHE_HINTS: lambda schema: "ttlMs" in schema["definitions"]["ListToolsResult"]["properties"],
    Feature.BATCHES: lambda schema: "JSONRPCBatchRequest" in schema["names"],
    Feature.STRUCTURED_CONTENT: lambda schema: (
        "structuredContent" in schema["definitions"]["CallToolResult"]["properties"]
    ),
    Feature.CORE_TASKS: lambda schema: "Task" in schema["names"],
    Feature.URL_ELICITATION_ERROR: lambda schema: "URLElicitationRequiredError" in schema["names"],
}

EACH = [pytest.param(revision, id=revision.name) for revision in REVISIONS]


@pytest.mark.parametrize("pattern", TABLE)
def test_a_feature_belongs_to_the_revisions_of_its_row(pattern: str) -> None:
    rows = {"".join("x" if feature in each.features else "." for each in REVISIONS) for feature in TABLE[pattern]}
    assert rows == {pattern}


def test_every_feature_stands_in_the_table_and_has_a_span() -> None:
    assert set().union(*TABLE.values()) == set(Feature) == set(FEATURES)


@pytest.mark.parametrize("revision", EACH)
def test_a_feature_is_there_where_the_schema_shows_it(revision: Revision) -> None:
    shown = {feature for feature, shows in EVIDENCE.items() if shows(INDEX[revision.name])}
    assert revision.features & set(EVIDENCE) == shown


@pytest.mark.parametrize("revision", EACH)
def test_the_flags_of_a_revision_repeat_its_features(revision: Revision) -> None:
    assert revision.handshake is (Feature.ENVELOPE not in revision.features)
    assert revision.result_type is (Feature.RESULT_TYPE in revision.features)
    assert revision.cache_hints is (Feature.CACHE_HINTS in revision.features)
    assert revision.structured_content is (Feature.STRUCTURED_CONTENT in revision.features)
    assert revision.any_structured_content is (Feature.ANY_STRUCTURED_CONTENT in revision.features)


def test_a_revision_is_found_by_its_exact_name() -> None:
    assert tuple(find_revision(name) for name in REVISION_NAMES) == REVISIONS
    names = ("", "2024-01-15", "2025-06-18 ", "2025-6-18", "DRAFT-2026-v1")
    assert [name for name in names if find_revision(name) is not None] == []


def test_the_names_are_parted_by_era_and_stand_oldest_first() -> None:
    assert HANDSHAKE_NAMES + STATELESS_NAMES == REVISION_NAMES == tuple(sorted(REVISION_NAMES))
    assert len(STATELESS_NAMES) == 1


def test_the_newest_of_each_era_is_the_last_of_it() -> None:
    assert NEWEST.name == STATELESS_NAMES[-1]
    assert NEWEST_HANDSHAKE.name == HANDSHAKE_NAMES[-1]


def test_a_span_covers_its_ends_and_nothing_beyond() -> None:
    assert [ONLY_2025_11.covers(revision) for revision in REVISIONS] == [False, False, False, True, False]
