"""The MongoDB server, through a client, in front of a double of the wire protocol; on a mongod where there is one."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId

from servers.tests.commands import started
from servers.tests.mongodb.fake_deployment import Deployment, deployment_double
from tests.support import run_async
from trunkline import Client, ConfigError, ToolError
from trunkline_servers.mongodb import make_server
from trunkline_servers.mongodb.store import MongoLimits, MongoStore, connect_failure_reason, redacted_hosts

REVISIONS = ("2025-06-18", "2026-07-28")
ITEMS = {"database": "shop", "collection": "items"}


def fill(double: Deployment) -> None:
    """Put three items in."""
    double.data["shop"]["items"] += [
        {"_id": ObjectId("0" * 23 + "1"), "name": "pen", "price": 2, "tags": ["a"]},
        {"_id": ObjectId("0" * 23 + "2"), "name": "ink", "price": 5.5, "size": {"ml": 30}},
        {"_id": ObjectId("0" * 23 + "3"), "name": "cup", "price": 7},
    ]


def ask(
    tool: str,
    arguments: dict[str, Any],
    *,
    prepare: Callable[[Deployment], object] = fill,
    check: Callable[[Deployment], object] = lambda double: None,
    revision: str = "2026-07-28",
    **options: Any,
) -> Any:
    """Call one tool in front of a double; give the structured answer. ``check`` sees the double at the end."""

    async def main() -> Any:
        async with deployment_double() as double:
            prepare(double)
            try:
                async with Client(make_server(double.uri, **options), revision=revision) as client:
                    return (await client.call_tool(tool, arguments)).structured_content
            finally:
                check(double)

    return run_async(main())


# --- looking ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
def test_databases_are_listed_but_for_the_deployments_own(revision: str) -> None:
    found = ask("list_databases", {}, revision=revision)
    assert found == {"databases": [{"name": "shop", "size_bytes": 8, "empty": False}], "cut": False}


def test_collections_are_listed() -> None:
    found = ask("list_collections", {"database": "shop"})
    assert [each["name"] for each in found["collections"]] == ["items", "orders"]


def test_a_schema_is_made_from_a_sample() -> None:
    found = ask("collection_schema", ITEMS)
    assert found["sampled"] == 3
    assert {each["path"]: each["types"] for each in found["fields"]} == {
        "_id": {"objectId": 3},
        "name": {"string": 3},
        "price": {"int": 2, "double": 1},
        "tags": {"array": 1},
        "tags[]": {"string": 1},
        "size": {"object": 1},
        "size.ml": {"int": 1},
    }


def test_a_list_of_collections_ends_at_its_cap_and_says_so() -> None:
    found = ask("list_collections", {"database": "shop"}, limits=MongoLimits(names=1))
    assert ([each["name"] for each in found["collections"]], found["cut"]) == (["items"], True)


def test_a_sample_ends_at_its_bytes() -> None:
    assert ask("collection_schema", ITEMS, limits=MongoLimits(sample_bytes=100))["sampled"] == 1


def test_a_schema_of_many_members_is_cut() -> None:
    def prepare(double: Deployment) -> None:
        double.data["shop"]["items"].append({"_id": 1, **{f"m{number}": 1 for number in range(1000)}})

    found = ask("collection_schema", ITEMS, prepare=prepare)
    assert (len(found["fields"]), found["cut"]) == (300, True)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_schemas_are_resources(revision: str) -> None:
    async with deployment_double() as double:
        fill(double)
        async with Client(make_server(double.uri), revision=revision) as client:
            assert "size.ml" in str(await client.read_resource("mongodb://shop/items/schema"))
            assert "orders" in str(await client.read_resource("mongodb://shop/schema"))


# --- querying --------------------------------------------------------------------------------------------------------


def test_documents_are_found_by_extended_json_and_given_as_such() -> None:
    found = ask("find", {**ITEMS, "filter": {"_id": {"$oid": "0" * 23 + "2"}}})
    assert found["documents"] == [
        {"_id": {"$oid": "0" * 23 + "2"}, "name": "ink", "price": 5.5, "size": {"ml": 30}},
    ]


def test_order_skip_projection_and_time_are_sent() -> None:
    sent: list[Any] = []
    arguments = {**ITEMS, "sort": {"price": -1}, "skip": 1, "projection": {"name": 1}, "limit": 1}
    found = ask("find", arguments, check=lambda double: sent.extend(double.named("find")))
    assert [each["name"] for each in found["documents"]] == ["ink"]
    assert (sent[0]["projection"], sent[0]["limit"]) == ({"name": 1}, 2)
    assert 0 < sent[0]["maxTimeMS"] <= 15_000


@pytest.mark.parametrize(
    ("arguments", "limits", "count", "cut"),
    [
        ({"limit": 500}, MongoLimits(rows=2), 2, "more than 2 documents"),
        ({"limit": 3}, MongoLimits(), 3, None),
        ({}, MongoLimits(answer_bytes=150), 1, "more than 150 bytes"),
    ],
    ids=["rows", "just-the-rows", "bytes"],
)
def test_an_answer_ends_at_its_limits_and_says_so(
    arguments: dict[str, int], limits: MongoLimits, count: int, cut: str | None
) -> None:
    found = ask("find", {**ITEMS, **arguments}, limits=limits)
    assert (len(found["documents"]), (found["cut"] or "").startswith(cut or "")) == (count, True)
    assert (found["cut"] is None) == (cut is None)


def test_values_beyond_json_are_given_as_extended_json() -> None:
    def prepare(double: Deployment) -> None:
        double.data["shop"]["items"].append({"_id": 1, "nan": float("nan"), "raw": b"\0\xff", "big": 2**60})

    (found,) = ask("find", ITEMS, prepare=prepare)["documents"]
    assert found["nan"] == {"$numberDouble": "NaN"}
    assert found["raw"] == {"$binary": {"base64": "AP8=", "subType": "00"}}
    assert found["big"] == 2**60


def test_a_pipeline_runs_with_a_bound() -> None:
    sent: list[Any] = []
    pipeline = [{"$match": {"price": {"$gte": 5}}}]
    found = ask(
        "aggregate", {**ITEMS, "pipeline": pipeline}, check=lambda double: sent.extend(double.named("aggregate"))
    )
    assert [each["name"] for each in found["documents"]] == ["ink", "cup"]
    assert sent[-1]["pipeline"] == [*pipeline, {"$limit": 101}]


def test_documents_are_counted() -> None:
    assert ask("count", {**ITEMS, "filter": {"name": {"$in": ["pen", "cup"]}}}) == {"count": 2}


# --- writing ---------------------------------------------------------------------------------------------------------


def test_without_write_there_is_no_writing_tool() -> None:
    async def main(**options: Any) -> dict[str, Any]:
        async with Client(make_server(**options)) as client:
            return {tool.name: tool.annotations for tool in await client.list_tools()}

    reading, writing = run_async(main()), run_async(main(write=True))
    assert all(each.read_only_hint for each in reading.values())
    assert set(writing) - set(reading) == {"insert", "update", "delete"}
    assert {name for name, each in writing.items() if each.destructive_hint} == {"update", "delete"}


@pytest.mark.parametrize("revision", REVISIONS)
def test_documents_are_inserted(revision: str) -> None:
    rows: list[Any] = []
    documents = [{"_id": 1, "at": {"$date": "2001-02-03T04:05:06Z"}}, {"name": "x"}]
    found = ask(
        "insert",
        {**ITEMS, "documents": documents},
        write=True,
        prepare=lambda double: None,
        check=lambda double: rows.extend(double.data["shop"]["items"]),
        revision=revision,
    )
    assert found["inserted_ids"][0] == 1
    assert (rows[0]["at"].year, rows[1]["name"]) == (2001, "x")


def test_an_insertion_that_fails_half_way_leaves_nothing() -> None:
    rows: list[Any] = []
    documents = [{"_id": 1}, {"_id": 2}, {"_id": 1}]
    with pytest.raises(ToolError, match=r"Nothing was inserted: document 3 failed \(E11000 duplicate key\)"):
        ask(
            "insert",
            {**ITEMS, "documents": documents},
            write=True,
            check=lambda double: rows.extend(double.data["shop"]["items"]),
        )
    assert [row["name"] for row in rows] == ["pen", "ink", "cup"]


def test_one_document_is_changed_or_all_that_match() -> None:
    change = {"update": {"$set": {"price": 1}}}
    assert ask("update", {**ITEMS, "filter": {}, **change}, write=True)["modified"] == 1
    query = {"filter": {"price": {"$gte": 5}}, "many": True}
    assert ask("update", {**ITEMS, **query, **change}, write=True)["modified"] == 2


def test_one_document_is_deleted_or_all_that_match() -> None:
    assert ask("delete", {**ITEMS, "filter": {"name": "pen"}}, write=True) == {"deleted": 1}
    assert ask("delete", {**ITEMS, "filter": {"price": {"$gte": 5}}, "many": True}, write=True) == {"deleted": 2}


@pytest.mark.parametrize(
    "arguments", [("update", {"update": {"$set": {"a": 1}}}), ("delete", {})], ids=["update", "delete"]
)
def test_a_write_to_everything_must_be_confirmed(arguments: tuple[str, dict[str, Any]]) -> None:
    tool, extra = arguments
    sent: list[Any] = []
    given = {**ITEMS, "filter": {}, "many": True, **extra}
    with pytest.raises(ToolError, match="set everything=true"):
        ask(tool, given, write=True, check=lambda double: sent.extend(double.commands))
    assert sent == []
    assert 3 in ask(tool, {**given, "everything": True}, write=True).values()


@pytest.mark.parametrize(
    "query",
    [{"$comment": "x"}, {"$and": [{}]}, {"$or": [{"a": 1}, {}]}, {"$and": [{"$or": [{}]}], "$comment": "x"}],
    ids=repr,
)
def test_a_filter_that_only_looks_like_one_is_empty(query: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match="set everything=true"):
        ask("delete", {**ITEMS, "filter": query, "many": True}, write=True)


def test_a_filter_that_leaves_something_out_is_not_empty() -> None:
    given = {**ITEMS, "filter": {"price": {"$gte": 5}, "$comment": "x"}, "many": True}
    assert ask("delete", given, write=True) == {"deleted": 0}  # the double takes the comment for a member


# --- the deployment --------------------------------------------------------------------------------------------------


async def test_a_deployment_that_is_not_there_is_a_clear_error_without_the_password() -> None:
    server = make_server("mongodb://me:hush@127.0.0.1:1/", limits=MongoLimits(connect_seconds=0.2))
    async with Client(server) as client:
        with pytest.raises(ToolError) as caught:
            await client.call_tool("list_databases", {})
    # On a busy machine the time to look may be over before the first look is.
    told = str(caught.value).replace("no answer in time", "Connection refused")
    fix = "Start it, or start this server with its address"
    assert told == f"MongoDB at 127.0.0.1:1 cannot be reached (Connection refused). {fix}"


TIMEOUTS = "(configured timeouts: socketTimeoutMS: 5000.0ms, connectTimeoutMS: 5000.0ms)"
REFUSED = "[Errno 111] Connect call failed ('127.0.0.1', 1)"
TAIL = ", Timeout: 5.0s, Topology Description: <TopologyDescription id: 1, servers: []>"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (f"127.0.0.1:1: {REFUSED} {TIMEOUTS}{TAIL}", os.strerror(111)),
        (f"127.0.0.1:2: {REFUSED} {TIMEOUTS},127.0.0.1:1: {REFUSED} {TIMEOUTS}{TAIL}", os.strerror(111)),
        (f"a:1: timed out {TIMEOUTS},b:2: {REFUSED} {TIMEOUTS}{TAIL}", f"timed out, {os.strerror(111)}"),
        (f"nowhere.invalid:27017: [Errno -2] Name or service not known {TIMEOUTS}{TAIL}", "Name or service not known"),
        (f"/nowhere/db.sock: [Errno 2] No such file or directory {TIMEOUTS}{TAIL}", "No such file or directory"),
        (
            f"SSL handshake failed: db:1: [SSL] wrong version {TIMEOUTS}{TAIL}",
            "SSL handshake failed: [SSL] wrong version",
        ),
        (f"No servers found yet{TAIL}", "no answer in time"),
        ("The DNS query name does not exist: _mongodb._tcp.x.", "The DNS query name does not exist: _mongodb._tcp.x."),
    ],
    ids=["refused", "several", "different", "no-name", "no-socket", "tls", "none-yet", "other"],
)
def test_the_reason_why_a_deployment_is_unreachable_is_short_and_given_once(said: str, told: str) -> None:
    assert connect_failure_reason(said) == told


async def test_a_deployment_that_is_not_there_is_not_waited_for_in_every_call() -> None:
    limits = MongoLimits(connect_seconds=0.2, rest_seconds=60)
    async with Client(make_server("mongodb://127.0.0.1:1/", limits=limits)) as client:
        # If each of them waited, the time of the test would be over before the last.
        for _ in range(300):
            with pytest.raises(ToolError, match=r"cannot be reached .*Start it"):
                await client.call_tool("list_databases", {})


async def test_a_deployment_that_comes_back_is_used_again() -> None:
    async with deployment_double() as double:
        port = int(double.uri.rpartition(":")[2].partition("/")[0])
    uri = f"mongodb://127.0.0.1:{port}/?directConnection=true"
    async with Client(make_server(uri, limits=MongoLimits(connect_seconds=1, rest_seconds=0))) as client:
        with pytest.raises(ToolError, match="cannot be reached"):
            await client.call_tool("list_databases", {})
        back = await asyncio.start_server(Deployment().serve, "127.0.0.1", port)
        try:
            assert [
                row["name"] for row in (await client.call_tool("list_databases", {})).structured_content["databases"]
            ] == ["shop"]
        finally:
            back.close()  # not awaited: since Python 3.12 that waits for the driver's connections too


@pytest.mark.parametrize(
    "uri",
    [
        "mongodb://me:hush@h/?tls=true&tlsCAFile=/nowhere/ca.pem",
        "mongodb://me:hush@h/?tls=true&tlsCertificateKeyFile=/nowhere/key.pem",
    ],
)
def test_an_address_whose_files_are_missing_is_a_clear_error_at_the_start(uri: str) -> None:
    async def main() -> None:
        async with Client(make_server(uri)):
            raise AssertionError("it started")

    with pytest.raises(ConfigError, match="nowhere") as caught:
        run_async(main())
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("mongodb://me:p%40ss@a:1,b:2/db?x=y", "a:1,b:2"),
        ("mongodb://me:hush@%2Fnowhere%2Fdb.sock/shop?x=1", "/nowhere/db.sock"),
    ],
)
def test_a_shown_address_has_no_credentials(uri: str, shown: str) -> None:
    assert redacted_hosts(uri) == shown


def test_a_write_that_takes_too_long_says_that_it_may_be_done() -> None:
    def prepare(double: Deployment) -> None:
        double.failure = {"ok": 0.0, "code": 50, "errmsg": "operation exceeded time limit"}

    given = {**ITEMS, "filter": {"a": 1}, "update": {"$set": {"a": 2}}, "many": True}
    with pytest.raises(ToolError, match=r"took longer than 15 s.*it may be partly done: check before you try again"):
        ask("update", given, prepare=prepare, write=True)


@pytest.mark.parametrize("name", ["caf\u00e9", "a+b", "a@b"])
def test_a_database_may_have_any_name_that_mongodb_takes(name: str) -> None:
    assert ask("find", {"database": name, "collection": "x"})["documents"] == []


def test_a_deployment_that_does_not_answer_in_time_is_a_clear_error() -> None:
    def prepare(double: Deployment) -> None:
        double.hang = True

    with pytest.raises(ToolError, match=r"took longer than 0\.3 s|cannot be reached"):
        ask("find", ITEMS, prepare=prepare, limits=MongoLimits(seconds=0.3, connect_seconds=0.2))


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        ({"ok": 0.0, "code": 13, "errmsg": "not authorized on shop"}, "denied this for the user"),
        ({"ok": 0.0, "code": 50, "errmsg": "operation exceeded time limit"}, "took longer than 15 s"),
        ({"ok": 0.0, "code": 2, "errmsg": "unknown operator: $foo"}, r"MongoDB refused: unknown operator: \$foo"),
    ],
)
def test_a_refusal_is_passed_on_in_one_line(failure: dict[str, Any], words: str) -> None:
    def prepare(double: Deployment) -> None:
        double.failure = failure

    with pytest.raises(ToolError, match=words):
        ask("find", ITEMS, prepare=prepare)


@pytest.mark.parametrize(
    ("written", "password"), [("hush%40hush", "hush@hush"), ("hush%40hush", "hush%40hush"), ("a+hush", "a+hush")]
)
def test_a_password_that_the_database_repeats_is_not_passed_on(written: str, password: str) -> None:
    store = MongoStore(f"mongodb://me:{written}@127.0.0.1:1/", limits=MongoLimits())
    assert store._line(f"who is me:{password}?") == "who is me:...?"


@pytest.mark.parametrize("uri", ["localhost:27017", "http://x", "", "mongodb://a:hu@sh@h", "mongodb://:hush@/"])
def test_an_invalid_address_is_refused_at_the_start_without_its_password(uri: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_server(uri)
    assert "hu" not in str(caught.value).replace("https", "")


@pytest.mark.parametrize("name", ["a b", "", "../shop", "$cmd"])
def test_an_invalid_allowed_database_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(ConfigError, match="--database"):
        make_server("mongodb://h", databases=[name])


async def test_the_options_of_the_command_reach_the_server() -> None:
    async with deployment_double() as double:
        fill(double)
        async with Client(started("mongodb", double.uri).server) as client:
            assert (await client.call_tool("count", ITEMS)).data == {"count": 3}


# --- a real one ------------------------------------------------------------------------------------------------------


@pytest.fixture
def mongod(tmp_path: Path) -> Iterator[str]:
    """A real mongod on a socket of its own."""
    binary = shutil.which("mongod")
    if binary is None:
        pytest.skip("mongod is not installed")
    options = ["--dbpath", str(tmp_path), "--port", "0", "--bind_ip", str(tmp_path / "m.sock")]
    process = subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not (tmp_path / "m.sock").exists():
            assert time.monotonic() < deadline, "mongod did not start in time"
            time.sleep(0.05)
        yield f"mongodb://{str(tmp_path / 'm.sock').replace('/', '%2F')}"
    finally:
        process.kill()
        process.wait(120)


async def test_a_real_mongod_is_written_to_and_queried(mongod: str) -> None:
    async with Client(make_server(mongod, write=True)) as client:
        await client.call_tool("insert", {**ITEMS, "documents": [{"_id": 1, "n": 1}, {"_id": 2, "n": 2}]})
        await client.call_tool("update", {**ITEMS, "filter": {"_id": 2}, "update": {"$inc": {"n": 5}}})
        pipeline = [{"$group": {"_id": None, "sum": {"$sum": "$n"}}}]
        assert (await client.call_tool("aggregate", {**ITEMS, "pipeline": pipeline})).structured_content[
            "documents"
        ] == [{"_id": None, "sum": 8}]
