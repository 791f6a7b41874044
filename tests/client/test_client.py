"""The client's public API: what each method sends and returns."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import trunkline.types as t
from tests.client.scripted_server import Fail, ManualClock, Scripted, handshake_server, settle, stateless
from trunkline.client.client import Client
from trunkline.errors import (
    InvalidParams,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimeout,
)

BOTH = pytest.mark.parametrize("make", [stateless, handshake_server], ids=["stateless", "handshake"])
DONE = {"content": [{"type": "text", "text": "done"}]}
NUMBER = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}


def tool(name: str, output: Any = None, **more: Any) -> dict[str, Any]:
    schema = {} if output is None else {"outputSchema": output}
    return {"name": name, "inputSchema": {"type": "object"}, **schema, **more}


# --- lists


async def test_the_other_lists_give_plain_lists() -> None:
    server = stateless(
        {
            "resources/list": {"resources": [{"uri": "a:1", "name": "one"}]},
            "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "a:{n}", "name": "all"}]},
            "prompts/list": {"prompts": [{"name": "greet"}]},
        }
    )
    async with Client(server) as client:
        assert [found.uri for found in await client.list_resources()] == ["a:1"]
        assert [found.uri_template for found in await client.list_resource_templates()] == ["a:{n}"]
        assert [found.name for found in await client.list_prompts()] == ["greet"]


async def test_one_page_can_be_asked_for() -> None:
    server = stateless({"prompts/list": {"prompts": [], "nextCursor": "9"}})
    async with Client(server) as client:
        page = await client.list_page("prompts/list", "8")
        assert page.next_cursor == "9"
        assert server.params_of("prompts/list")[0]["cursor"] == "8"


# --- tools


@BOTH
async def test_a_tool_is_called_and_its_answer_given(make: Any) -> None:
    blocks = [*DONE["content"], {"type": "text", "text": "twice"}]
    server = make({"tools/call": {"content": blocks, "structuredContent": {"n": 3}, "_meta": {"k": 1}}})
    async with Client(server) as client:
        result = await client.call_tool("count", {"to": 3})
        assert result.raise_for_error() is result
    assert result.data == {"n": 3}
    assert result.structured_content == {"n": 3}
    assert result.text == "done\ntwice"
    assert result.content[0] == t.TextContent(text="done")
    assert result.is_error is False
    assert result.meta == {"k": 1}
    (params,) = server.params_of("tools/call")
    assert (params["name"], params["arguments"]) == ("count", {"to": 3})


async def test_arguments_that_are_not_json_fail_before_anything_is_sent() -> None:
    server = stateless({"tools/call": DONE})
    async with Client(server) as client:
        with pytest.raises(TypeError):
            await client.call_tool("x", {"a": object()})
        await client.call_tool("x")
    assert server.methods == ["server/discover", "tools/call"]


async def test_a_wrapped_value_is_taken_out_whether_or_not_the_list_was_read() -> None:
    listed = {"tools": [tool("n", NUMBER), tool("o", {**NUMBER, "required": []})]}
    server = handshake_server({"tools/call": {"structuredContent": {"result": 3}}, "tools/list": listed})
    async with Client(server) as client:
        result = await client.call_tool("n")
        assert (result.data, result.structured_content) == (3, {"result": 3})
        assert (await client.call_tool("o")).data == {"result": 3}
        assert (await client.call_tool("unlisted")).data == {"result": 3}
    assert server.methods.count("tools/list") == 1


WRAPPER = {"type": "object", "x-fastmcp-wrap-result": True}
UNUSABLE = {"type": "object", "$ref": "https://example.com/x"}


@pytest.mark.parametrize(
    ("schemas", "value", "options", "data"),
    [
        pytest.param([WRAPPER], {"result": None}, {}, None, id="a marked wrapper"),
        pytest.param([], {"result": 3}, {}, {"result": 3}, id="no list"),
        pytest.param([NUMBER], {"result": "three"}, {"validate": False}, "three", id="validation is off"),
        pytest.param([UNUSABLE], {"n": 1}, {}, {"n": 1}, id="a schema that cannot be used"),
        pytest.param([NUMBER], {"result": 1, "x": 2}, {}, {"result": 1, "x": 2}, id="more than the wrapper"),
    ],
)
async def test_a_value_that_is_not_checked_is_taken_as_it_came(
    schemas: Any, value: Any, options: Any, data: Any
) -> None:
    listed = {"tools/list": {"tools": [tool("n", schema) for schema in schemas]}} if schemas else {}
    async with Client(stateless({"tools/call": {"structuredContent": value}, **listed}), **options) as client:
        if schemas:
            await client.list_tools()
        assert (await client.call_tool("n")).data == data


@pytest.mark.parametrize(
    "answer",
    [{"structuredContent": {"result": "three"}}, {"structuredContent": None}, DONE],
    ids=["ill-typed", "null", "missing"],
)
async def test_an_answer_that_breaks_the_output_schema_is_the_servers_fault(answer: Any) -> None:
    server = stateless({"tools/call": answer, "tools/list": {"tools": [tool("n", NUMBER)]}})
    async with Client(server) as client:
        await client.list_tools()
        with pytest.raises(RemoteProtocolError, match="output schema"):
            await client.call_tool("n")


# --- progress, meta, clocks


async def test_a_default_progress_callback_may_be_async() -> None:
    told: list[Any] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)

    def work(params: Any) -> Any:
        token = params["_meta"]["progressToken"]
        server.stage.say("notifications/progress", {"progressToken": token, "progress": 1})
        return DONE

    server = stateless({"tools/call": work})
    async with Client(server, progress_handler=hear) as client:
        await client.call_tool("x")
        await settle()
    assert told == [1]


async def test_meta_of_the_callers_own_travels_but_cannot_replace_ours() -> None:
    server = stateless({"tools/call": DONE})
    async with Client(server) as client:
        key = "io.modelcontextprotocol/protocolVersion"
        await client.call_tool("x", meta={"com.acme/trace": "t1", key: "2000-01-01"})
    meta = server.params_of("tools/call")[0]["_meta"]
    assert meta["com.acme/trace"] == "t1"
    assert meta[key] == client_revision(server)
    assert "progressToken" not in meta


async def test_a_resource_read_and_a_prompt_rendered_with_meta_of_their_own_are_asked_for_each_time() -> None:
    server = stateless(
        {
            "resources/read": {"contents": [], "ttlMs": 60_000, "cacheScope": "private", "resultType": "complete"},
            "prompts/get": {"messages": [], "resultType": "complete"},
        }
    )
    async with Client(server) as client:
        for number in ("1", "2"):
            await client.read_resource("note://a", meta={"com.acme/version": number})
        await client.get_prompt("greet", meta={"com.acme/version": "3"})
    read = [params["_meta"]["com.acme/version"] for params in server.params_of("resources/read")]
    assert read == ["1", "2"]
    assert server.params_of("prompts/get")[0]["_meta"]["com.acme/version"] == "3"


def client_revision(server: Scripted) -> Any:
    return server.params_of("server/discover")[0]["_meta"]["io.modelcontextprotocol/protocolVersion"]


@pytest.mark.parametrize(
    ("options", "clock_name", "seconds"),
    [
        ({"timeout": 3.0}, "idle", 3.0),
        ({"timeout": 5.0, "total_timeout": 4.0}, "total", 4.0),
        ({}, "idle", 60.0),
        ({"timeout": 700.0}, "total", 700.0),
    ],
    ids=["silence", "in all", "the limits", "longer than the limits"],
)
async def test_the_clock_that_ran_out_is_named(options: Any, clock_name: str, seconds: float) -> None:
    clock = ManualClock()
    server = stateless({"tools/call": None})
    async with Client(server, clock=clock) as client:
        call = asyncio.ensure_future(client.call_tool("x", **options))
        await clock.advance(seconds - 0.1)
        assert not call.done()
        await clock.advance(0.2)
        with pytest.raises(RequestTimeout) as caught:
            await call
    assert (caught.value.clock, caught.value.seconds) == (clock_name, seconds)
    assert server.methods[-1] == "notifications/cancelled"


# --- the other methods


async def test_prompt_arguments_that_are_not_strings_are_sent_as_json() -> None:
    message = {"role": "user", "content": {"type": "text", "text": "hi"}}
    server = stateless({"prompts/get": {"messages": [message]}})
    async with Client(server) as client:
        prompt = await client.get_prompt("greet", {"name": "Ada", "ages": [1, 2]})
        assert prompt.messages[0].content == t.TextContent(text="hi")
        await client.get_prompt("greet")
    first, second = server.params_of("prompts/get")
    assert first["arguments"] == {"name": "Ada", "ages": "[1,2]"}
    assert "arguments" not in second


GREET = {"type": "ref/prompt", "name": "greet"}
FAMILY = {"type": "ref/resource", "uri": "a://{b}"}


@pytest.mark.parametrize(
    ("ref", "argument", "sent"),
    [
        (GREET, {"name": "city", "value": "O"}, GREET),
        ({"name": "greet"}, {"name": "city"}, GREET),
        (FAMILY, {"name": "b", "value": ""}, FAMILY),
    ],
)
async def test_a_completion_may_be_asked_for_in_the_form_of_the_protocol(ref: Any, argument: Any, sent: Any) -> None:
    server = stateless({"completion/complete": {"completion": {"values": []}}})
    async with Client(server) as client:
        await client.complete(ref, argument)
    (params,) = server.params_of("completion/complete")
    assert (params["ref"], params["argument"]["value"]) == (sent, argument.get("value", ""))


@pytest.mark.parametrize(
    ("ref", "argument", "named"),
    [
        (t.PromptReference(name="greet"), {"city": "O"}, "argument="),
        (t.PromptReference(name="greet"), {"name": "city", "value": 5}, "argument="),
        (t.PromptReference(name="greet"), "city", "argument="),
        ({"prompt": "greet"}, {"name": "city", "value": "O"}, "ref="),
        ("greet", {"name": "city", "value": "O"}, "ref="),
    ],
)
async def test_another_form_of_completion_is_a_type_error_that_names_the_parameter(
    ref: Any, argument: Any, named: str
) -> None:
    async with Client(stateless({})) as client:
        with pytest.raises(TypeError, match=named):
            await client.complete(ref, argument)


async def test_completions_are_asked_for() -> None:
    server = stateless({"completion/complete": {"completion": {"values": ["Oslo"], "total": 1}}})
    async with Client(server) as client:
        ref = t.PromptReference(name="greet")
        found = await client.complete(ref, {"name": "city", "value": "O"}, context={"country": "NO"})
        assert found.values == ["Oslo"]
        await client.complete(ref, t.CompletionArgument(name="city", value="O"))
    first, second = server.params_of("completion/complete")
    assert first["context"] == {"arguments": {"country": "NO"}}
    assert "context" not in second


@BOTH
async def test_own_methods_and_own_notifications_pass(make: Any) -> None:
    server = make({"acme/sum": lambda params: {"sum": sum(params["of"])}})
    async with Client(server) as client:
        assert (await client.request("acme/sum", {"of": [1, 2]}))["sum"] == 3
        assert await client.request("acme/sum", {"of": []}, result=dict[str, int]) == {"sum": 0}
        await client.notify("acme/hello", {"to": "all"})
        await client.notify("acme/bye")
        await client.ping()
    assert ("acme/hello", {"to": "all"}) in server.received
    assert ("acme/bye", None) in server.received


async def test_the_result_of_a_custom_method_must_fit_the_type_asked_for() -> None:
    async with Client(stateless({"acme/x": {"a": 1}})) as client:
        with pytest.raises(RemoteProtocolError, match="acme/x"):
            await client.request("acme/x", result=list[int])


@pytest.mark.parametrize("method", ["ping", "initialize", "logging/setLevel"])
async def test_a_method_of_another_revision_is_not_sent(method: str) -> None:
    server = stateless()
    async with Client(server) as client:
        with pytest.raises(LocalProtocolError, match=method):
            await client.request(method)
        with pytest.raises(LocalProtocolError, match="initialized"):
            await client.notify("notifications/initialized")
    assert server.methods == ["server/discover"]


async def test_changed_roots_are_notified_if_the_revision_has_that() -> None:
    told, silent, rootless = handshake_server(), stateless(), handshake_server()
    async with Client(told, roots=["/tmp"]) as client:
        await client.notify_roots_changed()
        await client.ping()
    async with Client(silent, roots=["/tmp"]) as client:
        await client.notify_roots_changed()
    async with Client(rootless) as client:
        await client.notify_roots_changed()
        await client.ping()
    assert "notifications/roots/list_changed" in told.methods
    assert "notifications/roots/list_changed" not in silent.methods + rootless.methods


# --- the cache


@pytest.mark.parametrize(
    ("make", "options"),
    [(stateless, {"cache": False}), (handshake_server, {})],
    ids=["switched off", "a revision without hints"],
)
async def test_no_result_is_cached(make: Any, options: Any) -> None:
    server = make({"tools/list": {"tools": [], "ttlMs": 5000}})
    async with Client(server, **options) as client:
        await client.list_tools()
        await client.list_tools()
    assert server.methods.count("tools/list") == 2


async def test_a_refused_list_is_rejected() -> None:
    async with Client(stateless({"tools/list": Fail(-32602)})) as client:
        with pytest.raises(InvalidParams):
            await client.list_tools()
