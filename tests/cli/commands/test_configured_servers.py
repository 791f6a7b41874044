"""The verbs with servers of a configuration: the same trust, policy, consent and audit as everywhere in the host."""

from __future__ import annotations

import json
import sys

import pytest

from tests.cli.hosted import ALLOW_ALL, SILENT, Desk, demo_entry, leaving, write_config
from tests.cli.support import DEMO, Served

TICKING = """\
import asyncio
from contextlib import asynccontextmanager
from trunkline import Server

@asynccontextmanager
async def ticking(server):
    async def tick():
        while True:
            await asyncio.sleep(0.1)
            server.changed("tick://one")
    task = asyncio.create_task(tick())
    yield None
    task.cancel()

server = Server("ticking", lifespan=ticking)

@server.resource("tick://one")
def one() -> str:
    return "tick"
"""


@pytest.fixture
def desk(desk: Desk, demo: Served) -> Desk:
    """A desk with the server that tests share, and rules that allow everything."""
    desk.configure(demo={"url": demo.url})
    desk.options = ("--policy", desk.write("rules.toml", ALLOW_ALL))
    return desk


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [("demo", "echo", "text=hi"), ("demo/echo", "text=hi")], ids=["two words", "one word"]
)
def test_a_tool_of_a_named_server_is_called(words: tuple[str, ...], desk: Desk) -> None:
    assert desk.run("call", *words) == (0, "hi\n", "")


def test_a_call_has_the_same_json_as_without_a_configuration(desk: Desk) -> None:
    plain = desk.cli("call", DEMO, "add", "a=1", "--json")
    assert desk.run("call", "demo", "add", "a=1", "--json") == plain


def test_a_resource_is_read_by_the_uri_of_its_server(desk: Desk) -> None:
    assert desk.run("read", "demo", "note://x/page") == (0, "page of x\n", "")


def test_a_prompt_is_filled_in(desk: Desk) -> None:
    assert desk.run("get", "demo", "greet", "name=ann").out.startswith("user: greet\\x1b[1m ann, short\n")


@pytest.mark.parametrize(
    ("ref", "argument", "out"),
    [("greet", "name", "ann\nanna\n"), ("note://{name}/page", "name", "a-0\\x1b[1m\n")],
    ids=["prompt", "template"],
)
def test_proposals_are_asked_for(ref: str, argument: str, out: str, desk: Desk) -> None:
    assert desk.run("complete", "demo", ref, argument, "a").out.startswith(out)


def test_one_server_is_listed_under_its_own_names(desk: Desk) -> None:
    tools = json.loads(desk.run("list", "tools", "demo", "--json").out)["tools"]
    assert {"add", "echo"} <= {tool["name"] for tool in tools}


def test_all_servers_are_listed_under_ids(desk: Desk) -> None:
    ended = desk.run("list", "resources", "--json")
    assert ended.code == 0
    assert {each["uri"] for each in json.loads(ended.out)["resources"]} == {"demo/note://one", "demo/note://bytes"}


def test_only_the_server_that_is_named_is_started(desk: Desk) -> None:
    mark = desk.folder / "started"
    desk.configure(demo=demo_entry(), other=leaving(mark))
    assert desk.run("call", "demo", "echo", "text=hi").code == 0
    assert not mark.exists()


def test_a_list_of_all_says_which_server_is_missing_and_shows_the_others(desk: Desk) -> None:
    desk.configure(demo=demo_entry(), gone={"command": "no-such-command"})
    code, out, err = desk.run("list", "prompts")
    assert (code, "demo/greet" in out) == (4, True)
    assert "trunkline: gone: command not found: no-such-command" in err


def test_a_name_of_the_users_own_configuration_needs_no_file(desk: Desk) -> None:
    desk.home.mkdir()
    write_config(desk.home / "mcp.json", {"demo": demo_entry()})
    ended = desk.cli("call", "demo", "echo", "text=hi", *desk.options)
    assert ended == (0, "hi\n", "")


def test_a_file_that_is_there_is_no_name(desk: Desk) -> None:
    desk.home.mkdir()
    write_config(desk.home / "mcp.json", {"demo": demo_entry()})
    (desk.folder / "demo").mkdir()
    (desk.folder / "demo" / "echo").write_text("#!/bin/sh\nexit 3\n")
    (desk.folder / "demo" / "echo").chmod(0o755)
    code, _, err = desk.cli("list", "tools", "demo/echo")
    assert (code, "exited with status 3" in err) == (4, True)


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        pytest.param(("list", "tools", "dmo"), 2, 'did you mean "demo"?', id="no such server"),
        pytest.param(("list", "tools", "https://x/mcp"), 2, "there is no server 'https://x/mcp'", id="a URL"),
        pytest.param(("call", "demo", "ecko"), 5, 'did you mean "echo"?', id="no such tool"),
        pytest.param(("get", "demo", "meet"), 5, "demo has no prompt 'meet'", id="no such prompt"),
        pytest.param(("read", "demo", "note://no"), 5, "not found: note://no", id="no such resource"),
        pytest.param(("complete", "demo", "meet", "x"), 5, "demo has no prompt 'meet'", id="nothing to complete"),
        pytest.param(("call", "demo"), 1, "Missing argument 'TOOL'", id="no tool"),
        pytest.param(("call", "demo/echo", "echo"), 1, "'echo' is not key=value", id="the tool twice"),
        pytest.param(("call", "demo", "fail"), 5, "the tool fail failed: no luck", id="tool error"),
        pytest.param(("call", "demo", "refuse"), 5, "the server returned an error: not", id="error answer"),
        pytest.param(("call", "demo", "hang", "--timeout", "0.5"), 7, "no answer within 0.5 s", id="too slow"),
        pytest.param(("call", "demo", "choose"), 6, "declined, there is no terminal", id="a question"),
        pytest.param(("call", "demo", "think"), 6, "a request of the server was declined", id="a model's answer"),
        pytest.param(
            ("list", "tools", "demo", "--env", "A=b"),
            1,
            "TARGET is a configured server",
            id="an option that is not for it",
        ),
    ],
)
def test_what_goes_wrong_is_a_sentence_and_a_code(words: tuple[str, ...], code: int, sentence: str, desk: Desk) -> None:
    ended = desk.run(*words)
    assert ended.code == code
    assert sentence in ended.err


@pytest.mark.parametrize(
    ("entry", "code", "sentence"),
    [
        pytest.param({"command": "no-such-command"}, 4, "bad: command not found", id="unreachable"),
        pytest.param({"url": "http://127.0.0.1:1/mcp"}, 4, "bad: ", id="nobody there"),
        pytest.param({"comand": "x"}, 2, 'did you mean "command"?', id="misconfigured"),
        pytest.param({"command": "${NO_SUCH_VARIABLE}"}, 2, "NO_SUCH_VARIABLE is not set", id="variable"),
        pytest.param({"command": "x", "disabled": True}, 2, "bad is disabled in", id="disabled"),
        pytest.param(SILENT, 7, "bad: not ready after 1 s; it has not answered: is it an MCP server", id="slow"),
    ],
)
def test_a_server_that_does_not_run_says_why(entry: dict[str, object], code: int, sentence: str, desk: Desk) -> None:
    desk.configure(bad=entry)
    ended = desk.run("list", "tools", "bad", "--timeout", "1")
    assert ended.code == code
    assert sentence in ended.err


def test_a_server_that_does_not_answer_is_named_while_it_is_waited_for(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.cli.ui.terminal._SECONDS_BEFORE_LINE", 0.05)
    desk.configure(bad={"command": "sh", "args": ["-c", "echo downloading >&2; cat >/dev/null"]})
    ended = desk.run("list", "tools", "bad", "--timeout", "1")
    assert ended.err == (
        "trunkline: no answer yet from bad; waiting up to 1 s (--timeout)\n"
        "trunkline: bad: not ready after 1 s; no answer yet; last lines of stderr:\ndownloading\n"
    )


def test_a_file_that_cannot_be_used_is_told_as_json_too(desk: Desk) -> None:
    desk.config.write_text("hello", encoding="utf-8")
    ended = desk.run("list", "tools", "--json")
    assert (ended.code, "the file is not JSON" in ended.err) == (2, True)
    assert "the file is not JSON" in ended.json["error"]["message"]


def test_a_server_that_ends_is_told_with_its_last_words(desk: Desk) -> None:
    desk.configure(demo=demo_entry())
    ended = desk.run("call", "demo", "die")
    assert (ended.code, "last words" in ended.err) == (4, True)


# --- trust -----------------------------------------------------------------------------------------------------------


def test_a_server_of_a_project_runs_only_once_it_is_approved(desk: Desk) -> None:
    write_config(desk.folder / ".mcp.json", {"demo": demo_entry()})
    words = ("call", "demo", "echo", "text=hi", *desk.options)
    refused = desk.cli(*words)
    assert (refused.code, refused.out) == (6, "")
    assert "run: trunkline trust approve demo" in refused.err
    assert desk.cli("trust", "approve", "demo", "--yes").code == 0
    assert desk.cli(*words) == (0, "hi\n", "")


def test_a_list_does_not_start_what_is_not_approved(desk: Desk) -> None:
    mark = desk.folder / "started"
    write_config(desk.folder / "mcp.json", {"demo": leaving(mark)})
    assert desk.cli("list", "tools").code == 6
    assert not mark.exists()


def test_a_login_at_a_server_of_a_project_needs_an_approval(desk: Desk) -> None:
    write_config(desk.folder / "mcp.json", {"web": {"url": "https://mcp.example.com/mcp"}})
    code, _, err = desk.cli("auth", "login", "web")
    assert (code, "run: trunkline trust approve web" in err) == (6, True)


def test_one_logs_in_at_a_server_by_its_name(desk: Desk) -> None:
    desk.configure(web={"url": "http://127.0.0.1:1/mcp"})
    code, _, err = desk.cli("auth", "login", "web", "-c", str(desk.config))
    assert (code, "Cannot connect to" in err) == (4, True)


def test_one_does_not_log_in_at_a_server_that_is_started(desk: Desk) -> None:
    desk.configure(demo=demo_entry())
    code, _, err = desk.cli("auth", "login", "demo", "-c", str(desk.config))
    assert (code, "only a server at a URL has a login" in err) == (1, True)


def test_a_project_cannot_take_the_place_of_a_program(desk: Desk) -> None:
    write_config(desk.folder / "mcp.json", {"sh": demo_entry()})
    assert desk.cli("list", "tools", "sh").code == 6


def test_a_server_that_wants_a_login_is_code_3_with_the_command_to_run(desk: Desk, guarded: Served) -> None:
    desk.configure(web={"url": guarded.url})
    called = desk.run("call", "web", "whoami")
    status = desk.cli("status", "--check", "-c", str(desk.config))
    assert (called.code, status.code) == (3, 3)
    assert "run: trunkline auth login web" in called.err
    assert "needs login" in status.out


def test_a_header_of_the_entry_lets_in_without_being_shown(
    desk: Desk, guarded: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEB_TOKEN", "right")
    desk.configure(web={"url": guarded.url, "headers": {"Authorization": "Bearer ${WEB_TOKEN}"}, "trusted": True})
    ended = desk.run("list", "tools", "web", "-v")
    assert ended.code == 0
    assert "Bearer right" not in ended.out + ended.err


# --- policy and consent ----------------------------------------------------------------------------------------------


def test_what_the_policy_denies_is_refused_with_the_rule_and_recorded(desk: Desk) -> None:
    desk.write("rules.toml", '[[rule]]\neffect = "deny"\nserver = "demo"\ntool = "echo"\n')
    code, out, err = desk.run("call", "demo", "echo", "text=hi")
    assert (code, out) == (6, "")
    assert "rules.toml:1" in err
    assert [entry["stage"] for entry in desk.trail()] == ["denied"]


def test_what_the_policy_never_allows_is_not_listed_and_that_is_said(desk: Desk) -> None:
    desk.write("rules.toml", '[[rule]]\neffect = "deny"\nserver = "demo"\ntool = "e*"\n')
    ended = desk.run("list", "tools", "demo")
    assert "echo" not in ended.out
    assert "hidden, because the policy denies it: 1 tool" in ended.err
    assert "demo/evil is left out: the scan found" in ended.err


ASK_ECHO = '[[rule]]\neffect = "ask"\nserver = "demo"\ntool = "echo"\n'


def test_a_typed_call_is_consented_to(desk: Desk) -> None:
    desk.write("rules.toml", "")
    assert desk.run("call", "demo", "echo", "text=hi")[:2] == (0, "hi\n")
    assert [(entry["stage"], entry.get("by")) for entry in desk.trail()] == [("begun", "user"), ("ended", None)]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("read", "demo", "note://one"), id="read"),
        pytest.param(("call", "demo/echo", "text=hi"), id="call by id"),
    ],
)
def test_whatever_is_typed_runs_without_rules(words: tuple[str, ...], desk: Desk) -> None:
    desk.write("rules.toml", "")
    assert desk.run(*words).code == 0


def test_a_rule_that_asks_about_a_typed_call_refuses_it_without_a_terminal(desk: Desk) -> None:
    desk.write("rules.toml", ASK_ECHO)
    code, out, err = desk.run("call", "demo", "echo", "text=hi")
    assert (code, out) == (6, "")
    assert "demo/echo needs approval (rule rules.toml:1 requires approval)" in err.replace(str(desk.folder) + "/", "")
    assert 'Allow it: trunkline grants allow demo/echo; or change the effect of that rule to "allow"' in err
    assert [entry["stage"] for entry in desk.trail()] == ["denied"]


@pytest.mark.parametrize(("typed", "code", "last"), [("yes\n", 0, "hi"), ("no\n", 6, "the user declined")])
def test_a_person_is_asked_about_the_one_call(typed: str, code: int, last: str, desk: Desk) -> None:
    desk.write("rules.toml", ASK_ECHO)
    words = ("call", "demo", "echo", "text=hi", "-c", str(desk.config), *desk.options)
    ended, screen = desk.cli.at_a_terminal(*words, script=(("Allow it?", typed),))
    assert (ended, last in screen.splitlines()[-1]) == (code, True)
    # A command that makes one call offers no answer for a session.
    assert ("[y] once" in screen, "[a] always" in screen, "this session" in screen) == (True, True, False)


def test_a_question_of_the_server_is_asked_in_the_terminal(desk: Desk) -> None:
    words = ("call", "demo", "choose", "-c", str(desk.config), *desk.options)
    code, screen = desk.cli.at_a_terminal(*words, script=(("value: ", "1\n"),))
    assert (code, screen.splitlines()[-1]) == (0, "accept celsius")


def test_a_person_is_asked_for_an_input_of_the_server_that_is_named_only(desk: Desk) -> None:
    entry = demo_entry()
    entry["env"] |= {"WORD": "${input:word}"}
    inputs = [{"id": "word", "type": "promptString"}, {"id": "other", "type": "promptString"}]
    servers = {"demo": entry, "two": {"command": "${input:other}"}}
    write_config(desk.config, servers, inputs=inputs)
    words = ("call", "demo", "variables", "name=WORD", "-c", str(desk.config), *desk.options)
    code, screen = desk.cli.at_a_terminal(*words, script=(("word: ", "secret-word\n"),))
    assert code == 0
    assert "other" not in screen


# --- eras and listening ----------------------------------------------------------------------------------------------


def test_a_revision_can_be_chosen(desk: Desk) -> None:
    ended = desk.run("call", "demo", "echo", "text=hi", "--revision", "2025-06-18", "-v")
    assert (ended.code, "demo is ready, revision 2025-06-18" in ended.err) == (0, True)


def test_a_change_is_shown_under_the_servers_own_uri(desk: Desk) -> None:
    ticking = desk.folder / "ticking.py"
    ticking.write_text(TICKING, encoding="utf-8")
    desk.configure(demo=demo_entry(args=["-m", "trunkline", "run", str(ticking)]))
    ended = desk.run("listen", "demo", "--uri", "tick://one", "--count", "1", "--for", "15")
    assert ended == (0, "a resource changed: tick://one\n", "")


def test_log_messages_are_shown_with_verbose(desk: Desk) -> None:
    ended = desk.run("call", "demo", "work", "-v")
    assert "[info] log\\x1b[1m 1\n" in ended.err


FAILING = """\
import sys
from trunkline import Server

server = Server("failing")

@server.tool
def divide(by: int) -> float:
    print("dividing", file=sys.stderr)
    return 1 / by
"""


def test_a_tool_that_raises_is_explained_as_without_a_configuration(desk: Desk) -> None:
    file = desk.folder / "failing.py"
    file.write_text(FAILING)
    entry = {"command": sys.executable, "args": ["-m", "trunkline", "run", str(file)]}
    desk.configure(failing=entry)
    code, _, err = desk.run("call", "failing", "divide", "by=0")
    assert code == 5
    assert "ZeroDivisionError: division by zero at " in err
    assert "failing.py:9, in divide: return 1 / by" in err
    assert "run the command again with -v" in err
    shown = desk.run("call", "failing", "divide", "by=0", "-v").err
    assert "[stderr] dividing\n" in shown
    assert "[stderr] ZeroDivisionError: division by zero\n" in shown


def test_the_stderr_of_several_servers_is_shown_with_their_names(desk: Desk) -> None:
    noisy = {"command": sys.executable, "args": ["-m", "trunkline", "run", str(desk.folder / "noisy.py")]}
    (desk.folder / "noisy.py").write_text("from trunkline import Server\nprint('hello')\nserver = Server('noisy')\n")
    desk.configure(demo=demo_entry(), noisy=noisy)
    assert "[stderr] noisy: hello\n" in desk.run("list", "tools", "-v").err
