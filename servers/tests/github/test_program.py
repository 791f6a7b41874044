"""The GitHub server as a program: over stdio, and over HTTP with a token."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import pytest
from aiohttp import ClientSession
from click.testing import CliRunner

from examples.code_review.github_double import GitHubDouble
from servers.tests.github.support import PROJECT, SECRET
from servers.tests.over_http import TOKEN, listening, texts
from tests.support import run_async
from trunkline import Client, RequestFailed
from trunkline_servers.github.__main__ import command

PULL = {**PROJECT, "pr_number": 42}


@pytest.mark.parametrize("variable", ["GITHUB_PERSONAL_ACCESS_TOKEN", "GITHUB_TOKEN"])
async def test_over_stdio_the_token_comes_from_the_environment(variable: str) -> None:
    double = GitHubDouble(token=SECRET)
    program = [sys.executable, "-m", "trunkline_servers.github"]
    async with double.running() as url, Client(program, env={variable: SECRET, "GITHUB_API_URL": url}) as client:
        await client.call_tool("get_pull_request", PULL)
    assert double.seen[0].authorization == f"Bearer {SECRET}"


def test_a_client_that_can_only_open_pages_is_not_asked_to_confirm_a_merge() -> None:
    async def main() -> bytes:
        double = GitHubDouble(token=SECRET)
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"url": {}}},
        }
        params = {"name": "merge_pull_request", "arguments": PULL, "_meta": meta}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        async with double.running() as url:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "trunkline_servers.github"),
                env={**os.environ, "GITHUB_PERSONAL_ACCESS_TOKEN": SECRET, "GITHUB_API_URL": url},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(call).encode() + b"\n")
            line = await process.stdout.readline()
            process.stdin.close()
            await process.wait()
            return line

    (content,) = json.loads(run_async(main()))["result"]["content"]
    assert json.loads(content["text"])["merged"] is True


async def test_http_without_a_token_is_rejected() -> None:
    double = GitHubDouble(token=SECRET)
    env = {"GITHUB_PERSONAL_ACCESS_TOKEN": SECRET}
    async with double.running() as api, listening("github", "--api-url", api, env=env) as url:
        with pytest.raises(RequestFailed) as refused:
            await Client(url).__aenter__()
        assert refused.value.status == 401
        assert double.seen == []
        async with Client(url, auth=TOKEN) as client:
            result = await client.call_tool("get_pull_request", PULL)
    assert '"number": 42' in texts(result)[0]
    assert TOKEN not in str(double.seen)


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}], ids=["rebound-name", "other-page"]
)
def test_a_web_page_is_rejected_over_http_even_with_a_token(headers: dict[str, str]) -> None:
    async def main() -> int:
        sent = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json, text/event-stream", **headers}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        async with (
            listening("github", env={}) as url,
            ClientSession() as browser,
            browser.post(url, json=body, headers=sent) as response,
        ):
            return response.status

    assert run_async(main()) == 403


def test_the_help_names_the_variables() -> None:
    shown = CliRunner().invoke(command, ["--help"]).output
    assert "GITHUB_PERSONAL_ACCESS_TOKEN" in shown
    assert "--confirm-merges" in shown
