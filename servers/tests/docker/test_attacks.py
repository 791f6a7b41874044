"""Attacks on the Docker server: references to other paths, and requests that would reach the host."""

from __future__ import annotations

from typing import Any

import pytest

from servers.tests.docker.fake_engine import engine_double
from servers.tests.docker.test_docker import IMAGE, ask
from trunkline import Client, ToolError
from trunkline_servers.docker import make_server
from trunkline_servers.docker.container_spec import RunLimits, check_image
from trunkline_servers.docker.models import hide_arguments, hide_variables

REFERENCES = (
    ["../images", "..", "", "a/json?x=", "a%2fjson", "-f", "a b", "a\r\nHost: x", "web/../own", "x" * 200, "\u00e9"]
)  # fmt: skip
IMAGES = ["", "-v", "--privileged", "Alpine", "a//b", "../x", "a:b:c", "a@sha256:xyz", "a b", "a;id", "a\n", "a" * 400]
REACHING_THE_HOST: list[dict[str, Any]] = [
    {"privileged": True},
    {"volumes": ["/:/host"]},
    {"network": "host"},
    {"pid": "host"},
    {"HostConfig": {"Privileged": True}},
    {"cap_add": ["SYS_ADMIN"]},
]
BEYOND_THE_LIMITS: list[tuple[dict[str, Any], str]] = [
    ({"environment": {"A=B": "x"}}, "cannot be a variable"),
    ({"environment": {"A": "x\0"}}, "cannot be a variable"),
    ({"environment": {"": "x"}}, "cannot be a variable"),
    ({"user": "root; id"}, "is not a user"),
    ({"workdir": "relative"}, "absolute path"),
    ({"command": ["x"] * 101}, "at most 100 words"),
    ({"command": ["a\0b"]}, "at most 100 words"),
    ({"memory_mb": 0}, "memory_mb must be from 6 to 2048"),
    ({"memory_mb": 10**400}, "memory_mb must be from 6 to 2048"),
    ({"cpus": 1e9}, "cpus must be from 0.01 to 2"),
    ({"cpus": 1e-12}, "cpus must be from 0.01 to 2"),  # would be no limit at all, once rounded
    ({"pids": -1}, "pids must be from 2 to 512"),
    ({"name": "../x"}, "is not the name or id"),
    ({"seconds": 100_000}, "seconds"),
]
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    *[("inspect", {"container": ref}, "is not the name or id of a container") for ref in REFERENCES],
    *[(tool, {"container": ".."}, "is not the name or id of a container") for tool in ("logs", "stats", "stop")],
    *[("run", {"image": image}, "is not an image name") for image in IMAGES],
    *[("run", {"image": IMAGE, **extra}, next(iter(extra))) for extra in REACHING_THE_HOST],
    *[("run", {"image": IMAGE, **extra}, words) for extra, words in BEYOND_THE_LIMITS],
]


async def test_a_hostile_argument_is_refused_with_the_reason_before_anything_is_sent() -> None:
    async with engine_double() as double, Client(make_server(double.host)) as client:
        results = [await client.call_tool(tool, given, raise_on_error=False) for tool, given, _ in REFUSED]
    told = [(row, result.text) for row, result in zip(REFUSED, results, strict=True)]
    assert [(row, text) for row, text in told if row[2] not in text] == []
    assert (all(result.is_error for result in results), double.asked) == (True, [])


@pytest.mark.parametrize(
    ("pattern", "image"),
    [
        (None, "localhost:5000/a/b-c:1.0"),
        (None, "ghcr.io/owner/name@sha256:" + "a" * 64),
        (None, "a__b/c.d"),
        ("alpine:*", "alpine:3.20"),
        ("alpine", "alpine"),
        ("alpine*", "alpine:3.20"),
        ("ghcr.io/owner/*", "ghcr.io/owner/name:1.0"),
        ("localhost:5000/a:*", "localhost:5000/a:1"),
    ],
)
def test_an_image_of_the_list_is_run(pattern: str | None, image: str) -> None:
    check_image(image, RunLimits(images=() if pattern is None else (pattern,)))


@pytest.mark.parametrize(
    ("pattern", "image"),
    [
        ("python:*", "alpine:3.20"),
        ("alpine:*", "alpine:5000/evil/img"),  # the port of a registry is no tag
        ("alpine:*", "alpine:1/evil:3.20"),
        ("alpine:*", "alpine:80/a@sha256:" + "a" * 64),
    ],
)
def test_an_image_outside_the_list_is_refused(pattern: str, image: str) -> None:
    with pytest.raises(ToolError, match="not among those that may be run"):
        check_image(image, RunLimits(images=(pattern,)))


@pytest.mark.parametrize(
    ("arguments", "limits", "words"),
    [
        ({"image": "python:3"}, RunLimits(images=("alpine:*",)), "not among those that may be run"),
        ({"image": IMAGE, "network": True}, RunLimits(network=False), "no network here"),
        ({"image": IMAGE, "memory_mb": 65}, RunLimits(memory_mb=64), "memory_mb must be from 6 to 64"),
    ],
    ids=["image", "network", "memory"],
)
def test_the_limits_of_the_server_hold(arguments: dict[str, Any], limits: RunLimits, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        ask("run", arguments, limits=limits)


SECRETS = [
    *("POSTGRES_PASSWORD=x", "api_key=x", "AWS_SECRET_ACCESS_KEY=x", "GITHUB_TOKEN=x", "SENTRY_DSN=x", "KEY=x"),
    *("A=redis://:x@h", "B=postgres://u:p/w@h/d", "C=https://ghtoken@github.com/x.git", "D=ghp_abcdefghij"),
    "E=-----BEGIN PRIVATE KEY-----",
]
PLAIN = ["PATH=/bin", "KEYBOARD=de", "MONKEY=1", "A=https://example.com/x", "LANG=C", "PASSWORD="]


def test_only_variables_that_look_secret_are_hidden() -> None:
    assert set(hide_variables(SECRETS).values()) == {"(hidden)"}
    assert hide_variables(PLAIN) == dict(pair.split("=", 1) for pair in PLAIN)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("--user me --password x -p 1", "--user me --password (hidden) -p 1"),
        ("PGPASSWORD=x --flag postgres://u:x@h/d", "PGPASSWORD=(hidden) --flag (hidden)"),
        ("--token --x --secret -x", "--token --x --secret (hidden)"),
    ],
)
def test_arguments_that_look_secret_are_hidden(given: str, shown: str) -> None:
    assert hide_arguments(given.split()) == shown.split()


def test_a_command_line_in_one_argument_that_looks_secret_is_hidden() -> None:
    assert hide_arguments(["redis-server --requirepass x", "A=1 PASSWORD=x run"]) == ["(hidden)", "(hidden)"]


@pytest.mark.parametrize("code", [True, "0", [], None], ids=repr)
def test_an_exit_code_of_another_type_is_unknown(code: Any) -> None:
    assert ask("run", {"image": IMAGE}, state={"wait_answer": {"StatusCode": code}})["exit_code"] == -1


async def test_a_response_of_another_type_becomes_an_empty_record() -> None:
    async with engine_double() as double, Client(make_server(double.host)) as client:
        identity = double.add("odd", {"Labels": 7, "Env": {"a": 1}, "Cmd": 9})
        double.containers[identity] |= {"State": [], "HostConfig": 5, "Mounts": "x", "NetworkSettings": None}
        double.containers[double.add("truth", {"Labels": {}})]["State"] = {"ExitCode": True}
        odd, truth = [(await client.call_tool("inspect", {"container": name})).data for name in ("odd", "truth")]
    assert (odd["environment"], odd["command"], odd["status"], odd["own"]) == ({}, [], "", False)
    assert truth["exit_code"] is None
