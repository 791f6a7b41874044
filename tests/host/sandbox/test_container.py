"""Servers in containers: what the engine is told, and that a container ends with its server."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.host.sandbox import fake_engine
from tests.host.sandbox.stage import Stage
from tests.host.sandbox.test_launch import FULL, planned, record
from tests.support import run_async
from trunkline import Client
from trunkline.errors import ConfigError
from trunkline.host.sandbox import Capabilities, ContainerEngine, LaunchPlan, prepare_launch


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path, "container")


def words(stage: Stage, capabilities: Capabilities = FULL, image: Any = "python:3", **more: Any) -> list[str]:
    sandbox = more.pop("sandbox", {})
    found: list[str] = record(planned(stage, {"container": image, **sandbox}, capabilities, **more))["argv"]
    return found


def test_a_container_has_no_privileges_and_is_fed_by_its_input_alone(stage: Stage) -> None:
    assert {
        "run",
        "--rm",
        "--interactive",
        "--init",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--read-only",
        "--log-driver=none",
        "--label=trunkline.server=trying",
    } <= set(words(stage))


@pytest.mark.parametrize(
    ("sandbox", "word"),
    [
        ({}, "--mount=type=bind,source={inside},target={inside},readonly"),
        ({"readOnly": False}, "--mount=type=bind,source={inside},target={inside}"),
        ({"read": ["{outside}"]}, "--mount=type=bind,source={outside},target={outside},readonly"),
        ({"write": ["{outside}"]}, "--mount=type=bind,source={outside},target={outside}"),
        ({"network": False}, "--network=none"),
        ({"limits": {"memory": "1G"}}, "--memory=1073741824"),
        ({"limits": {"processes": 20}}, "--pids-limit=20"),
        ({"limits": {"files": 64}}, "--ulimit=nofile=64:64"),
        ({"limits": {"cpuSeconds": 9}}, "--ulimit=cpu=9:9"),
        ({}, "--user=1000:{group}"),
    ],
)
def test_the_configured_access_is_in_the_command(stage: Stage, sandbox: dict[str, Any], word: str) -> None:
    locations = {"inside": str(stage.inside), "outside": str(stage.outside), "group": str(os.getgid())}
    given = json.loads(json.dumps(sandbox).replace("{outside}", str(stage.outside)))
    assert word.format(**locations) in words(stage, sandbox=given)


@pytest.mark.parametrize(
    ("capabilities", "image", "there", "not_there"),
    [
        pytest.param(FULL, {"image": "a", "engine": "podman"}, "--userns=keep-id", "--read", id="podman"),
        pytest.param(FULL, {"image": "a", "writable": True}, "--rm", "--read-only", id="writable"),
        pytest.param(FULL, {"image": "a", "user": "7:8"}, "--user=7:8", "--user=1000", id="a-user"),
        pytest.param(replace(FULL, user=0), "a", "--rm", "--user=0:0", id="root"),
    ],
)
def test_a_container_is_made_as_its_object_says(
    stage: Stage, capabilities: Capabilities, image: Any, there: str, not_there: str
) -> None:
    told = words(stage, capabilities, image)
    assert there in told
    assert not_there not in told


def test_the_command_follows_the_image_and_the_image_s_own_is_not_run(stage: Stage) -> None:
    told = words(stage)
    assert told[told.index("python:3") - 1 :] == [
        f"--entrypoint={sys.executable}",
        "python:3",
        "-m",
        "tests.host.sandbox.server",
    ]


def test_variables_are_passed_by_name_and_no_value_is_on_the_command_line(stage: Stage) -> None:
    launch = planned(stage, {"container": "a"}, env={"TOKEN": "a secret"})
    assert "--env=TOKEN" in record(launch)["argv"]
    assert "a secret" not in json.dumps([record(launch)["argv"], launch.command])
    assert record(launch)["env"]["TOKEN"] == "a secret"


def test_variables_of_the_host_are_not_passed_unless_listed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTED", "1")
    told = words(stage, sandbox={"env": ["LISTED"]})
    assert [word for word in told if word.startswith("--env=")] == [
        "--env=HOME=/tmp",
        "--env=LISTED",
        "--env=PYTHONPATH",
    ]


@pytest.mark.parametrize("name", ["LD_PRELOAD", "DOCKER_HOST", "PATH", "HOME", "XDG_RUNTIME_DIR", "-e"])
def test_a_variable_that_would_steer_the_engine_is_refused(stage: Stage, name: str) -> None:
    with pytest.raises(ConfigError, match=f"the variable {name} would affect the container engine"):
        words(stage, env={name: "x"})


def test_a_folder_whose_name_would_be_read_as_something_else_is_refused(stage: Stage) -> None:
    odd = stage.folder / "a,readonly=false"
    odd.mkdir()
    with pytest.raises(ConfigError, match="cannot be mounted in a container: its name contains a comma"):
        words(stage, roots=(str(odd),))


def test_what_the_host_keeps_in_a_root_is_covered(stage: Stage) -> None:
    assert f"--mount=type=tmpfs,target={stage.state}" in words(stage, roots=(str(stage.folder),))


def test_it_starts_in_its_folder_if_that_is_mounted(stage: Stage) -> None:
    assert f"--workdir={stage.inside}" in words(stage, cwd=str(stage.inside))
    assert f"--workdir={stage.outside}" not in words(stage, cwd=str(stage.outside))


@pytest.mark.skipif(shutil.which("docker") is None, reason="docker is not installed")
@pytest.mark.parametrize("limits", [{}, {"memory": "1G", "processes": 9, "files": 64, "cpuSeconds": 9}])
def test_docker_understands_every_word(stage: Stage, limits: dict[str, Any]) -> None:
    engine = ContainerEngine(name="docker", path=shutil.which("docker") or "")
    told = words(stage, replace(FULL, engines=(engine,)), sandbox={"limits": limits, "network": False})
    env = {"PATH": os.environ["PATH"], "HOME": str(stage.folder), "DOCKER_HOST": f"unix://{stage.folder}/none.sock"}
    ended = subprocess.run(told, env=env, capture_output=True, timeout=120, check=False)
    # It looks for its daemon only when it has read all of its words.
    assert b"docker daemon" in ended.stderr.lower()


# --- with an engine --------------------------------------------------------------------------------------------------


@pytest.fixture
def capabilities(tmp_path: Path) -> Capabilities:
    engine = tmp_path / "docker"
    engine.write_text(f"#!{sys.executable}\n" + Path(fake_engine.__file__).read_text())
    engine.chmod(0o755)
    (tmp_path / "containers").mkdir()
    return replace(FULL, engines=(ContainerEngine(name="docker", path=str(engine)),))


def filled(book: Path, count: int) -> None:
    """Wait until there are so many containers."""
    until = time.monotonic() + 120
    while len(list(book.iterdir())) < count and time.monotonic() < until:
        time.sleep(0.01)


def talk(launch: LaunchPlan) -> str:
    async def main() -> str:
        async with Client(list(launch.command), env=launch.env, cwd=launch.cwd, revision="legacy") as client:
            result = await client.call_tool("env", {})
            return result.content[0].text  # type: ignore[union-attr]

    return run_async(main())


def test_a_server_in_a_container_answers_and_gets_only_named_variables(
    stage: Stage, capabilities: Capabilities
) -> None:
    launch = prepare_launch(
        stage.entry({"container": "a"}, env={"TOKEN": "x"}), folder=stage.state, capabilities=capabilities
    )
    # The one by which Python notes the encoding is made by itself.
    assert set(talk(launch).split()) - {"LC_CTYPE"} == {"HOME", "PYTHONPATH", "TOKEN"}
    assert (list((stage.folder / "containers").iterdir()), (stage.folder / "ended").exists()) == ([], True)


def test_the_engine_s_own_variables_are_the_host_s(
    stage: Stage, capabilities: Capabilities, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "far")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    talk(prepare_launch(stage.entry({"container": "a"}), folder=stage.state, capabilities=capabilities))
    seen = json.loads((stage.folder / "ended").read_text())["environment"]
    assert (seen["DOCKER_CONTEXT"], "AWS_SECRET_ACCESS_KEY" in seen, "TRUNKLINE_SANDBOX_0" in seen) == (
        "far",
        False,
        False,
    )


async def test_a_container_that_ignores_everything_is_removed(stage: Stage, capabilities: Capabilities) -> None:
    from trunkline.protocol.limits import Limits
    from trunkline.transports.process import ProcessLink

    launch = prepare_launch(stage.entry({"container": "stubborn"}), folder=stage.state, capabilities=capabilities)
    book = stage.folder / "containers"

    link = ProcessLink.spawn(launch.command, env=launch.env, cwd=launch.cwd, limits=Limits(exit_seconds=1.0))
    await asyncio.to_thread(filled, book, 1)
    await link.aclose()
    assert list(book.iterdir()) == []


async def test_two_starts_of_one_server_have_containers_of_their_own(stage: Stage, capabilities: Capabilities) -> None:
    launch = prepare_launch(stage.entry({"container": "stubborn"}), folder=stage.state, capabilities=capabilities)
    book = stage.folder / "containers"

    starts = [await asyncio.create_subprocess_exec(*launch.command, env=launch.env) for _ in range(2)]
    await asyncio.to_thread(filled, book, 2)
    for each in starts:
        each.terminate()
        await each.wait()
    assert len(list(book.iterdir())) == 0


def test_an_engine_that_is_gone_is_said(stage: Stage, capabilities: Capabilities) -> None:
    launch = prepare_launch(stage.entry({"container": "a"}), folder=stage.state, capabilities=capabilities)
    (stage.folder / "docker").unlink()
    ended = subprocess.run(launch.command, env=dict(launch.env), capture_output=True, timeout=120, check=False)
    assert (ended.returncode, b"cannot start the container" in ended.stderr) == (126, True)
