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

from tests.cli.chatting import NO_MODELS, Place
from tests.cli.hosted import SOURCE, demo_entry, write_config
from tests.cli.support import ROOT, SECONDS, Cli, Outcome, Person, Script
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

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")


def environment(place: Place) -> dict[str, str]:
    """The environment of a chat in a process of its own."""
    return {
        **os.environ,
        "TRUNKLINE_HOME": str(place.home),
        "PYTHONPATH": os.pathsep.join([SOURCE, str(ROOT)]),
        "PROMPT_TOOLKIT_NO_CPR": "1",
        "TERM": "xterm",
        **dict.fromkeys(NO_MODELS, ""),
    }


class Chat(NamedTuple):
    """A chat that is over: its code, and what was to be seen without escapes."""

    code: int
    screen: str
    #: The screen with the codes that control a terminal.
    raw: str


def chat(place: Place, *arguments: str, script: Script, path: str = "") -> Chat:
    """Chat in a terminal of its own, where a person follows a script."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 240, 0, 0))
    env = environment(place)
    with subprocess.Popen(
        [sys.executable, "-c", RUN, "chat", "-c", str(place.config), *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**env, "PYTHONPATH": os.pathsep.join(filter(None, [path, env["PYTHONPATH"]]))},
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


def with_model(place: Place, *arguments: str, script: Script, path: str = "") -> Chat:
    """Chat with the scripted model."""
    return chat(place, "--model", place.model, *arguments, script=script, path=path)


def piped(cli: Cli, place: Place, stdin: str, *arguments: str, model: str | None = None) -> Outcome:
    """Chat without a terminal."""
    return place.run(cli, "chat", *arguments, model=model, stdin=stdin)


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
    """A folder that one long session was held in, with a server of its own."""
    return Place(tmp_path_factory.mktemp("session"), demo_entry())


@pytest.fixture(scope="module")
def session(hosted: Place) -> Chat:
    """Hold the long session, once."""
    return with_model(hosted, script=SESSION)


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(r"\[note\] demo: ready, 20 tools, 1 prompt, 3 resources\n", id="servers"),
        pytest.param(
            r'Let me add\.\n\[call\] demo/add {"a":1,"b":2}\nThe model wants to call the tool add of demo\.\n',
            id="a call before it is asked about",
        ),
        pytest.param(r"\[done\] demo/add \(\d+\.\d s\)\n  \| .*\"b\":40.*\n  \| 41\n", id="an edited argument"),
        pytest.param(r"\[denied\] demo/echo .*\n(?:  \| .*\n)+Then not\.", id="a denied call"),
        pytest.param(r"\[########----------------\]  33% demo/work step\\x1b\[1m 1", id="progress"),
        pytest.param(r"This takes.*\^C\n\[stopped\] The turn was cancelled\.\n", id="Ctrl-C stops the turn alone"),
        pytest.param(r"\\x1b\[31m and \\u202e turned, \[bold\]no markup\[/bold\]\n", id="no control of the terminal"),
        pytest.param(r"red\n \[note\] \\x1b", id="no words that pass for ours"),
        pytest.param(r"Half of\n\[failed\] The script makes scripted:script.toml fail here: cut off\.\n", id="failure"),
        pytest.param(r"hello\\x1b\[1m\n@demo:note://one what>\.", id="a mentioned resource"),
        pytest.param(r"You said <one\ntwo>\.", id="several lines in quotes"),
        pytest.param(r"You said <three\nfour>\.", id="several lines by escape and enter"),
    ],
)
def test_a_session_shows(shown: str, session: Chat) -> None:
    assert re.search(shown, session.screen)


def test_a_session_ends_well_and_is_kept_for_its_owner_alone(hosted: Place, session: Chat) -> None:
    assert session.code == 0
    (file,) = (hosted.home / "conversations").iterdir()
    history = hosted.home / "chat_history"
    assert [stat.S_IMODE(each.stat().st_mode) for each in (file, history)] == [0o600, 0o600]
    assert f"[note] saved; to resume, run: trunkline chat --resume {file}" in session.screen
    assert "+please add\n" in history.read_text(encoding="utf-8")


def test_what_a_model_did_is_in_the_trail(hosted: Place, session: Chat) -> None:
    trail = (hosted.home / "audit.jsonl").read_text(encoding="utf-8")
    assert '"caller":"model"' in trail


# --- more in a terminal ----------------------------------------------------------------------------------------------


def test_ctrl_c_at_an_empty_line_ends_when_repeated(place: Place) -> None:
    said = with_model(place, script=(("you>", "typed\x03\x03"), ("press Ctrl-C again", ""), ("you>", "\x03")))
    assert said.code == 0
    assert "You said" not in said.screen


def test_ctrl_c_withdraws_a_question_and_ctrl_d_ends(place: Place) -> None:
    script = (("you>", "please add\r"), ("Allow it?", "\x03"), ("was cancelled", ""), ("you>", "\x04"))
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


def test_a_terminal_without_the_extra_is_enough(place: Place) -> None:
    missing = place.folder / "missing"
    (missing / "prompt_toolkit").mkdir(parents=True)
    blocked = "raise ModuleNotFoundError('none', name='prompt_toolkit')\n"
    (missing / "prompt_toolkit" / "__init__.py").write_text(blocked, encoding="utf-8")
    script = (("pip install 'trunkline[cli]'", ""), ("you>", "hi\n"), ("You said <hi>", ""), ("you>", "\x03"))
    said = with_model(place, script=(*script, ("press Ctrl-C again", ""), ("you>", "\x03")), path=str(missing))
    assert said.code == 0


def test_without_a_model_the_person_fills_in_a_form_and_chooses_a_model_later(place: Place) -> None:
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
        ("tool>", "demo/add\r"),
        ("a: ", ":cancel\n"),
        ("nothing was called", ""),
        ("tool>", f"/model {place.model}\r"),
        ("you>", "hi\r"),
        ("You said <hi>", ""),
        ("you>", "/exit\r"),
    )
    said = chat(place, "--no-save", script=script)
    assert said.code == 0
    assert re.search(r"\[done\] demo/add .*\n6\n", said.screen)
    assert not (place.home / "conversations").exists()
    assert not (place.home / "chat_history").exists()


# --- through a pipe --------------------------------------------------------------------------------------------------


def test_words_of_the_model_are_on_stdout_and_the_rest_is_not(place: Place, cli: Cli) -> None:
    done = piped(cli, place, "hi\n")
    assert (done.code, done.out) == (0, "You said <hi>.\n")
    assert done.err.startswith("[note] demo: ready")


def test_without_a_terminal_consent_is_a_no_unless_a_policy_allows(place: Place, cli: Cli) -> None:
    done = piped(cli, place, "please add\n")
    assert "[denied] demo/add" in done.err
    assert "there is no terminal or client to ask" in done.err
    assert piped(cli, place, "please work\n", *place.allow()).out == "Working.\nIt worked.\n"


def test_the_commands_answer(place: Place, cli: Cli) -> None:
    done = piped(cli, place, "hi\n/tools add\n/servers\n/account\n/model\n/help\n/exit\nnot reached\n")
    assert done.code == 0
    assert "demo/add          a [b]      Add two numbers." in done.out
    assert "demo  ready" in done.out
    assert "of the model's window" in done.out
    assert "scripted:script.toml\n" in done.out
    assert all(f"/{name}" in done.out for name in COMMANDS)
    assert "not reached" not in done.out


def test_a_failed_command_is_reported_and_the_chat_continues(place: Place, cli: Cli) -> None:
    (place.folder / "notes.txt").write_text("mine", encoding="utf-8")
    answers = {
        "/toosl": 'unknown command /toosl; did you mean "tools"?',
        "/demo:gret": "there is no prompt 'demo:gret'; did you mean \"demo:greet\"?",
        "/demo:greet": "missing arguments: /demo:greet name=...",
        "/demo:greet who=me": "greet has no argument 'who'; it has: name, style",
        "/attach nothing": "expected a resource as @server:uri; servers: demo",
        "/save": "missing the file: /save FILE",
        "/model nobody:x": "'nobody:x' names no known model",
        "@demo:note://none x": "",
        f"/save {place.folder / 'notes.txt'}": "",
    }
    done = piped(cli, place, "".join(f"{typed}\n" for typed in answers) + "hi\n")
    assert [said for said in answers.values() if f"[failed] {said}" not in done.err] == []
    assert done.err.count("[failed]") == len(answers)
    assert done.out.endswith("You said <hi>.\n")
    assert (place.folder / "notes.txt").read_text(encoding="utf-8") == "mine"


def test_a_kept_chat_goes_on(place: Place, cli: Cli) -> None:
    kept = place.folder / "talk.json"
    piped(cli, place, f"first\n/save {kept}\n", "--no-save")
    done = piped(cli, place, "second\n", "--resume", str(kept))
    assert "resuming a conversation of 2 messages; the last one:" in done.err
    assert "  | You said <first>.\n" in done.out
    assert len(json.loads(kept.read_text(encoding="utf-8"))["messages"]) == 4


def test_clearing_a_chat_starts_an_empty_conversation(place: Place, cli: Cli) -> None:
    done = piped(cli, place, "first\n/clear\nsecond\n")
    assert "[note] cleared" in done.err
    last = sorted((place.home / "conversations").iterdir())[-1]
    assert len(json.loads(last.read_text(encoding="utf-8"))["messages"]) == 2


def test_an_interrupt_without_a_terminal_ends_the_chat(place: Place) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "trunkline", "chat", "-c", str(place.config), "--model", place.model],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(place),
    ) as process:
        assert process.stderr is not None
        said = [process.stderr.readline(), process.stderr.readline()]
        process.send_signal(signal.SIGINT)
        code = process.wait(SECONDS)
        err = process.stderr.read()
    assert "answers" in said[1]
    assert (code, err) == (130, "trunkline: interrupted\n")


def test_without_a_model_tools_are_called_by_name(place: Place, cli: Cli) -> None:
    typed = 'add a=4\ndemo/echo {"text": "hi"}\nadd\nadd b=x\n@demo:note://one\n/demo:greet name=ann\nnothing fits\n'
    done = piped(cli, place, typed, *place.allow(), model="")
    assert done.code == 0
    assert "no model chosen" in done.err
    assert done.out == "6\nhi\n  | hello\\x1b[1m\nuser:\n  | greet\\x1b[1m ann, short\nassistant:\n  | gladly\n"
    assert "[failed] demo/add was not called: /: " in done.err
    assert "[note] no tools match 'nothing fits'" in done.err


def test_a_missing_key_ends_with_its_code(place: Place, cli: Cli) -> None:
    pytest.importorskip("anthropic")
    done = piped(cli, place, "hi\n", model="anthropic:claude-sonnet-5-5")
    assert done.code == 3
    assert "set ANTHROPIC_API_KEY" in done.err


def test_a_model_of_a_project_is_not_used(place: Place, cli: Cli) -> None:
    place.config = write_config(place.folder / "mcp.json", {}, model={"name": place.model})
    assert "no model chosen" in cli("chat", stdin="hi\n").err
    assert piped(cli, place, "hi\n", model="").out == "You said <hi>.\n"


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


def read_lines(*lines: str) -> list[tuple[Any, list[ResourceMention]]]:
    """Read lines with that server in the catalog; return the command and the mentions of each."""

    async def main() -> list[tuple[Any, list[ResourceMention]]]:
        async with Host.open({"words": words_server()}, audit=False) as host:
            return [(parse_line(line, host.catalog), find_mentions(line, host.catalog)) for line in lines]

    return run_async(main())


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the host's files of these tests apart."""
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))


def test_a_line_is_a_message_a_command_or_a_prompt() -> None:
    meant = {
        "hello": "hello",
        "/help": ChatCommand("help", ""),
        "/Tools  a b ": ChatCommand("tools", "a b"),
        "//not a command": "/not a command",
        "/etc/passwd is what?": "/etc/passwd is what?",
        "/ alone": "/ alone",
        "/words:nothing x": PromptInvocation(None, "/words:nothing x"),
    }
    assert dict(zip(meant, (line for line, _ in read_lines(*meant)), strict=True)) == meant


def test_a_prompt_is_found_by_its_whole_name() -> None:
    lines = read_lines("/words:sum up text=x", "/words:sum", "/words:sum text=up")
    assert [(line.item.name, line.rest) for line, _ in lines] == [("sum up", "text=x"), ("sum", ""), ("sum", "text=up")]


def test_mentions_are_found() -> None:
    mentions = {
        "see @words:note://b.": ["note://b"],
        "a listed name that ends with a dot: @words:note://a.": ["note://a."],
        "@words:x:1 and @words:x:1, @words:y": ["x:1", "y"],
        "me@words:x and @nobody:x and @words: and @words": [],
    }
    lines = read_lines(*mentions)
    assert [found for _, found in lines] == [
        [ResourceMention("words", uri) for uri in uris] for uris in mentions.values()
    ]


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


def proposed(*lines: str, policy: str | None = None) -> dict[str, list[str]]:
    """Return what is proposed at the end of each line."""

    async def main() -> dict[str, list[str]]:
        options: Any = {} if policy is None else {"policy": policy}
        async with Host.open({"shop": proposing_server()}, audit=False, **options) as host:
            completer = ChatCompleter(host, host.session(), commands=COMMANDS)
            return {
                line: [line[: len(line) - each.replaces] + each.text for each in await completer.line(line)]
                for line in lines
            }

    return run_async(main())


def test_what_is_proposed() -> None:
    proposals = {
        "/s": ["/servers", "/save", "/shop:buy"],
        "/model oll": ["/model ollama:"],
        "/shop:buy ": ["/shop:buy item=", "/shop:buy colour="],
        "/shop:buy item=x ": ["/shop:buy item=x colour="],
        "/shop:buy item=ha": ["/shop:buy item=hat", "/shop:buy item=ham"],
        # What could control a terminal is not proposed.
        "/shop:buy item=evil": [],
        "see @": ["see @shop:"],
        "see @shop:f": ["see @shop:file:///a.txt"],
        "@shop:a.t": ["@shop:file:///a.txt"],
        "@shop:i": ["@shop:item://"],
        "@shop:item://": ["@shop:item://a%2Fb/", "@shop:item://food/"],
        "@shop:item://food/": ["@shop:item://food/of%20food"],
        "plain": [],
        "me@": [],
        "@nobody:x": [],
    }
    assert proposed(*proposals) == proposals


def test_what_the_policy_hides_is_not_proposed(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\neffect = "deny"\nserver = "shop"\nprompt = "*"\n', encoding="utf-8")
    assert proposed("/sh", policy=str(rules)) == {"/sh": []}
