"""Resources and templates: how they are listed and read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import trunkline.types as t
from tests.server.talk import ERAS, HANDSHAKE, STATELESS, reach
from trunkline import Context, Server
from trunkline.errors import ResourceNotFound


def serving(uri: str, value: Any, **options: Any) -> Server:
    server = Server("s")
    server.add_resource(uri, value, **options)
    return server


@ERAS
async def test_a_resource_is_listed_with_all_its_options(revision: str) -> None:
    def note() -> str:
        """Remember this."""
        return "x"

    options: dict[str, Any] = {"title": "Note", "mime_type": "text/plain", "size": 1, "meta": {"a": 1}}
    server = serving("x://y", note, annotations={"priority": 0.5}, icons=[t.Icon(src="data:,")], **options)
    async with reach(server, revision) as peer:
        listed = (await peer.result("resources/list"))["resources"]
    assert listed == [
        {
            "uri": "x://y",
            "name": "note",
            "title": "Note",
            "description": "Remember this.",
            "mimeType": "text/plain",
            "size": 1,
            "annotations": {"priority": 0.5},
            "icons": [{"src": "data:,"}],
            "_meta": {"a": 1},
        }
    ]


@pytest.mark.parametrize("value", [pytest.param("text", id="text"), pytest.param(lambda: "text", id="lambda")])
def test_a_resource_without_a_name_is_called_by_its_uri(value: Any) -> None:
    assert serving("x://y", value).registry.resources["x://y"].listed().name == "x://y"


@ERAS
async def test_a_whole_result_passes_through(revision: str) -> None:
    whole = t.ReadResourceResult(contents=[t.ResourceContents(uri="x://part", text="p")])
    async with reach(serving("x://y", lambda: whole), revision) as peer:
        assert (await peer.result("resources/read", {"uri": "x://y"}))["contents"][0]["uri"] == "x://part"


async def test_cache_hints_of_a_resource_are_sent_in_the_stateless_era() -> None:
    async with reach(serving("x://y", "text", ttl_ms=500, cache_scope="public"), STATELESS) as peer:
        result = await peer.result("resources/read", {"uri": "x://y"})
    assert (result["ttlMs"], result["cacheScope"]) == (500, "public")


@ERAS
async def test_variables_are_converted_to_the_annotated_types(revision: str) -> None:
    def r(year: int, month: int = 1) -> str:
        return f"{year + 1} {month}"

    async with reach(serving("x://{year}/report", r), revision) as peer:
        contents = (await peer.result("resources/read", {"uri": "x://2024/report"}))["contents"]
    assert (contents[0]["text"], contents[0]["uri"]) == ("2025 1", "x://2024/report")


@ERAS
async def test_a_variable_of_a_wrong_type_is_rejected(revision: str) -> None:
    def r(year: int) -> str:
        return "never"

    async with reach(serving("x://{year}", r), revision) as peer:
        error = await peer.error("resources/read", {"uri": "x://soon"})
    assert (error["code"], error["data"], "year" in error["message"]) == (-32602, {"uri": "x://soon"}, True)


@pytest.mark.parametrize(
    ("uri", "function"),
    [
        pytest.param("x://{a}", lambda b: b, id="other-name"),
        pytest.param("x://{a}", lambda a, b: b, id="one-too-many"),
        pytest.param("x://{a}/{b}", lambda a: a, id="one-missing"),
        pytest.param("x://y", lambda name: name, id="fixed"),
    ],
)
def test_variables_and_parameters_must_agree(uri: str, function: Callable[..., Any]) -> None:
    words = (
        "has the variables" if "{" in uri else "has a URI without variables, but its function has the parameters name"
    )
    with pytest.raises(TypeError, match=words):
        serving(uri, function)


def test_annotations_of_a_wrong_type_are_rejected_at_registration() -> None:
    with pytest.raises(TypeError, match="annotations: "):
        serving("x://y", "text", annotations={"priority": "high"})


@ERAS
async def test_a_resource_of_no_contents_is_a_fault_that_is_logged(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with reach(serving("x://y", object), revision) as peer:
        error = await peer.error("resources/read", {"uri": "x://y"})
    assert (error["code"], error["message"]) == (-32603, "Internal error")
    assert "resources/read failed" in caplog.text


@pytest.mark.parametrize(("revision", "code"), [(HANDSHAKE, -32002), (STATELESS, -32602)])
async def test_a_handler_may_say_that_there_is_no_such_resource(revision: str, code: int) -> None:
    async def book(title: str, ctx: Context) -> str:
        raise ResourceNotFound(f"No book is called {title!r}, as in {ctx.exchange.admitted.params.uri}")

    async with reach(serving("book://{title}", book), revision) as peer:
        error = await peer.error("resources/read", {"uri": "book://momo"})
    words = "No book is called 'momo', as in book://momo"
    assert error == {"code": code, "message": words, "data": {"uri": "book://momo"}}


@ERAS
async def test_a_fixed_resource_wins_over_a_template(revision: str) -> None:
    server = serving("x://{name}", lambda name: f"template {name}")
    server.add_resource("x://y", "fixed")
    async with reach(server, revision) as peer:
        contents = (await peer.result("resources/read", {"uri": "x://y"}))["contents"]
    assert contents[0]["text"] == "fixed"
