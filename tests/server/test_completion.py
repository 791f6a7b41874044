"""Completion of prompt arguments and template variables."""

from __future__ import annotations

from typing import Any

import pytest

import trunkline.types as t
from tests.server.talk import ERAS, STATELESS, reach
from trunkline import Server

PROMPT = {"type": "ref/prompt", "name": "p"}
TEMPLATE = {"type": "ref/resource", "uri": "x://{a}/{b}"}


def making() -> Server:
    server = Server("s")
    server.add_prompt(lambda city, days="1": city, name="p")
    server.add_resource("x://{a}/{b}", lambda a, b: a + b)
    server.add_resource("x://fixed", "text")
    return server


def ask(ref: dict[str, str], name: str, value: str = "", **context: Any) -> dict[str, Any]:
    return {"ref": ref, "argument": {"name": name, "value": value}, **({"context": context} if context else {})}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        pytest.param(None, {"values": []}, id="nothing"),
        pytest.param([1, 2], {"values": ["1", "2"]}, id="numbers"),
        pytest.param(
            t.Completion(values=["a"], total=9, has_more=True),
            {"values": ["a"], "total": 9, "hasMore": True},
            id="whole",
        ),
        pytest.param(
            [str(n) for n in range(101)],
            {"values": [str(n) for n in range(100)], "total": 101, "hasMore": True},
            id="too-many",
        ),
        pytest.param(
            t.Completion(values=[str(n) for n in range(101)], total=500),
            {"values": [str(n) for n in range(100)], "total": 500, "hasMore": True},
            id="too-many-of-more",
        ),
    ],
)
@ERAS
async def test_at_most_a_hundred_values_are_returned(revision: str, given: Any, told: dict[str, Any]) -> None:
    server = making()
    server.completion("p", "city")(lambda value: given)
    async with reach(server, revision) as peer:
        assert (await peer.result("completion/complete", ask(PROMPT, "city")))["completion"] == told


@ERAS
async def test_an_argument_without_a_completion_has_no_values(revision: str) -> None:
    server = making()
    server.completion("p", "city")(lambda value: ["x"])
    async with reach(server, revision) as peer:
        found = await peer.result("completion/complete", ask(PROMPT, "days"))
        fixed = await peer.result("completion/complete", ask({"type": "ref/resource", "uri": "x://fixed"}, "z"))
    assert [found["completion"], fixed["completion"]] == [{"values": []}, {"values": []}]


@pytest.mark.parametrize(
    ("ref", "name"),
    [
        pytest.param({"type": "ref/prompt", "name": "nope"}, "city", id="unknown-prompt"),
        pytest.param(PROMPT, "town", id="unknown-argument"),
        pytest.param(TEMPLATE, "c", id="unknown-variable"),
        pytest.param({"type": "ref/resource", "uri": "y://{a}"}, "a", id="unknown-template"),
    ],
)
async def test_an_unknown_reference_or_argument_is_rejected(ref: dict[str, str], name: str) -> None:
    server = making()
    server.completion("p", "city")(lambda value: ["x"])
    async with reach(server, STATELESS) as peer:
        error = await peer.error("completion/complete", ask(ref, name))
    assert (error["code"], error.get("data", {}).get("uri")) == (-32602, "y://{a}" if name == "a" else None)


@pytest.mark.parametrize("function", [lambda: ["x"], lambda a, b, c: []], ids=["none", "three"])
def test_a_completion_takes_a_value_and_optionally_the_arguments(function: Any) -> None:
    with pytest.raises(TypeError, match=r"a completion takes \(value\) or \(value, arguments\)"):
        making().completion("p", "city")(function)
