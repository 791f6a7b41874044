"""What is published: one version, a description that PyPI can show, and a workflow that may do no more than it must."""

from __future__ import annotations

import re
import tomllib
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.docs.pages import ROOT, blocks
from tests.release.check import Archive, faults, faults_of_tag, relative_links, wrong_pins

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
FOLDERS = [ROOT / path for path in re.findall(r"^DISTRIBUTIONS := (.+)$", MAKEFILE, re.M)[0].split()]
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"


def _project(folder: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    return project


def _version(folder: Path) -> str:
    source = folder / _project(folder)["tool"]["hatch"]["version"]["path"]
    [version] = re.findall(r'^__version__ = "(.+)"$', source.read_text(encoding="utf-8"), re.M)
    return str(version)


def test_every_distribution_of_the_repository_is_built() -> None:
    projects = [ROOT / "pyproject.toml", *ROOT.glob("*/pyproject.toml")]
    assert sorted(FOLDERS) == sorted(path.parent for path in projects)


def test_all_distributions_have_one_version_and_require_it_of_each_other() -> None:
    [version] = {_version(folder) for folder in FOLDERS}
    projects = [_project(folder)["project"] for folder in FOLDERS]
    extras = [extra for project in projects for extra in project.get("optional-dependencies", {}).values()]
    requirements = [one for group in (*(project["dependencies"] for project in projects), *extras) for one in group]
    of_others = [one for one in requirements if not re.fullmatch(r"trunkline\[[\w,]+\]", one)]  # an extra of its own
    assert wrong_pins(of_others, {project["name"] for project in projects}, version) == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_description_needs_nothing_of_the_repository(folder: Path) -> None:
    assert relative_links((folder / _project(folder)["project"]["readme"]).read_text(encoding="utf-8")) == []


def test_the_description_shows_the_server_and_the_commands_of_the_readme() -> None:
    """Its other block installs from PyPI, where README installs the clone."""
    of_readme = {block.text for block in blocks(ROOT / "README.md")}
    of_description = [block.text for block in blocks(ROOT / "PYPI.md")]
    assert [text.partition(" ")[0] for text in of_description if text not in of_readme] == ["pip"]
    assert len(of_description) == 3


# --- the check of what was built --------------------------------------------------------------------------------------


def _archive(file: str, *members: str, requires: str = "other==1.0", description: str = "") -> Archive:
    metadata = Message()
    fields = {"Name": file.partition("-")[0], "Version": "1.0", "Summary": "s", "License-Expression": "MIT"}
    fields |= {"License-File": "LICENSE", "Requires-Python": ">=3.11", "Description-Content-Type": "text/markdown"}
    for name, value in {**fields, "Requires-Dist": requires}.items():
        metadata[name] = value
    metadata.set_payload(description)
    return Archive(file, metadata, frozenset(members))


GOOD = [
    _archive("ours-1.0.tar.gz", "PKG-INFO", "src/ours/py.typed", "src/ours/a.py"),
    _archive("ours-1.0-py3-none-any.whl", "ours/py.typed", "ours/a.py", "ours-1.0.dist-info/METADATA"),
]


def test_a_good_release_has_no_fault() -> None:
    assert list(faults(GOOD)) == []


@pytest.mark.parametrize(
    ("sdist", "wheel", "fault"),
    [
        pytest.param(GOOD[0], _archive("ours-1.0-py3-none-any.whl", "ours/py.typed"), "differs", id="a-missing-module"),
        pytest.param(_archive("ours-1.0.tar.gz", "tests/a.py"), GOOD[1], "not needed", id="tests-in-the-sdist"),
        pytest.param(GOOD[0], _archive("ours-1.0-py3-none-any.whl", "ours/a.py"), "no py.typed", id="no-types"),
        pytest.param(
            GOOD[0], _archive("ours-1.0-x.whl", "ours/__pycache__/a.pyc"), "made by running", id="compiled-files"
        ),
        pytest.param(GOOD[0]._replace(metadata=Message()), GOOD[1], "different versions", id="another-version"),
        pytest.param(_archive("ours-1.0.tar.gz", requires="ours[http]>=1"), GOOD[1], "ours[http]>=1", id="a-range"),
        pytest.param(
            _archive("ours-1.0.tar.gz", description="![x](docs/x.png)"), GOOD[1], "docs/x.png", id="a-picture"
        ),
    ],
)
def test_a_fault_of_a_release_is_reported(sdist: Archive, wheel: Archive, fault: str) -> None:
    assert [line for line in faults([sdist, wheel]) if fault in line] != []


def test_a_tag_is_released_only_with_its_version_a_changelog_and_links() -> None:
    wrong = " ".join(faults_of_tag(GOOD, "v1.1", "## [Unreleased]\n\n## [1.0]\n"))
    assert "the tag v1.1 is not v1.0" in wrong
    assert "[project.urls]" in wrong
    assert '"## [1.1]"' in wrong


# --- the workflow -----------------------------------------------------------------------------------------------------


def test_the_workflow_publishes_with_a_short_lived_identity_and_no_other_right() -> None:
    workflow = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {}
    rights = {name: job["permissions"] for name, job in workflow["jobs"].items()}
    assert rights == {"build": {"contents": "read"}, "publish": {"id-token": "write"}}
    assert "secrets." not in WORKFLOW.read_text(encoding="utf-8")


def test_the_workflow_pins_every_action_to_a_commit() -> None:
    used = re.findall(r"uses: (.+)$", WORKFLOW.read_text(encoding="utf-8"), re.M)
    assert [one for one in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v[\d.]+", one)] == []
    assert len(used) == 5


def test_what_may_publish_runs_no_code_of_the_repository() -> None:
    steps = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]["publish"]["steps"]
    assert [step for step in steps if "run" in step or "checkout" in step.get("uses", "")] == []
