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
    MissingCapability,
    RemoteProtocolError,
    RequestTimeout,
    ToolError,
)

BOTH = pytest.mark.parametrize("make", [stateless, handshake_server], ids=["stateless", "handshake"])
DONE = {"content": [{"type": "text", "text": "done"}]}
NUMBER = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}


def tool(name: str, output: Any = None, **more: Any) -> dict[str, Any]:
    schema = {} if output is None else {"outputSchema": output}
    return {"name": name, "inputSchema": {"type": "object"}, **schema, **more}


# --- lists


@BOTH
async def test_all_pages_of_a_list_are_read(make: Any) -> None:
    pages: dict[Any, Any] = {
        None: {"tools": [tool("a")], "nextCursor": ""},
        "": {"tools": [tool("b")], "nextCursor": "2"},
        "2": {"tools": [tool("c")]},
    }

    server = make({"tools/list": lambda params: pages[params.get("cursor")]})
    async with Client(server) as client:
        assert [found.name for found in await client.list_tools()] == ["a", "b", "c"]


async def test_a_cursor_that_comes_twice_ends_the_reading() -> None:
    async with Client(stateless({"tools/list": {"tools": [], "nextCursor": "x"}})) as client:
        with pytest.raises(RemoteProtocolError, match="repeated the cursor 'x'"):
            await client.list_tools()


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


async def test_a_feature_the_server_did_not_declare_is_never_used() -> None:
    server = stateless({}, prompts={})
    async with Client(server) as client:
        with pytest.raises(MissingCapability, match="tools") as caught:
            await client.call_tool("x")
        assert caught.value.capability == "tools"
    assert server.methods == ["server/discover"]


async def test_an_unreadable_result_is_the_servers_fault() -> None:
    async with Client(stateless({"tools/list": {"tools": 3}})) as client:
        with pytest.raises(RemoteProtocolError, match="tools/list"):
            await client.list_tools()


# --- tools


@BOTH
async def test_a_tool_is_called_and_its_answer_given(make: Any) -> None:
    blocks = [*DONE["content"], {"type": "text", "text": "twice"}]
    server = make({"tools/call": {"content": blocks, "structuredContent": {"n": 3}, "_meta": {"k": 1}}})
    async with Client(server) as client:
        result = await client.call_tool("count", {"to": 3})
    assert result.data == {"n": 3}
    assert result.structured_content == {"n": 3}
    assert result.text == "done\ntwice"
    assert result.content[0] == t.TextContent(text="done")
    assert result.is_error is False
    assert result.meta == {"k": 1}
    (params,) = server.params_of("tools/call")
    assert (params["name"], params["arguments"]) == ("count", {"to": 3})


async def test_a_call_without_arguments_sends_none() -> None:
    server = handshake_server({"tools/call": DONE})
    async with Client(server) as client:
        assert (await client.call_tool("x")).data is None
    assert server.params_of("tools/call") == [{"name": "x"}]


async def test_arguments_that_are_not_json_fail_before_anything_is_sent() -> None:
    server = stateless({"tools/call": DONE})
    async with Client(server) as client:
        with pytest.raises(TypeError):
            await client.call_tool("x", {"a": object()})
        await client.call_tool("x")
    assert server.methods == ["server/discover", "tools/call"]


async def test_a_tool_that_failed_raises_its_text() -> None:
    server = stateless({"tools/call": {**DONE, "isError": True}})
    async with Client(server) as client:
        with pytest.raises(ToolError, match="done") as caught:
            await client.call_tool("x")
        assert caught.value.result.is_error is True
        assert (await client.call_tool("x", raise_on_error=False)).is_error is True


async def test_a_wrapped_value_is_taken_out_whether_or_not_the_list_was_read() -> None:
    listed = {"tools": [tool("n", NUMBER), tool("o", {**NUMBER, "required": []})]}
    server = handshake_server({"tools/call": {"structuredContent": {"result": 3}}, "tools/list": listed})
    async with Client(server) as client:
        result = await client.call_tool("n")
        assert (result.data, result.structured_content) == (3, {"result": 3})
        assert (await client.call_tool("o")).data == {"result": 3}
        assert (await client.call_tool("unlisted")).data == {"result": 3}
    assert server.methods.count("tools/list") == 1


async def test_a_marked_wrapper_is_taken_out() -> None:
    listed = {"tools": [tool("n", {"type": "object", "x-fastmcp-wrap-result": True})]}
    server = stateless({"tools/call": {"structuredContent": {"result": None}}, "tools/list": listed})
    async with Client(server) as client:
        assert (await client.call_tool("n")).data is None


async def test_a_list_that_cannot_be_read_leaves_the_value_as_it_came() -> None:
    server = stateless({"tools/call": {"structuredContent": {"result": 3}}})
    async with Client(server) as client:
        assert (await client.call_tool("n")).data == {"result": 3}


@pytest.mark.parametrize("answer", [{"structuredContent": {"result": "three"}}, DONE], ids=["ill-typed", "missing"])
async def test_an_answer_that_breaks_the_output_schema_is_the_servers_fault(answer: Any) -> None:
    server = stateless({"tools/call": answer, "tools/list": {"tools": [tool("n", NUMBER)]}})
    async with Client(server) as client:
        await client.list_tools()
        with pytest.raises(RemoteProtocolError, match="output schema"):
            await client.call_tool("n")


async def test_results_are_not_validated_if_validation_is_off() -> None:
    listed = {"tools": [tool("n", NUMBER)]}
    server = stateless({"tools/call": {"structuredContent": {"result": "three"}}, "tools/list": listed})
    async with Client(server, validate=False) as client:
        await client.list_tools()
        assert (await client.call_tool("n")).data == "three"


async def test_a_failed_tool_owes_no_structured_value() -> None:
    listed = {"tools": [tool("n", NUMBER)]}
    server = stateless({"tools/call": {**DONE, "isError": True}, "tools/list": listed})
    async with Client(server) as client:
        await client.list_tools()
        with pytest.raises(ToolError):
            await client.call_tool("n")


async def test_an_output_schema_that_cannot_be_used_checks_nothing() -> None:
    listed = {"tools": [tool("n", {"type": "object", "$ref": "https://example.com/x"})]}
    server = stateless({"tools/call": {"structuredContent": {"n": 1}}, "tools/list": listed})
    async with Client(server) as client:
        await client.list_tools()
        assert (await client.call_tool("n")).data == {"n": 1}


# --- progress, meta, clocks


@BOTH
async def test_progress_is_reported_as_it_arrives(make: Any) -> None:
    told: list[Any] = []

    def work(params: Any) -> Any:
        token = params["_meta"]["progressToken"]
        server.stage.say("notifications/progress", {"progressToken": token, "progress": 1, "total": 2})
        server.stage.say("notifications/progress", {"progressToken": token, "progress": 2, "message": "end"})
        return DONE

    server: Scripted = make({"tools/call": work})
    async with Client(server) as client:
        await client.call_tool("x", on_progress=lambda *news: told.append(news))
    assert told == [(1, 2, None), (2, None, "end")]
    assert server.params_of("tools/call")[0]["_meta"]["progressToken"] == server.ids[-1]


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


async def test_no_progress_token_is_sent_without_a_callback() -> None:
    server = stateless({"tools/call": DONE})
    async with Client(server) as client:
        await client.call_tool("x")
    assert "progressToken" not in server.params_of("tools/call")[0]["_meta"]


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


async def test_the_clients_own_timeout_holds_for_all_requests() -> None:
    clock = ManualClock()
    async with Client(stateless({"tools/list": None}), clock=clock, timeout=2) as client:
        call = asyncio.ensure_future(client.list_tools())
        await clock.advance(2.1)
        with pytest.raises(RequestTimeout):
            await call


async def test_cancelling_the_await_cancels_on_the_wire() -> None:
    server = stateless({"tools/call": None})
    async with Client(server) as client:
        call = asyncio.ensure_future(client.call_tool("x"))
        await server.until(lambda: "tools/call" in server.methods)
        call.cancel()
        await server.until(lambda: "notifications/cancelled" in server.methods)
        assert server.params_of("notifications/cancelled")[0]["requestId"] == server.ids[-1]
        with pytest.raises(asyncio.CancelledError):
            await call


# --- the other methods


async def test_a_resource_is_read() -> None:
    server = stateless({"resources/read": {"contents": [{"uri": "a:1", "text": "one"}]}})
    async with Client(server) as client:
        assert await client.read_resource("a:1") == [t.ResourceContents(uri="a:1", text="one")]


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


async def test_a_sign_of_life_is_a_discovery_where_there_is_no_ping() -> None:
    server = stateless()
    async with Client(server) as client:
        await client.ping()
    assert server.methods == ["server/discover", "server/discover"]


async def test_the_log_level_is_sent_once_to_a_handshake_server() -> None:
    server = handshake_server({"logging/setLevel": {}, "ping": {}})
    async with Client(server) as client:
        await client.set_logging_level("error")
        await client.ping()
    assert server.received[-2:] == [("logging/setLevel", {"level": "error"}), ("ping", {})]


async def test_the_log_level_is_sent_with_each_request_to_a_stateless_server() -> None:
    server = stateless({"tools/call": DONE})
    async with Client(server, log_level="debug") as client:
        await client.call_tool("x")
        await client.set_logging_level("error")
        await client.call_tool("x")
    levels = [p["_meta"]["io.modelcontextprotocol/logLevel"] for p in server.params_of("tools/call")]
    assert levels == ["debug", "error"]


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


async def test_a_custom_method_sends_meta_and_receives_progress() -> None:
    told: list[Any] = []

    def work(params: Any) -> Any:
        token = params["_meta"]["progressToken"]
        server.stage.say("notifications/progress", {"progressToken": token, "progress": 1})
        return {}

    server = handshake_server({"acme/work": work})
    async with Client(server) as client:
        await client.request("acme/work", {"_meta": {"k": 1}}, on_progress=lambda *news: told.append(news))
    assert told == [(1, None, None)]
    assert server.params_of("acme/work")[0]["_meta"]["k"] == 1


async def test_a_custom_method_without_params_sends_an_empty_object_to_a_handshake_server() -> None:
    server = handshake_server({"acme/x": {}})
    async with Client(server) as client:
        await client.request("acme/x")
    assert server.params_of("acme/x") == [{}]


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
    assert server.methods == ["server/discover"]


async def test_a_notification_of_another_revision_is_not_sent() -> None:
    async with Client(stateless()) as client:
        with pytest.raises(LocalProtocolError, match="initialized"):
            await client.notify("notifications/initialized")


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


async def test_a_fresh_list_is_not_fetched_again() -> None:
    clock = ManualClock()
    server = stateless({"tools/list": {"tools": [tool("a")], "ttlMs": 5000}})
    async with Client(server, clock=clock) as client:
        await client.list_tools()
        await clock.advance(4.9)
        assert [found.name for found in await client.list_tools()] == ["a"]
        assert server.methods.count("tools/list") == 1
        await clock.advance(0.2)
        await client.list_tools()
        assert server.methods.count("tools/list") == 2


async def test_a_notification_makes_a_fresh_list_stale() -> None:
    server = stateless({"tools/list": {"tools": [], "ttlMs": 5000}})
    async with Client(server) as client:
        await client.list_tools()
        server.stage.say("notifications/tools/list_changed")
        await settle()
        await client.list_tools()
    assert server.methods.count("tools/list") == 2


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


async def test_an_expired_cursor_of_a_cached_page_restarts_the_list() -> None:
    server = stateless({"tools/list": {"tools": [tool("a")], "nextCursor": "1", "ttlMs": 5000}})
    async with Client(server) as client:
        await client.list_page("tools/list")

        def later(params: Any) -> Any:
            if params.get("cursor") == "1":
                raise Fail(-32602, "stale cursor")
            return {"tools": [tool("b")]}

        server.table["tools/list"] = later
        assert [found.name for found in await client.list_tools()] == ["b"]


async def test_a_refused_list_is_rejected() -> None:
    async with Client(stateless({"tools/list": Fail(-32602)})) as client:
        with pytest.raises(InvalidParams):
            await client.list_tools()
