"""Skills through the gateway: entries are rewritten one URI at a time, and reading a ``SKILL.md`` is loading it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.extensions.skills.made import add_skill, listed
from tests.host.gateway.support import NEW, PAIRS, allow, fronted, revisions_of
from trunkline import Client, Server
from trunkline.errors import InvalidParams, MissingCapability, RequestFailed
from trunkline.extensions import SKILLS
from trunkline.host.gateway.sessions import GatewayOptions

LOAD = '[[rule]]\neffect = "allow"\nserver = "{0}"\nkind = ["skill", "resource"]\n'
NESTED = '[[rule]]\neffect = "deny"\nserver = "a"\nskill = "skill://notes/inner/*"\n'


def made(folder: Path, upstream: str = NEW, **options: Any) -> Server:
    """Serve a skill with a file and a skill inside it."""
    add_skill(folder, "notes", references__STYLE_md="Short.")
    add_skill(folder, "notes/inner")
    return Server("s", skills=folder, revisions=revisions_of(upstream), **options)


def readable(*servers: str, more: str = "") -> Any:
    return allow(*servers, more="".join(map(LOAD.format, servers)) + more)


@PAIRS
async def test_entries_have_the_uris_of_the_gateway_and_the_digests_of_the_server(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    server = made(tmp_path / "skills", upstream)
    async with Client(server) as direct:
        own = {each.uri: each for each in await direct.list_skills()}
    async with fronted({"a": server}, tmp_path / "state", channel, policy=readable("a")) as client:
        assert client.server_capabilities["extensions"][SKILLS] == {"directoryRead": True}
        found = {each.uri: each for each in await client.list_skills()}
        assert set(found) == {"skill://a/notes/SKILL.md", "skill://a/notes/inner/SKILL.md"}
        entry = await client.get_skill("skill://a/notes/SKILL.md")
        assert [each.uri for each in listed(entry)] == [
            "skill://a/notes/SKILL.md",
            "skill://a/notes/inner/SKILL.md",
            "skill://a/notes/references/STYLE.md",
        ]
        digests = [each.digest for each in listed(own["skill://notes/SKILL.md"])]
        assert [each.digest for each in listed(entry)] == digests
        loaded = await client.load_skill(entry)
        assert await loaded.read("references/STYLE.md") == "Short."
        children = [each.uri for each in await client.read_directory("skill://a/notes")]
    assert children == ["skill://a/notes/SKILL.md", "skill://a/notes/inner", "skill://a/notes/references"]


async def test_the_same_uri_of_two_servers_stays_apart(tmp_path: Path) -> None:
    add_skill(tmp_path / "one", "refunds", description="One")
    add_skill(tmp_path / "two", "refunds", description="Two")
    servers = {"a": Server("a", skills=tmp_path / "one"), "b": Server("b", skills=tmp_path / "two")}
    async with fronted(servers, tmp_path / "state", policy=readable("a", "b")) as client:
        one = await client.load_skill("skill://a/refunds/SKILL.md")
        two = await client.load_skill("skill://b/refunds/SKILL.md")
    assert (one.description, two.description) == ("One", "Two")


async def test_reading_a_main_file_is_decided_about_as_loading_the_skill(tmp_path: Path) -> None:
    rules = allow("a", more='[[rule]]\neffect = "allow"\nserver = "a"\nkind = "resource"\n')
    async with fronted({"a": made(tmp_path / "skills")}, tmp_path / "state", policy=rules) as client:
        assert (await client.read_resource("skill://a/notes/references/STYLE.md"))[0].text == "Short."
        with pytest.raises(RequestFailed, match=r"approval|allow"):
            await client.read_resource("skill://a/notes/SKILL.md")


async def test_a_skill_that_is_denied_is_neither_listed_nor_found_nor_read(tmp_path: Path) -> None:
    async with fronted(
        {"a": made(tmp_path / "skills")}, tmp_path / "state", policy=readable("a", more=NESTED)
    ) as client:
        assert [each.uri for each in await client.list_skills()] == ["skill://a/notes/SKILL.md"]
        with pytest.raises(InvalidParams, match="No skill is served"):
            await client.get_skill("skill://a/notes/inner/SKILL.md")
        with pytest.raises(RequestFailed):
            await client.read_resource("skill://a/notes/inner/SKILL.md")


async def test_a_gateway_whose_servers_have_no_skills_does_not_declare_them(tmp_path: Path) -> None:
    async with fronted({"a": Server("a")}, tmp_path) as client:
        assert SKILLS not in client.server_capabilities.get("extensions", {})
        with pytest.raises(MissingCapability):
            await client.list_skills()


async def test_a_profile_has_the_skills_of_its_servers_only(tmp_path: Path) -> None:
    add_skill(tmp_path / "one", "one")
    add_skill(tmp_path / "two", "two")
    servers = {"a": Server("a", skills=tmp_path / "one"), "b": Server("b", skills=tmp_path / "two")}
    options = GatewayOptions(profile="p", servers=frozenset({"b"}))
    async with fronted(servers, tmp_path / "state", policy=readable("a", "b"), gateway=options) as client:
        assert [each.uri for each in await client.list_skills()] == ["skill://b/two/SKILL.md"]
        with pytest.raises(InvalidParams):
            await client.get_skill("skill://a/one/SKILL.md")


async def test_a_change_at_the_server_is_seen_through_the_gateway(tmp_path: Path) -> None:
    folder = tmp_path / "skills"
    async with fronted({"a": made(folder)}, tmp_path / "state", policy=readable("a")) as client:
        before = await client.get_skill("skill://a/notes/SKILL.md")
        (folder / "notes/references/STYLE.md").write_text("Long.")
        after = await client.get_skill("skill://a/notes/SKILL.md")
    assert [each.digest for each in listed(before)] != [each.digest for each in listed(after)]
