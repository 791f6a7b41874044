"""How every reference server starts: its options, and its error messages."""

from __future__ import annotations

from typing import Any

import click
import pytest

from trunkline import ConfigError, Server
from trunkline.server import ListenAddress
from trunkline_servers.cli import CommandOptions, _tokens, run_command, with_command_options

TOKEN = "a-token-of-more-than-sixteen"


def made(seen: list[CommandOptions]) -> click.Command:
    @click.command("trunkline-server-sample")
    @click.argument("word", required=False)
    @with_command_options
    def command(word: str | None, *, serving: CommandOptions) -> None:
        """Serve a sample."""
        if word == "broken":
            raise ConfigError("The word must not be broken: say whole")
        if word == "run":
            serving.run(Server("sample"))
        seen.append(serving)

    return command


def ended(*arguments: str) -> tuple[int, list[CommandOptions]]:
    seen: list[CommandOptions] = []
    with pytest.raises(SystemExit) as stop:
        run_command(made(seen), list(arguments))
    assert isinstance(stop.value.code, int)
    return stop.value.code, seen


def test_without_options_it_serves_stdio() -> None:
    assert ended() == (0, [CommandOptions()])


def test_the_options_of_http_are_read() -> None:
    code, (serving,) = ended(
        "--http", "0.0.0.0:9000", "--path", "/x", "--allowed-host", "a.example", "--tokens-env", "T"
    )

    assert (code, serving) == (
        0,
        CommandOptions(address=ListenAddress("0.0.0.0", 9000), path="/x", allowed_hosts=("a.example",), tokens_env="T"),
    )


def test_http_alone_leaves_the_address_to_the_server() -> None:
    assert ended("--http") == (0, [CommandOptions(address=ListenAddress())])


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        pytest.param(["--http", "nowhere"], 1, "'nowhere' is not [HOST:]PORT", id="no address"),
        pytest.param(["--no-such"], 1, "No such option", id="unknown option"),
        pytest.param(["run", "--path", "/x"], 1, "--path is for HTTP: give --http as well.", id="http option on stdio"),
        pytest.param(["run", "--tokens-env", "X"], 1, "--tokens-env is for HTTP", id="auth on stdio"),
        pytest.param(["run", "--audience", "X"], 1, "--audience is for HTTP", id="audience on stdio"),
        pytest.param(["run", "--write-scope", "w"], 1, "--write-scope is for HTTP", id="scope on stdio"),
        pytest.param(["--http", "1", "--write-scope", "a b"], 1, "'a b' is not a scope", id="two scopes"),
        pytest.param(["--http", "1", "--read-scope", 'a"b'], 1, "is not a scope", id="no scope"),
        pytest.param(
            ["run", "--http", "0", "--write-scope", "w"], 2, "go with --tokens-env", id="scope without tokens"
        ),
        pytest.param(["broken"], 2, "The word must not be broken: say whole", id="a wrong setting"),
        pytest.param(["run", "--http", "0.0.0.0:0"], 2, "with --tokens-env NAME or --issuer URL", id="open to others"),
        pytest.param(["run", "--http", "[::]:0"], 2, "others can reach it", id="open to others over IPv6"),
        pytest.param(["--log-level", "x"], 1, "'error'. See trunkline-server-sample --help.", id="a list of values"),
        pytest.param(["--lo", "x"], 1, "--help.", id="a part of a name"),
        pytest.param(["--pth", "x"], 1, "'--path'? See trunkline-server-sample", id="another name is meant"),
        pytest.param(["--certfil", "x"], 1, "'--keyfile'?) See trunkline-server", id="other names are meant"),
    ],
)
def test_an_error_is_one_sentence_and_an_exit_code(
    arguments: list[str], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(*arguments)[0] == code

    said = capsys.readouterr().err
    assert sentence in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("bounds", "sentence"),
    [
        pytest.param(click.IntRange(1), "'few' is not a whole number. See rows --help.", id="a whole number"),
        pytest.param(click.FloatRange(1), "'few' is not a number. See rows --help.", id="any number"),
    ],
)
def test_a_value_that_is_not_a_number_is_reported_in_plain_words(
    bounds: click.IntRange | click.FloatRange, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = click.Command("rows", params=[click.Option(["--most"], type=bounds)])
    with pytest.raises(SystemExit):
        run_command(command, ["--most", "few"])

    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    "option", ["path", "certfile", "allowed-host", "tokens-env", "issuer", "audience", "read-scope"]
)
def test_an_empty_option_is_not_treated_as_absent(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("--http", "8000", f"--{option}", "") == (1, [])
    assert f"--{option} is empty" in capsys.readouterr().err


# --- who may call ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "tokens"),
    [
        pytest.param(TOKEN, {TOKEN: "user"}, id="one"),
        pytest.param(f"alice:{TOKEN}1, bob:{TOKEN}2", {f"{TOKEN}1": "alice", f"{TOKEN}2": "bob"}, id="names"),
        pytest.param(f"{TOKEN}1,{TOKEN}2", {f"{TOKEN}1": "user", f"{TOKEN}2": "user-2"}, id="no-names"),
        pytest.param(
            f"ann:{TOKEN}1 files:read files:write, ben:{TOKEN}2",
            {f"{TOKEN}1": {"subject": "ann", "scopes": ("files:read", "files:write")}, f"{TOKEN}2": "ben"},
            id="scopes",
        ),
    ],
)
def test_the_tokens_of_a_variable_belong_to_different_users(
    variable: str, tokens: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENS", variable)
    assert _tokens("TOKENS") == tokens


@pytest.mark.parametrize(
    ("serving", "sentence"),
    [
        pytest.param(CommandOptions(tokens_env="T_UNSET"), "T_UNSET holds no token", id="variable not set"),
        pytest.param(CommandOptions(tokens_env="T_SHORT"), "fewer than 16 characters", id="token to guess"),
        pytest.param(CommandOptions(tokens_env="T_TWICE"), "Token 2 .* occurs twice", id="token of two people"),
        pytest.param(
            CommandOptions(tokens_env="T_NAMELESS"), "Token 1 .* has an empty name", id="token without a name"
        ),
        pytest.param(
            CommandOptions(tokens_env="T_SPACE"), "Token 1 .* no name, or a name with a space", id="half a name"
        ),
        pytest.param(CommandOptions(tokens_env="T_SCOPE"), "Token 1 .* has a scope with a character", id="no scope"),
        pytest.param(CommandOptions(write_scope="w"), "go with --tokens-env or --issuer", id="scope without tokens"),
        pytest.param(CommandOptions(tokens_env="T_SHORT", issuer="https://a.example"), "exclude each other", id="both"),
        pytest.param(CommandOptions(issuer="https://a.example"), "needs --audience", id="no audience"),
        pytest.param(CommandOptions(audience="https://me.example"), "--audience needs --issuer", id="no issuer"),
    ],
)
def test_settings_of_auth_that_make_no_sense_are_refused(
    serving: CommandOptions, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("T_SHORT", "short")
    monkeypatch.setenv("T_TWICE", f"ann:{TOKEN},ben:{TOKEN}")
    monkeypatch.setenv("T_NAMELESS", f":{TOKEN}")
    monkeypatch.setenv("T_SPACE", f"Annabelle-Christina Smith:{TOKEN}")
    monkeypatch.setenv("T_SCOPE", f'ann:{TOKEN} "read"')
    with pytest.raises(ConfigError, match=sentence):
        serving.auth()


def test_without_options_there_is_no_authentication() -> None:
    assert CommandOptions().auth() is None
