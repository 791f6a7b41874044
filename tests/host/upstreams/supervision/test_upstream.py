"""One server under supervision: starting, crashing, hanging, resting; real processes, and a clock moved by hand."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.client.scripted_server import DIE, Fail, Scripted, handshake_server, settle, stateless
from tests.host.supervised import kept_in, no_trust, program, scripted, supervising
from tests.transports.processes import alive, gone_within
from trunkline.errors import ConnectionLost, ServerExited, ServerUnavailable
from trunkline.host.config.model import ServerEntry, Source

TOOLS = {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
DONE = {"content": [{"type": "text", "text": "done"}]}


def good_server(table: dict[str, Any] | None = None) -> Scripted:
    return handshake_server({"tools/list": TOOLS, "tools/call": DONE, **(table or {})}, tools={"listChanged": True})


# --- starting


async def test_a_process_is_started_listed_and_called() -> None:
    async with supervising({"a": program("a", "plain")}) as stage:
        client = await stage.upstream().connected_client()
        status = stage.upstream().status
        assert (await client.call_tool("pid")).text == str(status.pid)
        assert stage.states() == ["known", "starting", "ready"]
        assert (status.state, status.reason, status.tools, status.restarts) == ("ready", None, 1, 0)
        assert status.era == client.revision
        assert status.command.endswith("tests.host.servers.plain")
        assert status.source == "the given configuration"
    assert not alive(status.pid or 0)


async def test_a_server_that_declares_tools_and_lists_none_is_flagged() -> None:
    async with supervising({"a": scripted("a", stateless({"tools/list": {"tools": []}}, tools={}))}) as stage:
        await stage.upstream().connected_client()
        assert stage.upstream().status.reason == "it declares tools and lists none"


async def test_a_failed_list_makes_the_state_partial_and_is_retried_three_times() -> None:
    server = good_server({"tools/list": Fail(-32603, "no database")})
    async with supervising({"a": scripted("a", server)}) as stage:
        await stage.upstream().connected_client()
        assert stage.upstream().state == "partial"
        assert "tools/list failed: no database" in (stage.upstream().status.reason or "")
        await stage.pass_time(100.0, steps=200)
        assert server.methods.count("tools/list") == 4


async def test_a_list_that_works_after_all_makes_the_server_ready() -> None:
    answers = iter([Fail(-32603, "not yet")])
    server = good_server({"tools/list": lambda params: next(answers, TOOLS)})
    async with supervising({"a": scripted("a", server)}) as stage:
        await stage.until_state("partial")
        await stage.pass_time(1.0)
        await stage.until_state("ready")
        assert stage.upstream().status.tools == 1


async def test_a_server_that_dies_in_its_list_has_not_started() -> None:
    async with supervising({"a": program("a", "misbehaving", "die_in_list")}) as stage:
        await stage.until_state("waiting")
        assert "status 1" in (stage.upstream().status.last_error or "")
        assert stage.states() == ["known", "starting", "waiting"]


async def test_a_program_that_does_not_exist_is_named() -> None:
    entry = replace(program("a", "plain"), command=("no-such-program-here",))
    async with supervising({"a": entry}) as stage:
        await stage.until_state("waiting")
        assert "command not found: no-such-program-here" in (stage.upstream().status.last_error or "")


@pytest.mark.parametrize("fault", ["flood_stdout", "flood_stderr"])
async def test_a_server_that_floods_its_pipes_still_works(fault: str) -> None:
    async with supervising({"a": program("a", "misbehaving", fault)}) as stage:
        client = await stage.upstream().connected_client()
        assert (await client.call_tool("pid")).text == str(stage.upstream().status.pid)
        assert len(stage.upstream().stderr) <= 8192


# --- not started at all


async def test_what_is_not_approved_is_never_started() -> None:
    async with supervising({"a": program("a", "plain"), "b": program("b", "plain", start="lazy")}, trust=no_trust) as s:
        await s.until_state("unapproved")
        await s.until_state("unapproved", "b")
        with pytest.raises(ServerUnavailable, match="a is not approved: nobody approved it"):
            await s.upstream().connected_client()
        with pytest.raises(ServerUnavailable, match="not approved"):
            s.upstream("b").make_client()
        await s.upstream().restart()
        assert s.upstream().state == "unapproved"
        assert s.upstream().status.pid is None
        assert s.upstream().status.last_error is None


async def test_what_is_kept_of_an_eager_server_is_shown_while_it_starts_if_it_is_approved(tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.touch()
    entry = program("a", "slow_start", str(go))
    async with supervising({"a": entry}, cache=kept_in(tmp_path)) as stage:
        await stage.until_state("ready")
    go.unlink()
    async with supervising({"a": entry}, cache=kept_in(tmp_path)) as stage:
        await stage.until_state("starting")
        assert stage.upstream().status.tools == 1
    async with supervising({"a": entry}, cache=kept_in(tmp_path), trust=no_trust) as stage:
        await stage.until_state("unapproved")
        assert stage.offered == []


async def test_trust_is_asked_before_each_start() -> None:
    answers = iter([(True, None), (False, "the program changed")])

    async def trust(entry: ServerEntry) -> tuple[bool, str | None]:
        return next(answers)

    server = good_server({"tools/call": DIE})
    async with supervising({"a": scripted("a", server)}, trust=trust) as stage:
        client = await stage.upstream().connected_client()
        with pytest.raises(ConnectionLost):
            await client.call_tool("add")
        await stage.until_state("waiting")
        await stage.pass_time(1.0)
        await stage.until_state("unapproved")
        assert stage.upstream().status.reason == "the program changed"
        assert stage.upstream().offering is None


async def test_a_server_that_may_not_run_any_more_is_ended_when_it_is_vetted() -> None:
    answers = iter([True, True])

    async def trust(entry: ServerEntry) -> tuple[bool, str | None]:
        return next(answers, False), "it was revoked"

    async with supervising({"a": scripted("a", good_server())}, trust=trust) as stage:
        await stage.upstream().connected_client()
        await stage.upstream().verify_trust()
        with pytest.raises(ServerUnavailable, match="a is not approved: it was revoked"):
            await stage.upstream().verify_trust()
        await stage.until_state("unapproved")


async def test_no_other_client_is_made_before_it_is_clear_that_the_server_may_run() -> None:
    async with supervising({"a": scripted("a", good_server())}) as stage:
        with pytest.raises(ServerUnavailable, match="was not checked for approval yet"):
            stage.upstream().make_client()


def failing_once() -> Any:
    """Make a callback with a bug that shows once."""
    bugs = iter([KeyError("x")])

    async def trust(entry: ServerEntry) -> tuple[bool, str | None]:
        for bug in bugs:
            raise bug
        return True, None

    return trust


async def test_a_bug_in_a_callback_of_the_host_fails_one_server_and_is_tried_again() -> None:
    async with supervising({"a": scripted("a", good_server())}, trust=failing_once()) as stage:
        await stage.until_state("waiting")
        assert stage.upstream().status.last_error == "'x'"
        await stage.pass_time(1.0)
        await stage.upstream().connected_client()


async def test_a_server_that_is_approved_meanwhile_starts_when_it_is_restarted() -> None:
    answers = iter([(False, "new")])

    async def trust(entry: ServerEntry) -> tuple[bool, str | None]:
        return next(answers, (True, None))

    async with supervising({"a": scripted("a", good_server())}, trust=trust) as stage:
        await stage.until_state("unapproved")
        await stage.upstream().restart()
        assert stage.upstream().state == "ready"


@pytest.mark.parametrize(
    ("change", "state", "message"),
    [
        pytest.param({"disabled": True}, "disabled", "is disabled; enable it in mcp.json:7", id="disabled"),
        pytest.param({"problem": "mcp.json:7: no command"}, "misconfigured", "mcp.json:7: no command", id="problem"),
    ],
)
async def test_a_server_that_cannot_run_is_reported_at_once(change: dict[str, Any], state: str, message: str) -> None:
    entry = replace(program("a", "plain", source=Source("user", "mcp.json", 7)), **change)
    async with supervising({"a": entry}) as stage:
        assert stage.upstream().state == state
        with pytest.raises(ServerUnavailable, match=message):
            await stage.upstream().connected_client()
        await stage.upstream().restart()
        await stage.upstream().stop()
        assert stage.upstream().state == state
        assert await stage.supervisor.settled() is True


async def test_an_entry_that_makes_no_sense_is_misconfigured() -> None:
    entry = ServerEntry(name="a", source=Source("given"), url="http://u:p@127.0.0.1/")
    async with supervising({"a": entry}) as stage:
        await stage.until_state("misconfigured")
        with pytest.raises(ServerUnavailable, match="cannot be started as it is configured"):
            await stage.upstream().connected_client()


# --- crashing


async def test_a_server_that_crashes_is_started_again_after_a_wait() -> None:
    async with supervising({"a": program("a", "misbehaving", "crash_on_call")}) as stage:
        client = await stage.upstream().connected_client()
        with pytest.raises(ServerExited, match="status 7"):
            await client.call_tool("pid")
        await stage.until_state("waiting")
        assert "starts again in 0.2 s" in (stage.upstream().status.reason or "")
        assert "out of luck" in (stage.upstream().status.reason or "")
        await stage.pass_time(0.25)
        await stage.until_count("ready", 2)
        assert stage.upstream().status.restarts == 1


async def test_a_caller_of_a_waiting_server_gets_it_once_it_is_ready() -> None:
    server = good_server({"tools/call": DIE})
    async with supervising({"a": scripted("a", server)}) as stage:
        client = await stage.upstream().connected_client()
        with pytest.raises(ConnectionLost):
            await client.call_tool("add")
        reaching = asyncio.ensure_future(stage.upstream().connected_client())
        await stage.until_state("waiting")
        await stage.pass_time(0.25)
        assert await reaching is not client


async def test_waiting_callers_get_an_error_when_the_start_times_out() -> None:
    server = good_server({"initialize": None})
    async with supervising({"a": scripted("a", server, era="handshake", start_timeout=3.0)}) as stage:
        reaching = asyncio.ensure_future(stage.upstream().connected_client())
        await server.until(lambda: "initialize" in server.methods)
        stage.clock.advance(3.0)
        with pytest.raises(ServerUnavailable, match="was not ready within 3 s"):
            await reaching


def dying(**settings: Any) -> ServerEntry:
    return scripted("a", handshake_server({"initialize": DIE}), era="handshake", **settings)


async def test_a_server_that_crashes_again_and_again_is_left_alone() -> None:
    async with supervising(
        {"a": program("a", "misbehaving", "crash_at_start", crashes=3, secrets=frozenset({"secret-token"}))}
    ) as s:
        for _ in range(2):
            await s.until_state("waiting")
            s.clock.advance(2.0)
            await s.until_state("starting")
        await s.until_state("broken")
        assert s.states().count("starting") == 3
        assert "cannot open the database: ***" in (s.upstream().status.reason or "")
        with pytest.raises(ServerUnavailable, match="exited too often"):
            await s.upstream().connected_client()


async def _until_broken(stage: Any) -> None:
    while stage.upstream().state != "broken":
        await stage.until(lambda: stage.upstream().state in ("broken", "waiting"))
        await stage.pass_time(4.0)


async def test_a_broken_server_is_tried_once_more_after_five_minutes() -> None:
    async with supervising({"a": dying()}) as stage:
        await _until_broken(stage)
        before = stage.states().count("starting")
        await stage.pass_time(299.0)
        assert stage.states().count("starting") == before
        await stage.pass_time(2.0)
        await stage.until_count("broken", 2)
        assert stage.states().count("starting") == before + 1


async def test_a_broken_server_that_works_again_is_ready() -> None:
    server = handshake_server({"initialize": DIE, "tools/list": TOOLS})
    good = server.table | good_server().table
    async with supervising({"a": scripted("a", server, era="handshake")}) as stage:
        await _until_broken(stage)
        server.table = good
        await stage.upstream().restart()
        assert stage.upstream().state == "ready"


async def test_a_server_that_lived_for_a_minute_begins_with_the_first_wait() -> None:
    server = good_server({"tools/call": DIE})
    async with supervising({"a": scripted("a", server, crashes=3)}) as stage:
        for _ in range(5):
            await stage.until_state("ready")
            await stage.pass_time(61.0)
            server.stage.die()
            await stage.until_state("waiting")
            assert "in 0.2 s" in (stage.upstream().status.reason or "")
            await stage.pass_time(0.25)


async def test_the_waits_grow_while_it_keeps_crashing() -> None:
    async with supervising({"a": dying(crashes=100)}) as stage:
        waits = []
        for wait in (0.25, 0.5, 1.0, 2.0, 4.0):
            await stage.until_state("waiting")
            waits.append((stage.upstream().status.reason or "").split()[3])
            await stage.pass_time(wait)
        assert waits == ["0.2", "0.5", "1.0", "2.0", "4.0"]


# --- health


@pytest.mark.parametrize(
    ("make", "method"), [(handshake_server, "ping"), (stateless, "server/discover")], ids=["handshake", "stateless"]
)
async def test_a_quiet_server_is_asked_for_a_sign_of_life(make: Any, method: str) -> None:
    server = make({"tools/list": TOOLS}, tools={})
    async with supervising({"a": scripted("a", server)}) as stage:
        await stage.upstream().connected_client()
        before = server.methods.count(method)
        await stage.pass_time(91.0, steps=91)
        assert server.methods.count(method) == before + 3
        assert stage.states() == ["known", "starting", "ready"]


@pytest.mark.parametrize("refusal", [-32601, -32603], ids=["no-ping", "failing"])
async def test_even_a_refusal_is_a_sign_of_life(refusal: int) -> None:
    async with supervising({"a": scripted("a", good_server({"ping": Fail(refusal)}))}) as stage:
        await stage.upstream().connected_client()
        await stage.pass_time(300.0, steps=100)
        assert stage.states() == ["known", "starting", "ready"]


async def test_a_server_that_is_used_is_not_asked() -> None:
    server = good_server()
    async with supervising({"a": scripted("a", server)}) as stage:
        client = await stage.upstream().connected_client()
        for _ in range(20):
            with stage.upstream().track_call():
                await client.call_tool("add")
            await stage.pass_time(20.0)
        assert "ping" not in server.methods


async def test_one_missed_ping_is_forgiven() -> None:
    answers: Any = iter([None])
    server = good_server({"ping": lambda params: next(answers, {})})
    async with supervising({"a": scripted("a", server)}) as stage:
        await stage.upstream().connected_client()
        await stage.pass_time(60.0, steps=60)
        assert server.methods.count("ping") == 2
        assert stage.states() == ["known", "starting", "ready"]


async def test_a_server_that_hangs_is_ended_and_started_again(tmp_path: Path) -> None:
    hang = tmp_path / "hang"
    async with supervising({"a": program("a", "stops_answering", str(hang))}) as stage:
        await stage.upstream().connected_client()
        pid = stage.upstream().status.pid or 0
        hang.touch()
        await stage.pass_time(30.0)
        await stage.pass_time(10.0)
        await stage.pass_time(10.0)
        await stage.until_state("waiting")
        assert "did not answer 2 pings" in (stage.upstream().status.last_error or "")
        assert gone_within([pid], 5.0) == []


async def test_a_machine_that_slept_finds_its_servers_as_they_were(tmp_path: Path) -> None:
    hang = tmp_path / "hang"
    async with supervising({"a": program("a", "stops_answering", str(hang))}) as stage:
        await stage.upstream().connected_client()
        hang.touch()
        stage.clock._now += 8 * 3600.0
        await stage.pass_time(0.0)
        await stage.pass_time(25.0)
        assert stage.states() == ["known", "starting", "ready"]


async def test_a_server_busy_with_a_call_may_be_as_silent_as_the_call(tmp_path: Path) -> None:
    hang = tmp_path / "hang"
    async with supervising({"a": program("a", "stops_answering", str(hang))}) as stage:
        await stage.upstream().connected_client()
        with stage.upstream().track_call():
            hang.touch()
            await stage.pass_time(59.0, steps=60)
            assert stage.states() == ["known", "starting", "ready"]


async def test_progress_is_a_sign_of_life(tmp_path: Path) -> None:
    hang = tmp_path / "hang"
    async with supervising({"a": program("a", "stops_answering", str(hang))}) as stage:
        await stage.upstream().connected_client()
        with stage.upstream().track_call():
            hang.touch()
            for _ in range(10):
                await stage.pass_time(20.0)
                stage.upstream().record_activity()
            assert stage.states() == ["known", "starting", "ready"]


async def test_health_can_be_left_to_the_process(tmp_path: Path) -> None:
    hang = tmp_path / "hang"
    async with supervising({"a": program("a", "stops_answering", str(hang), health_seconds=0.0)}) as stage:
        await stage.upstream().connected_client()
        hang.touch()
        await stage.pass_time(3600.0, steps=50)
        assert stage.states() == ["known", "starting", "ready"]


# --- idle and lazy


async def test_a_server_that_is_not_used_is_stopped_and_started_on_demand() -> None:
    async with supervising({"a": program("a", "plain", idle_stop=60.0)}) as stage:
        await stage.upstream().connected_client()
        pid = stage.upstream().status.pid or 0
        await stage.pass_time(60.0)
        await stage.until_state("known")
        assert gone_within([pid], 5.0) == []
        assert stage.upstream().status.tools == 1
        client = await stage.upstream().connected_client()
        assert (await client.call_tool("pid")).text != str(pid)


async def test_a_server_in_use_is_not_idle() -> None:
    async with supervising({"a": scripted("a", good_server(), idle_stop=60.0)}) as stage:
        await stage.upstream().connected_client()
        with stage.upstream().track_call():
            await stage.pass_time(600.0, steps=20)
            assert stage.upstream().state == "ready"
        await stage.pass_time(59.0)
        assert stage.upstream().state == "ready"
        await stage.pass_time(61.0)
        assert stage.upstream().state == "known"


async def test_a_lazy_server_is_started_once_to_list_it_and_not_again(tmp_path: Path) -> None:
    entry = program("a", "plain", start="lazy")
    async with supervising({"a": entry}, cache=kept_in(tmp_path)) as stage:
        await stage.until_count("known", 2)
        assert stage.states() == ["known", "starting", "known"]
        assert (stage.upstream().status.tools, stage.upstream().status.pid) == (1, None)
    async with supervising({"a": entry}, cache=kept_in(tmp_path)) as stage:
        assert await stage.supervisor.settled() is True
        assert stage.states() == ["known", "known"]
        assert stage.upstream().status.tools == 1
        assert stage.offered == ["a"]
        client = await stage.upstream().connected_client()
        assert (await client.call_tool("pid")).text == str(stage.upstream().status.pid)
        # The same list, but from the running server: only that is pinned.
        assert stage.offered == ["a", "a"]


async def test_a_changed_offering_of_a_lazy_server_is_reported(tmp_path: Path) -> None:
    entry = program("a", "lying_list", "storm", start="lazy")
    async with supervising({"a": entry}, cache=kept_in(tmp_path)) as stage:
        await stage.until_count("known", 2)
    kept = kept_in(tmp_path).get(entry)
    assert kept is not None
    kept_in(tmp_path).put(entry, replace(kept, tools=()))
    async with supervising({"a": entry}, cache=kept_in(tmp_path)) as stage:
        await stage.supervisor.settled()
        assert stage.upstream().status.tools == 0
        await stage.upstream().connected_client()
        assert stage.upstream().status.tools == 1
        assert stage.offered == ["a", "a"]


async def test_a_lazy_server_that_crashes_unused_stays_stopped_until_it_is_used() -> None:
    server = good_server()
    async with supervising({"a": scripted("a", server, start="lazy")}) as stage:
        await stage.until_count("known", 2)
        await stage.upstream().connected_client()
        server.stage.die()
        await stage.until_count("known", 3)
        assert "starts again when it is used" in (stage.upstream().status.reason or "")


async def test_an_offering_is_kept_while_the_server_is_away_for_a_moment() -> None:
    server = good_server()
    async with supervising({"a": scripted("a", server)}) as stage:
        await stage.upstream().connected_client()
        server.stage.die()
        await stage.until_state("waiting")
        assert stage.upstream().status.tools == 1
        await stage.upstream().stop()
        assert stage.upstream().offering is None
        assert stage.offered == ["a", "a"]


# --- orders


async def test_a_lazy_server_can_be_stopped_while_it_is_listed(tmp_path: Path) -> None:
    async def trust(entry: ServerEntry) -> tuple[bool, str | None]:
        await asyncio.get_running_loop().create_future()
        return True, None

    entry = scripted("a", good_server(), start="lazy")
    async with supervising({"a": entry}, trust=trust, cache=kept_in(tmp_path)) as stage:
        await settle()
        await stage.upstream().stop()
        assert stage.states() == ["known", "stopped"]


async def test_a_stopped_server_stays_so_until_it_is_restarted() -> None:
    async with supervising({"a": program("a", "plain")}) as stage:
        await stage.upstream().connected_client()
        pid = stage.upstream().status.pid or 0
        await stage.upstream().stop()
        assert not alive(pid)
        with pytest.raises(ServerUnavailable, match="a is stopped"):
            await stage.upstream().connected_client()
        await stage.upstream().restart()
        restarted = stage.upstream().status.pid or 0
        await stage.upstream().restart()
        assert not alive(restarted)
        assert stage.upstream().state == "ready"


async def test_a_server_can_be_stopped_while_it_starts() -> None:
    async with supervising({"a": program("a", "misbehaving", "hang_at_initialize")}) as stage:
        await stage.until_state("starting")
        await stage.upstream().stop()
        assert stage.upstream().state == "stopped"


async def test_orders_to_a_server_that_is_gone_do_nothing() -> None:
    async with supervising({"a": scripted("a", good_server())}) as stage:
        upstream = stage.upstream()
        await upstream.connected_client()
    await upstream.restart()
    await upstream.stop()
    assert upstream.state == "stopped"


# --- other clients


async def test_another_client_has_a_separate_process_that_ends_with_the_server() -> None:
    async with supervising({"a": program("a", "plain")}) as stage:
        shared = await stage.upstream().connected_client()
        own = stage.upstream().make_client(elicitation=lambda params: None)
        async with own:
            pids = {(await client.call_tool("pid")).text for client in (shared, own)}
            assert len(pids) == 2
            await stage.upstream().stop()
            assert gone_within(map(int, pids), 5.0) == []
            with pytest.raises(ConnectionLost, match="closed"):
                await own.call_tool("pid")


async def test_the_options_of_the_host_reach_the_shared_client() -> None:
    heard: list[str] = []

    def options(entry: ServerEntry) -> dict[str, Any]:
        return {
            "on_notification": lambda method, params: heard.append(f"{entry.name} {method}"),
            "on_state": lambda state, reason: heard.append(state),
        }

    server = good_server()
    async with supervising({"a": scripted("a", server)}, client_options=options) as stage:
        await stage.upstream().connected_client()
        server.stage.say("notifications/x")
        await settle()
        assert "a notifications/x" in heard
        assert "active" in heard


async def test_a_callback_that_fails_hurts_no_server() -> None:
    def fail(upstream: object) -> None:
        raise ValueError("a bug of the host's")

    async with supervising({"a": scripted("a", good_server())}, on_offering=fail) as stage:
        await stage.upstream().connected_client()
        assert stage.upstream().state == "ready"
