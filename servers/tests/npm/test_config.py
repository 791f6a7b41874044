"""Which registry is used, with which token: the user's npm configuration, and what a project may change."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from servers.tests.npm.fake_registry import RegistryDouble, registry_double
from servers.tests.npm.test_npm import project
from tests.support import run_async
from trunkline import Client, ConfigError, ToolError
from trunkline_servers.npm import make_server
from trunkline_servers.npm.config import DEFAULT_REGISTRY, NpmConfig, RegistryEndpoint, expand_variables, parse_npmrc
from trunkline_servers.npm.registry import RegistryPool

OURS = "https://npm.example.com"


class Desk:
    """A home and a project, each with an ``.npmrc`` if it is given one."""

    def __init__(self, folder: Path) -> None:
        """Make the two folders."""
        self.home = folder / "home"
        self.project = folder / "project"
        self.home.mkdir()
        self.project.mkdir()

    def place(
        self,
        package: str | None = None,
        *,
        user: str | None = None,
        theirs: str | None = None,
        env: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> RegistryEndpoint:
        """Return the registry of a package."""
        user is None or (self.home / ".npmrc").write_text(user)
        theirs is None or (self.project / ".npmrc").write_text(theirs)
        settings = NpmConfig({"HOME": str(self.home), **(env or {})}, token=token)
        return settings.read(self.project).place(package)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Two empty folders."""
    return Desk(tmp_path)


# --- the format ------------------------------------------------------------------------------------------------------

LINES = r"""
; a remark
# another
quoted = "https://a.example/x"
single='https://b.example'
remarked = https://c.example ; behind
escaped=https://d.example/a\;b\#c\x\\d
filled=${HOST}/x
kept=\${HOST}/x
unset=${UNSET}/x
optional=${UNSET?}/x
"name"=q
odd="a"b"
several=x=y=z
twice=1
twice=2
@acme:registry=https://e.example/
[section]
inside=1
"""
READ = {
    "quoted": "https://a.example/x",
    "single": "https://b.example",
    "remarked": "https://c.example",
    "escaped": r"https://d.example/a;b#c\x\d",
    "filled": "https://env.example/x",
    "kept": "${HOST}/x",
    "unset": "${UNSET}/x",
    "optional": "/x",
    "name": "q",
    "odd": '"a"b"',
    "several": "x=y=z",
    "twice": "2",
    "@acme:registry": "https://e.example/",
}
ENV = {"HOST": "https://env.example"}


def test_the_lines_are_read_as_npm_reads_them() -> None:
    assert {name: expand_variables(value, ENV) for name, value in parse_npmrc(LINES).items()} == READ


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_npm_itself_parses_them_the_same_way(desk: Desk) -> None:
    (desk.home / ".npmrc").write_text(LINES)
    env = {**ENV, "HOME": str(desk.home), "PATH": os.environ["PATH"]}
    said = subprocess.run(
        ["npm", "config", "get", *READ], cwd=desk.project, env=env, capture_output=True, text=True, timeout=120
    )
    assert said.stdout.splitlines() == [f"{name}={value}" for name, value in READ.items()]


@pytest.mark.parametrize(
    "text", ["", "\ufeff", "=", "= x", "[", "[]\nregistry=x", "a[]=1", "\x00", '"', "a", "\\"], ids=repr
)
def test_lines_that_set_nothing_are_passed_over(text: str) -> None:
    assert "registry" not in parse_npmrc(text)


def test_a_list_of_many_variables_is_filled_in_quickly() -> None:
    assert expand_variables("${A}" * 50_000 + "\\" * 50_000 + "${" * 50_000, {"A": ""}) == "\\" * 50_000 + "${" * 50_000


# --- whose setting counts --------------------------------------------------------------------------------------------


USER = "registry=https://n.example/\n//n.example/:_authToken=abc\n//registry.npmjs.org/:_authToken=def"
THEIRS = {"user": "registry=https://u.example", "theirs": "registry=https://p.example"}
SCOPED = f"registry=https://u.example\n@acme:registry={OURS}"
FOLDERS = "registry=https://n.example/a/\n//n.example/:_authToken=host\n//n.example/a/:_authToken=folder"
FILLED = "registry=https://${HOST}/\n//${HOST}/:_authToken=${TOKEN}"
NAMED = {"npm_config_//n.example/:_authToken": "abc", "npm_config_registry": "https://n.example"}
DEFAULT = RegistryEndpoint(DEFAULT_REGISTRY)
#: A package, the settings of user, project, environment and token variable, and the registry that they lead to.
PLACES: list[tuple[str | None, dict[str, Any], RegistryEndpoint]] = [
    ("left", {}, DEFAULT),
    (None, {**THEIRS, "env": {"npm_config_registry": OURS}}, RegistryEndpoint(OURS)),
    (None, {**THEIRS, "env": {"npm_Config_Registry": OURS}}, RegistryEndpoint(OURS)),
    (None, THEIRS, RegistryEndpoint("https://p.example", None, True)),
    (None, {"user": f"registry = {OURS}/"}, RegistryEndpoint(f"{OURS}/")),
    ("@acme/x", {"user": SCOPED}, RegistryEndpoint(OURS)),
    ("@other/x", {"user": SCOPED}, RegistryEndpoint("https://u.example")),
    ("acme", {"user": SCOPED}, RegistryEndpoint("https://u.example")),
    ("@acme/x", {"theirs": f"@acme:registry={OURS}", "env": NAMED}, RegistryEndpoint(OURS, None, True)),
    (
        None,
        {"user": FILLED, "env": {"HOST": "n.example", "TOKEN": "abc"}},
        RegistryEndpoint("https://n.example/", "abc"),
    ),
    (None, {"user": FOLDERS}, RegistryEndpoint("https://n.example/a/", "folder")),
    (None, {"env": NAMED}, RegistryEndpoint("https://n.example", "abc")),
    (None, {"user": "//registry.npmjs.org/:_authToken=${NOT_SET}"}, DEFAULT),
    (None, {"token": "abc"}, RegistryEndpoint(DEFAULT_REGISTRY, "abc")),
    (None, {"user": f"registry={OURS}/", "token": "abc"}, RegistryEndpoint(f"{OURS}/", "abc")),
    # A project may name the user's registry or one of this machine, replace no token, and set nothing else.
    (
        None,
        {"user": USER, "theirs": "registry=https://n.example/"},
        RegistryEndpoint("https://n.example/", "abc", True),
    ),
    (None, {"user": USER, "theirs": "//n.example/:_authToken=x"}, RegistryEndpoint("https://n.example/", "abc")),
    (None, {"theirs": "registry=http://127.0.0.1:4873"}, RegistryEndpoint("http://127.0.0.1:4873", None, True)),
    (None, {"theirs": "registry=http://localhost:4873/"}, RegistryEndpoint("http://localhost:4873/", None, True)),
    (None, {"theirs": "registry=http://[::1]:4873/"}, RegistryEndpoint("http://[::1]:4873/", None, True)),
    ("@acme/x", {"theirs": "REGISTRY=https://evil.example\nproxy=https://evil.example"}, DEFAULT),
    ("@acme/x", {"theirs": "@acme=https://evil.example\n@acme:other=https://evil.example"}, DEFAULT),
    ("@acme/x", {"theirs": "acme:registry=https://evil.example\ncafile=https://evil.example"}, DEFAULT),
]


@pytest.mark.parametrize(("package", "settings", "endpoint"), PLACES, ids=range(len(PLACES)))
def test_whose_setting_counts(
    desk: Desk, package: str | None, settings: dict[str, Any], endpoint: RegistryEndpoint
) -> None:
    assert desk.place(package, **settings) == endpoint


def test_the_environment_may_name_a_scope_and_another_file(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("registry=https://o.example")
    env = {"npm_config_userconfig": str(tmp_path / "other"), "npm_config_@acme:registry": OURS}
    assert [desk.place(each, env=env).url for each in ("@acme/x", "x")] == [OURS, "https://o.example"]


@pytest.mark.parametrize("env", [{"npm_config_userconfig": os.devnull}, {"HOME": ""}], ids=["none", "homeless"])
def test_there_may_be_no_users_file(desk: Desk, env: dict[str, str]) -> None:
    assert desk.place(user=f"registry={OURS}", env=env).url == DEFAULT_REGISTRY


def test_a_project_in_the_home_folder_has_the_users_file_and_no_other(desk: Desk) -> None:
    (desk.home / ".npmrc").write_text("registry=http://plain.example\n")
    found = NpmConfig({"HOME": str(desk.home)}).read(desk.home).place()
    assert found == RegistryEndpoint("http://plain.example")


def test_the_file_that_the_environment_names_may_be_counted_from_the_home_folder(desk: Desk) -> None:
    (desk.home / "work").write_text(f"registry={OURS}")
    assert desk.place(env={"npm_config_userconfig": "~/work"}).url == OURS


def test_a_registry_of_the_command_line_is_the_only_one(desk: Desk) -> None:
    (desk.home / ".npmrc").write_text("@acme:registry=https://u.example")
    settings = NpmConfig({"HOME": str(desk.home), "npm_config_registry": "https://e.example"}, registry=OURS, token="t")
    assert settings.read(desk.project).place("@acme/x") == RegistryEndpoint(OURS, "t")


# --- tokens ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("registry", "key", "token"),
    [
        pytest.param("https://n.example/", "//n.example/", "abc", id="host"),
        pytest.param("https://n.example", "//n.example", "abc", id="no-slash"),
        pytest.param("https://N.Example/", "//n.EXAMPLE/", "abc", id="case"),
        pytest.param("https://n.example/a/b/", "//n.example/a/", "abc", id="folder-above"),
        pytest.param("https://n.example:443/", "//n.example/", "abc", id="port-of-the-scheme"),
        pytest.param("https://n.example:8443/", "//n.example:8443/", "abc", id="port"),
        pytest.param("https://[2001:db8::1]/", "//[2001:db8::1]/", "abc", id="ipv6"),
        pytest.param("https://n.example:8443/", "//n.example/", None, id="other-port"),
        pytest.param("https://n.example/ab/", "//n.example/a/", None, id="other-folder"),
        pytest.param("https://n.example.evil.example/", "//n.example/", None, id="longer-host"),
        pytest.param("https://x.n.example/", "//n.example/", None, id="host-below"),
        pytest.param("https://n.example/", "//", None, id="no-host"),
        pytest.param("https://n.example/", "", None, id="for-all"),
    ],
)
def test_a_token_goes_to_the_host_it_was_written_for(desk: Desk, registry: str, key: str, token: str | None) -> None:
    assert desk.place(user=f"registry={registry}\n{key}:_authToken=abc").token == token


def test_an_invalid_token_is_refused_without_being_shown(desk: Desk) -> None:
    with pytest.raises(ToolError, match=r"//registry\.npmjs\.org/:_authToken is not a valid token") as refused:
        desk.place(user="//registry.npmjs.org/:_authToken=hun ter2")
    assert "hun" not in str(refused.value)


# --- what a project may not ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "theirs",
    [
        "registry=https://evil.example",
        "registry=https://n.example.evil.example/",
        "registry=https://evil.example/n.example/",
        "registry=https://evil.example\n//evil.example/:_authToken=${NPM_TOKEN}",
        "registry=https://evil.example\n//evil.example/:_authToken=${SECRET}",
        "registry=https://evil.example\n_authToken=${SECRET}",
        "registry=https://evil.example\nuserconfig=/etc/passwd",
        "registry=https://n.example:8443/",
        "registry=https://\uff4e.example/",
    ],
)
def test_a_project_gets_no_token_for_another_host(desk: Desk, theirs: str) -> None:
    found = desk.place(user=USER, theirs=theirs, env={"NPM_TOKEN": "tok", "SECRET": "s"}, token="tok")
    assert (found.token, found.from_project) == (None, True)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://evil.example", "must start with https://"),
        ("http://127.0.0.1.evil.example", "must start with https://"),
        ("http://x.localhost", "must start with https://"),
        ("http://10.0.0.1", "must start with https://"),
        ("https://evil.example/${SECRET}/", "variables are not expanded for a project"),
        ("https://${SECRET?}.evil.example/", "variables are not expanded for a project"),
        ("https://n.example/a/../b/", "is not a URL"),
        ("https://n.example/a/%2e%2E/b/", "is not a URL"),
        ("https://n.example/a/x%2F..%2f../b/", "is not a URL"),
        ("https://n.example/a/%5c..%5Cb/", "is not a URL"),
        ("https://n.example/a/%252e%252e/b/", "is not a URL"),
        ("https://n.example/a/..%3Bx/b/", "is not a URL"),
        ("https://n.example@evil.example/", "is not a URL"),
        ("https://n.example\\@evil.example/", "is not a URL"),
        ("https://evil.example/?x=", "is not a URL"),
        ("https://", "is not a URL"),
        ("https://[evil", "is not a URL"),
        ("https://evil.example:99999/", "is not a URL"),
        ("file:///etc/passwd", "is not a URL"),
        ("evil.example", "is not a URL"),
        ("https://a b", "is not a URL"),
        ("https://a\x1b[31m", "is not a URL"),
    ],
)
def test_a_registry_that_a_project_may_not_choose_is_refused(desk: Desk, url: str, why: str) -> None:
    with pytest.raises(ToolError, match="start this server with --registry") as refused:
        desk.place(user=USER, theirs=f"registry={url}", env={"SECRET": "hunter2"})
    said = str(refused.value)
    assert (why in said, "hunter2" in said, said.isprintable()) == (True, False, True)


def test_a_projects_file_that_is_a_link_is_refused(desk: Desk) -> None:
    (desk.project / ".npmrc").symlink_to(desk.home / "elsewhere")
    with pytest.raises(ToolError, match=r"\.npmrc in .* cannot be read"):
        desk.place()


def test_a_projects_file_that_is_too_large_is_refused(desk: Desk) -> None:
    with pytest.raises(ToolError, match="larger than 262144 bytes"):
        desk.place(theirs="#" * 262145)


def test_a_users_registry_with_a_variable_that_is_not_set_is_refused(desk: Desk) -> None:
    with pytest.raises(ToolError, match="a variable in it is not set"):
        desk.place(user="registry=https://${NOT_SET}/")


# --- through the tools -----------------------------------------------------------------------------------------------


def ask(
    desk: Desk,
    tool: str,
    arguments: dict[str, Any],
    *,
    user: str = "",
    theirs: str = "",
    token: str | None = None,
) -> tuple[Any, RegistryDouble, RegistryDouble]:
    """Call a tool with two registries about, USER and THEIRS; give the answer and what each of them saw."""

    async def main() -> tuple[Any, RegistryDouble, RegistryDouble]:
        async with registry_double() as ours, registry_double() as other:
            ours.advisories = other.advisories = {}
            for path, text in ((desk.home, user), (desk.project, theirs)):
                (path / ".npmrc").write_text(text.replace("USER", ours.url).replace("THEIRS", other.url))
            server = make_server([str(desk.project)], environ={"HOME": str(desk.home)}, token=token)
            async with Client(server) as client:
                return (await client.call_tool(tool, arguments)).structured_content, ours, other

    return run_async(main())


def test_the_registry_of_the_users_file_is_asked_and_named(desk: Desk) -> None:
    found, ours, _ = ask(desk, "view", {"name": "left"}, user="registry=USER/", token="abc")
    assert (found["registry"], ours.paths, ours.tokens) == (ours.url, ["/left/latest"], ["Bearer abc"])


@pytest.mark.parametrize(
    ("tool", "arguments"), [("view", {"name": "left"}), ("versions", {"name": "left"}), ("search", {"query": "x"})]
)
def test_a_projects_registry_is_asked_where_the_project_is_named(
    desk: Desk, tool: str, arguments: dict[str, Any]
) -> None:
    given = {"user": "registry=USER", "theirs": "registry=THEIRS", "token": "abc"}
    alone, ours, theirs = ask(desk, tool, arguments, **given)
    assert (alone["registry"], len(theirs.paths), ours.tokens) == (ours.url, 0, ["Bearer abc"])
    named, ours, theirs = ask(desk, tool, {**arguments, "path": "."}, **given)
    assert (named["registry"], len(ours.paths), theirs.tokens) == (theirs.url, 0, [None])


LOCK = {"packages": {"node_modules/left": {"version": "1.2.0"}, "node_modules/@scope/right": {"version": "0.3.1"}}}
BOTH = {"user": "registry=USER", "theirs": "@scope:registry=THEIRS", "token": "abc"}


def test_an_audit_asks_each_registry_for_its_own_packages(desk: Desk) -> None:
    project(desk.project, {}, LOCK)
    found, ours, theirs = ask(desk, "audit", {}, **BOTH)
    assert (ours.bodies, theirs.bodies) == ([{"left": ["1.2.0"]}], [{"@scope/right": ["0.3.1"]}])
    assert (ours.tokens, theirs.tokens) == (["Bearer abc"], [None])
    assert (found["packages"], sorted(found["registries"])) == (2, sorted([ours.url, theirs.url]))


def test_an_audit_says_which_scope_was_not_looked_at(desk: Desk) -> None:
    project(desk.project, {}, LOCK)
    found, ours, _ = ask(desk, "audit", {}, user="registry=USER", theirs="@scope:registry=http://evil.example")
    assert (found["packages"], found["registries"], ours.bodies) == (1, [ours.url], [{"left": ["1.2.0"]}])
    assert "must start with https://" in found["skipped"]["@scope"]


def test_an_audit_goes_on_where_the_registry_of_a_scope_does_not_answer(desk: Desk) -> None:
    project(desk.project, {}, LOCK)
    found, *_ = ask(desk, "audit", {}, user="registry=USER", theirs="@scope:registry=http://127.0.0.1:1")
    assert (found["packages"], "cannot be reached" in found["skipped"]["@scope"]) == (1, True)


@pytest.mark.parametrize(("theirs", "kept"), [("", True), (f"registry={OURS}", False)], ids=["users", "projects"])
async def test_only_the_registries_of_the_user_stay_open_after_a_call(desk: Desk, theirs: str, kept: bool) -> None:
    (desk.project / ".npmrc").write_text(theirs)
    registries = RegistryPool(NpmConfig({"HOME": str(desk.home)}))
    async with aclosing(registries):
        async with registries.chosen(desk.project) as chosen:
            first = chosen.of("left")
            assert chosen.of("right") is first
        async with registries.chosen(desk.project) as chosen:
            assert (chosen.of("left") is first) is kept


def test_outdated_asks_each_registry_for_its_own_packages(desk: Desk) -> None:
    project(desk.project, {"dependencies": {"left": "^1.0.0", "@scope/right": "^0.1.0"}})
    found, ours, theirs = ask(desk, "outdated", {}, **BOTH)
    assert (ours.paths, theirs.paths) == (["/left"], ["/%40scope%2Fright"])
    assert found["registries"] == sorted([ours.url, theirs.url])


async def test_a_token_that_a_registry_repeats_is_not_passed_on(desk: Desk) -> None:
    async with registry_double() as double:
        double.refusal = (500, {"error": "bad token npm_hunter2"})
        server = make_server(registry=double.url, token="npm_hunter2", environ={})
        async with Client(server) as client:
            result = await client.call_tool("view", {"name": "left"}, raise_on_error=False)
            said = str(result.content[0])
    assert ("[token]" in said, "hunter2" in said) == (True, False)


def test_the_users_token_is_not_sent_in_the_clear(desk: Desk) -> None:
    user = "registry=http://n.example/\n//n.example/:_authToken=abc"
    with pytest.raises(ToolError, match="must start with https://, since a token is sent there"):
        ask(desk, "view", {"name": "left"}, user=user)


def test_a_token_with_spaces_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match="NPM_TOKEN is not a valid token"):
        make_server(token="a b", environ={})


def test_the_users_file_may_be_a_link(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "dotfile").write_text(f"registry={OURS}")
    (desk.home / ".npmrc").symlink_to(tmp_path / "dotfile")
    assert desk.place().url == OURS


def test_a_home_folder_that_is_a_link_is_the_users_all_the_same(desk: Desk, tmp_path: Path) -> None:
    (desk.home / ".npmrc").write_text("registry=http://plain.example\n")
    (tmp_path / "link").symlink_to(desk.home)
    assert NpmConfig({"HOME": str(tmp_path / "link")}).read(desk.home).place() == RegistryEndpoint(
        "http://plain.example"
    )
