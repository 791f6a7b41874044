"""How the host is to treat a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.host.config.support import entry, problem, warnings, write
from trunkline.host.config.loading import load_configuration
from trunkline.host.config.model import Filters, ServerSettings
from trunkline.protocol.revisions import REVISION_NAMES

ALL: dict[str, Any] = {
    "era": "handshake",
    "timeout": 10,
    "totalTimeout": 20.5,
    "startTimeout": 5,
    "start": "lazy",
    "wait": 0,
    "required": True,
    "idleStop": 60,
    "crashes": 3,
    "crashSeconds": 30,
    "healthSeconds": 0,
    "roots": ["sub", "~/x", "file:///y"],
    "asks": ["elicitation"],
    "trusted": True,
    "tools": {"allow": ["a*"], "deny": ["ab"], "annotations": ["readOnly", "!destructive"], "tags": ["t"]},
    "prompts": ["p"],
    "resources": {"deny": ["*"]},
    "share": "session",
    "perUser": True,
    "dedicatedIdle": 20,
    "dedicatedMost": 4,
    "concurrency": 8,
    "messageBytes": 2048,
    "alwaysLoad": True,
    "pins": "strict",
    "sandbox": {"network": False, "paths": ["${userHome}"]},
    "sampling": {"maxTokens": 1000},
    "extensions": {"com.example/notes": ["notes/list"]},
}


def _snake(name: str) -> str:
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in name)


@pytest.mark.parametrize(
    "members",
    [
        pytest.param(ALL, id="camel"),
        pytest.param({_snake(name): value for name, value in ALL.items()}, id="snake"),
        pytest.param({"trunkline": ALL}, id="nested"),
    ],
)
def test_every_setting_can_be_written_in_each_way(tmp_path: Path, members: dict[str, Any]) -> None:
    assert entry(tmp_path, {"command": "x", **members}).settings == ServerSettings(
        era="handshake",
        timeout=10.0,
        total_timeout=20.5,
        start_timeout=5.0,
        start="lazy",
        wait=0.0,
        required=True,
        idle_stop=60.0,
        crashes=3,
        crash_seconds=30.0,
        health_seconds=0.0,
        roots=(str(tmp_path / "sub"), "/home/ada/x", "file:///y"),
        asks=("elicitation",),
        trusted=True,
        tools=Filters(allow=("a*",), deny=("ab",), annotations=("readOnly", "!destructive"), tags=("t",)),
        prompts=Filters(allow=("p",)),
        resources=Filters(deny=("*",)),
        share="session",
        per_user=True,
        dedicated_idle=20.0,
        dedicated_most=4,
        concurrency=8,
        message_bytes=2048,
        always_load=True,
        pins="strict",
        sandbox={"network": False, "paths": ["/home/ada"]},
        sampling={"maxTokens": 1000},
        extensions={"com.example/notes": ("notes/list",)},
    )


def test_every_setting_of_an_entry_can_be_configured() -> None:
    assert {_snake(name) for name in ALL} == set(ServerSettings.__struct_fields__)


@pytest.mark.parametrize("era", ["auto", "stateless", *REVISION_NAMES])
def test_an_era_or_a_revision_can_be_chosen(tmp_path: Path, era: str) -> None:
    assert entry(tmp_path, {"command": "x", "era": era}).settings.era == era


@pytest.mark.parametrize(
    ("members", "tools"),
    [
        pytest.param({"includeTools": ["a"]}, Filters(allow=("a",)), id="includeTools"),
        pytest.param({"excludeTools": ["b"]}, Filters(deny=("b",)), id="excludeTools"),
        pytest.param({"includeTools": ["a"], "excludeTools": ["b"]}, Filters(allow=("a",), deny=("b",)), id="both"),
        pytest.param(
            {"enabled_tools": ["a"], "disabled_tools": ["b"]}, Filters(allow=("a",), deny=("b",)), id="enabled_tools"
        ),
        pytest.param(
            {"allowedTools": ["a"], "disabledTools": ["b"]}, Filters(allow=("a",), deny=("b",)), id="allowedTools"
        ),
    ],
)
def test_filters_of_other_programs_mean_the_same(tmp_path: Path, members: dict[str, Any], tools: Filters) -> None:
    assert entry(tmp_path, {"command": "x", **members}).settings.tools == tools


@pytest.mark.parametrize("members", [{"tools": []}, {"tools": {"allow": []}}, {"includeTools": []}])
def test_an_empty_list_of_what_is_allowed_allows_nothing(tmp_path: Path, members: dict[str, Any]) -> None:
    assert entry(tmp_path, {"command": "x", **members}).settings.tools == Filters(deny=("*",))
    assert ["nothing is shown" in each for each in warnings(tmp_path, {"command": "x", **members})] == [True]


@pytest.mark.parametrize(
    ("members", "said"),
    [
        pytest.param({"timeout": "30"}, "timeout: expected a number of seconds, found a string", id="text"),
        pytest.param({"timeout": True}, "timeout: expected a number of seconds, found true", id="flag"),
        pytest.param({"timeout": 0}, "expected seconds above 0 and up to 86400", id="zero"),
        pytest.param({"timeout": 600000}, "found 600000; if milliseconds are meant, write 600", id="milliseconds"),
        pytest.param({"timeout": 10**299}, "found 1e+299", id="enormous"),
        pytest.param({"asks": ["everything"]}, "'everything' is none of sampling, elicitation, roots", id="asks what"),
        pytest.param({"healthSeconds": -1}, "expected seconds from 0", id="below zero"),
        pytest.param({"healthSeconds": "x"}, "expected a number of seconds, found a string", id="health text"),
        pytest.param({"concurrency": []}, "expected a whole number, found a list", id="list"),
        pytest.param({"messageBytes": "64M"}, "expected a number of bytes, found", id="bytes as a text"),
        pytest.param({"tools": {"allow": "x"}}, "tools.allow: expected a list of strings", id="filter, text"),
        pytest.param({"crashes": 0}, "expected a whole number from 1 to 10000, found 0", id="no crashes"),
        pytest.param({"crashes": 1.5}, "expected a whole number", id="a fraction"),
        pytest.param({"messageBytes": 64}, "expected bytes from 1024 to 1073741824, found 64", id="too few bytes"),
        pytest.param({"era": "stateles"}, "'stateles' is none of auto, stateless, handshake", id="era"),
        pytest.param({"start": 1}, "start: expected one of eager, lazy, found a number", id="start"),
        pytest.param({"tools": "x"}, "tools: expected a list of names to allow, or an object", id="filter"),
        pytest.param({"tools": {"allowed": []}}, 'unknown part of a filter; did you mean "allow"?', id="filter, near"),
        pytest.param({"tools": {"zzzzzzz": []}}, "it may have allow, deny, annotations, tags", id="filter, unknown"),
        pytest.param({"tools": {"annotations": ["safe"]}}, "'safe' is none of readOnly, destructive", id="annotation"),
        pytest.param({"tools": [], "includeTools": []}, 'includeTools: "tools" says the same thing', id="two filters"),
        pytest.param({"timeout": 1, "trunkline": {"timeout": 2}}, "timeout says the same thing (line", id="two places"),
    ],
)
def test_a_setting_that_makes_no_sense_is_a_problem_of_its_entry(
    tmp_path: Path, members: dict[str, Any], said: str
) -> None:
    assert said in problem(tmp_path, {"command": "x", **members})


def test_a_timeout_that_may_be_milliseconds_is_told(tmp_path: Path) -> None:
    said = warnings(tmp_path, {"command": "x", "timeout": 30000})
    assert [each.endswith("30000 is read as seconds; if milliseconds are meant, write 30") for each in said] == [True]


@pytest.mark.parametrize("value", [0, None])
def test_a_server_may_be_kept_running_by_saying_so(tmp_path: Path, value: object) -> None:
    assert entry(tmp_path, {"command": "x", "idleStop": value}).settings.idle_stop is None


def test_a_file_of_a_project_cannot_trust_itself(tmp_path: Path) -> None:
    project = write(tmp_path / "mcp.json", {"mcpServers": {"one": {"command": "x", "trusted": True}}})
    configuration = load_configuration(project=project, environ={})
    assert configuration.entries["one"].settings.trusted is False
    assert ["a file of a project cannot trust itself" in str(each) for each in configuration.problems] == [True]


@pytest.mark.parametrize(("written", "read"), [("off", "ask"), ("ask", "ask"), ("strict", "strict")])
def test_a_file_of_a_project_cannot_switch_its_own_pins_off(written: str, read: str, tmp_path: Path) -> None:
    project = write(tmp_path / "mcp.json", {"mcpServers": {"one": {"command": "x", "pins": written}}})
    configuration = load_configuration(project=project, environ={})
    assert configuration.entries["one"].settings.pins == read
    assert ["pins" in str(each) for each in configuration.problems] == ([True] if written == "off" else [])
