"""Landlock as kernels of other versions have it: each keeps to what it promises."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.host.sandbox.stage import ABLE, SECRET, Stage, needs

pytestmark = [needs("landlock"), pytest.mark.skipif(sys.platform != "linux", reason="Landlock exists only on Linux")]

#: Those that this kernel can stand in for: it knows all that they know.
VERSIONS = [
    pytest.param(version, marks=pytest.mark.skipif(ABLE.landlock < version, reason="the kernel is older"))
    for version in range(3, 8)
]


@pytest.mark.parametrize("version", VERSIONS)
def test_files_outside_are_kept_by_every_version_that_is_taken(tmp_path: Path, version: int) -> None:
    stage = Stage(tmp_path, "landlock")
    inside, read, emptied = stage.tries(
        ("rename", {"path": str(stage.inside / "note"), "to": str(stage.inside / "moved")}),
        ("read", {"path": str(stage.secret)}),
        ("truncate", {"path": str(stage.secret)}),
        more={"capabilities": replace(ABLE, landlock=version)},
    )
    assert (inside, read.startswith("refused"), emptied.startswith("refused")) == ("done", True, True)
    assert stage.secret.read_text() == SECRET
