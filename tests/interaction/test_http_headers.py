"""Streamable HTTP without sessions: the headers that mirror the body, and what becomes of a request whose do not."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.interaction.posting import code_of, post, request, web
from tests.interaction.rows import HANDSHAKE, STATELESS, http_behaviour
from tests.interaction.wire import Peer, Wire

CALL = {"name": "add", "arguments": {"a": 1, "b": 2}}
NAMED = {
    "tools/call": {"name": "who"},
    "prompts/get": {"name": "greet", "arguments": {"name": "Ada"}},
    "resources/read": {"uri": "note://one"},
}


@http_behaviour("http.header-missing", "2026-07-28 basic/transports/streamable-http#server-validation", STATELESS)
@pytest.mark.parametrize("header", ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"])
async def test_a_request_without_a_header_that_it_needs_is_a_bad_request(wire: Wire, header: str) -> None:
    async with wire.open("catalog") as peer:
        reply = await post(peer, request(peer, "tools/call", CALL), without=header)
        assert (code_of(reply), json.loads(reply.body)["id"]) == ((400, -32020), "r")


@http_behaviour(
    "http.header-name-missing", "2026-07-28 basic/transports/streamable-http#standard-request-headers", STATELESS
)
@pytest.mark.parametrize("method", NAMED)
async def test_every_method_with_a_name_needs_it_in_a_header(wire: Wire, method: str) -> None:
    async with wire.open("catalog") as peer:
        assert code_of(await post(peer, request(peer, method, NAMED[method]), without="Mcp-Name")) == (400, -32020)


@http_behaviour("http.header-other", "2026-07-28 basic/transports/streamable-http#server-validation", STATELESS)
@pytest.mark.parametrize(
    "headers",
    [
        {"Mcp_Method": "tools/list"},
        {"Mcp_Method": "Tools/Call"},
        {"Mcp_Name": "echo"},
        {"Mcp_Name": "ADD"},
        {"Mcp_Name": "=?base64?ZWNobw==?="},
        {"Mcp_Name": "=?base64?!!!?="},
        {"Mcp_Name": "=?BASE64?YWRk?="},
    ],
    ids=str,
)
async def test_a_header_that_differs_from_the_body_is_a_bad_request(wire: Wire, headers: Any) -> None:
    async with wire.open("catalog") as peer:
        assert code_of(await post(peer, request(peer, "tools/call", CALL), **headers)) == (400, -32020)


@http_behaviour(
    "http.header-version-other", "2026-07-28 basic/transports/streamable-http#protocol-version-header", STATELESS
)
@pytest.mark.parametrize("version", ["2099-01-01", *HANDSHAKE])
async def test_a_version_in_the_header_that_is_not_the_bodys_is_a_bad_request(wire: Wire, version: str) -> None:
    async with wire.open("catalog") as peer:
        assert code_of(await post(peer, request(peer), MCP_Protocol_Version=version)) == (400, -32020)


@http_behaviour("http.header-encoded", "2026-07-28 basic/transports/streamable-http#value-encoding", STATELESS)
async def test_a_name_may_be_encoded(wire: Wire) -> None:
    encoded = f"=?base64?{base64.b64encode(b'add').decode()}?="
    async with wire.open("catalog") as peer:
        assert (await post(peer, request(peer, "tools/call", CALL), Mcp_Name=encoded)).status == 200


@http_behaviour("http.header-case", "2026-07-28 basic/transports/streamable-http#case-sensitivity", STATELESS)
async def test_the_case_of_a_headers_name_does_not_matter(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        message = request(peer, "tools/call", CALL)
        shouted = {name.upper(): value for name, value in web(peer).headers(message).items()}
        assert (await web(peer).exchange("POST", shouted, data=json.dumps(message).encode())).status == 200


def query(peer: Peer, **arguments: Any) -> dict[str, Any]:
    """Call the tool with arguments that are mirrored."""
    return request(peer, "tools/call", {"name": "query", "arguments": arguments})


@http_behaviour(
    "http.param", "2026-07-28 basic/transports/streamable-http#server-behavior-for-custom-headers", STATELESS
)
@pytest.mark.parametrize(
    ("arguments", "headers", "text"),
    [
        ({"region": "us-west1"}, {"Mcp_Param_Region": "us-west1"}, "us-west1 None None"),
        ({"region": "žluť"}, {"Mcp_Param_Region": "=?base64?xb5sdcWl?="}, "žluť None None"),
        ({"region": " padded "}, {"Mcp_Param_Region": "=?base64?IHBhZGRlZCA=?="}, " padded  None None"),
        ({"limit": 42}, {"Mcp_Param_Limit": "42"}, "None 42 None"),
        ({"limit": 42}, {"Mcp_Param_Limit": "42.0"}, "None 42 None"),
        ({"exact": True}, {"Mcp_Param_Exact": "true"}, "None None True"),
        ({"region": None}, {}, "None None None"),
        ({}, {}, "None None None"),
        ({}, {"Mcp_Param_Unheard": "of"}, "None None None"),
    ],
    ids=str,
)
async def test_an_argument_that_is_mirrored_as_it_should_be_is_taken(
    wire: Wire, arguments: Any, headers: Any, text: str
) -> None:
    async with wire.open("streaming") as peer:
        reply = await post(peer, query(peer, **arguments), **headers)
        assert reply.messages[0]["result"]["content"][0]["text"] == text


@http_behaviour(
    "http.param-wrong", "2026-07-28 basic/transports/streamable-http#server-behavior-for-custom-headers", STATELESS
)
@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "us-west1"}, {}),
        ({"region": "us-west1"}, {"Mcp_Param_Region": "us-east1"}),
        ({"region": "us-west1"}, {"Mcp_Param_Region": "US-WEST1"}),
        ({"region": "us-west1"}, {"Mcp_Param_Region": "=?base64?%%%?="}),
        ({"limit": 42}, {"Mcp_Param_Limit": "43"}),
        ({"exact": True}, {"Mcp_Param_Exact": "false"}),
    ],
    ids=str,
)
async def test_an_argument_that_is_not_mirrored_as_it_should_be_is_a_bad_request(
    wire: Wire, arguments: Any, headers: Any
) -> None:
    async with wire.open("streaming") as peer:
        assert code_of(await post(peer, query(peer, **arguments), **headers)) == (400, -32020)
