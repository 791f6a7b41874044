"""A client of ours calls: answers that fit and that do not, progress, cancelling, clocks, pages and kept results."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.scripted_server import ManualClock
from tests.interaction.rows import ANYWHERE, BATCHING, HANDSHAKE, ONE_LINK, SINCE_2025_06, STATELESS, behaviour
from tests.interaction.script import SILENCE, Failure, Script
from tests.interaction.wire import META, Wire
from trunkline import Client, Limits, RequestFailed, RequestTimeout, ToolError
from trunkline.errors import ConnectionLost, InvalidParams, RemoteProtocolError, ResourceNotFound, TrunklineError

DONE = {"content": [{"type": "text", "text": "done"}]}
ERRORS = {
    -32700: "ParseFailed",
    -32600: "InvalidRequest",
    -32601: "MethodNotFound",
    -32602: "InvalidParams",
    -32603: "InternalError",
    -32021: "MissingClientCapability",
    -32022: "UnsupportedProtocolVersion",
    -32099: "RequestFailed",
    42: "RequestFailed",
}
PROGRESS = "notifications/progress"


async def calling(script: Script, client: Client, **options: Any) -> tuple[asyncio.Future[Any], Any]:
    """Start a call that the script leaves open, and give it with the request as it came."""
    script.table["tools/call"] = SILENCE
    count = len(script.all("tools/call"))
    call = asyncio.ensure_future(client.call_tool("work", {}, **options))
    return call, await script.heard("tools/call", count=count + 1)


async def turn() -> None:
    """Run everything that can run without time passing."""
    for _ in range(10):
        await asyncio.sleep(0)


# --- answers ---------------------------------------------------------------------------------------------------------


@behaviour("client.ids", "2025-11-25 basic/index#requests")
async def test_a_client_never_uses_an_id_twice(wire: Wire) -> None:
    script = wire.script({"tools/call": DONE, "tools/list": {"tools": []}})
    async with script.client() as client:
        await asyncio.gather(*(client.call_tool("work", {}) for _ in range(5)))
        await client.list_tools()
        ids = [message["id"] for message in script.received if "id" in message]
        assert (len(set(ids)), all(type(id) in (int, str) for id in ids)) == (len(ids), True)


@behaviour("client.errors", "2025-11-25 basic/index#error-responses")
async def test_an_error_answer_is_an_exception_with_its_code_message_and_data(wire: Wire) -> None:
    script, seen = wire.script(), {}
    async with script.client() as client:
        for code in ERRORS:
            script.table["tools/call"] = Failure(code, "no way", {"why": code})
            with pytest.raises(RequestFailed, match="no way") as caught:
                await client.call_tool("work", {})
            seen[caught.value.code] = (type(caught.value).__name__, caught.value.message, caught.value.data)
    assert seen == {code: (name, "no way", {"why": code}) for code, name in ERRORS.items()}


@behaviour("client.not-found", "2026-07-28 server/resources#error-handling")
@pytest.mark.parametrize("code", [-32002, -32602])
async def test_both_codes_of_an_unknown_resource_are_one_exception(wire: Wire, code: int) -> None:
    script = wire.script({"resources/read": Failure(code, "Resource not found", {"uri": "note://one"})})
    async with script.client() as client:
        with pytest.raises(ResourceNotFound, match="Resource not found") as caught:
            await client.read_resource("note://one")
    assert caught.value.code == code


@behaviour("client.invalid-uri", "2026-07-28 server/resources#error-handling")
async def test_other_invalid_params_of_a_read_stay_what_they_are(wire: Wire) -> None:
    script = wire.script({"resources/read": Failure(-32602, "The URI is too long")})
    async with script.client() as client:
        with pytest.raises(InvalidParams, match="too long"):
            await client.read_resource("note://one")


@behaviour("client.tool-error", "2025-11-25 server/tools#error-handling")
async def test_a_failed_tool_is_an_exception_with_its_text(wire: Wire) -> None:
    script = wire.script({"tools/call": {"content": [{"type": "text", "text": "disk full"}], "isError": True}})
    async with script.client() as client:
        with pytest.raises(ToolError, match="disk full"):
            await client.call_tool("work", {})
        assert (await client.call_tool("work", {}, raise_on_error=False)).is_error


@behaviour("client.answer-unknown", "2025-11-25 basic/index#result-responses", transports=ONE_LINK)
@pytest.mark.parametrize("id", [999, "999", -1, None])
async def test_an_answer_to_nothing_is_dropped_and_counted(wire: Wire, id: Any) -> None:
    script = wire.script({"tools/call": DONE})
    async with script.client() as client:
        script.say({"jsonrpc": "2.0", "id": id, "error": {"code": -32603, "message": "lost"}})
        assert (await client.call_tool("work", {})).text == "done"
        assert client.dropped == 1


@behaviour("client.answer-id-type", "2025-11-25 basic/index#result-responses", transports=ONE_LINK)
async def test_an_answer_whose_id_only_looks_alike_is_not_taken(wire: Wire) -> None:
    script = wire.script()
    async with script.client() as client:
        call, request = await calling(script, client)
        script.answer({"id": str(request["id"])}, {"content": [{"type": "text", "text": "wrong"}]})
        script.answer(request, DONE)
        assert (await call).text == "done"


@behaviour("client.answer-twice", "2025-11-25 basic/index#result-responses", transports=ONE_LINK)
async def test_a_second_answer_is_dropped(wire: Wire) -> None:
    script = wire.script()
    async with script.client() as client:
        call, request = await calling(script, client)
        script.answer(request, DONE)
        script.answer(request, {"content": []})
        assert ((await call).text, client.dropped) == ("done", 1)


@behaviour("client.answer-order", "2025-11-25 basic/index#result-responses", transports=ANYWHERE)
async def test_answers_may_come_in_any_order(wire: Wire) -> None:
    script = wire.script()
    async with script.client() as client:
        first, one = await calling(script, client)
        second, two = await calling(script, client)
        script.answer(two, {"content": [{"type": "text", "text": "two"}]})
        script.answer(one, {"content": [{"type": "text", "text": "one"}]})
        assert ((await first).text, (await second).text) == ("one", "two")


@behaviour("client.answer-unreadable", "2025-03-26 basic/index#responses")
@pytest.mark.parametrize(
    "members",
    [{"result": {}, "error": {"code": 1, "message": "x"}}, {"result": {"content": 7}}, {"error": {"code": "x"}}],
)
async def test_an_answer_that_makes_no_sense_fails_its_call_alone(wire: Wire, members: dict[str, Any]) -> None:
    script = wire.script()
    async with script.client() as client:
        call, request = await calling(script, client)
        script.say({"jsonrpc": "2.0", "id": request["id"], **members})
        with pytest.raises(RemoteProtocolError):
            await call
        script.table["tools/call"] = DONE
        assert (await client.call_tool("work", {})).text == "done"


@behaviour("client.garbage", "2025-11-25 basic/index#messages", transports=ANYWHERE)
async def test_a_client_survives_invalid_messages(wire: Wire) -> None:
    script = wire.script({"tools/call": DONE})
    async with script.client() as client:
        for line in (b"nonsense", b"\xff\xfe", b'{"jsonrpc": "2.0"}', b"[]", b"7", b'{"jsonrpc":"2.0","method":5}'):
            script.say(line)
            assert (await client.call_tool("work", {})).text == "done"


@behaviour("client.result-type", "2026-07-28 basic/index#resulttype", STATELESS)
@pytest.mark.parametrize("kind", ["maybe", "", "Complete"])
async def test_a_result_of_an_unknown_kind_is_invalid(wire: Wire, kind: str) -> None:
    script = wire.script({"tools/call": {**DONE, "resultType": kind}})
    async with script.client() as client:
        with pytest.raises(RemoteProtocolError):
            await client.call_tool("work", {})


@behaviour("client.result-type-absent", "2026-07-28 basic/index#resulttype", STATELESS)
async def test_a_result_that_does_not_say_its_kind_is_complete(wire: Wire) -> None:
    script = wire.script()
    async with script.client() as client:
        call, request = await calling(script, client)
        script.say({"jsonrpc": "2.0", "id": request["id"], "result": DONE})
        assert (await call).text == "done"


@behaviour("client.lost", "2025-11-25 basic/lifecycle#error-handling", transports=ANYWHERE)
async def test_calls_fail_at_once_when_the_connection_is_lost(wire: Wire) -> None:
    script = wire.script()
    async with script.client() as client:
        call, _ = await calling(script, client)
        script.end()
        with pytest.raises(ConnectionLost):
            await call


@behaviour("client.closed-elsewhere", "2025-11-25 basic/lifecycle#shutdown", transports=ANYWHERE)
async def test_any_task_may_close_a_client_and_its_calls_fail_at_once(wire: Wire) -> None:
    script = wire.script()
    async with script.client() as client:
        call, _ = await calling(script, client)
        await asyncio.create_task(client.aclose())
        with pytest.raises(ConnectionLost):
            await call


@behaviour("client.many", "2025-11-25 basic/lifecycle#shutdown")
async def test_clients_are_closed_in_any_order(wire: Wire) -> None:
    scripts = [wire.script({"tools/call": DONE}) for _ in range(3)]
    one, two, three = [await script.client().__aenter__() for script in scripts]
    await one.aclose()
    await three.aclose()
    assert (await two.call_tool("work", {})).text == "done"
    await two.aclose()


@behaviour("client.batch", "2025-03-26 basic/index#batching", BATCHING, ANYWHERE)
async def test_a_client_accepts_batches(wire: Wire) -> None:
    script = wire.script()
    news: list[Any] = []
    async with script.client(logging=news.append) as client:
        call, request = await calling(script, client)
        log = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "hi"}}
        script.say([log])
        script.say([{"jsonrpc": "2.0", "id": request["id"], "result": DONE}])
        assert ((await call).text, [each.data for each in news]) == ("done", ["hi"])


@behaviour("client.structured-checked", "2025-06-18 server/tools#output-schema", SINCE_2025_06)
async def test_a_structured_result_that_breaks_the_tools_schema_is_rejected(wire: Wire) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tool = {"name": "work", "inputSchema": {"type": "object"}, "outputSchema": schema}
    script = wire.script({"tools/list": {"tools": [tool]}, "tools/call": {**DONE, "structuredContent": {"n": "many"}}})
    async with script.client() as client:
        await client.list_tools()
        with pytest.raises(TrunklineError, match="n"):
            await client.call_tool("work", {})


@behaviour("client.structured-error", "2025-06-18 server/tools#error-handling", SINCE_2025_06)
async def test_a_failed_tool_need_not_keep_its_schema(wire: Wire) -> None:
    tool = {"name": "work", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object", "required": ["n"]}}
    failed = {"content": [{"type": "text", "text": "disk full"}], "isError": True}
    script = wire.script({"tools/list": {"tools": [tool]}, "tools/call": failed})
    async with script.client() as client:
        await client.list_tools()
        with pytest.raises(ToolError, match="disk full"):
            await client.call_tool("work", {})


@behaviour("client.structured-schema-broken", "2026-07-28 basic/index#ref-resolution", SINCE_2025_06)
async def test_a_tool_with_a_broken_output_schema_does_not_break_the_list(wire: Wire) -> None:
    schema = {"type": "object", "properties": {"n": {"$ref": "http://127.0.0.1:9/x"}}}
    tool = {"name": "work", "inputSchema": {"type": "object"}, "outputSchema": schema}
    script = wire.script({"tools/list": {"tools": [tool]}})
    async with script.client() as client:
        assert [each.name for each in await client.list_tools()] == ["work"]


# --- progress --------------------------------------------------------------------------------------------------------


@behaviour("client.progress", "2025-11-25 basic/utilities/progress#progress-flow", transports=ANYWHERE)
async def test_progress_reaches_the_callback_of_its_call(wire: Wire) -> None:
    script = wire.script()
    news: list[Any] = []
    async with script.client() as client:
        call, request = await calling(script, client, on_progress=lambda *report: news.append(report))
        token = request["params"]["_meta"]["progressToken"]
        script.tell(PROGRESS, {"progressToken": token, "progress": 1, "total": 2})
        script.tell(PROGRESS, {"progressToken": token, "progress": 2, "total": 2})
        script.answer(request, DONE)
        await call
        assert (type(token) in (int, str), [report[:2] for report in news]) == (True, [(1, 2), (2, 2)])


@behaviour("client.progress-bad", "2025-11-25 basic/utilities/progress#behavior-requirements")
async def test_progress_that_fits_nothing_or_does_not_increase_is_ignored(wire: Wire) -> None:
    script = wire.script()
    news: list[Any] = []
    async with script.client() as client:
        call, request = await calling(script, client, on_progress=lambda *report: news.append(report[0]))
        token = request["params"]["_meta"]["progressToken"]
        script.tell(PROGRESS, {"progressToken": "unknown", "progress": 1})
        script.tell(PROGRESS, {"progressToken": token, "progress": 5})
        script.tell(PROGRESS, {"progressToken": token, "progress": 5})
        script.tell(PROGRESS, {"progressToken": token, "progress": "many"})
        script.answer(request, DONE)
        script.tell(PROGRESS, {"progressToken": token, "progress": 6})
        await call
        assert news == [5]


@behaviour("client.progress-unwanted", "2025-11-25 basic/utilities/progress#progress-flow")
async def test_a_call_without_a_callback_asks_for_no_progress(wire: Wire) -> None:
    script = wire.script({"tools/call": DONE})
    async with script.client() as client:
        await client.call_tool("work", {})
        assert "progressToken" not in script.all("tools/call")[0]["params"].get("_meta", {})


@behaviour("client.progress-tokens", "2025-11-25 basic/utilities/progress#progress-flow")
async def test_tokens_of_calls_in_flight_are_different(wire: Wire) -> None:
    script = wire.script()
    async with script.client() as client:
        first, one = await calling(script, client, on_progress=print)
        second, two = await calling(script, client, on_progress=print)
        assert one["params"]["_meta"]["progressToken"] != two["params"]["_meta"]["progressToken"]
        script.answer(one, DONE)
        script.answer(two, DONE)
        await asyncio.gather(first, second)


# --- cancelling and clocks -------------------------------------------------------------------------------------------


@behaviour("client.cancel", "2026-07-28 basic/transports/stdio#cancellation", transports=ANYWHERE)
async def test_a_call_that_is_given_up_is_cancelled_on_the_wire(wire: Wire) -> None:
    script = wire.script()
    async with script.client() as client:
        call, request = await calling(script, client)
        call.cancel()
        assert (await script.heard("notifications/cancelled"))["params"]["requestId"] == request["id"]


@behaviour("client.cancel-late", "2025-11-25 basic/utilities/cancellation#behavior-requirements", transports=ONE_LINK)
async def test_an_answer_to_a_cancelled_call_is_dropped(wire: Wire) -> None:
    script = wire.script()
    async with script.client() as client:
        call, request = await calling(script, client)
        call.cancel()
        await script.heard("notifications/cancelled")
        script.answer(request, DONE)
        script.table["tools/call"] = DONE
        assert ((await client.call_tool("work", {})).text, client.dropped) == ("done", 1)


@behaviour("client.cancel-done", "2025-11-25 basic/utilities/cancellation#behavior-requirements")
async def test_a_call_that_was_answered_is_not_cancelled(wire: Wire) -> None:
    script = wire.script({"tools/call": DONE})
    async with script.client() as client:
        await client.call_tool("work", {})
    assert "notifications/cancelled" not in script.methods


@behaviour("client.timeout", "2025-11-25 basic/lifecycle#timeouts", transports=ANYWHERE)
async def test_a_call_without_an_answer_in_time_is_cancelled_and_fails(wire: Wire) -> None:
    script, clock = wire.script(), ManualClock()
    async with script.client(clock=clock, timeout=5) as client:
        call, request = await calling(script, client)
        await clock.advance(6)
        with pytest.raises(RequestTimeout) as caught:
            await call
        assert (caught.value.clock, caught.value.seconds) == ("idle", 5)
        assert (await script.heard("notifications/cancelled"))["params"]["requestId"] == request["id"]


@behaviour("client.timeout-default", "2025-11-25 basic/lifecycle#timeouts")
async def test_a_call_has_a_default_timeout(wire: Wire) -> None:
    script, clock = wire.script(), ManualClock()
    async with script.client(clock=clock) as client:
        call, _ = await calling(script, client)
        await clock.advance(61)
        with pytest.raises(RequestTimeout):
            await call


@behaviour("client.timeout-call", "2025-11-25 basic/lifecycle#timeouts")
async def test_a_call_may_have_a_time_of_its_own(wire: Wire) -> None:
    script, clock = wire.script(), ManualClock()
    async with script.client(clock=clock) as client:
        call, _ = await calling(script, client, timeout=2)
        await clock.advance(3)
        with pytest.raises(RequestTimeout):
            await call


@behaviour("client.timeout-progress", "2025-11-25 basic/lifecycle#timeouts")
async def test_progress_keeps_a_call_alive(wire: Wire) -> None:
    script, clock, moved = wire.script(), ManualClock(), asyncio.Event()
    async with script.client(clock=clock, timeout=5) as client:
        call, request = await calling(script, client, on_progress=lambda *report: moved.set())
        await clock.advance(4)
        script.tell(PROGRESS, {"progressToken": request["params"]["_meta"]["progressToken"], "progress": 1})
        await moved.wait()
        await clock.advance(4)
        script.answer(request, DONE)
        assert (await call).text == "done"


@behaviour("client.timeout-total", "2025-11-25 basic/lifecycle#timeouts")
async def test_progress_does_not_keep_a_call_alive_for_ever(wire: Wire) -> None:
    script, clock, moved = wire.script(), ManualClock(), asyncio.Event()
    async with script.client(clock=clock, timeout=5) as client:
        call, request = await calling(script, client, on_progress=lambda *report: moved.set(), total_timeout=6)
        await clock.advance(4)
        script.tell(PROGRESS, {"progressToken": request["params"]["_meta"]["progressToken"], "progress": 1})
        await moved.wait()
        await clock.advance(4)
        with pytest.raises(RequestTimeout) as caught:
            await call
        assert caught.value.clock == "total"


@behaviour("client.timeout-asking", "2025-11-25 basic/lifecycle#timeouts", HANDSHAKE)
async def test_the_time_in_which_a_person_is_asked_does_not_count(wire: Wire) -> None:
    script, clock = wire.script(), ManualClock()
    asked, answered = asyncio.Event(), asyncio.Event()

    async def sampling(params: Any) -> str:
        asked.set()
        await answered.wait()
        return "at last"

    async with script.client(clock=clock, timeout=5, sampling=sampling) as client:
        call, request = await calling(script, client)
        message = {"role": "user", "content": {"type": "text", "text": "Hi"}}
        question = asyncio.ensure_future(script.ask("sampling/createMessage", {"messages": [message], "maxTokens": 10}))
        await asked.wait()
        await clock.advance(100)
        answered.set()
        await question
        script.answer(request, DONE)
        assert (await call).text == "done"


# --- pages -----------------------------------------------------------------------------------------------------------


def pages(*cursors: str | None) -> Any:
    """Answer page after page with these cursors; a page names the cursor it was asked for."""
    left = iter(cursors)

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        cursor = next(left)
        page = {"tools": [{"name": f"after {params.get('cursor')}", "inputSchema": {"type": "object"}}]}
        return page if cursor is None else {**page, "nextCursor": cursor}

    return answer


@behaviour("client.pages", "2026-07-28 server/utilities/pagination#implementation-guidelines")
async def test_a_client_reads_all_pages_and_returns_cursors_unchanged(wire: Wire) -> None:
    script = wire.script({"tools/list": pages("", "a b/%", None)})
    async with script.client() as client:
        assert [tool.name for tool in await client.list_tools()] == ["after None", "after ", "after a b/%"]


@behaviour("client.pages-loop", "2025-11-25 server/utilities/pagination#implementation-guidelines")
async def test_a_client_ends_a_list_whose_cursor_comes_again(wire: Wire) -> None:
    script = wire.script({"tools/list": pages("a", "b", "a", "b", "a")})
    async with script.client() as client:
        with pytest.raises(RemoteProtocolError, match="'a'"):
            await client.list_tools()


@behaviour("client.pages-limit", "2025-11-25 server/utilities/pagination#implementation-guidelines")
async def test_a_client_ends_a_list_that_never_ends(wire: Wire) -> None:
    script = wire.script({"tools/list": pages(*map(str, range(20)))})
    async with script.client(limits=Limits(pages=5)) as client:
        with pytest.raises(RemoteProtocolError, match="5"):
            await client.list_tools()


# --- kept results ----------------------------------------------------------------------------------------------------


def fresh(ttl_ms: Any = 1000, **members: Any) -> dict[str, Any]:
    return {"ttlMs": ttl_ms, "cacheScope": "private", **members}


@behaviour("caching.client-kept", "2026-07-28 server/utilities/caching#freshness-calculation", STATELESS)
async def test_a_fresh_result_is_not_fetched_again_until_its_time_is_over(wire: Wire) -> None:
    script, clock = wire.script({"tools/list": fresh(tools=[])}), ManualClock()
    async with script.client(clock=clock) as client:
        await client.list_tools()
        await client.list_tools()
        kept = len(script.all("tools/list"))
        await clock.advance(1.1)
        await client.list_tools()
        assert (kept, len(script.all("tools/list"))) == (1, 2)


@behaviour("caching.client-stale", "2026-07-28 server/utilities/caching#time-to-live-ttl-field", STATELESS)
@pytest.mark.parametrize("hints", [{"ttlMs": 0, "cacheScope": "public"}, {"ttlMs": -5, "cacheScope": "public"}, {}])
async def test_a_result_without_a_time_is_fetched_each_time(wire: Wire, hints: dict[str, Any]) -> None:
    script = wire.script({"tools/list": {"tools": [], **hints}})
    async with script.client() as client:
        await client.list_tools()
        await client.list_tools()
        assert len(script.all("tools/list")) == 2


@behaviour("caching.client-key", "2026-07-28 server/utilities/caching#cache-key", STATELESS)
async def test_a_result_is_kept_for_its_own_parameters_alone(wire: Wire) -> None:
    def read(params: dict[str, Any]) -> dict[str, Any]:
        return fresh(contents=[{"uri": params["uri"], "text": params["uri"]}])

    script = wire.script({"resources/read": read})
    async with script.client() as client:
        texts = [(await client.read_resource(uri))[0].text for uri in ("note://a", "note://b", "note://a")]
        assert (texts, len(script.all("resources/read"))) == (["note://a", "note://b", "note://a"], 2)


@behaviour(
    "caching.client-notice", "2026-07-28 server/utilities/caching#interaction-with-notifications", STATELESS, ANYWHERE
)
async def test_a_notification_invalidates_the_cache(wire: Wire) -> None:
    script = wire.script({"tools/list": fresh(tools=[]), "subscriptions/listen": SILENCE})
    async with script.client() as client:
        await client.list_tools()
        opening = asyncio.ensure_future(client.listen(tools=True).__aenter__())
        stamp = {f"{META}subscriptionId": (await script.heard("subscriptions/listen"))["id"]}
        script.tell(
            "notifications/subscriptions/acknowledged", {"_meta": stamp, "notifications": {"toolsListChanged": True}}
        )
        listener = await opening
        script.tell("notifications/tools/list_changed", {"_meta": stamp})
        await anext(aiter(listener))
        await client.list_tools()
        await listener.aclose()
        assert len(script.all("tools/list")) == 2


@behaviour("caching.client-rounds", "2026-07-28 server/utilities/caching#cache-key", STATELESS)
async def test_a_result_of_several_rounds_is_not_kept(wire: Wire) -> None:
    def read(params: dict[str, Any]) -> dict[str, Any]:
        if "requestState" in params:
            return fresh(contents=[{"uri": params["uri"], "text": "one"}])
        return {"resultType": "input_required", "requestState": "state"}

    script = wire.script({"resources/read": read})
    async with script.client() as client:
        await client.read_resource("note://one")
        await client.read_resource("note://one")
        assert len(script.all("resources/read")) == 4


@behaviour("caching.client-handshake", "2026-07-28 server/utilities/caching#time-to-live-ttl-field", HANDSHAKE)
async def test_results_without_cache_hints_are_not_cached(wire: Wire) -> None:
    script = wire.script({"tools/list": fresh(tools=[])})
    async with script.client() as client:
        await client.list_tools()
        await client.list_tools()
        assert len(script.all("tools/list")) == 2


@behaviour("caching.client-cursor-dead", "2026-07-28 server/utilities/caching#interaction-with-pagination", STATELESS)
async def test_an_expired_cursor_restarts_the_list(wire: Wire) -> None:
    refused = iter([True])

    def answer(params: dict[str, Any]) -> Any:
        if "cursor" not in params:
            return fresh(60_000, tools=[], nextCursor="b")
        return Failure(-32602, "stale") if next(refused, False) else fresh(0, tools=[])

    script = wire.script({"tools/list": answer})
    async with script.client() as client:
        assert await client.list_tools() == []
        assert [message["params"].get("cursor") for message in script.all("tools/list")] == [None, "b", None, "b"]
