"""The pet shop, a document of 3.0 with everything common: its tools, requests and results."""

from __future__ import annotations

import json
from typing import Any

import pytest

from servers.tests.openapi.fake_api import Answer, running_double
from servers.tests.openapi.support import PETS, call, schema_of
from servers.tests.over_http import hints_of
from trunkline import Client, RequestFailed
from trunkline.errors import InvalidParams
from trunkline.types import EmbeddedResource, ImageContent, TextContent
from trunkline_servers.openapi import make_server

KEY = {"api_key": "s3cret"}
PNG = b"\x89PNG\r\n\x1a\nrest"


def sent(tool: str, arguments: dict[str, Any], **options: Any) -> Any:
    """Return the request that the API received for a call."""
    result, double = call(PETS, tool, arguments, auth=KEY, output_schemas=False, **options)
    assert not result.is_error, result.text
    return double.last


# --- tools -----------------------------------------------------------------------------------------------------------


async def test_annotations_follow_the_method() -> None:
    async with Client(make_server(PETS)) as client:
        hints = await hints_of(client)
    assert (len(hints), "list_orders" in hints) == (17, True)
    assert [
        hints[name].read_only_hint for name in ("listPets", "checkPet", "replacePet", "deletePet", "createPet")
    ] == [*(True, True, False, False, False)]
    assert (hints["replacePet"].idempotent_hint, hints["deletePet"].destructive_hint) == (True, True)
    assert not hints["createPet"].idempotent_hint


def test_descriptions_of_the_document_describe_a_tool() -> None:
    tool = make_server(PETS).registry.tools["listPets"].listed()
    assert "Deprecated." in (make_server(PETS).registry.tools["deletePet"].listed().description or "")
    assert tool.title == "List pets"
    assert tool.description == "List pets\n\nList the pets in the shop, a page at a time."
    assert tool.input_schema["properties"]["limit"]["description"] == "How many at most"


def test_read_only_members_are_not_inputs_and_write_only_members_are_not_outputs() -> None:
    tool = make_server(PETS).registry.tools["createPet"].listed()
    assert "id" not in tool.input_schema["properties"]
    assert tool.input_schema["required"] == ["name"]
    assert tool.output_schema is not None
    assert "secret" not in tool.output_schema["properties"]
    assert tool.output_schema["required"] == ["id", "name"]


def test_the_dialect_of_3_0_becomes_json_schema() -> None:
    properties = schema_of(PETS, "createPet")["properties"]
    assert properties["tag"] == {"type": ["string", "null"]}
    assert properties["weight"] == {"type": "number", "exclusiveMinimum": 0}
    assert properties["status"]["enum"] == ["available", "pending", "sold", None]


def test_a_cycle_stays_a_definition() -> None:
    schema = schema_of(PETS, "createPet")
    assert schema["properties"]["category"] == {"$ref": "#/$defs/Category"}
    assert schema["$defs"]["Category"]["properties"]["parent"] == {"$ref": "#/$defs/Category"}


def test_a_body_of_any_members_and_one_that_may_be_left_out_are_one_argument() -> None:
    assert schema_of(PETS, "changePet")["required"] == ["id", "body"]
    assert schema_of(PETS, "placeOrder").get("required") is None


# --- requests --------------------------------------------------------------------------------------------------------


def test_parameters_go_where_they_belong() -> None:
    arguments = {"limit": 5, "tags": ["a b", "c&d"], "Accept-Language": "nb", "theme": "dark mode", "X-Request-ID": "7"}
    heard = sent("listPets", arguments)
    assert heard.path == "/pets"
    assert heard.pairs == [("limit", "5"), ("tags", "a b"), ("tags", "c&d")]
    assert heard.headers["accept-language"] == "nb"
    assert heard.headers["x-request-id"] == "7"
    assert heard.headers["cookie"] == "theme=dark%20mode"


def test_a_body_and_a_path_with_one_name_are_told_apart() -> None:
    heard = sent("replacePet", {"id": 7, "id_body": 8, "name": "Rex"})
    assert heard.path == "/pets/7"
    assert json.loads(heard.body) == {"id": 8, "name": "Rex"}
    assert heard.headers["content-type"] == "application/json"


def test_a_body_keeps_the_media_type_of_the_document() -> None:
    heard = sent("changePet", {"id": 7, "body": {"name": None}})
    assert heard.headers["content-type"] == "application/merge-patch+json"
    assert json.loads(heard.body) == {"name": None}


def test_a_body_that_may_be_left_out_is_left_out() -> None:
    assert sent("placeOrder", {}).body == b""


def test_a_form_is_encoded_by_the_styles_of_its_members() -> None:
    arguments = {"user": "a b", "password": "p&=w", "scopes": ["x", "y"], "device": {"os": "linux"}}
    heard = sent("login", arguments)
    assert heard.headers["content-type"] == "application/x-www-form-urlencoded"
    assert heard.body == b"user=a%20b&password=p%26%3Dw&scopes=x&scopes=y&device%5Bos%5D=linux"


def test_a_multipart_form_has_files_texts_and_json() -> None:
    photo = {"base64": "iVBORw==", "filename": 'my "pet".png'}
    heard = sent("addPhoto", {"id": 7, "photo": photo, "caption": "Hi", "place": {"lat": 1.5}, "labels": ["a", "b"]})
    boundary = heard.headers["content-type"].partition("boundary=")[2].encode()
    parts = [part.strip(b"\r\n") for part in heard.body.split(b"--" + boundary)[1:-1]]
    assert parts == [
        b'Content-Disposition: form-data; name="photo"; filename="my %22pet%22.png"\r\n'
        b"Content-Type: image/png\r\n\r\n\x89PNG",
        b'Content-Disposition: form-data; name="caption"\r\n\r\nHi',
        b'Content-Disposition: form-data; name="labels"\r\n\r\na',
        b'Content-Disposition: form-data; name="labels"\r\n\r\nb',
        b'Content-Disposition: form-data; name="place"\r\nContent-Type: application/json\r\n\r\n{"lat":1.5}',
    ]


def test_a_file_is_sent_as_it_is() -> None:
    heard = sent("replacePhoto", {"id": 7, "body": {"base64": "AAEC", "mimeType": "image/webp"}})
    assert heard.body == b"\x00\x01\x02"
    assert heard.headers["content-type"] == "image/webp"


def test_invalid_base64_is_reported() -> None:
    result, double = call(PETS, "replacePhoto", {"id": 7, "body": {"base64": "%%"}}, auth=KEY)
    assert "base64" in result.text
    assert double.heard == []


def test_text_is_sent_as_text() -> None:
    heard = sent("writeNote", {"id": 7, "body": "grün"})
    assert heard.body == "grün".encode()
    assert heard.headers["content-type"] == "text/plain; charset=utf-8"


def test_each_style_of_a_query_is_written() -> None:
    arguments = {
        "filter": {"kind": "cat", "age": 3},
        "near": [1.5, 2],
        "words": ["big", "red"],
        "colors": ["a,b", "c"],
        "extra": {"x": "1"},
        "where": {"deep": [1, {"y": 2}]},
    }
    assert sent("searchPets", arguments).query == (
        "filter%5Bkind%5D=cat&filter%5Bage%5D=3&near=1.5,2&words=big%20red&colors=a%2Cb%7Cc&x=1"
        "&where=%7B%22deep%22%3A%5B1%2C%7B%22y%22%3A2%7D%5D%7D"
    )


def test_each_style_of_a_path_is_written() -> None:
    assert sent("getBox", {"shelf": ["a", "b/c"], "box": [1, 2]}).path == "/shelves.a.b%2Fc/boxes;box=1;box=2"


# --- credentials -----------------------------------------------------------------------------------------------------


def test_the_key_comes_from_the_user_and_is_no_argument() -> None:
    assert "X-Shop-Key" not in schema_of(PETS, "listPets")["properties"]
    assert sent("listPets", {}).headers["x-shop-key"] == "s3cret"


def test_an_operation_without_security_is_sent_no_key() -> None:
    assert "x-shop-key" not in sent("getPet", {"id": 1}).headers


def test_the_first_alternative_with_all_credentials_is_used() -> None:
    _, double = call(PETS, "deletePet", {"id": 1}, auth={"staff": "ann:pw", **KEY})
    assert double.last.headers["authorization"] == "Basic YW5uOnB3"
    assert "x-shop-key" not in double.last.headers


def test_a_missing_credential_is_an_error_that_says_how_to_give_it() -> None:
    result, double = call(PETS, "listPets", {})
    assert result.is_error
    assert "--auth" in result.text
    assert "api_key" in result.text
    assert double.heard == []


@pytest.mark.parametrize(("header", "value"), [("X-Shop-Key", "s3cret"), ("x-shop-key", "s3cret")])
def test_a_header_of_the_user_may_be_the_credential(header: str, value: str) -> None:
    result, double = call(PETS, "listPets", {}, headers={header: value})
    assert not result.is_error, result.text
    assert double.last.headers["x-shop-key"] == value


def test_cookies_are_the_users_if_the_user_sends_some() -> None:
    options = {"headers": {"Cookie": "a=1"}}
    assert "theme" not in schema_of(PETS, "listPets", **options)["properties"]
    assert sent("listPets", {}, **options).headers["cookie"] == "a=1"


def test_a_header_of_the_user_is_sent_and_no_longer_asked_for() -> None:
    options = {"headers": {"Accept-Language": "de"}}
    assert "Accept-Language" not in schema_of(PETS, "listPets", **options)["properties"]
    assert sent("listPets", {}, **options).headers["accept-language"] == "de"


# --- answers ---------------------------------------------------------------------------------------------------------


def test_an_object_that_was_promised_is_structured() -> None:
    pet = {"id": 7, "name": "Rex", "more": True}
    result, _ = call(PETS, "getPet", {"id": 7}, {"GET /pets/7": Answer(pet)})
    assert result.data == pet


def test_an_answer_that_breaks_the_promise_is_shown_with_a_warning() -> None:
    result, _ = call(PETS, "getPet", {"id": 7}, {"GET /pets/7": Answer({"id": "seven"})})
    assert result.is_error
    assert "was carried out" in result.text
    assert '"seven"' in result.text


def test_a_list_is_text() -> None:
    result, _ = call(PETS, "listPets", {}, {"GET /pets": Answer([{"id": 1, "name": "Rex"}])}, auth=KEY)
    assert json.loads(result.text) == [{"id": 1, "name": "Rex"}]


def test_the_link_to_the_next_page_is_reported() -> None:
    headers = {"X-Next": "page-2", "Link": '</pets?page=2>; rel="next"', "X-Other": "no", "Set-Cookie": "no=1"}
    result, _ = call(PETS, "listPets", {}, {"GET /pets": Answer([], headers=headers)}, auth=KEY)
    assert [block.text for block in result.content if isinstance(block, TextContent)] == [
        "[]",
        'link: </pets?page=2>; rel="next"; x-next: page-2',
    ]


async def test_a_structured_answer_tells_its_headers_too() -> None:
    pet = Answer({"id": 7, "name": "Rex"}, headers={"Link": "</pets/8>; rel=next"})
    async with (
        running_double({"GET /pets/7": pet}) as double,
        Client(make_server(PETS, base_url=double.url)) as client,
    ):
        result = await client.call_tool("getPet", {"id": 7})
        data, text = result.data, result.text
    assert data == {"id": 7, "name": "Rex"}
    assert "link: </pets/8>; rel=next" in text


def test_a_response_without_content_is_described_in_words() -> None:
    result, _ = call(PETS, "deletePet", {"id": 7}, {"DELETE /pets/7": Answer(b"", 204)}, auth=KEY)
    assert result.text == "Done (status 204, no content)."


def test_an_image_is_returned_as_an_image() -> None:
    answers = {"GET /pets/7/photo": Answer(PNG, content_type="image/png")}
    result, _ = call(PETS, "getPhoto", {"id": 7}, answers, auth=KEY)
    (block,) = result.content
    assert isinstance(block, ImageContent)
    assert block.mime_type == "image/png"


def test_another_file_comes_as_bytes() -> None:
    answers = {"GET /files/a%2Fb": Answer(b"%PDF-1\xff", content_type="application/pdf")}
    result, _ = call(PETS, "getFile", {"path": "a/b"}, answers, auth=KEY)
    (block,) = result.content
    assert isinstance(block, EmbeddedResource)
    assert block.resource.mime_type == "application/pdf"
    assert block.resource.blob == "JVBERi0x/w=="


def test_head_tells_status_and_headers() -> None:
    result, _ = call(PETS, "checkPet", {"id": 7}, {"HEAD /pets/7": Answer(b"", headers={"X-Pet": "yes"})}, auth=KEY)
    assert "Status 200" in result.text
    assert "x-pet: yes" in result.text


def test_an_error_is_reported_in_the_words_of_the_service() -> None:
    answers = {"POST /pets": Answer({"code": 3, "message": "no such kind"}, 422)}
    result, _ = call(PETS, "createPet", {"name": "Rex"}, answers, auth=KEY)
    assert result.is_error
    assert result.text == "Pet Shop answered 422: no such kind"


def test_an_answer_that_is_too_large_is_an_error() -> None:
    answers = {"GET /pets": Answer("x" * 2000, content_type="text/plain")}
    result, _ = call(PETS, "listPets", {}, answers, auth=KEY, max_bytes=1000)
    assert "larger than 1000 bytes" in result.text


# --- resources -------------------------------------------------------------------------------------------------------


async def test_get_operations_are_resources_if_asked_for() -> None:
    async with running_double() as double:
        server = make_server(PETS, base_url=double.url, resources=True, auth=KEY)
        async with Client(server) as client:
            await client.read_resource("openapi://pet-shop/orders")
            await client.read_resource("openapi://pet-shop/pets/7")
            await client.read_resource("openapi://pet-shop/pets?limit=3&tags=a&tags=b")
            await client.read_resource("openapi://pet-shop/pets/search?near=1")
            assert [f"{heard.path}?{heard.query}" for heard in double.heard] == [
                "/orders?",
                "/pets/7?",
                "/pets?limit=3&tags=a&tags=b",
                "/pets/search?near=1",
            ]


async def test_a_resource_has_the_type_of_the_answer() -> None:
    async with running_double({"GET /pets/7/photo": Answer(PNG, content_type="image/png")}) as double:
        server = make_server(PETS, base_url=double.url, resources=True, auth=KEY)
        async with Client(server) as client:
            (contents,) = await client.read_resource("openapi://pet-shop/pets/7/photo")
            assert (contents.mime_type, contents.blob) == ("image/png", "iVBORw0KGgpyZXN0")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("openapi://pet-shop/pets/seven", "expected integer"),
        ("openapi://pet-shop/pets?limit=0", "/limit"),
        ("openapi://pet-shop/pets?status=lost", "/status"),
    ],
    ids=["path", "bound", "choice"],
)
async def test_a_uri_that_the_schema_forbids_is_never_sent(uri: str, message: str) -> None:
    async with running_double() as double:
        async with Client(make_server(PETS, base_url=double.url, resources=True, auth=KEY)) as client:
            with pytest.raises(InvalidParams, match=message):
                await client.read_resource(uri)
        assert len(double.heard) == 0


@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
async def test_a_resource_unknown_to_the_service_is_not_found(revision: str) -> None:
    async with running_double({"GET /pets/7": Answer({"message": "no such pet"}, 404)}) as double:
        server = make_server(PETS, base_url=double.url, resources=True, auth=KEY)
        async with Client(server, revision=revision) as client:
            with pytest.raises(RequestFailed, match="no such pet") as caught:
                await client.read_resource("openapi://pet-shop/pets/7")
            assert caught.value.code == {"2025-06-18": -32002, "2026-07-28": -32602}[revision]


def test_by_default_there_are_no_resources() -> None:
    assert not make_server(PETS).registry.templates
