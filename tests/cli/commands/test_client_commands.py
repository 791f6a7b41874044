"""``list``, ``call``, ``read``, ``get`` and ``complete`` without a terminal: answers, JSON, codes."""

from __future__ import annotations

import base64
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.cli.support import DEMO, Cli, Outcome, Served, command

each_era = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])

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


Target: TypeAlias = Callable[..., Outcome]


@pytest.fixture
def demo(demo: Served, cli: Cli) -> Target:
    """Run a command on the demo server: its words, without the TARGET."""

    def run(verb: str, *words: str, stdin: str | None = None) -> Outcome:
        return cli(*verb.split(), demo.url, *words, stdin=stdin)

    return run


# --- list ------------------------------------------------------------------------------------------------------------


def test_tools_are_listed_with_their_arguments(demo: Target) -> None:
    code, out, err = demo("list tools")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["TOOL", "ARGUMENTS", "DESCRIPTION"]
    assert out.splitlines()[1].split(maxsplit=3) == ["add", "a", "[b]", "Add two numbers."]
    assert out.splitlines()[0].index("DESCRIPTION") == out.splitlines()[1].index("Add two numbers.")
    assert "Clear the \\x1b[2Jscreen and \\u202eturn round." in out


def test_tools_are_listed_as_json(demo: Target) -> None:
    code, out, err = demo("list tools", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["tools"][0]["inputSchema"]["required"] == ["a"]


def test_resources_come_with_their_templates(demo: Target) -> None:
    found = demo("list resources", "--json").json
    assert [each["uri"] for each in found["resources"]] == ["note://one", "note://bytes"]
    assert [each["uriTemplate"] for each in found["resourceTemplates"]] == ["note://{name}/page"]


def test_resources_are_listed_with_type_and_description(demo: Target) -> None:
    lines = demo("list resources").out.splitlines()
    assert lines[1].split(maxsplit=3) == ["note://one", "one", "text/plain", "The first note."]
    assert lines[3].startswith("note://{name}/page")


def test_prompts_are_listed_with_their_arguments(demo: Target) -> None:
    lines = demo("list prompts").out.splitlines()
    assert lines[1].split(maxsplit=3) == ["greet", "name", "[style]", "Greet somebody."]


def test_a_list_the_server_does_not_have_is_empty(tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "empty.py"
    file.write_text(EMPTY)
    assert cli("list", "prompts", str(file)) == (0, "", "trunkline: the server has no prompts\n")
    assert json.loads(cli("list", "prompts", str(file), "--json").out) == {"prompts": []}


def test_without_a_kind_everything_is_listed(cli: Cli) -> None:
    lines = cli("list", DEMO).out.splitlines()
    assert [line.split()[0] for line in lines if "DESCRIPTION" in line] == ["TOOL", "URI", "URI", "PROMPT"]
    lists = cli("list", "--no-input", DEMO, "--json").json
    assert list(lists) == ["tools", "resources", "resourceTemplates", "prompts", "skills"]


def test_a_long_list_has_the_types_of_the_arguments(cli: Cli) -> None:
    tools = cli("list", "tools", DEMO, "-l").out
    assert "add(a: integer, b: integer = 2)\n    Add two numbers.\necho(text: string)\n" in tools
    assert "greet(name: string, style?: string)\n    Greet somebody.\n" in cli("list", "-l", "prompts", DEMO).out


# --- describe --------------------------------------------------------------------------------------------------------


TYPED = """
from datetime import date
from typing import Annotated, Literal
from pydantic import BaseModel, Field
from trunkline import Server
server = Server("typed")

class Car(BaseModel):
    seats: int = 4

class Train(BaseModel):
    line: str

class Stop(BaseModel):
    city: Annotated[str, Field(description="Its name.")]
    next: "list[Car | Train] | None" = None

@server.tool(annotations={"readOnlyHint": True})
def travel(
    stops: Annotated[list[Stop], Field(description="Where\\x1b[1m to.")],
    day: date,
    by: Literal["car", "train"] = "train",
    tip: int | None = None,
) -> Stop:
    \"\"\"Plan a journey.

    It books nothing.
    \"\"\"
    return stops[0]
"""


def test_a_tool_is_described_with_types_defaults_and_result(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "typed.py"
    path.write_text(TYPED, encoding="utf-8")
    assert cli("describe", str(path), "travel").out == (
        'travel(stops: array of object, day: string (date), by: "car" | "train" = "train", tip?: integer | null)\n'
        "    Plan a journey.\n\n    It books nothing.\n"
        "Arguments:\n"
        "    stops: array of object\n        Where\\x1b[1m to.\n        city: string\n            Its name.\n"
        "        next?: array of object | null\n"
        "            either:\n                seats: integer = 4\n            or:\n                line: string\n"
        "    day: string (date)\n"
        '    by: "car" | "train" = "train"\n'
        "    tip?: integer | null\n"
        "Returns: object\n    city: string\n        Its name.\n    next?: array of object | null\n"
        "        either:\n            seats: integer = 4\n        or:\n            line: string\n"
        'Hints: {"readOnlyHint":true}\n'
    )


def test_prompts_and_resources_are_described_too(cli: Cli) -> None:
    assert cli("describe", DEMO, "greet").out.startswith("greet(name: string, style?: string)\n    Greet somebody.\n")
    assert cli("describe", DEMO, "note://{name}/page").out.startswith("note://{name}/page\n    A page of a note.\n")
    assert cli("describe", DEMO, "add", "--json").json["name"] == "add"


def test_a_name_that_is_not_there_is_corrected(cli: Cli) -> None:
    code, _, err = cli("describe", DEMO, "ad")
    assert (code, err) == (5, "trunkline: the server has no tool, prompt or resource 'ad'; did you mean \"add\"?\n")


# --- call ------------------------------------------------------------------------------------------------------------


def test_the_image_of_a_result_is_saved(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "image.png"
    code, out, err = cli("call", DEMO, "mixed", "--save", str(path))
    assert (code, path.read_bytes() != b"", "[image: image/png, 5 bytes]" in out) == (0, True, True)
    assert err == f"trunkline: saved image: image/png, 5 bytes in {path}\n"


def test_a_result_without_an_image_is_not_saved(tmp_path: Path, cli: Cli) -> None:
    code, _, err = cli("call", DEMO, "echo", "text=x", "--save", str(tmp_path / "image.png"))
    assert (code, "no image and no audio" in err, list(tmp_path.iterdir())) == (5, True, [])


@each_era
def test_a_tool_of_a_file_is_called(revision: str, cli: Cli) -> None:
    assert cli("call", DEMO, "add", "a=1", "b=5", "--revision", revision) == (0, "6\n", "")


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
def test_arguments_are_read_as_the_tool_wants_them(arguments: tuple[str, ...], shown: str, demo: Target) -> None:
    assert demo("call", *arguments) == (0, f"{shown}\n", "")


def test_a_value_may_come_from_a_file(tmp_path: Path, demo: Target) -> None:
    (tmp_path / "value").write_text("from a file")
    assert demo("call", "echo", f"text=@{tmp_path / 'value'}").out == "from a file\n"


def test_a_value_may_come_from_stdin(demo: Target) -> None:
    assert demo("call", "echo", "text=@-", stdin="from stdin").out == "from stdin\n"


def test_all_arguments_may_come_from_a_file(tmp_path: Path, demo: Target) -> None:
    (tmp_path / "args.json").write_text('{"a": 1, "b": 1}')
    assert demo("call", "add", "--args", f"@{tmp_path / 'args.json'}").out == "2\n"


def test_the_answer_as_json_is_the_result_on_the_wire(demo: Target) -> None:
    code, out, err = demo("call", "add", "a=1", "--json", "--revision", "2025-06-18")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"content": [{"type": "text", "text": "3"}], "structuredContent": {"result": 3}}


def test_an_answer_shows_no_raw_control_character(demo: Target) -> None:
    shown = "red \\x1b[31m, C1 \\x9b0m, turned \\u202e, bell \\x07\n\tkept\n"
    assert demo("call", "evil") == (0, shown, "")


def test_json_shows_no_raw_control_character_and_loses_none(demo: Target) -> None:
    out = demo("call", "evil", "--json").out
    assert {"\x1b", "\x9b", "\u202e", "\x07"}.isdisjoint(out)
    text = "red \x1b[31m, C1 \x9b0m, turned \u202e, bell \x07\r\n\tkept"
    assert json.loads(out)["content"] == [{"type": "text", "text": text}]


def test_content_that_is_no_text_is_named(demo: Target) -> None:
    shown = "some text\n[image: image/png, 5 bytes]\n[link: The note <note://one>]\n"
    assert demo("call", "mixed") == (0, shown, "")


def test_a_tool_that_fails_is_code_5(demo: Target) -> None:
    assert demo("call", "fail") == (5, "", "trunkline: the tool fail failed: no luck\\x1b[1m today\n")


def test_a_tool_that_fails_gives_its_result_as_json(demo: Target) -> None:
    code, out, _ = demo("call", "fail", "--json")
    assert code == 5
    assert json.loads(out)["isError"] is True


def test_an_error_answer_is_code_5(demo: Target) -> None:
    sentence = "trunkline: the server returned an error: not\\x1b[1m now (-32050)\n"
    assert demo("call", "refuse") == (5, "", sentence)


def test_an_error_answer_is_given_as_json(demo: Target) -> None:
    out = demo("call", "refuse", "--json").out
    assert json.loads(out) == {"error": {"code": -32050, "message": "not\x1b[1m now", "data": {"retry": 5}}}


def test_a_page_to_open_first_is_shown(demo: Target) -> None:
    code, _, err = demo("call", "visit_first", "--revision", "2025-11-25")
    assert code == 5
    assert err.endswith("open a page first: pay first (-32042)\n  https://example.com/pay\n")


def test_a_server_that_dies_is_code_4_with_its_last_words(cli: Cli) -> None:
    code, out, err = cli("call", DEMO, "die")
    assert (code, out) == (4, "")
    assert err.endswith("exited with status 3; last lines of stderr:\nlast words\\x1b[1m\n")


def test_a_failure_that_crossed_no_wire_is_json_without_a_code(demo: Target) -> None:
    code, out, _ = demo("call", "hang", "--timeout", "0.5", "--json")
    assert code == 7
    assert json.loads(out) == {"error": {"message": "no answer within 0.5 s"}}


# --- what is shown meanwhile -----------------------------------------------------------------------------------------


def test_a_quiet_call_shows_the_answer_alone(demo: Target) -> None:
    assert demo("call", "work") == (0, "worked\n", "")


@each_era
def test_a_verbose_call_shows_log_progress_and_stderr(revision: str, cli: Cli) -> None:
    code, out, err = cli("call", DEMO, "work", "steps=1", "-v", "--revision", revision)
    assert (code, out) == (0, "worked\n")
    assert set(err.splitlines()) >= {
        f"connected to demo 1.0.0, revision {revision}",
        "progress: 1/1 step\\x1b[1m 1",
        "[info] log\\x1b[1m 1",
        "[stderr] stderr\\x1b[1m 1",
    }
    assert "[debug]" not in err


def test_a_very_verbose_call_shows_debug_messages(demo: Target) -> None:
    assert "[debug] a detail\n[debug] trunkline: all is well\n" in demo("call", "work", "-vv").err


def test_progress_without_a_total_is_a_plain_number(demo: Target) -> None:
    assert "progress: 7 so far\n" in demo("call", "count", "-v").err


def test_a_line_of_stderr_that_never_ends_is_shown_in_pieces(cli: Cli) -> None:
    quoted = shlex.join([sys.executable, "-c", "import sys; sys.stderr.write('x' * 150_000)"])
    assert "[stderr] " + "x" * 64 * 1024 in cli("list", "tools", quoted, "-v").err


def test_a_server_that_writes_nonsense_to_stdout_is_told_of(cli: Cli) -> None:
    code, out, err = cli("read", ODD_TARGET, "odd:many")
    assert (code, out) == (0, "one\ntwo\n")
    assert "wrote something to stdout that is not a message" in err
    assert "\x1b" not in err


# --- questions without a terminal ------------------------------------------------------------------------------------


@each_era
def test_a_question_without_a_terminal_is_declined_and_the_code_says_so(revision: str, demo: Target) -> None:
    code, out, err = demo("call", "choose", "--revision", revision)
    assert (code, out) == (6, "decline None\n")
    assert err == 'trunkline: the server asks "Which unit?": declined, there is no terminal to ask in\n'


@each_era
def test_sampling_without_a_terminal_is_declined_and_the_code_says_so(revision: str, demo: Target) -> None:
    code, out, err = demo("call", "think", "--revision", revision)
    assert (code, out) == (6, "")
    first, second = err.splitlines()
    assert first.endswith(
        'asks for a model\'s answer to "user: Say\\x1b[1m hi": declined, there is no terminal to ask in'
    )
    assert second == "trunkline: the call failed because a request of the server was declined"


def test_a_declined_question_leaves_stdout_to_the_json(demo: Target) -> None:
    ended = demo("call", "choose", "--json", "--no-input")
    assert (ended.code, ended.json["structuredContent"]) == (6, {"result": "decline None"})


# --- read ------------------------------------------------------------------------------------------------------------


def test_a_resource_is_read(demo: Target) -> None:
    assert demo("read", "note://one") == (0, "hello\\x1b[1m\n\n", "")


def test_a_resource_is_read_as_json(demo: Target) -> None:
    contents = {"uri": "note://one", "mimeType": "text/plain", "text": "hello\x1b[1m\n"}
    assert demo("read", "note://one", "--json").json == {"contents": [contents]}


def test_binary_contents_are_named(demo: Target) -> None:
    shown = "[binary: note://bytes, application/octet-stream, 3 bytes]\n"
    assert demo("read", "note://bytes") == (0, shown, "")


@pytest.mark.parametrize(
    ("uri", "contents"), [("note://bytes", b"\x00\x1b\xff"), ("note://one", b"hello\x1b[1m\n")], ids=["bytes", "text"]
)
def test_contents_are_saved_as_they_are(uri: str, contents: bytes, tmp_path: Path, demo: Target) -> None:
    assert demo("read", uri, "-o", str(tmp_path / "saved")) == (0, "", "")
    assert (tmp_path / "saved").read_bytes() == contents


def test_contents_are_saved_and_shown_as_json(tmp_path: Path, demo: Target) -> None:
    out = demo("read", "note://bytes", "-o", str(tmp_path / "saved"), "--json").out
    assert base64.b64decode(json.loads(out)["contents"][0]["blob"]) == (tmp_path / "saved").read_bytes()


def test_contents_may_be_written_to_stdout_as_they_are(demo: Target) -> None:
    assert demo("read", "note://one", "-o", "-").out == "hello\x1b[1m\n"


def test_a_place_that_cannot_be_written_is_code_2(demo: Target) -> None:
    code, _, err = demo("read", "note://one", "-o", "/no/such/folder/x")
    assert (code, err) == (2, "trunkline: /no/such/folder/x cannot be written: No such file or directory\n")


def test_several_contents_are_not_saved_as_one(tmp_path: Path, cli: Cli) -> None:
    code, _, err = cli("read", ODD_TARGET, "odd:many", "-o", str(tmp_path / "saved"))
    assert code == 5
    assert err.endswith("trunkline: the resource has 2 contents, and -o saves only one; use --json\n")


def test_contents_that_are_no_base64_are_told(tmp_path: Path, cli: Cli) -> None:
    code, _, err = cli("read", ODD_TARGET, "odd:bad", "-o", str(tmp_path / "saved"))
    assert code == 5
    assert "invalid base64" in err


def test_a_resource_that_does_not_exist_is_code_5(demo: Target) -> None:
    code, out, err = demo("read", "note://none")
    assert (code, out) == (5, "")
    assert "note://none" in err


# --- get and complete ------------------------------------------------------------------------------------------------


def test_a_prompt_is_filled_in(demo: Target) -> None:
    shown = "user: greet\\x1b[1m Ann, 42\nassistant: gladly\n"
    assert demo("get", "greet", "name=Ann", "style=42") == (0, shown, "")


def test_an_argument_of_a_prompt_is_completed(demo: Target) -> None:
    assert demo("complete", "greet", "name", "an") == (0, "ann\nanna\n", "")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("greet", "name", "zz"), "there are no completions of 'zz' for name"),
        (("greet", "style"), "there are no completions for style"),
    ],
)
def test_that_there_are_no_proposals_is_told(words: tuple[str, ...], told: str, demo: Target) -> None:
    assert demo("complete", *words) == (0, "", f"trunkline: {told}\n")


def test_a_variable_of_a_template_is_completed(demo: Target) -> None:
    code, out, err = demo("complete", "note://{name}/page", "name", "x")
    assert (code, out.splitlines()[0]) == (0, "x-0\\x1b[1m")
    assert err == "trunkline: 100 of 150 completions are shown\n"


def test_a_prompt_is_given_as_json(demo: Target) -> None:
    result = demo("get", "greet", "name=Ann", "--json", "--revision", "2025-06-18").json
    assert result["messages"][1] == {"role": "assistant", "content": {"type": "text", "text": "gladly"}}


def test_proposals_are_given_as_json(demo: Target) -> None:
    out = demo("complete", "greet", "name", "an", "--given", "style=long", "--json").out
    assert json.loads(out)["completion"]["values"] == ["ann", "anna"]


def test_templates_are_listed_alone(demo: Target) -> None:
    found = demo("list templates", "--json").json
    assert list(found) == ["resourceTemplates"]
