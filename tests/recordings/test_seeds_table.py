"""Where the seeds and the specification differ, a table says what we do; each row of it is a test here.

The other side is played by hand, so that it can send what no peer of ours would.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import trunkline
from tests.interaction.web import served as over_http
from tests.recordings.raw_peer import RawPeer, initialize, initialized
from tests.recordings.seed_files import BROKEN, seed
from tests.support import case_id, run_async
from trunkline import Client, Context, Server
from trunkline.errors import RevisionMismatch
from trunkline.protocol.jsonrpc import Notification, decode
from trunkline.protocol.sse import EventReader

HANDSHAKE_REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


@asynccontextmanager
async def served(
    server: Server, *, revision: str = "2025-06-18", capabilities: dict[str, Any] | None = None
) -> AsyncIterator[RawPeer]:
    """Serve a raw client that has completed the handshake."""
    peer = RawPeer()
    serving = asyncio.create_task(server.serve(peer))
    await peer.ask(initialize(revision, capabilities))
    await peer.say(initialized())
    yield peer
    await peer.end()
    await serving


def against(server: Server, talk: Callable[[RawPeer], Awaitable[Any]], **setting: Any) -> Any:
    """Run a conversation between a raw client and a server, and return its result."""

    async def main() -> Any:
        async with served(server, **setting) as peer:
            return await talk(peer)

    return run_async(main())


def asking(method: str, params: object = None) -> Callable[[RawPeer], Awaitable[Any]]:
    """Create a conversation of one request."""
    return lambda peer: peer.request(method, params)


# --- `sampling/complete`, `elicitation/request` ----------------------------------------------------------------------

LOOSE = [("sampling/complete", "sampling/createMessage"), ("elicitation/request", "elicitation/create")]


@pytest.mark.parametrize(("loose", "right"), LOOSE)
def test_a_server_answers_a_loose_name_with_the_right_one(loose: str, right: str) -> None:
    error = against(Server("s"), asking(loose))["error"]
    assert (error["code"], error["data"]["method"]) == (-32601, loose)
    assert right in error["message"]


@pytest.mark.parametrize(("loose", "right"), LOOSE)
def test_a_client_answers_a_loose_name_with_the_right_one(loose: str, right: str) -> None:
    async def talk(peer: RawPeer, client: Client) -> Any:
        return await peer.request(loose, {})

    error = called(talk, sampling=lambda _: "Paris", elicitation=lambda _: {})["error"]
    assert (error["code"], error["data"]["method"]) == (-32601, loose)
    assert right in error["message"]


# --- `shutdown()` answered by `bye`; "Disconnect" --------------------------------------------------------------------


def test_there_is_no_shutdown_method_and_the_connection_lives_on() -> None:
    async def talk(peer: RawPeer) -> tuple[Any, Any]:
        return await peer.request("shutdown"), await peer.request("ping")

    refused, alive = against(Server("s"), talk)
    assert (refused["error"]["code"], refused["error"]["data"]) == (-32601, {"method": "shutdown"})
    assert alive["result"] == {}


def test_leaving_the_client_ends_the_connection_without_a_word() -> None:
    async def main() -> tuple[bool, int]:
        async with raw_server() as (peer, client):
            await client.aclose()
            return peer.closed.is_set(), peer.unheard

    assert run_async(main()) == (True, 0)


# --- `resultChunk`, `resultComplete`, "partial chunks" ---------------------------------------------------------------


def chunk_server() -> Server:
    """A server with a tool that yields its text in pieces."""
    server = Server("s")

    @server.tool
    async def story() -> AsyncIterator[str]:
        """Tell a story, piece by piece."""
        yield "Once "
        yield "upon "
        yield "a time."

    return server


def test_each_piece_of_a_streaming_tool_leaves_as_progress_and_the_whole_is_the_result() -> None:
    async def talk(peer: RawPeer) -> list[Any]:
        await peer.say(
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "story", "_meta": {"progressToken": "t"}},
            }
        )
        return [await peer.hear() for _ in range(4)]

    *pieces, answer = against(chunk_server(), talk)
    assert [(piece["method"], piece["params"]["progressToken"], piece["params"]["message"]) for piece in pieces] == [
        ("notifications/progress", "t", "Once "),
        ("notifications/progress", "t", "upon "),
        ("notifications/progress", "t", "a time."),
    ]
    assert answer["result"]["content"] == [{"type": "text", "text": "Once upon a time."}]


def test_a_caller_without_a_token_gets_the_whole_alone() -> None:
    answer = against(chunk_server(), asking("tools/call", {"name": "story"}))
    assert answer["result"]["content"] == [{"type": "text", "text": "Once upon a time."}]


# --- client capability `tools: {}`, "notification handling"; `sampling: {"maxTokens": 8192}` -------------------------


@pytest.mark.parametrize(
    "capabilities",
    [{"tools": {}}, {"notifications": {"handling": True}}, {"sampling": {"maxTokens": 8192}}],
    ids=["tools", "notifications", "maxTokens"],
)
def test_an_unknown_client_capability_is_kept_readable(capabilities: dict[str, Any]) -> None:
    server, seen = Server("s"), []

    @server.tool
    async def look(ctx: Context) -> str:
        """Look at the client."""
        seen.append(dict(ctx.client.capabilities))
        return "seen"

    against(server, asking("tools/call", {"name": "look"}), capabilities=capabilities)
    assert seen == [capabilities]


def test_an_unknown_client_capability_unlocks_nothing() -> None:
    server = Server("s")

    @server.tool
    async def ask(ctx: Context) -> bool:
        """Say whether the client could be asked."""
        return any(ctx.client.supports(name) for name in ("sampling", "elicitation", "roots"))

    answer = against(server, asking("tools/call", {"name": "ask"}), capabilities={"tools": {}})
    assert answer["result"]["content"] == [{"type": "text", "text": "false"}]


def test_our_client_sends_no_capability_the_specification_lacks() -> None:
    async def main() -> Any:
        async with raw_server(sampling=lambda _: "x", elicitation=lambda _: {}, roots=[]) as (peer, _):
            return peer.greeting["params"]["capabilities"]

    capabilities = run_async(main())
    assert capabilities.keys() <= {"sampling", "elicitation", "roots", "tasks", "extensions"}
    assert "maxTokens" not in capabilities["sampling"]


# --- `experimental: {"customFeature": {...}}` ------------------------------------------------------------------------

CUSTOM = {"customFeature": {"version": "0.1.0"}}


def test_experimental_capabilities_are_readable_on_both_sides() -> None:
    server = Server("s", experimental=CUSTOM)

    @server.tool
    async def look(ctx: Context) -> dict[str, Any]:
        """Give back the client's own capabilities."""
        return dict(ctx.client.capabilities["experimental"])

    async def main() -> tuple[Any, Any]:
        async with Client(server, experimental={"mine": {"x": 1}}) as client:
            return client.server_capabilities["experimental"], (await client.call_tool("look")).structured_content

    assert run_async(main()) == (CUSTOM, {"mine": {"x": 1}})


def test_an_own_method_and_an_own_notice_cross() -> None:
    server, heard = Server("s"), asyncio.Queue[tuple[str, dict[str, Any]]]()

    @server.method("acme/x")
    async def twice(n: int) -> dict[str, int]:
        """Double a number."""
        server.notify("notifications/acme", {"of": n})
        return {"n": 2 * n}

    async def main() -> tuple[Any, Any]:
        revision = "2025-11-25"
        async with Client(
            server, revision=revision, on_notification=lambda *notice: heard.put_nowait(notice)
        ) as client:
            return await client.request("acme/x", {"n": 4}), await heard.get()

    result, notice = run_async(main())
    assert result["n"] == 8
    assert notice == ("notifications/acme", {"of": 4})


# --- `serverInfo` without `version`; `title`, `elicitation` under 2024-11-05 -----------------------------------------


def test_a_server_that_does_not_tell_its_version_is_read_leniently() -> None:
    async def talk(peer: RawPeer, client: Client) -> Any:
        return client.server_info

    info = called(talk, answer={"serverInfo": {"name": "ExampleServer"}})
    assert (info.name, info.version) == ("ExampleServer", "")


def test_a_client_title_and_capability_from_a_later_revision_are_read_leniently() -> None:
    hello = initialize("2024-11-05", {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {}})
    hello["params"]["clientInfo"]["title"] = "Example Client Display Name"

    async def main() -> Any:
        peer = RawPeer()
        serving = asyncio.create_task(Server("s", title="Shown later").serve(peer))
        answer = await peer.ask(hello)
        await peer.end()
        await serving
        return answer["result"]

    result = run_async(main())
    assert result["protocolVersion"] == "2024-11-05"
    assert result["serverInfo"].keys() == {"name", "version"}


# --- `params` "object or array"; `id: number` ------------------------------------------------------------------------


@pytest.mark.parametrize("params", [[], [1, 2], "text", 7, True], ids=case_id)
def test_params_are_an_object(params: object) -> None:
    assert against(Server("s"), asking("ping", params))["error"]["code"] == -32602


@pytest.mark.parametrize("id", [1.5, True, None], ids=["fraction", "boolean", "null"])
def test_an_id_is_a_string_or_an_integer(id: object) -> None:
    async def talk(peer: RawPeer) -> Any:
        return await peer.request("ping", id=id)

    answer = against(Server("s"), talk)
    assert (answer["error"]["code"], answer.get("id")) == (-32600, None)


@pytest.mark.parametrize("id", [1, "1", 0, -3, ""], ids=case_id)
def test_an_id_comes_back_as_it_was(id: object) -> None:
    async def talk(peer: RawPeer) -> Any:
        return await peer.request("ping", id=id)

    assert against(Server("s"), talk) == {"jsonrpc": "2.0", "id": id, "result": {}}


# --- batches, with 2025-06-18 as current version ---------------------------------------------------------------------

PINGS = [{"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"jsonrpc": "2.0", "id": 2, "method": "ping"}]


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-06-18", "2025-11-25"])
def test_a_batch_is_refused_where_the_revision_has_none(revision: str) -> None:
    answer = against(Server("s"), lambda peer: peer.ask(PINGS), revision=revision)
    assert answer["error"]["code"] == -32600


def test_a_batch_is_answered_as_one_where_the_revision_has_them() -> None:
    answers = against(Server("s"), lambda peer: peer.ask(PINGS), revision="2025-03-26")
    assert sorted(answer["id"] for answer in answers) == [1, 2]


# --- an id never used before in the session --------------------------------------------------------------------------


def waiting_server() -> tuple[Server, asyncio.Event]:
    """A server with a tool that waits until it is released."""
    server, gate = Server("s"), asyncio.Event()

    @server.tool
    async def wait() -> str:
        """Wait."""
        await gate.wait()
        return "done"

    return server, gate


def test_an_id_in_flight_is_refused_and_the_first_request_is_answered() -> None:
    server, gate = waiting_server()

    async def talk(peer: RawPeer) -> tuple[Any, Any]:
        await peer.say({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "wait"}})
        refused = await peer.request("ping", id=5)
        gate.set()
        return refused, await peer.hear()

    refused, answered = against(server, talk)
    assert (refused["id"], refused["error"]["code"]) == (5, -32600)
    assert answered["result"]["content"] == [{"type": "text", "text": "done"}]


def test_an_id_may_come_again_once_it_was_answered() -> None:
    async def talk(peer: RawPeer) -> list[Any]:
        return [await peer.request("ping", id=5), await peer.request("ping", id=5)]

    assert [answer["result"] for answer in against(Server("s"), talk)] == [{}, {}]


def test_our_client_never_uses_an_id_again() -> None:
    async def talk(peer: GreetedPeer, client: Client) -> list[Any]:
        ids = [peer.greeting["id"]]
        for _ in range(3):
            ping = asyncio.create_task(client.ping())
            ids.append((await peer.hear())["id"])
            await peer.say({"jsonrpc": "2.0", "id": ids[-1], "result": {}})
            await ping
        return ids

    ids = called(talk)
    assert len(set(ids)) == len(ids)


# --- server answers `2024-01-15` -------------------------------------------------------------------------------------


def test_a_client_closes_when_the_server_answers_a_version_it_does_not_speak() -> None:
    async def main() -> tuple[RevisionMismatch, RawPeer]:
        peer = RawPeer()
        entering = asyncio.create_task(Client(peer, revision="2025-06-18").__aenter__())
        hello = await peer.hear()
        await peer.say(welcome(hello, {"protocolVersion": "2024-01-15"}))
        with pytest.raises(RevisionMismatch) as caught:
            await entering
        return caught.value, peer

    error, peer = run_async(main())
    assert ("2025-06-18" in error.ours, error.theirs) == (True, ("2024-01-15",))
    assert "2024-01-15" in str(error)
    assert (peer.closed.is_set(), peer.unheard) == (True, 0)


# --- `url` without path or `type` in the config ----------------------------------------------------------------------

PROGRAM = """
from trunkline import Server
Server("from-config").run()
"""


def test_the_transport_of_a_config_entry_is_guessed_from_its_command(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(PROGRAM)
    entry = {
        "command": sys.executable,
        "args": [str(program)],
        "env": {"PYTHONPATH": str(Path(trunkline.__file__).parents[1])},
    }

    async def main() -> str:
        async with Client(entry) as client:
            assert client.server_info is not None
            return client.server_info.name

    assert run_async(main()) == "from-config"


def test_the_transport_of_a_config_entry_is_guessed_from_its_url() -> None:
    async def main() -> str | None:
        server = Server("found-by-url", version="1")
        # The entry of the seeds has neither a path nor a type.
        async with (
            over_http(server, path="/") as (base, _),
            Client({"url": base.removesuffix("/mcp"), "headers": {"Authorization": "Bearer x"}}) as client,
        ):
            return None if client.server_info is None else client.server_info.name

    assert run_async(main()) == "found-by-url"


# --- `GET /mcp/sse`, `event: notification` ---------------------------------------------------------------------------


def test_the_oldest_transport_is_served_where_the_seeds_have_it() -> None:
    async def main() -> tuple[str, str]:
        async with over_http(Server("s", version="1")) as (base, _):
            host, _, port = base.removeprefix("http://").partition(":")
            reader, writer = await asyncio.open_connection(host, int(port.partition("/")[0]))
            writer.write(f"GET /mcp/sse HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            event = await reader.readuntil(b"\n\n")
            writer.close()
            return head.decode(), event.decode()

    head, event = run_async(main())
    assert (head.split(" ")[1], "event: endpoint\ndata: /mcp/messages?session_id=" in event) == ("200", True)


@pytest.mark.parametrize("name", ["notification", "message", "response"])
def test_a_client_takes_any_event_whose_data_is_a_message(name: str) -> None:
    reader = EventReader(max_event=1000)
    [event] = reader.feed(f'event: {name}\ndata: {{"jsonrpc":"2.0","method":"x"}}\n\n'.encode())
    assert decode(event.data) == Notification("x")


# --- `ping/pong` -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS)
def test_a_server_answers_a_ping_with_an_empty_result(revision: str) -> None:
    assert against(Server("s"), asking("ping"), revision=revision)["result"] == {}


def test_a_client_answers_a_ping_with_an_empty_result() -> None:
    async def talk(peer: RawPeer, client: Client) -> Any:
        return await peer.request("ping")

    assert called(talk)["result"] == {}


# --- examples that lack `jsonrpc` or `id`, or hold `{...}` -----------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [pytest.param(row["text"], row["code"], id=row["text"]) for row in BROKEN if not row.get("answer")],
)
def test_a_fragment_is_answered_with_an_error_and_the_connection_lives_on(text: str, code: int) -> None:
    async def talk(peer: RawPeer) -> tuple[Any, Any]:
        return await peer.ask(text), await peer.request("ping")

    refused, alive = against(Server("s"), talk)
    assert refused["error"]["code"] == code
    assert alive["result"] == {}


@pytest.mark.parametrize("text", [pytest.param(row["text"], id=row["text"]) for row in BROKEN if row.get("answer")])
def test_a_fragment_of_an_answer_is_dropped_since_answers_are_never_answered(text: str) -> None:
    async def talk(peer: RawPeer) -> Any:
        await peer.say(text)
        return await peer.request("ping")

    assert against(Server("s"), talk)["result"] == {}


# --- the sampling request of the first seed --------------------------------------------------------------------------


def test_the_seeds_sampling_request_is_answered_by_our_client() -> None:
    question = seed("000-initialize-and-sampling").entries[2].json
    asked: list[Any] = []

    def answer(params: Any) -> str:
        asked.append(params)
        return "Paris"

    async def talk(peer: RawPeer, client: Client) -> Any:
        return await peer.ask(question)

    reply = called(talk, revision="2024-11-05", sampling=answer)
    assert (reply["id"], reply["result"]["role"]) == (question["id"], "assistant")
    assert reply["result"]["content"] == {"type": "text", "text": "Paris"}
    assert asked[0].system_prompt == "You are a helpful assistant."


# --- a raw server in front of our client -----------------------------------------------------------------------------


def welcome(hello: Any, answer: dict[str, Any]) -> dict[str, Any]:
    """Answer a client's ``initialize``, with some members chosen by the test."""
    usual = {
        "protocolVersion": hello["params"]["protocolVersion"],
        "capabilities": {},
        "serverInfo": {"name": "raw", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": hello["id"], "result": usual | answer}


class GreetedPeer(RawPeer):
    """A raw server that remembers the client's ``initialize``."""

    greeting: Any = None


@asynccontextmanager
async def raw_server(
    *, answer: dict[str, Any] | None = None, revision: str = "2025-06-18", **options: Any
) -> AsyncIterator[tuple[GreetedPeer, Client]]:
    """Connect a client to a raw server, the handshake done."""
    peer = GreetedPeer()
    client = Client(peer, revision=revision, **options)
    entering = asyncio.create_task(client.__aenter__())
    peer.greeting = await peer.hear()
    await peer.say(welcome(peer.greeting, answer or {}))
    await entering
    assert (await peer.hear())["method"] == "notifications/initialized"
    try:
        yield peer, client
    finally:
        await client.aclose()


def called(talk: Callable[[GreetedPeer, Client], Awaitable[Any]], **setting: Any) -> Any:
    """Run a conversation between a raw server and a client, and return its result."""

    async def main() -> Any:
        async with raw_server(**setting) as (peer, client):
            return await talk(peer, client)

    return run_async(main())
