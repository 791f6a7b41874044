"""``list``, ``call``, ``read``, ``get`` and ``complete`` without a terminal: answers, JSON, codes."""

from __future__ import annotations

import base64
import json
import shlex
import sys
from pathlib import Path

import pytest

from tests.cli.support import DEMO, command, run

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
each_revision = pytest.mark.parametrize("revision", REVISIONS)

EMPTY = "from trunkline import Server\nserver = Server('empty')\n"

ODD = """
import json, sys

def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()

for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "server/discover":
        sys.stdout.write("this is no message\\x1b[1m\\n")
        send({"id": message["id"], "error": {"code": -32601, "message": "no"}})
    elif message["method"] == "initialize":
        send({"id": message["id"], "result": {"protocolVersion": "2025-06-18", "capabilities": {"resources": {}},
              "serverInfo": {"name": "odd", "version": "1"}}})
    elif message["method"] == "resources/read":
        send({"id": message["id"], "result": {"contents": {
            "odd:many": [{"uri": "a:1", "text": "one"}, {"uri": "a:2", "text": "two"}],
            "odd:bad": [{"uri": "a:1", "blob": "***"}],
        }[message["params"]["uri"]]}})
"""
ODD_TARGET = shlex.join([sys.executable, "-c", ODD])


# --- list ------------------------------------------------------------------------------------------------------------


def test_tools_are_listed_with_their_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "list", "tools", DEMO)
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["TOOL", "ARGUMENTS", "DESCRIPTION"]
    assert out.splitlines()[1].split(maxsplit=3) == ["add", "a", "[b]", "Add two numbers."]
    assert out.splitlines()[0].index("DESCRIPTION") == out.splitlines()[1].index("Add two numbers.")
    assert "Clear the \\x1b[2Jscreen and \\u202eturn round." in out


def test_tools_are_listed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "list", "tools", DEMO, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["tools"][0]["inputSchema"]["required"] == ["a"]


def test_resources_come_with_their_templates(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, "list", "resources", DEMO, "--json").out)
    assert [each["uri"] for each in found["resources"]] == ["note://one", "note://bytes"]
    assert [each["uriTemplate"] for each in found["resourceTemplates"]] == ["note://{name}/page"]


def test_resources_are_listed_with_type_and_description(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "list", "resources", DEMO).out.splitlines()
    assert lines[1].split(maxsplit=3) == ["note://one", "one", "text/plain", "The first note."]
    assert lines[3].startswith("note://{name}/page")


def test_templates_are_listed_alone(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, "list", "templates", DEMO, "--json").out)
    assert list(found) == ["resourceTemplates"]


def test_prompts_are_listed_with_their_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "list", "prompts", DEMO).out.splitlines()
    assert lines[1].split(maxsplit=3) == ["greet", "name", "[style]", "Greet somebody."]


def test_a_list_the_server_does_not_have_is_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "empty.py"
    file.write_text(EMPTY)
    assert run(capsys, "list", "prompts", str(file)) == (0, "", "trunkline: the server has no prompts\n")
    assert json.loads(run(capsys, "list", "prompts", str(file), "--json").out) == {"prompts": []}


# --- call ------------------------------------------------------------------------------------------------------------


@each_revision
def test_a_tool_is_called_in_every_revision(revision: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "call", DEMO, "add", "a=1", "b=5", "--revision", revision) == (0, "6\n", "")


def test_the_real_command_calls_a_tool() -> None:
    assert command("call", DEMO, "add", "a=40") == (0, "42\n", "")


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        pytest.param(("echo", "text=42"), "42", id="text that looks like a number"),
        pytest.param(("echo", "text=a=b"), "a=b", id="text with an equals sign"),
        pytest.param(("echo", "text=@@home"), "@home", id="text that begins with an at sign"),
        pytest.param(("show", "value=42"), "42", id="number"),
        pytest.param(("show", 'value={"a": [true]}'), '{"a":[true]}', id="object"),
        pytest.param(("show", "value=plain"), '"plain"', id="no JSON"),
        pytest.param(("add", "--args", '{"a": 1, "b": 1}'), "2", id="args"),
        pytest.param(("add", "b=5", "--args", '{"a": 1, "b": 1}'), "6", id="args and a key that wins"),
    ],
)
def test_arguments_are_read_as_the_tool_wants_them(
    arguments: tuple[str, ...], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "call", DEMO, *arguments) == (0, f"{shown}\n", "")


def test_a_value_may_come_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "value").write_text("from a file")
    assert run(capsys, "call", DEMO, "echo", f"text=@{tmp_path / 'value'}").out == "from a file\n"


def test_a_value_may_come_from_stdin() -> None:
    assert command("call", DEMO, "echo", "text=@-", stdin="from stdin").out == "from stdin\n"


def test_all_arguments_may_come_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "args.json").write_text('{"a": 1, "b": 1}')
    assert run(capsys, "call", DEMO, "add", "--args", f"@{tmp_path / 'args.json'}").out == "2\n"


def test_the_answer_as_json_is_the_result_on_the_wire(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "call", DEMO, "add", "a=1", "--json", "--revision", "2025-06-18")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"content": [{"type": "text", "text": "3"}], "structuredContent": {"result": 3}}


def test_an_answer_shows_no_raw_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    shown = "red \\x1b[31m, C1 \\x9b0m, turned \\u202e, bell \\x07\n\tkept\n"
    assert run(capsys, "call", DEMO, "evil") == (0, shown, "")


def test_json_shows_no_raw_control_character_and_loses_none(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "call", DEMO, "evil", "--json").out
    assert {"\x1b", "\x9b", "\u202e", "\x07"}.isdisjoint(out)
    text = "red \x1b[31m, C1 \x9b0m, turned \u202e, bell \x07\r\n\tkept"
    assert json.loads(out)["content"] == [{"type": "text", "text": text}]


def test_content_that_is_no_text_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    shown = "some text\n[image: image/png, 5 bytes]\n[link: The note <note://one>]\n"
    assert run(capsys, "call", DEMO, "mixed") == (0, shown, "")


def test_a_tool_that_fails_is_code_5(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "call", DEMO, "fail") == (5, "", "trunkline: the tool fail failed: no luck\\x1b[1m today\n")


def test_a_tool_that_fails_gives_its_result_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "call", DEMO, "fail", "--json")
    assert code == 5
    assert json.loads(out)["isError"] is True


def test_an_error_answer_is_code_5(capsys: pytest.CaptureFixture[str]) -> None:
    sentence = "trunkline: the server returned an error: not\\x1b[1m now (-32050)\n"
    assert run(capsys, "call", DEMO, "refuse") == (5, "", sentence)


def test_an_error_answer_is_given_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "call", DEMO, "refuse", "--json").out
    assert json.loads(out) == {"error": {"code": -32050, "message": "not\x1b[1m now", "data": {"retry": 5}}}


def test_a_page_to_open_first_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "call", DEMO, "visit_first", "--revision", "2025-11-25")
    assert code == 5
    assert err.endswith("open a page first: pay first (-32042)\n  https://example.com/pay\n")


def test_a_tool_that_does_not_exist_is_code_5(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "call", DEMO, "no_such_tool", "a=1")
    assert (code, out) == (5, "")
    assert "no_such_tool" in err


def test_a_server_that_dies_is_code_4_with_its_last_words(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "call", DEMO, "die")
    assert (code, out) == (4, "")
    assert err.endswith("exited with status 3; last lines of stderr:\nlast words\\x1b[1m\n")


def test_a_failure_that_crossed_no_wire_is_json_without_a_code(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "call", DEMO, "hang", "--timeout", "3", "--json")
    assert code == 7
    assert json.loads(out) == {"error": {"message": "no answer within 3 s"}}


# --- what is shown meanwhile -----------------------------------------------------------------------------------------


def test_a_quiet_call_shows_the_answer_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "call", DEMO, "work") == (0, "worked\n", "")


@pytest.mark.parametrize("revision", REVISIONS[-2:])
def test_a_verbose_call_shows_log_progress_and_stderr(revision: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "call", DEMO, "work", "steps=1", "-v", "--revision", revision)
    assert (code, out) == (0, "worked\n")
    assert set(err.splitlines()) >= {
        f"connected to demo 1.0.0, revision {revision}",
        "progress: 1/1 step\\x1b[1m 1",
        "[info] log\\x1b[1m 1",
        "[stderr] stderr\\x1b[1m 1",
    }
    assert "[debug]" not in err


def test_a_very_verbose_call_shows_debug_messages(capsys: pytest.CaptureFixture[str]) -> None:
    assert "[debug] a detail\n[debug] trunkline: all is well\n" in run(capsys, "call", DEMO, "work", "-vv").err


def test_progress_without_a_total_is_a_plain_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert "progress: 7 so far\n" in run(capsys, "call", DEMO, "count", "-v").err


def test_a_line_of_stderr_that_never_ends_is_shown_in_pieces(capsys: pytest.CaptureFixture[str]) -> None:
    quoted = shlex.join([sys.executable, "-c", "import sys; sys.stderr.write('x' * 150_000)"])
    assert "[stderr] " + "x" * 64 * 1024 in run(capsys, "list", "tools", quoted, "-v").err


def test_a_server_that_writes_nonsense_to_stdout_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "read", ODD_TARGET, "odd:many")
    assert (code, out) == (0, "one\ntwo\n")
    assert "wrote something to stdout that is not a message" in err
    assert "\x1b" not in err


# --- questions without a terminal ------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS[-2:])
def test_a_question_without_a_terminal_is_declined_and_the_code_says_so(
    revision: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "call", DEMO, "choose", "--revision", revision)
    assert (code, out) == (6, "decline None\n")
    assert err == 'trunkline: the server asks "Which unit?": declined, there is no terminal to ask in\n'


@pytest.mark.parametrize("revision", REVISIONS[-2:])
def test_sampling_without_a_terminal_is_declined_and_the_code_says_so(
    revision: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "call", DEMO, "think", "--revision", revision)
    assert (code, out) == (6, "")
    first, second = err.splitlines()
    assert first.endswith(
        'asks for a model\'s answer to "user: Say\\x1b[1m hi": declined, there is no terminal to ask in'
    )
    assert second == "trunkline: the call failed because a request of the server was declined"


def test_a_declined_question_leaves_stdout_to_the_json() -> None:
    code, out, _ = command("call", DEMO, "choose", "--json", "--no-input")
    assert code == 6
    assert json.loads(out)["structuredContent"] == {"result": "decline None"}


# --- read ------------------------------------------------------------------------------------------------------------


def test_a_resource_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "read", DEMO, "note://one") == (0, "hello\\x1b[1m\n\n", "")


def test_a_resource_is_read_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    contents = {"uri": "note://one", "mimeType": "text/plain", "text": "hello\x1b[1m\n"}
    assert json.loads(run(capsys, "read", DEMO, "note://one", "--json").out) == {"contents": [contents]}


def test_binary_contents_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    shown = "[binary: note://bytes, application/octet-stream, 3 bytes]\n"
    assert run(capsys, "read", DEMO, "note://bytes") == (0, shown, "")


@pytest.mark.parametrize(
    ("uri", "contents"), [("note://bytes", b"\x00\x1b\xff"), ("note://one", b"hello\x1b[1m\n")], ids=["bytes", "text"]
)
def test_contents_are_saved_as_they_are(
    uri: str, contents: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "read", DEMO, uri, "-o", str(tmp_path / "saved")) == (0, "", "")
    assert (tmp_path / "saved").read_bytes() == contents


def test_contents_are_saved_and_shown_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "read", DEMO, "note://bytes", "-o", str(tmp_path / "saved"), "--json").out
    assert base64.b64decode(json.loads(out)["contents"][0]["blob"]) == (tmp_path / "saved").read_bytes()


def test_contents_may_be_written_to_stdout_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "read", DEMO, "note://one", "-o", "-").out == "hello\x1b[1m\n"


def test_a_place_that_cannot_be_written_is_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "read", DEMO, "note://one", "-o", "/no/such/folder/x")
    assert (code, err) == (2, "trunkline: /no/such/folder/x cannot be written: No such file or directory\n")


def test_several_contents_are_not_saved_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "read", ODD_TARGET, "odd:many", "-o", str(tmp_path / "saved"))
    assert code == 5
    assert err.endswith("trunkline: the resource has 2 contents, and -o saves only one; use --json\n")


def test_contents_that_are_no_base64_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "read", ODD_TARGET, "odd:bad", "-o", str(tmp_path / "saved"))
    assert code == 5
    assert "invalid base64" in err


def test_a_resource_that_does_not_exist_is_code_5(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "read", DEMO, "note://none")
    assert (code, out) == (5, "")
    assert "note://none" in err


# --- get and complete ------------------------------------------------------------------------------------------------


def test_a_prompt_is_filled_in(capsys: pytest.CaptureFixture[str]) -> None:
    shown = "user: greet\\x1b[1m Ann, 42\nassistant: gladly\n"
    assert run(capsys, "get", DEMO, "greet", "name=Ann", "style=42") == (0, shown, "")


def test_an_argument_of_a_prompt_may_come_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "name").write_text("Bob")
    assert "Bob, short" in run(capsys, "get", DEMO, "greet", f"name=@{tmp_path / 'name'}").out


def test_a_prompt_is_given_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    result = json.loads(run(capsys, "get", DEMO, "greet", "name=Ann", "--json", "--revision", "2025-06-18").out)
    assert result["messages"][1] == {"role": "assistant", "content": {"type": "text", "text": "gladly"}}


def test_an_argument_of_a_prompt_is_completed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "complete", DEMO, "greet", "name", "an") == (0, "ann\nanna\n", "")


def test_nothing_typed_yet_is_completed_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "complete", DEMO, "greet", "name").out == "ann\nanna\nbob\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("greet", "name", "zz"), "there are no completions of 'zz' for name"),
        (("greet", "style"), "there are no completions for style"),
    ],
)
def test_that_there_are_no_proposals_is_told(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "complete", DEMO, *words) == (0, "", f"trunkline: {told}\n")


def test_proposals_are_given_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "complete", DEMO, "greet", "name", "an", "--given", "style=long", "--json").out
    assert json.loads(out)["completion"]["values"] == ["ann", "anna"]


def test_a_variable_of_a_template_is_completed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "complete", DEMO, "note://{name}/page", "name", "x")
    assert (code, out.splitlines()[0]) == (0, "x-0\\x1b[1m")
    assert err == "trunkline: 100 of 150 completions are shown\n"
