"""The plain tools, in the revisions of both eras."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from servers.tests.everything.support import HANDSHAKE, STATELESS, call, connected, settle
from trunkline import ToolError
from trunkline.testing import FakeClock
from trunkline_servers.everything import make_server
from trunkline_servers.everything.basic_tools import HIDDEN, redacted_environment

TEXTS = [
    pytest.param("echo", {"message": "hi"}, "Echo: hi", id="echo"),
    pytest.param("get-sum", {"a": 2, "b": 3}, "The sum of 2 and 3 is 5.", id="whole-numbers"),
    pytest.param("get-sum", {"a": 1, "b": 2.5}, "The sum of 1 and 2.5 is 3.5.", id="fractions"),
    pytest.param(
        "trigger-long-running-operation",
        {"duration": 0, "steps": 2},
        "Long running operation completed. Duration: 0 seconds, Steps: 2.",
        id="long",
    ),
    pytest.param("get-region", {"region": "north"}, "Region: north", id="header-argument"),
]


@pytest.mark.parametrize(("tool", "arguments", "text"), TEXTS)
async def test_a_tool_answers_with_text(tool: str, arguments: dict[str, Any], text: str) -> None:
    async with connected(STATELESS) as client:
        assert (await client.call_tool(tool, arguments)).text == text


@pytest.mark.parametrize(
    ("kind", "priority", "audience"),
    [("error", 1.0, ["user", "assistant"]), ("success", 0.7, ["user"]), ("debug", 0.3, ["assistant"])],
)
async def test_a_message_is_annotated_with_its_audience(kind: str, priority: float, audience: list[str]) -> None:
    async with connected(HANDSHAKE) as client:
        text, image = list((await call(client, "get-annotated-message", messageType=kind, includeImage=True)).content)
    assert (text.annotations.priority, text.annotations.audience) == (priority, audience)
    assert (image.annotations.priority, image.annotations.audience) == (0.5, ["user"])


async def test_structured_content_has_a_schema_and_a_copy_as_text() -> None:
    async with connected(STATELESS) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        result = await call(client, "get-structured-content", location="Chicago")
    assert result.structured_content == {"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82}
    assert result.text == '{"temperature":36,"conditions":"Light rain / drizzle","humidity":82}'
    schema = tools["get-structured-content"].output_schema or {}
    assert schema["required"] == ["temperature", "conditions", "humidity"]


async def test_links_lead_to_resources_that_can_be_read() -> None:
    async with connected(STATELESS) as client:
        _, *links = (await call(client, "get-resource-links", count=2)).content
        assert [(await client.read_resource(link.uri))[0].uri for link in links] == [
            "demo://resource/dynamic/blob/1",
            "demo://resource/dynamic/text/2",
        ]


async def test_a_resource_comes_inside_the_result() -> None:
    async with connected(HANDSHAKE) as client:
        embedded = (await call(client, "get-resource-reference", resourceType="Blob", resourceId=3)).content[1]
    assert embedded.resource.uri == "demo://resource/dynamic/blob/3"
    assert embedded.resource.blob


BAD = [
    pytest.param("get-resource-reference", {"resourceId": 0}, "positive integer", id="resource-zero"),
    pytest.param("get-resource-reference", {"resourceId": 1.5}, "positive integer", id="resource-fraction"),
    pytest.param("get-resource-links", {"count": 11}, "count", id="too-many-links"),
    pytest.param("get-annotated-message", {"messageType": "x"}, "messageType", id="unknown-choice"),
    pytest.param("trigger-long-running-operation", {"duration": 1e9}, "600", id="endless"),
    pytest.param("trigger-long-running-operation", {"steps": 0}, "steps", id="no-steps"),
    pytest.param("echo", {}, "message", id="missing"),
]


@pytest.mark.parametrize(("tool", "arguments", "named"), BAD)
async def test_a_bad_argument_is_an_error_that_names_it(tool: str, arguments: dict[str, Any], named: str) -> None:
    async with connected(STATELESS) as client:
        with pytest.raises(ToolError, match=named):
            await client.call_tool(tool, arguments)


async def test_progress_is_reported_after_each_step() -> None:
    heard: list[tuple[float, float | None]] = []
    async with connected(STATELESS, on_progress=lambda done, total, text: heard.append((done, total))) as client:
        await call(client, "trigger-long-running-operation", duration=0, steps=3)
    assert heard == [(1, 3), (2, 3), (3, 3)]


async def test_a_long_operation_waits_by_the_clock_of_the_server() -> None:
    clock = FakeClock()
    async with connected(HANDSHAKE, make_server(clock=clock)) as client:
        work = asyncio.ensure_future(call(client, "trigger-long-running-operation", duration=10, steps=1))
        await settle()
        before = work.done()
        clock.advance(10)
        await work
        assert (before, work.done()) == (False, True)


# --- the environment -------------------------------------------------------------------------------------------------

SECRETS = [
    ("GITHUB_TOKEN", "x"),
    ("AWS_SECRET_ACCESS_KEY", "x"),
    ("OPENAI_API_KEY", "x"),
    ("DB_PASSWORD", "x"),
    ("MYSQL_PWD", "x"),
    ("TRUNKLINE_STATE_KEY", "x"),
    ("my_private_thing", "x"),
    ("SENTRY_DSN", "x"),
    ("DATABASE_URL", "postgres://me:hunter2@db/x"),
    ("HARMLESS", "ghp_0123456789"),
    ("HTTP_AUTHORIZATION", "Bearer x"),
    ("MIRROR", "https://sometoken@packages.example.com/simple"),
    ("UPLOADS", "https://store.example.com/a?sv=1&sig=x"),
    ("NOTE", "-----BEGIN RSA PRIVATE KEY-----"),
]
PLAIN = [
    ("PATH", "/bin"),
    ("PWD", "/srv"),
    ("HOME", "/root"),
    ("GIT_AUTHOR_NAME", "Ann"),
    ("KEYBOARD", "qwerty"),
    ("AUTHORS", "Ann"),
]


def test_a_secret_looking_variable_is_named_without_its_value() -> None:
    environment = dict(SECRETS + PLAIN)
    assert redacted_environment(environment, whole=False) == {**dict.fromkeys(environment, HIDDEN), **dict(PLAIN)}


@pytest.mark.parametrize(("whole", "shown"), [(False, HIDDEN), (True, "hunter2")])
async def test_the_environment_is_shown_whole_only_if_that_was_chosen(
    whole: bool, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERYTHING_TEST_SECRET", "hunter2")
    async with connected(HANDSHAKE, make_server(show_environment=whole)) as client:
        assert f'"EVERYTHING_TEST_SECRET": "{shown}"' in (await call(client, "get-env")).text
