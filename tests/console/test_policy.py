"""The policy in the console: the file, decisions and their reasons, drafts of rules, tests, grants."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import trunkline.types as t
from tests.console.support import OpenConsole, library, on_console, policy, refused
from trunkline import Server
from trunkline.console.console import ConsoleOptions
from trunkline.console.serve import open_console
from trunkline.host.authorization.grants import make_grant
from trunkline.host.authorization.policy.decisions import Act
from trunkline.host.authorization.policy.draft import draft_rule
from trunkline.host.authorization.policy.loader import parse_policy
from trunkline.host.host import Host

RULES = """\
[[rule]]
name = "no lending"
effect = "deny"
server = "library"
tool = "lend"
message = "Read it here."

[[rule]]
effect = "allow"
server = "library"
tool = "find"
when = [{ arg = "/title", equals = "Emma" }]

[[test]]
server = "library"
tool = "lend"
expect = "deny"

[[test]]
name = "finding"
server = "library"
tool = "find"
args = { title = "Ulysses" }
expect = "allow"
"""


def of_file(folder: Path, text: str = RULES) -> Path:
    """Write a policy."""
    file = folder / "policy.toml"
    file.write_text(text)
    return file


def console_with(file: Path, folder: Path) -> Any:
    """Open a console whose host reads its rules from a file."""
    given: Any = str(file)
    return on_console({"library": library()}, folder, policy=given)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the user's own."""
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


async def decided(console: OpenConsole, name: str, **arguments: Any) -> dict[str, Any]:
    """Ask why about a tool of the library."""
    body = {"kind": "tool", "id": f"library/{name}", "arguments": arguments, "caller": "model"}
    found: dict[str, Any] = await console.client().post("/policy/why", body)
    return found


# --- the file --------------------------------------------------------------------------------------------------------


async def test_a_policy_is_shown_with_its_rules_and_problems(tmp_path: Path) -> None:
    file = of_file(tmp_path, RULES + '[[rule]]\neffect = "deny"\nserver = "libary"\n')
    async with console_with(file, tmp_path) as console:
        found = await console.client().get("/policy")
    assert (found["file"], found["exists"]) == (str(file), True)
    assert found["text"] == file.read_text()
    assert [(rule["line"], rule["effect"], rule["named"]) for rule in found["rules"]] == [
        (1, "deny", True),
        (8, "allow", False),
        (25, "deny", False),
    ]
    assert "Emma" in found["rules"][1]["when"][0]
    assert any("did you mean 'library'" in problem for problem in found["problems"])
    assert {row["effect"] for row in found["defaults"]} == {"allow", "ask"}
    assert found["approval"] == {"seconds": 300.0}


async def test_a_new_text_is_written_and_takes_effect_at_once(tmp_path: Path) -> None:
    file = of_file(tmp_path)
    os.chmod(file, 0o640)
    async with console_with(file, tmp_path) as console:
        client = console.client()
        async with client.listen():
            assert (await decided(console, "lend", title="Emma"))["effect"] == "deny"
            text = '[[rule]]\neffect = "ask"\nserver = "library"\ntool = "lend"\n'
            before = await client.get("/policy")
            answer = await client.put("/policy", {"text": text, "digest": before["digest"]})
            assert answer["problem"] is None
            assert (await client.event("policy"))["type"] == "policy"
            assert (await decided(console, "lend", title="Emma"))["effect"] == "ask"
    assert file.read_text() == text
    assert file.stat().st_mode & 0o777 == 0o640
    assert [name for name in os.listdir(tmp_path) if "policy" in name] == ["policy.toml"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("[[rule]\n", "not valid TOML", id="toml"),
        pytest.param('[[rule]]\neffect = "allow"\n', "must name its server", id="rule"),
        pytest.param('[[test]]\nserver = "a"\n', "expect is missing", id="test"),
    ],
)
async def test_nothing_invalid_is_written(text: str, message: str, tmp_path: Path) -> None:
    file = of_file(tmp_path)
    async with console_with(file, tmp_path) as console:
        failed = await refused(console.client().put("/policy", {"text": text}))
        assert (failed.status, failed.code) == (422, "invalid_policy")
        assert message in str(failed.message)
        assert (await decided(console, "lend"))["effect"] == "deny"
    assert file.read_text() == RULES


async def test_an_edit_of_an_old_text_is_refused(tmp_path: Path) -> None:
    file = of_file(tmp_path)
    async with console_with(file, tmp_path) as console:
        client = console.client()
        seen = (await client.get("/policy"))["digest"]
        file.write_text("# changed by an editor\n")
        failed = await refused(client.put("/policy", {"text": "", "digest": seen}))
        assert failed.code == "changed"
    assert file.read_text() == "# changed by an editor\n"


async def test_the_first_policy_is_the_users_own_and_private(home: Path, tmp_path: Path) -> None:
    file = home / "policy.toml"
    async with (
        Host.open({"library": library()}, folder=tmp_path / "state") as host,
        open_console(host, ConsoleOptions()) as running,
        aiohttp.ClientSession() as http,
    ):
        console = OpenConsole(running.console, running.address, http)
        client = console.client()
        found = await client.get("/policy")
        assert (found["file"], found["exists"], found["text"]) == (str(file), False, "")
        await client.put("/policy", {"text": '[[rule]]\neffect = "deny"\nserver = "library"\ntool = "find"\n'})
        assert (await decided(console, "find", title="Emma"))["effect"] == "deny"
        assert (await client.get("/policy"))["exists"] is True
    assert file.stat().st_mode & 0o777 == 0o600


async def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    real = of_file(tmp_path / "dotfiles")
    link = tmp_path / "policy.toml"
    link.symlink_to(real)
    async with console_with(link, tmp_path) as console:
        await console.client().put("/policy", {"text": "# empty\n"})
    assert link.is_symlink()
    assert real.read_text() == "# empty\n"


async def test_rules_given_in_code_cannot_be_edited(tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path, policy=policy(RULES)) as console:
        client = console.client()
        found = await client.get("/policy")
        assert (found["file"], found["text"], len(found["rules"])) == (None, "", 2)
        for method, path in (("PUT", "/policy"), ("POST", "/policy/test")):
            failed = await refused(client.request(method, path, {"text": ""} if method == "PUT" else {}))
            assert failed.code == "policy_in_code"


async def test_a_secret_in_the_file_is_masked_and_survives_an_edit(tmp_path: Path) -> None:
    file = of_file(tmp_path, RULES + "# the key is hunter2hunter2\n")
    async with console_with(file, tmp_path) as console:
        console.console.core.secrets.add(["hunter2hunter2"])
        client = console.client()
        shown = (await client.get("/policy"))["text"]
        assert "hunter2" not in shown
        await client.put("/policy", {"text": f"{shown}# edited\n"})
    assert file.read_text() == f"{RULES}# the key is hunter2hunter2\n# edited\n"


# --- tests and decisions ---------------------------------------------------------------------------------------------


async def test_tests_of_the_file_and_of_a_draft_are_run(tmp_path: Path) -> None:
    file = of_file(tmp_path)
    async with console_with(file, tmp_path) as console:
        client = console.client()
        found = await client.post("/policy/test", {})
        assert (found["passed"], found["failed"]) == (1, 1)
        assert "finding: expected allow, got ask" in found["lines"][0]
        fixed = await client.post("/policy/test", {"text": RULES.replace("Ulysses", "Emma")})
        assert fixed == {"passed": 2, "failed": 0, "lines": []}
        none = await client.post("/policy/test", {"text": "# nothing\n"})
        assert (none["passed"], none["failed"]) == (0, 0)
        assert "has no [[test]]" in none["lines"][0]
        failed = await refused(client.post("/policy/test", {"text": "[["}))
        assert failed.code == "invalid_policy"


async def test_why_names_the_rule_and_every_step(tmp_path: Path) -> None:
    file = of_file(tmp_path)
    async with console_with(file, tmp_path) as console:
        denied = await decided(console, "lend", title="Emma")
        assert (denied["effect"], denied["rule"], denied["listed"]) == ("deny", "no lending", False)
        assert "message to the caller: Read it here." in denied["steps"]
        assert any(f"{file}:1: deny: decided" in step for step in denied["steps"])
        asked = await decided(console, "find", title="Ulysses")
        assert (asked["effect"], asked["cause"]) == ("ask", "default")
        assert any("not so:" in step for step in asked["steps"])
        assert (await decided(console, "find", title="Emma"))["effect"] == "allow"


async def test_why_about_anything_of_a_server(tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path) as console:
        client = console.client()
        for kind, id, effect in (
            ("resource", "library/book://1", "allow"),
            ("resource", "library/shelf://3", "allow"),
            ("prompt", "library/recommend", "allow"),
            ("skill", "library/skill://x/SKILL.md", "ask"),
            ("tool", "library/not listed", "ask"),
            ("sampling", "library/sampling/createMessage", "ask"),
        ):
            assert (await client.post("/policy/why", {"kind": kind, "id": id}))["effect"] == effect


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"kind": "tool", "id": "nobody/x"}, 404),
        ({"kind": "tool", "id": "x"}, 400),
        ({"kind": "thing", "id": "library/x"}, 400),
        ({"kind": "tool", "id": "library/find", "caller": "martian"}, 400),
        ({"kind": "tool"}, 400),
    ],
)
async def test_a_question_must_make_sense(body: dict[str, Any], status: int, tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path) as console:
        failed = await refused(console.client().post("/policy/why", body))
        assert failed.status == status


# --- drafts ----------------------------------------------------------------------------------------------------------

ODD: dict[str, Any] = {
    "path": 'a "quoted"\\ line\n\x7f\u0001 é',
    "a/b~c": [1, 2.5, True, {"deep": "x y", "": []}],
    "none": None,
    "long": "x" * 1000,
    "empty": {},
    "big": 2**70,
}


@pytest.mark.parametrize("effect", ["allow", "ask", "deny"])
@pytest.mark.parametrize(
    ("kind", "name", "arguments"),
    [
        ("tool", "read_file", {"path": "/tmp/x"}),
        ("tool", "odd*[name]?", {}),
        ("tool", "odd", ODD),
        ("prompt", "recommend", {"genre": "novel"}),
        ("resource", "file:///tmp/[a].txt", {"uri": "file:///tmp/[a].txt"}),
        ("skill", "skill://x/SKILL.md", {}),
    ],
)
def test_a_draft_is_a_valid_rule_that_decides_that_call(
    kind: Any, name: str, arguments: dict[str, Any], effect: Any
) -> None:
    text = draft_rule(kind, "files", name, arguments, effect=effect)
    rules = parse_policy(text, file="draft.toml")
    act = Act(kind=kind, server="files", name=name, arguments=arguments)
    assert rules.decide(act, now=time.time()).effect == effect
    assert len(rules.rules) == 1
    other = Act(kind=kind, server="files", name=f"{name}x", arguments=arguments)
    assert rules.decide(other, now=time.time()).cause == "default"


def test_a_draft_names_what_it_leaves_out() -> None:
    text = draft_rule("tool", "files", "odd", {**ODD, "password": "***"}, effect="ask")
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        f"# not part of the rule: {pointer} (a secret, too long, or not possible in TOML)"
        for pointer in ('"/none"', '"/long"', '"/password"')
    ]
    many = draft_rule("tool", "files", "odd", {str(number): number for number in range(60)}, effect="ask")
    assert "10 more arguments" in many


async def test_a_rule_is_drafted_from_a_call_without_its_secrets(tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path) as console:
        console.console.core.secrets.add(["hunter2hunter2"])
        client = console.client()
        arguments = {"title": "Emma", "note": "hunter2hunter2", "password": "x"}
        body = {"kind": "tool", "id": "library/lend", "arguments": arguments, "effect": "allow"}
        found = (await client.post("/policy/rule", body))["toml"]
        assert "hunter2" not in found
        assert '{ arg = "/title", equals = "Emma" },' in found
        assert len(parse_policy(found, file="draft.toml").rules) == 1
        await refused(client.post("/policy/rule", {**body, "effect": "maybe"}))


# --- grants ----------------------------------------------------------------------------------------------------------


async def test_grants_are_listed_and_revoked(tmp_path: Path) -> None:
    server = Server("library")

    @server.tool(annotations=t.ToolAnnotations(read_only_hint=True))
    async def find(title: str) -> str:
        """Find a book."""
        return title

    async with on_console({"library": server}, tmp_path) as console:
        client = console.client()
        act = Act(kind="tool", server="library", name="find", pin="sha256:1", session=console.console.session.id)
        lasting = make_grant(act, "always", now=time.time())
        passing = make_grant(act, "session", now=time.time())
        console.console.assembly.grants.add(lasting)
        console.console.session.grants.add(passing)
        found = (await client.get("/policy"))["grants"]
        assert {(grant["id"], grant["scope"]) for grant in found} == {(lasting.id, "always"), (passing.id, "session")}
        async with client.listen():
            for grant in (lasting, passing):
                await client.delete(f"/grants/{grant.id}")
            assert (await client.event("policy"))["window"] == client.window
        assert (await client.get("/policy"))["grants"] == []
        failed = await refused(client.delete(f"/grants/{lasting.id}"))
        assert failed.status == 404
