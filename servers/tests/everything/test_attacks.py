"""Attacks: internal addresses, endless responses, hidden tools, and the state of other callers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from servers.tests.everything.support import HANDSHAKE, STATELESS, call, connected
from tests.net.origins import answer, origin, redirect
from tests.support import run_async
from trunkline import RequestFailed, Server, ToolError
from trunkline.net import Fetcher
from trunkline_servers.everything import make_server
from trunkline_servers.everything.state import ServerState

TOOL = "gzip-file-as-resource"

PRIVATE = [
    "https://127.0.0.1/",
    "https://localhost/",
    "https://10.0.0.1/",
    "https://192.168.1.1/",
    "https://169.254.169.254/latest/meta-data/",
    "https://[::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://2130706433/",
    "https://0/",
    "https://0x7f.1/",
    "http://example.com/",
]


@pytest.mark.parametrize("url", PRIVATE)
def test_nothing_is_fetched_from_where_only_the_server_can_reach(url: str) -> None:
    async def main() -> None:
        async with connected(STATELESS) as client:
            await call(client, TOOL, data=url)

    with pytest.raises(ToolError):
        run_async(main())


def test_a_name_that_resolves_to_a_private_address_is_refused() -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["93.184.216.34", "10.0.0.7"]

    async def main() -> None:
        server = make_server(numbered=0, fetcher=Fetcher(resolve=resolve))
        async with connected(HANDSHAKE, server) as client:
            await call(client, TOOL, data="https://rebound.example/")

    with pytest.raises(ToolError, match=r"10\.0\.0\.7"):
        run_async(main())


def test_a_redirect_to_a_private_address_is_refused() -> None:
    async def main() -> None:
        server = make_server(numbered=0, fetcher=Fetcher(allow_loopback=True))
        async with origin({"/a": redirect("https://169.254.169.254/")}) as web, connected(HANDSHAKE, server) as client:
            await call(client, TOOL, data=f"{web.url}/a")

    with pytest.raises(ToolError, match=r"169\.254\.169\.254"):
        run_async(main())


async def _endless(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2000)
    await writer.drain()
    await asyncio.sleep(3600)


def test_an_answer_without_end_is_cut_at_the_cap() -> None:
    async def main() -> None:
        server = make_server(numbered=0, fetcher=Fetcher(allow_loopback=True), max_fetch_bytes=1000)
        async with origin({"/a": _endless}) as web, connected(HANDSHAKE, server) as client:
            await call(client, TOOL, data=f"{web.url}/a")

    with pytest.raises(ToolError, match="the limit is 1000 bytes"):
        run_async(main())


def test_an_answer_that_never_comes_is_given_up() -> None:
    async def main() -> None:
        server = make_server(numbered=0, fetcher=Fetcher(allow_loopback=True), fetch_seconds=0.05)
        async with origin({"/a": _endless}) as web, connected(HANDSHAKE, server) as client:
            await call(client, TOOL, data=f"{web.url}/a")

    with pytest.raises(ToolError, match="took too long"):
        run_async(main())


def test_a_compressed_answer_is_refused() -> None:
    bomb = answer(b"\x1f\x8b", "Content-Encoding: gzip")

    async def main() -> None:
        server = make_server(numbered=0, fetcher=Fetcher(allow_loopback=True))
        async with origin({"/a": bomb}) as web, connected(HANDSHAKE, server) as client:
            await call(client, TOOL, data=f"{web.url}/a")

    with pytest.raises(ToolError, match="Content-Encoding"):
        run_async(main())


def test_a_handle_that_was_guessed_opens_nothing() -> None:
    async def main() -> None:
        async with connected(STATELESS) as client:
            await call(client, TOOL, name="a.gz", data="data:,x")
            await client.read_resource(f"demo://resource/kept/{'0' * 32}/a.gz")

    with pytest.raises(RequestFailed, match="gone"):
        run_async(main())


@pytest.mark.parametrize("tool", ["trigger-sampling-request", "ask-everything", "trigger-url-elicitation"])
def test_a_hidden_tool_cannot_be_reached_by_its_name(tool: str) -> None:
    async def main(server: Server) -> Any:
        async with connected(
            STATELESS, server, elicitation=None, elicitation_urls=False, sampling=None, sampling_tools=False, roots=None
        ) as client:
            await client.call_tool(tool, {"prompt": "x", "url": "https://example.com/"})

    with pytest.raises(RequestFailed, match="Unknown tool"):
        run_async(main(make_server(numbered=0)))


@pytest.mark.parametrize(
    "given",
    [{"elicitationId": "x" * 257}, {"elicitationId": "a\nb"}, {"url": "https://example.com/" + "x" * 2_000}],
    ids=["id", "unseen-id", "url"],
)
def test_the_remembered_pages_are_bounded(given: dict[str, str]) -> None:
    async def main() -> None:
        async with connected(HANDSHAKE) as client:
            await call(client, "trigger-url-elicitation", **{"url": "https://example.com/", "errorPath": True, **given})

    with pytest.raises(ToolError, match="characters"):
        run_async(main())


def test_the_oldest_pages_that_must_be_visited_are_dropped() -> None:
    state = ServerState(interval=1, files=1, file_bytes=1)

    assert all(state.issue_once(number) for number in range(257))
    assert (state.issue_once(0), state.issue_once(256)) == (True, False)


def test_internal_errors_are_not_revealed() -> None:
    async def main() -> str:
        async with connected(HANDSHAKE) as client:
            return str((await client.call_tool("fail", {"how": "crash"}, raise_on_error=False)).text)

    assert "defect" not in run_async(main())
