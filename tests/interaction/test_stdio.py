"""Messages over pipes: lines, streams that are not ours to use, the end of input, and programs that die."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

import pytest

from tests.interaction.rows import HANDSHAKE, STATELESS, stdio_behaviour
from tests.interaction.wire import Peer, Wire, program
from trunkline import Client, ServerExited


def process_of(peer: Peer) -> asyncio.subprocess.Process:
    """Return the process that a peer is connected to."""
    process: asyncio.subprocess.Process = peer.carrier.process  # type: ignore[attr-defined]
    return process


# --- the server's side -----------------------------------------------------------------------------------------------


@stdio_behaviour("stdio.one-line", "2025-11-25 basic/transports#stdio")
async def test_a_message_is_one_line_whatever_it_holds(wire: Wire) -> None:
    text = "a\nb\r\nc\u2028d"
    async with wire.open("catalog") as peer:
        assert (await peer.call("echo", {"text": text}))["content"][0]["text"] == text


@stdio_behaviour("stdio.stdout-ours", "2025-11-25 basic/transports#stdio")
@pytest.mark.parametrize("tool", ["shout", "mutter"])
async def test_output_printed_by_the_server_is_not_on_the_wire(wire: Wire, tool: str) -> None:
    async with wire.open("noisy") as peer:
        await peer.call(tool)
        assert all(message["jsonrpc"] == "2.0" for message in peer.heard)


@stdio_behaviour("stdio.stdin-ours", "2025-11-25 basic/transports#stdio")
async def test_the_servers_code_cannot_eat_messages(wire: Wire) -> None:
    async with wire.open("noisy") as peer:
        assert (await peer.call("listen_in"))["content"][0]["text"] == "''"
        assert "tools" in await peer.result("tools/list")


@stdio_behaviour("stdio.eof-exits", "2026-07-28 basic/transports/stdio#shutdown")
async def test_a_server_exits_when_its_input_ends(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        await peer.result("tools/list")
        await peer.carrier.end()
        async with asyncio.timeout(120):
            assert await process_of(peer).wait() == 0


@stdio_behaviour("stdio.eof-answers", "2026-07-28 basic/transports/stdio#shutdown")
async def test_requests_before_the_end_of_input_are_answered(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        id = await peer.send("tools/call", {"name": "echo", "arguments": {"text": "last"}})
        await peer.carrier.end()
        assert (await peer.answer(id))["result"]["content"][0]["text"] == "last"


@stdio_behaviour("stdio.eof-listen", "2026-07-28 basic/transports/stdio#shutdown", STATELESS)
async def test_an_open_subscription_does_not_keep_a_server_alive(wire: Wire) -> None:
    async with wire.open("changing") as peer:
        await peer.send("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await peer.hear()
        await peer.carrier.end()
        async with asyncio.timeout(120):
            assert await process_of(peer).wait() == 0


@stdio_behaviour("stdio.eof-cut", "2026-07-28 basic/transports/stdio#shutdown")
async def test_a_line_that_input_ends_in_is_a_message(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        stdin = process_of(peer).stdin
        assert stdin is not None
        stdin.write(json.dumps(peer.request_of("tools/list", None, id="cut")).encode())
        await peer.carrier.end()
        assert "tools" in (await peer.answer("cut"))["result"]


@stdio_behaviour("stdio.terminated", "2025-11-25 basic/lifecycle#shutdown")
async def test_a_server_ends_when_it_is_told_to(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        await peer.result("tools/list")
        process_of(peer).send_signal(signal.SIGTERM)
        async with asyncio.timeout(120):
            assert await process_of(peer).wait() in (0, -signal.SIGTERM, 128 + signal.SIGTERM)


@stdio_behaviour("stdio.line-ends", "2025-11-25 basic/transports#stdio")
@pytest.mark.parametrize("ending", ["\r", "\n", "  ", "\n\r\n"])
async def test_blank_lines_and_carriage_returns_do_no_harm(wire: Wire, ending: str) -> None:
    async with wire.open("catalog") as peer:
        await peer.say(json.dumps(peer.request_of("tools/list", None, id="blank")) + ending)
        assert "tools" in (await peer.hear())["result"]
        assert await peer.settle() == []


@stdio_behaviour("stdio.pieces", "2025-11-25 basic/transports#stdio")
async def test_a_message_may_come_in_pieces_and_several_in_one(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        stdin = process_of(peer).stdin
        assert stdin is not None
        lines = b"".join(json.dumps(peer.request_of("tools/list", None, id=id)).encode() + b"\n" for id in ("a", "b"))
        stdin.write(lines[:25])
        await stdin.drain()
        stdin.write(lines[25:])
        assert set(await peer.answers("a", "b")) == {"a", "b"}


@stdio_behaviour("stdio.garbage", "2025-11-25 basic/transports#stdio")
async def test_bytes_that_are_not_a_message_are_rejected_and_the_next_line_is_served(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        await peer.say(b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}\nhello\n{"jsonrpc":"2.0","id":1}')
        assert [(await peer.hear())["error"]["code"] for _ in range(3)] == [-32700, -32700, -32600]
        assert "tools" in await peer.result("tools/list")


@stdio_behaviour("stdio.notices", "2025-11-25 server/tools#list-changed-notification")
async def test_a_change_is_notified_over_stdio(wire: Wire) -> None:
    async with client(wire, "changing") as target, target.listen(tools=True) as changes:
        await target.call_tool("add_tools", {"names": ["fresh"]})
        assert (await anext(aiter(changes))).kind == "tools"


@stdio_behaviour("stdio.too-long", "2025-11-25 basic/transports#stdio")
async def test_a_line_over_the_limit_is_rejected_and_the_next_one_is_served(wire: Wire) -> None:
    async with wire.open("limited") as peer:
        await peer.say(b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * 5000 + b'"}')
        assert (await peer.hear())["error"]["code"] == -32700
        assert "tools" in await peer.result("tools/list")


# --- the client's side -----------------------------------------------------------------------------------------------


def client(wire: Wire, name: str, **options: Any) -> Client:
    """Return a client of a program."""
    return Client(program(name), revision=wire.revision, env=_environment(), **options)


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}


@stdio_behaviour("stdio.client-works", "2025-11-25 basic/transports#stdio")
async def test_a_client_starts_a_program_and_ends_it(wire: Wire) -> None:
    async with client(wire, "catalog") as target:
        assert (await target.call_tool("add", {"a": 1, "b": 2})).data == 3
        assert target.server_info is not None
        assert target.server_info.name == "catalog"


@stdio_behaviour("stdio.client-auto", "2026-07-28 basic/transports/stdio#backward-compatibility", STATELESS)
async def test_a_client_finds_out_by_itself_what_a_program_speaks(wire: Wire) -> None:
    async with Client(program("catalog"), env=_environment()) as target:
        assert target.revision == wire.revision


@stdio_behaviour("stdio.client-fallback", "2026-07-28 basic/transports/stdio#backward-compatibility", HANDSHAKE)
async def test_a_client_falls_back_to_the_handshake_with_an_older_program(wire: Wire) -> None:
    async with Client(program("raw_chatty")) as target:
        assert target.revision == wire.revision


@stdio_behaviour("stdio.client-noise", "2025-11-25 basic/transports#stdio", HANDSHAKE)
async def test_a_client_skips_lines_that_are_no_messages_and_does_not_mind_stderr(wire: Wire) -> None:
    async with client(wire, "raw_chatty") as target:
        assert json.loads((await target.call_tool("tell", {})).text)["lines"] >= 3


@stdio_behaviour("stdio.client-lines", "2025-11-25 basic/transports#stdio", HANDSHAKE)
async def test_a_client_writes_one_message_a_line(wire: Wire) -> None:
    async with client(wire, "raw_chatty") as target:
        told = json.loads((await target.call_tool("tell", {"text": "a\nb\r\nc"})).text)
        assert told["lines"] == told["breaks"]


@stdio_behaviour("stdio.client-environment", "2025-11-25 basic/index#auth", HANDSHAKE)
async def test_a_program_gets_a_small_environment_and_what_it_was_given(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET_TOKEN", "hunter2")
    async with Client(program("raw_chatty"), revision=wire.revision, env={"GIVEN": "yes"}) as target:
        environment = json.loads((await target.call_tool("tell", {})).text)["environment"]
        assert ("GIVEN" in environment, "PATH" in environment, "MY_SECRET_TOKEN" in environment) == (True, True, False)


@stdio_behaviour("stdio.client-server-dies", "2026-07-28 basic/transports/stdio#unexpected-termination", HANDSHAKE)
async def test_a_call_fails_at_once_with_the_exit_reason_when_the_program_dies(wire: Wire) -> None:
    async with client(wire, "raw_dying", restart=False) as target:
        with pytest.raises(ServerExited) as caught:
            await target.call_tool("burn", {})
        assert (caught.value.status, "the disk caught fire" in caught.value.stderr) == (3, True)


@stdio_behaviour("stdio.client-restarts", "2026-07-28 basic/transports/stdio#unexpected-termination", HANDSHAKE)
async def test_the_next_call_starts_a_dead_program_again_and_the_lost_one_is_not_repeated(wire: Wire) -> None:
    async with client(wire, "raw_dying") as target:
        with pytest.raises(ServerExited):
            await target.call_tool("burn", {})
        await target.ping()
        assert target.state == "active"


@stdio_behaviour("stdio.client-stderr-in-errors", "2026-07-28 basic/transports/stdio#unexpected-termination")
async def test_a_program_that_cannot_start_says_why(wire: Wire, tmp_path: Any) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('no licence found')")
    with pytest.raises(ServerExited) as caught:
        async with Client(str(broken), revision=wire.revision):
            raise AssertionError("it started")
    assert "no licence found" in str(caught.value)


@stdio_behaviour("stdio.client-listens-again", "2026-07-28 basic/transports/stdio#unexpected-termination")
async def test_a_listener_continues_after_a_restart_of_the_server(wire: Wire) -> None:
    async with client(wire, "changing") as target, target.listen(tools=True) as changes:
        with pytest.raises(ServerExited):
            await target.call_tool("die")
        assert (await anext(aiter(changes))).kind == "missed"
        await target.call_tool("add_tools", {"names": ["fresh"]})
        assert (await anext(aiter(changes))).kind == "tools"


@stdio_behaviour("stdio.stderr-quiet", "2025-11-25 basic/transports#stdio")
async def test_an_idle_server_writes_nothing(wire: Wire) -> None:
    async with wire.open("paged") as peer:
        await peer.call("a")
        carrier = peer.carrier
    assert carrier.stderr == b""  # type: ignore[attr-defined]
