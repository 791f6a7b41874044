"""The oldest HTTP transport: one stream with all messages, and a URL to post to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.transports.http.serving_support import (
    Call,
    Workshop,
    ask,
    authenticate,
    initialize,
    notification,
    request,
    tool,
    until,
)
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import HANDSHAKE_NAMES
from trunkline.server.runtime import runtime_for

OLDEST = HANDSHAKE_NAMES[0]


class OldClient:
    """A client of the oldest transport."""

    def __init__(self, app: Any, path: str = "/mcp/sse", *, token: str | None = None, root_path: str = "") -> None:
        self.app = app
        self.headers = {"authorization": None if token is None else f"Bearer {token}", "accept": "text/event-stream"}
        self.root_path = root_path
        self.stream = ask(app, "GET", path, headers=self.headers, root_path=root_path)
        self.address = ""

    async def open(self, *, ready: bool = True, capabilities: Any = None) -> OldClient:
        event = await self.stream.event()
        assert event.event == "endpoint"
        self.address = event.data.decode()
        if ready:
            await self.post(initialize(OLDEST, capabilities)).whole()
            assert (await self.stream.message())["result"]["protocolVersion"] == OLDEST
            await self.post(notification("notifications/initialized")).whole()
        return self

    def post(self, message: Any, **headers: str | None) -> Call:
        path, _, query = self.address.removeprefix(self.root_path).partition("?")
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        given = {**self.headers, "accept": None, **headers}
        return ask(self.app, "POST", path, body=body, headers=given, query=query.encode(), root_path=self.root_path)

    async def call(self, message: dict[str, Any]) -> Any:
        assert (await self.post(message).whole()).status == 202
        return await self.stream.message()

    async def close(self) -> None:
        self.stream.hang_up()
        await self.stream.ended()


@pytest.mark.parametrize("path", ["/mcp/sse", "/mcp", "/mcp/"])
async def test_the_first_event_names_the_url_to_post_to(path: str) -> None:
    client = OldClient(Workshop().asgi(), path)
    first = await client.stream.opening()
    assert (first.event, first.id) == ("endpoint", None)
    assert first.data.startswith(b"/mcp/messages?session_id=")
    # The name of its worker, and the same sealed, which no client can make: 16 bytes of it are the tag.
    worker, dash, sealed = first.data.rpartition(b"=")[2].partition(b"-")
    assert (len(worker), dash, len(sealed)) == (12, b"-", 55)
    await client.close()


async def test_a_get_that_does_not_accept_events_is_told_that_this_is_an_mcp_endpoint() -> None:
    for accept in (None, "*/*", "text/html,application/xhtml+xml,*/*;q=0.8"):
        call = await ask(Workshop().asgi(), "GET", headers={"accept": accept}).whole()
        assert (call.status, "This is an MCP endpoint" in call.json["error"]["message"]) == (406, True)


async def test_the_end_of_the_stream_cancels_its_requests() -> None:
    workshop = Workshop()
    client = await OldClient(workshop.asgi()).open()
    await client.post(tool("wait")).whole()
    await workshop.started.wait()
    await client.close()
    await workshop.cancelled.wait()
    await until(lambda: runtime_for(workshop.server).hub.listeners() == ())


async def test_a_cancellation_is_a_message_like_any_other() -> None:
    workshop = Workshop()
    client = await OldClient(workshop.asgi()).open()
    await client.post(tool("wait", id=5)).whole()
    await workshop.started.wait()
    await client.post(notification("notifications/cancelled", {"requestId": 5})).whole()
    await workshop.cancelled.wait()
    assert (await client.call(tool("add", id=6)))["id"] == 6
    await client.close()


async def test_an_unknown_session_is_not_found() -> None:
    client = await OldClient(Workshop().asgi()).open()
    path, _, own = client.address.partition("?")
    queries = [b"", b"session_id=", b"session_id=unknown", b"session_id=%zz&&=&;", f"{own}&session_id=other".encode()]
    queries += [b"&".join(b"a%d=1" % n for n in range(500)), b"\xff\xfe=1", b"x" * 100_000]
    body = json.dumps(tool("add")).encode()
    calls = [await ask(client.app, "POST", path, body=body, query=query).whole() for query in queries]
    assert [call.error for call in calls] == [(404, -32600)] * len(queries)
    await client.close()


async def test_only_the_principal_that_opened_a_stream_may_post_to_it() -> None:
    workshop = Workshop()
    client = await OldClient(workshop.asgi(auth=authenticate), token="ada").open()
    tokens = ["Bearer eve", None]
    refused = [(await client.post(tool("add"), authorization=token).whole()).status for token in tokens]
    assert (refused, workshop.count) == ([404, 401], 0)
    assert (await client.call(tool("who")))["result"]["content"][0]["text"] == "ada"
    await client.close()


async def test_a_stream_is_not_opened_for_an_unauthorized_client() -> None:
    app = Workshop().asgi(auth=authenticate)
    calls = [await ask(app, "GET", path).whole() for path in ("/mcp", "/mcp/sse")]
    assert [call.status for call in calls] == [401, 401]


async def test_what_is_no_message_is_refused_and_a_batch_on_the_stream() -> None:
    client = await OldClient(Workshop().asgi()).open()
    assert (await client.post(b'{"jsonrpc":"2.0","id":7}').whole()).error == (400, -32600)
    answer = await client.call([tool("add")])  # type: ignore[arg-type]
    assert (answer["error"]["code"], answer["id"]) == (-32600, None)
    await client.close()


@pytest.mark.parametrize(("path", "status"), [("/mcp", 405), ("/mcp/sse", 404), ("/mcp/messages", 404)])
async def test_the_legacy_transport_can_be_disabled(path: str, status: int) -> None:
    assert (await ask(Workshop().asgi(sse=False), "GET", path).whole()).status == status


async def test_the_legacy_paths_are_configurable() -> None:
    app = Workshop().asgi(sse_path="/sse", message_path="/messages/")
    client = await OldClient(app, "/sse").open()
    assert client.address.startswith("/messages/?session_id=")
    assert (await client.call(tool("add")))["id"] == 1
    assert (await ask(app, "GET", "/mcp/sse").whole()).status == 404
    await client.close()


async def test_the_message_url_includes_the_mount_path() -> None:
    client = await OldClient(Workshop().asgi(), root_path="/a b/\u00e9").open(ready=False)
    assert client.address.startswith("/a%20b/%C3%A9/mcp/messages?session_id=")
    await client.close()


async def test_no_more_streams_are_opened_than_allowed() -> None:
    app = Workshop(Limits(sessions=1)).asgi()
    client = await OldClient(app).open()
    refused = await ask(app, "GET", "/mcp/sse").whole()
    await client.close()
    again = await OldClient(app).open()
    await again.close()
    assert refused.status == 503


async def test_a_body_that_is_too_long_is_refused() -> None:
    client = await OldClient(Workshop(Limits(body_bytes=1000)).asgi()).open()
    calls = [client.post(b" " * 2000, content_length=declared) for declared in (None, "2000")]
    assert [(await call.whole()).status for call in calls] == [413, 413]
    await client.close()


async def test_a_request_before_initialize_is_refused_on_the_stream() -> None:
    client = await OldClient(Workshop().asgi()).open(ready=False)
    assert (await client.call(request("tools/list")))["error"]["code"] == -32602
    await client.close()


async def test_an_answer_that_cannot_be_encoded_becomes_an_error() -> None:
    workshop = Workshop()
    workshop.server.method("x/odd")(lambda params: {"value": float("nan")})
    client = await OldClient(workshop.asgi()).open()
    assert (await client.call(request("x/odd", {})))["id"] == 1
    await client.close()
