"""Skills of a server: their methods, their files as resources, changes, mounting, scopes, every revision."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.skills.made import add_skill, digests, listed
from trunkline import Client, Server
from trunkline.errors import ConfigError, InvalidParams, ResourceNotFound
from trunkline.extensions import SKILLS
from trunkline.extensions.skills.folder import digest_of
from trunkline.protocol.revisions import NEWEST

REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    add_skill(tmp_path, "pdf", description="Work with PDF", references__FORMS_md="# Forms", x_png=b"\x89PNG\xff")
    add_skill(tmp_path, "acme/refunds", run_py="print(1)\n", notes_="plain")
    return tmp_path


@pytest.mark.parametrize("revision", REVISIONS)
async def test_skills_are_listed_fetched_and_read_in_every_revision(folder: Path, revision: str) -> None:
    async with Client(Server("s", skills=folder), revision=revision) as client:
        skills = await client.list_skills()
        one = await client.get_skill("skill://pdf/SKILL.md")
        (content,) = await client.read_resource("skill://pdf/references/FORMS.md")
        skills, one, text = skills, one, content.text
    assert [each.uri for each in skills] == ["skill://acme/refunds/SKILL.md", "skill://pdf/SKILL.md"]
    assert one == skills[1]
    assert one.frontmatter == {"name": "pdf", "description": "Work with PDF"}
    assert [(each.uri, each.size) for each in listed(one)] == [
        ("skill://pdf/SKILL.md", (folder / "pdf" / "SKILL.md").stat().st_size),
        ("skill://pdf/references/FORMS.md", 7),
        ("skill://pdf/x.png", 5),
    ]
    assert text == "# Forms"
    assert digests(one)["skill://pdf/references/FORMS.md"] == digest_of(b"# Forms")


@pytest.mark.parametrize(
    ("revision", "hints"), [("2025-11-25", set()), ("2026-07-28", {"ttlMs", "cacheScope", "resultType", "_meta"})]
)
async def test_cache_hints_are_sent_where_the_revision_has_them(folder: Path, revision: str, hints: set[str]) -> None:
    async with Client(Server("s", skills=folder, cache_ttl_ms=5000), revision=revision) as client:
        all_skills, one = [
            await client.request("skills/list"),
            await client.request("skills/get", {"uri": "skill://pdf/SKILL.md"}),
        ]
    assert set(all_skills) == hints | {"skills"}
    assert set(one) == hints | {"skill"}
    assert all_skills.get("ttlMs", 5000) == 5000
    assert all_skills.get("cacheScope", "public") == "public"


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_extension_and_resources_are_declared(tmp_path: Path, revision: str) -> None:
    async with Client(Server("s", skills=tmp_path), revision=revision) as client:
        declared = client.server_capabilities
    assert declared["extensions"] == {SKILLS: {"directoryRead": True}}
    assert "resources" in declared


def test_a_server_without_skills_declares_nothing_and_has_no_such_methods() -> None:
    server = Server("s")
    assert "extensions" not in server.table.capabilities(NEWEST)
    assert {"skills/list", "skills/get", "resources/directory/read"} <= server.table.undeclared


async def test_main_files_are_listed_as_resources_with_the_fields_of_their_frontmatter(folder: Path) -> None:
    async with Client(Server("s", skills=folder)) as client:
        resources = await client.list_resources()
    assert [(each.uri, each.name, each.description, each.mime_type) for each in resources] == [
        ("skill://acme/refunds/SKILL.md", "refunds", "What it does", "text/markdown"),
        ("skill://pdf/SKILL.md", "pdf", "Work with PDF", "text/markdown"),
    ]


@pytest.mark.parametrize(
    ("uri", "mime_type", "content"),
    [
        ("skill://pdf/references/FORMS.md", "text/markdown", "# Forms"),
        ("skill://pdf/x.png", "image/png", b"\x89PNG\xff"),
        ("skill://acme/refunds/run.py", "text/x-python", "print(1)\n"),
        ("skill://acme/refunds/notes.", "text/plain", "plain"),
    ],
)
async def test_a_file_is_text_if_it_is_utf_8_and_has_its_own_type(
    folder: Path, uri: str, mime_type: str, content: str | bytes
) -> None:
    async with Client(Server("s", skills=folder)) as client:
        found = (await client.read_resource(uri))[0]
    assert found.mime_type == mime_type
    assert (found.text if found.blob is None else base64.b64decode(found.blob)) == content


@pytest.mark.parametrize(
    ("method", "uri", "message"),
    [
        ("skills/get", "skill://nope/SKILL.md", "No skill is served at skill://nope/SKILL.md"),
        ("skills/get", "skill://pdf", "No skill is served"),
        ("skills/get", "skill://pdf/references/FORMS.md", "No skill is served"),
        ("resources/directory/read", "skill://nope", "No directory is served at skill://nope"),
        ("resources/directory/read", "skill://pdf/", "No directory is served"),
        ("resources/directory/read", "skill:/", "No directory is served"),
        ("resources/directory/read", "skill:", "No directory is served"),
        ("resources/directory/read", "skill://pdf/SKILL.md", "skill://pdf/SKILL.md is not a directory resource"),
        ("resources/directory/read", "skill://pdf/x.png", "is not a directory resource"),
        ("resources/read", "skill://pdf/references/OTHER.md", "Resource not found"),
        ("resources/read", "skill://pdf/references", "Resource not found"),
        ("resources/read", "skill://pdf/references/../SKILL.md", "Resource not found"),
    ],
)
async def test_what_is_not_served_is_an_invalid_param(folder: Path, method: str, uri: str, message: str) -> None:
    async with Client(Server("s", skills=folder), revision="2026-07-28") as client:
        with pytest.raises(InvalidParams, match=message):
            await client.request(method, {"uri": uri})


async def test_older_revisions_have_their_own_error_for_an_unknown_file(folder: Path) -> None:
    async with Client(Server("s", skills=folder), revision="2025-06-18") as client:
        with pytest.raises(ResourceNotFound):
            await client.read_resource("skill://pdf/nope.md")


async def test_pages_of_skills_and_of_directories_follow_each_other(tmp_path: Path) -> None:
    for number in range(7):
        add_skill(tmp_path, f"team/s{number}", a_txt="x")

    async with Client(Server("s", skills=tmp_path, list_page_size=3)) as client:
        page = await client.list_page("skills/list")
        skills, children, first = (
            await client.list_skills(),
            await client.read_directory("skill://team"),
            len(page.skills),
        )
    assert first == 3
    assert [each.frontmatter["name"] for each in skills] == [f"s{number}" for number in range(7)]
    assert [each.uri for each in children] == [f"skill://team/s{number}" for number in range(7)]


async def test_a_page_is_short_when_its_skills_have_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.extensions.skills.service._PAGE_FILES", 16)
    for number in range(10):
        add_skill(tmp_path, f"s{number}", a_txt="x")

    async with Client(Server("s", skills=tmp_path)) as client:
        assert (len((await client.list_page("skills/list")).skills), len(await client.list_skills())) == (8, 10)


async def test_a_stale_cursor_is_an_invalid_param(folder: Path) -> None:
    async with Client(Server("s", skills=folder)) as client:
        with pytest.raises(InvalidParams, match="cursor"):
            await client.request("skills/list", {"cursor": "bm9uc2Vuc2U"})


@pytest.mark.parametrize(
    ("uri", "children"),
    [
        (
            "skill://pdf",
            [
                ("SKILL.md", "text/markdown"),
                ("empty", "inode/directory"),
                ("references", "inode/directory"),
                ("x.png", "image/png"),
            ],
        ),
        ("skill://pdf/references", [("FORMS.md", "text/markdown")]),
        ("skill://pdf/empty", []),
        ("skill://acme", [("refunds", "inode/directory")]),
    ],
)
async def test_a_directory_lists_its_direct_children(folder: Path, uri: str, children: list[tuple[str, str]]) -> None:
    (folder / "pdf" / "empty").mkdir()
    async with Client(Server("s", skills=folder)) as client:
        found = await client.read_directory(uri)
    assert [(each.uri.removeprefix(f"{uri}/"), each.mime_type) for each in found] == children


# --- changes ----------------------------------------------------------------------------------------------------------


async def test_a_changed_file_is_read_together_with_a_changed_entry(folder: Path) -> None:
    async with Client(Server("s", skills=folder)) as client:
        before = await client.get_skill("skill://pdf/SKILL.md")
        (folder / "pdf" / "references" / "FORMS.md").write_text("# Newer forms")
        (content,) = await client.read_resource("skill://pdf/references/FORMS.md")
        before, text, after = before, content.text, await client.get_skill("skill://pdf/SKILL.md")
    uri = "skill://pdf/references/FORMS.md"
    assert text == "# Newer forms"
    assert digests(before)[uri] != digests(after)[uri] == digest_of(b"# Newer forms")


async def test_new_and_removed_skills_and_files_are_noticed(folder: Path) -> None:
    async with Client(Server("s", skills=folder)) as client:
        await client.list_skills()
        add_skill(folder, "later", a_txt="x")
        (folder / "acme" / "refunds" / "SKILL.md").unlink()
        (content,) = await client.read_resource("skill://later/a.txt")
        skills, resources = await uris(client), [each.uri for each in await client.list_resources()]
    assert skills == resources == ["skill://pdf/SKILL.md", "skill://later/SKILL.md"]
    assert content.text == "x"


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_change_is_announced_to_whoever_listens(folder: Path, revision: str) -> None:
    uri = "skill://pdf/references/FORMS.md"
    client = Client(Server("s", skills=folder), revision=revision)
    async with client, client.listen(resources=True, uris=[uri]) as changes:
        (folder / "pdf" / "references" / "FORMS.md").write_text("# Newer")
        await client.list_skills()
        first, second = await anext(changes), await anext(changes)
        assert {(first.kind, first.uri), (second.kind, second.uri)} == {("resources", None), ("resource", uri)}


async def test_an_entry_that_a_client_holds_is_dropped_when_the_list_changes(folder: Path) -> None:
    async with Client(Server("s", skills=folder, cache_ttl_ms=60_000)) as client, client.listen() as changes:
        before = (await client.list_skills())[1]
        (folder / "pdf" / "x.png").write_bytes(b"new")
        await client.get_skill("skill://pdf/SKILL.md")
        await anext(changes)
        after = (await client.list_skills())[1]
    assert digests(before)["skill://pdf/x.png"] != digests(after)["skill://pdf/x.png"] == digest_of(b"new")


# --- generated skills -------------------------------------------------------------------------------------------------


def generated() -> Server:
    server = Server("s")

    @server.skill("reports/daily", frontmatter={"license": "MIT", "metadata": {"a": 'b: "c"'}})
    async def daily() -> str:
        """Assemble the report of today."""
        return "# Today\n"

    server.add_resource("skill://reports/daily/data/today.json", "{}", mime_type="application/json")
    return server


async def test_a_generated_skill_has_no_manifest_and_its_own_frontmatter() -> None:
    async with Client(generated()) as client:
        (entry,), loaded = await client.list_skills(), await client.load_skill("skill://reports/daily/SKILL.md")
    assert entry.resources == "dynamic"
    assert entry.frontmatter == {
        "name": "daily",
        "description": "Assemble the report of today.",
        "license": "MIT",
        "metadata": {"a": 'b: "c"'},
    }
    assert loaded.text.endswith("---\n\n# Today\n")


async def test_resources_beside_a_generated_skill_are_in_its_directory() -> None:
    async with Client(generated()) as client:
        paths = ["skill://reports", "skill://reports/daily", "skill://reports/daily/data"]
        assert [[each.uri for each in await client.read_directory(path)] for path in paths] == [
            ["skill://reports/daily"],
            ["skill://reports/daily/SKILL.md", "skill://reports/daily/data"],
            ["skill://reports/daily/data/today.json"],
        ]


async def test_a_generated_skill_that_returns_no_text_fails() -> None:
    server = Server("s")
    server.skill("bad", description="x")(lambda: 1)
    async with Client(server) as client:
        with pytest.raises(Exception, match="Internal error"):
            await client.read_resource("skill://bad/SKILL.md")


# --- registering ------------------------------------------------------------------------------------------------------


async def test_several_folders_with_prefixes(tmp_path: Path) -> None:
    add_skill(tmp_path / "a", "one")
    add_skill(tmp_path / "b", "two")
    server = Server("s", skills=[tmp_path / "a", str(tmp_path / "b")])
    server.add_skills(tmp_path / "a", prefix="team")
    async with Client(server) as client:
        assert await uris(client) == ["skill://one/SKILL.md", "skill://two/SKILL.md", "skill://team/one/SKILL.md"]


@pytest.mark.parametrize("given", [1, {"a": "b"}, [1]])
def test_skills_that_are_no_folders_are_a_type_error(given: Any) -> None:
    with pytest.raises(TypeError, match="skills= must be the path of a folder"):
        Server("s", skills=given)


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder of skills"):
        Server("s", skills=tmp_path / "nope")


@pytest.mark.parametrize(
    ("path", "description", "message"),
    [
        ("a//b", "x", "is not the path of a skill"),
        ("../b", "x", "is not the path of a skill"),
        ("Bad", "x", "its name is 'Bad'"),
        ("good", None, "its description is ''"),
    ],
)
def test_a_generated_skill_follows_the_rules(path: str, description: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Server("s").skill(path, description=description)(lambda: "")


def test_a_decorator_without_a_path_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="a skill needs its path"):
        Server("s").skill(lambda: "")  # type: ignore[arg-type]


def test_a_resource_with_the_uri_of_a_skill_is_an_error(folder: Path) -> None:
    server = Server("s")
    server.add_resource("skill://pdf/SKILL.md", "mine")
    with pytest.raises(ValueError, match="use a prefix for the skills"):
        server.add_skills(folder)


async def test_a_later_skill_that_collides_is_not_served(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s", skills=folder)
    server.add_resource("skill://later/SKILL.md", "mine")

    async with Client(server) as client:
        add_skill(folder, "later")
        assert len(await uris(client)) == 2
    assert "is not served: resource 'skill://later/SKILL.md' exists already" in caplog.text


async def uris(client: Client) -> list[str]:
    return [each.uri for each in await client.list_skills()]


def test_a_skill_that_two_folders_have_is_an_error(tmp_path: Path) -> None:
    add_skill(tmp_path / "a", "pdf")
    add_skill(tmp_path / "b", "pdf")
    with pytest.raises(ValueError, match=r"the skill .* exists already"):
        Server("s", skills=[tmp_path / "a", tmp_path / "b"])


def test_a_generated_skill_does_not_replace_one_that_exists(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"the skill .* exists already"):
        Server("s", skills=folder).skill("pdf", description="x")(lambda: "")


async def test_a_later_skill_that_another_folder_has_neither_replaces_nor_removes_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    add_skill(one, "pdf", description="The first")
    add_skill(two, "other")
    server = Server("s", skills=[one, two])
    async with Client(server) as client:
        add_skill(two, "pdf", description="The second")
        add_skill(two, "new")
        found = {each.uri: each.frontmatter["description"] for each in await client.list_skills()}
        assert found["skill://pdf/SKILL.md"] == "The first"
        assert "skill://new/SKILL.md" in found
        shutil.rmtree(two / "pdf")
        assert "skill://pdf/SKILL.md" in await uris(client)
        add_skill(two, "pdf", description="The third")
        await uris(client)
        shutil.rmtree(one / "pdf")
        await uris(client)
        assert (await client.load_skill("skill://pdf/SKILL.md")).description == "The third"
    assert caplog.text.count("is not served: the skill 'skill://pdf/SKILL.md' exists already") == 2


async def test_a_removed_resource_is_no_skill_any_more(folder: Path) -> None:
    server = Server("s", skills=folder)
    server.remove_resource("skill://pdf/SKILL.md")
    async with Client(server) as client:
        assert await uris(client) == ["skill://acme/refunds/SKILL.md"]


# --- mounting, visibility, scopes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["skills first", "mount first"])
async def test_skills_of_a_mounted_server_have_its_namespace_in_every_uri(folder: Path, order: str) -> None:
    top, child = Server("top"), Server("child")
    steps: list[Any] = [lambda: child.add_skills(folder), lambda: top.mount(child, "docs")]
    for step in steps if order == "skills first" else reversed(steps):
        step()

    async with Client(top) as client:
        skill = await client.load_skill("skill://docs/pdf/SKILL.md")
        (folder / "pdf" / "references" / "FORMS.md").write_text("# Changed")
        skill = await client.load_skill("skill://docs/pdf/SKILL.md")
        entry, text, children = (
            skill.entry,
            await skill.read("references/FORMS.md"),
            await client.read_directory("skill://docs/pdf"),
        )
    assert [each.uri for each in listed(entry)] == [
        "skill://docs/pdf/SKILL.md",
        "skill://docs/pdf/references/FORMS.md",
        "skill://docs/pdf/x.png",
    ]
    assert text == "# Changed"
    assert [each.uri for each in children][1] == "skill://docs/pdf/references"


async def test_a_mounted_skill_is_read_inside_the_middleware_of_its_server(folder: Path) -> None:
    seen: list[str] = []

    async def note(request: Any, call_next: Any) -> Any:
        seen.append(request.params.uri)
        return await call_next(request)

    top = Server("top")
    top.mount(Server("child", skills=folder, middleware=[note]), "docs")
    async with Client(top) as client:
        await client.read_resource("skill://docs/pdf/SKILL.md")
        await client.read_resource("skill://docs/pdf/x.png")
    assert seen == ["skill://docs/pdf/SKILL.md", "skill://docs/pdf/x.png"]


async def test_a_hidden_skill_has_no_entry_no_files_and_no_directory(folder: Path) -> None:
    server = Server("s", skills=folder, visible=lambda caller, definition: definition.name != "pdf")
    async with Client(server) as client:
        errors = []
        for method, uri in [
            ("skills/get", "skill://pdf/SKILL.md"),
            ("resources/read", "skill://pdf/SKILL.md"),
            ("resources/read", "skill://pdf/x.png"),
            ("resources/directory/read", "skill://pdf"),
        ]:
            with pytest.raises(InvalidParams) as caught:
                await client.request(method, {"uri": uri})
            errors.append(caught.value.message.split(":")[0])
        skills, errors = await uris(client), errors
    assert skills == ["skill://acme/refunds/SKILL.md"]
    assert errors == [
        "No skill is served at skill",
        "Resource not found",
        "Resource not found",
        "No directory is served at skill",
    ]
