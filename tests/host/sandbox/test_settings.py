"""Reading what an entry says of its sandbox."""

from __future__ import annotations

import os
from typing import Any

import pytest

from trunkline.errors import ConfigError
from trunkline.host.sandbox import ContainerSettings as Container
from trunkline.host.sandbox import ResourceLimits as Limits
from trunkline.host.sandbox import SandboxSettings as Settings
from trunkline.host.sandbox import parse_sandbox


@pytest.mark.parametrize("raw", [None, False])
def test_no_sandbox_is_none(raw: Any) -> None:
    assert parse_sandbox(raw) is None


@pytest.mark.parametrize(
    ("raw", "sandbox"),
    [
        pytest.param(True, Settings(), id="true"),
        pytest.param("landlock", Settings(kind="landlock"), id="a-kind"),
        pytest.param("bubblewrap", Settings(kind="bwrap"), id="the-long-name"),
        pytest.param({"readOnly": True}, Settings(read_only=True), id="in-camels"),
        pytest.param({"read_only": True}, Settings(read_only=True), id="with-underscores"),
        pytest.param({"network": None}, Settings(), id="null-is-left-out"),
        pytest.param({"read": ["/a/../b"], "write": ["~/c"]},
                     Settings(read=("/b",), write=(os.path.expanduser("~/c"),)), id="paths"),
        pytest.param({"env": ["A", "B_*"]}, Settings(env=("A", "B_*")), id="variables"),
        pytest.param({"limits": {"memory": "1 GiB", "processes": 9, "files": 99, "cpuSeconds": 5}},
                     Settings(limits=Limits(memory=1 << 30, processes=9, files=99, cpu_seconds=5)), id="limits"),
        pytest.param({"limits": {"memory": 268435456}}, Settings(limits=Limits(memory=256 << 20)), id="bytes"),
        pytest.param({"container": "python:3.12-slim"},
                     Settings(kind="container", container=Container(image="python:3.12-slim")), id="an-image"),
        pytest.param({"container": {"image": "ghcr.io/a/b@sha256:0a", "engine": "podman", "writable": True, "user": 7}},
                     Settings(kind="container", container=Container(
                         image="ghcr.io/a/b@sha256:0a", engine="podman", writable=True, user="7")), id="a-container"),
    ],
)  # fmt: skip
def test_what_is_written_is_read(raw: Any, sandbox: Settings) -> None:
    assert parse_sandbox(raw) == sandbox


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        pytest.param(1, "sandbox: expected true, a kind of sandbox or an object, found a number", id="a-number"),
        pytest.param("landlok", 'is not one of auto, landlock, bwrap, container; did you mean "landlock"?', id="typo"),
        pytest.param({"netwrok": False}, "sandbox.'netwrok': unknown member; did you mean \"network\"?",
                     id="a-member-with-a-typo"),
        pytest.param({"read_only": True, "readOnly": False}, "sandbox.readOnly: given twice", id="twice"),
        pytest.param({"network": "no"}, "sandbox.network: expected true or false, found a string", id="no-flag"),
        pytest.param({"read": "/a"}, "sandbox.read: expected a list, found a string", id="no-list"),
        pytest.param({"write": ["a"]}, "sandbox.write[0]: expected an absolute path", id="a-relative-path"),
        pytest.param({"read": ["/a\0b"]}, "sandbox.read[0]: expected a string", id="a-zero-in-a-path"),
        pytest.param({"env": ["A=b"]}, "sandbox.env[0]: expected the name of a variable", id="no-name"),
        pytest.param(
            {"limits": {"memory": "lots"}}, 'expected a number of bytes, or an amount such as "512 MB"', id="no-amount"
        ),
        pytest.param({"limits": {"memory": 1000}}, "expected at least 16 MB, found 1000 bytes", id="too-little"),
        pytest.param({"limits": {"processes": True}}, "limits.processes: expected an integer", id="no-count"),
        pytest.param({"limits": {"files": 2}}, "expected an integer of at least 16, found 2", id="too-few"),
        pytest.param({"limits": []}, "sandbox.limits: expected an object, found a list", id="no-object"),
        pytest.param({"container": "--privileged"}, "is not a valid image name", id="an-image-like-an-option"),
        pytest.param({"container": {}}, "sandbox.container.image: the image is missing", id="no-image"),
        pytest.param({"kind": "container"}, "sandbox.container: the image is missing", id="no-container"),
        pytest.param({"kind": "bwrap", "container": "a"}, '"bwrap" cannot be combined with container', id="two-kinds"),
        pytest.param(
            {"container": "a", "required": False}, "cannot be started without its container", id="perhaps-a-container"
        ),
        pytest.param({"container": {"image": "a", "user": "me"}}, "expected a user id", id="no-user"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_with_its_name_and_the_fix(raw: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_sandbox(raw)
    assert said in str(caught.value)


def test_a_value_is_never_repeated_in_a_refusal() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_sandbox({"read": "a secret that came out of a variable"})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "writable"),
    [
        ({}, True),
        ({"readOnly": True}, False),
        ({"container": "a"}, False),
        ({"container": "a", "readOnly": False}, True),
    ],
)
def test_roots_are_writable_by_default_except_in_a_container(raw: Any, writable: bool) -> None:
    sandbox = parse_sandbox(raw)
    assert sandbox is not None
    assert sandbox.roots_writable is writable
