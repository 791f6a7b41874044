"""Attacks on the MongoDB server: operators that write or run code, and names that lead elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from servers.tests.mongodb.test_mongodb import ITEMS, ask
from trunkline import ToolError

CODE = {"body": "function() { return true }", "args": [], "lang": "js"}

FILTERS = {
    "where": {"$where": "sleep(1000)"},
    "where-in-or": {"$or": [{"a": 1}, {"$where": "1"}]},
    "where-in-member": {"a": {"$elemMatch": {"$where": "1"}}},
    "function": {"$expr": {"$function": CODE}},
    "function-deep": {"$expr": {"$and": [{"$not": [{"$function": CODE}]}]}},
    "accumulator": {"$expr": {"$accumulator": CODE}},
    "where-as-code": {"$where": {"$code": "1"}},
    "code": {"a": {"$code": "1"}},
    "code-with-scope": {"a": {"$code": "1", "$scope": {}}},
    "code-in-reference": {"a": {"$ref": "items", "$id": {"$code": "1"}}},
    "where-in-reference": {"a": {"$ref": "items", "$id": 1, "b": [{"$where": "1"}]}},
    "where-of-reference": {"$and": [{"$ref": "items", "$id": 1, "$where": "1"}]},
    "internal-code": {"$expr": {"$_internalJsReduce": {"eval": "1", "data": []}}},
    "an-id": {"$oid": "0" * 24},
    "a-number": {"$numberInt": "0"},
    "nothing": {"$undefined": True},
    "a-reference": {"$ref": "items", "$id": 1},
}

PIPELINES = {
    "out": [{"$out": "stolen"}],
    "merge": [{"$merge": {"into": "stolen"}}],
    "out-in-facet": [{"$facet": {"a": [{"$out": "x"}]}}],
    "merge-in-lookup": [{"$lookup": {"from": "orders", "as": "x", "pipeline": [{"$merge": "x"}]}}],
    "out-in-union": [{"$unionWith": {"coll": "orders", "pipeline": [{"$out": "x"}]}}],
    "function-in-project": [{"$project": {"x": {"$function": CODE}}}],
    "accumulator-in-group": [{"$group": {"_id": 1, "x": {"$accumulator": CODE}}}],
    "where-in-match": [{"$match": {"$where": "1"}}],
    "other-database": [{"$lookup": {"from": {"db": "admin", "coll": "users"}, "as": "x"}}],
    "other-database-union": [{"$unionWith": {"db": "admin", "coll": "users"}}],
    "system-union": [{"$unionWith": "system.users"}],
    "current-operations": [{"$currentOp": {}}],
    "sessions": [{"$listSessions": {}}],
    "change-stream": [{"$changeStream": {}}],
    "plan-cache": [{"$planCacheStats": {}}],
    "unknown-in-facet": [{"$facet": {"a": [{"$collStats": {}}]}}],
    "facet-of-no-pipeline": [{"$facet": 7}],
    "reference-for-lookup": [{"$lookup": {"$ref": "x", "$id": 1, "from": "items", "pipeline": [{"$out": "x"}]}}],
    "reference-for-stage": [{"$ref": "x", "$id": 1}],
    "two-members": [{"$match": {}, "$out": "x"}],
    "no-member": [{}],
    "too-many": [{"$match": {}}] * 51,
}

UPDATES = {
    "replacement": {"name": "x"},
    "empty": {},
    "mixed": {"$set": {"a": 1}, "name": "x"},
    "unknown": {"$foo": 1},
    "where": {"$pull": {"a": {"$where": "1"}}},
}


def refused(tool: str, arguments: dict[str, Any]) -> None:
    """Expect a clear error, and nothing sent."""
    sent: list[Any] = []
    with pytest.raises(ToolError) as caught:
        ask(tool, {**ITEMS, **arguments}, write=True, check=lambda double: sent.extend(double.commands))
    assert sent == []
    assert "unexpectedly" not in str(caught.value)


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("tool", ["find", "count", "delete"])
def test_a_filter_that_runs_code_is_refused_before_anything_is_sent(tool: str, name: str) -> None:
    refused(tool, {"filter": FILTERS[name]})


@pytest.mark.parametrize(
    "direction", [None, 1.5, "x", [1], True, {}, {"$meta": 7}, 2**40, {"$oid": "0" * 24}], ids=repr
)
def test_an_invalid_order_is_a_clear_error(direction: Any) -> None:
    refused("find", {"sort": {"a": direction}})


@pytest.mark.parametrize("extra", [{"skip": 2**63}, {"skip": -1}, {"limit": 0}, {"projection": {"$numberInt": "1"}}])
def test_a_find_out_of_bounds_is_a_clear_error(extra: dict[str, Any]) -> None:
    refused("find", extra)


@pytest.mark.parametrize("member", ["projection", "sort"])
def test_code_in_a_projection_or_order_is_refused(member: str) -> None:
    refused("find", {member: {"a": {"$function": CODE}}})


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_that_writes_or_looks_elsewhere_is_refused_before_anything_is_sent(name: str) -> None:
    refused("aggregate", {"pipeline": PIPELINES[name]})


@pytest.mark.parametrize("name", UPDATES)
def test_an_update_that_is_more_than_listed_operators_is_refused(name: str) -> None:
    refused("update", {"filter": {"a": 1}, "update": UPDATES[name]})


@pytest.mark.parametrize(
    "document", [{"$set": 1}, {"a": {"$where": "1"}}, {"a": [{"$inc": 1}]}, {"a": {"$code": "1"}}], ids=repr
)
def test_a_document_with_operators_is_not_stored(document: dict[str, Any]) -> None:
    refused("insert", {"documents": [{"ok": 1}, document]})


@pytest.mark.parametrize(
    "database", ["", "admin", "config", "local", "a.b", "a/b", "$x", "a\0", "a b", "x" * 64, "../shop"]
)
def test_a_system_database_is_refused(database: str) -> None:
    refused("find", {"database": database})


@pytest.mark.parametrize(
    "collection", ["", "$cmd", "a$b", "system.users", ".a", "a..b", "a\0b", "x" * 201, "$cmd.sys.inprog"]
)
def test_a_system_collection_is_refused(collection: str) -> None:
    refused("find", {"collection": collection})


def test_a_database_that_is_not_listed_is_refused() -> None:
    with pytest.raises(ToolError, match="start the server with --database shop"):
        ask("find", ITEMS, databases=["other"])


@pytest.mark.parametrize(
    "value",
    [{"$oid": "short"}, {"$date": "yesterday"}, {"$numberLong": "x"}, {"$binary": 7}, 2**70, {"a\0b": 1}],
    ids=repr,
)
def test_a_value_that_is_no_extended_json_is_a_clear_error(value: Any) -> None:
    refused("find", {"filter": {"a": value}})


def test_a_filter_that_is_nested_too_deep_is_a_clear_error() -> None:
    deep: Any = 1
    for _ in range(120):
        deep = {"a": deep}
    refused("find", {"filter": deep})


@pytest.mark.parametrize("value", ["$where", "function() {}", {"a": "$out"}], ids=repr)
def test_an_operators_name_as_a_value_is_data(value: Any) -> None:
    assert ask("find", {**ITEMS, "filter": {"a": value}})["documents"] == []
