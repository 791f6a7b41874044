"""Recordings in memory and in files: the format, what is hidden, what belongs together, playing and comparing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.devtools.recording.recording_link import RecordingLink
from tests.support import run_async
from trunkline import Client, Context, RequestFailed, Server, memory_pair
from trunkline.devtools.recording.diff import MASK, compare, compare_answers, mask_varying
from trunkline.devtools.recording.exchanges import label, read_exchanges, with_unique_ids
from trunkline.devtools.recording.format import (
    MessageRedaction,
    Recording,
    RecordingEntry,
    RecordingHeader,
    RecordingWriter,
)
from trunkline.devtools.recording.replay import ReplayServer
from trunkline.errors import ConfigError
from trunkline.host.authorization.policy.patterns import InvalidPointer
from trunkline.protocol.jsonrpc import Notification, Outbound, Request
from trunkline.testing import replay

HEAD = '{"format":"trunkline-recording","version":1,"target":"x","transport":"stdio","started":null}'
PING = '{"from":"client","message":{"jsonrpc":"2.0","id":1,"method":"ping"}}'
ERAS = ("2025-11-25", "2026-07-28")


def entry(sender: Any, message: dict[str, Any], **more: Any) -> RecordingEntry:
    """Make an entry of a message."""
    return RecordingEntry(sender, msgspec.Raw(msgspec.json.encode({"jsonrpc": "2.0", **message})), **more)


def asked(id: int | str, method: str, params: Any = None, **more: Any) -> RecordingEntry:
    """A request of the client's."""
    return entry("client", {"id": id, "method": method, "params": params or {}}, **more)


def answered(id: int | str, result: Any, **more: Any) -> RecordingEntry:
    """A result of the server's."""
    return entry("server", {"id": id, "result": result}, **more)


def recording(*entries: RecordingEntry) -> Recording:
    """A recording of these entries."""
    return Recording(entries)


# --- the format -------------------------------------------------------------------------------------------------------


def test_the_head_says_what_was_recorded() -> None:
    found = Recording.parse(f"# title\n{HEAD}\n{PING}\n")
    assert (found.head, found.title, len(found.entries)) == (RecordingHeader(target="x", transport="stdio"), "title", 1)


def test_what_has_a_head_is_written_as_it_was_read() -> None:
    text = f"# title\n{HEAD}\n{PING}\n"
    assert Recording.parse(text).dump() == text


def test_a_later_version_of_the_format_is_refused() -> None:
    with pytest.raises(ConfigError, match="format version 2"):
        Recording.parse(HEAD.replace('"version":1', '"version":2'))


@pytest.mark.parametrize("last", ['{"from":"cli', '{"from":"client","message":{"json', '{"a":"\udcff'])
def test_a_last_line_that_was_not_written_to_its_end_is_left_out(last: str) -> None:
    found = Recording.parse(f"{HEAD}\n{PING}\n{last}")
    assert (len(found.entries), found.cut) == (1, True)


def test_a_broken_line_in_the_middle_is_an_error() -> None:
    with pytest.raises(ConfigError, match="line 2"):
        Recording.parse(f'{HEAD}\n{{"from":"cli\n{PING}\n')


@pytest.mark.parametrize(
    ("entries", "revision"),
    [
        pytest.param((answered(1, {"protocolVersion": "2025-06-18", "serverInfo": {}}),), "2025-06-18", id="handshake"),
        pytest.param(
            (asked(1, "ping", {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}),),
            "2026-07-28",
            id="stateless",
        ),
        pytest.param((asked(1, "ping"),), None, id="none"),
    ],
)
def test_the_revision_is_what_was_spoken(entries: tuple[RecordingEntry, ...], revision: str | None) -> None:
    assert Recording(entries).revision == revision


# --- writing ----------------------------------------------------------------------------------------------------------


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Read a file line by line."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_line_is_in_the_file_at_once(tmp_path: Path) -> None:
    times = iter([10.0, 10.25, 11.5])
    file = RecordingWriter(tmp_path / "a.jsonl", target="demo", transport="stdio", clock=lambda: next(times))
    file.message("client", b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    file.note("recorder", "gone")
    head, first, second = lines_of(tmp_path / "a.jsonl")
    file.close()
    assert (head["format"], head["target"], head["transport"]) == ("trunkline-recording", "demo", "stdio")
    assert (first["from"], first["at"], first["message"]["method"]) == ("client", 0.25, "ping")
    assert second == {"from": "recorder", "note": "gone", "at": 1.5}


def test_a_message_that_hides_nothing_stays_as_it_was_written(tmp_path: Path) -> None:
    file = RecordingWriter(tmp_path / "a.jsonl")
    file.message("client", b'{ "jsonrpc":"2.0",\n "x": 1E2, "id":1 }')
    file.close()
    assert '{ "jsonrpc":"2.0",  "x": 1E2, "id":1 }' in (tmp_path / "a.jsonl").read_text()


def test_what_is_no_json_becomes_a_note_without_credentials(tmp_path: Path) -> None:
    file = RecordingWriter(tmp_path / "a.jsonl", secrets=frozenset({"s3cret-value"}))
    file.message("server", b"oops s3cret-value \xff")
    file.close()
    note = lines_of(tmp_path / "a.jsonl")[1]["note"]
    assert note.startswith("not a message (")
    assert "oops ***" in note


def test_a_file_that_is_full_says_so_once_and_takes_nothing_more(tmp_path: Path) -> None:
    told: list[str] = []
    file = RecordingWriter(tmp_path / "a.jsonl", max_bytes=300, on_stop=told.append)
    file.note("client", "x" * 200)
    file.note("client", "x" * 200)
    file.note("client", "y")
    assert (len(told), file.writing) == (1, False)
    assert "has reached the limit of 300 bytes" in lines_of(tmp_path / "a.jsonl")[-1]["note"]


def test_another_recording_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f"{HEAD}\n{PING}\n")
    RecordingWriter(path).close()
    assert len(lines_of(path)) == 1


@pytest.mark.parametrize("text", ["{}", "# mine\n", '{"mcpServers":{}}'])
def test_anything_else_is_not_written_over(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ConfigError, match="is not a recording"):
        RecordingWriter(tmp_path / "a.json")
    assert (tmp_path / "a.json").read_text() == text


def test_a_file_that_is_being_written_is_not_taken(tmp_path: Path) -> None:
    file = RecordingWriter(tmp_path / "a.jsonl")
    with pytest.raises(ConfigError, match="another recorder"):
        RecordingWriter(tmp_path / "a.jsonl")
    file.close()


@pytest.mark.parametrize("name", ["", "none/a.jsonl"], ids=["a folder", "no folder"])
def test_a_place_that_cannot_be_written_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=str(tmp_path)):
        RecordingWriter(tmp_path / name)


# --- what is hidden ---------------------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"password": {"type": "string"}}}


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        pytest.param({"arguments": {"password": "x"}}, {"arguments": {"password": "***"}}, id="an argument"),
        pytest.param({"token": {"a": 1}}, {"token": "***"}, id="an object"),
        pytest.param({"text": "Bearer abcdefghij"}, {"text": "***"}, id="by its look"),
        pytest.param({"a": ["s3cret-value!"]}, {"a": ["***!"]}, id="a known secret"),
        pytest.param({"name": "token", "value": "x"}, {"name": "token", "value": "***"}, id="a completion"),
        pytest.param({"_meta": {"progressToken": 7}}, {"_meta": {"progressToken": 7}}, id="a progress token"),
        pytest.param({"inputSchema": SCHEMA}, {"inputSchema": SCHEMA}, id="a schema"),
        pytest.param({"secret": True, "token": None}, {"secret": True, "token": None}, id="flags"),
        pytest.param(
            {"type": "image", "data": "ab/eyJhbGciOiJIUzI1NiJ9abcdef"},
            {"type": "image", "data": "ab/eyJhbGciOiJIUzI1NiJ9abcdef"},
            id="a picture",
        ),
        pytest.param("x" * 5000, "x" * 5000, id="a long text"),
    ],
)
def test_credentials_are_hidden_and_nothing_else(value: Any, kept: Any) -> None:
    assert MessageRedaction(frozenset({"s3cret-value"})).apply(value) == kept


def test_the_id_of_a_session_is_hidden_in_headers() -> None:
    given = {"mcp-session-id": "abc", "mcp-method": "tools/call"}
    assert MessageRedaction().headers(given) == {"mcp-session-id": "***", "mcp-method": "tools/call"}


# --- what belongs together --------------------------------------------------------------------------------------------


def test_an_answer_goes_with_its_request_and_progress_with_its_token() -> None:
    first, second = read_exchanges(
        recording(
            asked(1, "tools/call", {"name": "slow", "_meta": {"progressToken": "t"}}),
            asked(2, "tools/call", {"name": "fast"}),
            answered(2, {"n": 2}),
            entry("server", {"method": "notifications/progress", "params": {"progressToken": "t", "progress": 1}}),
            answered(1, {"n": 1}),
        )
    )
    assert [step.message.get("method") for step in first.steps] == ["notifications/progress", None]
    assert (first.answer or {})["result"] == {"n": 1}
    assert (second.answer or {})["result"] == {"n": 2}


def test_a_question_goes_with_what_was_asked_last_and_has_its_answer() -> None:
    (only,) = read_exchanges(
        recording(
            asked(1, "tools/call"),
            entry("server", {"id": 1, "method": "elicitation/create"}),
            entry("client", {"id": 1, "result": {"action": "accept"}}),
            answered(1, {}),
        )
    )
    assert [question.answer["result"] for question in only.questions if question.answer] == [{"action": "accept"}]


def test_two_requests_of_one_id_are_told_apart_by_their_http_exchanges() -> None:
    found = read_exchanges(
        recording(
            asked(1, "a", exchange=1),
            asked(1, "b", exchange=2),
            answered(1, "A", exchange=1),
            answered(1, "B", exchange=2),
        )
    )
    assert [(each.answer or {})["result"] for each in found] == ["A", "B"]


def test_ids_that_http_let_be_used_twice_are_made_unique() -> None:
    made = with_unique_ids(
        recording(
            asked(1, "a", exchange=1),
            asked(1, "b", exchange=2),
            answered(1, "A", exchange=1),
            entry("client", {"method": "notifications/cancelled", "params": {"requestId": 1}}, exchange=3),
        )
    )
    ids = [each.json.get("id", each.json.get("params", {}).get("requestId")) for each in made.entries]
    assert ids == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"method": "tools/call", "params": {"name": "add"}}, "tools/call add"),
        ({"method": "completion/complete", "params": {"ref": {"name": "p"}}}, "completion/complete p"),
        ({"method": "resources/read", "params": {"uri": "note://1"}}, "resources/read note://1"),
        ({"method": "ping", "params": []}, "ping"),
    ],
)
def test_a_request_is_called_by_what_it_is_about(message: dict[str, Any], said: str) -> None:
    assert label(message) == said


@pytest.mark.parametrize("value", [1, [1], {"method": 7}, {"method": "x", "id": []}, {"id": 1, "result": 0}])
def test_what_makes_no_sense_is_left_out(value: Any) -> None:
    odd = RecordingEntry("server", msgspec.Raw(msgspec.json.encode(value)))
    assert len(read_exchanges(recording(odd, asked(1, "ping"), odd))) == 1


# --- playing as a server ----------------------------------------------------------------------------------------------


def server_under_test() -> Server:
    """A server that asks and reports."""
    server = Server("talker")

    @server.tool
    async def order(ctx: Context, dish: str) -> str:
        await ctx.report_progress(1)
        return f"{(await ctx.elicit(f'How many {dish}?', int)).data} {dish}"

    return server


async def recorded(path: Path, revision: str, *dishes: str) -> Recording:
    """Use a server over a link that is recorded."""
    near, far = memory_pair()
    serving = asyncio.ensure_future(server_under_test().serve(far))
    file = RecordingWriter(path)
    link = RecordingLink(near, file)
    async with Client(link, revision=revision, elicitation=lambda question: {"value": 3}) as client:
        for dish in dishes:
            await client.call_tool("order", {"dish": dish}, on_progress=lambda *step: None)
    await serving
    file.close()
    return Recording.load(path)


@pytest.mark.parametrize("revision", ERAS)
async def test_a_played_server_asks_reports_and_answers_as_it_did(revision: str, tmp_path: Path) -> None:
    played = ReplayServer(await recorded(tmp_path / "a.jsonl", revision, "fish", "soup"))
    steps: list[Any] = []
    questions: list[str] = []

    def answer(question: Any) -> dict[str, int]:
        questions.append(question.message)
        return {"value": 3}

    async with Client(played, revision=revision, elicitation=answer) as client:
        soup = await client.call_tool("order", {"dish": "soup"}, on_progress=lambda *step: steps.append(step[0]))
        fish = await client.call_tool("order", {"dish": "fish"})
    assert (soup.text, fish.text) == ("3 soup", "3 fish")
    assert (questions, steps[:1]) == (["How many soup?", "How many fish?"], [1])


@pytest.mark.parametrize("revision", ERAS)
async def test_a_recording_replayed_in_memory_finds_the_server_unchanged(revision: str, tmp_path: Path) -> None:
    outcome = await replay(await recorded(tmp_path / "a.jsonl", revision, "fish"), server_under_test())
    found = [
        difference
        for answer in outcome.answers
        for difference in compare_answers(answer.request, answer.recorded, answer.actual)
    ]
    assert (found, len(outcome.answers) > 1) == ([], True)


CALL = {"name": "now"}


async def _call(played: ReplayServer, *params: dict[str, Any]) -> list[Any]:
    """Send calls one after the other, as raw messages; give what came."""
    near, far = memory_pair()
    performance = played.accept(far)
    came: asyncio.Queue[Any] = asyncio.Queue()

    class Taker:
        def message_received(self, incoming: Any, origin: Any) -> None:
            came.put_nowait(incoming)

        def eof_received(self, error: Exception | None = None, *, about: Any = None) -> None:
            return

    near.attach(Taker())
    answers = []
    for id, each in enumerate(params, 100):
        near.send([Outbound(Request(id, "tools/call", each))])
        answers.append(await came.get())
    await near.aclose()
    await performance.aclose()
    return answers


def test_alike_requests_are_answered_in_order_and_then_by_the_last() -> None:
    played = ReplayServer(
        recording(asked(1, "tools/call", CALL), answered(1, 1), asked(2, "tools/call", CALL), answered(2, 2))
    )
    answers = run_async(_call(played, CALL, CALL, CALL))
    assert [(each.id, msgspec.json.decode(each.result)) for each in answers] == [(100, 1), (101, 2), (102, 2)]


def test_a_request_is_known_again_without_its_meta_and_its_credentials() -> None:
    params = {"name": "login", "arguments": {"password": "***"}}
    played = ReplayServer(recording(asked(1, "tools/call", params), answered(1, "in")))
    again = {"_meta": {"x": 1}, "name": "login", "arguments": {"password": "hunter22"}}
    assert [bytes(each.result) for each in run_async(_call(played, again))] == [b'"in"']


@pytest.mark.parametrize(
    ("method", "said"),
    [("tools/call", "has no tools/call other with these params"), ("prompts/list", "has no prompts/list")],
)
def test_what_is_not_in_the_recording_is_refused(method: str, said: str) -> None:
    played = ReplayServer(
        recording(
            asked(1, "initialize"),
            answered(1, {"protocolVersion": ERAS[0], "serverInfo": {"name": "x", "version": "1"}, "capabilities": {}}),
            asked(2, "tools/call", CALL),
            answered(2, {}),
        )
    )

    async def main() -> None:
        async with Client(played, revision=ERAS[0]) as client:
            await client._core.session.connection.request(  # type: ignore[union-attr]
                method, {"name": "other"}, timeouts=client._core.options.timeouts
            )

    with pytest.raises(RequestFailed, match=said):
        run_async(main())


async def test_a_ping_is_always_answered() -> None:
    near, far = memory_pair()
    performance = ReplayServer(Recording()).accept(far)
    came: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    class Taker:
        def message_received(self, incoming: Any, origin: Any) -> None:
            came.set_result(incoming)

        def eof_received(self, error: Exception | None = None, *, about: Any = None) -> None:
            return

    near.attach(Taker())
    near.send([Outbound(Notification("notifications/unknown")), Outbound(Request(5, "ping"))])
    assert (await came).id == 5
    await performance.aclose()


def test_with_speed_everything_takes_the_time_it_took() -> None:
    played = ReplayServer(recording(asked(1, "tools/call", CALL, at=1.0), answered(1, 1, at=1.2)), speed=2.0)

    async def main() -> float:
        before = asyncio.get_running_loop().time()
        await _call(played, CALL)
        return asyncio.get_running_loop().time() - before

    assert run_async(main()) >= 0.1


# --- comparing --------------------------------------------------------------------------------------------------------


def differences(first: Recording, second: Recording, *ignore: str) -> list[tuple[str, str, str]]:
    """Compare; give request, kind and path of each difference."""
    return [(each.request, each.kind, each.path) for each in compare(first, second, ignore=ignore).differences]


def listing(*tools: dict[str, Any]) -> Recording:
    """A recording of one list of tools."""
    return recording(asked(1, "tools/list"), answered(1, {"tools": list(tools)}))


def test_lists_are_compared_by_name_and_schemas_member_by_member() -> None:
    before = listing({"name": "a", "inputSchema": {"x": 1}}, {"name": "b"})
    after = listing({"name": "c"}, {"name": "a", "inputSchema": {"x": 2}})
    assert differences(before, after) == [
        ("tools/list", "changed", "/result/tools/a/inputSchema/x"),
        ("tools/list", "removed", "/result/tools/b"),
        ("tools/list", "added", "/result/tools/c"),
    ]


def test_a_result_that_became_an_error_is_both() -> None:
    failed = recording(asked(1, "ping"), entry("server", {"id": 1, "error": {"code": 1, "message": "no"}}))
    assert differences(recording(asked(1, "ping"), answered(1, {})), failed) == [
        ("ping", "removed", "/result"),
        ("ping", "added", "/error"),
    ]


def test_requests_that_moved_are_found() -> None:
    one, two = (asked(1, "a"), answered(1, 1)), (asked(2, "b"), answered(2, 2))
    assert differences(recording(*one, *two), recording(*two, *one)) == []


def test_a_request_with_other_params_is_compared_and_the_params_are_shown() -> None:
    before = recording(asked(1, "tools/call", {"name": "add", "arguments": {"a": 1}}), answered(1, 1))
    after = recording(asked(1, "tools/call", {"name": "add", "arguments": {"a": 2}}), answered(1, 1))
    assert differences(before, after) == [("tools/call add", "changed", "/params/arguments/a")]


def test_a_question_that_changed_is_found() -> None:
    def with_question(text: str) -> Recording:
        question = entry("server", {"id": 9, "method": "elicitation/create", "params": {"message": text}})
        return recording(asked(1, "tools/call", CALL), question, answered(1, 1))

    assert differences(with_question("a"), with_question("b")) == [
        ("tools/call now", "changed", "/questions/0/params/message")
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"requestState": "a"}, {"requestState": "b"}, id="a sealed state"),
        pytest.param({"nextCursor": "a"}, {"nextCursor": "b"}, id="a cursor"),
        pytest.param({"t": "at 2026-01-02T03:04:05Z"}, {"t": "at 2027-01-02T03:04:05.678+01:00"}, id="a time"),
        pytest.param(
            {"t": "id 123e4567-e89b-12d3-a456-426614174000"},
            {"t": "id 00000000-e89b-12d3-a456-426614174000"},
            id="a random id",
        ),
    ],
)
def test_what_differs_each_time_is_masked(first: Any, second: Any) -> None:
    assert mask_varying(first) == mask_varying(second)
    assert MASK in str(mask_varying(first))


@pytest.mark.parametrize(("first", "second"), [(True, 1), (0, False), (None, {}), ("1", 1)])
def test_values_of_other_kinds_are_not_the_same(first: Any, second: Any) -> None:
    before, after = recording(asked(1, "a"), answered(1, first)), recording(asked(1, "a"), answered(1, second))
    assert len(differences(before, after)) == 1


def test_what_is_below_an_ignored_pointer_is_left_out() -> None:
    before, after = listing({"name": "a", "x": {"y": 1}}), listing({"name": "a", "x": {"y": 2}})
    assert differences(before, after, "/result/tools/*/x") == []
    assert differences(before, after, "/result/tools/*/z") != []


def test_an_ignored_pointer_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidPointer):
        compare(Recording(), Recording(), ignore=["result"])
