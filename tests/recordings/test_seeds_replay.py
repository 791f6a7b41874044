"""The conversations of the seeds, replayed against servers set up as the seeds show them.

An answer must contain everything the seed shows. It may contain more where our server returns more than the seed's: a
version, a capability, the default of a parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.recordings.seed_files import seed
from tests.recordings.seed_servers import (
    example_server,
    filesystem_server,
    github_server,
    search_server,
    weather_server,
)
from tests.support import run_async
from trunkline import Server
from trunkline.testing.recordings import Recording, Replay, ReplayedAnswer, replay

#: The seeds show single messages without the handshake that must come first.
GREETING = Recording.parse(
    '{"from":"client","message":{"jsonrpc":"2.0","id":"hello","method":"initialize","params":'
    '{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"example-client","version":"1.0.0"}}}}\n'
    '{"from":"server","message":{"jsonrpc":"2.0","id":"hello","result":{}}}\n'
    '{"from":"client","message":{"jsonrpc":"2.0","method":"notifications/initialized"}}\n'
)

SERVERS: dict[str, Callable[[], Server]] = {
    "003-weather": weather_server,
    "004-message-forms": search_server,
    "004-negotiation": lambda: filesystem_server("2.0.1"),
    "004-code-review-filesystem": filesystem_server,
    "004-code-review-github": github_server,
}

#: Requests by conversation and index, with an answer in the seed and without.
SHOWN = [
    ("003-weather", 0, "initialize"),
    ("003-weather", 1, "tools/list"),
    ("003-weather", 2, "tools/call"),
    ("004-message-forms", 1, "tools/call"),
    ("004-message-forms", 2, "tools/call"),
    ("004-negotiation", 0, "initialize"),
    ("004-code-review-filesystem", 0, "initialize"),
    ("004-code-review-filesystem", 1, "tools/list"),
    ("004-code-review-github", 0, "initialize"),
    ("004-code-review-github", 1, "tools/list"),
]
OPEN = [
    ("003-weather", 3, "tools/list"),
    ("004-code-review-filesystem", 2, "tools/call"),
    ("004-code-review-github", 2, "tools/call"),
    ("004-code-review-github", 3, "tools/call"),
]


def greeted_seed(name: str) -> Recording:
    """Load a conversation, with a handshake before it if it shows none."""
    shown = seed(name)
    greeted = any(entry.json.get("method") == "initialize" for entry in shown.entries)
    return shown if greeted else Recording((*GREETING.entries, *shown.entries))


@cache
def play(name: str) -> Replay:
    """Replay a conversation against its server."""

    async def main() -> Replay:
        return await replay(greeted_seed(name), SERVERS[name]())

    return run_async(main())


def holds(actual: Any, shown: Any) -> bool:
    """Return True if everything in ``shown`` is present."""
    if isinstance(shown, dict):
        return isinstance(actual, dict) and all(key in actual and holds(actual[key], shown[key]) for key in shown)
    if isinstance(shown, list):
        return isinstance(actual, list) and len(actual) == len(shown) and all(map(holds, actual, shown))
    return bool(actual == shown)


@pytest.mark.parametrize(("name", "place", "method"), SHOWN)
def test_a_request_is_answered_as_the_seed_shows(name: str, place: int, method: str) -> None:
    answer = play(name).answers[place]
    assert answer.request["method"] == method
    assert answer.recorded is not None
    assert holds(answer.actual, answer.recorded), answer.actual


@pytest.mark.parametrize(("name", "place", "method"), OPEN)
def test_a_request_whose_answer_is_not_shown_succeeds(name: str, place: int, method: str) -> None:
    answer = play(name).answers[place]
    assert (answer.request["method"], answer.recorded, answer.error) == (method, None, None)
    assert "isError" not in answer.result


def test_every_request_of_the_conversations_is_held_to_something() -> None:
    requests = sum(len(play(name).answers) for name in SERVERS)
    greetings = 1
    assert requests == len(SHOWN) + len(OPEN) + greetings


def test_the_weather_is_told_in_the_very_words_of_the_seed() -> None:
    assert play("003-weather").answer("tools/call").same


def test_the_weather_tool_is_listed_as_in_the_seed() -> None:
    answer = play("003-weather").answer("tools/list")
    assert answer.actual == answer.recorded


def test_the_first_handshake_is_answered_as_the_seed_shows() -> None:
    shown = seed("000-initialize-and-sampling")

    async def main() -> ReplayedAnswer:
        # The request that follows needs a tool that sends it; the table's tests have one.
        return (await replay(Recording(shown.entries[:2]), example_server())).answer("initialize")

    answer = run_async(main())
    assert answer.recorded is not None
    assert holds(answer.actual, answer.recorded), answer.actual


def test_a_method_nobody_has_is_answered_as_the_seed_shows() -> None:
    shown = seed("004-method-not-found").entries[-1].json
    ask = Recording.parse('{"from":"client","message":{"jsonrpc":"2.0","id":1,"method":"invalid/method"}}')

    async def main() -> ReplayedAnswer:
        return (await replay(Recording((*GREETING.entries, *ask.entries)), search_server())).answer("invalid/method")

    answer = run_async(main())
    assert answer.error["code"] == shown["error"]["code"]
    assert answer.error["data"] == shown["error"]["data"]
