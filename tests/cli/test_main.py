"""The command line as a whole: help, version, exit codes of wrong usage, what is loaded, how a failure reads."""

from __future__ import annotations

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
from tests.cli.support import DEMO, Cli, Served, command
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
        timeout=120,
        env={**environment, "PYTHONPATH": str(Path(trunkline.__file__).parents[1])},
        check=True,
    )
    return set(done.stderr.split())


def test_the_version_is_told(cli: Cli) -> None:
    assert cli("--version") == (0, f"trunkline {trunkline.__version__}\n", "")


def test_the_module_is_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["trunkline", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("trunkline", run_name="__main__")
    assert ended.value.code == 0


def test_the_help_names_each_verb_and_each_verb_has_help_with_examples(cli: Cli) -> None:
    page = cli("--help").out
    assert [verb for verb in VERBS if f"\n  {verb} " not in page] == []
    pages = {verb: cli(verb, "--help") for verb in VERBS}
    assert [verb for verb, page in pages.items() if page.code or f"  trunkline {verb} " not in page.out] == []


def test_without_a_verb_the_help_is_shown_and_the_code_is_usage(cli: Cli) -> None:
    code, out, _ = cli()
    assert code == 1
    assert "\nBuild:\n" in out


def test_half_a_verb_shows_what_can_follow(cli: Cli) -> None:
    verbs = ["audit", "auth", "config", "grants", "pins", "policy", "secret", "trust"]
    ended = {verb: cli(verb) for verb in verbs}
    assert {verb: (each.code, each.err, "\nCommands:\n" in each.out) for verb, each in ended.items()} == dict.fromkeys(
        verbs, (1, "", True)
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(("list", "x", "y"), "'prompts', 'skills', 'everything'. See trunkline list --help.", id="a list"),
        pytest.param(("import", "--jsn"), "? See trunkline import --help.", id="a question"),
        pytest.param(("call",), "'TARGET'. See trunkline call --help.", id="a sentence"),
    ],
)
def test_a_sentence_about_wrong_usage_ends_once(arguments: tuple[str, ...], told: str, cli: Cli) -> None:
    _, _, err = cli(*arguments)
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
def test_wrong_usage_is_one_sentence_and_code_1(arguments: tuple[str, ...], cli: Cli) -> None:
    code, out, err = cli(*arguments)
    assert (code, out) == (1, "")
    assert err.startswith("trunkline: ")
    assert err.count("\n") == 1


def test_each_failure_has_its_code() -> None:
    codes: dict[int, list[Exception]] = {
        1: [LocalProtocolError("x"), RuntimeError("x")],
        2: [ConfigError("x")],
        3: [AuthError("x"), AuthRequired("x", status=401), HttpError("x", status=403), HttpError("x", status=407)],
        4: [
            *(HttpError("x", status=502), LinkError("x"), ConnectionLost("x")),
            *(ServerExited("x", status=1, stderr=""), RevisionMismatch("x", ours=(), theirs=())),
        ],
        5: [
            *(InvalidParams("x"), ToolError("x"), RemoteProtocolError("x")),
            MissingCapability("x", capability="tools"),
        ],
        6: [PolicyDenied("x"), CommandError("x", Exit.DENIED)],
        7: [RequestTimeout("x", clock="idle", seconds=1)],
    }
    assert {code: [exit_for(error) for error in errors] for code, errors in codes.items()} == {
        code: [code] * len(errors) for code, errors in codes.items()
    }


def test_a_shell_can_complete_the_verbs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cli: Cli
) -> None:
    monkeypatch.setenv("_TRUNKLINE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "trunkline li")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit):
        cli()
    assert capsys.readouterr().out.split() == ["plain,list", "plain,listen"]


# --- what is loaded --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [("--help",), ("call", "--help")], ids=["help", "help of a verb"])
def test_help_loads_neither_the_client_nor_asyncio(arguments: tuple[str, ...]) -> None:
    assert loaded(*arguments).isdisjoint({"asyncio", "msgspec", "trunkline.client.client", "trunkline.server.server"})


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


def test_a_bug_is_a_sentence_without_a_traceback(raising: Callable[[BaseException], None], cli: Cli) -> None:
    raising(RuntimeError("oh\x1b[1m no"))
    sentence = "trunkline: internal error: RuntimeError: oh\\x1b[1m no (set TRUNKLINE_DEBUG=1 to see the traceback)\n"
    assert cli("x") == (1, "", sentence)


def test_an_interrupt_is_code_130(raising: Callable[[BaseException], None], cli: Cli) -> None:
    raising(KeyboardInterrupt())
    code, _, err = cli("x")
    assert (code, err.strip()) == (130, "trunkline: interrupted")


def test_an_error_without_a_message_is_shown_by_its_class_name(
    raising: Callable[[BaseException], None], cli: Cli
) -> None:
    raising(ConfigError())
    assert cli("x") == (2, "", "trunkline: ConfigError\n")


def test_a_traceback_is_shown_with_trunkline_debug(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_DEBUG", "1")
    code, _, err = cli("run", "nope.py")
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
        assert process.wait(120) == 141


def test_a_character_that_the_output_lacks_is_escaped_and_json_is_always_utf_8(demo: Served) -> None:
    env = {"PYTHONIOENCODING": "latin-1"}
    assert command("call", demo.url, "echo", "text=\u20ac", env=env)[:2] == (0, "\\u20ac\n")
    document = command("call", demo.url, "echo", "text=\U0001f600", "--json", env=env).json
    assert document["content"] == [{"type": "text", "text": "\U0001f600"}]


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
        assert process.wait(120) == 130
        assert process.stderr.read().strip() == "trunkline: interrupted"


def test_a_call_of_a_file_loads_nothing_that_it_does_not_use() -> None:
    modules = loaded("list", "tools", DEMO)
    heavy = ("aiohttp", "keyring", "lzma", "prompt_toolkit", "pydantic", "rich", "shutil", "trunkline.auth.oauth")
    assert [name for name in heavy if name in modules] == []
    assert not [name for name in modules if name.startswith(("trunkline.host.", "trunkline.devtools."))]
