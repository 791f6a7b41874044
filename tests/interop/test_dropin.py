"""Each reference server answers a recorded client script as the official one does, but for what is listed."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path

import pytest

from tests.interop.dropin import harness
from tests.support import run_async

SCRIPTS = sorted(
    path.stem for path in Path(harness.__file__).parent.glob("*.py") if path.stem not in ("__init__", "harness")
)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_same_script_is_answered_the_same_but_for_what_is_listed(name: str, tmp_path: Path) -> None:
    script: harness.Script = importlib.import_module(f"tests.interop.dropin.{name}").SCRIPT
    _skip_unless_there(script)
    folders = tmp_path / "official", tmp_path / "ours"
    for folder in folders:
        folder.mkdir()

    found = run_async(harness.differences(script, *folders), seconds=55)

    assert harness.unexplained(script, found) == []
    assert harness.unused(script, found) == []


def _skip_unless_there(script: harness.Script) -> None:
    programs = [word for word in script.official if word.startswith("/")]
    absent = [word for word in programs if not Path(word).exists() and ".interop" in word]
    if absent or shutil.which(script.official[0]) is None:
        pytest.skip(f"the official server {script.server} is not installed: make interop")
