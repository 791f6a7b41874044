"""Spans of requests on clients, servers and gateways, recorded by OpenTelemetry's SDK; W3C context in ``_meta``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tests.host.gateway.support import on_stage
from tests.telemetry.support import over_http, shop
from trunkline import Client, Context
from trunkline.errors import RequestFailed
from trunkline.protocol.methods import read_meta
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE

OLD, NEW = NEWEST_HANDSHAKE.name, NEWEST.name
ERAS = pytest.mark.parametrize("era", [OLD, NEW], ids=["handshake", "stateless"])
PARENT = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
EXPORTER = InMemorySpanExporter()


@pytest.fixture(autouse=True)
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Record the spans of one test; the provider of the process is what it was afterwards."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield
    EXPORTER.clear()


def found(kind: SpanKind, name: str) -> ReadableSpan:
    (span,) = (each for each in EXPORTER.get_finished_spans() if (each.kind, each.name) == (kind, name))
    return span


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def carried(ctx: Context) -> dict[str, Any]:
    """Return the trace context of the request, and that of the handler."""
    meta = read_meta(ctx._exchange.params)
    current = trace.get_current_span().get_span_context()
    return {
        "traceparent": meta.get("traceparent"),
        "span": f"{current.span_id:016x}",
        "bag": baggage.get_baggage("k"),
    }


@ERAS
async def test_a_call_is_a_span_at_the_client_with_one_at_the_server_below_it(era: str) -> None:
    async with Client(shop(), revision=era) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
    sent, served = found(SpanKind.CLIENT, "tools/call add"), found(SpanKind.SERVER, "tools/call add")
    assert served.parent is not None
    assert (served.parent.span_id, served.context.trace_id) == (sent.context.span_id, sent.context.trace_id)
    seen = attributes(served)
    assert seen.pop("jsonrpc.request.id")
    assert seen == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": era,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
    }
    assert served.status.status_code is StatusCode.UNSET


async def test_context_crosses_http() -> None:
    async with over_http(shop()) as (url, _), Client(url, revision=NEW) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
    sent, served = found(SpanKind.CLIENT, "tools/call add"), found(SpanKind.SERVER, "tools/call add")
    assert served.parent is not None
    assert served.parent.span_id == sent.context.span_id
    assert attributes(served)["network.transport"] == "tcp"


@ERAS
async def test_a_tool_sees_its_span_and_the_baggage_of_the_caller(era: str) -> None:
    token = context.attach(baggage.set_baggage("k", "v"))
    try:
        async with Client(shop(carried), revision=era) as client:
            data = (await client.call_tool("carried")).data
    finally:
        context.detach(token)
    sent, served = found(SpanKind.CLIENT, "tools/call carried"), found(SpanKind.SERVER, "tools/call carried")
    assert data == {
        "traceparent": f"00-{sent.context.trace_id:032x}-{sent.context.span_id:016x}-{sent.context.trace_flags:02x}",
        "span": f"{served.context.span_id:016x}",
        "bag": "v",
    }


@ERAS
async def test_a_context_that_the_caller_sets_is_kept(era: str) -> None:
    async with Client(shop(carried), revision=era) as client:
        await client.call_tool("add", {"a": 1, "b": 2}, meta={"traceparent": PARENT})
        arguments = {"name": "carried", "arguments": {}, "_meta": {"traceparent": PARENT}}
        await client.request("tools/call", arguments)
    for name in ("add", "carried"):
        served = found(SpanKind.SERVER, f"tools/call {name}")
        assert served.parent is not None
        assert f"{served.parent.span_id:016x}" == PARENT.split("-")[2]


@ERAS
async def test_failures_are_errors_of_the_span_without_their_text(era: str) -> None:
    async with Client(shop(), revision=era) as client:
        await client.call_tool("fail", raise_on_error=False)
    for kind in (SpanKind.CLIENT, SpanKind.SERVER):
        tool = found(kind, "tools/call fail")
        assert (tool.status.status_code, attributes(tool)["error.type"]) == (StatusCode.ERROR, "tool_error")
        assert "secret-argument" not in tool.to_json()


async def test_an_error_response_is_recorded_with_its_code() -> None:
    async with Client(shop(), revision=NEW) as client:
        with pytest.raises(RequestFailed):
            await client.call_tool("nothing")
    for kind in (SpanKind.CLIENT, SpanKind.SERVER):
        span = found(kind, "tools/call nothing")
        assert attributes(span)["rpc.response.status_code"] == "-32602"
        assert span.status.status_code is StatusCode.ERROR


async def test_a_call_through_the_gateway_is_one_trace(tmp_path: Path) -> None:
    async with on_stage({"s": shop()}, tmp_path) as stage, stage.client(NEW) as client:
        await client.call_tool("s__add", {"a": 1, "b": 2})
    order = [
        found(SpanKind.CLIENT, "tools/call s__add"),
        found(SpanKind.SERVER, "tools/call s__add"),
        found(SpanKind.CLIENT, "tools/call add"),
        found(SpanKind.SERVER, "tools/call add"),
    ]
    for parent, child in pairwise(order):
        assert child.parent is not None
        assert child.parent.span_id == parent.context.span_id
    assert len({span.context.trace_id for span in order}) == 1


@pytest.mark.parametrize("value", ["nonsense", "", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", 7, "x" * 9000])
async def test_a_malformed_context_is_ignored(value: object) -> None:
    async with Client(shop(), revision=NEW) as client:
        await client.request(
            "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": {"traceparent": value}}
        )
    assert found(SpanKind.SERVER, "tools/call add")


PROGRAM = """
import asyncio, sys
from pathlib import Path
from trunkline import Client, Context, Server
from trunkline.protocol.methods import read_meta
from trunkline.host import GatewayOptions, Host

server = Server("s")

@server.tool
async def carried(ctx: Context) -> dict:
    meta = read_meta(ctx._exchange.params)
    return {key: meta.get(key) for key in ("traceparent", "tracestate", "baggage")}

async def main():
    async with Host.open({"s": server}, folder=Path(sys.argv[1]), policy=None, audit=False) as host:
        gateway = host.gateway(GatewayOptions(approval="client"))
        async with Client(gateway) as client:
            meta = {"traceparent": sys.argv[2], "tracestate": "a=b", "baggage": "private=1"}
            answer = await client.request("tools/call", {"name": "s__carried", "arguments": {}, "_meta": meta})
            print(answer)
        await gateway.aclose()
    print([name for name in sys.modules if name.startswith("opentelemetry")])

asyncio.run(main())
"""


def test_a_gateway_without_opentelemetry_passes_the_context_on_but_no_baggage(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), PARENT], capture_output=True, text=True, timeout=120, check=False
    )
    assert PARENT in done.stdout, done.stdout + done.stderr
    assert "a=b" in done.stdout
    assert "private=1" not in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(("setup", "traced"), [("", False), ("trace.set_tracer_provider(TracerProvider())", True)])
def test_a_redis_store_alone_does_not_make_spans(setup: str, traced: bool) -> None:
    """redis-py loads the API of OpenTelemetry if it is installed; every call would pay for spans that are dropped."""
    program = f"""
import asyncio
import sys
from trunkline import Server
from trunkline.server.runtime import runtime_for
from trunkline.store.open import open_store
open_store("redis://127.0.0.1:1/0", name="x")
assert "opentelemetry.trace" in sys.modules
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
{setup}
async def look():
    runtime = runtime_for(Server("s"))
    runtime.find_telemetry()
    print(runtime.telemetry is not None)
asyncio.run(look())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.strip() == str(traced), done.stderr
