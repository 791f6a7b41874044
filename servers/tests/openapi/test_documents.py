"""Reading a document and finding its server: files, addresses, versions, YAML, and credentials that do not fit."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from servers.tests.commands import started
from servers.tests.openapi.fake_api import Answer, running_double
from servers.tests.openapi.support import PETS, TRACKER, call, document, operation
from trunkline import Client, ConfigError
from trunkline_servers.openapi import fetch_document, make_server, read_document
from trunkline_servers.openapi.__main__ import command
from trunkline_servers.openapi.document import base_url_of

SMALL = document({"/it": {"get": operation()}})
YAML = """\
openapi: 3.0.3
info: {title: Small, version: 1.0}
servers: [{url: "https://api.example.com"}]
paths:
  /it:
    get:
      operationId: it
      parameters:
        - {name: country, in: query, schema: {type: string, enum: [no, se], default: no}}
        - {name: day, in: query, schema: {type: string, example: 2001-01-01}}
      responses:
        200: {description: OK}
"""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ('{"swagger": "2.0"}', "swagger2openapi"),
        ('{"openapi": "2.0"}', "is not an OpenAPI 3 document"),
        ("[]", "must be an object"),
        ('{"openapi": "3.1.0"}', "no operations"),
    ],
    ids=["broken", "swagger", "version", "list", "empty"],
)
def test_an_invalid_document_is_refused_with_the_fix(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "it.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match=message):
        make_server(file)


def test_a_document_that_is_too_large_is_refused() -> None:
    with pytest.raises(ConfigError, match="larger than 100 bytes"):
        read_document(PETS, max_bytes=100)


def test_without_pyyaml_a_yaml_document_is_an_error_that_names_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "it.yaml"
    file.write_text(YAML)
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigError, match=r"pip install pyyaml.*js-yaml"):
        make_server(file)


def test_yaml_is_read_without_surprises(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    file = tmp_path / "it.yaml"
    file.write_text(YAML)
    schema = make_server(file).registry.tools["it"].listed().input_schema
    assert schema["properties"]["country"]["enum"] == ["no", "se"]


async def test_a_fetched_document_is_served_from_where_it_came() -> None:
    async with running_double({"GET /openapi.json": Answer({**SMALL, "servers": [{"url": "/v2"}]})}) as double:
        server = make_server(await fetch_document(f"{double.url}/openapi.json"))
        async with Client(server) as client:
            await client.call_tool("it")
        assert (double.last.path, [heard.method for heard in double.heard]) == ("/v2/it", ["GET", "GET"])


@pytest.mark.parametrize("status", [404, 500])
async def test_a_document_that_is_not_answered_is_an_error(status: int) -> None:
    async with running_double({"GET /openapi.json": Answer(b"", status)}) as double:
        with pytest.raises(ConfigError, match=f"answered {status}"):
            await fetch_document(f"{double.url}/openapi.json")


def test_the_server_of_the_document_is_used_with_its_variables() -> None:
    known = read_document(PETS)
    assert base_url_of(known, None) == "https://eu.petshop.example/v1"
    assert base_url_of(known, None, variables={"region": "us"}) == "https://us.petshop.example/v1"


def test_a_variable_takes_only_what_the_document_lists() -> None:
    with pytest.raises(ConfigError, match="'region' cannot be 'evil"):
        base_url_of(read_document(PETS), None, variables={"region": "evil.example/"})


async def test_an_operation_may_have_its_own_base_on_the_same_origin() -> None:
    async with running_double() as double:
        own = operation(servers=[{"url": f"{double.url}/v9"}])
        paths = {"/it": {"get": own}, "/other": {"get": {**operation(), "operationId": "other"}}}
        source = document(paths, servers=[{"url": f"{double.url}/v1"}])
        async with Client(make_server(source)) as client:
            await client.call_tool("it")
            await client.call_tool("other")
        assert [heard.path for heard in double.heard] == ["/v9/it", "/v1/other"]


@pytest.mark.parametrize(
    ("source", "auth", "message"),
    [
        (PETS, {"nobody": "x"}, "it has: api_key, staff"),
        (PETS, {"staff": "no colon"}, "USER:PASSWORD"),
        (PETS, {"api_key": "a\r\nb"}, "control characters"),
        (TRACKER, {"oauth": ""}, "empty"),
        (TRACKER, {"query_key": "caf\udce9"}, "is not UTF-8"),
    ],
    ids=["unknown", "basic", "control", "empty", "bytes"],
)
def test_an_invalid_credential_is_refused(source: Any, auth: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_server(source, auth=auth)


def test_a_relative_server_of_a_file_needs_a_base_url() -> None:
    with pytest.raises(ConfigError, match="--base-url"):
        make_server(SMALL)


def test_a_document_of_a_later_version_is_read_as_3_1() -> None:
    later = json.loads(json.dumps(SMALL)) | {"openapi": "3.2.0"}
    assert list(make_server(later, base_url="https://api.example.com").registry.tools) == ["it"]


def test_a_body_of_any_type_is_sent_as_json() -> None:
    body = {"required": True, "content": {"*/*": {"schema": {"type": "object", "properties": {"a": {}}}}}}
    _, double = call(document({"/it": {"post": operation(requestBody=body)}}), "it", {"a": [1]})
    assert double.last.headers["content-type"] == "application/json"
    assert double.last.body == b'{"a":[1]}'


@pytest.mark.parametrize(
    ("path", "sent"), [("/größe", "/gr%C3%B6%C3%9Fe"), ('/a"b|c', "/a%22b%7Cc"), ("/a%20b", "/a%20b")]
)
def test_a_path_is_encoded_as_a_url_needs_it(path: str, sent: str) -> None:
    _, double = call(document({path: {"get": operation()}}), "it", {})
    assert double.last.path == sent


async def test_the_options_and_a_key_from_the_environment_reach_the_server() -> None:
    async with running_double({"GET /pets": Answer([{"id": 1}])}) as double:
        options = ["--base-url", double.url, "--read-only", "--tag", "pets", "--auth", "api_key=SHOP_KEY"]
        async with Client(started("openapi", str(PETS), *options, env={"SHOP_KEY": "s3cret"}).server) as client:
            names = [tool.name for tool in await client.list_tools()]
            result = await client.call_tool("listPets", {"limit": 1})
    assert names == ["listPets", "getPet", "checkPet", "getPhoto", "searchPets"]
    assert (result.text, double.last.headers["x-shop-key"]) == ('[{"id": 1}]', "s3cret")


def test_a_document_that_is_not_there_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.json cannot be read"):
        started("openapi", "nowhere.json")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--auth", "api_key=NOT_SET_AT_ALL"], "the variable NOT_SET_AT_ALL is not set"),
        (["--base-url", "ftp://a.example"], "--base-url must be an http or https URL"),
        (["--auth", "nonsense"], "write NAME=VALUE"),
        (["--auth", "api_key=sk-live-1234"], "--auth api_key=...: name the environment variable"),
        (["--read-only", "--method", "POST"], "Nothing is left to offer"),
        (["--server-variable", "region=mars"], "'region' cannot be 'mars'"),
        (["--header", "Bad Name=x"], "cannot be sent"),
    ],
    ids=["auth", "base", "usage", "value", "methods", "variable", "header"],
)
def test_a_setting_that_does_not_fit_is_named(arguments: list[str], message: str) -> None:
    ended = CliRunner().invoke(command, [str(PETS), *arguments])
    assert message in f"{ended.output} {ended.exception}"
    assert "sk-live" not in f"{ended.output} {ended.exception}"


async def test_an_operations_relative_server_is_beside_that_of_the_document() -> None:
    async with running_double() as double:
        source = document({"/it": {"get": operation(servers=[{"url": "/v9"}])}}, servers=[{"url": f"{double.url}/v1"}])
        async with Client(make_server(source)) as client:
            await client.call_tool("it")
        assert double.last.path == "/v9/it"
