"""What the fault test found, each in a test of its own."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from pathlib import Path

import pytest

import trunkline.types as t
from tests.host.gateway.support import until
from tests.support import run_async
from trunkline import Server
from trunkline.host.authorization.policy.loader import parse_policy
from trunkline.host.gateway.registry import rewrite_result
from trunkline.host.host import Host
from trunkline.protocol.jsonrpc import Notification, Outbound
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import NEWEST_HANDSHAKE
from trunkline.transports.http.client.http_client import HttpClientOptions
from trunkline.transports.http.client.link import HttpLink


@pytest.mark.parametrize("kind", ["whatever", "input_required", "task"])
def test_a_server_cannot_say_of_what_kind_a_result_of_the_gateway_is(kind: str) -> None:
    result = t.CallToolResult(content=[t.TextContent(text="done")], result_type=kind)
    assert rewrite_result(result, "a").result_type is None


def test_a_link_that_closes_while_it_says_that_it_is_ready_does_not_begin_to_listen(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[bytes] = []

    async def main() -> None:
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append(await reader.readuntil(b" "))
            asked.set()
            await go_on.wait()
            writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            link = HttpLink(HttpClientOptions(url=f"http://127.0.0.1:{port}/mcp"), Limits())
            link.set_revision(NEWEST_HANDSHAKE)
            link.send([Outbound(Notification("notifications/initialized"))])
            await asked.wait()
            closing = asyncio.create_task(link.aclose())
            await asyncio.sleep(0)
            go_on.set()
            await closing
            # Whoever had begun to listen would fail now, at the first thing it does.
            await asyncio.sleep(0.05)

    with caplog.at_level(logging.ERROR, "trunkline"):
        run_async(main())
    assert heard == [b"POST "]
    assert caplog.records == []


async def test_a_server_that_was_taken_out_is_forgotten(tmp_path: Path) -> None:
    server = Server("a")

    @server.tool
    def ping() -> str:
        """Answer."""
        return "pong"

    rules = parse_policy('[[rule]]\neffect = "allow"\nserver = "a"\ntool = "*"\n', file="policy.toml")

    async with Host.open({"a": server}, folder=tmp_path, policy=rules, audit=False) as host:
        await host.call_tool("a/ping")
        upstream = weakref.ref(host._open.core.upstream("a"))
        await host.remove_server("a")

        def is_forgotten() -> bool:
            gc.collect()
            return upstream() is None

        # Its owner is done in the next turns of the loop.
        await until(is_forgotten)
