"""The rows of fields and content blocks, recomputed from the index of the schemas."""

from __future__ import annotations

import json
from typing import Any

import msgspec

import trunkline.types as t
from tests.protocol import schema_index
from trunkline.protocol.fields import CONTENT_TYPES, FIELDS, MULTIPLE_BLOCKS, hidden_fields, lacks_content_type
from trunkline.protocol.revisions import NEWEST_HANDSHAKE, REVISIONS, Revision, find_revision

INDEX = schema_index.load()
KINDS = sorted(
    {kind for kind in vars(t).values() if isinstance(kind, type) and issubclass(kind, t.Wire) and kind is not t.Wire},
    key=lambda kind: kind.__name__,
)
KNOWN = [
    (kind, revision) for kind in KINDS for revision in REVISIONS if kind.__name__ in INDEX[revision.name]["definitions"]
]
PUBLISHED = sorted(schema_index.PUBLISHED.glob("*/schema.json"))

#: Members that extensions add: ``extensions`` itself is carried in every revision.
EXTENSIONS = {
    "ClientCapabilities": {"extensions"},
    "ServerCapabilities": {"extensions"},
    "SubscriptionFilter": {"taskIds"},
}
#: Types that extensions define.
OF_EXTENSIONS = {
    *("TaskResult", "TaskNotificationParams", "UpdateTaskRequestParams"),
    *("GetSkillRequestParams", "GetSkillResult", "ListSkillsResult", "Skill", "SkillResource"),
    *("ReadResourceDirectoryRequestParams", "ReadResourceDirectoryResult"),
}
#: Definitions without a type of ours, and why.
NOT_TYPES = {
    # Errors: one type of ours for all.
    *("Error", "InternalError", "InvalidParamsError", "InvalidRequestError", "MethodNotFoundError", "ParseError"),
    # Parts of other definitions.
    *("Annotated", "BaseMetadata", "Icons", "InputResponseRequestParams", "ResourceRequestParams"),
    "TaskAugmentedRequestParams",
    # One type of ours for several definitions.
    *("BlobResourceContents", "TextResourceContents", "ElicitRequestFormParams", "ElicitRequestURLParams"),
    *("RequestMetaObject", "ResourceReference"),
    # Plain JSON for us.
    *("NotificationMetaObject", "ResultMetaObject", "SubscriptionsListenResultMetaObject"),
    # The schemas of form fields.
    *("BooleanSchema", "EnumSchema", "LegacyTitledEnumSchema", "NumberSchema", "StringSchema"),
    *("TitledMultiSelectEnumSchema", "TitledSingleSelectEnumSchema"),
    *("UntitledMultiSelectEnumSchema", "UntitledSingleSelectEnumSchema"),
}


def wire_names(kind: type, revision: Revision) -> set[str]:
    absent = hidden_fields(kind, revision)
    return {field.encode_name for field in msgspec.structs.fields(kind) if field.name not in absent}


def tag_of(kind: type[Any]) -> set[str]:
    return {name for name in [kind.__struct_config__.tag_field] if name}


def test_a_type_shows_each_revision_exactly_the_members_its_schema_has() -> None:
    different = {}
    for kind, revision in KNOWN:
        members = set(INDEX[revision.name]["definitions"][kind.__name__]["properties"]) - {"extensions"}
        shown = (wire_names(kind, revision) | tag_of(kind)) - EXTENSIONS.get(kind.__name__, set())
        if shown != members:
            different[f"{kind.__name__} in {revision.name}"] = shown ^ members
    assert different == {}
    assert len(KNOWN) > 300


def test_a_type_demands_nothing_that_a_revision_leaves_out() -> None:
    demanded = {
        f"{kind.__name__}.{field.encode_name} in {revision.name}"
        for kind, revision in KNOWN
        for field in msgspec.structs.fields(kind)
        if field.required and field.encode_name not in INDEX[revision.name]["definitions"][kind.__name__]["required"]
    }
    assert demanded == set()


def test_every_definition_is_a_type_or_known_not_to_be_one() -> None:
    members = [pair for revision in INDEX.values() for pair in revision["definitions"].items()]
    special = {name for name, each in members if not set(each["properties"]) <= {"_meta", "cursor"}}
    ours = {kind.__name__ for kind in KINDS}
    assert special - ours == NOT_TYPES


def test_every_type_is_a_definition_or_made_by_us() -> None:
    names = {name for revision in INDEX.values() for name in revision["definitions"]}
    assert {kind.__name__ for kind in KINDS} - names == {"InputRequest", *OF_EXTENSIONS}


def test_a_content_block_exists_where_its_schema_does() -> None:
    covered = {(row.type.__name__, each.name) for row in CONTENT_TYPES for each in REVISIONS if row.span.covers(each)}
    names = {row.type.__name__ for row in CONTENT_TYPES}
    assert covered == {(name, revision) for revision in INDEX for name in names & set(INDEX[revision]["definitions"])}


def test_a_row_names_an_attribute_of_its_type() -> None:
    assert [row for row in FIELDS if row.attribute not in row.type.__struct_fields__] == []


def test_the_index_covers_exactly_the_revisions() -> None:
    assert list(INDEX) == [revision.name for revision in REVISIONS]


def test_the_index_is_what_the_published_schemas_say() -> None:
    # Where the schemas are not available there is nothing to compare, and the index stands for them.
    built = {path.parent.name: schema_index.build(json.loads(path.read_text())) for path in PUBLISHED}
    assert built == {name: INDEX[name] for name in built}


def test_a_row_of_a_type_holds_for_the_types_made_from_it() -> None:
    assert hidden_fields(t.ListToolsResult, NEWEST_HANDSHAKE) == {"result_type", "ttl_ms", "cache_scope"}


def test_a_row_of_its_own_beats_the_one_a_type_inherits() -> None:
    oldest = REVISIONS[0]
    assert hidden_fields(t.SamplingMessage, oldest) == {"meta"}
    assert hidden_fields(t.CreateMessageResult, oldest) == frozenset()


def test_only_what_a_revision_does_not_know_is_lacking() -> None:
    revision = find_revision("2025-03-26")
    assert revision is not None
    assert lacks_content_type(t.ResourceLink, revision)
    assert not lacks_content_type(t.AudioContent, revision)
    assert not lacks_content_type(t.TextContent, revision)


def test_several_blocks_came_with_the_block_of_sampling() -> None:
    several = [name for name in INDEX if "ToolUseContent" in INDEX[name]["definitions"]]
    assert [revision.name for revision in REVISIONS if MULTIPLE_BLOCKS.covers(revision)] == several
