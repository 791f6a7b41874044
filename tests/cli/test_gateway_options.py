"""Approval modes of ``trunkline serve``: what passes, what is said at start-up, and what a file may choose."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.hosted import SOURCE, Gateway, demo_entry, gateway, write_config
from tests.cli.support import Outcome, run
from tests.support import run_async
from trunkline import Client
from trunkline.extensions import TASKS
from trunkline.protocol.revisions import REVISION_NAMES

TOKEN = "a-token-of-the-test"
ASK = '[[rule]]\neffect = "ask"\nserver = "demo"\ntool = "echo"\n'


class Desk:
    """A folder with a configuration, and no rules."""

    def __init__(self, folder: Path, home: Path) -> None:
        """Write the configuration."""
        self.folder, self.home = folder, home
        home.mkdir(mode=0o700)
        self.env = {"TRUNKLINE_HOME": str(home), "TRUNKLINE_GATEWAY_TOKEN": TOKEN}
        self.config = write_config(folder / "servers.json", {"demo": demo_entry()})

    def client(self, *words: str, revision: str = "auto", **options: Any) -> Client:
        """A client that starts the gateway."""
        command = [sys.executable, "-m", "trunkline", "serve", "-c", "servers.json", *words]
        env = {"PYTHONPATH": SOURCE, **self.env}
        return Client(command, env=env, cwd=str(self.folder), revision=revision, **options)

    def serving(self, *words: str) -> AbstractContextManager[Gateway]:
        """The gateway over HTTP."""
        return gateway("-c", "servers.json", *words, cwd=self.folder, env=self.env)

    def said(self, *words: str) -> str:
        """What a gateway over stdio says before its input ends."""
        done = subprocess.run(
            [sys.executable, "-m", "trunkline", "serve", "-c", "servers.json", "--wait", "0", *words],
            input="",
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONPATH": SOURCE, **self.env},
            cwd=self.folder,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    def trail(self) -> list[dict[str, Any]]:
        """The audit trail."""
        return [json.loads(line) for line in (self.home / "audit.jsonl").read_text(encoding="utf-8").splitlines()]

    def write(self, name: str, text: str) -> str:
        """Write a file beside the configuration."""
        (self.folder / name).write_text(text, encoding="utf-8")
        return name


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    folder = tmp_path / "work"
    folder.mkdir()
    return Desk(folder, tmp_path / "home")


async def _echo(client: Client, tool: str = "demo__echo", **arguments: Any) -> tuple[bool, str]:
    result = await client.call_tool(tool, arguments or {"text": "hi"}, raise_on_error=False)
    return result.is_error, result.text


async def _over_stdio(desk: Desk, *words: str, revision: str = "auto", **options: Any) -> tuple[bool, str]:
    async with desk.client(*words, revision=revision, **options) as client:
        return await _echo(client)


async def _over_http(url: str, revision: str = "auto", token: str | None = TOKEN) -> tuple[bool, str]:
    async with Client(url, auth=token, revision=revision) as client:
        return await _echo(client)


# --- out of the box --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISION_NAMES)
def test_over_stdio_a_client_that_cannot_be_asked_gets_its_call_through(revision: str, desk: Desk) -> None:
    assert run_async(_over_stdio(desk, revision=revision)) == (False, "hi")
    begun = [each for each in desk.trail() if each["stage"] == "begun"]
    assert [(each["by"], each["rule"]) for each in begun] == [("client", "default: untrusted server")]


def test_over_loopback_a_client_that_cannot_be_asked_gets_its_call_through(desk: Desk) -> None:
    with desk.serving() as running:
        for revision in REVISION_NAMES:
            assert run_async(_over_http(running.url, revision)) == (False, "hi")
    assert {each["by"] for each in desk.trail() if each["stage"] == "begun"} == {"client"}


@pytest.mark.parametrize(
    ("words", "token"),
    [
        pytest.param(("--no-auth",), None, id="no auth"),
        pytest.param(("--allowed-host", "gw.example"), TOKEN, id="allowed host"),
        pytest.param(("--approval", "ask"), TOKEN, id="ask"),
        pytest.param(("--approval", "deny"), TOKEN, id="deny"),
    ],
)
def test_where_others_might_call_nothing_passes_unasked(words: tuple[str, ...], token: str | None, desk: Desk) -> None:
    with desk.serving(*words) as running:
        refused, text = run_async(_over_http(running.url, token=token))
    assert refused
    assert text.startswith("demo/echo needs approval (the server is not trusted, and no rule allows it), and ")
    assert [each["stage"] for each in desk.trail()] == ["denied"]


def test_a_rule_that_asks_holds_over_stdio(desk: Desk) -> None:
    policy = desk.write("rules.toml", ASK)
    refused, text = run_async(_over_stdio(desk, "--policy", policy))
    assert refused
    assert 'Allow it: trunkline grants allow demo/echo; or change the effect of that rule to "allow"' in text
    answer: Callable[..., Any] = lambda _: {"decision": "allow once"}  # noqa: E731
    assert run_async(_over_stdio(desk, "--policy", policy, elicitation=answer)) == (False, "hi")


# --- start-up --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            (),
            "approval mode client: the client connected to the gateway asks its own user; calls pass unless a rule "
            "denies or asks",
        ),
        (("--approval", "ask"), "approval mode ask: a call that no rule allows needs approval by elicitation"),
        (("--approval", "deny"), "approval mode deny: only calls that a rule or an earlier approval allows pass"),
    ],
)
def test_one_sentence_states_the_mode_and_how_to_change_it(words: tuple[str, ...], sentence: str, desk: Desk) -> None:
    (line,) = [line for line in desk.said(*words).splitlines() if "approval" in line]
    assert sentence in line
    assert line.endswith("(set it with --approval client, ask or deny)")


@pytest.mark.parametrize(
    ("words", "warned"),
    [((), False), (("--no-auth",), True), (("--allowed-host", "gw.example"), True)],
)
def test_choosing_client_where_others_can_call_is_warned_of(words: tuple[str, ...], warned: bool, desk: Desk) -> None:
    with desk.serving(*words, "--approval", "client") as running:
        said = "".join(running.said)
        assert run_async(_over_http(running.url, token=None if "--no-auth" in words else TOKEN)) == (False, "hi")
    assert "approval mode client" in said
    assert ("clients other than your own can call this gateway" in said) is warned


# --- gateway.toml ----------------------------------------------------------------------------------------------------

FILE = """\
approval = "ask"

[profile.own]
approval = "client"

[profile.strict]
approval = "deny"

[profile.same]
"""


def _modes(said: str) -> dict[str, str]:
    """The modes that were said, by profile."""
    found = re.findall(r"(?:profile (\w+): )?approval mode (\w+):", said)
    return {name or "*": mode for name, mode in found}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param((), {"*": "ask", "own": "client", "strict": "deny"}, id="file"),
        pytest.param(("--approval", "client"), {"*": "client", "strict": "deny"}, id="a flag loosens no profile"),
        pytest.param(("--approval", "deny"), {"*": "deny"}, id="no profile loosens a flag"),
        pytest.param(("--profile", "own"), {"*": "client"}, id="profile"),
        pytest.param(("--profile", "same"), {"*": "ask"}, id="profile without one"),
        pytest.param(("--profile", "own", "--approval", "ask"), {"*": "ask"}, id="profile and flag"),
    ],
)
def test_a_file_chooses_for_all_and_for_a_profile(words: tuple[str, ...], expected: dict[str, str], desk: Desk) -> None:
    said = desk.said("--gateway", desk.write("gateway.toml", FILE), *words)
    assert _modes(said) == expected


def test_the_profiles_of_a_gateway_over_http_have_their_own_modes(desk: Desk) -> None:
    with desk.serving("--gateway", desk.write("gateway.toml", FILE)) as running:
        passed = {
            name: not run_async(_over_http(f"{running.url}{name}"))[0] for name in ("", "/own", "/strict", "/same")
        }
    assert passed == {"": False, "/own": True, "/strict": False, "/same": False}


@pytest.mark.parametrize("text", ['approval = "user"', '[profile.a]\napproval = "always"', "approval = true"])
def test_a_mode_that_there_is_not_is_an_error(text: str, desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    path = desk.folder / desk.write("gateway.toml", text)
    ended = run(capsys, "serve", "-c", str(desk.config), "--gateway", str(path))
    assert ended.code == 2
    assert "approval" in ended.err


# --- status and doctor -----------------------------------------------------------------------------------------------


@pytest.fixture
def here(desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    monkeypatch.chdir(desk.folder)
    monkeypatch.setenv("TRUNKLINE_HOME", str(desk.home))
    return lambda *words: run(capsys, *words)


@pytest.mark.parametrize(
    ("file", "mode"),
    [
        (None, "client"),
        ("", "client"),
        ('http = "127.0.0.1:8080"', "client"),
        ("http = 8080", "client"),
        ('http = "0.0.0.0:8080"', "ask"),
        ('http = 8080\nallowed_host = ["gw.example"]', "ask"),
        ('http = 8080\nissuer = "https://x.example"\naudience = "a"', "ask"),
        ('allowed_host = ["gw.example"]', "client"),
        ('http = "0.0.0.0:8080"\napproval = "client"', "client"),
        ('approval = "deny"', "deny"),
    ],
)
def test_status_shows_the_mode_that_serve_would_have(
    file: str | None, mode: str, desk: Desk, here: Callable[..., Outcome]
) -> None:
    words = () if file is None else ("--gateway", desk.write("gateway.toml", file))
    shown = here("status", "-c", "servers.json", *words)
    assert shown.out.splitlines()[-1].startswith(f"trunkline serve: approval mode {mode}, ")
    assert json.loads(here("status", "-c", "servers.json", "--json", *words).out)["approval"]["mode"] == mode


@pytest.mark.parametrize(
    ("mode", "rules", "words"),
    [
        ("ask", "", "denies calls if the client cannot be asked"),
        ("deny", "", "denies calls, since no rule allows a tool"),
        ("deny", '[[rule]]\neffect = "allow"\nserver = "demo"\n', "only what rules allow"),
        ("ask", '[[rule]]\neffect = "allow"\nserver = "demo"\n', "asks by elicitation"),
        ("client", "", "the client asks its own user"),
    ],
)
def test_a_mode_and_policy_that_deny_every_call_are_reported(
    mode: str, rules: str, words: str, desk: Desk, here: Callable[..., Outcome]
) -> None:
    (desk.home / "policy.toml").write_text(rules, encoding="utf-8")
    file = desk.write("gateway.toml", f'approval = "{mode}"')
    line = here("status", "-c", "servers.json", "--gateway", file).out.splitlines()[-1]
    assert words in line
    assert len(line) <= 80


def test_status_shows_the_modes_of_profiles(desk: Desk, here: Callable[..., Outcome]) -> None:
    text = 'approval = "client"\n[profile.reader]\napproval = "deny"\n[profile.rest]\nservers = ["demo"]\n'
    words = ("status", "-c", "servers.json", "--gateway", desk.write("gateway.toml", text))
    assert here(*words).out.splitlines()[-2:] == [
        "profile reader: approval mode deny, only what rules allow",
        "profile rest: approval mode client, the client asks its own user",
    ]
    assert json.loads(here(*words, "--json").out)["approval"]["profiles"] == {"reader": "deny", "rest": "client"}


def test_a_gateway_file_that_cannot_be_read_ends_status(here: Callable[..., Outcome]) -> None:
    ended = here("status", "-c", "servers.json", "--gateway", "nope.toml")
    assert ended.code == 2
    assert "nope.toml" in ended.err


def test_doctor_says_which_mode_a_setup_has(here: Callable[..., Outcome]) -> None:
    report = json.loads(here("doctor", "-c", "servers.json", "--json").out)
    (check,) = [each for each in report["configuration"] if each["id"] == "gateway"]
    assert (check["status"], check["detail"].partition(":")[0]) == ("ok", "approval mode client")


@pytest.mark.parametrize("verb", ["serve", "call", "list"])
def test_trusted_means_one_thing(verb: str, here: Callable[..., Outcome]) -> None:
    """A file that is named lets its servers start; what a server says of its tools is another matter."""
    assert "trusted" not in here(verb, "--help").out


# --- slow calls ------------------------------------------------------------------------------------------------------

SLOW = """\
slow_calls = "hold"

[profile.impatient]
slow_calls = "poll"
"""


def test_a_file_chooses_what_slow_calls_are_for_all_and_for_a_profile(desk: Desk) -> None:
    async def names(path: str) -> set[str]:
        async with Client(path, headers={"Authorization": f"Bearer {TOKEN}"}, extensions={TASKS: None}) as client:
            return {tool.name for tool in await client.list_tools()} & {"job_status", "job_result"}

    with desk.serving("--gateway", desk.write("gateway.toml", SLOW)) as running:
        found = {path: run_async(names(f"{running.url}{path}")) for path in ("", "/impatient")}
    assert found == {"": set(), "/impatient": {"job_status", "job_result"}}


@pytest.mark.parametrize(
    ("words", "text", "path"),
    [
        pytest.param(("--task-after", "0"), "", "", id="option"),
        pytest.param((), "task_after = 0", "", id="file"),
        pytest.param((), "[profile.impatient]\ntask_after = 0", "/impatient", id="profile"),
    ],
)
def test_every_call_can_be_a_task_at_once(words: tuple[str, ...], text: str, path: str, desk: Desk) -> None:
    async def started(url: str) -> tuple[bool, str]:
        async with Client(url, headers={"Authorization": f"Bearer {TOKEN}"}, revision="2026-07-28") as client:
            task = await client.start_task("demo__echo", {"text": "hi"})
            return bool(task.id), (await task.result()).text

    options = ("--approval", "client", "--gateway", desk.write("gateway.toml", text), *words)
    with desk.serving(*options) as running:
        assert run_async(started(f"{running.url}{path}")) == (True, "hi")


def test_an_unknown_way_of_slow_calls_is_an_error(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    file = desk.write("gateway.toml", 'slow_calls = "wait"')
    ended = run(capsys, "serve", "-c", str(desk.config), "--gateway", str(desk.folder / file))
    assert (ended.code, "slow_calls" in ended.err) == (2, True)
