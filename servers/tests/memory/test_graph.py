"""Search: every entity that contains the query is found, best match first."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trunkline_servers.memory.graph import search_entities


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
