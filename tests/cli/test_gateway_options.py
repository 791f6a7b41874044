"""Approval modes of ``trunkline serve``: what passes, what is said at start-up, and what a file may choose."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tests.cli.hosted import SOURCE, Desk, Gateway, demo_entry, gateway
from tests.support import run_async
from trunkline import Client
from trunkline.cli.gateway_runner import GatewaySettings, print_gateway_start
from trunkline.extensions import TASKS
from trunkline.protocol.revisions import REVISION_NAMES

TOKEN = "a-token-of-the-test"
ASK = '[[rule]]\neffect = "ask"\nserver = "demo"\ntool = "echo"\n'


@pytest.fixture
def desk(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A desk with one server and no rules."""
    desk.home.mkdir(mode=0o700)
    monkeypatch.setenv("TRUNKLINE_GATEWAY_TOKEN", TOKEN)
    desk.configure(demo=demo_entry())
    return desk


def serving(desk: Desk, *words: str) -> AbstractContextManager[Gateway]:
    """The gateway over HTTP."""
    return gateway("-c", "servers.json", *words, cwd=desk.folder)


def said(desk: Desk, monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """What a gateway with these options says when it begins."""

    def begin(settings: GatewaySettings) -> None:
        print_gateway_start("http://127.0.0.1:1/mcp", settings.options.get("token"), settings.options)

    monkeypatch.setattr("trunkline.cli.gateway_runner.run_gateway", begin)
    ended = desk.run("serve", *words)
    assert ended.code == 0, ended.err
    return ended.err


async def _echo(client: Client) -> tuple[bool, str]:
    result = await client.call_tool("demo__echo", {"text": "hi"}, raise_on_error=False)
    return result.is_error, result.text


async def _over_stdio(desk: Desk, *words: str, revision: str = "auto", **options: Any) -> tuple[bool, str]:
    command = [sys.executable, "-m", "trunkline", "serve", "-c", "servers.json", *words]
    env = {"PYTHONPATH": SOURCE, "TRUNKLINE_HOME": str(desk.home)}
    async with Client(command, env=env, cwd=str(desk.folder), revision=revision, **options) as client:
        return await _echo(client)


async def _over_http(url: str, revision: str = "auto", token: str | None = TOKEN) -> tuple[bool, str]:
    async with Client(url, auth=token, revision=revision) as client:
        return await _echo(client)


# --- out of the box --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_over_stdio_a_client_that_cannot_be_asked_gets_its_call_through(revision: str, desk: Desk) -> None:
    assert run_async(_over_stdio(desk, revision=revision)) == (False, "hi")
    begun = [each for each in desk.trail() if each["stage"] == "begun"]
    assert [(each["by"], each["rule"]) for each in begun] == [("client", "default: untrusted server")]


def test_over_loopback_a_client_that_cannot_be_asked_gets_its_call_through(desk: Desk) -> None:
    with serving(desk) as running:
        answers = [run_async(_over_http(running.url, revision)) for revision in REVISION_NAMES]
    assert answers == [(False, "hi")] * len(REVISION_NAMES)
    assert {each["by"] for each in desk.trail() if each["stage"] == "begun"} == {"client"}


def test_where_others_might_call_nothing_passes_unasked(desk: Desk) -> None:
    with serving(desk, "--no-auth") as running:
        refused, text = run_async(_over_http(running.url, token=None))
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
def test_one_sentence_states_the_mode_and_how_to_change_it(
    words: tuple[str, ...], sentence: str, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    (line,) = [line for line in said(desk, monkeypatch, *words).splitlines() if "approval" in line]
    assert sentence in line
    assert line.endswith("(set it with --approval client, ask or deny)")


@pytest.mark.parametrize(
    ("words", "warned"),
    [((), False), (("--no-auth",), True), (("--allowed-host", "gw.example"), True)],
)
def test_choosing_client_where_others_can_call_is_warned_of(
    words: tuple[str, ...], warned: bool, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = said(desk, monkeypatch, "--http", "0", *words, "--approval", "client")
    assert "approval mode client" in text
    assert ("clients other than your own can call this gateway" in text) is warned


# --- gateway.toml ----------------------------------------------------------------------------------------------------

FILE = """\
approval = "ask"

[profile.own]
approval = "client"

[profile.strict]
approval = "deny"

[profile.same]
"""


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
def test_a_file_chooses_for_all_and_for_a_profile(
    words: tuple[str, ...], expected: dict[str, str], desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = said(desk, monkeypatch, "--gateway", desk.write("gateway.toml", FILE), *words)
    modes = re.findall(r"(?:profile (\w+): )?approval mode (\w+):", text)
    assert {name or "*": mode for name, mode in modes} == expected


def test_the_profiles_of_a_gateway_over_http_have_their_own_modes(desk: Desk) -> None:
    with serving(desk, "--gateway", desk.write("gateway.toml", FILE)) as running:
        passed = {
            name: not run_async(_over_http(f"{running.url}{name}"))[0] for name in ("", "/own", "/strict", "/same")
        }
    assert passed == {"": False, "/own": True, "/strict": False, "/same": False}


# --- status and doctor -----------------------------------------------------------------------------------------------


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
def test_status_shows_the_mode_that_serve_would_have(file: str | None, mode: str, desk: Desk) -> None:
    words = () if file is None else ("--gateway", desk.write("gateway.toml", file))
    shown = desk.run("status", *words)
    assert shown.out.splitlines()[-1].startswith(f"trunkline serve: approval mode {mode}, ")
    assert json.loads(desk.run("status", "--json", *words).out)["approval"]["mode"] == mode


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
def test_a_mode_and_policy_that_deny_every_call_are_reported(mode: str, rules: str, words: str, desk: Desk) -> None:
    (desk.home / "policy.toml").write_text(rules, encoding="utf-8")
    file = desk.write("gateway.toml", f'approval = "{mode}"')
    line = desk.run("status", "--gateway", file).out.splitlines()[-1]
    assert words in line
    assert len(line) <= 80


def test_status_shows_the_modes_of_profiles(desk: Desk) -> None:
    text = 'approval = "client"\n[profile.reader]\napproval = "deny"\n[profile.rest]\nservers = ["demo"]\n'
    words = ("status", "--gateway", desk.write("gateway.toml", text))
    assert desk.run(*words).out.splitlines()[-2:] == [
        "profile reader: approval mode deny, only what rules allow",
        "profile rest: approval mode client, the client asks its own user",
    ]
    assert json.loads(desk.run(*words, "--json").out)["approval"]["profiles"] == {"reader": "deny", "rest": "client"}


def test_a_gateway_file_that_cannot_be_read_ends_status(desk: Desk) -> None:
    ended = desk.run("status", "--gateway", "nope.toml")
    assert ended.code == 2
    assert "nope.toml" in ended.err


def test_doctor_says_which_mode_a_setup_has(desk: Desk) -> None:
    report = json.loads(desk.run("doctor", "--json").out)
    (check,) = [each for each in report["configuration"] if each["id"] == "gateway"]
    assert (check["status"], check["detail"].partition(":")[0]) == ("ok", "approval mode client")


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

    with serving(desk, "--gateway", desk.write("gateway.toml", SLOW)) as running:
        found = {path: run_async(names(f"{running.url}{path}")) for path in ("", "/impatient")}
    assert found == {"": set(), "/impatient": {"job_status", "job_result"}}


def test_every_call_can_be_a_task_at_once(desk: Desk) -> None:
    async def started(url: str) -> tuple[bool, str]:
        async with Client(url, headers={"Authorization": f"Bearer {TOKEN}"}, revision="2026-07-28") as client:
            task = await client.start_task("demo__echo", {"text": "hi"})
            return bool(task.id), (await task.result()).text

    text = "[profile.impatient]\ntask_after = 0"
    with serving(desk, "--approval", "client", "--gateway", desk.write("gateway.toml", text)) as running:
        assert run_async(started(f"{running.url}/impatient")) == (True, "hi")


@pytest.mark.parametrize(("words", "text"), [(("--task-after", "0"), ""), ((), "task_after = 0")], ids=["flag", "file"])
def test_the_time_after_which_a_call_is_a_task_is_an_option_of_all(
    words: tuple[str, ...], text: str, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[object] = []
    monkeypatch.setattr("trunkline.cli.gateway_runner.run_gateway", lambda settings: chosen.append(settings.options))
    assert desk.run("serve", "--gateway", desk.write("gateway.toml", text), *words).code == 0
    assert [options["task_after"] for options in chosen] == [0]  # type: ignore[index]
