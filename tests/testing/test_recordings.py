"""The recording kit: files, the recorder around a link, and replaying a conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from trunkline.errors import ConfigError
from trunkline.protocol.caller import MEMORY, Origin
from trunkline.protocol.jsonrpc import (
    Batch,
    Incoming,
    InvalidMessage,
    Message,
    Notification,
    Outbound,
    Request,
    Response,
)
from trunkline.testing.recordings import Recorder, Recording, RecordingEntry, replay
from trunkline.transports.link import Link, Receiver
from trunkline.types import RequestId

LINE = '{"from":"client","message":{"jsonrpc":"2.0","id":1,"method":"ping"}}'


class FarEnd(Link):
    """A link that keeps what is sent and delivers what a test says."""

    def __init__(self) -> None:
        self.receiver: Receiver | None = None
        self.sent: list[Outbound] = []
        self.drained = self.closed = 0

    def attach(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def send(self, batch: Sequence[Outbound]) -> None:
        self.sent.extend(batch)

    async def drain(self) -> None:
        self.drained += 1

    async def aclose(self) -> None:
        self.closed += 1


class Owner:
    """A receiver that stores what it is given."""

    def __init__(self) -> None:
        self.received: list[Incoming] = []
        self.ends: list[tuple[Exception | None, RequestId | None]] = []

    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        self.received.append(incoming)

    def eof_received(self, error: Exception | None = None, *, about: RequestId | None = None) -> None:
        self.ends.append((error, about))


class Clerk(Owner):
    """A server made of one function from a message to the messages sent for it."""

    def __init__(self, reply: Callable[[Incoming], Sequence[Message | tuple[Message, ...]]]) -> None:
        super().__init__()
        self._reply = reply
        self._ended = asyncio.Event()

    async def serve(self, link: Link, /) -> None:
        self._link = link
        link.attach(self)
        await self._ended.wait()
        await link.drain()
        await link.aclose()

    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        super().message_received(incoming, origin)
        self._link.send([Outbound(message) for message in self._reply(incoming)])

    def eof_received(self, error: Exception | None = None, *, about: RequestId | None = None) -> None:
        self._ended.set()


def recording(*lines: str) -> Recording:
    """Create a recording from its lines."""
    return Recording.parse("\n".join(lines))


def pong(incoming: Incoming) -> list[Message]:
    """Answer every request with an empty result."""
    return [Response(incoming.id, {})] if isinstance(incoming, Request) else []


# --- files -----------------------------------------------------------------------------------------------------------


def test_comments_at_the_head_are_the_title_and_others_are_left_out() -> None:
    one = Recording.parse(f"# One\n# two\n\n{LINE}\n\n# note\n{LINE}\n# later\n")
    assert (one.title, len(one.entries)) == ("One\ntwo", 2)


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    before = Recording.parse(f'# Title\n\n{LINE}\n{{"from":"server","note":"nothing came"}}\n')
    before.save(tmp_path / "one.jsonl")
    assert Recording.load(tmp_path / "one.jsonl") == before


def test_a_line_that_is_no_entry_is_named_by_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(f'{LINE}\n{{"from":"nobody"}}\n')
    with pytest.raises(ConfigError, match=r"bad\.jsonl, line 2"):
        Recording.load(path)


def test_an_entry_without_a_message_has_neither_json_nor_a_decoded_form() -> None:
    entry = RecordingEntry("client", note="noise")
    assert (entry.json, entry.decoded) == (None, None)


# --- the recorder ----------------------------------------------------------------------------------------------------


def test_a_recorder_keeps_both_directions_in_order() -> None:
    far, owner = FarEnd(), Owner()
    recorder = Recorder(far, side="server", title="Ping")
    recorder.attach(owner)
    recorder.message_received(Request(1, "ping"), MEMORY)
    recorder.send([Outbound(Response(1, {}))])
    assert recorder.recording == Recording.parse(
        f'# Ping\n{LINE}\n{{"from":"server","message":{{"jsonrpc":"2.0","id":1,"result":{{}}}}}}'
    )


async def test_a_recorder_changes_nothing_on_the_way() -> None:
    far, owner = FarEnd(), Owner()
    recorder = Recorder(far, side="client")
    recorder.attach(owner)
    request, answer = Outbound(Request(1, "ping"), headers={"Mcp-Name": "kept"}), Response(1, {})
    recorder.send([request])
    recorder.message_received(answer, MEMORY)
    recorder.eof_received(about=7)
    await recorder.drain()
    await recorder.aclose()
    assert (far.receiver, far.sent, owner.received, owner.ends) == (recorder, [request], [answer], [(None, 7)])
    assert (far.drained, far.closed) == (1, 1)


def test_a_recorder_notes_what_was_no_message() -> None:
    recorder = Recorder(FarEnd(), side="server")
    recorder.attach(Owner())
    recorder.message_received(InvalidMessage(-32700, "Parse error"), MEMORY)
    assert recorder.recording.entries == (RecordingEntry("client", note="Parse error"),)


def test_a_recorder_keeps_a_batch_as_one_line() -> None:
    recorder = Recorder(FarEnd(), side="server")
    recorder.attach(Owner())
    recorder.message_received(Batch((Request(1, "ping"), Notification("n"), InvalidMessage(-32600, "bad"))), MEMORY)
    assert [len(entry.json) for entry in recorder.recording.entries] == [2]


# --- playing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("recorded", "same"), [('{"was":1}', False), ("{}", True)], ids=["changed", "the same"])
async def test_an_answer_stands_beside_the_recorded_one(recorded: str, same: bool) -> None:
    script = recording(LINE, f'{{"from":"server","message":{{"jsonrpc":"2.0","id":1,"result":{recorded}}}}}')
    outcome = await replay(script, Clerk(pong))
    answer = outcome.answer("ping")
    (entry,) = script.sent_by("server")
    assert (answer.recorded, answer.result, answer.error, answer.same) == (entry.json, {}, None, same)
    with pytest.raises(KeyError):
        outcome.answer("tools/list")


async def test_a_request_without_a_recorded_answer_is_waited_for() -> None:
    assert (await replay(recording(LINE, LINE), Clerk(pong))).sent == ({"jsonrpc": "2.0", "id": 1, "result": {}},) * 2


async def test_the_notices_of_a_server_can_be_had_alone() -> None:
    outcome = await replay(recording(LINE), Clerk(lambda request: [Notification("told"), *pong(request)]))
    assert outcome.notices == ({"jsonrpc": "2.0", "method": "told"},)


async def test_the_clients_recorded_reply_goes_to_the_request_the_server_makes_now() -> None:
    script = recording(
        LINE,
        '{"from":"server","message":{"jsonrpc":"2.0","id":1,"method":"roots/list"}}',
        '{"from":"client","message":{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}}',
        '{"from":"server","message":{"jsonrpc":"2.0","id":1,"result":{}}}',
    )

    def ask_first(incoming: Incoming) -> list[Message]:
        if isinstance(incoming, Response):
            return [Response(1, {"heard": incoming.id})]
        return [Request("mine-7", "roots/list")]

    assert (await replay(script, Clerk(ask_first))).answer("ping").result == {"heard": "mine-7"}


async def test_a_batch_reaches_the_server_whole_and_its_answers_are_told_apart() -> None:
    script = recording(
        '{"from":"client","message":[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":2,"method":"b"}]}'
    )

    def answer_together(incoming: Incoming) -> list[Message | tuple[Message, ...]]:
        assert isinstance(incoming, Batch)
        return [(Response(2, {"for": "b"}), Response(1, {"for": "a"}))]

    outcome = await replay(script, Clerk(answer_together))
    assert [answer.result for answer in outcome.answers] == [{"for": "a"}, {"for": "b"}]


async def test_no_answer_is_waited_for_once_the_client_withdrew_its_request() -> None:
    script = recording(
        LINE,
        '{"from":"client","message":{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}}',
    )

    outcome = await replay(script, Clerk(lambda _: []))
    assert [answer.actual for answer in outcome.answers] == [None]


async def test_a_server_that_stays_silent_is_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        await replay(recording(LINE), Clerk(lambda _: []), seconds=0.05)
