"""The tools that a skill requests: no effect alone, and approved with the skill, for its files and its session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.skills.made import add_skill
from tests.host.chat.support import calls, talking
from tests.host.gateway.support import until
from trunkline import Host, Server
from trunkline.errors import PolicyDenied
from trunkline.host import ApprovalAnswer, ApprovalRequest
from trunkline.host.authorization.policy.loader import parse_policy

READ = '[[rule]]\neffect = "allow"\nserver = ["a", "b"]\nkind = "resource"\n'


class Person:
    """Allows everything, a skill with the given scope where it is offered, and remembers what was asked."""

    def __init__(self, scope: Any = "tools") -> None:
        self.asked: list[ApprovalRequest] = []
        self._scope = scope

    async def __call__(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(request)
        return ApprovalAnswer(allow=True, remember=self._scope if self._scope in request.can_remember else "once")

    @property
    def kinds(self) -> list[str]:
        return [each.act.kind for each in self.asked]


def notes(folder: Path, tools: str, *, more: str = "Use wipe.") -> None:
    """Write a skill that requests tools."""
    home = add_skill(folder, "notes")
    (home / "SKILL.md").write_text(f"---\nname: notes\ndescription: D\nallowed-tools: {tools}\n---\n\n{more}\n")


def office(folder: Path, tools: str = "wipe") -> Server:
    """Make a server with the skill and three tools."""
    notes(folder, tools)
    server = Server("office", skills=folder)
    for name in ("wipe", "wipe_all", "send"):
        server.add_tool(lambda: "done", name=name, description=f"It can {name}.")
    return server


def opened(folder: Path, servers: dict[str, Any], **options: Any) -> Host:
    given = {"policy": parse_policy(READ, file="policy.toml"), "audit": False, "caller": "model", **options}
    return Host.open(servers, folder=folder / "state", **given)


async def test_the_question_shows_the_requested_tools_that_exist_and_offers_to_allow_them(tmp_path: Path) -> None:
    person, other = Person("once"), Server("other")
    other.add_tool(lambda: "sent", name="send", description="Send.")
    server = office(tmp_path / "skills", "wipe send(x:*) b__send missing")
    async with opened(tmp_path, {"a": server, "b": other}, consent=person) as host:
        await host.load_skill("a/notes")
    (asked,) = person.asked
    assert asked.arguments is not None
    assert asked.arguments["requested tools"] == ["wipe", "send(x:*)", "b__send", "missing"]
    assert asked.can_remember == ("session", "always", "tools", "all-tools")
    assert [tool.id for tool in asked.skill_tools_of("tools")] == ["a/wipe"]
    assert sorted(tool.id for tool in asked.skill_tools_of("all-tools")) == ["a/wipe", "b/send"]


async def test_approved_tools_need_no_further_question_and_others_do(tmp_path: Path) -> None:
    person = Person()
    async with opened(tmp_path, {"a": office(tmp_path / "skills")}, consent=person) as host:
        await host.load_skill("a/notes")
        await host.call_tool("a/wipe")
        await host.call_tool("a/wipe")
        assert person.kinds == ["skill"]
        await host.call_tool("a/wipe_all")
    assert person.kinds == ["skill", "tool"]


async def test_a_glob_is_for_tools_of_the_skills_own_server(tmp_path: Path) -> None:
    person, other = Person("all-tools"), Server("other")
    other.add_tool(lambda: "wiped", name="wipe", description="Wipe.")
    server = office(tmp_path / "skills", "wipe* *__wipe b/*")
    async with opened(tmp_path, {"a": server, "b": other}, consent=person) as host:
        await host.load_skill("a/notes")
        assert sorted(tool.id for tool in person.asked[0].skill_tools) == ["a/wipe", "a/wipe_all"]


async def test_tools_of_another_server_need_the_answer_that_names_them(tmp_path: Path) -> None:
    other = Server("other")
    other.add_tool(lambda: "sent", name="send", description="Send.")
    servers = {"a": office(tmp_path / "skills", "wipe b/send"), "b": other}
    person, generous = Person("tools"), Person("all-tools")
    async with opened(tmp_path, servers, consent=person) as host:
        await host.load_skill("a/notes")
        await host.call_tool("b/send")
    assert person.kinds == ["skill", "tool"]
    async with opened(tmp_path, servers, consent=generous) as host:
        await host.load_skill("a/notes")
        await host.call_tool("a/wipe")
        await host.call_tool("b/send")
    assert generous.kinds == ["skill"]


async def test_the_approval_ends_when_a_file_of_the_skill_changes(tmp_path: Path) -> None:
    person, skills = Person(), tmp_path / "skills"
    async with opened(tmp_path, {"a": office(skills)}, consent=person) as host:
        await host.load_skill("a/notes")
        await host.call_tool("a/wipe")
        notes(skills, "wipe", more="Use wipe, often.")
        await host.call_tool("a/wipe")
        assert person.kinds == ["skill", "tool"]
        notes(skills, "wipe")
        await host.call_tool("a/wipe")
    # It does not come back with the old files.
    assert person.kinds == ["skill", "tool", "tool"]


async def test_an_approval_that_cannot_be_checked_ends(tmp_path: Path) -> None:
    person, skills = Person(), tmp_path / "skills"
    async with opened(tmp_path, {"a": office(skills)}, consent=person) as host:
        await host.load_skill("a/notes")
        (skills / "notes/SKILL.md").unlink()
        await host.call_tool("a/wipe")
    assert person.kinds == ["skill", "tool"]


async def test_a_tool_that_changes_is_asked_about(tmp_path: Path) -> None:
    person, server = Person(), office(tmp_path / "skills")
    async with opened(tmp_path, {"a": server}, consent=person) as host:
        await host.load_skill("a/notes")
        server.remove_tool("wipe")
        server.add_tool(lambda: "done", name="wipe", description="It can wipe more.")
        await until(lambda: "a/wipe" in host.catalog.tools and "more" in host.catalog.tools["a/wipe"].description)
        await host.call_tool("a/wipe")
    assert person.kinds == ["skill", "tool"]


async def test_what_the_policy_denies_stays_denied_and_is_not_offered(tmp_path: Path) -> None:
    person = Person()
    rules = READ + '[[rule]]\neffect = "deny"\nserver = "a"\ntool = "wipe"\n'
    policy = parse_policy(rules, file="policy.toml")
    async with opened(tmp_path, {"a": office(tmp_path / "skills")}, consent=person, policy=policy) as host:
        await host.load_skill("a/notes")
        assert "tools" not in person.asked[0].can_remember
        with pytest.raises(PolicyDenied):
            await host.call_tool("a/wipe")


async def test_a_generated_skill_cannot_have_its_tools_approved(tmp_path: Path) -> None:
    person, server = Person(), Server("s")
    server.add_tool(lambda: "done", name="wipe", description="Wipe.")
    server.skill("daily", description="Today", frontmatter={"allowed-tools": "wipe"})(lambda: "Use wipe.")
    async with opened(tmp_path, {"a": server}, consent=person) as host:
        await host.load_skill("a/daily")
    assert person.asked[0].can_remember == ()


async def test_the_audit_trail_has_the_reason(tmp_path: Path) -> None:
    trail = tmp_path / "audit.jsonl"
    async with opened(tmp_path, {"a": office(tmp_path / "skills")}, consent=Person(), audit=trail) as host:
        await host.load_skill("a/notes")
        await host.call_tool("a/wipe")
    entries = [json.loads(line) for line in trail.read_text().splitlines()]
    (begun,) = [each for each in entries if each.get("name") == "wipe" and each["stage"] == "begun"]
    assert begun["by"].startswith("grant:")
    assert begun["note"] == "approved with the skill a/skill://notes/SKILL.md"


async def test_in_a_chat_the_approval_lasts_until_the_conversation_is_cleared(tmp_path: Path) -> None:
    person = Person()
    load, wipe = calls(("load_skill", {"skill": "a/notes"})), calls(("a__wipe", {}))
    script = [load, wipe, "Wiped.", wipe, "Wiped again."]
    policy = parse_policy(READ, file="policy.toml")
    servers = {"a": office(tmp_path / "skills")}
    async with talking(tmp_path, servers, script, rules=policy, prompter=person) as talk:
        await talk.say()
        assert person.kinds == ["skill"]
        talk.conversation.clear()
        await talk.say()
    assert person.kinds == ["skill", "tool"]
