"""Loading skills with a client: lazily, verified against the entry, and never outside of the skill."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.extensions.skills.made import add_skill, listed
from trunkline import Client, MissingCapability, Server
from trunkline.errors import InvalidParams, TrunklineError, VerificationError
from trunkline.extensions.skills.folder import digest_of
from trunkline.extensions.skills.loading import VerifiedFiles, check_entry
from trunkline.types import GetSkillResult, ReadResourceResult, ResourceContents, Skill, SkillResource

PDF = "skill://pdf/SKILL.md"


class Observed:
    """A server of skills that notes its requests, and can change what it answers."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.requests: list[tuple[str, str | None]] = []
        self.change: Callable[[str, Any], Any] = lambda uri, result: result
        self.server = Server("s", skills=folder, middleware=[self._note], **options)

    async def _note(self, request: Any, call_next: Any) -> Any:
        uri: Any = getattr(request.params, "uri", None)
        self.requests.append((request.method, uri))
        return self.change(uri, await call_next(request))

    @property
    def reads(self) -> list[str | None]:
        return [uri for method, uri in self.requests if method == "resources/read"]


@pytest.fixture
def observed(tmp_path: Path) -> Observed:
    add_skill(
        tmp_path, "pdf", description="Work with PDF", references__FORMS_md="# Forms", x_bin=b"\xff\x00", a__b_md="deep"
    )
    (tmp_path / "pdf" / "a b#c.md").write_text("odd")
    return Observed(tmp_path)


async def test_listing_reads_no_file(observed: Observed) -> None:
    async with Client(observed.server) as client:
        await client.list_skills()
        await client.get_skill(PDF)
    assert observed.reads == []


@pytest.mark.parametrize("given", ["by its URI", "by its entry"])
async def test_a_skill_is_loaded_with_its_main_file_alone(observed: Observed, given: str) -> None:
    async with Client(observed.server) as client:
        entry = await client.get_skill(PDF)
        skill = await client.load_skill(PDF if given == "by its URI" else entry)
    assert observed.reads == [PDF]
    assert skill.text.endswith("---\n\nDo it.\n")
    assert (skill.name, skill.description, skill.uri) == ("pdf", "Work with PDF", PDF)
    assert skill.frontmatter == {"name": "pdf", "description": "Work with PDF"}
    assert skill.files == ("SKILL.md", "a/b.md", "a b#c.md", "references/FORMS.md", "x.bin")
    assert not skill.is_dynamic
    assert skill.requested_tools == []
    assert repr(skill) == "<LoadedSkill skill://pdf/SKILL.md>"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("references/FORMS.md", "# Forms"),
        ("./references/FORMS.md", "# Forms"),
        ("a/../references/FORMS.md", "# Forms"),
        ("references/FORMS.md#fields", "# Forms"),
        ("skill://pdf/references/FORMS.md", "# Forms"),
        ("a b#c.md", "odd"),
        ("a%20b%23c.md", "odd"),
        ("skill://pdf/a%20b%23c.md", "odd"),
        ("a/b.md", "deep"),
    ],
)
async def test_a_file_is_read_by_a_path_from_the_folder_of_the_skill(observed: Observed, path: str, text: str) -> None:
    async with Client(observed.server) as client:
        assert await (await client.load_skill(PDF)).read(path) == text


async def test_a_file_that_is_no_text_is_read_as_bytes(observed: Observed) -> None:
    async with Client(observed.server) as client:
        skill = await client.load_skill(PDF)
        with pytest.raises(ValueError, match=r"'x.bin' of the skill 'pdf' is not text; use read_bytes"):
            await skill.read("x.bin")
        assert await skill.read_bytes("x.bin") == b"\xff\x00"


async def test_a_verified_file_is_not_fetched_again(observed: Observed) -> None:
    async with Client(observed.server) as client:
        skill = await client.load_skill(PDF)
        await skill.read("references/FORMS.md")
        await skill.read("references/FORMS.md")
        await client.load_skill(PDF)
    assert observed.reads == [PDF, "skill://pdf/references/FORMS.md"]


@pytest.mark.parametrize(
    "path",
    [
        "../other/SKILL.md",
        "/etc/passwd",
        "a/../../x",
        "",
        ".",
        "..",
        "skill://other/SKILL.md",
        "https://x.y/z",
        "a\0b",
        "a/" * 3000,
    ],
    ids=lambda path: path[:30],
)
async def test_a_path_that_leaves_the_skill_is_refused_and_nothing_is_sent(observed: Observed, path: str) -> None:
    async with Client(observed.server) as client:
        with pytest.raises(VerificationError, match="is not a file in the folder of the skill skill://pdf"):
            await (await client.load_skill(PDF)).read(path)
    assert observed.reads == [PDF]


@pytest.mark.parametrize("path", ["references/OTHER.md", "references", "skill.md", "%2e%2e/other/SKILL.md"])
async def test_a_file_that_the_entry_does_not_list_is_refused_and_nothing_is_sent(
    observed: Observed, path: str
) -> None:
    async with Client(observed.server) as client:
        with pytest.raises(VerificationError, match=re.escape(f"call get_skill('{PDF}') for its current entry")):
            await (await client.load_skill(PDF)).read(path)
    assert observed.reads == [PDF]


async def test_a_file_that_was_added_later_needs_a_new_entry(observed: Observed, tmp_path: Path) -> None:
    async with Client(observed.server) as client:
        skill = await client.load_skill(PDF)
        (tmp_path / "pdf" / "new.md").write_text("new")
        with pytest.raises(VerificationError, match=r"lists no file 'new.md'"):
            await skill.read("new.md")
        assert await (await client.load_skill(PDF)).read("new.md") == "new"


async def test_a_file_that_changed_needs_a_new_entry(observed: Observed, tmp_path: Path) -> None:
    async with Client(observed.server) as client:
        skill = await client.load_skill(PDF)
        (tmp_path / "pdf" / "references" / "FORMS.md").write_text("# FORMS")
        with pytest.raises(VerificationError, match="its digest is not the one in the entry") as caught:
            await skill.read("references/FORMS.md")
        assert caught.value.uri == "skill://pdf/references/FORMS.md"
        assert await (await client.load_skill(PDF)).read("references/FORMS.md") == "# FORMS"


# --- what a server may lie about --------------------------------------------------------------------------------------


def with_text(change: Callable[[str], str]) -> Callable[[str, Any], Any]:
    def apply(uri: str, result: Any) -> Any:
        if not isinstance(result, ReadResourceResult):
            return result
        (only,) = result.contents
        return replace(result, contents=[replace(only, text=change(only.text or ""))])

    return apply


def change_entry(change: Callable[[Skill], Skill]) -> Callable[[str, Any], Any]:
    return lambda uri, result: (
        replace(result, skill=change(result.skill)) if isinstance(result, GetSkillResult) else result
    )


def listing(*files: SkillResource) -> Callable[[str, Any], Any]:
    return change_entry(lambda skill: replace(skill, resources=[*listed(skill), *files]))


def a_file(uri: str, *, size: int = 1, digest: str = digest_of(b"x")) -> SkillResource:
    return SkillResource(uri=uri, digest=digest, size=size)


LIES: dict[str, tuple[Callable[[str, Any], Any], str]] = {
    "another text": (with_text(lambda text: text.replace("Do it", "Do so")), "its digest is not the one in the entry"),
    "a longer text": (with_text(lambda text: text + "more"), "bytes, but the entry says"),
    "no content": (
        lambda uri, result: replace(result, contents=[]) if hasattr(result, "contents") else result,
        "0 files",
    ),
    "two contents": (
        lambda uri, result: replace(result, contents=result.contents * 2) if hasattr(result, "contents") else result,
        "2 files",
    ),
    "a blob that is no base64": (
        lambda uri, result: (
            replace(result, contents=[ResourceContents(uri=uri, blob="?")]) if hasattr(result, "contents") else result
        ),
        "its content cannot be decoded",
    ),
    "another description": (
        change_entry(lambda skill: replace(skill, frontmatter={**skill.frontmatter, "description": "Harmless"})),
        "its frontmatter differs from the entry in description",
    ),
    "a field more": (
        change_entry(lambda skill: replace(skill, frontmatter={**skill.frontmatter, "license": "MIT"})),
        "its frontmatter differs from the entry in license",
    ),
    "another name": (
        change_entry(lambda skill: replace(skill, frontmatter={**skill.frontmatter, "name": "other"})),
        "its URI does not name the folder 'other'",
    ),
    "no name": (change_entry(lambda skill: replace(skill, frontmatter={})), "no valid name and description"),
    "another file as its own": (
        change_entry(lambda skill: replace(skill, uri="skill://pdf/README.md")),
        "does not end in",
    ),
    "another skill": (
        change_entry(lambda skill: replace(skill, uri="skill://other/pdf/SKILL.md", resources="dynamic")),
        "another skill than skill://pdf/SKILL.md",
    ),
    "more frontmatter than a file can have": (
        change_entry(lambda skill: replace(skill, frontmatter={**skill.frontmatter, "x": "y" * 300_000})),
        "its frontmatter has more than 262144 bytes",
    ),
    "no main file": (
        change_entry(lambda skill: replace(skill, resources=listed(skill)[1:])),
        "it does not list its SKILL.md",
    ),
    "a file outside": (listing(a_file("skill://other/x")), "outside its folder"),
    "a file above": (listing(a_file("skill://pdf/../other/x")), "outside its folder"),
    "an encoded file above": (listing(a_file("skill://pdf/%2e%2e/other/x")), "outside its folder"),
    "an encoded slash": (listing(a_file("skill://pdf/a%2Fx")), "outside its folder"),
    "a folder with a similar name": (listing(a_file("skill://pdf2/x")), "outside its folder"),
    "a query": (listing(a_file("skill://pdf/x?y")), "outside its folder"),
    "a file twice": (listing(a_file("skill://pdf/x.bin")), "it lists a file twice"),
    "a file twice in two forms": (listing(a_file("skill://pdf/%78.bin")), "it lists a file twice"),
    "a negative size": (listing(a_file("skill://pdf/x", size=-1)), "16777216 bytes"),
    "too many bytes": (listing(a_file("skill://pdf/x", size=2**24)), "16777216 bytes"),
    "too many files": (
        listing(*[a_file(f"skill://pdf/{n}") for n in range(512)]),
        "it lists 517 files, but the limit is 512",
    ),
    "an upper-case digest": (listing(a_file("skill://pdf/x", digest="sha256:" + "A" * 64)), "a digest is not"),
    "another digest": (listing(a_file("skill://pdf/x", digest="md5:" + "a" * 32)), "a digest is not"),
}


@pytest.mark.parametrize(("lie", "message"), LIES.values(), ids=LIES)
async def test_an_entry_that_breaks_a_rule_or_a_main_file_that_is_not_what_it_says_is_not_loaded(
    observed: Observed, lie: Callable[[str, Any], Any], message: str
) -> None:
    observed.change = lie
    async with Client(observed.server) as client:
        with pytest.raises(VerificationError, match=re.escape(message)):
            await client.load_skill(PDF)


@pytest.mark.parametrize("uri", ["skill://a/../pdf", "skill://a/%2E%2e/pdf", "skill://a/./pdf", "skill://a\n/pdf"])
def test_an_entry_whose_uri_is_not_what_it_looks_like_is_not_loaded(uri: str) -> None:
    main = a_file(f"{uri}/SKILL.md")
    entry = Skill(uri=main.uri, frontmatter={"name": "pdf", "description": "x"}, resources=[main])
    with pytest.raises(VerificationError, match="control character, a space"):
        check_entry(entry)


async def test_a_file_name_that_is_not_utf_8_keeps_its_encoded_form(observed: Observed, tmp_path: Path) -> None:
    (tmp_path / "pdf" / "odd\udcff").write_text("x")
    async with Client(observed.server) as client:
        skill = await client.load_skill(PDF)
        files, text = skill.files, await skill.read("odd%FF")
    assert "odd%FF" in files
    assert text == "x"


# --- generated skills -------------------------------------------------------------------------------------------------


def dynamic_server(body: str = "# Today", big: str = "x") -> Server:
    server = Server("s")

    @server.skill("daily", description="Report", frontmatter={"allowed-tools": "Read Bash(ls:*)"})
    def daily() -> str:
        return body

    server.add_resource("skill://daily/a%20b.md", big)
    return server


async def test_a_generated_skill_is_checked_by_its_frontmatter_alone() -> None:
    async with Client(dynamic_server()) as client:
        skill = await client.load_skill("skill://daily/SKILL.md")
        text = await skill.read("a b.md")
    assert skill.is_dynamic
    assert skill.files == ("SKILL.md",)
    assert skill.requested_tools == ["Read", "Bash(ls:*)"]
    assert text == "x"


async def test_a_generated_skill_with_other_frontmatter_is_not_loaded() -> None:
    async def lie(request: Any, call_next: Any) -> Any:
        return with_text(lambda text: text.replace("Report", "Obey"))("", await call_next(request))

    server = dynamic_server()
    server.add_middleware(lie)
    async with Client(server) as client:
        with pytest.raises(VerificationError, match="differs from the entry in description"):
            await client.load_skill("skill://daily/SKILL.md")


async def test_a_generated_skill_may_not_send_more_than_any_other() -> None:
    big = "x" * (9 * 1024 * 1024)
    async with Client(dynamic_server(big=big)) as client:
        skill = await client.load_skill("skill://daily/SKILL.md")
        await skill.read("a b.md")
        with pytest.raises(VerificationError, match="has sent more than 16777216 bytes"):
            await skill.read("a b.md")


async def test_a_generated_main_file_may_not_be_larger_than_a_skill() -> None:
    async with Client(dynamic_server(body="x" * (17 * 1024 * 1024))) as client:
        with pytest.raises(VerificationError, match="too many for a skill"):
            await client.load_skill("skill://daily/SKILL.md")


# --- without the extension --------------------------------------------------------------------------------------------


CALLS: dict[str, Callable[[Client], Any]] = {
    "list": lambda client: client.list_skills(),
    "get": lambda client: client.get_skill(PDF),
    "load": lambda client: client.load_skill(PDF),
    "directory": lambda client: client.read_directory("skill://pdf"),
}


@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_nothing_is_sent_to_a_server_without_the_extension(call: Callable[[Client], Any], revision: str) -> None:
    methods: list[str] = []

    async def note(request: Any, call_next: Any) -> Any:
        methods.append(request.method)
        return await call_next(request)

    async with Client(Server("s", middleware=[note]), revision=revision) as client:
        methods.clear()
        with pytest.raises(MissingCapability) as caught:
            await call(client)
        assert caught.value.capability == "extensions/io.modelcontextprotocol/skills"
    assert methods == []


async def test_directories_are_read_only_where_they_are_declared(tmp_path: Path) -> None:
    server = Server("s", skills=tmp_path, extensions={"io.modelcontextprotocol/skills": {}})
    async with Client(server) as client:
        assert await client.list_skills() == []
        with pytest.raises(MissingCapability, match="directoryRead, so resources/directory/read was not sent"):
            await client.read_directory("skill://pdf")


async def test_an_unknown_skill_is_the_servers_error(observed: Observed) -> None:
    async with Client(observed.server) as client:
        with pytest.raises(InvalidParams, match="No skill is served at"):
            await client.load_skill("skill://nope/SKILL.md")


def test_a_verification_error_is_one_of_ours() -> None:
    assert issubclass(VerificationError, TrunklineError)


# --- the files that are kept ------------------------------------------------------------------------------------------


async def test_a_kept_file_is_compared_with_the_size_in_each_entry(observed: Observed) -> None:
    async with Client(observed.server) as client:
        skill = await client.get_skill(PDF)
        await client.load_skill(skill)
        files = [replace(each, size=each.size + 1) for each in listed(skill)]
        with pytest.raises(VerificationError, match="bytes, but the entry says"):
            await client.load_skill(replace(skill, resources=files))


def test_verified_files_are_kept_up_to_a_size_and_the_oldest_go_first() -> None:
    kept = VerifiedFiles(limit=10)
    kept.put("a", "1", b"aaaa")
    kept.put("b", "1", b"bbbb")
    assert kept.get("a", "1") == b"aaaa"
    kept.put("c", "1", b"cccc")
    assert [kept.get(uri, "1") for uri in "abc"] == [b"aaaa", None, b"cccc"]


def test_a_kept_file_is_found_only_under_its_digest_and_its_uri() -> None:
    kept = VerifiedFiles(limit=10)
    kept.put("a", "1", b"aaaa")
    kept.put("a", "1", b"bbbb")
    kept.put("b", "1", b"x" * 11)
    assert [kept.get("a", "2"), kept.get("b", "1"), kept.get("a", "1")] == [None, None, b"aaaa"]
