"""What a machine says it can do."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.host.sandbox.test_launch import FULL
from trunkline.host.sandbox import Capabilities, detect_capabilities


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_a_machine_that_can_do_everything_has_nothing_to_say() -> None:
    assert (FULL.kinds, FULL.findings()) == (("bwrap", "landlock", "container"), ())


@pytest.mark.parametrize(
    ("capabilities", "said"),
    [
        (replace(FULL, landlock=0), "landlock sandboxes are not available: the kernel has no Landlock"),
        (replace(FULL, landlock=4), "does not stop a server from sending signals"),
        (replace(FULL, bwrap=None), "bwrap sandboxes are not available: bubblewrap is not installed"),
        (replace(FULL, engines=()), "container sandboxes are not available: neither docker nor podman"),
        (replace(FULL, user=0), "the number of processes cannot be limited for root"),
    ],
)
def test_what_cannot_be_done_is_said_with_the_fix(capabilities: Capabilities, said: str) -> None:
    assert len(capabilities.findings()) == 1
    assert said in capabilities.findings()[0]


def test_an_engine_that_does_not_work_says_why(tmp_path: Path) -> None:
    program(tmp_path, "docker", "echo no daemon >&2; exit 1")
    (engine,) = detect_capabilities(str(tmp_path)).engines
    assert engine.problem == "docker does not work (no daemon); is it running, and may you use it?"


def test_an_engine_that_works_has_no_problem(tmp_path: Path) -> None:
    program(tmp_path, "podman", "exit 0")
    found = detect_capabilities(str(tmp_path))
    assert ([(each.name, each.problem) for each in found.engines], found.obstacle("container")) == (
        [("podman", None)],
        None,
    )


def test_a_bubblewrap_that_is_forbidden_says_why(tmp_path: Path) -> None:
    program(tmp_path, "bwrap", "echo 'setting up uid map: Permission denied' >&2; exit 1")
    found = detect_capabilities(str(tmp_path))
    assert found.bwrap_problem == (
        "bubblewrap does not work here (setting up uid map: Permission denied); allow user namespaces"
    )
