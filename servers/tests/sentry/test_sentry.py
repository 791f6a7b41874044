"""The Sentry server: its tool and its prompt against the double, as a program, and over HTTP."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from servers.tests.over_http import TOKEN, listening, texts
from servers.tests.sentry.fake_sentry import SentryDouble
from trunkline import Client, ConfigError, RequestFailed
from trunkline.types import TextContent
from trunkline_servers.sentry import make_server

SECRET = "sntryu_only_for_tests"
TEXT = """\
Sentry Issue: ZeroDivisionError: division by zero
Issue ID: 4815
Status: unresolved
Level: error
First Seen: 2026-01-05T09:00:00Z
Last Seen: 2026-01-06T10:30:00Z
Event Count: 17

Exception: ZeroDivisionError: division by zero

Stacktrace:
shop/views.py:12 in pay

shop/prices.py:3 in share
    def share(total, people):
        return total / people


Exception: PaymentFailed: cart 7

"""


@asynccontextmanager
async def staged(*, token: str | None = SECRET, **options: Any) -> AsyncIterator[tuple[Client, SentryDouble]]:
    """Run the double and the server; options are the client's."""
    double = SentryDouble(token=SECRET)
    async with double.running() as url, Client(make_server(token, api_url=url), **options) as client:
        yield client, double


async def told(client: Client, given: str) -> str:
    """Call the tool; gives what it says, whether it failed or not."""
    return texts(await client.call_tool("get_sentry_issue", {"issue_id_or_url": given}, raise_on_error=False))[0]


@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
async def test_an_issue_is_returned_with_its_newest_stack_trace(revision: str) -> None:
    async with staged(revision=revision) as (client, double):
        assert await told(client, "4815") == TEXT
        assert [path for path, _ in double.seen] == ["/api/0/issues/4815/", "/api/0/issues/4815/hashes/"]


async def test_the_prompt_puts_the_issue_into_the_conversation() -> None:
    async with staged() as (client, _):
        (listed,) = await client.list_prompts()
        prompt = await client.get_prompt("sentry-issue", {"issue_id_or_url": "4815"})
    assert (listed.name, [(each.name, each.required) for each in listed.arguments or []]) == (
        "sentry-issue",
        [("issue_id_or_url", True)],
    )
    assert prompt.description == "Sentry Issue: ZeroDivisionError: division by zero"
    content = prompt.messages[0].content
    assert isinstance(content, TextContent)
    assert content.text == TEXT


LINKS = [
    "https://acme.sentry.io/issues/4815/",
    "https://sentry.io/organizations/acme/issues/4815/?project=1&query=is%3Aunresolved",
    "https://acme.sentry.io/issues/4815/events/latest/#frame-3",
    "HTTPS://ACME.SENTRY.IO/issues/4815",
    "http://127.0.0.1:9000/organizations/acme/issues/4815/",
]


@pytest.mark.parametrize("link", LINKS)
async def test_only_the_number_of_a_link_is_used(link: str) -> None:
    async with staged() as (client, double):
        assert await told(client, link) == TEXT
        assert double.seen[0] == ("/api/0/issues/4815/", f"Bearer {SECRET}")


WRONG = [
    pytest.param("https://sentry.io.evil.example/issues/4815", "'sentry.io.evil.example'", id="sentry-as-a-prefix"),
    pytest.param("https://evilsentry.io/issues/4815", "'evilsentry.io'", id="sentry-as-a-suffix"),
    pytest.param("https://sentry.io@evil.example/issues/4815", "'evil.example'", id="sentry-as-a-user"),
    pytest.param("https://evil.example/sentry.io/issues/4815", "'evil.example'", id="sentry-in-the-path"),
    pytest.param("https://evil.example\\@sentry.io/issues/4815", "no host", id="backslash"),
    pytest.param("https://[::1/issues/4815", "no host", id="broken"),
    pytest.param("https://acme.sentry.io/projects/4815", "not one to an issue", id="no-issue"),
    pytest.param("https://acme.sentry.io/issues/", "not one to an issue", id="no-number"),
    pytest.param("https://acme.sentry.io/issues/..%2fprojects", "is not an issue", id="path-in-the-number"),
    pytest.param("4815/../../projects", "is not an issue", id="path-as-the-number"),
    pytest.param("PROJECT-1A", "is not an issue", id="short-name"),
    pytest.param("\u0664\u0668\u0661\u0665", "is not an issue", id="other-digits"),
    pytest.param("1" * 21, "is not an issue", id="long-number"),
    pytest.param("", "is not an issue", id="nothing"),
]


@pytest.mark.parametrize(("given", "said"), WRONG)
async def test_an_invalid_issue_reference_is_refused_before_anything_is_sent(given: str, said: str) -> None:
    async with staged() as (client, double):
        assert said in await told(client, given)
        assert double.seen == []


async def test_a_prompt_that_names_no_issue_fails_with_the_reason() -> None:
    async with staged() as (client, _):
        with pytest.raises(RequestFailed, match="is not an issue"):
            await client.get_prompt("sentry-issue", {"issue_id_or_url": "x"})


@pytest.mark.parametrize(
    ("number", "said"),
    [("16", "has no events for the issue 16"), ("99", "404: The requested resource does not exist. Check the number")],
)
async def test_an_issue_that_is_gone_is_an_error(number: str, said: str) -> None:
    async with staged() as (client, _):
        assert said in await told(client, number)


async def test_a_wrong_token_says_which_variable_holds_it_and_not_what() -> None:
    async with staged(token="sntryu_wrong") as (client, _):
        said = await told(client, "4815")
    assert said == "Sentry answered 401: Invalid token. The token in SENTRY_TOKEN is wrong or has expired"


STRANGE: list[Any] = [
    None,
    {},
    {"entries": None},
    {"entries": [None, 7, {"type": "exception"}]},
    {"entries": [{"type": "exception", "data": {"values": [3]}}]},
    {"entries": [{"type": "exception", "data": []}]},
]


@pytest.mark.parametrize("event", STRANGE, ids=range(len(STRANGE)))
async def test_an_event_without_a_stack_trace_is_reported(event: Any) -> None:
    async with staged() as (client, double):
        double.events["4815"] = [{"latestEvent": event}]
        assert (await told(client, "4815")).endswith("\n\nNo stacktrace found")


async def test_an_incomplete_frame_is_shown_anyway() -> None:
    frames = [{"filename": None, "context": [[1], None, 5, [2, "code"]]}, None]
    values = [{"type": None, "stacktrace": {"frames": frames}}]
    async with staged() as (client, double):
        event = {"entries": [{"type": "exception", "data": {"values": values}}]}
        double.events["4815"] = [{"latestEvent": event}]
        said = await told(client, "4815")
    assert said.endswith("Exception: Unknown: \n\nStacktrace:\nUnknown:? in Unknown\n    code\n\n")


async def test_the_newest_of_many_frames_are_shown() -> None:
    frames = [{"filename": "f.py", "lineNo": number, "function": "g"} for number in range(300)]
    event = {"entries": [{"type": "exception", "data": {"values": [{"stacktrace": {"frames": frames}}]}}]}
    async with staged() as (client, double):
        double.events["4815"] = [{"latestEvent": event}]
        said = await told(client, "4815")
    assert "[50 earlier frames]\n\nf.py:50 in g\n" in said
    assert said.count("f.py:") == 250


async def test_a_huge_stack_trace_is_truncated_with_a_note() -> None:
    frame = {"filename": "f" * 1_100, "lineNo": 1, "function": "g", "context": [[1, "x"]] * 50}
    values = [{"type": "E", "value": "v", "stacktrace": {"frames": [frame] * 300}}] * 2
    async with staged() as (client, double):
        event = {"entries": [{"type": "exception", "data": {"values": values}}]}
        double.events["4815"] = [{"latestEvent": event}]
        said = await told(client, "4815")
    assert "[50 earlier frames]" in said
    assert 200_000 < len(said) < 200_100
    assert said.endswith(" more characters]")


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        pytest.param({"text": "<html>", "status": 200}, "is not JSON", id="html"),
        pytest.param({"text": "[]", "status": 200}, "is not an issue", id="list"),
        pytest.param({"status": 302, "headers": {"Location": "http://localhost:1/"}}, "another host", id="redirect"),
        pytest.param({"status": 429, "headers": {"Retry-After": "60"}}, "try again in 60 seconds", id="rate-limit"),
        pytest.param({"text": f'{{"detail":"{SECRET}"}}', "status": 500}, "500: [token]", id="token-repeated"),
    ],
)
async def test_an_invalid_response_is_an_error(instead: dict[str, Any], said: str) -> None:
    async with staged() as (client, double):
        double.instead = instead
        assert said in await told(client, "4815")


async def test_a_service_that_does_not_exist_is_an_error_that_names_it() -> None:
    async with Client(make_server(SECRET, api_url="http://127.0.0.1:1/api/0")) as client:
        assert "Sentry cannot be reached at 127.0.0.1:1" in await told(client, "4815")


@pytest.mark.parametrize("variable", ["SENTRY_TOKEN", "SENTRY_AUTH_TOKEN"])
async def test_over_stdio_the_token_comes_from_the_environment(variable: str) -> None:
    program = [sys.executable, "-m", "trunkline_servers.sentry"]
    env = {variable: SECRET}
    async with SentryDouble(token=SECRET).running() as url, Client([*program, "--api-url", url], env=env) as client:
        assert await told(client, "4815") == TEXT


async def test_http_without_a_token_is_rejected() -> None:
    double = SentryDouble(token=SECRET)
    env = {"SENTRY_TOKEN": SECRET}
    async with double.running() as api, listening("sentry", "--api-url", api, env=env) as url:
        with pytest.raises(RequestFailed) as refused:
            await Client(url).__aenter__()
        assert refused.value.status == 401
        assert double.seen == []
        async with Client(url, auth=TOKEN) as client:
            assert await told(client, "4815") == TEXT


_MISSING = (
    "Sentry shows issues to authenticated users only: start the server with SENTRY_TOKEN (a token that has event:read) "
    "in its environment"
)


@pytest.mark.parametrize("token", [None, "", "  "], ids=repr)
async def test_without_a_token_the_tool_is_there_and_says_what_to_set(token: str | None) -> None:
    async with staged(token=token) as (client, double):
        assert await told(client, "4815") == _MISSING
    assert double.seen == []


async def test_without_a_token_the_prompt_says_what_to_set() -> None:
    async with staged(token=None) as (client, _):
        with pytest.raises(RequestFailed, match=re.escape(_MISSING)):
            await client.get_prompt("sentry-issue", {"issue_id_or_url": "4815"})


async def test_the_command_starts_without_a_token() -> None:
    async with Client([sys.executable, "-m", "trunkline_servers.sentry"]) as client:
        assert await told(client, "4815") == _MISSING


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        pytest.param({"auth_token": "a b"}, "is not a valid token", id="bad-token"),
        pytest.param({"auth_token": SECRET, "api_url": "http://sentry.example.com"}, "https://", id="in-the-open"),
    ],
)
def test_an_invalid_setting_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        make_server(**settings)
    assert SECRET not in str(refused.value)
