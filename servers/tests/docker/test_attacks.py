"""Attacks on the Docker server: references to other paths, and requests that would reach the host."""

from __future__ import annotations

from typing import Any

import pytest

from servers.tests.docker.fake_engine import EngineDouble
from servers.tests.docker.test_docker import ask
from trunkline import ToolError
from trunkline_servers.docker.container_spec import RunLimits, check_image
from trunkline_servers.docker.models import hide_arguments, hide_variables

ASKED_NOTHING = pytest.mark.parametrize(
    "ref",
    ["../images", "..", "", "a/json?x=", "a%2fjson", "-f", "a b", "a\r\nHost: x", "web/../own", "x" * 200, "\u00e9"],
)


@ASKED_NOTHING
@pytest.mark.parametrize("tool", ["inspect", "logs", "stats", "stop"])
def test_a_reference_that_leads_elsewhere_is_refused_before_anything_is_sent(tool: str, ref: str) -> None:
    asked: list[str] = []
    with pytest.raises(ToolError, match="is not the name or id of a container"):
        ask(tool, {"container": ref}, check=lambda double: asked.extend(double.asked))
    assert asked == []


@pytest.mark.parametrize(
    "image",
    [
        "",
        "-v",
        "--privileged",
        "Alpine",
        "a//b",
        "../x",
        "a:b:c",
        "a@sha256:xyz",
        "a b",
        "a;id",
        "a\n",
        "$(id)",
        "a" * 400,
    ],
)
def test_an_image_that_is_no_plain_name_is_refused(image: str) -> None:
    bodies: list[Any] = []
    with pytest.raises(ToolError, match="is not an image name"):
        ask("run", {"image": image}, check=lambda double: bodies.extend(double.bodies))
    assert bodies == []


@pytest.mark.parametrize(
    "image", ["alpine", "localhost:5000/a/b-c:1.0", "ghcr.io/owner/name@sha256:" + "a" * 64, "a__b/c.d"]
)
def test_plain_names_of_images_are_sent(image: str) -> None:
    with pytest.raises(ToolError, match="docker pull"):
        ask("run", {"image": image})


def test_an_image_outside_the_list_is_refused() -> None:
    with pytest.raises(ToolError, match="not among those that may be run"):
        ask("run", {"image": "alpine:3.20"}, limits=RunLimits(images=("python:*",)))


@pytest.mark.parametrize(
    "extra",
    [
        {"privileged": True},
        {"volumes": ["/:/host"]},
        {"binds": ["/:/host"]},
        {"network": "host"},
        {"pid": "host"},
        {"HostConfig": {"Privileged": True}},
        {"cap_add": ["SYS_ADMIN"]},
    ],
    ids=lambda extra: next(iter(extra)),
)
def test_settings_that_reach_the_host_are_not_arguments(extra: dict[str, Any]) -> None:
    bodies: list[Any] = []
    with pytest.raises(ToolError):
        ask("run", {"image": "alpine:3.20", **extra}, check=lambda double: bodies.extend(double.bodies))
    assert bodies == []


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"environment": {"A=B": "x"}}, "cannot be a variable"),
        ({"environment": {"A": "x\0"}}, "cannot be a variable"),
        ({"environment": {"": "x"}}, "cannot be a variable"),
        ({"user": "root; id"}, "is not a user"),
        ({"workdir": "relative"}, "absolute path"),
        ({"command": ["x"] * 101}, "at most 100 words"),
        ({"command": ["a\0b"]}, "at most 100 words"),
        ({"memory_mb": 0}, "memory_mb must be from 6 to 2048"),
        ({"memory_mb": -1}, "memory_mb must be from 6 to 2048"),
        ({"memory_mb": 10**400}, "memory_mb must be from 6 to 2048"),
        ({"cpus": 1e9}, r"cpus must be from 0\.01 to 2"),
        ({"cpus": 1e-12}, r"cpus must be from 0\.01 to 2"),  # would be no limit at all, once rounded
        ({"pids": -1}, "pids must be from 2 to 512"),
        ({"name": "../x"}, "is not the name or id"),
        ({"seconds": 100_000}, "seconds"),
    ],
)
def test_a_request_beyond_the_limits_creates_nothing(extra: dict[str, Any], words: str) -> None:
    bodies: list[Any] = []
    with pytest.raises(ToolError, match=words):
        ask("run", {"image": "alpine:3.20", **extra}, check=lambda double: bodies.extend(double.bodies))
    assert bodies == []


@pytest.mark.parametrize(
    "image", ["alpine:5000/evil/img", "alpine:1/evil:3.20", "alpine:80/a@sha256:" + "a" * 64], ids=repr
)
def test_the_port_of_a_registry_is_not_matched_as_a_tag(image: str) -> None:
    bodies: list[Any] = []
    with pytest.raises(ToolError, match="not among those that may be run"):
        ask("run", {"image": image}, limits=RunLimits(images=("alpine:*",)), check=lambda d: bodies.extend(d.bodies))
    assert bodies == []


@pytest.mark.parametrize(
    ("pattern", "image"),
    [
        ("alpine:*", "alpine:3.20"),
        ("alpine", "alpine"),
        ("alpine*", "alpine:3.20"),
        ("ghcr.io/owner/*", "ghcr.io/owner/name:1.0"),
        ("localhost:5000/*", "localhost:5000/a/b:1"),
        ("localhost:5000/a:*", "localhost:5000/a:1"),
    ],
)
def test_an_image_of_the_list_is_run(pattern: str, image: str) -> None:
    check_image(image, RunLimits(images=(pattern,)))


def test_a_server_without_network_gives_none() -> None:
    with pytest.raises(ToolError, match="no network here"):
        ask("run", {"image": "alpine:3.20", "network": True}, limits=RunLimits(network=False))


@pytest.mark.parametrize(
    "pair",
    [
        "POSTGRES_PASSWORD=x",
        "api_key=x",
        "AWS_SECRET_ACCESS_KEY=x",
        "GITHUB_TOKEN=x",
        "SENTRY_DSN=x",
        "KEY=x",
        "A=redis://:x@h",
        "A=postgres://u:p/w@h/d",
        "A=https://ghtoken@github.com/x.git",
        "A=ghp_abcdefghij",
        "A=-----BEGIN PRIVATE KEY-----",
    ],
)
def test_a_variable_that_looks_secret_is_hidden(pair: str) -> None:
    assert list(hide_variables([pair]).values()) == ["(hidden)"]


@pytest.mark.parametrize(
    "pair", ["PATH=/bin", "KEYBOARD=de", "MONKEY=1", "A=https://example.com/x", "LANG=C", "PASSWORD="]
)
def test_a_variable_that_does_not_look_secret_is_shown(pair: str) -> None:
    assert list(hide_variables([pair]).values()) == [pair.partition("=")[2]]


def test_arguments_that_look_secret_are_hidden() -> None:
    given = [
        "--user",
        "me",
        "--password",
        "x",
        "-p",
        "1",
        "PGPASSWORD=x",
        "--flag",
        "postgres://u:x@h/d",
        "--token",
        "--x",
        "--secret",
        "-x",
        "redis-server --requirepass x",
        "A=1 PASSWORD=x run",
    ]
    shown = [
        "--user",
        "me",
        "--password",
        "(hidden)",
        "-p",
        "1",
        "PGPASSWORD=(hidden)",
        "--flag",
        "(hidden)",
        "--token",
    ]
    assert hide_arguments(given) == [*shown, "--x", "--secret", "(hidden)", "(hidden)", "(hidden)"]


@pytest.mark.parametrize("code", [True, "0", [], None], ids=repr)
def test_an_exit_code_of_another_type_is_unknown(code: Any) -> None:
    def prepare(double: EngineDouble) -> None:
        double.wait_answer = {"StatusCode": code}

    assert ask("run", {"image": "alpine:3.20"}, prepare=prepare)["exit_code"] == -1


def test_a_response_of_another_type_becomes_an_empty_record() -> None:
    def prepare(double: EngineDouble) -> None:
        identity = double.add("odd", {"Labels": 7, "Env": {"a": 1}, "Cmd": 9})
        double.containers[identity] |= {"State": [], "HostConfig": 5, "Mounts": "x", "NetworkSettings": None}
        double.containers[double.add("truth", {"Labels": {}})]["State"] = {"ExitCode": True}

    shown = ask("inspect", {"container": "odd"}, prepare=prepare)
    assert (shown["environment"], shown["command"], shown["status"], shown["own"]) == ({}, [], "", False)
    assert ask("inspect", {"container": "truth"}, prepare=prepare)["exit_code"] is None
