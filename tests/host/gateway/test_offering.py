"""What the servers offer is offered by the gateway, under names of its own, in all pairs of eras."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from tests.host.gateway.support import CELLS, NEW, OLD, PAIRS, fronted, revisions_of, server
from trunkline import Audio, Client, Image, RequestFailed, Server, ToolResult
from trunkline.errors import InvalidParams
from trunkline.host.host import Host
from trunkline.protocol.limits import Limits

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


def shop(revision: str) -> Server:
    """Make a server with one of everything."""
    made = server("shop", revision, version="9", instructions="Be polite.", cache_ttl_ms=60_000)

    @made.tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @made.tool
    async def fruits() -> list[str]:
        """List fruits."""
        return ["apple", "pear"]

    @made.tool
    async def person(name: str) -> dict[str, int]:
        """Count letters."""
        return {name: len(name)}

    @made.tool
    async def fail() -> str:
        """Fail."""
        raise ValueError("secret")

    @made.tool
    async def media() -> Any:
        """Give every kind of content."""
        return [
            "text",
            Image(data=PNG, format="png"),
            Audio(data=b"RIFF", format="wav"),
            t.ResourceLink(uri="note://1", name="one"),
            t.EmbeddedResource(resource=t.ResourceContents(uri="note://1", text="first", mime_type="text/plain")),
        ]

    @made.tool
    async def labelled() -> ToolResult:
        """Answer with a note beside the result."""
        return ToolResult(content="x", meta={"colour": "red"})

    @made.resource("note://1", mime_type="text/plain")
    async def note() -> str:
        return "first"

    @made.resource("bin://1", mime_type="application/octet-stream")
    async def binary() -> bytes:
        return b"\x00\x01"

    @made.resource("page://{number}/text")
    async def page(number: int) -> str:
        return f"page {number}"

    @made.prompt
    async def greet(name: str) -> str:
        """Greet."""
        return f"Hello {name}"

    @made.completion("greet", "name")
    async def names(value: str) -> list[str]:
        return [each for each in ("Ada", "Alan") if each.startswith(value)]

    @made.completion("page://{number}/text", "number")
    async def numbers(value: str) -> list[str]:
        return ["1", "2"]

    return made


@PAIRS
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        pytest.param("shop__add", {"a": 1, "b": 2}, 3, id="number"),
        pytest.param("shop__fruits", {}, ["apple", "pear"], id="list"),
        pytest.param("shop__person", {"name": "Ada"}, {"Ada": 3}, id="object"),
    ],
)
async def test_a_structured_result_keeps_its_value_between_eras(
    channel: str, upstream: str, name: str, arguments: dict[str, Any], expected: object, tmp_path: Path
) -> None:
    async with fronted({"shop": shop(upstream)}, tmp_path, channel) as client:
        await client.list_tools()
        result = await client.call_tool(name, arguments)
    assert result.data == expected


@PAIRS
async def test_media_pass_and_links_can_be_read_through_the_gateway(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    async with fronted({"shop": shop(upstream)}, tmp_path, channel) as client:
        content: list[Any] = list((await client.call_tool("shop__media")).content)
        text, image, audio, link, embedded = content
        read = await client.read_resource(link.uri)
    assert (text.text, image.mime_type, audio.mime_type) == ("text", "image/png", "audio/wav")
    assert (link.uri, embedded.resource.uri) == ("note://shop/1", "note://shop/1")
    assert [(each.uri, each.text) for each in read] == [("note://shop/1", "first")]


@CELLS
async def test_resources_are_listed_and_read_under_outer_uris(channel: str, upstream: str, tmp_path: Path) -> None:
    async with fronted({"shop": shop(upstream)}, tmp_path, channel) as client:
        listed = [each.uri for each in await client.list_resources()]
        templates = [each.uri_template for each in await client.list_resource_templates()]
        (binary,) = await client.read_resource("bin://shop/1")
        (page,) = await client.read_resource("page://shop/7/text")
    assert listed == ["bin://shop/1", "note://shop/1"]
    assert templates == ["page://shop/{number}/text"]
    assert (binary.blob, binary.mime_type) == ("AAE=", "application/octet-stream")
    assert (page.uri, page.text) == ("page://shop/7/text", "page 7")


@CELLS
async def test_prompts_are_listed_and_filled_in(channel: str, upstream: str, tmp_path: Path) -> None:
    async with fronted({"shop": shop(upstream)}, tmp_path, channel) as client:
        (prompt,) = await client.list_prompts()
        filled = await client.get_prompt("shop__greet", {"name": "Ada"})
    assert (prompt.name, prompt.description) == ("shop__greet", "Greet.")
    assert filled.messages[0].content == t.TextContent(text="Hello Ada")


@PAIRS
@pytest.mark.parametrize(
    ("ref", "argument", "expected"),
    [
        pytest.param(t.PromptReference(name="shop__greet"), {"name": "name", "value": "Al"}, ["Alan"], id="prompt"),
        pytest.param(
            t.ResourceTemplateReference(uri="page://shop/{number}/text"),
            {"name": "number", "value": ""},
            ["1", "2"],
            id="template",
        ),
    ],
)
async def test_arguments_are_completed(
    channel: str, upstream: str, ref: Any, argument: dict[str, str], expected: list[str], tmp_path: Path
) -> None:
    async with fronted({"shop": shop(upstream)}, tmp_path, channel) as client:
        found = await client.complete(ref, argument)
    assert found.values == expected


@PAIRS
async def test_a_server_without_completion_proposes_nothing(channel: str, upstream: str, tmp_path: Path) -> None:
    plain = server("plain", upstream)

    @plain.prompt
    async def greet(name: str) -> str:
        return name

    async with fronted({"plain": plain}, tmp_path, channel) as client:
        found = await client.complete(t.PromptReference(name="plain__greet"), {"name": "name", "value": ""})
    assert found.values == []


async def test_instructions_of_all_servers_are_given_with_their_names(tmp_path: Path) -> None:
    servers = {"one": Server("a", "First."), "two": Server("b", "Second."), "three": Server("c")}
    async with fronted(servers, tmp_path, NEW) as client:
        assert client.instructions == "## one\nFirst.\n\n## two\nSecond."


@PAIRS
async def test_all_pages_of_a_server_are_offered_in_pages_of_the_gateway(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    many = server("many", upstream, list_page_size=7)
    for number in range(50):
        many.add_tool(_returning(number), name=f"tool_{number:02}")
    limits = Limits(page_size=20)
    async with fronted({"many": many}, tmp_path, channel, limits=limits) as client:
        page = await client.list_page("tools/list")
        everything = await client.list_tools()
        last = await client.call_tool("many__tool_49")
    assert len(page.tools) == 20
    assert [tool.name for tool in everything] == [f"many__tool_{number:02}" for number in range(50)]
    assert last.data == 49


def _returning(number: int) -> Any:
    async def give() -> int:
        return number

    return give


@PAIRS
async def test_the_gateway_does_not_reveal_the_upstream_server_info(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    async with fronted({"shop": shop(upstream)}, tmp_path, channel) as client:
        info = client.server_info
        result = await client.call_tool("shop__labelled")
        called = str(result.meta)
    assert info is not None
    assert info.name == "trunkline"
    assert "shop" not in called
    assert (result.meta or {})["colour"] == "red"


@pytest.mark.parametrize(
    "method", ["tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"]
)
async def test_nothing_may_be_kept_by_others_or_for_long(method: str, tmp_path: Path) -> None:
    params = {"uri": "note://shop/1"} if method == "resources/read" else {}
    async with fronted({"shop": shop(OLD)}, tmp_path, NEW) as client:
        result = await client.request(method, params)
    assert (result["ttlMs"], result["cacheScope"]) == (0, "private")


@PAIRS
async def test_a_tool_that_fails_is_an_answer_and_tells_nothing(channel: str, upstream: str, tmp_path: Path) -> None:
    async with fronted({"shop": shop(upstream)}, tmp_path, channel) as client:
        result = await client.call_tool("shop__fail", raise_on_error=False)
    assert result.is_error
    assert "secret" not in result.text


@PAIRS
async def test_wrong_arguments_are_answered_as_the_server_answers_them(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    behind = shop(upstream)
    async with fronted({"shop": behind}, tmp_path, channel) as client:
        through = await client.call_tool("shop__add", {"a": "x"}, raise_on_error=False)
        async with Client(behind) as direct:
            expected = await direct.call_tool("add", {"a": "x"}, raise_on_error=False)
    assert (through.is_error, through.text) == (True, expected.text)


@pytest.mark.parametrize("name", ["shop__nothing", "add", "shop/add", "other__add", ""])
async def test_a_name_that_is_not_served_is_an_unknown_tool(name: str, tmp_path: Path) -> None:
    async with fronted({"shop": shop(NEW)}, tmp_path, NEW) as client:
        with pytest.raises(InvalidParams, match="Unknown tool") as refused:
            await client.call_tool(name, {})
    assert refused.value.data == {"name": name}


@PAIRS
@pytest.mark.parametrize("uri", ["note://shop/9", "note://1", "note://other/1", "nonsense", "page://shop/x/../text"])
async def test_an_unknown_resource_gets_the_not_found_error_of_the_clients_revision(
    channel: str, upstream: str, uri: str, tmp_path: Path
) -> None:
    async with fronted({"shop": shop(upstream)}, tmp_path, channel) as client:
        with pytest.raises(RequestFailed) as refused:
            await client.read_resource(uri)
    assert refused.value.code == {OLD: -32002, NEW: -32602}[channel]
    assert (refused.value.message, refused.value.data) == (f"Resource not found: {uri}", {"uri": uri})


# --- one shape of results, whatever the era and the form that the server answers in

BARE = pytest.mark.parametrize("wraps", [True, False], ids=["wrapped", "bare"])


def returning_server(revision: str, *, wraps: bool) -> Server:
    made = Server("s", revisions=revisions_of(revision), wrap_results=wraps)

    @made.tool
    async def count() -> int:
        return 3

    @made.tool
    async def find(there: bool) -> dict[str, int] | None:
        return {"n": 1} if there else None

    return made


@PAIRS
@BARE
async def test_a_value_that_is_no_object_is_wrapped_for_every_client(
    channel: str, upstream: str, tmp_path: Path, *, wraps: bool
) -> None:
    async with fronted({"s": returning_server(upstream, wraps=wraps)}, tmp_path, channel) as client:
        schemas = {tool.name: tool.output_schema or {} for tool in await client.list_tools()}
        assert {schema.get("type") for schema in schemas.values()} == {"object"}
        for arguments, value in (({"there": True}, {"n": 1}), ({"there": False}, None)):
            result = await client.call_tool("s__find", arguments)
            assert (result.structured_content, result.data) == ({"result": value}, value)
        assert (await client.call_tool("s__count")).structured_content == {"result": 3}


async def test_the_pin_of_a_tool_is_the_same_in_both_eras_and_forms(tmp_path: Path) -> None:
    pins = set()
    for number, (revision, wraps) in enumerate([(OLD, True), (NEW, True), (NEW, False)]):
        async with Host.open({"s": returning_server(revision, wraps=wraps)}, folder=tmp_path / str(number)) as host:
            pins.add(tuple(item.pin for item in host.catalog.tools.values()))
    assert len(pins) == 1
