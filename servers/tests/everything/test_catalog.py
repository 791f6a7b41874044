"""Content and its descriptions: content, schemas, resources, prompts, completion, pages, icons."""

from __future__ import annotations

from typing import Any

import pytest

import trunkline.types as t
from servers.tests.everything.support import ERAS, HANDSHAKE, STATELESS, call, connected
from tests.support import run_async
from trunkline import RequestFailed, ToolError
from trunkline_servers.everything import make_server
from trunkline_servers.everything.catalog import LIBRARY_URI_TEMPLATE

SINCE_NOVEMBER = (HANDSHAKE, STATELESS)

# --- content ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ERAS)
def test_every_kind_of_content_comes_in_one_result(revision: str) -> None:
    async def main() -> list[Any]:
        async with connected(revision) as client:
            return list((await call(client, "get-every-content")).content)

    found = run_async(main())
    kinds = [t.TextContent, t.ImageContent, t.AudioContent, t.ResourceLink, *[t.EmbeddedResource] * 3]
    assert [type(each) for each in found] == kinds
    assert [each.resource.mime_type for each in found[4:]] == ["text/plain", "application/json", "image/png"]


def test_the_oldest_revision_gets_only_its_features() -> None:
    async def main() -> set[str]:
        async with connected("2024-11-05") as client:
            return {type(each).__name__ for each in (await call(client, "get-every-content")).content}

    assert run_async(main()) <= {"TextContent", "ImageContent", "EmbeddedResource"}


@pytest.mark.parametrize("revision", ERAS)
def test_a_sound_is_a_wav(revision: str) -> None:
    async def main() -> Any:
        async with connected(revision) as client:
            return (await call(client, "get-audio")).content[1]

    sound = run_async(main())
    assert (sound.mime_type, sound.data[:4]) == ("audio/wav", "UklG")


@pytest.mark.parametrize("revision", ERAS)
def test_nested_records_are_structured_content_that_fits_its_schema(revision: str) -> None:
    async def main() -> Any:
        async with connected(revision) as client:
            await client.list_tools()
            return (await call(client, "get-timetable", day="2020-02-29")).structured_content

    found = run_async(main())
    assert found["day"] == "2020-02-29"
    assert found["trains"][0]["stops"][2] == {"station": "Summit", "minute": 31, "platform": "2a"}


def test_a_tool_fails_in_a_way_the_model_can_read() -> None:
    async def main() -> None:
        async with connected(STATELESS) as client:
            await call(client, "fail")

    with pytest.raises(ToolError, match="on purpose"):
        run_async(main())


def test_a_request_fails_with_a_code_and_data() -> None:
    async def main() -> None:
        async with connected(STATELESS) as client:
            await call(client, "fail", how="protocol")

    with pytest.raises(RequestFailed) as refused:
        run_async(main())
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
def test_arguments_that_fit_a_2020_12_schema_are_taken(arguments: dict[str, Any], text: str) -> None:
    async def main() -> str:
        async with connected(STATELESS) as client:
            return str((await client.call_tool("book-seat", arguments)).text)

    assert run_async(main()) == text


@pytest.mark.parametrize("arguments", NO_SEATS)
def test_each_keyword_of_a_2020_12_schema_is_honoured(arguments: dict[str, Any]) -> None:
    async def main() -> None:
        async with connected(HANDSHAKE) as client:
            await client.call_tool("book-seat", arguments)

    with pytest.raises(ToolError):
        run_async(main())


@pytest.mark.parametrize("revision", SINCE_NOVEMBER)
def test_the_server_a_tool_a_prompt_a_resource_and_a_template_have_icons(revision: str) -> None:
    async def main() -> list[int]:
        async with connected(revision) as client:
            lists: list[Any] = [
                await client.list_tools(),
                await client.list_prompts(),
                await client.list_resources(),
                await client.list_resource_templates(),
            ]
            assert client.server_info is not None
            return [len(client.server_info.icons or [])] + [sum(bool(each.icons) for each in found) for found in lists]

    assert run_async(main()) == [1, 1, 1, 1, 1]


def test_a_parameter_says_in_which_header_it_travels() -> None:
    async def main() -> Any:
        async with connected(STATELESS) as client:
            (tool,) = [tool for tool in await client.list_tools() if tool.name == "get-region"]
            return tool.input_schema["properties"]["region"]["x-mcp-header"]

    assert run_async(main()) == "Region"


# --- resources -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ERAS)
def test_a_resource_has_every_metadata_field(revision: str) -> None:
    async def main() -> tuple[t.Resource, int]:
        async with connected(revision) as client:
            (found,) = [each for each in await client.list_resources() if each.name == "picture"]
            return found, len((await client.read_resource(found.uri))[0].blob or "")

    found, length = run_async(main())
    assert found.annotations is not None
    assert (found.annotations.audience, found.annotations.priority) == (["user"], 0.2)
    assert (found.mime_type, found.meta) == ("image/png", {"example.com/licence": "free"})
    assert length == -(-(found.size or 0) // 3) * 4


@pytest.mark.parametrize("revision", ERAS)
def test_the_instructions_are_a_document_too(revision: str) -> None:
    async def main() -> tuple[str | None, str | None]:
        async with connected(revision) as client:
            (found,) = await client.read_resource("demo://resource/static/document/instructions.md")
            return client.instructions, found.text

    instructions, document = run_async(main())
    assert instructions == document
    assert "three rails" in (instructions or "")


@pytest.mark.parametrize(("kind", "member"), [("text", "text"), ("blob", "blob")])
@pytest.mark.parametrize("revision", ERAS)
def test_a_resource_is_made_up_from_a_number(kind: str, member: str, revision: str) -> None:
    async def main() -> t.ResourceContents:
        async with connected(revision) as client:
            return (await client.read_resource(f"demo://resource/dynamic/{kind}/7"))[0]

    assert getattr(run_async(main()), member)


@pytest.mark.parametrize("number", ["0", "-1", "1.5", "x", "9" * 30, "%D9%A1"])
def test_a_value_that_is_not_a_number_names_no_resource(number: str) -> None:
    async def main() -> None:
        async with connected(HANDSHAKE) as client:
            await client.read_resource(f"demo://resource/dynamic/text/{number}")

    with pytest.raises(RequestFailed, match="whole number"):
        run_async(main())


@pytest.mark.parametrize("revision", ERAS)
def test_a_template_has_several_variables(revision: str) -> None:
    async def main() -> str | None:
        async with connected(revision) as client:
            return (await client.read_resource("demo://resource/library/maps/moor"))[0].text

    assert run_async(main()) == "moor stands on the shelf maps."


@pytest.mark.parametrize("revision", ERAS)
def test_resources_come_on_several_pages(revision: str) -> None:
    async def main() -> tuple[list[int], int]:
        async with connected(revision) as client:
            first = await client.list_page("resources/list")
            second = await client.list_page("resources/list", first.next_cursor)
            return [len(first.resources), len(second.resources)], len(await client.list_resources())

    pages, everything = run_async(main())
    assert pages == [50, 50]
    assert everything > 100


def test_clients_may_keep_a_list_for_a_while() -> None:
    async def main() -> tuple[Any, Any]:
        async with connected(STATELESS) as client:
            page = await client.list_page("tools/list")
            return page.ttl_ms, page.cache_scope

    assert run_async(main()) == (5000, "private")


def test_clients_may_keep_a_document_for_longer_and_share_it() -> None:
    async def main() -> Any:
        async with connected(STATELESS) as client:
            return await client.request("resources/read", {"uri": "demo://resource/static/document/startup.md"})

    found = run_async(main())
    assert (found["ttlMs"], found["cacheScope"]) == (60000, "public")


# --- prompts and completion ------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize("revision", ERAS)
@pytest.mark.parametrize(("prompt", "arguments", "text"), PROMPTS)
def test_a_prompt_is_filled_in(prompt: str, arguments: dict[str, str], text: str, revision: str) -> None:
    async def main() -> Any:
        async with connected(revision) as client:
            return (await client.get_prompt(prompt, arguments)).messages[0].content

    assert run_async(main()).text == text


def test_a_prompt_has_a_resource_inside() -> None:
    async def main() -> Any:
        async with connected(HANDSHAKE) as client:
            return (await client.get_prompt("resource-prompt", {"resourceType": "Blob", "resourceId": "2"})).messages

    lead, embedded = run_async(main())
    assert lead.content.text.startswith("This prompt includes the Blob resource with id: 2.")
    assert embedded.content.resource.uri == "demo://resource/dynamic/blob/2"


@pytest.mark.parametrize(
    ("kind", "number", "why"), [("Nothing", "1", "Must be Text or Blob"), ("Text", "0", "positive integer")]
)
def test_a_prompt_that_cannot_be_made_says_why(kind: str, number: str, why: str) -> None:
    async def main() -> None:
        async with connected(STATELESS) as client:
            await client.get_prompt("resource-prompt", {"resourceType": kind, "resourceId": number})

    with pytest.raises(RequestFailed, match=why):
        run_async(main())


@pytest.mark.parametrize("revision", ERAS)
def test_a_prompt_has_pictures_sounds_and_both_sides(revision: str) -> None:
    async def main() -> Any:
        async with connected(revision) as client:
            return (await client.get_prompt("media-prompt")).messages

    found = run_async(main())
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


@pytest.mark.parametrize("revision", ERAS)
@pytest.mark.parametrize(("ref", "argument", "context", "values"), PROPOSALS)
def test_arguments_are_completed(
    ref: str, argument: tuple[str, str], context: dict[str, str] | None, values: list[str], revision: str
) -> None:
    name, value = argument
    named: Any = t.ResourceTemplateReference(uri=ref) if "{" in ref else t.PromptReference(name=ref)

    async def main() -> list[str]:
        async with connected(revision) as client:
            return list((await client.complete(named, {"name": name, "value": value}, context=context)).values)

    assert run_async(main()) == values


def test_without_extras_only_the_official_features_are_offered() -> None:
    async def main() -> tuple[int, int, int, Any]:
        async with connected(HANDSHAKE, make_server(extras=False)) as client:
            counts = (
                len(await client.list_tools()),
                len(await client.list_prompts()),
                len(await client.list_resources()),
            )
            return *counts, (client.server_capabilities or {}).get("experimental")

    assert run_async(main()) == (19, 4, 7, None)
