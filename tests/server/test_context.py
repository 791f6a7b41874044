"""What a handler sees of its request, and what it can say."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Annotated, Any

import pytest

from tests.server.talk import ERAS, HANDSHAKE, STATELESS, call, reach, text
from trunkline import Context, Depends, Server
from trunkline.errors import RequestFailed

LEVEL = "io.modelcontextprotocol/logLevel"


def serving(function: Callable[..., Any], **options: Any) -> Server:
    server = Server("s", **options)
    server.add_tool(function, name="f")
    return server


def said(peer: Any) -> list[Any]:
    return [each["data"] for each in peer.notices("notifications/message")]


# --- looking ---------------------------------------------------------------------------------------------------------


@ERAS
async def test_a_handler_sees_its_request(revision: str) -> None:
    seen: dict[str, Any] = {}

    async def f(ctx: Context) -> None:
        client = ctx.client
        seen.update(
            id=ctx.request_id,
            method=ctx.method,
            round=ctx.round,
            name=client.name,
            info=client.info and client.info.version,
            revision=client.revision,
            capabilities=client.capabilities,
            supports=(client.supports("roots"), client.supports("sampling")),
            auth=(ctx.auth, ctx.client_id, ctx.session_id),
            trace=ctx.meta["acme/trace"],
            cancelled=ctx.cancelled,
            lifespan=ctx.lifespan_context,
        )

    async with reach(serving(f), revision, {"roots": {}}) as peer:
        await peer.request("tools/call", {"name": "f"}, id=77, meta={"acme/trace": "t1"})
    assert seen == {
        "id": "77",
        "method": "tools/call",
        "round": 0,
        "name": "raw",
        "info": "1",
        "revision": revision,
        "capabilities": {"roots": {}},
        "supports": (True, False),
        "auth": (None, None, None),
        "trace": "t1",
        "cancelled": False,
        "lifespan": None,
    }


@ERAS
def test_other_names_for_the_server_and_the_request(revision: str) -> None:
    async def f(ctx: Context) -> bool:
        return ctx.server is ctx.fastmcp is server and ctx.request_context is ctx

    server = serving(f)
    assert text(call(server, "f", revision)) == "true"


async def test_a_client_without_info_has_no_name() -> None:
    async def f(ctx: Context) -> str:
        return str(ctx.client.name)

    async with reach(serving(f), STATELESS) as peer:
        assert text(await peer.call("f", meta={"io.modelcontextprotocol/clientInfo": None})) == "None"


# --- state -----------------------------------------------------------------------------------------------------------


@ERAS
def test_middleware_dependencies_and_handler_share_the_state_of_a_request(revision: str) -> None:
    async def noting(request: Any, call_next: Any) -> Any:
        request.context.set_state("who", "ada")
        return await call_next(request)

    def greeting(ctx: Context) -> str:
        ctx.set_state("greeting", "hello")
        return "unused"

    async def f(ctx: Context, unused: Annotated[str, Depends(greeting)]) -> str:
        return f"{ctx.get_state('greeting')} {ctx.get_state('who')} {ctx.get_state('none')}"

    assert text(call(serving(f, middleware=[noting]), "f", revision)) == "hello ada None"


@ERAS
async def test_the_state_of_a_request_ends_with_it(revision: str) -> None:
    async def f(ctx: Context) -> str:
        before = ctx.get_state("n")
        ctx.set_state("n", 1)
        return str(before)

    async with reach(serving(f), revision) as peer:
        assert [text(await peer.call("f")), text(await peer.call("f"))] == ["None", "None"]


# --- progress --------------------------------------------------------------------------------------------------------


async def _counts(ctx: Context) -> None:
    await ctx.report_progress(1, 3, "one")
    await ctx.report_progress(1, 3, "again")
    await ctx.report_progress(0.5)
    await ctx.report_progress(2)


def _counts_in_a_thread(ctx: Any) -> None:
    ctx.report_progress(1, 3, "one")
    ctx.report_progress(1, 3, "again")
    ctx.report_progress(0.5)
    ctx.report_progress(2)


_counts_in_a_thread.__annotations__["ctx"] = Context


@ERAS
@pytest.mark.parametrize("function", [_counts, _counts_in_a_thread], ids=["async", "sync"])
async def test_progress_only_goes_forward(revision: str, function: Callable[..., Any]) -> None:
    async with reach(serving(function), revision) as peer:
        await peer.call("f", meta={"progressToken": "p"})
    assert peer.notices("notifications/progress") == [
        {"progressToken": "p", "progress": 1, "total": 3, "message": "one"},
        {"progressToken": "p", "progress": 2},
    ]


@ERAS
async def test_progress_is_not_sent_without_a_token(revision: str) -> None:
    async with reach(serving(_counts), revision) as peer:
        await peer.call("f")
    assert peer.notices("notifications/progress") == []


# --- log messages ----------------------------------------------------------------------------------------------------


async def _logs(ctx: Context) -> None:
    await ctx.debug("d")
    await ctx.info("i", "name")
    await ctx.warning("w", extra={"a": 1})
    await ctx.error("e", code=5)
    await ctx.log("notice", "n", logger_name="l")
    await ctx.log(message="named", level="notice")


async def test_log_messages_have_a_level_a_logger_and_data() -> None:
    async with reach(serving(_logs), STATELESS) as peer:
        await peer.call("f", meta={LEVEL: "debug"})
    heard = [(each["level"], each.get("logger"), each["data"]) for each in peer.notices("notifications/message")]
    assert heard == [
        ("debug", None, "d"),
        ("info", "name", "i"),
        ("warning", None, {"message": "w", "a": 1}),
        ("error", None, {"message": "e", "code": 5}),
        ("notice", "l", "n"),
        ("notice", None, "named"),
    ]


async def test_a_request_without_a_log_level_gets_no_log_messages() -> None:
    async with reach(serving(_logs), STATELESS) as peer:
        await peer.call("f")
    assert said(peer) == []


async def test_messages_below_the_log_level_are_not_sent() -> None:
    async with reach(serving(_logs), HANDSHAKE) as peer:
        await peer.result("logging/setLevel", {"level": "error"})
        await peer.call("f")
    assert said(peer) == [{"message": "e", "code": 5}]


@ERAS
def test_an_unknown_log_level_is_an_error_of_the_handler(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    async def f(ctx: Context) -> None:
        await ctx.log("loud", "x")  # type: ignore[arg-type]

    assert call(serving(f), "f", revision)["isError"] is True
    assert "unknown log level 'loud'" in caplog.text


@ERAS
def test_swapped_log_arguments_are_explained(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    async def f(ctx: Context) -> None:
        await ctx.log("the disk is full", "warning")  # type: ignore[arg-type]

    assert call(serving(f), "f", revision)["isError"] is True
    assert "the level comes first, then the message" in caplog.text


# --- notices of one's own --------------------------------------------------------------------------------------------


@ERAS
async def test_a_custom_notification_reaches_the_caller(revision: str) -> None:
    async def f(ctx: Context) -> None:
        await ctx.notify("acme/started", {"n": 1})

    async with reach(serving(f), revision) as peer:
        await peer.call("f")
    assert peer.notices("acme/started") == [{"n": 1}]


# --- resources -------------------------------------------------------------------------------------------------------


@ERAS
@pytest.mark.parametrize("uri", ["x://fixed", "x://of/ada"])
def test_a_handler_reads_resources_of_its_server(revision: str, uri: str) -> None:
    async def f(ctx: Context) -> str:
        return str((await ctx.read_resource(uri))[0].text)

    server = serving(f)
    server.add_resource("x://fixed", "text")
    server.add_resource("x://of/{name}", lambda name: f"of {name}")
    assert text(call(server, "f", revision)) == {"x://fixed": "text", "x://of/ada": "of ada"}[uri]


@ERAS
def test_a_handler_may_handle_a_missing_resource(revision: str) -> None:
    async def f(ctx: Context) -> str:
        try:
            await ctx.read_resource("x://none")
        except RequestFailed as error:
            return error.message
        return "found"

    server = serving(f)
    server.add_resource("x://fixed", "text")
    assert text(call(server, "f", revision)) == "Resource not found: x://none"


# --- threads ---------------------------------------------------------------------------------------------------------


def test_a_blocking_context_has_the_same_methods() -> None:
    def f(ctx: Context) -> list[bool]:
        context: Any = ctx
        return [hasattr(context, name) for name in ("elicit", "sample", "log", "teleport", "_private")]

    assert text(call(serving(f), "f")) == "[true,true,true,false,false]"


@ERAS
async def test_a_cancelled_sync_function_is_aborted_at_its_next_call(revision: str) -> None:
    started, cancelled, ended = threading.Event(), threading.Event(), threading.Event()
    log: list[Any] = []

    def f(ctx: Any) -> None:
        started.set()
        cancelled.wait(5)
        log.append(ctx.cancelled)
        try:
            ctx.info("too late")
        except BaseException as error:
            log.append(type(error).__name__)
            raise
        finally:
            ended.set()

    f.__annotations__["ctx"] = Context
    async with reach(serving(f), revision) as peer:
        id = await peer.send("tools/call", {"name": "f"})
        await asyncio.to_thread(started.wait, 5)
        await peer.tell("notifications/cancelled", {"requestId": id})
        await peer.settle()
        cancelled.set()
        await asyncio.to_thread(ended.wait, 5)
    assert log == [True, "HandlerAborted"]


async def test_a_blocked_sync_function_is_aborted_when_its_request_is_cancelled() -> None:
    asking, ended = threading.Event(), threading.Event()
    log: list[str] = []

    async def waits() -> None:
        asking.set()
        await asyncio.Event().wait()

    def f(ctx: Any) -> None:
        try:
            ctx.once("wait", waits)
        except BaseException as error:
            log.append(type(error).__name__)
            raise
        finally:
            ended.set()

    f.__annotations__["ctx"] = Context
    async with reach(serving(f), HANDSHAKE) as peer:
        id = await peer.send("tools/call", {"name": "f"})
        await asyncio.to_thread(asking.wait, 5)
        await peer.tell("notifications/cancelled", {"requestId": id})
        await asyncio.to_thread(ended.wait, 5)
    assert log == ["HandlerAborted"]


@ERAS
def test_errors_of_a_blocking_call_are_raised_in_the_thread(revision: str) -> None:
    def f(ctx: Any) -> str:
        try:
            ctx.log("loud", "x")
        except ValueError as error:
            return str(error)[:17]
        return "fine"

    f.__annotations__["ctx"] = Context
    assert text(call(serving(f), "f", revision)) == "unknown log level"
