"""A server is a definition, and a runtime serves it in one event loop."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import sys
import threading
import types
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.server.talk import HANDSHAKE, STATELESS, reach
from tests.server.tasks.talk import EXTENSION, opened
from trunkline import Client, Context, Server
from trunkline.server.replacement import Reloader
from trunkline.server.runtime import ServerRuntime, current_runtime, runtime_for, server_store

SECONDS = 30
CHANGED = "notifications/tools/list_changed"


def one() -> int:
    return 1


def two() -> int:
    return 2


# --- the definition --------------------------------------------------------------------------------------------------


async def test_a_definition_has_few_public_names_and_nothing_of_a_loop() -> None:
    server = Server("s", tools=[one])
    names = {name for name in dir(server) if not name.startswith("_")}
    of_a_runtime = {name for name in dir(runtime_for(server)) if not name.startswith("_")}
    assert len(names) <= 40
    # A definition passes these on to its runtimes.
    assert names & of_a_runtime == {
        "accept",
        "aclose",
        "close",
        "limits",
        "notify",
        "subscriber",
        "subscribers",
        "table",
    }


async def test_serving_leaves_a_definition_as_it_was() -> None:
    server = Server("s", tools=[one])
    before = dict(vars(server))
    async with Client(server) as client:
        await client.call_tool("one")
    assert vars(server) == before


def test_a_definition_is_pickled_by_the_name_of_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("shop_of_test_runtime")
    module.__dict__["front"] = server = Server("shop")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    data = pickle.dumps(server)
    assert b"shop_of_test_runtime:front" in data
    assert pickle.loads(data) is server
    del module.__dict__["front"]
    with pytest.raises(pickle.PicklingError, match=r"'shop' .* assign it at the top level of a module"):
        pickle.dumps(server)
    with pytest.raises(pickle.UnpicklingError, match="shop_of_test_runtime:front is no server"):
        pickle.loads(data)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
async def test_a_process_forked_while_a_definition_is_served_serves_it_itself() -> None:
    server = Server("s", tools=[one])

    async def serve_again() -> None:
        async with asyncio.timeout(SECONDS), reach(server, HANDSHAKE) as peer:
            assert len(server._served_by()) == 1
            server.remove_tool("one")
            await peer.notice(CHANGED)

    async with asyncio.timeout(SECONDS), reach(server, HANDSHAKE) as peer:
        read, write = os.pipe()
        if (child := os.fork()) == 0:  # pragma: no cover - in the child
            failed = True
            try:
                asyncio._set_running_loop(None)
                asyncio.run(serve_again())
                failed = False
            finally:
                os.write(write, b"x" if failed else b"ok")
                os._exit(0)
        os.close(write)
        outcome = await asyncio.to_thread(os.read, read, 2)
        os.close(read)
        await asyncio.to_thread(os.waitpid, child, 0)
        assert outcome == b"ok"
        # What the child changed did not reach the clients of this process.
        assert [tool["name"] for tool in (await peer.request("tools/list"))["result"]["tools"]] == ["one"]
        assert peer.notices(CHANGED) == []


# --- event loops -----------------------------------------------------------------------------------------------------


async def test_all_connections_in_one_event_loop_share_a_runtime() -> None:
    server = Server("s")
    async with reach(server, HANDSHAKE), reach(server, STATELESS):
        assert server._served_by() == [runtime_for(server)]
        assert current_runtime(server) is runtime_for(server)


async def test_a_mounted_server_is_served_by_the_runtime_of_its_parent() -> None:
    inner, outer = Server("inner", tools=[one]), Server("outer")
    outer.mount(inner, "in")
    async with reach(outer, STATELESS):
        assert current_runtime(inner).definition is outer
    with pytest.raises(RuntimeError, match="'alone' is not served in this event loop"):
        current_runtime(Server("alone"))


class Serving(threading.Thread):
    """Serves a definition over HTTP on a port of its own, in an event loop of its own."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.url = ""
        self.runtime: Callable[[], ServerRuntime | None] = lambda: None
        self.loop = asyncio.new_event_loop()
        self.started = threading.Event()

    def run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            self.task = self.loop.create_task(
                self.server.run_async("http", port=0, started=self._listens, log_level=None)
            )
            runner.run(self._until_cancelled())

    async def _until_cancelled(self) -> None:
        await asyncio.wait([self.task])

    def _listens(self, url: str) -> None:
        self.url = f"{url}/mcp"
        self.runtime = weakref.ref(runtime_for(self.server))
        self.started.set()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.task.cancel)
        self.join(SECONDS)


def test_two_event_loops_serve_one_definition_at_once() -> None:
    server = Server("s", tools=[one])
    threads = [Serving(server), Serving(server)]
    for thread in threads:
        thread.start()
        assert thread.started.wait(SECONDS)

    async def visit() -> list[Any]:
        reached = [asyncio.Event(), asyncio.Event()]

        def client(number: int) -> Client:
            def hear(method: str, _: dict[str, Any]) -> None:
                if method == CHANGED:
                    reached[number].set()

            return Client(threads[number].url, revision=HANDSHAKE, on_notification=hear)

        async with asyncio.timeout(SECONDS), client(0) as first, client(1) as second:
            answers: list[Any] = [(await each.call_tool("one")).data for each in (first, second)]
            server.add_tool(two)
            for event in reached:
                await event.wait()
            return [*answers, *[(await each.call_tool("two")).data for each in (first, second)]]

    try:
        assert threads[0].runtime() is not threads[1].runtime()
        assert len(server._served_by()) == 2
        assert asyncio.run(visit()) == [1, 1, 2, 2]
    finally:
        for thread in threads:
            thread.stop()
    threads.clear()
    del thread
    gc.collect()
    assert server._known_runtimes() == []


def test_nothing_is_left_of_an_event_loop_that_has_ended() -> None:
    server = Server("s", tools=[one])
    left: list[weakref.ref[object]] = []
    workers: list[threading.Thread] = []

    async def serve() -> None:
        before = threading.enumerate()
        async with Client(server) as client:
            await client.call_tool("one")
            workers.extend(thread for thread in threading.enumerate() if thread not in before)
            runtime = runtime_for(server)
            left.extend([weakref.ref(runtime), weakref.ref(runtime.loop)])

    asyncio.run(serve())
    gc.collect()
    assert left[0]() is None
    # Its worker thread ends then, and with it the last reference to the event loop.
    assert len(workers) == 1
    workers[0].join(SECONDS)
    assert not workers[0].is_alive()
    gc.collect()
    assert left[1]() is None


def test_what_a_definition_stored_in_memory_outlives_the_event_loop() -> None:
    server = Server("s")

    async def put() -> None:
        await (await runtime_for(server).state.ready()).put("k", b"v", ttl=60)

    async def get() -> bytes | None:
        return await (await runtime_for(server).state.ready()).get("k")

    asyncio.run(put())
    gc.collect()
    assert asyncio.run(get()) == b"v"


async def test_closing_a_server_closes_its_store_also_if_nothing_serves_it_any_more(tmp_path: Path) -> None:
    server = Server("s", store=tmp_path / "s.db")
    await runtime_for(server).state.ready()
    gc.collect()
    assert server._known_runtimes() == []
    assert server_store(server).opened is not None
    await server.aclose()
    assert server_store(server).opened is None


# --- the order of life -----------------------------------------------------------------------------------------------


def recorded(steps: list[str], name: str = "s") -> Server:
    """Return a server that records the steps of its life."""

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[str]:
        steps.append("enter")
        yield name
        steps.append("exit")

    server = Server(name, lifespan=lifespan)

    @server.tool
    async def which(ctx: Context) -> str:
        steps.append("call")
        return str(ctx.lifespan_context)

    @server.tool
    def sync() -> str:
        return threading.current_thread().name

    return server


async def test_the_order_of_life() -> None:
    steps: list[str] = []
    server = recorded(steps)
    async with asyncio.timeout(SECONDS):
        async with reach(server, STATELESS) as peer:
            runtime = runtime_for(server)
            await peer.call("which")
            assert steps == ["enter", "call"]
            await peer.call("sync")
            listening = await peer.send("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            await peer.notice("notifications/subscriptions/acknowledged")
            runtime.begin_drain()
            assert "result" in await peer.answer(listening)
            assert runtime.draining
            assert not runtime.closed
            await runtime.drain(0.0)
            await peer.call("which")
        assert steps == ["enter", "call", "call", "exit"]
        await runtime.aclose()
        with pytest.raises(RuntimeError, match="pool is closed"):
            await runtime.submit(one, {})
        # The definition can be served again.
        async with reach(server, STATELESS) as peer:
            assert runtime_for(server) is not runtime
            await peer.call("which")
    assert steps == ["enter", "call", "call", "exit", "enter", "call", "exit"]


async def test_a_definition_is_swapped_while_a_call_runs_and_a_stream_is_open() -> None:
    release = asyncio.Event()

    def version(number: int) -> Server:
        server = Server("s")

        @server.tool
        async def slow() -> int:
            if number == 1:
                await release.wait()
            return number

        if number == 2:
            server.add_tool(one)
        return server

    old, new = version(1), version(2)
    reloader = Reloader(old)
    async with asyncio.timeout(SECONDS), reach(old, STATELESS) as peer:
        runtime, hub = runtime_for(old), runtime_for(old).hub
        listening = await peer.send("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await peer.notice("notifications/subscriptions/acknowledged")
        call = await peer.send("tools/call", {"name": "slow", "arguments": {}})
        await asyncio.sleep(0.01)
        await reloader.replace(new)
        assert (runtime.definition, runtime_for(new), runtime.hub) == (new, runtime, hub)
        # The stream is still open, and hears of changes of the new definition.
        await peer.notice(CHANGED)
        assert (await peer.call("slow"))["structuredContent"] == {"result": 2}
        assert [*runtime.retired] == [old]
        release.set()
        assert (await peer.answer(call))["result"]["structuredContent"] == {"result": 1}
        await asyncio.sleep(0.01)
        assert runtime.retired == {}
        # The definition before reaches no client any more.
        old.changed("tools")
        seen = len(peer.notices(CHANGED))
        await asyncio.sleep(0.01)
        assert len(peer.notices(CHANGED)) == seen
        await reloader.aclose()
        assert "result" in await peer.answer(listening)


async def test_a_running_task_goes_on_inside_its_lifespan_when_the_definition_is_swapped() -> None:
    steps: list[str] = []
    entered, release = asyncio.Event(), asyncio.Event()

    def version(number: int) -> Server:
        @asynccontextmanager
        async def lifespan(_: Server) -> AsyncIterator[None]:
            yield
            steps.append(f"exit {number}")

        server = Server("s", lifespan=lifespan)

        @server.tool(task=True)
        async def work() -> int:
            entered.set()
            await release.wait()
            steps.append(f"done {number}")
            return number

        return server

    reloader = Reloader(version(1))
    async with asyncio.timeout(SECONDS), opened(reloader.server, EXTENSION) as peer:
        id = await peer.start()
        await entered.wait()
        await reloader.replace(version(2))
        await asyncio.sleep(0.01)
        assert steps == []
        release.set()
        assert (await peer.outcome(id))["structuredContent"] == {"result": 1}
        assert steps == ["done 1", "exit 1"]
        await reloader.aclose()
    assert steps == ["done 1", "exit 1", "exit 2"]
