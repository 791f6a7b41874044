"""The command line as a whole: help, version, exit codes of wrong usage, what is loaded, how a failure reads."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

import trunkline
from tests.cli.support import DEMO, command, run
from trunkline.cli import main as main_module
from trunkline.cli.exit_codes import CommandError, Exit, exit_for
from trunkline.errors import (
    AuthError,
    AuthRequired,
    ConfigError,
    ConnectionLost,
    HttpError,
    InvalidParams,
    LinkError,
    LocalProtocolError,
    MissingCapability,
    PolicyDenied,
    RemoteProtocolError,
    RequestTimeout,
    RevisionMismatch,
    ServerExited,
    ToolError,
)

VERBS = (
    *("run", "serve", "list", "call", "read", "get", "complete", "listen"),
    *("status", "config", "trust", "policy", "grants", "audit", "auth"),
)

LOADED = """
import sys
from trunkline.cli.main import main
code = main(sys.argv[1:])
sys.stderr.write(" ".join(sys.modules))
sys.exit(code)
"""


def loaded(*arguments: str) -> set[str]:
    """The modules that a command has loaded when it is over."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("COV", "PYTEST"))}
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments],
        input="",
        capture_output=True,
        text=True,
        timeout=30,
        env={**environment, "PYTHONPATH": str(Path(trunkline.__file__).parents[1])},
        check=True,
    )
    return set(done.stderr.split())


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"trunkline {trunkline.__version__}\n", "")


def test_the_module_is_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["trunkline", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("trunkline", run_name="__main__")
    assert ended.value.code == 0


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_names_each_verb(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"\n  {verb} " in run(capsys, "--help").out


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_help_with_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, verb, "--help")
    assert code == 0
    assert f"  trunkline {verb} " in out


def test_without_a_verb_the_help_is_shown_and_the_code_is_usage(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys)
    assert code == 1
    assert "\nBuild:\n" in out


@pytest.mark.parametrize("verb", ["audit", "auth", "config", "grants", "pins", "policy", "secret", "trust"])
def test_half_a_verb_shows_what_can_follow(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, verb)
    assert (code, err) == (1, "")
    assert "\nCommands:\n" in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(("list",), "resources, templates, prompts, skills. See trunkline list --help.", id="a list"),
        pytest.param(("import", "--jsn"), "? See trunkline import --help.", id="a question"),
        pytest.param(("call",), "'TARGET'. See trunkline call --help.", id="a sentence"),
    ],
)
def test_a_sentence_about_wrong_usage_ends_once(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, err = run(capsys, *arguments)
    assert err.endswith(f"{told}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("bogus",), id="no such verb"),
        pytest.param(("--bogus",), id="no such option"),
        pytest.param(("run",), id="no file"),
        pytest.param(("list", "things", DEMO), id="no such kind"),
        pytest.param(("call", DEMO), id="no tool"),
        pytest.param(("call", DEMO, "add", "a"), id="not key=value"),
        pytest.param(("call", DEMO, "add", "=1"), id="no key"),
        pytest.param(("call", DEMO, "add", "a=1", "a=2"), id="a key twice"),
        pytest.param(("call", DEMO, "add", "--args", "{"), id="args no JSON"),
        pytest.param(("call", DEMO, "add", "--args", "[1]"), id="args no object"),
        pytest.param(("list", "tools", DEMO, "--revision", "1999"), id="no such revision"),
        pytest.param(("list", "tools", DEMO, "--timeout", "0"), id="no time"),
        pytest.param(("list", "tools", DEMO, "--timeout", "inf"), id="endless time"),
        pytest.param(("list", "tools", DEMO, "--env", "=x"), id="a variable without a name"),
        pytest.param(("list", "tools", DEMO, "--env", "NO_SUCH_VARIABLE"), id="a variable that is not there"),
        pytest.param(("list", "tools", DEMO, "--cwd", "/no/such/folder"), id="no such folder"),
        pytest.param(("read", DEMO, "note://one", "--json", "-o", "-"), id="two outputs"),
        pytest.param(("listen", DEMO, "--count", "0"), id="no changes"),
    ],
)
def test_wrong_usage_is_one_sentence_and_code_1(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (1, "")
    assert err.startswith("trunkline: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(ConfigError("x"), 2, id="config"),
        pytest.param(AuthError("x"), 3, id="auth"),
        pytest.param(AuthRequired("x", status=401), 3, id="unauthorized"),
        pytest.param(HttpError("x", status=403), 3, id="forbidden"),
        pytest.param(HttpError("x", status=407), 3, id="proxy"),
        pytest.param(HttpError("x", status=502), 4, id="http"),
        pytest.param(LinkError("x"), 4, id="link"),
        pytest.param(ConnectionLost("x"), 4, id="lost"),
        pytest.param(ServerExited("x", status=1, stderr=""), 4, id="exited"),
        pytest.param(RevisionMismatch("x", ours=(), theirs=()), 4, id="revision"),
        pytest.param(InvalidParams("x"), 5, id="error answer"),
        pytest.param(ToolError("x"), 5, id="tool"),
        pytest.param(RemoteProtocolError("x"), 5, id="nonsense"),
        pytest.param(MissingCapability("x", capability="tools"), 5, id="capability"),
        pytest.param(PolicyDenied("x"), 6, id="policy"),
        pytest.param(RequestTimeout("x", clock="idle", seconds=1), 7, id="timeout"),
        pytest.param(LocalProtocolError("x"), 1, id="local"),
        pytest.param(CommandError("x", Exit.DENIED), 6, id="failure"),
        pytest.param(RuntimeError("x"), 1, id="bug"),
    ],
)
def test_each_failure_has_its_code(error: Exception, code: int) -> None:
    assert exit_for(error) == code


def test_a_shell_can_complete_the_verbs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("_TRUNKLINE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "trunkline li")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit):
        run(capsys)
    assert capsys.readouterr().out.split() == ["plain,list", "plain,listen"]


# --- what is loaded --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_help_and_version_load_neither_the_client_nor_asyncio(argument: str) -> None:
    names = loaded(argument)
    assert names.isdisjoint({"asyncio", "msgspec", "trunkline.client.client", "trunkline.server.server"})
    assert not any(name.startswith("trunkline.cli.cmd_") for name in names)


def test_a_verbs_help_does_not_load_the_client() -> None:
    assert loaded("call", "--help").isdisjoint({"asyncio", "msgspec", "trunkline.client.client"})


def test_run_does_not_load_the_client() -> None:
    names = loaded("run", DEMO)
    assert "trunkline.server.server" in names
    assert not any(name.startswith("trunkline.client") for name in names)


# --- how a command ends ----------------------------------------------------------------------------------------------


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Makes the command line one whose only command raises something."""

    def prepare(error: BaseException) -> None:
        @click.command()
        @click.argument("anything")
        def command(anything: str) -> None:
            raise error

        monkeypatch.setattr(main_module, "_trunkline", command)

    return prepare


def test_a_bug_is_a_sentence_without_a_traceback(
    raising: Callable[[BaseException], None], capsys: pytest.CaptureFixture[str]
) -> None:
    raising(RuntimeError("oh\x1b[1m no"))
    sentence = "trunkline: internal error: RuntimeError: oh\\x1b[1m no (set TRUNKLINE_DEBUG=1 to see the traceback)\n"
    assert run(capsys, "x") == (1, "", sentence)


def test_an_interrupt_is_code_130(raising: Callable[[BaseException], None], capsys: pytest.CaptureFixture[str]) -> None:
    raising(KeyboardInterrupt())
    code, _, err = run(capsys, "x")
    assert (code, err.strip()) == (130, "trunkline: interrupted")


def test_an_error_without_a_message_is_shown_by_its_class_name(
    raising: Callable[[BaseException], None], capsys: pytest.CaptureFixture[str]
) -> None:
    raising(ConfigError())
    assert run(capsys, "x") == (2, "", "trunkline: ConfigError\n")


def test_a_traceback_is_shown_with_trunkline_debug(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUNKLINE_DEBUG", "1")
    code, _, err = run(capsys, "run", "nope.py")
    assert code == 2
    assert "Traceback" in err


def test_a_reader_that_leaves_is_no_error_to_tell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    with open(write_fd, "w", encoding="utf-8") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        assert main_module.main(["list", "tools", DEMO]) == 141
    assert capsys.readouterr() == ("", "")


def test_a_process_whose_reader_leaves_ends_quietly() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "trunkline", "list", "tools", DEMO], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(20) == 141


def test_a_character_that_the_output_lacks_is_escaped() -> None:
    code, out, _ = command("call", DEMO, "echo", "text=\u20ac", env={"PYTHONIOENCODING": "latin-1"})
    assert (code, out) == (0, "\\u20ac\n")


def test_json_is_always_utf_8() -> None:
    _, out, _ = command("call", DEMO, "echo", "text=\U0001f600", "--json", env={"PYTHONIOENCODING": "latin-1"})
    assert json.loads(out)["content"] == [{"type": "text", "text": "\U0001f600"}]


def test_an_interrupt_ends_with_code_130() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "trunkline", "call", DEMO, "hang", "-v"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("connected to demo 1.0.0, revision ")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr.read().strip() == "trunkline: interrupted"


def test_a_call_of_a_file_loads_nothing_that_it_does_not_use() -> None:
    modules = loaded("list", "tools", DEMO)
    heavy = ("aiohttp", "keyring", "lzma", "prompt_toolkit", "pydantic", "rich", "shutil", "trunkline.auth.oauth")
    assert [name for name in heavy if name in modules] == []
    assert not [name for name in modules if name.startswith(("trunkline.host.", "trunkline.devtools."))]
