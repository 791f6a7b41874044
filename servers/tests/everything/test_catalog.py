"""Content and its descriptions: content, schemas, resources, prompts, completion, pages, icons."""

from __future__ import annotations

from typing import Any

import pytest

import trunkline.types as t
from servers.tests.everything.support import HANDSHAKE, STATELESS, call, connected
from trunkline import RequestFailed, ToolError
from trunkline_servers.everything import make_server
from trunkline_servers.everything.catalog import LIBRARY_URI_TEMPLATE

# --- content ---------------------------------------------------------------------------------------------------------


async def test_every_kind_of_content_comes_in_one_result() -> None:
    async with connected(STATELESS) as client:
        found = list((await call(client, "get-every-content")).content)
    kinds = [t.TextContent, t.ImageContent, t.AudioContent, t.ResourceLink, *[t.EmbeddedResource] * 3]
    assert [type(each) for each in found] == kinds
    assert [each.resource.mime_type for each in found[4:]] == ["text/plain", "application/json", "image/png"]


async def test_nested_records_are_structured_content_that_fits_its_schema() -> None:
    async with connected(STATELESS) as client:
        await client.list_tools()
        found = (await call(client, "get-timetable", day="2020-02-29")).structured_content
    assert found["day"] == "2020-02-29"
    assert found["trains"][0]["stops"][2] == {"station": "Summit", "minute": 31, "platform": "2a"}


async def test_a_tool_fails_in_a_way_the_model_can_read() -> None:
    async with connected(STATELESS) as client:
        with pytest.raises(ToolError, match="on purpose"):
            await call(client, "fail")


async def test_a_request_fails_with_a_code_and_data() -> None:
    async with connected(STATELESS) as client:
        with pytest.raises(RequestFailed) as refused:
            await call(client, "fail", how="protocol")
    assert (refused.value.code, refused.value.data) == (-32050, {"why": "asked for"})


SEATS = [
    pytest.param({"seat": [4, "A"], "phone": "123"}, "Seat 4A is booked for one adult.", id="plain"),
    pytest.param(
        {"seat": [1, "B"], "kind": "child", "age": 9, "email": "a@b"}, "Seat 1B is booked for one child.", id="child"
    ),
]
NO_SEATS = [
    pytest.param({"seat": [0, "A"], "phone": "123"}, id="prefixItems"),
    pytest.param({"seat": [1, "A", 2], "phone": "123"}, id="unevaluatedItems"),
    pytest.param({"seat": [1, "A"]}, id="anyOf"),
    pytest.param({"seat": [1, "A"], "phone": "123", "kind": "child"}, id="if-then"),
    pytest.param({"seat": [1, "A"], "phone": "123", "age": 3}, id="dependentRequired"),
    pytest.param({"seat": [1, "A"], "phone": "123", "colour": "red"}, id="unevaluatedProperties"),
]


@pytest.mark.parametrize(("arguments", "text"), SEATS)
async def test_arguments_that_fit_a_2020_12_schema_are_taken(arguments: dict[str, Any], text: str) -> None:
    async with connected(STATELESS) as client:
        assert (await client.call_tool("book-seat", arguments)).text == text


@pytest.mark.parametrize("arguments", NO_SEATS)
async def test_each_keyword_of_a_2020_12_schema_is_honoured(arguments: dict[str, Any]) -> None:
    async with connected(HANDSHAKE) as client:
        with pytest.raises(ToolError):
            await client.call_tool("book-seat", arguments)


# --- resources -------------------------------------------------------------------------------------------------------


async def test_a_resource_has_every_metadata_field() -> None:
    async with connected(STATELESS) as client:
        (found,) = [each for each in await client.list_resources() if each.name == "picture"]
        length = len((await client.read_resource(found.uri))[0].blob or "")
    assert found.annotations is not None
    assert (found.annotations.audience, found.annotations.priority) == (["user"], 0.2)
    assert (found.mime_type, found.meta) == ("image/png", {"example.com/licence": "free"})
    assert length == -(-(found.size or 0) // 3) * 4


async def test_the_instructions_are_a_document_too() -> None:
    async with connected(STATELESS) as client:
        (found,) = await client.read_resource("demo://resource/static/document/instructions.md")
        instructions, document = client.instructions, found.text
    assert instructions == document
    assert "three rails" in (instructions or "")


@pytest.mark.parametrize("number", ["0", "-1", "1.5", "x", "9" * 30, "%D9%A1"])
async def test_a_value_that_is_not_a_number_names_no_resource(number: str) -> None:
    async with connected(HANDSHAKE) as client:
        with pytest.raises(RequestFailed, match="whole number"):
            await client.read_resource(f"demo://resource/dynamic/text/{number}")


async def test_a_template_has_several_variables() -> None:
    async with connected(STATELESS) as client:
        assert (await client.read_resource("demo://resource/library/maps/moor"))[
            0
        ].text == "moor stands on the shelf maps."


async def test_resources_come_on_several_pages() -> None:
    async with connected(STATELESS) as client:
        first = await client.list_page("resources/list")
        second = await client.list_page("resources/list", first.next_cursor)
        pages, everything = [len(first.resources), len(second.resources)], len(await client.list_resources())
    assert pages == [50, 50]
    assert everything > 100


# --- prompts and completion ------------------------------------------------------------------------------------------


async def test_clients_may_keep_lists_for_a_while_and_share_documents() -> None:
    async with connected(STATELESS) as client:
        page = await client.list_page("tools/list")
        document = await client.request("resources/read", {"uri": "demo://resource/static/document/startup.md"})
    assert (page.ttl_ms, page.cache_scope) == (5000, "private")
    assert (document["ttlMs"], document["cacheScope"]) == (60000, "public")


PROMPTS = [
    pytest.param("simple-prompt", {}, "This is a simple prompt without arguments.", id="simple"),
    pytest.param("args-prompt", {"city": "Bergen"}, "What's weather in Bergen?", id="one-argument"),
    pytest.param("args-prompt", {"city": "A", "state": "B"}, "What's weather in A, B?", id="two-arguments"),
    pytest.param(
        "completable-prompt",
        {"department": "Sales", "name": "Eve"},
        "Please promote Eve to the head of the Sales team.",
        id="completable",
    ),
]


@pytest.mark.parametrize(("prompt", "arguments", "text"), PROMPTS)
async def test_a_prompt_is_filled_in(prompt: str, arguments: dict[str, str], text: str) -> None:
    async with connected(STATELESS) as client:
        assert (await client.get_prompt(prompt, arguments)).messages[0].content == t.TextContent(text=text)


async def test_a_prompt_has_a_resource_inside() -> None:
    async with connected(HANDSHAKE) as client:
        _, embedded = (await client.get_prompt("resource-prompt", {"resourceType": "Blob", "resourceId": "2"})).messages
    assert isinstance(embedded.content, t.EmbeddedResource)
    assert embedded.content.resource.uri == "demo://resource/dynamic/blob/2"


@pytest.mark.parametrize(
    ("kind", "number", "why"), [("Nothing", "1", "Must be Text or Blob"), ("Text", "0", "positive integer")]
)
async def test_a_prompt_that_cannot_be_made_says_why(kind: str, number: str, why: str) -> None:
    async with connected(STATELESS) as client:
        with pytest.raises(RequestFailed, match=why):
            await client.get_prompt("resource-prompt", {"resourceType": kind, "resourceId": number})


async def test_a_prompt_has_pictures_sounds_and_both_sides() -> None:
    async with connected(STATELESS) as client:
        found = (await client.get_prompt("media-prompt")).messages
    assert [message.role for message in found] == ["user", "user", "assistant", "user", "user"]
    assert {type(message.content) for message in found} == {t.TextContent, t.ImageContent, t.AudioContent}


PROPOSALS = [
    pytest.param("completable-prompt", ("department", "S"), None, ["Sales", "Support"], id="department"),
    pytest.param("completable-prompt", ("name", ""), {"department": "Support"}, ["John", "Kim", "Lee"], id="context"),
    pytest.param("completable-prompt", ("name", ""), None, [], id="no-context"),
    pytest.param("resource-prompt", ("resourceType", "B"), None, ["Blob"], id="kind"),
    pytest.param("resource-prompt", ("resourceId", "12"), None, ["12"], id="number"),
    pytest.param("resource-prompt", ("resourceId", "x"), None, [], id="no-number"),
    pytest.param("demo://resource/dynamic/text/{resourceId}", ("resourceId", "3"), None, ["3"], id="template"),
    pytest.param(LIBRARY_URI_TEMPLATE, ("shelf", ""), None, ["maps", "stories", "tables"], id="first-variable"),
    pytest.param(LIBRARY_URI_TEMPLATE, ("book", "mo"), {"shelf": "maps"}, ["mountain", "moor"], id="second-variable"),
    pytest.param(LIBRARY_URI_TEMPLATE, ("book", "s"), None, ["signalman", "summer"], id="without-the-first"),
]


@pytest.mark.parametrize(("ref", "argument", "context", "values"), PROPOSALS)
async def test_arguments_are_completed(
    ref: str, argument: tuple[str, str], context: dict[str, str] | None, values: list[str]
) -> None:
    name, value = argument
    named: Any = t.ResourceTemplateReference(uri=ref) if "{" in ref else t.PromptReference(name=ref)
    async with connected(STATELESS) as client:
        assert list((await client.complete(named, {"name": name, "value": value}, context=context)).values) == values


async def test_without_extras_only_the_official_features_are_offered() -> None:
    async with connected(HANDSHAKE, make_server(extras=False)) as client:
        counts = (
            len(await client.list_tools()),
            len(await client.list_prompts()),
            len(await client.list_resources()),
        )
        assert (*counts, (client.server_capabilities or {}).get("experimental")) == (19, 4, 7, None)
