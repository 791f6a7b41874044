"""Hostile documents, and arguments that try to change the request; published vulnerabilities among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from servers.tests.openapi.fake_api import Answer
from servers.tests.openapi.support import PETS, TRACKER, call, document, operation, schema_of
from tests.support import run_async
from trunkline import ConfigError
from trunkline.types import EmbeddedResource
from trunkline_servers.openapi import Document, fetch_document, make_server, read_document
from trunkline_servers.openapi.schemas import SchemaTranslator

BASE = "https://api.example.com"
KEY = {"api_key": "s3cret"}


def with_schema(schema: Any, **schemas: Any) -> dict[str, Any]:
    """Make a document whose one operation takes a schema."""
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    return document({"/it": {"post": operation(requestBody=body)}}, components={"schemas": schemas})


def parameter(name: str, where: str, **schema: Any) -> dict[str, Any]:
    """Make a parameter."""
    return {"name": name, "in": where, "required": where == "path", "schema": schema or {"type": "string"}}


# --- arguments that lead elsewhere -----------------------------------------------------------------------------------


SPREAD = {"type": "object", "additionalProperties": {"type": "string"}}
MORE = parameter("more", "query", **SPREAD)


def with_parameters(path: str, *parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Make a document whose one operation has parameters."""
    return document({path: {"get": operation(parameters=list(parameters))}}, **more)


def with_key(where: str, name: str, spread: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Make a document with a key somewhere, and an object that is spread there."""
    schemes = {"key": {"type": "apiKey", "in": where, "name": name}}
    return with_parameters("/it", spread, components={"securitySchemes": schemes}, **more)


DEEP = {**parameter("filter", "query", type="object"), "style": "deepObject"}
FORM = {
    "schema": {"type": "object", "properties": {"user": {"type": "string"}, "device": SPREAD}},
    "encoding": {"device": {"style": "form", "explode": True}},
}
FORM_BODY = {"required": True, "content": {"application/x-www-form-urlencoded": FORM}}
KEYED = with_key("query", "api_key", MORE, security=[{"key": []}])
PHOTO_TYPES = ["image/png\r\nX-Evil: 1", "image/png;\r\nX-Evil=1", "image/png;\r\n\r\nbody=1"]
NO_MEMBER = "must not have the member"
#: A document, its tool, arguments that try to change the request, the credentials, and what is said.
CHANGES: list[tuple[Any, str, dict[str, Any], dict[str, str], str]] = [
    *(
        (PETS, "getFile", {"path": value}, KEY, "path")
        for value in ("..", ".", "../admin", "a/../../admin", "..\\admin", "a/..", "x\r\nHost: evil", "x\x00")
    ),
    (with_parameters("/a/{x}/b", {**parameter("x", "path"), "style": "label"}), "it", {"x": "."}, {}, ""),
    (with_parameters("/{x}{y}/b", parameter("x", "path"), parameter("y", "path")), "it", {"x": ".", "y": "."}, {}, ""),
    (TRACKER, "export", {"fields": {"key": "mine"}}, {"query_key": "users"}, NO_MEMBER),
    (PETS, "searchPets", {"extra": {"near": "1"}}, KEY, NO_MEMBER),
    *(
        (KEYED, "it", {"more": {member: "mine"}}, {"key": "users"}, NO_MEMBER)
        for member in ("api_key", "API_KEY", "api_key[]", "api.key")
    ),
    (with_key("query", "session", MORE), "it", {"more": {"session": "mine"}}, {}, NO_MEMBER),
    (with_key("cookie", "session", {**MORE, "in": "cookie"}), "it", {"more": {"session": "mine"}}, {}, NO_MEMBER),
    (with_parameters("/it", DEEP, MORE), "it", {"filter": {"a": "b"}, "more": {"filter[a]": "c"}}, {}, NO_MEMBER),
    (
        with_parameters("/it", parameter("theme", "cookie"), {**MORE, "in": "cookie"}),
        *("it", {"more": {"theme": "b"}}, {}, NO_MEMBER),
    ),
    (
        document({"/it": {"post": operation(requestBody=FORM_BODY)}}),
        *("it", {"user": "me", "device": {"user": "admin"}}, {}, NO_MEMBER),
    ),
    (PETS, "listPets", {"Accept-Language": "nb\r\nX-Shop-Key: mine"}, KEY, "Accept-Language"),
    (PETS, "listPets", {"X-Shop-Key": "mine"}, KEY, "X-Shop-Key"),
    *((PETS, "addPhoto", {"id": 1, "photo": {"text": "x", "mimeType": each}}, KEY, "") for each in PHOTO_TYPES),
    *((PETS, "addPhoto", {"id": 1, "photo": {"text": "x", "filename": each}}, KEY, "") for each in PHOTO_TYPES),
]


@pytest.mark.parametrize(("source", "tool", "arguments", "auth", "words"), CHANGES, ids=range(len(CHANGES)))
def test_an_argument_that_would_change_the_request_is_refused_and_nothing_is_sent(
    source: Any, tool: str, arguments: dict[str, Any], auth: dict[str, str], words: str
) -> None:
    result, double = call(source, tool, arguments, auth=auth)
    assert (result.is_error, words in result.text, double.heard) == (True, True, [])


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("//evil.example/x", "/files/%2F%2Fevil.example%2Fx"),
        ("%2e%2e%2fadmin", "/files/%252e%252e%252fadmin"),
        ("a?admin=1#x", "/files/a%3Fadmin%3D1%23x"),
        ("@evil.example", "/files/%40evil.example"),
        ("http://169.254.169.254/", "/files/http%3A%2F%2F169.254.169.254%2F"),
        ("a;b=c", "/files/a%3Bb%3Dc"),
    ],
)
def test_a_path_argument_stays_one_segment_of_the_same_origin(value: str, path: str) -> None:
    _, double = call(PETS, "getFile", {"path": value}, auth=KEY)
    assert [heard.path for heard in double.heard] == [path]


def test_a_query_argument_cannot_add_a_parameter() -> None:
    _, double = call(PETS, "listPets", {"bornAfter": "x&status=sold#y"}, auth=KEY)
    assert double.last.pairs == [("bornAfter", "x&status=sold#y")]


def test_a_spread_object_may_have_a_name_of_the_path() -> None:
    both = [parameter("id", "path"), parameter("more", "query", **SPREAD)]
    _, double = call(document({"/{id}": {"get": operation(parameters=both)}}), "it", {"id": "1", "more": {"id": "2"}})
    assert (double.last.path, double.last.query) == ("/1", "id=2")


def test_a_cookie_is_encoded_whole_whatever_the_document_allows() -> None:
    source = document({"/it": {"get": operation(parameters=[{**parameter("theme", "cookie"), "allowReserved": True}])}})
    _, double = call(source, "it", {"theme": "a;admin"})
    assert double.last.headers["cookie"] == "theme=a%3Badmin"


@pytest.mark.parametrize(
    "name",
    ["Authorization", "host", "Cookie", "Content-Length", "Transfer-Encoding", "Connection", "X-Forwarded-Host",
     "Proxy-Authorization", "X-HTTP-Method-Override", "X-Original-Host", "True-Client-IP", "Bad Name", "a\r\nb"],
)  # fmt: skip
def test_a_document_cannot_make_an_argument_of_a_header_that_is_ours(name: str) -> None:
    source = document(
        {"/it": {"get": operation(parameters=[parameter(name, "header"), parameter("X-Fine", "header")])}}
    )
    assert list(schema_of(source, "it")["properties"]) == ["X-Fine"]


def test_a_cookie_argument_cannot_begin_another_cookie() -> None:
    _, double = call(PETS, "listPets", {"theme": "a; admin=1"}, auth=KEY)
    assert double.last.headers["cookie"] == "theme=a%3B%20admin%3D1"


# --- answers that lead elsewhere -------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 401])
def test_a_credential_that_the_service_repeats_is_not_shown(status: int) -> None:
    answers = {"GET /pets": Answer({"message": "your key is a-long-s3cret"}, status)}
    result, double = call(PETS, "listPets", {}, answers, auth={"api_key": "a-long-s3cret"})
    assert double.last.headers["x-shop-key"] == "a-long-s3cret"
    assert "s3cret" not in result.text
    assert "your key is ***" in result.text


@pytest.mark.parametrize(
    ("name", "value"),
    [("X-Session-Token", "a-long-s3cret"), ("Authorization", "Custom a-long-s3cret"), ("X-Team", "ghp_a-long-s3cret")],
)
def test_a_credential_in_a_user_header_is_not_shown(name: str, value: str) -> None:
    answers = {"GET /pets": Answer({"message": f"you sent {value}"}, 403)}
    result, double = call(PETS, "listPets", {}, answers, auth=KEY, headers={name: value})
    assert double.last.headers[name.lower()] == value
    assert "you sent ***" in result.text
    assert "s3cret" not in result.text


def test_a_user_header_without_a_credential_is_shown() -> None:
    answers = {"GET /pets": Answer({"message": "there is no team acme-builders"}, 403)}
    result, _ = call(PETS, "listPets", {}, answers, auth=KEY, headers={"X-Team": "acme-builders"})
    assert "there is no team acme-builders" in result.text


def test_a_password_that_the_service_repeats_is_not_shown_in_any_form() -> None:
    said = {"message": "Basic YW5uOmEtbG9uZy1wYXNzd29yZA== is ann with a-long-password"}
    answers = {"DELETE /pets/7": Answer(said, 403)}
    result, _ = call(PETS, "deletePet", {"id": 7}, answers, auth={"staff": "ann:a-long-password"})
    assert result.text == "Pet Shop answered 403: Basic *** is ann with ***"


@pytest.mark.parametrize("charset", ["punycode", "undefined", "unicode_escape", "utf-7", "zlib"])
def test_a_response_in_an_unknown_charset_is_returned_unchanged(charset: str) -> None:
    answers = {"GET /pets": Answer(b"+2AA- \\ud800", content_type=f"text/plain; charset={charset}")}
    result, _ = call(PETS, "listPets", {}, answers, auth=KEY)
    (block,) = result.content
    assert isinstance(block, EmbeddedResource)
    assert block.resource.text == "+2AA- \\ud800"


# --- documents -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reference",
    ["file:///etc/passwd", "/etc/passwd", "http://169.254.169.254/", "https://evil.example/x.json#/a", "other.json", 7],
)
def test_a_reference_that_leaves_the_document_is_refused(reference: Any) -> None:
    with pytest.raises(ConfigError, match="outside the document, which is never fetched"):
        make_server(with_schema({"$ref": reference}), base_url=BASE)


@pytest.mark.parametrize("place", ["parameters", "requestBody", "responses", "path", "operation"])
def test_a_reference_outside_is_refused_wherever_it_stands(place: str) -> None:
    outside = {"$ref": "file:///etc/passwd"}
    broken: dict[str, dict[str, Any]] = {
        "parameters": {"/it": {"get": operation(parameters=[outside])}},
        "requestBody": {"/it": {"post": operation(requestBody=outside)}},
        "responses": {"/it": {"get": operation(responses={"200": outside})}},
        "path": {"/it": outside},
        "operation": {"/it": {"get": outside}},
    }
    with pytest.raises(ConfigError, match="outside the document"):
        make_server(document(broken[place]), base_url=BASE)


def test_a_cycle_of_bare_references_is_refused() -> None:
    there, back = {"$ref": "#/components/schemas/B"}, {"$ref": "#/components/schemas/A"}
    with pytest.raises(ConfigError, match="without an end"):
        make_server(with_schema({"type": "array", "items": there}, A=there, B=back), base_url=BASE)


def test_a_reference_to_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="which is not there"):
        make_server(with_schema({"$ref": "#/components/schemas/Nobody"}), base_url=BASE)


def test_a_schema_made_of_itself_lets_all_pass() -> None:
    itself = {"allOf": [{"$ref": "#/components/schemas/A"}]}
    assert schema_of(with_schema({"type": "array", "items": itself}, A=itself), "it")["$defs"]["A"] == {"allOf": [{}]}


def test_references_that_multiply_stay_references() -> None:
    below = [{"$ref": f"#/components/schemas/L{level}"} for level in range(1, 31)]
    schemas = {
        f"L{level}": {"type": "object", "properties": {f"p{number}": below[level] for number in range(10)}}
        for level in range(30)
    }
    source = with_schema({"type": "array", "items": {"$ref": "#/components/schemas/L0"}}, **schemas, L30={})
    assert len(str(schema_of(source, "it"))) < 20_000


def test_parts_that_multiply_are_looked_at_once() -> None:
    schemas = {f"L{level}": {"allOf": [{"$ref": f"#/components/schemas/L{level + 1}"}] * 10} for level in range(8)}
    source = with_schema({"type": "string"}, **schemas, L8={"type": "string"})
    answer = {"application/json": {"schema": {"$ref": "#/components/schemas/L0"}}}
    source["paths"]["/it"]["post"]["responses"] = {"200": {"description": "OK", "content": answer}}
    source["paths"]["/other"] = {"post": {"requestBody": {"required": True, "content": answer}}}
    # Looked at each time, these are a hundred million parts.
    assert set(make_server(source, base_url=BASE).registry.tools) >= {"it"}


def test_many_names_that_are_alike_take_no_longer_than_others() -> None:
    members = {f"m{number}": {"$ref": f"#/x/{number}/same"} for number in range(5000)}
    source = with_schema({}) | {"x": [{"same": {}}] * 5000}
    translation = SchemaTranslator(read_document(source), inputs=True)
    found = translation.schema({"properties": members})
    assert len({each["$ref"] for each in found["properties"].values()}) == 5000


def test_a_body_of_very_many_members_is_one_argument() -> None:
    members = {f"m{number}": {"type": "string"} for number in range(1000)}
    assert list(schema_of(with_schema({"type": "object", "properties": members}), "it")["properties"]) == ["body"]


def test_a_path_without_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="longer than 2000"):
        make_server(
            document({"/" + "{a}" * 1000: {"get": operation(parameters=[parameter("a", "path")])}}), base_url=BASE
        )


def test_a_schema_nested_too_deeply_is_refused() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(45):
        schema = {"type": "array", "items": schema}
    with pytest.raises(ConfigError, match="nested deeper"):
        make_server(with_schema(schema), base_url=BASE)


@pytest.mark.parametrize(
    "path",
    ["/a/../b", "/a/%2e%2e/b", "//evil.example/x", "no", "/a?x=1", "/a#x", "/a\\b", "/a b", "/a%2fb", "/{a", "/."],
)
def test_a_path_that_leads_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="the path"):
        make_server(document({path: {"get": operation()}}), base_url=BASE)


def test_a_path_variable_without_its_parameter_is_refused() -> None:
    with pytest.raises(ConfigError, match="no such path parameter"):
        make_server(document({"/a/{b}": {"get": operation()}}), base_url=BASE)


def test_a_document_cannot_mirror_arguments_into_headers_of_the_protocol() -> None:
    source = document({"/it": {"get": operation(parameters=[parameter("q", "query", **{"x-mcp-header": "Host"})])}})
    assert schema_of(source, "it")["properties"]["q"] == {}


def test_invisible_characters_are_left_out_of_descriptions() -> None:
    source = document({"/it": {"get": operation(summary="List\u200b\u202e\U000e0041 all\x07")}})
    assert make_server(source, base_url=BASE).registry.tools["it"].listed().description == "List all"


@pytest.mark.parametrize(
    "server",
    [
        "http://169.254.169.254/latest",
        "http://[::ffff:169.254.169.254]/",
        "http://0.0.0.0/",
        "http://[fe80::1]/",
        "http://100.100.100.200/",
        "http://[fd00:ec2::254]/",
        "http://Metadata.Google.Internal/",
    ],
)
def test_a_server_at_an_address_of_the_cloud_is_refused(server: str) -> None:
    with pytest.raises(ConfigError, match="--base-url"):
        make_server(document({"/it": {"get": operation()}}, servers=[{"url": server}]))


@pytest.mark.parametrize(
    "server",
    [
        "file:///etc/passwd",
        "ftp://a.example",
        "https://u:p@a.example",
        "https://a.example/?x=1",
        "https://a.example/../x",
    ],
)
def test_a_server_that_is_no_plain_web_address_is_refused(server: str) -> None:
    with pytest.raises(ConfigError):
        make_server(document({"/it": {"get": operation()}}, servers=[{"url": server}]))


@pytest.mark.parametrize("server", ["http://169.254.169.254/", "https://evil.example/", "http://127.0.0.1:1/"])
def test_a_fetched_document_may_not_name_another_origin(server: str) -> None:
    root = document({"/it": {"get": operation()}}, servers=[{"url": server}])
    with pytest.raises(ConfigError, match="--base-url"):
        make_server(Document(root, "The document", "https://api.example.com/openapi.json"))


def test_a_document_on_a_private_network_is_not_fetched_unless_asked_to() -> None:
    with pytest.raises(ConfigError, match="--allow-private"):
        run_async(fetch_document("https://10.0.0.1/openapi.json"))


def test_aliases_that_multiply_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    lines = ["openapi: 3.1.0", "a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    file = tmp_path / "bomb.yaml"
    file.write_text("\n".join(lines))
    with pytest.raises(ConfigError, match="values in it"):
        make_server(file)


def test_a_document_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "deep.json"
    file.write_text('{"openapi": "3.1.0", "x": ' + "[" * 500 + "]" * 500 + "}")
    with pytest.raises(ConfigError, match="nested"):
        make_server(file)


def test_a_schema_of_endless_choices_drops_one_tool_and_not_the_list(caplog: pytest.LogCaptureFixture) -> None:
    long = {"name": "q", "in": "query", "schema": {"enum": [f"choice {number}" for number in range(20_000)]}}
    paths = {"/it": {"get": operation(parameters=[long])}, "/fine": {"get": {**operation(), "operationId": "fine"}}}
    assert list(make_server(document(paths), base_url=BASE).registry.tools) == ["fine"]
    assert "GET /it is skipped" in caplog.text
