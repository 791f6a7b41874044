"""``trunkline serve``: the gateway as a process, over stdio and HTTP."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import pytest

from tests.cli.hosted import ALLOW_ALL, SOURCE, Desk, Gateway, demo_entry, gateway, write_config
from tests.cli.support import Cli
from tests.support import run_async
from trunkline import Client
from trunkline.errors import HttpError, RequestFailed

TOKEN = "a-token-of-the-test"
DENY_ADD = '[[rule]]\neffect = "deny"\nserver = "demo"\ntool = "add"\n'
PROFILES = """\
rate = 600

[profile.small]
servers = ["demo"]
tools = { allow = ["add", "echo"] }
policy = "rules.toml"
"""


class Served(Desk):
    """A desk with rules and the file of a gateway, where the gateway is started."""

    def __init__(self, folder: Path, home: Path, cli: Cli | None = None) -> None:
        super().__init__(folder, home, cast("Cli", cli))
        self.env = {"TRUNKLINE_HOME": str(home), "TRUNKLINE_GATEWAY_TOKEN": ""}
        self.configure(demo=demo_entry())
        self.write("rules.toml", ALLOW_ALL)
        self.write("gateway.toml", PROFILES)

    def command(self, *words: str) -> list[str]:
        """The command that serves the configuration over stdio."""
        return [sys.executable, "-m", "trunkline", "serve", "-c", "servers.json", *words]

    def client(self, *words: str, revision: str = "auto") -> Client:
        """A client of the gateway over stdio."""
        env = {"PYTHONPATH": SOURCE, **self.env}
        return Client(self.command(*words), env=env, cwd=str(self.folder), revision=revision)

    def process(self, *words: str) -> subprocess.Popen[str]:
        """The gateway over stdio, to be spoken to line by line."""
        return subprocess.Popen(
            self.command(*words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": SOURCE, **self.env},
        )

    def serving(self, *words: str) -> AbstractContextManager[Gateway]:
        """The gateway over HTTP."""
        return gateway("-c", "servers.json", *words, cwd=self.folder, env=self.env)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> Served:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))
    return Served(folder, tmp_path / "home", cli)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with a token and a profile, which all tests that change nothing share."""
    shared = Served(tmp_path_factory.mktemp("work"), tmp_path_factory.mktemp("home"))
    words = ("--token", TOKEN, "--gateway", "gateway.toml", "--policy", "rules.toml")
    with shared.serving(*words) as running:
        yield running


# --- stdio -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_client_of_either_era_uses_the_servers_over_stdio(revision: str, desk: Served) -> None:
    async def main() -> Any:
        async with desk.client("--policy", "rules.toml", revision=revision) as client:
            assert "demo__add" in {tool.name for tool in await client.list_tools()}
            return (await client.call_tool("demo__add", {"a": 1})).data

    assert run_async(main()) == 3


def test_a_profile_is_served_over_stdio(desk: Served) -> None:
    async def main() -> set[str]:
        async with desk.client("--gateway", "gateway.toml", "--profile", "small") as client:
            return {tool.name for tool in await client.list_tools()}

    assert run_async(main()) == {"demo__add", "demo__echo"}


def test_nothing_but_the_protocol_is_on_stdout_and_the_end_of_the_input_ends_it(desk: Served) -> None:
    with desk.process("-v") as process:
        out, err = process.communicate('{"jsonrpc":"2.0","id":1,"method":"ping"}\n', timeout=120)
    assert process.returncode == 0
    assert [json.loads(line)["id"] for line in out.splitlines()] == [1]
    assert "trunkline: demo: " in err


def test_a_signal_ends_it_with_0_while_servers_still_start(desk: Served) -> None:
    started = desk.folder / "started"
    os.mkfifo(started)
    program = f"import time; open({str(started)!r}, 'w').close(); time.sleep(60)"
    desk.configure(slow={"command": sys.executable, "args": ["-c", program]})
    with desk.process("--wait", "30") as process:
        started.read_text(encoding="utf-8")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 0
        process.communicate()


_WAITING = """
from trunkline import Server

server = Server("waiting")

@server.tool
def wait(begun: str, until: str) -> str:
    with open(begun, "w") as file:
        file.write("begun")
    with open(until) as file:
        return file.read()

server.run()
"""


def _request(id: int, method: str, **params: Any) -> str:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": meta}}) + "\n"


def test_a_call_that_runs_when_a_signal_comes_is_answered_over_stdio(desk: Served) -> None:
    entry = {"command": sys.executable, "args": ["-c", _WAITING], "env": {"PYTHONPATH": SOURCE}}
    desk.configure(demo=entry)
    begun, until = str(desk.folder / "begun"), str(desk.folder / "until")
    os.mkfifo(begun)
    os.mkfifo(until)
    with desk.process("--wait", "30", "--policy", "rules.toml") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        arguments = {"begun": begun, "until": until}
        process.stdin.write(_request(1, "tools/call", name="demo__wait", arguments=arguments))
        process.stdin.flush()
        with open(begun, encoding="utf-8") as file:
            assert file.read() == "begun"
        process.send_signal(signal.SIGTERM)
        # Until the signal has been heard, lists are answered.
        refused: dict[str, Any] = {}
        while "error" not in refused:
            process.stdin.write(_request(2, "tools/list"))
            process.stdin.flush()
            refused = json.loads(process.stdout.readline())
        assert refused["error"]["message"] == "The server is stopping"
        with open(until, "w", encoding="utf-8") as file:
            file.write("finished")
        answer = json.loads(process.stdout.readline())
        assert (answer["id"], answer["result"]["content"][0]["text"]) == (1, "finished")
        assert process.wait(timeout=120) == 0
        process.communicate()


# --- HTTP: who may come in -------------------------------------------------------------------------------------------


async def _tools(url: str, token: str | None) -> set[str]:
    async with Client(url, auth=token) as client:
        return {tool.name for tool in await client.list_tools()}


def _refused(url: str, token: str | None) -> int:
    """The HTTP status with which a client is refused."""
    with pytest.raises((HttpError, RequestFailed)) as refused:
        run_async(_tools(url, token))
    status: int = getattr(refused.value, "status", 0)
    return status


def test_a_valid_token_is_accepted(served: Gateway) -> None:
    assert "demo__echo" in run_async(_tools(served.url, TOKEN))


@pytest.mark.parametrize("token", [None, "another"], ids=["none", "wrong"])
def test_requests_without_the_token_are_rejected(token: str | None, served: Gateway) -> None:
    assert _refused(served.url, token) == 401


def test_a_token_that_was_given_is_not_shown(served: Gateway) -> None:
    assert TOKEN not in "".join(served.said)


def test_a_profile_has_a_path_of_its_own(served: Gateway) -> None:
    assert run_async(_tools(f"{served.url}/small", TOKEN)) == {"demo__add", "demo__echo"}


def test_a_path_of_no_profile_does_not_serve_the_whole_catalog(served: Gateway) -> None:
    assert _refused(f"{served.url}/smal", TOKEN) == 404


def test_a_profile_asks_for_the_token_too(served: Gateway) -> None:
    assert _refused(f"{served.url}/small", None) == 401


def test_a_token_is_made_up_and_shown_once_with_an_entry_to_copy(desk: Served) -> None:
    with desk.serving() as running:
        token = running.until(r"shown only here: (\S+)")
        entry = json.loads(running.until(r"for others: (.+)"))
        assert entry["mcpServers"]["trunkline"] == {
            "url": running.url,
            "headers": {"Authorization": f"Bearer {token}"},
        }
        assert "demo__add" in run_async(_tools(running.url, token))


@pytest.mark.parametrize("source", ["environment", "file"])
def test_the_token_may_come_from_elsewhere(source: str, desk: Served) -> None:
    if source == "environment":
        desk.env["TRUNKLINE_GATEWAY_TOKEN"] = TOKEN
    words = ("--token", f"@{desk.write('token.txt', TOKEN)}") if source == "file" else ()
    with desk.serving(*words) as running:
        assert "demo__add" in run_async(_tools(running.url, TOKEN))


# --- HTTP: its life --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_without_authentication_everyone_is_served_until_a_signal_ends_it_with_0(
    number: signal.Signals, desk: Served
) -> None:
    with desk.serving("--no-auth") as running:
        assert "demo__add" in run_async(_tools(running.url, None))
        ended = running.stop(number)
    assert (ended.code, ended.out) == (0, "")


def test_sighup_reloads_the_configuration_and_keeps_what_did_not_change(desk: Served) -> None:
    bad = {"comand": "x"}
    desk.configure(demo=demo_entry(), bad=bad)
    with desk.serving("--no-auth", "-v") as running:
        running.has_said("demo: ready")
        starts = [line for line in running.said if "demo: starting" in line]
        # Both that stay move to other lines of the file.
        desk.configure(two=demo_entry(), demo=demo_entry(), bad=bad)
        running.process.send_signal(signal.SIGHUP)
        assert running.until(r"configuration reloaded: (.+)") == "added two"
        running.has_said("two: ready")
        assert [line for line in running.said if "demo: starting" in line] == starts


def test_a_configuration_that_became_wrong_changes_nothing(desk: Served) -> None:
    with desk.serving("--no-auth") as running:
        desk.config.write_text("{", encoding="utf-8")
        running.process.send_signal(signal.SIGHUP)
        assert "the file is not JSON" in running.until(r"not reloaded, configuration and policy are unchanged: (.+)")
        assert "demo__add" in run_async(_tools(running.url, None))


def test_sighup_reloads_the_policy_unless_it_became_wrong(desk: Served) -> None:
    with desk.serving("--no-auth", "--policy", "rules.toml") as running:
        desk.write("rules.toml", f"{ALLOW_ALL}\n{DENY_ADD}")
        running.process.send_signal(signal.SIGHUP)
        assert running.until(r"configuration reloaded: (.+)") == "policy changed"
        assert "demo__add" not in run_async(_tools(running.url, None))
        desk.write("rules.toml", '[[rule]]\neffect = "no"\ntool = 7\n')
        running.process.send_signal(signal.SIGHUP)
        said = running.until(r"not reloaded, configuration and policy are unchanged: (.+)")
        assert ("rules.toml:2" in said, "rules.toml:3" in said) == (True, True)
        assert "demo__add" not in run_async(_tools(running.url, None))


def test_a_server_that_cannot_be_used_is_told_once_in_the_log_of_an_application(desk: Served) -> None:
    noise = f"import sys; sys.stderr.write('{'x' * 400}\\nValueError: the cause')"
    desk.configure(
        demo=demo_entry(),
        bad={"comand": "x\x1b[2J"},
        gone={"command": "no-such-program-anywhere"},
        loud={"command": sys.executable, "args": ["-c", noise]},
    )
    with desk.serving("--no-auth") as running:
        for name, state in (("bad", "misconfigured"), ("gone", "broken"), ("loud", "broken")):
            running.has_said(f"{name}: {state}: ")
        said = list(running.said)
    told = {name: [line for line in said if line.startswith(f"trunkline: {name}:")] for name in _names(desk)}
    assert {name: len(lines) for name, lines in told.items()} == {"demo": 0, "bad": 1, "gone": 1, "loud": 1}
    assert "command not found" in told["gone"][0]
    # A long reason keeps its end.
    assert "ValueError: the cause" in told["loud"][0]
    assert all("run: trunkline doctor" in line for lines in told.values() for line in lines)
    assert not any("nothing is served" in line or "\x1b" in line for line in said)


def _names(desk: Desk) -> list[str]:
    """The names in the configuration."""
    return list(json.loads(desk.config.read_text(encoding="utf-8"))["mcpServers"])


def test_a_gateway_whose_servers_are_all_unapproved_says_that_nothing_is_served(desk: Served) -> None:
    write_config(desk.folder / ".mcp.json", {"demo": demo_entry()})
    desk.config.unlink()
    with gateway("--no-auth", cwd=desk.folder, env=desk.env) as running:
        running.has_said("nothing is served")
        said = "".join(running.said)
    assert "trunkline: demo: unapproved: " in said
    assert "run: trunkline trust approve demo" in said


def test_attempts_that_end_alike_are_told_once(desk: Served) -> None:
    desk.configure(gone={"command": "no-such-program-anywhere"})
    with desk.serving("--no-auth", "-v") as running:
        running.has_said("gone: broken: ")
        said = [line for line in running.said if line.startswith("trunkline: gone: waiting")]
    assert len(said) == 1
    assert "0.0 s" not in said[0]


def test_the_approval_mode_is_told_only_of_a_gateway_that_begins(desk: Served) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = desk.run("serve", "--http", str(taken.getsockname()[1]), "--no-auth")
    assert ended.code == 2
    assert "approval mode" not in ended.err


@pytest.mark.slow
def test_a_gateway_that_would_start_itself_refuses(desk: Served) -> None:
    command = {"command": sys.executable, "args": [*desk.command()[1:]], "cwd": str(desk.folder)}
    desk.configure({"self": {**command, "env": {"PYTHONPATH": SOURCE, **desk.env}}}, demo=demo_entry())
    with desk.serving("--no-auth", "-v") as running:
        reason = running.until(r"self: (?:waiting|broken): (.+)")
    assert "exited with status 2" in reason


# --- what makes no sense ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        pytest.param(("--token", "x"), 1, "--token needs --http", id="token over stdio"),
        pytest.param(("--no-auth",), 1, "--no-auth needs --http", id="no-auth over stdio"),
        pytest.param(("--http", "0", "--token", "x", "--no-auth"), 1, "exclude each other", id="token and none"),
        pytest.param(("--http", "0", "--token", ""), 1, "--token is empty", id="empty token"),
        pytest.param(("--http", "x"), 1, "is not [HOST:]PORT", id="no address"),
        pytest.param(("--http", "0", "--path", "mcp"), 1, "must begin with a slash", id="no path"),
        pytest.param(("--http", "0", "--issuer", "https://x"), 1, "must be given together", id="issuer alone"),
        pytest.param(("--http", "0", "--profile", "small"), 1, "--profile is only for stdio", id="profile over HTTP"),
        pytest.param(("--http", "0.0.0.0:0", "--no-auth"), 2, "leave out --no-auth", id="open to all"),
        pytest.param(("--rate", "0"), 1, "--rate", id="no rate"),
        pytest.param(("--profile", "smal"), 2, "there is no profile 'smal'", id="no file for the profile"),
        pytest.param(("--gateway", "gateway.toml", "--profile", "smal"), 2, 'did you mean "small"?', id="no profile"),
        pytest.param(("--gateway", "nope.toml"), 2, "nope.toml: cannot be read", id="no gateway file"),
        pytest.param(("--policy", "nope.toml"), 2, "nope.toml", id="no policy"),
    ],
)
def test_what_makes_no_sense_is_a_sentence_and_a_code(
    words: tuple[str, ...], code: int, sentence: str, desk: Served
) -> None:
    desk.configure()
    ended = desk.run("serve", *words)
    assert (ended.code, ended.out) == (code, "")
    assert sentence in ended.err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("rate = [", "the file is not TOML", id="not TOML"),
        pytest.param("raet = 5", 'raet: unknown key; did you mean "rate"?', id="option"),
        pytest.param("rate = 0", "rate", id="no rate"),
        pytest.param('search = "maybe"', "search", id="choice"),
        pytest.param('token = "x"', "use --token or TRUNKLINE_GATEWAY_TOKEN", id="token"),
        pytest.param("[profile.a]\nservres = []", "profile.a.servres: unknown key", id="profile"),
        pytest.param("[profile.a.tools]\nalow = []", 'did you mean "allow"?', id="filter"),
        pytest.param('[profile."a/b"]', "the name of a profile may have only letters", id="name"),
        pytest.param("profile = 3", "profile", id="no table"),
        pytest.param('[profile.a]\nservers = ["dmo"]', 'did you mean "demo"?', id="server"),
        pytest.param('http = "x:y"', "is not [HOST:]PORT", id="address"),
        pytest.param('approval = "user"', "approval", id="approval mode"),
        pytest.param('[profile.a]\napproval = "always"', "approval", id="approval mode of a profile"),
        pytest.param("approval = true", "approval", id="approval mode that is no text"),
        pytest.param('slow_calls = "wait"', "slow_calls", id="slow calls"),
    ],
)
def test_a_mistake_in_the_file_of_a_gateway_names_the_fix(text: str, sentence: str, desk: Served) -> None:
    ended = desk.run("serve", "--gateway", desk.write("gateway.toml", text))
    assert ended.code == 2
    assert sentence in ended.err


def test_without_a_configuration_nothing_is_served(desk: Served) -> None:
    desk.config.unlink()
    assert desk.cli("serve") == (2, "", "trunkline: no configuration found; give a file with -c\n")
