"""The sandbox for one who is not root: none of it needs a privilege, and what only holds for such a user does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.host.sandbox.stage import ABLE, needs
from trunkline.host.config.model import ServerEntry, ServerSettings, Source
from trunkline.host.sandbox import prepare_launch

_NOBODY = 65534
#: A Python that everybody can run, and programs of ours that everybody can read.
_PYTHON = sys.executable if os.getuid() else shutil.which("python3", path="/usr/bin:/bin")

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="these sandboxes are of Linux"),
    pytest.mark.skipif(_PYTHON is None, reason="there is no Python that another user could run"),
]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the user's own, in one that the user can enter."""
    with tempfile.TemporaryDirectory() as name:
        for each in ("inside", "state", "outside"):
            Path(name, each).mkdir()
        Path(name, "outside", "secret").write_text("secret")
        yield Path(name)


def output(folder: Path, code: str, kind: str, **sandbox: Any) -> str:
    """Run code in a sandbox as another user, if this one is root; give what it printed."""
    user = os.getuid() or _NOBODY
    entry = ServerEntry(
        name="a",
        source=Source("given"),
        command=(str(_PYTHON), "-c", code),
        settings=ServerSettings(sandbox={"kind": kind, **sandbox}, roots=(str(folder / "inside"),)),
    )
    launch = prepare_launch(entry, folder=folder / "state", capabilities=replace(ABLE, user=user))
    other: dict[str, Any] = {"user": user, "group": user, "extra_groups": []} if os.getuid() == 0 else {}
    for path in (folder, *folder.rglob("*")) if other else ():
        os.chown(path, user, user)
    command = [str(_PYTHON), *launch.command[1:]]
    ended = subprocess.run(
        command, env=dict(launch.env), cwd=folder, capture_output=True, text=True, timeout=120, check=False, **other
    )
    if "No module named 'entering'" in ended.stderr:
        pytest.skip("another user cannot read the package here")
    return f"{ended.stdout}{ended.stderr}"


@pytest.mark.parametrize(
    "kind", [pytest.param("landlock", marks=needs("landlock")), pytest.param("bwrap", marks=needs("bwrap"))]
)
def test_files_outside_are_kept_from_one_who_is_not_root(folder: Path, kind: str) -> None:
    code = f"import os; os.listdir({str(folder / 'inside')!r}); print('in'); open({str(folder / 'outside/secret')!r})"
    said = output(folder, code, kind)
    assert said.startswith("in\n")
    assert said.endswith("Permission denied: '" + str(folder / "outside/secret") + "'\n") or "No such file" in said


@needs("landlock")
def test_no_privilege_is_left(folder: Path) -> None:
    code = "print([line for line in open('/proc/self/status') if line.startswith(('CapPrm', 'NoNewPrivs'))])"
    assert output(folder, code, "landlock") == "['CapPrm:\\t0000000000000000\\n', 'NoNewPrivs:\\t1\\n']\n"


@needs("landlock")
def test_processes_are_limited(folder: Path) -> None:
    code = """
import os, signal
children = []
try:
    for count in range(200):
        child = os.fork()
        if child == 0:
            signal.pause()
        children.append(child)
    print("no end")
except BlockingIOError:
    print("refused", len(children) <= 20)
for child in children:
    os.kill(child, signal.SIGKILL)
"""
    assert output(folder, code, "landlock", limits={"processes": 20}) == "refused True\n"
