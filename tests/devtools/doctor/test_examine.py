"""What is known before a server is started: the program, what it fetches, and what the machine can do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trunkline.devtools.doctor.checks import TITLES, Check, CheckRecorder
from trunkline.devtools.doctor.examine import check_entry, check_program, check_sandboxes
from trunkline.host.config.model import Provenance, ServerEntry, Source, ValueOrigin, VariableUse
from trunkline.host.sandbox.backends import Capabilities


def program(folder: Path, *words: str, file: str | None = None) -> dict[str, Check]:
    """Look at a command whose program is there."""
    path = folder / words[0]
    path.write_text("", encoding="utf-8")
    path.chmod(0o700)
    recorder = CheckRecorder()
    entry = ServerEntry(name="a", source=Source("given", file), command=words, env={"PATH": str(folder)})
    check_program(recorder, entry, seconds=30, home=folder)
    return {check.id: check for check in recorder.checks}


@pytest.mark.parametrize("words", [("npx", "-y", "@scope/thing@1.2.3"), ("uvx", "thing")])
def test_a_package_that_is_fetched_may_be_late(tmp_path: Path, words: tuple[str, ...]) -> None:
    found = program(tmp_path, *words)["package"]
    assert (found.status, "30 s" in found.detail, "startTimeout" in (found.fix or "")) == ("warn", True, True)


def test_a_package_that_was_fetched_before_is_not(tmp_path: Path) -> None:
    there = tmp_path / ".npm" / "_npx" / "abc" / "node_modules" / "@scope" / "thing"
    there.mkdir(parents=True)
    (there / "package.json").write_text("{}", encoding="utf-8")
    assert "package" not in program(tmp_path, "npx", "-y", "@scope/thing@1.2.3")


def test_what_is_dangerous_about_a_command_in_a_file_is_said(tmp_path: Path) -> None:
    assert "warnings" in program(tmp_path, "npx", "-y", "thing", file="mcp.json")
    assert "warnings" not in program(tmp_path, "npx", "-y", "thing")


def test_an_unanswered_input_is_named_with_its_variable() -> None:
    value = ValueOrigin(key="env.A", shown="", variables=(VariableUse("api-key", "input", "unanswered"),))
    recorder = CheckRecorder()
    entry = ServerEntry(name="a", source=Source("given"), command=(sys.executable,))
    assert not check_entry(recorder, entry, Provenance(values=(value,)))
    assert "TRUNKLINE_INPUT_API_KEY" in (recorder.checks[0].fix or "")


@pytest.mark.parametrize(
    ("landlock", "status"), [pytest.param(4, "ok", id="landlock"), pytest.param(0, "warn", id="nothing")]
)
def test_the_sandbox_support_of_the_machine_is_shown(landlock: int, status: str) -> None:
    recorder = CheckRecorder()
    able = Capabilities(platform="linux", architecture="x86_64", user=1, landlock=landlock, filters=True)
    check_sandboxes(recorder, able)
    assert recorder.checks[0].status == status


def test_a_sheet_hides_what_is_secret_in_detail_and_fix() -> None:
    recorder = CheckRecorder(lambda text: text.replace("s3cret", "***"))
    recorder.fail("config", "a s3cret", fix="not s3cret")
    assert (recorder.checks[0].detail, recorder.checks[0].fix) == ("a ***", "not ***")


def test_every_check_has_a_title_of_its_own() -> None:
    titles = [title for title, _ in TITLES.values()]
    assert len(set(titles)) == len(titles)
