"""The doors of the gateway: made-up headers, made-up tokens, and other ways to what is hidden."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.host.gateway.support import NEW, OLD, Web, over_http
from trunkline import Server
from trunkline.auth.static_tokens import StaticTokens
from trunkline.errors import TrunklineError
from trunkline.host.authorization.policy.loader import parse_policy
from trunkline.host.host import Host

ADA, BEA = "ada-" * 8, "bea-" * 8
POLICY = parse_policy(
    '[[rule]]\neffect = "allow"\nserver = "o"\ntool = "*"\n'
    '[[rule]]\neffect = "deny"\nserver = "o"\ntool = "secret"\nprincipal = "ada"\n',
    file="policy.toml",
)


@asynccontextmanager
async def _served(folder: Path, ran: list[str]) -> AsyncIterator[Web]:
    """Serve a tool that everybody may call, and one that is not for Ada."""
    server = Server("office")

    @server.tool
    async def plain() -> str:
        ran.append("plain")
        return "plain"

    @server.tool
    async def secret() -> str:
        ran.append("secret")
        return "secret"

    users = StaticTokens({ADA: "ada", BEA: "bea"})
    async with Host.open({"o": server}, folder=folder, policy=POLICY) as host, over_http(host, auth=users) as web:
        yield web


PRETENDED = [
    "X-Forwarded-User",
    "X-Forwarded-Email",
    "X-Remote-User",
    "Remote-User",
    "X-User",
    "X-Auth-Request-User",
    "X-Principal",
    "X-Trunkline-Principal",
    "Trunkline-Principal",
    "X-Original-URL",
    "X-Rewrite-URL",
    "X-Internal",
    "X-Mcp-Internal",
    "Mcp-Principal",
]


def _call(name: str) -> dict[str, Any]:
    client = {"name": "x", "version": "1"}
    meta = {
        "io.modelcontextprotocol/protocolVersion": NEW,
        "io.modelcontextprotocol/clientInfo": client,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": {}, "_meta": meta}}


async def _post(web: Web, body: Any, **headers: str) -> tuple[int, str]:
    usual = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": NEW,
        "Mcp-Method": "tools/call",
        **headers,
    }
    async with (
        aiohttp.ClientSession() as session,
        session.post(web.url, data=json.dumps(body), headers=usual) as answer,
    ):
        return answer.status, await answer.text()


async def test_no_header_makes_an_anonymous_caller_a_principal(tmp_path: Path) -> None:
    ran: list[str] = []
    async with _served(tmp_path, ran) as web:
        statuses = {
            header: (await _post(web, _call("o__plain"), **{header: "bea", "Mcp-Name": "o__plain"}))[0]
            for header in PRETENDED
        }
    assert (statuses, ran) == (dict.fromkeys(PRETENDED, 401), [])


async def test_no_header_changes_the_principal(tmp_path: Path) -> None:
    ran: list[str] = []
    async with _served(tmp_path, ran) as web:
        headers = {**dict.fromkeys(PRETENDED, "bea"), "Authorization": f"Bearer {ADA}"}
        _, text = await _post(web, _call("o__secret"), **headers, **{"Mcp-Name": "o__secret"})
        served, _ = await _post(web, _call("o__plain"), **headers, **{"Mcp-Name": "o__plain"})
    assert "Unknown tool" in text
    assert (served, ran) == (200, ["plain"])
    trail = (tmp_path / "audit.jsonl").read_text(encoding="utf-8")
    assert '"principal":"ada"' in trail
    assert '"principal":"bea"' not in trail


async def test_a_made_up_token_opens_no_route(tmp_path: Path) -> None:
    ran: list[str] = []
    tokens = ("Bearer x", "Bearer ", "Basic YWRhOmFkYQ==", f"bearer{ADA}", f"Bearer {ADA[:-1]}", f"Bearer {ADA}x")
    requests = [
        ("GET", ""),
        ("POST", "/"),
        ("DELETE", "/x"),
        ("PUT", "/.well-known/x"),
        ("POST", "/../"),
        ("GET", "//"),
    ]
    async with _served(tmp_path, ran) as web, aiohttp.ClientSession() as session:
        statuses = {
            (token, method, path): (
                await session.request(method, web.url + path, headers={"Authorization": token})
            ).status
            for token in tokens
            for method, path in requests
        }
    assert {request: status for request, status in statuses.items() if status not in (400, 401, 404, 405)} == {}
    assert ran == []


@pytest.mark.parametrize("channel", [OLD, NEW], ids=["handshake", "stateless"])
async def test_no_other_name_leads_to_a_hidden_tool(channel: str, tmp_path: Path) -> None:
    ran: list[str] = []
    async with _served(tmp_path, ran) as web, web.client(channel, token=ADA) as client:
        assert [each.name for each in await client.list_tools()] == ["o__plain"]
        for name in ("o__secret", "o/secret", "O__secret", "o__secret\u0000", " o__secret", "secret"):
            with pytest.raises(TrunklineError, match=r"Unknown tool|Invalid"):
                await client.call_tool(name)
    assert ran == []


async def test_a_hidden_tool_is_not_reached_in_a_batch(tmp_path: Path) -> None:
    ran: list[str] = []
    async with _served(tmp_path, ran) as web:
        headers = {"Authorization": f"Bearer {ADA}", "Mcp-Name": "o__plain"}
        status, text = await _post(web, [_call("o__plain"), _call("o__secret")], **headers)
    assert (400 <= status < 500, ran) == (True, [])
    assert "secret" not in text
