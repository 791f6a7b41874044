"""The server as its author sees it: options, serving, ending."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.server.talk import HANDSHAKE, STATELESS, call, reach, text
from tests.support import case_id
from trunkline import Client, Server
from trunkline.errors import ConfigError
from trunkline.protocol.limits import Limits
from trunkline.server import CompatibilityWarning
from trunkline.testing.clock import FakeClock
from trunkline.transports.memory import memory_pair


def hello() -> str:
    return "hello"


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("titel", "x", "Server has no option 'titel'; did you mean 'title'"),
        ("mask_eror_details", None, "Server has no option 'mask_eror_details'; did you mean 'mask_error_details'"),
        ("mask_eror_details", [], "Server has no option 'mask_eror_details'; did you mean 'mask_error_details'"),
        ("qqq", 1, "Server has no option 'qqq'$"),
        ("token_verifier", object(), "option 'token_verifier': use auth= with a verifier"),
        ("exclude_tags", {"beta"}, "option 'exclude_tags': hide what has a tag with visible="),
    ],
    ids=["misspelt", "misspelt and none", "misspelt and empty", "unlike any other", "of the SDK", "of FastMCP"],
)
def test_an_option_that_a_server_does_not_have_is_rejected_with_a_hint(option: str, value: object, words: str) -> None:
    given: dict[str, Any] = {option: value}
    with pytest.raises(TypeError, match=words):
        Server("s", **given)


def test_http_options_are_stored_for_http() -> None:
    given: dict[str, Any] = {"host": "h", "port": 1, "stateless_http": True, "json_response": True, "sse_path": "/s"}
    assert Server("s", **given).settings.http == given


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        pytest.param({"auth": object()}, "auth= must be a verifier", id="auth"),
        pytest.param({"revisions": ["1999-01-01"]}, "1999-01-01.*unknown", id="revisions"),
        pytest.param({"on_duplicate": "explode"}, "on_duplicate='explode'", id="on_duplicate"),
        pytest.param({"tasks": True}, "task=True on each", id="tasks"),
        pytest.param(
            {"list_page_size": 0}, "list_page_size=0: a page must hold at least one item", id="list_page_size"
        ),
        pytest.param(
            {"limits": Limits(page_size=-1)}, "list_page_size=-1: a page must hold at least one item", id="limits"
        ),
    ],
)
def test_an_invalid_option_is_rejected_with_a_reason(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Server("s", **options)


def test_options_left_at_none_keep_their_defaults() -> None:
    def fails() -> None:
        raise ValueError("secret")

    names = ("tools", "capabilities", "mask_error_details", "cache_ttl_ms", "on_duplicate", "auth", "host", "visible")
    given: dict[str, Any] = dict.fromkeys(names)
    server = Server("s", **given)
    server.add_tool(fails)
    assert text(call(server, "fails")) == "Tool 'fails' failed unexpectedly."


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("debug", True),
        ("log_level", "INFO"),
        ("dereference_schemas", False),
        ("warn_on_duplicate_tools", False),
        ("dependencies", ["x"]),
        ("resource_security", {"strict": True}),
    ],
    ids=case_id,
)
def test_an_option_of_another_framework_without_effect_is_accepted_with_a_warning(option: str, value: object) -> None:
    given: dict[str, Any] = {option: value}
    with pytest.warns(CompatibilityWarning, match=f"{option}=.* has no effect: ") as warned:
        assert Server("s", **given).name == "s"
    assert [each.filename for each in warned] == [__file__]


@pytest.mark.parametrize(
    ("option", "value"),
    [("debug", False), ("strict_input_validation", False), ("dereference_schemas", True), ("providers", ())],
    ids=str,
)
def test_an_option_that_requests_the_default_behaviour_is_accepted(option: str, value: object) -> None:
    given: dict[str, Any] = {option: value}
    assert Server("s", **given).name == "s"


@pytest.mark.parametrize("options", [{"cache_ttl": 1.5}, {"cache_ttl_ms": 1500}], ids=["seconds", "milliseconds"])
async def test_cache_ttl_is_sent_with_lists(options: dict[str, Any]) -> None:
    async with reach(Server("s", tools=[hello], **options), STATELESS) as peer:
        assert (await peer.result("tools/list"))["ttlMs"] == 1500


# --- revisions -------------------------------------------------------------------------------------------------------


async def test_a_server_may_speak_some_revisions_only() -> None:
    server = Server("s", tools=[hello], revisions=["2025-03-26", HANDSHAKE])
    async with reach(server, STATELESS) as peer:
        error = await peer.error("tools/list")
    async with reach(server, "2024-11-05", greet=False) as peer:
        met = await peer.result("initialize", peer.hello())
    assert (error["code"], error["data"]["supported"], met["protocolVersion"]) == (
        -32022,
        [HANDSHAKE, "2025-03-26"],
        HANDSHAKE,
    )


# --- serving ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clock", [None, FakeClock()], ids=["own-clock", "given-clock"])
def test_a_server_outlives_its_event_loop(clock: FakeClock | None) -> None:
    async def wait() -> str:
        return "waited"

    server = Server("s", tools=[wait], clock=clock)
    assert [text(call(server, "wait")), text(call(server, "wait"))] == ["waited", "waited"]


async def test_serving_a_link_may_be_cancelled() -> None:
    ours, theirs = memory_pair()
    serving = asyncio.ensure_future(Server("s", tools=[hello]).serve(ours))
    async with Client(theirs, revision=HANDSHAKE) as client:
        serving.cancel()
        await asyncio.wait([serving])
        assert (serving.cancelled(), client.server_capabilities["tools"]) == (True, {"listChanged": True})


async def test_a_closed_server_runs_no_more_threads() -> None:
    server = Server("s", tools=[hello])
    async with reach(server, STATELESS) as peer:
        server.close()
        assert (await peer.call("hello"))["isError"] is True
