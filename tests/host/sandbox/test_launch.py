"""From an entry to a start: which kind is made, what is refused, and what is told."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.host.sandbox.stage import Stage
from trunkline.errors import ConfigError, LinkError
from trunkline.host.config.model import ServerEntry, Source
from trunkline.host.sandbox import Capabilities, ContainerEngine, LaunchPlan, prepare_launch
from trunkline.host.sandbox.enter_sandbox import unpack

#: A machine that can do everything.
FULL = Capabilities(
    platform="linux",
    architecture="x86_64",
    user=1000,
    landlock=7,
    filters=True,
    bwrap="/usr/bin/bwrap",
    engines=(
        ContainerEngine(name="docker", path="/usr/bin/docker"),
        ContainerEngine(name="podman", path="/usr/bin/podman"),
    ),
)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path, "auto")


def record(launch: LaunchPlan) -> dict[str, Any]:
    return unpack(dict(launch.env))


def planned(stage: Stage, sandbox: dict[str, Any], capabilities: Capabilities = FULL, **more: Any) -> LaunchPlan:
    return prepare_launch(stage.entry(sandbox, **more), folder=stage.state, capabilities=capabilities)


def test_without_a_sandbox_a_server_is_started_as_it_is(tmp_path: Path) -> None:
    entry = ServerEntry(name="a", source=Source("given"), command=("x", "y"), env={"A": "1"}, cwd="/")
    assert prepare_launch(entry, folder=tmp_path) == LaunchPlan(command=("x", "y"), env={"A": "1"}, cwd="/")
    assert list(tmp_path.iterdir()) == []


def test_variables_that_are_given_beat_those_of_the_entry(stage: Stage) -> None:
    launch = prepare_launch(stage.entry({}), env={"ONLY": "this"}, folder=stage.state, capabilities=FULL)
    assert (record(launch)["env"]["ONLY"], "PYTHONPATH" in record(launch)["env"]) == ("this", False)


def test_roots_that_are_given_beat_those_of_the_entry(stage: Stage) -> None:
    launch = prepare_launch(
        stage.entry({"kind": "landlock"}), roots=(str(stage.outside),), folder=stage.state, capabilities=FULL
    )
    opened = [path for path, _ in record(launch)["landlock"]["rules"]]
    assert (str(stage.outside) in opened, str(stage.inside) in opened) == (True, False)


@pytest.mark.parametrize(
    ("capabilities", "made"),
    [
        pytest.param(FULL, "bwrap", id="bubblewrap-first"),
        pytest.param(replace(FULL, bwrap=None), "landlock", id="not-installed"),
        pytest.param(replace(FULL, bwrap_problem="forbidden"), "landlock", id="it-does-not-work"),
    ],
)
def test_auto_takes_bubblewrap_where_it_works_and_else_landlock(
    stage: Stage, capabilities: Capabilities, made: str
) -> None:
    assert planned(stage, {}, capabilities).made == made


@pytest.mark.parametrize(
    ("capabilities", "sandbox", "said"),
    [
        pytest.param(replace(FULL, landlock=0, bwrap=None), {}, "the kernel has no Landlock", id="an-old-kernel"),
        pytest.param(replace(FULL, landlock=2, bwrap=None), {}, "prevent truncating files", id="no-truncate"),
        pytest.param(replace(FULL, platform="darwin", bwrap=None), {}, "Landlock exists only on Linux", id="a-mac"),
        pytest.param(replace(FULL, filters=False), {"kind": "landlock"}, "cannot be filtered", id="no-filters"),
        pytest.param(replace(FULL, filters=False), {"kind": "bwrap"}, "cannot be filtered", id="no-filters-for-bwrap"),
        pytest.param(replace(FULL, bwrap=None), {"kind": "bwrap"}, "install the package bubblewrap", id="no-bwrap"),
        pytest.param(replace(FULL, bwrap_problem="it is forbidden"), {"kind": "bwrap"}, "forbidden", id="forbidden"),
        pytest.param(replace(FULL, user=0), {"limits": {"processes": 9}}, "cannot be limited for root", id="root"),
        pytest.param(replace(FULL, engines=()), {"kind": "container", "container": "a"}, "neither docker", id="none"),
        pytest.param(replace(FULL, engines=FULL.engines[:1]),
                     {"kind": "container", "container": {"image": "a", "engine": "podman"}}, "podman is not installed",
                     id="not-this-engine"),
    ],
)  # fmt: skip
def test_a_sandbox_that_cannot_be_made_keeps_its_server_from_starting(
    stage: Stage, capabilities: Capabilities, sandbox: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(stage, sandbox, capabilities)
    assert said in str(caught.value)
    assert "trying: not started, because its sandbox cannot be set up" in str(caught.value)


def test_a_sandbox_that_is_not_required_is_left_out_and_that_is_said(stage: Stage) -> None:
    launch = planned(stage, {"required": False, "network": False}, replace(FULL, landlock=0, bwrap=None))
    assert launch.made == "limits"
    assert (launch.remark or "").startswith("not sandboxed as configured: the kernel has no Landlock")


def test_a_kernel_that_does_not_block_signals_is_reported(stage: Stage) -> None:
    launch = planned(stage, {"kind": "landlock"}, replace(FULL, landlock=5))
    assert launch.notes == (
        "Landlock here does not stop a server from sending signals to your other programs (Linux 6.12 does)",
    )


def test_a_sandbox_that_is_not_understood_names_where_it_is_written(stage: Stage) -> None:
    with pytest.raises(ConfigError, match=r"^/etc/mcp\.json:7: trying: sandbox\.'x': unknown member"):
        planned(stage, {"x": 1}, source=Source("user", "/etc/mcp.json", 7))


def test_a_program_that_is_not_there_is_said_to_be_missing(stage: Stage) -> None:
    with pytest.raises(LinkError, match="command not found: nothing-like-this"):
        prepare_launch(replace(stage.entry({}), command=("nothing-like-this",)), folder=stage.state, capabilities=FULL)


@pytest.mark.parametrize("kind", ["landlock", "bwrap"])
def test_neither_arguments_nor_variables_stand_on_a_command_line(stage: Stage, kind: str) -> None:
    entry = replace(stage.entry({"kind": kind}, env={"TOKEN": "a secret"}), secrets=frozenset({"a secret"}))
    launch = prepare_launch(entry, folder=stage.state, capabilities=FULL)
    assert "a secret" not in json.dumps(launch.command)


def test_what_steers_a_loader_reaches_the_server_and_not_what_makes_its_sandbox(stage: Stage) -> None:
    launch = planned(stage, {"kind": "landlock"}, env={"LD_PRELOAD": "/evil.so", "PYTHONSTARTUP": "/evil.py"})
    assert not {"LD_PRELOAD", "PYTHONSTARTUP"} & set(launch.env)
    assert record(launch)["env"]["LD_PRELOAD"] == "/evil.so"


def test_the_private_folder_is_for_its_owner_alone(stage: Stage) -> None:
    planned(stage, {})
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (stage.state / "sandboxes" / "trying").iterdir()]
    assert modes == [0o700, 0o700]


def test_a_name_of_a_server_cannot_leave_the_folder_for_private_ones(stage: Stage) -> None:
    planned(stage, {}, name="../../outside")
    assert [path.name for path in (stage.state / "sandboxes").iterdir()] == [".._.._outside"]


def test_temporary_files_of_servers_that_ended_are_removed(stage: Stage) -> None:
    left = stage.state / "sandboxes" / "trying" / "tmp" / "999999999"
    left.mkdir(parents=True)
    (left / "way-out").symlink_to(stage.outside)
    planned(stage, {})
    assert (left.exists(), stage.secret.exists()) == (False, True)


def test_temporary_files_of_a_server_that_runs_are_left_alone(stage: Stage) -> None:
    planned(stage, {})
    own = stage.state / "sandboxes" / "trying" / "tmp" / "1"
    own.mkdir()
    planned(stage, {})
    assert own.exists()


# --- the host's own files --------------------------------------------------------------------------------------------


def test_landlock_refuses_a_root_in_which_the_host_keeps_its_files(stage: Stage) -> None:
    with pytest.raises(
        ConfigError, match="where the host keeps its own files, is inside a folder that the server may access"
    ):
        planned(stage, {"kind": "landlock"}, roots=(str(stage.folder),))


def test_bubblewrap_hides_what_the_host_keeps_in_a_root(stage: Stage) -> None:
    launch = planned(stage, {"kind": "bwrap"}, roots=(str(stage.folder),))
    words = record(launch)["bwrap"]["words"]
    bound, hidden = words.index(str(stage.folder)), words.index(str(stage.state))
    assert (bound < hidden, words[hidden - 1]) == (True, "--tmpfs")


def test_a_root_in_the_host_s_own_folder_is_left_out(stage: Stage) -> None:
    launch = planned(stage, {}, roots=(str(stage.state),))
    assert launch.notes == (f"{stage.state} is left out of the sandbox: the host keeps its own files there",)


def test_a_server_that_could_change_its_own_entry_is_reported(stage: Stage) -> None:
    launch = planned(stage, {}, source=Source("given", str(stage.inside / "mcp.json"), 1))
    assert launch.notes == (f"it can change {stage.inside / 'mcp.json'}, which contains its own entry",)


def test_a_project_s_server_needs_no_such_word_since_its_approval_would_not_hold(stage: Stage) -> None:
    assert planned(stage, {}, source=Source("project", str(stage.inside / "mcp.json"), 1)).notes == ()
