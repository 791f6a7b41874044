"""Handshake sessions that several workers share: any worker serves any request of any session."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.transports.http.serving_support import (
    POLLING,
    Call,
    SessionClient,
    ask,
    authenticate,
    initialize,
    notification,
    post,
    request,
    tool,
)
from tests.transports.http.shared.workers import (
    ASKED,
    KEY,
    Fleets,
    Worker,
    accepted,
    at,
    fleet,
    joined,
    over,
    settled,
    text,
    until,
)
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import HANDSHAKE_NAMES
from trunkline.store.interface import Appended, Commit, Step
from trunkline.store.memory import MemoryEngine
from trunkline.transports.http.server.sessions import worker

# --- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", [HANDSHAKE_NAMES[0], HANDSHAKE_NAMES[-1]])
async def test_a_session_opened_at_one_worker_is_served_by_another(fleets: Fleets, revision: str) -> None:
    async with fleets() as (one, other):
        client = await SessionClient.open(one.app, revision)
        called = await at(client, other).post(tool("add", a=2, b=3)).whole()
        assert (called.status, text(called.json)) == (200, "5")
        wrong = SessionClient(other.app, client.id, HANDSHAKE_NAMES[1], None)
        assert (await wrong.post(tool("add")).whole()).status == 400


async def test_another_principal_may_not_use_the_session(fleets: Fleets) -> None:
    async with fleets(auth=authenticate) as (one, other):
        client = await SessionClient.open(one.app, token="ada")
        assert text((await at(client, other).post(tool("who")).whole()).json) == "ada"
        for worker in (one, other):
            stranger = SessionClient(worker.app, client.id, client.revision, "eve")
            assert (await stranger.post(tool("who")).whole()).status == 404


async def test_an_id_that_was_not_sealed_here_is_of_no_session(fleets: Fleets) -> None:
    async with fleets() as (one, other):
        client = await SessionClient.open(one.app)
        changed = client.id[:-9] + ("A" if client.id[-9] != "A" else "B") + client.id[-8:]
        ids = ["x", "", "AAAA" * 20, "A" * 5000, changed]
        calls = [SessionClient(other.app, id, POLLING, None).post(tool("add")) for id in ids]
        assert [(await call.whole()).status for call in calls] == [404] * len(ids)


async def test_a_failed_handshake_opens_no_session(fleets: Fleets) -> None:
    async with fleets(1) as (one,):
        refused = await post(one.app, request("initialize", {"nonsense": 1})).whole()
        assert "mcp-session-id" not in refused.headers


async def test_an_id_is_short_and_large_facts_are_stored(fleets: Fleets) -> None:
    async with fleets() as (one, other):
        small = await SessionClient.open(one.app)
        large = await SessionClient.open(one.app, capabilities={"experimental": {"x" * 5000: {}}, **ASKED})
        assert (len(small.id) < 500, len(large.id) < 500) == (True, True)
        call = at(large, other).post(tool("ask_name"))
        assert (await call.message())["method"] == "elicitation/create"
        await over(call)


# --- what goes to a request at another worker -------------------------------------------------------------------------


async def test_an_elicitation_of_one_worker_is_answered_at_another(fleets: Fleets) -> None:
    async with fleets() as (one, other):
        plain, client = await SessionClient.open(one.app), await SessionClient.open(one.app, capabilities=ASKED)
        call = at(client, other).post(tool("ask_name"))
        question = await call.message()
        posted = await client.post(accepted(question, "Ada")).whole()
        assert (posted.status, text(await call.message())) == (202, "Ada")
        # What the other client declared is known at every worker too.
        assert (await at(plain, other).post(tool("ask_name")).whole()).json["result"]["isError"]


@pytest.mark.parametrize("place", [0, 1], ids=["its own worker", "another worker"])
async def test_a_request_is_cancelled_at_any_worker(fleets: Fleets, place: int) -> None:
    async with fleets() as workers:
        one, other = workers
        client = await SessionClient.open(one.app)
        call = client.post(tool("wait", id=7))
        await one.workshop.started.wait()
        cancel = notification("notifications/cancelled", {"requestId": 7})
        await at(client, (one, other)[place]).post(cancel).whole()
        async with asyncio.timeout(120):
            await one.workshop.cancelled.wait()
        assert (await call.whole()).status == 202


async def test_an_answer_for_a_worker_that_is_gone_is_refused_at_once(fleets: Fleets) -> None:
    async with fleets() as (one, _):
        client = await SessionClient.open(one.app, capabilities=ASKED)
        refused = await client.post(accepted({"id": "0123456789ab-7.1"}, "Ada")).whole()
        assert (refused.status, "has ended" in refused.json["error"]["message"]) == (410, True)


async def test_a_large_answer_reaches_another_worker_and_is_published_to_none(fleets: Fleets) -> None:
    async with fleets() as (one, other):
        published: list[int] = []
        await until(lambda: joined(one) and joined(other))
        for channel in ("workers", f"worker:{worker_id(one)}", f"inbox:{worker_id(one)}"):
            await other.store.subscribe(channel, lambda data: published.append(len(data)))
        client = await SessionClient.open(one.app, capabilities=ASKED)
        call = client.post(tool("ask_name", id=7))
        question = await call.message()
        cancel = notification("notifications/cancelled", {"requestId": 8, "reason": "x" * 100_000})
        assert (await at(client, other).post(cancel).whole()).status == 202
        posted = await at(client, other).post(accepted(question, "Ada" * 10_000)).whole()
        assert (posted.status, text(await call.message())) == (202, "Ada" * 10_000)
        await settled(one, other)
        assert (len(published) > 1, max(published) < 1000) == (True, True)


@pytest.mark.parametrize("worker", ["0123456789ab", "nobody", "x" * 10_000])
async def test_an_answer_for_a_worker_that_never_was_is_not_stored(worker: str) -> None:
    async with fleet() as workers:
        client = await SessionClient.open(workers.workers[0].app, capabilities=ASKED)
        await client.post(accepted({"id": f"{worker}-7.1"}, "x" * 10_000)).whole()
        assert workers.contents is not None
        assert not [name for name in workers.contents.tables.logs if name.startswith("inbox:")]


async def test_a_post_for_a_stream_of_the_oldest_transport_that_never_was_is_not_forwarded(fleets: Fleets) -> None:
    async with fleets() as (one, other):
        heard: list[bytes] = []
        await until(lambda: joined(one) and joined(other))
        await other.store.subscribe(f"worker:{worker_id(one)}", heard.append)
        query = f"session_id={worker_id(one)}-{'x' * 43}".encode()
        body = json.dumps(tool("add")).encode()
        refused = await ask(other.app, "POST", "/mcp/messages", body=body, headers={}, query=query).whole()
        await settled(one, other)
        assert (refused.status, heard) == (404, [])


async def test_an_answer_to_nothing_is_ignored(fleets: Fleets) -> None:
    async with fleets(1) as (one,):
        client = await SessionClient.open(one.app)
        calls = [client.post({"jsonrpc": "2.0", "id": id, "result": {}}) for id in (5, "x", "x.1", None)]
        assert [(await call.whole()).status for call in calls] == [202, 202, 202, 202]


# --- the GET stream ---------------------------------------------------------------------------------------------------


async def test_a_change_is_notified_once_to_each_session(fleets: Fleets) -> None:
    async with fleets() as (one, other):
        clients = [await SessionClient.open(one.app), await SessionClient.open(other.app)]
        streams = [await clients[0].listening(), await clients[1].listening(), await at(clients[0], other).listening()]
        await clients[0].post(tool("grow")).whole()
        one.workshop.server.notify("acme/tick", {"number": 1})
        heard = [[(await stream.message())["method"] for _ in range(2)] for stream in streams[:2]]
        assert heard == [["notifications/tools/list_changed", "acme/tick"]] * 2
        assert [stream.messages for stream in streams] == [[], [], []]
        await over(*streams)


async def test_changes_while_nobody_listens_are_notified_by_the_next_get_stream(fleets: Fleets) -> None:
    async with fleets() as (one, other):
        client = await SessionClient.open(one.app)
        first = await client.listening()
        other.workshop.server.notify("acme/tick", {"number": 1})
        await first.message()
        await over(first)
        await settled(one, other)
        other.workshop.server.notify("acme/tick", {"number": 2})
        await client.post(tool("grow")).whole()
        await settled(one, other)
        second = await at(client, other).listening()
        heard = [await second.message() for _ in range(2)]
        assert {each["method"] for each in heard} == {"acme/tick", "notifications/tools/list_changed"}
        await over(second)


async def test_what_follows_lost_announcements_is_notified_after_the_notice_that_anything_may_have_changed() -> None:
    async with fleet() as workers:
        one, other = workers
        one.workshop.server.notify("acme/tick", {"number": 1})
        await settled(one, other)
        client = await SessionClient.open(one.app)
        assert workers.contents is not None
        # A failover to a replica that has not received it: the session began after an announcement that is gone.
        del workers.contents.tables.logs["announcements"]
        one.workshop.server.notify("acme/tick", {"number": 2})
        await settled(one, other)
        stream = await at(client, other).listening()
        heard = [await stream.message() for _ in range(3)]
        lists = [f"notifications/{kind}/list_changed" for kind in ("tools", "resources")]
        assert [each["method"] for each in heard] == [*lists, "acme/tick"]
        assert heard[-1]["params"] == {"number": 2}
        await over(stream)


async def test_a_stream_is_notified_of_what_follows_lost_announcements_once_its_worker_reads_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, go_on = MemoryEngine.read, asyncio.Event()

    async def read_later(self: MemoryEngine, log: str, **options: Any) -> Any:
        if log == "announcements":
            await go_on.wait()
        return await read(self, log, **options)

    async with fleet() as workers:
        one, other = workers
        one.workshop.server.notify("acme/tick", {"number": 1})
        await settled(one, other)
        client = await SessionClient.open(one.app)
        contents = workers.contents
        assert contents is not None
        # A failover: the announcement is gone, and so are all connections for channels when the next one is stored.
        del contents.tables.logs["announcements"]
        subscriptions = contents.subscriptions.pop("announcements")
        one.workshop.server.notify("acme/tick", {"number": 2})
        await settled(one, other)
        contents.subscriptions["announcements"] = subscriptions
        # The stream begins before its worker has read what it missed.
        monkeypatch.setattr(MemoryEngine, "read", read_later)
        contents.set_available(False)
        contents.set_available(True)
        stream = await at(client, other).listening()
        go_on.set()
        heard = [await stream.message() for _ in range(3)]
        lists = [f"notifications/{kind}/list_changed" for kind in ("tools", "resources")]
        assert [message["method"] for message in heard] == [*lists, "acme/tick"]
        assert heard[-1]["params"] == {"number": 2}
        await over(stream)


async def test_a_second_get_stream_stands_by_until_the_first_ends(fleets: Fleets) -> None:
    async with fleets() as (one, other):
        client = await SessionClient.open(one.app)
        first, second = await client.listening(), await at(client, other).listening()
        one.workshop.server.notify("acme/tick", {"number": 1})
        assert (await first.message())["params"] == {"number": 1}
        await over(first)
        await settled(one, other)
        other.workshop.server.notify("acme/tick", {"number": 2})
        assert (await second.message())["params"] == {"number": 2}
        await over(second)


async def test_a_resumed_get_stream_misses_nothing_and_repeats_nothing(fleets: Fleets) -> None:
    async with fleets() as (one, other):
        client = await SessionClient.open(one.app)
        first = await client.listening()
        for number in range(3):
            one.workshop.server.notify("acme/tick", {"number": number})
        events = [await first.event() for _ in range(3)]
        await over(first)
        second = await at(client, other).listening(last=events[0].id)
        assert [(await second.message())["params"]["number"] for _ in range(2)] == [1, 2]
        one.workshop.server.notify("acme/tick", {"number": 3})
        assert (await second.message())["params"] == {"number": 3}
        await over(second)


async def test_a_client_is_not_notified_again_of_what_a_worker_stored_before_it_died(fleets: Fleets) -> None:
    async with fleets() as (one, other):
        client = await SessionClient.open(one.app)
        first = await client.listening()
        other.workshop.server.notify("acme/tick", {"number": 1})
        event = await first.event()
        while not event.data:
            event = await first.event()
        # Nothing has stored how far the client is.
        await one.store.aclose()
        second = await at(client, other).listening(last=event.id)
        other.workshop.server.notify("acme/tick", {"number": 2})
        assert (await second.message())["params"] == {"number": 2}
        await over(first, second)


async def test_a_second_change_is_not_lost_in_the_notice_of_one_that_a_dead_worker_sent(fleets: Fleets) -> None:
    async with fleets() as (one, other):
        client = await SessionClient.open(one.app)
        first = await client.listening()
        other.workshop.server.changed("tools")
        assert (await first.message())["method"] == "notifications/tools/list_changed"
        # Nothing has stored how far the client is: the next worker notifies it again, once for equal notices.
        await one.store.aclose()
        other.workshop.server.changed("tools")
        await settled(other)
        second = await at(client, other).listening()
        assert (await second.message())["method"] == "notifications/tools/list_changed"
        await over(first, second)


async def test_one_change_with_fifty_get_streams_is_one_append(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet() as (one, other):
        clients = [await SessionClient.open(one.app) for _ in range(50)]
        streams = [
            await at(client, worker).listening() for client, worker in zip(clients, [one, other] * 25, strict=True)
        ]
        await settled(one, other)
        writes: list[str] = []
        append_now, commit = MemoryEngine.append_now, MemoryEngine.commit

        def count_append(self: MemoryEngine, log: str, data: bytes, **options: Any) -> Appended:
            writes.append(f"append {log}")
            return append_now(self, log, data, **options)

        async def count_commit(self: MemoryEngine, *steps: Step) -> Commit:
            writes.extend(str(step) for step in steps)
            return await commit(self, *steps)

        monkeypatch.setattr(MemoryEngine, "append_now", count_append)
        monkeypatch.setattr(MemoryEngine, "commit", count_commit)
        one.workshop.server.changed("tools")
        notices = [(await stream.message())["method"] for stream in streams]
        for worker in (one, other):
            worker.app.open_responses._round()
        await settled(one, other)
        assert notices == ["notifications/tools/list_changed"] * 50
        assert writes == ["append announcements"]
        monkeypatch.undo()
        await over(*streams)


async def test_a_notice_whose_worker_died_at_once_comes_at_another_also_if_the_list_changed_again(
    fleets: Fleets,
) -> None:
    async with fleets() as (one, other):
        client = await SessionClient.open(one.app, POLLING)
        first = await client.listening()
        last = (await first.opening()).id
        # The notice is written to a connection that is gone, and the worker dies before anything could be stored.
        other.workshop.server.changed("tools")
        await settled(one, other)
        await one.store.aclose()
        other.workshop.server.changed("tools")
        await settled(other)
        second = await at(client, other).listening(last=last)
        assert (await second.message())["method"] == "notifications/tools/list_changed"
        await over(first, second)


async def test_a_turn_that_no_response_has_is_released(fleets: Fleets) -> None:
    async with fleets() as (one, other):
        client = await SessionClient.open(one.app)
        await at(client, other).post(tool("add")).whole()
        key = next(iter(one.app.sessions.by_key))
        name = other.app._session_endpoint._worker.id
        # As if the answer to the worker that acquired it had been lost, so that its response was refused.
        await one.store.put(f"get:{key}", f"{name}-999".encode(), ttl=60)
        listening = await client.listening()
        other.workshop.server.notify("acme/tick", {"number": 1})
        async with asyncio.timeout(120):
            assert (await listening.message())["params"] == {"number": 1}
        await over(listening)


# --- resuming a request -----------------------------------------------------------------------------------------------


async def test_the_stream_of_a_request_is_resumed_at_another_worker(fleets: Fleets) -> None:
    async with fleets() as (one, other):
        client = await SessionClient.open(one.app, POLLING)
        call = client.post(tool("wait", say="hello"))
        opening = await call.opening()
        hello = await call.event()
        call.hang_up()
        resumed = at(client, other).get(last=opening.id)
        assert (await resumed.event()).id == hello.id
        one.workshop.proceed.set()
        assert text(await resumed.message()) == "done hello"
        await resumed.whole()
        again = at(client, other).get(last=hello.id)
        assert text(await again.message()) == "done hello"
        await again.whole()


async def test_a_stream_that_was_released_is_fetched_at_another_worker(fleets: Fleets) -> None:
    async with fleets() as (one, other):
        client = await SessionClient.open(one.app, POLLING)
        call = client.post(tool("poll"))
        await one.workshop.started.wait()
        await call.whole()
        last = call.taken()[-1].id
        resumed = at(client, other).get(last=last)
        assert await resumed.head() == 200
        one.workshop.proceed.set()
        messages = [await resumed.message() for _ in range(2)]
        assert (messages[0]["params"]["data"], text(messages[1])) == ("after", "left True")


async def test_an_answer_that_was_received_is_not_repeated(fleets: Fleets) -> None:
    async with fleets() as (one, other):
        client = await SessionClient.open(one.app, POLLING)
        call = await client.post(tool("steps")).whole()
        last = call.taken()[-1].id
        resumed = await at(client, other).get(last=last).whole()
        assert (resumed.status, resumed.messages) == (200, [])


async def test_an_event_that_is_unknown_or_of_another_session_cannot_be_resumed(fleets: Fleets) -> None:
    async with fleets(1) as (one,):
        client, other = await SessionClient.open(one.app, POLLING), await SessionClient.open(one.app, POLLING)
        call = await client.post(tool("steps")).whole()
        ids = ["1-1", "nonsense", "99999999999999-0", "99999999999999999999-0", call.taken()[0].id]
        assert [(await other.get(last=id).whole()).status for id in ids] == [400] * 5


# --- what a client changes --------------------------------------------------------------------------------------------


async def test_the_log_level_holds_at_every_worker(fleets: Fleets) -> None:
    async with fleets(3) as (one, other, third):
        client = await SessionClient.open(one.app)
        await at(client, other).post(tool("add")).whole()
        await client.post(request("logging/setLevel", {"level": "error"})).whole()
        await settled(one, other, third)
        answers = [await at(client, worker).post(tool("steps")).whole() for worker in (one, other, third)]
        assert [call.headers["content-type"] for call in answers] == ["application/json"] * 3


@pytest.mark.parametrize("published_bytes", [10_000, 0], ids=["published", "too large to be published"])
async def test_a_subscription_made_at_one_worker_is_heard_at_another(
    fleets: Fleets, published_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_SMALL_BYTES", published_bytes)
    async with fleets() as (one, other):
        client = await SessionClient.open(one.app)
        listening = await at(client, other).listening()
        await client.post(request("resources/subscribe", {"uri": "note://one"})).whole()
        await settled(one, other)
        one.workshop.server.changed("note://one")
        heard = await listening.message()
        assert (heard["method"], heard["params"]["uri"]) == ("notifications/resources/updated", "note://one")
        await at(client, other).post(request("resources/unsubscribe", {"uri": "note://one"})).whole()
        await settled(one, other)
        one.workshop.server.changed("note://one")
        one.workshop.server.notify("acme/tick", {"number": 1})
        assert (await listening.message())["method"] == "acme/tick"
        await over(listening)


async def test_changes_at_two_workers_at_once_are_both_kept(fleets: Fleets) -> None:
    async with fleets() as (one, other):
        client = await SessionClient.open(one.app)
        one.workshop.server.resource("note://two", name="two")(lambda: "second")
        other.workshop.server.resource("note://two", name="two")(lambda: "second")
        subscribe = [request("resources/subscribe", {"uri": uri}) for uri in ("note://one", "note://two")]
        calls = [client.post(subscribe[0]), at(client, other).post(subscribe[1])]
        assert [(await call.whole()).status for call in calls] == [200, 200]
        await settled(one, other)
        held = [next(iter(worker.app.sessions.by_id.values())).session for worker in (one, other)]
        assert [session.subscriptions for session in held if session] == [{"note://one", "note://two"}] * 2


# --- the end ----------------------------------------------------------------------------------------------------------


async def test_a_deleted_session_ends_at_every_worker_with_what_runs_there(fleets: Fleets) -> None:
    async with fleets(3) as (one, other, third):
        client = await SessionClient.open(one.app)
        call, listening = client.post(tool("wait")), await client.listening()
        await one.workshop.started.wait()
        assert (await at(client, other).delete().whole()).status == 204
        assert (await call.whole()).status == 404
        await listening.whole()
        assert one.workshop.cancelled.is_set()
        await settled(one, other, third)
        statuses = [(await at(client, worker).post(tool("add")).whole()).status for worker in (one, other, third)]
        assert statuses == [404, 404, 404]


async def test_a_worker_that_starts_later_knows_the_deleted_sessions(fleets: Fleets) -> None:
    async with fleets(1) as (one,):
        client = await SessionClient.open(one.app)
        await client.delete().whole()
        late = Worker(_another(one))
        late.app.start()
        assert (await at(client, late).post(tool("add")).whole()).status == 404
        await late.app.aclose()


async def test_a_worker_joins_although_a_deleted_session_cannot_be_read(
    fleets: Fleets, caplog: pytest.LogCaptureFixture
) -> None:
    async with fleets(1) as (one,):
        limits: dict[str, Any] = {"ttl": 60, "max_entries": 100, "max_bytes": 1000}
        for log in ("terminated", "announcements"):
            await one.store.append(log, b"\xc1 unreadable", announce=log, **limits)
        client = await SessionClient.open(one.app)
        await client.delete().whole()
        late = Worker(_another(one))
        late.app.start()
        assert (await at(client, late).post(tool("add")).whole()).status == 404
        assert (await SessionClient.open(late.app)).id
        await late.app.aclose()
        assert "no _Terminated is skipped" in caplog.text


def worker_id(one: Worker) -> str:
    """Return the name of a worker among the others."""
    shared: Any = one.app._session_endpoint
    return str(shared._worker.id)


def _another(worker: Worker) -> Any:
    """Another store onto the same store."""
    store: Any = worker.store
    if hasattr(store, "_contents"):
        return type(store)(store._contents)
    name = store._names.prefix.removeprefix("{trunkline:").removesuffix("}:")
    return type(store)(store.url, name=name)


async def test_a_worker_that_stops_leaves_the_session_to_the_others(fleets: Fleets) -> None:
    async with fleets() as (one, other):
        client = await SessionClient.open(one.app)
        await one.app.aclose()
        assert (await at(client, other).post(tool("add")).whole()).status == 200


# --- keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("keys", "status"), [(["11" * 32, KEY], 200), (["11" * 32], 404)], ids=["rotated", "others"])
async def test_a_session_outlives_the_rotation_of_keys(fleets: Fleets, keys: list[str], status: int) -> None:
    async with fleets(1, state_keys=[KEY]) as (old,):
        client = await SessionClient.open(old.app)
        new = Worker(_another(old), state_keys=keys)
        new.app.start()
        # A store that others can read knows whose keys are in use: it serves no worker with others.
        refused = status == 404 and not new.store.private
        assert (await at(client, new).post(tool("add")).whole()).status == (503 if refused else status)
        await new.app.aclose()


# --- limits -----------------------------------------------------------------------------------------------------------


async def test_a_worker_holds_a_bounded_number_of_sessions(fleets: Fleets) -> None:
    async with fleets(1, limits=Limits(sessions=3)) as (one,):
        clients = [await SessionClient.open(one.app) for _ in range(6)]
        await settled(one)
        assert len(one.app.sessions) <= 3
        assert [(await client.post(tool("add")).whole()).status for client in clients] == [200] * 6


# --- the oldest transport ---------------------------------------------------------------------------------------------


async def test_the_oldest_transport_is_served_by_all_workers(fleets: Fleets) -> None:
    async with fleets() as (one, other):
        stream = ask(one.app, "GET", "/mcp/sse", headers={"accept": "text/event-stream", "content-type": None})
        path, _, query = (await stream.event()).data.decode().partition("?")

        def send(worker: Worker, message: Any) -> Call:
            body = json.dumps(message).encode()
            return ask(worker.app, "POST", path, body=body, headers={}, query=query.encode())

        assert (await send(other, initialize(HANDSHAKE_NAMES[0])).whole()).status == 202
        assert (await stream.message())["result"]["serverInfo"]["name"] == "workshop"
        assert (await send(one, notification("notifications/initialized")).whole()).status == 202
        assert (await send(other, {"id": 5}).whole()).error == (400, -32600)
        assert (await send(other, tool("add", id=5)).whole()).status == 202
        assert text(await stream.message()) == "3"
        await over(stream)
        assert (await send(one, tool("add")).whole()).status == 404
