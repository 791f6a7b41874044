"""The npm server, through a client, with a double of the registry and projects in temporary folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servers.tests.commands import started
from servers.tests.npm.fake_registry import RegistryDouble, registry_double
from tests.support import run_async
from trunkline import Client, ConfigError, ToolError
from trunkline_servers.npm import make_server

REVISIONS = ("2025-06-18", "2026-07-28")


def ask(
    tool: str,
    arguments: dict[str, Any],
    *,
    folder: Path | None = None,
    prepare: Callable[[RegistryDouble], None] = lambda double: None,
    token: str | None = None,
    revision: str = "2026-07-28",
) -> tuple[Any, RegistryDouble]:
    """Call one tool of a server in front of the double; give the structured answer and what the double saw."""

    async def main() -> tuple[Any, RegistryDouble]:
        async with registry_double() as double:
            prepare(double)
            server = make_server([str(folder)] if folder else [], registry=double.url, token=token)
            async with Client(server, revision=revision) as client:
                return (await client.call_tool(tool, arguments)).structured_content, double

    return run_async(main())


def project(folder: Path, manifest: object, lock: object = None) -> Path:
    (folder / "package.json").write_text(json.dumps(manifest))
    lock is None or (folder / "package-lock.json").write_text(json.dumps(lock))
    return folder


# --- the registry ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_search_finds_packages(revision: str) -> None:
    found, double = ask("search", {"query": "pad left&size=9", "limit": 5, "offset": 10}, revision=revision)
    assert found["total"] == 41
    assert [each["name"] for each in found["packages"]] == ["left", ""]
    assert double.paths == ["/-/v1/search?text=pad+left%26size%3D9&size=5&from=10"]


def test_a_version_is_viewed_with_what_it_runs_when_installed() -> None:
    found, double = ask("view", {"name": "left"})
    assert (found["version"], found["install_scripts"], found["license"]) == ("2.1.0", ["postinstall"], "MIT")
    assert double.paths == ["/left/latest"]


def test_a_scoped_name_is_one_segment_of_the_address() -> None:
    found, double = ask("view", {"name": "@scope/right", "version": "0.3.1"})
    assert found["name"] == "@scope/right"
    assert double.paths == ["/%40scope%2Fright/0.3.1"]


def test_versions_are_listed_newest_first() -> None:
    found, _ = ask("versions", {"name": "left", "limit": 4})
    assert found["versions"] == ["3.0.0-beta.1", "2.1.0", "1.10.0", "1.2.0"]
    assert (found["total"], found["deprecated"], found["tags"]["latest"]) == (5, [], "2.1.0")
    assert ask("versions", {"name": "left"})[0]["deprecated"] == ["1.0.0"]


def test_a_package_that_does_not_exist_is_a_clear_error() -> None:
    with pytest.raises(ToolError, match="no such package or version: nowhere"):
        ask("view", {"name": "nowhere"})


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b"7", b'{"versions": [1], "dist-tags": "x"}', b'{"versions": {"a": 1}}']
)
async def test_an_answer_of_another_form_is_empty_or_a_clear_error(body: bytes) -> None:
    def prepare(double: RegistryDouble) -> None:
        double.raw = body

    async with registry_double() as double:
        prepare(double)
        async with Client(make_server(registry=double.url)) as client:
            result = await client.call_tool("versions", {"name": "left"}, raise_on_error=False)
    assert result.is_error is (body == b"<html>")


@pytest.mark.parametrize("url", ["registry.npmjs.org", "http://[", "http://[::1", "https://h:99999", ""])
def test_an_invalid_address_is_refused_at_the_start(url: str) -> None:
    with pytest.raises(ConfigError, match="The address of the npm registry must be a URL"):
        make_server(registry=url)


@pytest.mark.parametrize(
    ("tool", "arguments", "body", "member"),
    [
        ("search", {"query": "x"}, b'{"total": true, "objects": []}', "total"),
        ("search", {"query": "x"}, b'{"total": -1, "objects": []}', "total"),
        ("view", {"name": "left"}, b'{"dist": {"unpackedSize": true}}', "unpacked_size"),
    ],
)
def test_a_number_of_another_form_is_left_out(tool: str, arguments: dict[str, Any], body: bytes, member: str) -> None:
    def prepare(double: RegistryDouble) -> None:
        double.raw = body

    assert ask(tool, arguments, prepare=prepare)[0][member] in (0, None)


@pytest.mark.parametrize(("tool", "arguments"), [("search", {"query": "x"}), ("audit", {})])
def test_a_registry_that_knows_packages_alone_is_a_clear_error(
    tmp_path: Path, tool: str, arguments: dict[str, Any]
) -> None:
    def prepare(double: RegistryDouble) -> None:
        double.is_mirror = True

    with pytest.raises(ToolError, match=r"does not offer \w+ \(405\): start this server with --registry"):
        ask(tool, arguments, folder=project(tmp_path, {}, LOCKS["version-3"]), prepare=prepare)


def test_a_token_is_not_sent_in_the_clear() -> None:
    with pytest.raises(ConfigError, match="must start with https://, since a token is sent there"):
        make_server(registry="http://npm.example.com", token="npm_secret")


# --- audit -----------------------------------------------------------------------------------------------------------

LOCKS = {
    "version-3": {
        "packages": {
            "": {"name": "me", "version": "1.0.0"},
            "node_modules/left": {"version": "1.2.0"},
            "node_modules/a/node_modules/left": {"version": "2.1.0", "dev": True},
            "node_modules/alias": {"name": "@scope/right", "version": "0.3.1"},
            "node_modules/linked": {"link": True, "resolved": "packages/linked"},
            "packages/linked": {"version": "1.0.0"},
            "node_modules/bad": 7,
            "node_modules/odd": {"version": "git+ssh://git@example.com/odd.git#0123abc"},
            "node_modules/../../etc": {"version": "1.0.0"},
        }
    },
    "version-1": {
        "dependencies": {
            "left": {"version": "1.2.0"},
            "a": {"dependencies": {"left": {"version": "2.1.0", "dev": True}}},
            "alias": {"version": "npm:@scope/right@0.3.1"},
            "private": {"version": "git+https://me:hush@git.example.com/private.git#0123abc", "from": "private@git"},
            "beside": {"version": "file:../beside"},
        }
    },
}


def _two_flaws(double: RegistryDouble) -> None:
    row = {"url": "https://x/1", "cwe": [], "cvss": {}}
    double.advisories = {
        "left": [
            {"id": 1, "title": "Spills", "severity": "low", "vulnerable_versions": "<2.0.0", **row},
            {"id": 2, "title": "Leaks", "severity": "critical", "vulnerable_versions": ">=2.0.0 <2.2.0", **row},
            {"id": 3, "title": "Elsewhere", "severity": "high", "vulnerable_versions": ">=5", **row},
        ]
    }


@pytest.mark.parametrize("lock", LOCKS)
def test_an_audit_sends_what_is_locked_and_reports_what_concerns_it(tmp_path: Path, lock: str) -> None:
    report, double = ask("audit", {}, folder=project(tmp_path, {}, LOCKS[lock]), prepare=_two_flaws)
    assert double.bodies == [{"@scope/right": ["0.3.1"], "left": ["1.2.0", "2.1.0"]}]
    assert [(each["title"], each["versions"]) for each in report["vulnerabilities"]] == [
        ("Leaks", ["2.1.0"]),
        ("Spills", ["1.2.0"]),
    ]
    assert (report["packages"], report["counts"]["critical"], report["counts"]["low"]) == (2, 1, 1)


def test_the_current_version_of_an_old_lock_file_is_that_of_the_package(tmp_path: Path) -> None:
    manifest = {"dependencies": {"alias": "npm:left@^1.0.0", "from-git": "^1.0.0"}}
    lock = {"dependencies": {"alias": {"version": "npm:left@1.2.0"}, "from-git": {"version": "git+ssh://g/x#1"}}}
    report, _ = ask("outdated", {}, folder=project(tmp_path, manifest, lock))
    assert [(each["package"], each["current"], each["wanted"]) for each in report["outdated"]] == [
        ("alias", "1.2.0", "1.10.0")
    ]


def test_an_audit_for_production_leaves_development_out(tmp_path: Path) -> None:
    folder = project(tmp_path, {}, LOCKS["version-3"])
    _, double = ask("audit", {"production": True}, folder=folder, prepare=_two_flaws)
    assert double.bodies == [{"@scope/right": ["0.3.1"], "left": ["1.2.0"]}]


def test_an_audit_reports_from_a_severity_on(tmp_path: Path) -> None:
    folder = project(tmp_path, {}, LOCKS["version-3"])
    report, _ = ask("audit", {"level": "moderate"}, folder=folder, prepare=_two_flaws)
    assert [each["title"] for each in report["vulnerabilities"]] == ["Leaks"]


def test_an_audit_without_a_lock_file_names_the_fix(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="npm install --package-lock-only"):
        ask("audit", {}, folder=project(tmp_path, {}))


# --- outdated --------------------------------------------------------------------------------------------------------


def test_outdated_compares_the_lock_the_range_and_the_registry(tmp_path: Path) -> None:
    manifest = {
        "dependencies": {"left": "^1.0.0", "@scope/right": "~0.3.0", "gone": "1", "here": "file:../here", "odd": 7},
        "devDependencies": {"again": "npm:left@next", "none": "npm:left@^9"},
    }
    folder = project(tmp_path, manifest, LOCKS["version-3"])
    report, _ = ask("outdated", {}, folder=folder)
    assert report["outdated"] == [
        {
            "package": "left",
            "spec": "^1.0.0",
            "current": "1.2.0",
            "wanted": "1.10.0",
            "latest": "2.1.0",
            "group": "dependencies",
        }
    ]
    assert report["up_to_date"] == 2
    assert sorted(report["skipped"]) == ["gone", "here", "none"]


# --- projects --------------------------------------------------------------------------------------------------------


def test_scripts_are_listed(tmp_path: Path) -> None:
    found, _ = ask("list_scripts", {}, folder=project(tmp_path, {"scripts": {"a": "echo a", "b": 7}}))
    assert found == {"folder": str(tmp_path.resolve()), "scripts": {"a": "echo a"}}


def test_a_project_below_an_allowed_folder_is_found_by_a_relative_path(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    project(tmp_path / "inner", {"scripts": {"a": "echo"}})
    found, _ = ask("list_scripts", {"path": "inner"}, folder=tmp_path)
    assert found["folder"] == str((tmp_path / "inner").resolve())


async def test_the_folders_of_the_command_reach_the_server(tmp_path: Path) -> None:
    project(tmp_path, {"scripts": {"a": "echo a"}})
    async with Client(started("npm", str(tmp_path)).server) as client:
        assert (await client.call_tool("list_scripts", {})).data["scripts"] == {"a": "echo a"}
