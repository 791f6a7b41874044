"""The nine tools and the resource, as clients see them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servers.tests.commands import started
from servers.tests.memory.graphs import ACME, ANN, BOB, KNOWS, WORKS, call, fill
from tests.support import run_async
from trunkline import Client, ConfigError, ToolError
from trunkline_servers.memory import make_server
from trunkline_servers.memory.graph import GraphLimits, search_entities
from trunkline_servers.memory.server import RESOURCE, find_file

NAMES = [
    "add_observations",
    "create_entities",
    "create_relations",
    "delete_entities",
    "delete_observations",
    "delete_relations",
    "open_nodes",
    "read_graph",
    "search_nodes",
]


async def test_the_memory_is_shared_with_another_server_in_every_era(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "memory.jsonl"
    async with Client(make_server(path), revision="2025-11-25") as client:
        await client.call_tool("create_entities", {"entities": [ANN, BOB]})
        await client.call_tool("create_relations", {"relations": [KNOWS]})
    async with Client(make_server(path), revision="2025-11-25") as client:
        assert json.loads((await client.call_tool("read_graph")).text) == {"entities": [ANN, BOB], "relations": [KNOWS]}


async def test_there_are_nine_tools_and_each_says_what_it_gives(tmp_path: Path) -> None:
    async with Client(make_server(tmp_path / "m")) as client:
        tools = await client.list_tools()
    assert sorted(tool.name for tool in tools) == NAMES
    assert all(tool.output_schema for tool in tools)
    hints = {tool.name: tool.annotations for tool in tools}
    assert [name for name in NAMES if (hint := hints[name]) and hint.destructive_hint] == NAMES[3:6]
    assert [name for name in NAMES if (hint := hints[name]) and hint.read_only_hint] == NAMES[6:]


def test_the_file_has_the_official_form(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    run_async(fill(path))
    assert path.read_text().split("\n") == [
        '{"type":"entity","name":"Ann","entityType":"person","observations":["likes rivers"]}',
        '{"type":"entity","name":"Bob","entityType":"person","observations":["owns a boat"]}',
        '{"type":"entity","name":"Acme","entityType":"company","observations":["hired Ann"]}',
        '{"type":"relation","from":"Ann","to":"Bob","relationType":"knows"}',
        '{"type":"relation","from":"Ann","to":"Acme","relationType":"works at"}',
    ]


async def test_names_and_relations_that_are_known_are_skipped(tmp_path: Path) -> None:
    await fill(tmp_path / "m")
    carl = {**BOB, "name": "Carl"}
    made, related = (
        await call(tmp_path / "m", "create_entities", entities=[ANN, carl, carl]),
        await call(tmp_path / "m", "create_relations", relations=[KNOWS, {**KNOWS, "to": "Carl"}]),
    )
    assert made == {"entities": [{**BOB, "name": "Carl"}]}
    assert related == {"relations": [{**KNOWS, "to": "Carl"}]}


async def test_observations_that_are_new_are_added(tmp_path: Path) -> None:
    await fill(tmp_path / "m")
    added = [{"entityName": "Ann", "contents": ["sings", "likes rivers", "sings"]}]
    given = await call(tmp_path / "m", "add_observations", observations=added)
    opened = await call(tmp_path / "m", "open_nodes", names=["Ann"])
    assert given == {"results": [{"entityName": "Ann", "addedObservations": ["sings"]}]}
    assert opened["entities"][0]["observations"] == ["likes rivers", "sings"]


async def test_an_unknown_entity_is_an_error_and_nothing_is_written(tmp_path: Path) -> None:
    await fill(tmp_path / "m")
    added = [{"entityName": name, "contents": ["sings"]} for name in ("Ann", "Carl")]
    with pytest.raises(ToolError, match="no entity named 'Carl': create it with create_entities first"):
        await call(tmp_path / "m", "add_observations", observations=added)
    assert "sings" not in (tmp_path / "m").read_text()


async def test_an_entity_is_deleted_with_its_relations(tmp_path: Path) -> None:
    await fill(tmp_path / "m")
    said = await call(tmp_path / "m", "delete_entities", entityNames=["Bob", "Nobody"])
    left = await call(tmp_path / "m", "read_graph")
    assert said == {"success": True, "message": "Entities deleted successfully"}
    assert left == {"entities": [ANN, ACME], "relations": [WORKS]}


async def test_observations_and_relations_are_deleted(tmp_path: Path) -> None:
    await fill(tmp_path / "m")
    gone = [{"entityName": "Ann", "observations": ["likes rivers"]}, {"entityName": "No", "observations": ["x"]}]
    await call(tmp_path / "m", "delete_observations", deletions=gone)
    await call(tmp_path / "m", "delete_relations", relations=[KNOWS])
    assert await call(tmp_path / "m", "read_graph") == {
        "entities": [{**ANN, "observations": []}, BOB, ACME],
        "relations": [WORKS],
    }


async def test_opened_nodes_come_with_the_relations_at_either_end(tmp_path: Path) -> None:
    await fill(tmp_path / "m")
    assert await call(tmp_path / "m", "open_nodes", names=["Bob", "Nobody"]) == {
        "entities": [BOB],
        "relations": [KNOWS],
    }


async def test_the_graph_is_a_resource(tmp_path: Path) -> None:
    await fill(tmp_path / "m")
    async with Client(make_server(tmp_path / "m")) as client:
        [listed] = await client.list_resources()
        [read] = await client.read_resource(RESOURCE)
    assert (listed.uri, listed.mime_type) == (RESOURCE, "application/json")
    assert json.loads(read.text or "")["relations"] == [KNOWS, WORKS]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_subscribers_are_notified_of_a_change(revision: str, tmp_path: Path) -> None:
    async with (
        Client(make_server(tmp_path / "m"), revision=revision) as client,
        client.listen(uris=[RESOURCE]) as changes,
    ):
        await client.call_tool("create_entities", {"entities": [ANN]})
        assert (await anext(changes)).uri == RESOURCE


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        pytest.param("create_entities", {}, "entities", id="nothing"),
        pytest.param("create_entities", {"entities": [{"name": "A"}]}, "entityType", id="half-an-entity"),
        pytest.param("create_entities", {"entities": [{**ANN, "observations": [1]}]}, "observations", id="number"),
        pytest.param("search_nodes", {"query": 7}, "query", id="query-that-is-no-text"),
        pytest.param("create_entities", {"entities": [ANN, BOB, ACME]}, "make 3 entities, and at most 2", id="many"),
        pytest.param("create_entities", {"entities": [{**ANN, "name": "x" * 21}]}, "21 characters is too", id="long"),
        pytest.param(
            "create_entities", {"entities": [{**ANN, "observations": ["a", "b", "c"]}]}, "observations of", id="much"
        ),
        pytest.param("create_relations", {"relations": [KNOWS, WORKS]}, "2 relations, and at most 1", id="related"),
    ],
)
async def test_content_beyond_the_limits_is_refused_completely(
    tool: str, arguments: dict[str, Any], message: str, tmp_path: Path
) -> None:
    limits = GraphLimits(entities=2, relations=1, observations=2, text=20)
    async with Client(make_server(tmp_path / "m", limits=limits)) as client:
        with pytest.raises(ToolError, match=message):
            await client.call_tool(tool, arguments)
    assert not (tmp_path / "m").exists()


async def test_a_file_that_would_be_too_large_is_not_written(tmp_path: Path) -> None:
    async with Client(make_server(tmp_path / "m", limits=GraphLimits(file_bytes=100))) as client:
        with pytest.raises(ToolError, match=r"would have .* bytes, and at most 100 are kept"):
            await client.call_tool("create_entities", {"entities": [ANN, BOB]})
    assert not (tmp_path / "m").exists()


# --- where the file is -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        pytest.param({}, "{folder}/memory.jsonl", id="nothing-said"),
        pytest.param({"MEMORY_FILE_PATH": "/x/y.jsonl"}, "/x/y.jsonl", id="absolute"),
        pytest.param({"MEMORY_FILE_PATH": "y.jsonl"}, "{folder}/y.jsonl", id="relative"),
    ],
)
def test_the_file_is_where_the_environment_says(environ: dict[str, str], expected: str, tmp_path: Path) -> None:
    assert find_file(environ, str(tmp_path)) == expected.format(folder=tmp_path)


def test_a_file_under_the_old_name_never_replaces_one_under_the_new(tmp_path: Path) -> None:
    (tmp_path / "memory.json").write_text("old")
    (tmp_path / "memory.jsonl").write_text("new")
    assert Path(find_file({}, str(tmp_path))).read_text() == "new"


def test_a_folder_is_no_memory_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder: name a file with --file or in MEMORY_FILE_PATH"):
        make_server(tmp_path)


async def test_the_command_finds_the_file_in_the_data_folder(tmp_path: Path) -> None:
    (tmp_path / "memory.json").write_text(json.dumps({"type": "entity", **BOB}))
    async with Client(started("memory", env={"TRUNKLINE_HOME": str(tmp_path)}).server) as client:
        await client.call_tool("create_entities", {"entities": [ANN]})
        assert (await client.call_tool("read_graph")).data["entities"] == [BOB, ANN]
    assert (tmp_path / "memory.jsonl").read_text().count("\n") == 1


def entity(name: str, kind: str = "thing", *observations: str) -> dict[str, Any]:
    return {"name": name, "entityType": kind, "observations": list(observations)}


ALL = [
    entity("Beginning", "time"),
    entity("note", "thing", "the river is high"),
    entity("Danube", "river"),
    entity("upriver inn", "house"),
    entity("River Inn", "river"),
    entity("river", "thing"),
    entity("other", "thing", "nothing"),
]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param("river", ["river", "River Inn", "upriver inn", "Danube", "note"], id="tiers"),
        pytest.param("RIVER", ["river", "River Inn", "upriver inn", "Danube", "note"], id="case"),
        pytest.param("iver i", ["upriver inn", "River Inn", "note"], id="part-of-two-words"),
        pytest.param("high river", ["note"], id="words-apart"),
        pytest.param("inn", ["upriver inn", "River Inn", "Beginning"], id="whole-words-first"),
        pytest.param("inn riv", ["River Inn"], id="begins-of-words"),
        pytest.param("river nowhere", [], id="not-all-words"),
        pytest.param("absent", [], id="nothing"),
        pytest.param(
            "", ["Beginning", "note", "Danube", "upriver inn", "River Inn", "river", "other"], id="everything"
        ),
    ],
)
def test_the_best_match_comes_first(query: str, expected: list[str]) -> None:
    assert [each["name"] for each in search_entities(ALL, query)] == expected


_TEXTS = st.text(st.sampled_from("abAB ."), max_size=6)
_ENTITIES = st.lists(st.builds(lambda *parts: entity(*parts), _TEXTS, _TEXTS, _TEXTS, _TEXTS), max_size=8)


@settings(max_examples=60)
@given(_ENTITIES, _TEXTS)
def test_every_entity_that_holds_the_query_is_found_once(entities: list[dict[str, Any]], query: str) -> None:
    holding = [
        each
        for each in entities
        if any(query.lower() in text.lower() for text in (each["name"], each["entityType"], *each["observations"]))
    ]
    found = [id(each) for each in search_entities(entities, query)]
    assert {id(each) for each in holding} <= set(found)
    assert len(found) == len(set(found))
