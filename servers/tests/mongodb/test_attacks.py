"""Attacks on the MongoDB server: operators that write or run code, and names that lead elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from servers.tests.mongodb.fake_deployment import deployment_double
from servers.tests.mongodb.test_mongodb import ITEMS, ask
from trunkline import Client, ToolError
from trunkline_servers.mongodb import make_server

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


DEEP: Any = 1
for _ in range(120):
    DEEP = {"a": DEEP}

DATABASES = ["", "admin", "config", "local", "a.b", "a/b", "$x", "a\0", "a b", "x" * 64, "../shop"]
COLLECTIONS = ["", "$cmd", "a$b", "system.users", ".a", "a..b", "a\0b", "x" * 201, "$cmd.sys.inprog"]
DIRECTIONS: list[Any] = [None, 1.5, "x", [1], True, {}, {"$meta": 7}, 2**40, {"$oid": "0" * 24}]
NO_EXTENDED_JSON: list[Any] = [
    *({"$oid": "short"}, {"$date": "yesterday"}, {"$numberLong": "x"}, {"$binary": 7}, 2**70, {"a\0b": 1})
]
DOCUMENTS: list[Any] = [{"$set": 1}, {"a": {"$where": "1"}}, {"a": [{"$inc": 1}]}, {"a": {"$code": "1"}}]
FINDS: list[dict[str, Any]] = [
    *({"skip": 2**63}, {"skip": -1}, {"limit": 0}, {"projection": {"$numberInt": "1"}}),
    *({"projection": {"a": {"$function": CODE}}}, {"sort": {"a": {"$function": CODE}}}),
    *({"sort": {"a": direction}} for direction in DIRECTIONS),
    *({"filter": {"a": value}} for value in NO_EXTENDED_JSON),
    {"filter": DEEP},
    *({"database": name} for name in DATABASES),
    *({"collection": name} for name in COLLECTIONS),
]
REFUSED: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "a-filter-that-runs-code": [
        *(("find", {"filter": query}) for query in FILTERS.values()),
        *((tool, {"filter": FILTERS["where"]}) for tool in ("count", "delete")),
    ],
    "a-pipeline-that-writes-or-looks-elsewhere": [("aggregate", {"pipeline": each}) for each in PIPELINES.values()],
    "an-update-of-more-than-listed-operators": [
        ("update", {"filter": {"a": 1}, "update": update}) for update in UPDATES.values()
    ],
    "a-document-with-operators": [("insert", {"documents": [{"ok": 1}, each]}) for each in DOCUMENTS],
    "a-find-out-of-bounds": [("find", extra) for extra in FINDS],
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_runs_code_or_leads_elsewhere_is_a_clear_error_before_anything_is_sent(name: str) -> None:
    async with deployment_double() as double, Client(make_server(double.uri, write=True)) as client:
        calls = [(tool, {**ITEMS, **arguments}) for tool, arguments in REFUSED[name]]
        results = [await client.call_tool(*call, raise_on_error=False) for call in calls]
        assert double.commands == []
    answers = list(zip(calls, results, strict=True))
    assert [call for call, result in answers if not result.is_error or "unexpectedly" in result.text] == []


def test_a_database_that_is_not_listed_is_refused() -> None:
    with pytest.raises(ToolError, match="start the server with --database shop"):
        ask("find", ITEMS, databases=["other"])


@pytest.mark.parametrize("value", ["$where", "function() {}", {"a": "$out"}], ids=repr)
def test_an_operators_name_as_a_value_is_data(value: Any) -> None:
    assert ask("find", {**ITEMS, "filter": {"a": value}})["documents"] == []
