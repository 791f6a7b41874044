"""The Sentry server: its tool and its prompt against the double, as a program, and over HTTP."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from servers.tests.commands import started
from servers.tests.over_http import texts
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


async def test_only_the_number_of_a_link_is_used() -> None:
    async with staged() as (client, double):
        assert [link for link in LINKS if await told(client, link) != TEXT] == []
        assert set(double.seen[::2]) == {("/api/0/issues/4815/", f"Bearer {SECRET}")}


WRONG = [
    ("https://sentry.io.evil.example/issues/4815", "'sentry.io.evil.example'"),
    ("https://evilsentry.io/issues/4815", "'evilsentry.io'"),
    ("https://sentry.io@evil.example/issues/4815", "'evil.example'"),
    ("https://evil.example/sentry.io/issues/4815", "'evil.example'"),
    ("https://evil.example\\@sentry.io/issues/4815", "no host"),
    ("https://[::1/issues/4815", "no host"),
    ("https://acme.sentry.io/projects/4815", "not one to an issue"),
    ("https://acme.sentry.io/issues/", "not one to an issue"),
    ("https://acme.sentry.io/issues/..%2fprojects", "is not an issue"),
    ("4815/../../projects", "is not an issue"),
    ("PROJECT-1A", "is not an issue"),
    ("\u0664\u0668\u0661\u0665", "is not an issue"),
    ("1" * 21, "is not an issue"),
    ("", "is not an issue"),
]


async def test_an_invalid_issue_reference_is_refused_before_anything_is_sent() -> None:
    async with staged() as (client, double):
        said = [(given, words, await told(client, given)) for given, words in WRONG]
        assert double.seen == []
    assert [each for each in said if each[1] not in each[2]] == []


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


async def test_an_event_without_a_stack_trace_is_reported() -> None:
    async with staged() as (client, double):
        for event in STRANGE:
            double.events["4815"] = [{"latestEvent": event}]
            assert (await told(client, "4815")).endswith("\n\nNo stacktrace found"), event


async def test_an_incomplete_frame_is_shown_anyway() -> None:
    frames = [{"filename": None, "context": [[1], None, 5, [2, "code"]]}, None]
    values = [{"type": None, "stacktrace": {"frames": frames}}]
    async with staged() as (client, double):
        event = {"entries": [{"type": "exception", "data": {"values": values}}]}
        double.events["4815"] = [{"latestEvent": event}]
        said = await told(client, "4815")
    assert said.endswith("Exception: Unknown: \n\nStacktrace:\nUnknown:? in Unknown\n    code\n\n")


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
        pytest.param({"text": "[]", "status": 200}, "is not an issue", id="list"),
        pytest.param({"text": f'{{"detail":"{SECRET}"}}', "status": 500}, "500: [token]", id="token-repeated"),
    ],
)
async def test_an_invalid_response_is_an_error(instead: dict[str, Any], said: str) -> None:
    async with staged() as (client, double):
        double.instead = instead
        assert said in await told(client, "4815")


@pytest.mark.parametrize("variable", ["SENTRY_TOKEN", "SENTRY_AUTH_TOKEN"])
async def test_the_token_comes_from_the_environment(variable: str) -> None:
    double = SentryDouble(token=SECRET)
    async with (
        double.running() as url,
        Client(started("sentry", "--api-url", url, env={variable: SECRET}).server) as client,
    ):
        assert await told(client, "4815") == TEXT


_MISSING = (
    "Sentry shows issues to authenticated users only: start the server with SENTRY_TOKEN (a token that has event:read) "
    "in its environment"
)


@pytest.mark.parametrize("token", [None, "  "], ids=repr)
async def test_without_a_token_the_tool_is_there_and_says_what_to_set(token: str | None) -> None:
    async with staged(token=token) as (client, double):
        assert await told(client, "4815") == _MISSING
    assert double.seen == []


async def test_without_a_token_the_prompt_says_what_to_set() -> None:
    async with staged(token=None) as (client, _):
        with pytest.raises(RequestFailed, match=re.escape(_MISSING)):
            await client.get_prompt("sentry-issue", {"issue_id_or_url": "4815"})


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
