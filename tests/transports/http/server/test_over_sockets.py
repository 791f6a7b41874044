"""Whole sessions over real sockets: uvicorn on one side, a plain HTTP client on the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tests.transports.http.serving_support import (
    HANDSHAKE,
    META,
    POLLING,
    Running,
    Workshop,
    initialize,
    modern_headers,
    notification,
    running,
    tool,
)
from trunkline.protocol.sse import EventReader, ServerSentEvent

HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class Web:
    """A client over sockets."""

    def __init__(self, served: Running, web: aiohttp.ClientSession) -> None:
        self.url = f"{served.url}/mcp"
        self.web = web
        self.headers: dict[str, str] = dict(HEADERS)

    async def open(self, revision: str = HANDSHAKE) -> Web:
        async with self.web.post(self.url, json=initialize(revision), headers=self.headers) as opened:
            assert opened.status == 200
            session = opened.headers["mcp-session-id"]
        self.headers |= {"mcp-session-id": session, "mcp-protocol-version": revision}
        async with self.web.post(self.url, json=notification("notifications/initialized"), headers=self.headers) as ok:
            assert ok.status == 202
        return self

    def post(self, message: Any, **headers: str) -> Any:
        return self.web.post(self.url, json=message, headers={**self.headers, **headers})

    def get(self, **headers: str) -> Any:
        return self.web.get(self.url, headers={**self.headers, **headers})


@asynccontextmanager
async def web_to(workshop: Workshop) -> AsyncIterator[Web]:
    async with running(workshop.asgi()) as served, aiohttp.ClientSession() as web:
        yield Web(served, web)


async def events(response: aiohttp.ClientResponse, most: int) -> list[ServerSentEvent]:
    """Read so many events, or all there are."""
    reader, found = EventReader(max_event=1 << 20), list[ServerSentEvent]()
    while len(found) < most and (chunk := await response.content.readany()):
        found += reader.feed(chunk)
    return found[:most]


async def test_a_stateless_call_is_answered_with_json() -> None:
    async with web_to(Workshop()) as client:
        headers = {name: value for name, value in modern_headers("tools/call", "add").items() if value is not None}
        async with client.post(tool("add", meta=META), **headers) as response:
            answer = await response.json()
    assert (response.status, response.content_type, answer["result"]["structuredContent"]) == (
        200, "application/json", {"result": 3},
    )  # fmt: skip


async def test_a_session_is_opened_used_and_ended() -> None:
    workshop = Workshop()
    async with web_to(workshop) as client:
        await client.open()
        async with client.post(tool("steps")) as response:
            told = await events(response, 100)
        async with client.web.delete(client.url, headers=client.headers) as ended:
            assert ended.status == 204
        async with client.post(tool("add")) as gone:
            assert gone.status == 404
    assert [bool(event.data) for event in told] == [False, True, True, True, True]


async def test_a_change_is_sent_on_the_get_stream() -> None:
    workshop = Workshop()
    async with web_to(workshop) as client:
        await client.open()
        async with client.get() as stream:
            async with client.post(tool("grow")) as response:
                await response.read()
            found = await events(stream, 2)
    assert json.loads(found[-1].data)["method"] == "notifications/tools/list_changed"


@pytest.mark.parametrize("cut", [1, 2, 3, 5])
async def test_a_stream_whose_connection_breaks_is_resumed_without_loss(cut: int) -> None:
    workshop = Workshop()
    async with web_to(workshop) as client:
        await client.open(POLLING)
        async with client.post(tool("steps", n=5)) as response:
            first = await events(response, cut)
            response.close()
        async with client.get(**{"last-event-id": first[-1].id or ""}) as stream:
            rest = await events(stream, 100)
    messages = [json.loads(event.data) for event in first + rest if event.data]
    assert [message["params"]["data"] for message in messages[:-1]] == [f"step {n}" for n in range(5)]
    assert messages[-1]["id"] == 1


async def test_many_clients_with_one_id_at_once_each_get_their_own_answer() -> None:
    workshop = Workshop()
    async with web_to(workshop) as client:
        await client.open()

        async def call(number: int) -> Any:
            async with client.post(tool("add", id=1, a=number, b=0)) as response:
                return (await response.json())["result"]["content"][0]["text"]

        answers = await asyncio.gather(*(call(number) for number in range(40)))
    assert answers == [str(number) for number in range(40)]


async def test_one_connection_serves_many_requests() -> None:
    async with running(Workshop().asgi()) as served:
        reader, writer = await served.connect()
        body = json.dumps(tool("add", meta=META)).encode()
        head = (
            b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            b"mcp-protocol-version: %b\r\nmcp-method: tools/call\r\nmcp-name: add\r\ncontent-length: %d\r\n\r\n"
        )
        found = []
        for _ in range(3):
            writer.write(head % (META["io.modelcontextprotocol/protocolVersion"].encode(), len(body)) + body)  # type: ignore[attr-defined]
            answer = await reader.readuntil(b"\r\n\r\n")
            size = int(answer.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            found.append(json.loads(await reader.readexactly(size))["result"]["structuredContent"])
        writer.close()
    assert found == [{"result": 3}] * 3


async def test_a_client_that_disconnects_in_a_session_cancels_nothing() -> None:
    workshop = Workshop()
    async with web_to(workshop) as client:
        await client.open()
        async with client.post(tool("wait", say="hello")) as response:
            await events(response, 2)
            response.close()
        await asyncio.sleep(0.1)
        workshop.proceed.set()
        async with client.post(tool("add")) as again:
            assert again.status == 200
    assert not workshop.cancelled.is_set()
