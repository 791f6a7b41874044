"""A reference server over HTTP with scopes: which callers may write depends on their tokens."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from servers.tests.over_http import listening
from tests.transports.http.serving_support import HANDSHAKE, META, STATELESS, initialize, modern_headers, request, tool

ANN, BEN = "a-token-for-ann-0123456789", "a-token-for-ben-0123456789"
#: Ann may read and write, Ben may read.
CALLERS = {"CALLERS": f"ann:{ANN} shop:read shop:write,ben:{BEN} shop:read"}
MAKE = tool("create_table", query="create table t (x)")


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    json: Any


def _post(url: str, message: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=120)
    try:
        given = {"content-type": "application/json", "accept": "application/json, text/event-stream", **headers}
        connection.request("POST", place.path, json.dumps(message), given)
        answer = connection.getresponse()
        text = answer.read().decode()
        last = text.rpartition("data: ")[2] if text.startswith(("data:", "event:", "id:")) else text
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, json.loads(last))
    finally:
        connection.close()


async def send(url: str, era: str, message: dict[str, Any], token: str) -> Answer:
    """Send a request as a client of an era does, on connections of its own."""
    headers = {"authorization": f"Bearer {token}"}
    if era == STATELESS:
        params = {**message.get("params", {}), "_meta": META}
        headers |= modern_headers(message["method"], params.get("name"))
        return await asyncio.to_thread(_post, url, {**message, "params": params}, headers)
    opened = await asyncio.to_thread(_post, url, initialize(era), headers)
    headers |= {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": era}
    return await asyncio.to_thread(_post, url, message, headers)


async def test_a_read_only_caller_sees_and_can_call_no_tool_that_writes(tmp_path: Path) -> None:
    arguments = ("--db-path", str(tmp_path / "a.db"), "--read-scope", "shop:read", "--write-scope", "shop:write")
    async with listening("sqlite", *arguments, env=CALLERS) as url:
        assert (await send(url, STATELESS, MAKE, "a-token-of-nobody")).status == 401
        for number, era in enumerate((STATELESS, HANDSHAKE)):
            listed = await send(url, era, request("tools/list"), BEN)
            assert {each["annotations"]["readOnlyHint"] for each in listed.json["result"]["tools"]} == {True}
            make = tool("create_table", query=f"create table t{number} (x)")
            refused = await send(url, era, make, BEN)
            assert refused.status == 403
            assert 'error="insufficient_scope"' in refused.headers["www-authenticate"]
            assert 'scope="shop:write"' in refused.headers["www-authenticate"]
            served = await send(url, era, make, ANN)
            assert "Table created" in served.json["result"]["content"][0]["text"]
