"""The form of a response: JSON if the answer is sent first, else an event stream; and what clients accept."""

from __future__ import annotations

from typing import Any

import pytest

import trunkline.types as t
from tests.transports.http.serving_support import (
    HANDSHAKE,
    POLLING,
    STATELESS,
    SessionClient,
    Workshop,
    ask,
    modern,
    notification,
    post,
    request,
    tool,
)
from trunkline.protocol.limits import Limits
from trunkline.transports.http.server import open_responses

LOUD = {t.META_LOG_LEVEL: "info"}


async def called(workshop: Workshop, message: dict[str, Any], revision: str = STATELESS, **options: Any) -> Any:
    """Call in either era; log messages are wanted."""
    headers = options.pop("headers", {})
    app = workshop.asgi(**options)
    if revision == STATELESS:
        return modern(app, message, meta=LOUD, **headers)
    return (await SessionClient.open(app, revision)).post(message, **headers)


async def test_notifications_are_sent_before_the_answer_exists() -> None:
    workshop = Workshop()
    call = await called(workshop, tool("wait", say="soon"))
    told = await call.message()
    early = call.complete
    workshop.proceed.set()
    assert (told["params"]["data"], early, (await call.message())["id"]) == ("soon", False, 1)


JSON, SSE = "application/json", "text/event-stream"


@pytest.mark.parametrize(
    ("accept", "form", "revision"),
    [
        pytest.param(f"{JSON}, {SSE}", SSE, HANDSHAKE, id="both"),
        pytest.param(None, SSE, STATELESS, id="missing"),
        pytest.param(SSE, SSE, HANDSHAKE, id="stream alone"),
        pytest.param(JSON, JSON, HANDSHAKE, id="JSON alone"),
        pytest.param(f"{JSON}, {SSE};q=0", JSON, STATELESS, id="no stream"),
    ],
)
async def test_a_client_that_accepts_no_stream_gets_only_the_answer(
    accept: str | None, form: str, revision: str
) -> None:
    call = await (await called(Workshop(), tool("steps"), revision, headers={"accept": accept})).whole()
    assert (call.status, call.headers["content-type"]) == (200, form)
    assert b"walked" in call.body


@pytest.mark.parametrize(("accept", "revision"), [("text/html", HANDSHAKE), (f"{JSON};q=0, {SSE};q=0", STATELESS)])
async def test_a_client_that_accepts_neither_type_is_refused_before_anything_runs(accept: str, revision: str) -> None:
    workshop = Workshop()
    call = await (await called(workshop, tool("add"), revision, headers={"accept": accept})).whole()
    assert (call.error, workshop.count) == ((406, -32600), 0)


async def test_a_get_must_accept_a_stream() -> None:
    app = Workshop().asgi()
    client = await SessionClient.open(app)
    assert (await client.get(accept=JSON).whole()).status == 406
    assert (await ask(app, "GET", "/mcp/sse", headers={"accept": f"{SSE};q=0"}).whole()).status == 406


@pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
async def test_a_server_that_only_answers_with_json_never_streams(revision: str) -> None:
    call = await (await called(Workshop(), tool("steps"), revision, json_response=True)).whole()
    assert (call.headers["content-type"], call.json["id"]) == (JSON, 1)


async def test_a_server_request_to_a_client_that_accepts_no_stream_uses_the_get_stream() -> None:
    app = Workshop().asgi(json_response=True)
    client = await SessionClient.open(app, capabilities={"elicitation": {}})
    listening = await client.listening()
    call = client.post(tool("ask_name"))
    question = await listening.message()
    answer = {"action": "accept", "content": {"value": "Ada"}}
    await client.post({"jsonrpc": "2.0", "id": question["id"], "result": answer}).whole()
    assert (await call.whole()).json["result"]["content"][0]["text"] == "Ada"
    listening.hang_up()


@pytest.fixture
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a second last a twentieth, for the clock of open responses."""
    monkeypatch.setattr(open_responses, "_ROUND", 0.05)


@pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
@pytest.mark.usefixtures("short_rounds")
async def test_a_slow_answer_becomes_a_stream_that_comments_keep_alive(revision: str) -> None:
    workshop = Workshop(Limits(comment_seconds=0.05))
    call = await called(workshop, tool("wait"), revision)
    await call.head()
    await call.until(lambda: call.body.count(b":\n") + call.body.count(b": \n") >= 2)
    workshop.proceed.set()
    await call.whole()
    assert (call.headers["content-type"], call.messages[-1]["id"]) == (SSE, 1)


@pytest.mark.usefixtures("short_rounds")
async def test_a_slow_answer_for_a_client_that_accepts_no_stream_stays_json() -> None:
    workshop = Workshop(Limits(comment_seconds=0.05))
    app = workshop.asgi()
    slow = modern(app, tool("wait"), accept=JSON)
    beside = modern(app, tool("wait"))
    await beside.head()
    workshop.proceed.set()
    assert ((await slow.whole()).headers["content-type"], (await beside.whole()).headers["content-type"]) == (JSON, SSE)


@pytest.mark.usefixtures("short_rounds")
async def test_a_quiet_get_stream_is_kept_alive() -> None:
    client = await SessionClient.open(Workshop(Limits(comment_seconds=0.05)).asgi())
    listening = await client.listening()
    seen = len(listening.body)
    await listening.until(lambda: len(listening.body) > seen)
    assert listening.body[seen:].startswith(b":")
    listening.hang_up()
    await listening.ended()


async def test_a_stateless_notification_does_nothing() -> None:
    workshop = Workshop()
    app = workshop.asgi()
    call = modern(app, tool("wait", id=5))
    await workshop.started.wait()
    cancel = notification("notifications/cancelled", {"requestId": 5})
    assert (await post(app, cancel, mcp_protocol_version=STATELESS).whole()).status == 202
    workshop.proceed.set()
    assert (await call.whole()).json["id"] == 5


@pytest.mark.parametrize("value", [object(), float("nan"), "\udcff"], ids=["object", "NaN", "surrogate"])
async def test_an_answer_that_cannot_be_encoded_becomes_an_error(value: Any) -> None:
    workshop = Workshop()
    workshop.server.method("x/odd")(lambda params: {"value": value})
    call = await modern(workshop.asgi(), request("x/odd", {})).whole()
    assert call.json["id"] == 1
    assert call.status == 200


async def test_the_reconnection_delay_is_configurable() -> None:
    call = await (await called(Workshop(), tool("steps"), POLLING, retry_ms=50)).whole()
    assert call.taken()[0].retry == 50
