"""What a handler sees of its request, and what it can say."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated, Any

import pytest

from tests.server.talk import ERAS, HANDSHAKE, STATELESS, call, reach, serving, text
from trunkline import Context, Depends
from trunkline.errors import RequestFailed

LEVEL = "io.modelcontextprotocol/logLevel"


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
            servers=ctx.server is server,
            auth=(ctx.auth, ctx.client_id, ctx.session_id),
            trace=ctx.meta["acme/trace"],
            cancelled=ctx.cancelled,
            lifespan=ctx.lifespan_context,
        )

    server = serving(f)
    async with reach(server, revision, {"roots": {}}) as peer:
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
        "servers": True,
        "auth": (None, None, None),
        "trace": "t1",
        "cancelled": False,
        "lifespan": None,
    }


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


@pytest.mark.parametrize(
    ("level", "message", "words"),
    [("loud", "x", "unknown log level 'loud'"), ("the disk is full", "warning", "the level comes first")],
)
def test_an_unknown_log_level_is_an_error_of_the_handler_in_its_own_thread(
    level: Any, message: str, words: str
) -> None:
    async def f(ctx: Context) -> None:
        await ctx.log(level, message)

    def in_a_thread(ctx: Context) -> str:
        with pytest.raises(ValueError, match=words) as caught:
            ctx.log(level, message)  # type: ignore[unused-coroutine]
        return str(caught.value)

    said = [text(call(serving(function, mask_error_details=False), "f")) for function in (f, in_a_thread)]
    assert [words in each for each in said] == [True, True]


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
@pytest.mark.parametrize(
    ("uri", "found"),
    [("x://fixed", "text"), ("x://of/ada", "of ada"), ("x://none", "Resource not found: x://none")],
)
def test_a_handler_reads_resources_of_its_server(revision: str, uri: str, found: str) -> None:
    async def f(ctx: Context) -> str:
        try:
            return str((await ctx.read_resource(uri))[0].text)
        except RequestFailed as error:
            return error.message

    server = serving(f)
    server.add_resource("x://fixed", "text")
    server.add_resource("x://of/{name}", lambda name: f"of {name}")
    assert text(call(server, "f", revision)) == found


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
        cancelled.wait(120)
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


async def test_progress_that_is_no_number_is_rejected_even_if_nobody_asked_for_it() -> None:
    async def f(ctx: Context) -> str:
        with pytest.raises(TypeError, match="takes numbers, and the text last"):
            await ctx.report_progress("half")  # type: ignore[arg-type]
        return "told"

    async with reach(serving(f), STATELESS) as peer:
        assert text(await peer.call("f")) == "told"
