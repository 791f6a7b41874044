"""``trunkline chat``: through a real pseudo-terminal, through a pipe, and its parts."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import stat
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.hosted import ALLOW_ALL, SOURCE, demo_entry, write_config
from tests.cli.support import ROOT, SECONDS, Outcome, Person, Script, command
from tests.cli.ui.test_terminal import RUN
from tests.support import run_async
from trunkline import Server
from trunkline.cli.chat.completion import (
    ChatCommand,
    ChatCompleter,
    PromptInvocation,
    ResourceMention,
    TemplatePosition,
    find_mentions,
    parse_line,
    template_position,
    unquote_message,
)
from trunkline.cli.chat.loop import COMMANDS
from trunkline.host.host import Host

TURNS = """\
piece = 5

[[turn]]
when = "please add"
says = "Let me add."
calls = [{ tool = "add", arguments = { a = 1, b = 2 } }]

[[turn]]
when = "41"
says = "The sum is 41."

[[turn]]
when = "please echo"
calls = [{ tool = "echo", arguments = { text = "x" } }]

[[turn]]
when = "declined"
says = "Then not."

[[turn]]
when = "please work"
says = "Working."
calls = [{ tool = "work", arguments = { steps = 3 } }]

[[turn]]
when = "worked"
says = "It worked."

[[turn]]
when = "slow"
says = "This takes very long, and longer, and longer."
pause = 0.1
hangs = true

[[turn]]
when = "evil"
says = "red\\n[note] \\u001b[31m and \\u202e turned, [bold]no markup[/bold]"

[[turn]]
when = "break"
says = "Half of"
fails = "cut off"

[[turn]]
says = "You said <{said}>."
again = true
"""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")


class Place(NamedTuple):
    """A folder to chat in."""

    folder: Path
    config: Path
    model: str
    env: dict[str, str]

    @property
    def home(self) -> Path:
        """Where the host keeps its files."""
        return self.folder / "home"


def make_place(folder: Path) -> Place:
    """Write a configuration and a script."""
    config = write_config(folder / "servers.json", {"demo": demo_entry()})
    (folder / "script.toml").write_text(TURNS, encoding="utf-8")
    env = {
        "TRUNKLINE_HOME": str(folder / "home"),
        "PYTHONPATH": os.pathsep.join([SOURCE, str(ROOT)]),
        "PROMPT_TOOLKIT_NO_CPR": "1",
        "TERM": "xterm",
        **dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "TRUNKLINE_MODEL", "VISUAL", "EDITOR"), ""),
    }
    return Place(folder, config, f"scripted:{folder / 'script.toml'}", env)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Give a folder to chat in."""
    return make_place(tmp_path)


class Chat(NamedTuple):
    """A chat that is over: its code, and what was to be seen without escapes, and with them."""

    code: int
    screen: str
    raw: str


def chat(place: Place, *arguments: str, script: Script) -> Chat:
    """Chat in a terminal of its own, where a person follows a script."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-c", RUN, "chat", "-c", str(place.config), *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, **place.env},
        cwd=place.folder,
    ) as process:
        os.close(theirs)
        person = Person(ours, script)
        person.start()
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            code = -1
    raw = person.finish()
    os.close(ours)
    return Chat(code, _ESCAPES.sub("", raw).replace("\r", ""), raw)


def with_model(place: Place, *arguments: str, script: Script) -> Chat:
    """Chat with the scripted model."""
    return chat(place, "--model", place.model, *arguments, script=script)


def piped(place: Place, *arguments: str, stdin: str, model: bool = True) -> Outcome:
    """Chat without a terminal."""
    chosen = ("--model", place.model) if model else ()
    return command("chat", "-c", str(place.config), *chosen, *arguments, stdin=stdin, env=place.env, cwd=place.folder)


# --- a whole session in a terminal -----------------------------------------------------------------------------------

SESSION: Script = (
    ("you>", "please add\r"),
    ("Allow it?", "edit\n"),
    ('arguments as JSON: {"a":1,"b":2}', "\x7f\x7f40}\r"),
    ("Allow it?", "yes\n"),
    ("The sum is 41.", ""),
    ("you>", "please echo\r"),
    ("Allow it?", "no\n"),
    ("Then not.", ""),
    ("you>", "please work\r"),
    ("Allow it?", "yes\n"),
    ("It worked.", ""),
    ("you>", "slow\r"),
    ("This takes", "\x03"),
    ("The turn was cancelled.", ""),
    ("you>", "evil\r"),
    ("turned", ""),
    ("you>", "break\r"),
    ("Half of", ""),
    ("you>", "@de\t"),
    ("mo:", "note://o\t"),
    ("ne", " what\r"),
    ("You said <", ""),
    ("you>", '"""one\rtwo"""\r'),
    ("You said <one", ""),
    ("you>", "three\x1b\rfour\r"),
    ("You said <three", ""),
    ("you>", "/usage\r"),
    ("tokens in", ""),
    ("you>", "/exit\r"),
)


@pytest.fixture(scope="module")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A folder that one long session was held in."""
    return make_place(tmp_path_factory.mktemp("session"))


@pytest.fixture(scope="module")
def session(hosted: Place) -> Chat:
    """Hold the long session, once."""
    return with_model(hosted, script=SESSION)


def test_a_session_ends_well(session: Chat) -> None:
    assert session.code == 0


def test_servers_are_told_at_the_beginning(session: Chat) -> None:
    assert "[note] demo: ready, 20 tools, 1 prompt, 3 resources\n" in session.screen


def test_a_call_is_shown_before_it_is_asked_about(session: Chat) -> None:
    assert (
        'Let me add.\n[call] demo/add {"a":1,"b":2}\nThe model wants to call the tool add of demo.\nArguments:\n'
        in session.screen
    )


def test_an_edited_argument_is_used(session: Chat) -> None:
    assert re.search(r"\[done\] demo/add \(\d+\.\d s\)\n  \| .*\"b\":40.*\n  \| 41\n", session.screen)


def test_a_denied_call_is_shown_as_such(session: Chat) -> None:
    assert re.search(r"\[denied\] demo/echo .*\n(?:  \| .*\n)+Then not\.", session.screen)


def test_the_progress_of_a_call_is_shown(session: Chat) -> None:
    assert "[########----------------]  33% demo/work step\\x1b[1m 1" in session.screen


def test_ctrl_c_stops_the_turn_and_not_the_chat(session: Chat) -> None:
    assert re.search(r"This takes.*\^C\n\[stopped\] The turn was cancelled\.\n", session.screen)


def test_what_a_model_says_cannot_control_the_terminal(session: Chat) -> None:
    assert "\\x1b[31m and \\u202e turned, [bold]no markup[/bold]\n" in session.screen


def test_what_a_model_says_cannot_pass_for_ours(session: Chat) -> None:
    assert "red\n [note] \\x1b" in session.screen


def test_a_broken_answer_is_told_with_the_fix(session: Chat) -> None:
    assert "Half of\n[failed] The script makes scripted:script.toml fail here: cut off.\n" in session.screen


def test_a_mentioned_resource_goes_with_the_message(session: Chat) -> None:
    assert "note://one" in session.screen
    assert "hello\\x1b[1m\n@demo:note://one what>." in session.screen


@pytest.mark.parametrize("lines", ["one\ntwo", "three\nfour"], ids=["quotes", "escape-enter"])
def test_a_message_of_several_lines(lines: str, session: Chat) -> None:
    assert f"You said <{lines}>." in session.screen


def test_a_chat_is_kept_for_its_owner_alone(hosted: Place, session: Chat) -> None:
    files = list((hosted.home / "conversations").iterdir())
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600]
    assert f"[note] saved; to resume, run: trunkline chat --resume {files[0]}" in session.screen


def test_what_was_typed_is_kept_for_its_owner_alone(hosted: Place, session: Chat) -> None:
    history = hosted.home / "chat_history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert "+please add\n" in history.read_text(encoding="utf-8")


def test_what_a_model_did_is_in_the_trail(hosted: Place, session: Chat) -> None:
    trail = (hosted.home / "audit.jsonl").read_text(encoding="utf-8")
    assert '"caller":"model"' in trail


# --- more in a terminal ----------------------------------------------------------------------------------------------


def test_ctrl_c_at_an_empty_line_ends_when_repeated(place: Place) -> None:
    said = with_model(place, script=(("you>", "typed\x03\x03"), ("press Ctrl-C again", ""), ("you>", "\x03")))
    assert said.code == 0
    assert "You said" not in said.screen


def test_ctrl_d_ends(place: Place) -> None:
    assert with_model(place, script=(("you>", "\x04"),)).code == 0


def test_ctrl_c_withdraws_a_question(place: Place) -> None:
    script = (("you>", "please add\r"), ("Allow it?", "\x03"), ("was cancelled", ""), ("you>", "/exit\r"))
    said = with_model(place, script=script)
    assert said.code == 0
    assert "[stopped] demo/add was cancelled after" in said.screen


def test_a_prompt_asks_for_its_arguments_with_completion(place: Place) -> None:
    script = (
        ("you>", "/demo:g\t"),
        ("reet", "\r"),
        ("name:", "b\t"),
        ("ob", "\r"),
        ("style (optional):", "long\r"),
        ("You said <", ""),
        ("you>", "/exit\r"),
    )
    assert with_model(place, script=script).code == 0
    (kept,) = (place.home / "conversations").iterdir()
    assert "greet\\u001b[1m bob, long" in kept.read_text(encoding="utf-8")


def test_a_variable_of_a_template_is_completed_by_its_server(place: Place) -> None:
    config = place.folder / "cities.py"
    config.write_text(CITIES, encoding="utf-8")
    entry = demo_entry()
    entry["args"][-1] = str(config)
    write_config(place.config, {"cities": entry})
    script = (
        ("you>", "@ci\t"),
        ("ties:", "w\t"),
        ("eather://", "Os\t"),
        ("lo/today", " now\r"),
        ("snow in Oslo", ""),
        ("you>", "/exit\r"),
    )
    assert with_model(place, script=script).code == 0


CITIES = """\
from trunkline import Server

server = Server("cities")


@server.resource("weather://{city}/today")
def today(city: str) -> str:
    return f"snow in {city}"


@server.completion("weather://{city}/today", "city")
def cities(value: str) -> list[str]:
    return [city for city in ("Oslo", "Bern") if city.startswith(value)]
"""


def test_no_save_keeps_nothing(place: Place) -> None:
    said = with_model(place, "--no-save", script=(("you>", "hi\r"), ("You said", ""), ("you>", "/exit\r")))
    assert said.code == 0
    assert not (place.home / "conversations").exists()
    assert not (place.home / "chat_history").exists()


def test_a_terminal_without_the_extra_is_enough(place: Place) -> None:
    missing = place.folder / "missing"
    (missing / "prompt_toolkit").mkdir(parents=True)
    blocked = "raise ModuleNotFoundError('none', name='prompt_toolkit')\n"
    (missing / "prompt_toolkit" / "__init__.py").write_text(blocked, encoding="utf-8")
    place.env["PYTHONPATH"] = os.pathsep.join([str(missing), place.env["PYTHONPATH"]])
    script = (("pip install 'trunkline[cli]'", ""), ("you>", "hi\n"), ("You said <hi>", ""), ("you>", "\x03"))
    said = with_model(place, script=(*script, ("press Ctrl-C again", ""), ("you>", "\x03")))
    assert said.code == 0


def test_without_a_model_the_person_fills_in_a_form(place: Place) -> None:
    script = (
        ("Without a model, you call the tools yourself.", ""),
        ("tool>", "add numbers\r"),
        ("1", ""),
        ("tool>", "1\r"),
        ("a: ", "\n"),
        ("value is required", ""),
        ("a: ", "4\n"),
        ("b [2]: ", "\n"),
        ("[done] demo/add", ""),
        ("tool>", "/exit\r"),
    )
    said = chat(place, script=script)
    assert said.code == 0
    assert re.search(r"\[done\] demo/add .*\n6\n", said.screen)


def test_a_form_that_is_left_calls_nothing(place: Place) -> None:
    script = (("tool>", "demo/add\r"), ("a: ", ":cancel\n"), ("nothing was called", ""), ("tool>", "/exit\r"))
    assert chat(place, script=script).code == 0


def test_a_model_can_be_chosen_later(place: Place) -> None:
    script = (("tool>", f"/model {place.model}\r"), ("you>", "hi\r"), ("You said <hi>", ""), ("you>", "/exit\r"))
    assert chat(place, script=script).code == 0


# --- through a pipe --------------------------------------------------------------------------------------------------


def test_words_of_the_model_are_on_stdout_and_the_rest_is_not(place: Place) -> None:
    done = piped(place, stdin="hi\n")
    assert (done.code, done.out) == (0, "You said <hi>.\n")
    assert done.err.startswith("[note] demo: ready")


def test_without_a_terminal_consent_is_a_no(place: Place) -> None:
    done = piped(place, stdin="please add\n")
    assert "[denied] demo/add" in done.err
    assert "there is no terminal or client to ask" in done.err


def test_a_policy_allows(place: Place) -> None:
    rules = place.folder / "rules.toml"
    rules.write_text(ALLOW_ALL, encoding="utf-8")
    done = piped(place, "--policy", str(rules), stdin="please work\n")
    assert done.out == "Working.\nIt worked.\n"


def test_the_commands_answer(place: Place) -> None:
    done = piped(place, stdin="hi\n/tools add\n/servers\n/account\n/model\n/help\n/exit\nnot reached\n")
    assert done.code == 0
    assert "demo/add          a [b]      Add two numbers." in done.out
    assert "demo  ready" in done.out
    assert "of the model's window" in done.out
    assert "scripted:script.toml\n" in done.out
    assert all(f"/{name}" in done.out for name in COMMANDS)
    assert "not reached" not in done.out


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("/toosl", '[failed] unknown command /toosl; did you mean "tools"?'),
        ("/demo:gret", "[failed] there is no prompt 'demo:gret'; did you mean \"demo:greet\"?"),
        ("/demo:greet", "[failed] missing arguments: /demo:greet name=..."),
        ("/demo:greet who=me", "[failed] greet has no argument 'who'; it has: name, style"),
        ("/attach nothing", "[failed] expected a resource as @server:uri; servers: demo"),
        ("/save", "[failed] missing the file: /save FILE"),
        ("/model nobody:x", "[failed] 'nobody:x' names no known model"),
        ("@demo:note://none x", "[failed]"),
    ],
)
def test_a_failed_command_is_reported_and_the_chat_continues(typed: str, said: str, place: Place) -> None:
    done = piped(place, stdin=f"{typed}\nhi\n")
    assert said in done.err
    assert done.out.endswith("You said <hi>.\n")


def test_a_kept_chat_goes_on(place: Place) -> None:
    kept = place.folder / "talk.json"
    piped(place, "--no-save", stdin=f"first\n/save {kept}\n")
    done = piped(place, "--resume", str(kept), stdin="second\n")
    assert "resuming a conversation of 2 messages; the last one:" in done.err
    assert "  | You said <first>.\n" in done.out
    assert len(json.loads(kept.read_text(encoding="utf-8"))["messages"]) == 4


def test_a_file_that_is_no_conversation_is_not_written_over(place: Place) -> None:
    notes = place.folder / "notes.txt"
    notes.write_text("mine", encoding="utf-8")
    done = piped(place, stdin=f"hi\n/save {notes}\n")
    assert "[failed]" in done.err
    assert notes.read_text(encoding="utf-8") == "mine"


def test_clearing_a_chat_starts_an_empty_conversation(place: Place) -> None:
    done = piped(place, stdin="first\n/clear\nsecond\n")
    assert "[note] cleared" in done.err
    files = sorted((place.home / "conversations").iterdir())
    assert [len(json.loads(file.read_text(encoding="utf-8"))["messages"]) for file in files[-1:]] == [2]


def test_an_interrupt_without_a_terminal_ends_the_chat(place: Place) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "trunkline", "chat", "-c", str(place.config), "--model", place.model],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **place.env},
    ) as process:
        assert process.stderr is not None
        said = [process.stderr.readline(), process.stderr.readline()]
        process.send_signal(signal.SIGINT)
        code = process.wait(SECONDS)
        err = process.stderr.read()
    assert "answers" in said[1]
    assert (code, err) == (130, "trunkline: interrupted\n")


def test_without_a_model_tools_are_called_by_name(place: Place) -> None:
    rules = place.folder / "rules.toml"
    rules.write_text(ALLOW_ALL, encoding="utf-8")
    typed = 'add a=4\ndemo/echo {"text": "hi"}\nadd\nadd b=x\n@demo:note://one\n/demo:greet name=ann\nnothing fits\n'
    done = piped(place, "--policy", str(rules), stdin=typed, model=False)
    assert done.code == 0
    assert "no model chosen" in done.err
    assert done.out == "6\nhi\n  | hello\\x1b[1m\nuser:\n  | greet\\x1b[1m ann, short\nassistant:\n  | gladly\n"
    assert "[failed] demo/add was not called: /: " in done.err
    assert "[note] no tools match 'nothing fits'" in done.err


def test_a_missing_key_ends_with_its_code(place: Place) -> None:
    pytest.importorskip("anthropic")
    done = piped(place, "--model", "anthropic:claude-sonnet-5-5", stdin="hi\n", model=False)
    assert done.code == 3
    assert "set ANTHROPIC_API_KEY" in done.err


def test_a_model_of_a_project_is_not_used(place: Place) -> None:
    config = write_config(place.folder / "mcp.json", {}, model={"name": place.model})
    done = command("chat", stdin="hi\n", env=place.env, cwd=place.folder)
    assert "no model chosen" in done.err
    named = command("chat", "-c", str(config), stdin="hi\n", env=place.env, cwd=place.folder)
    assert named.out == "You said <hi>.\n"


# --- reading lines ---------------------------------------------------------------------------------------------------


def words_server() -> Server:
    """A server whose names are awkward."""
    server = Server("words")

    @server.prompt(name="sum up")
    def sum_up(text: str) -> str:
        return text

    @server.prompt(name="sum")
    def sum_(text: str) -> str:
        return text

    @server.resource("note://a.")
    def dotted() -> str:
        return "a"

    return server


def read_here(text: str) -> Any:
    """Read a line with that server in the catalog."""

    async def main() -> Any:
        async with Host.open({"words": words_server()}, audit=False) as host:
            return parse_line(text, host.catalog), find_mentions(text, host.catalog)

    return run_async(main())


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the host's files of these tests apart."""
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "own"))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("hello", "hello"),
        ("/help", ChatCommand("help", "")),
        ("/Tools  a b ", ChatCommand("tools", "a b")),
        ("//not a command", "/not a command"),
        ("/etc/passwd is what?", "/etc/passwd is what?"),
        ("/ alone", "/ alone"),
        ("/words:nothing x", PromptInvocation(None, "/words:nothing x")),
    ],
)
def test_a_line_is_read(text: str, meant: object) -> None:
    assert read_here(text)[0] == meant


@pytest.mark.parametrize(
    ("text", "name", "rest"),
    [("/words:sum up text=x", "sum up", "text=x"), ("/words:sum", "sum", ""), ("/words:sum text=up", "sum", "text=up")],
)
def test_a_prompt_is_found_by_its_whole_name(text: str, name: str, rest: str) -> None:
    picked = read_here(text)[0]
    assert (picked.item.name, picked.rest) == (name, rest)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see @words:note://b.", [ResourceMention("words", "note://b")]),
        ("see @words:note://a.", [ResourceMention("words", "note://a.")]),
        ("@words:x:1 and @words:x:1, @words:y", [ResourceMention("words", "x:1"), ResourceMention("words", "y")]),
        ("me@words:x and @nobody:x and @words: and @words", []),
    ],
    ids=["sentence", "listed", "twice", "none"],
)
def test_mentions_are_found(text: str, found: list[ResourceMention]) -> None:
    assert read_here(text)[1] == found


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("plain", "plain"),
        ('"""a\nb"""', "a\nb"),
        ('"""a\nb', None),
        ('"""\na\n"""', "a"),
        ('say """x"""', 'say """x"""'),
    ],
)
def test_quotes_hold_several_lines(text: str, inner: str | None) -> None:
    assert unquote_message(text) == inner


# --- proposals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "typed", "spot"),
    [
        ("a://{x}/b", "", TemplatePosition("a://")),
        ("a://{x}/b", "a:", TemplatePosition("a://")),
        ("a://{x}/b", "a://", TemplatePosition("a://", "x", "", {}, "/b", "")),
        ("a://{x}/b", "a://on", TemplatePosition("a://", "x", "on", {}, "/b", "")),
        ("a://{x}/{y}", "a://on%20e/t", TemplatePosition("a://on%20e/", "y", "t", {"x": "on e"}, "", "")),
        ("a://{+p}", "a://b/c", TemplatePosition("a://", "p", "b/c", {}, "", "+")),
        ("a://{x}", "a://b/c", None),
        ("a://{x}/b", "a://one/b", None),
        ("a://{x}/b", "c", None),
        ("a://b{?q}", "a://b", None),
        ("a://{x,y}", "a://", None),
        ("a://{x*}/b", "a://o", TemplatePosition("a://", "x", "o", {}, "/b", "")),
    ],
)
def test_a_place_in_a_template_is_found(template: str, typed: str, spot: TemplatePosition | None) -> None:
    assert template_position(template, typed) == spot


def proposing_server() -> Server:
    """A server with something to propose."""
    server = Server("shop")

    @server.prompt
    def buy(item: str, colour: str = "red") -> str:
        return item

    @server.resource("file:///a.txt")
    def a() -> str:
        return "a"

    @server.resource("file:///b c.txt")
    def b() -> str:
        return "b"

    @server.resource("item://{kind}/{name}")
    def item(kind: str, name: str) -> str:
        return name

    @server.completion("buy", "item")
    async def items(value: str) -> list[str]:
        return [each for each in ("hat", "ham", "two words", "evil\x1b[1m") if each.startswith(value)]

    @server.completion("item://{kind}/{name}", "kind")
    async def kinds(value: str) -> list[str]:
        return ["a/b", "food"]

    @server.completion("item://{kind}/{name}", "name")
    async def names(value: str, context: dict[str, str]) -> list[str]:
        return [f"of {context.get('kind')}"]

    return server


def proposed(before: str, *, policy: str | None = None) -> list[str]:
    """Give what is proposed after a text."""

    async def main() -> list[str]:
        options: Any = {} if policy is None else {"policy": policy}
        async with Host.open({"shop": proposing_server()}, audit=False, **options) as host:
            proposals = ChatCompleter(host, host.session(), commands=COMMANDS)
            return [before[: len(before) - each.replaces] + each.text for each in await proposals.line(before)]

    return run_async(main())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/s", ["/servers", "/save", "/shop:buy"]),
        ("/model oll", ["/model ollama:"]),
        ("/shop:buy ", ["/shop:buy item=", "/shop:buy colour="]),
        ("/shop:buy item=x ", ["/shop:buy item=x colour="]),
        ("see @", ["see @shop:"]),
        ("see @shop:f", ["see @shop:file:///a.txt"]),
        ("@shop:a.t", ["@shop:file:///a.txt"]),
        ("@shop:i", ["@shop:item://"]),
        ("@shop:item://", ["@shop:item://a%2Fb/", "@shop:item://food/"]),
        ("@shop:item://food/", ["@shop:item://food/of%20food"]),
        ("plain", []),
        ("me@", []),
        ("@nobody:x", []),
    ],
)
def test_what_is_proposed(before: str, after: list[str]) -> None:
    assert proposed(before) == after


def test_values_of_arguments_are_proposed_as_words() -> None:
    assert proposed("/shop:buy item=ha") == ["/shop:buy item=hat", "/shop:buy item=ham"]


def test_what_could_control_a_terminal_is_not_proposed() -> None:
    assert proposed("/shop:buy item=evil") == []


def test_what_the_policy_hides_is_not_proposed(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\neffect = "deny"\nserver = "shop"\nprompt = "*"\n', encoding="utf-8")
    assert proposed("/sh", policy=str(rules)) == []
