"""The server as its author sees it: options, serving, ending."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.server.talk import ERAS, HANDSHAKE, STATELESS, call, reach, text
from tests.support import case_id
from trunkline import Client, Server
from trunkline.compat import CompatibilityWarning
from trunkline.errors import ConfigError
from trunkline.protocol.limits import Limits
from trunkline.testing.clock import FakeClock
from trunkline.transports.memory import memory_pair


def hello() -> str:
    return "hello"


def test_a_server_has_a_name_and_a_version() -> None:
    server = Server("weather", version="1.2")
    assert (server.name, server.version, Server().name) == ("weather", "1.2", "trunkline")


# --- options ---------------------------------------------------------------------------------------------------------


def test_an_unknown_option_is_rejected_with_the_closest() -> None:
    with pytest.raises(TypeError, match="Server has no option 'titel'; did you mean 'title'"):
        Server("s", titel="x")  # type: ignore[call-arg]


def test_an_unknown_option_without_a_similar_name_is_rejected() -> None:
    with pytest.raises(TypeError, match=r"Server has no option 'qqq'$"):
        Server("s", qqq=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("value", [None, False, ()], ids=str)
def test_an_option_of_another_framework_that_is_switched_off_is_accepted(value: Any) -> None:
    assert Server("s", providers=value).name == "s"  # type: ignore[call-arg]


def test_http_options_are_stored_for_http() -> None:
    given: dict[str, Any] = {"host": "h", "port": 1, "stateless_http": True, "json_response": True, "sse_path": "/s"}
    assert Server("s", **given).http_options == given


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        pytest.param({"auth": object()}, "auth= must be a verifier", id="auth"),
        pytest.param({"revisions": ["1999-01-01"]}, "1999-01-01.*unknown", id="revisions"),
        pytest.param({"on_duplicate": "explode"}, "on_duplicate='explode'", id="on_duplicate"),
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
        ("strict_input_validation", True),
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
    [("debug", False), ("strict_input_validation", False), ("dereference_schemas", True), ("dependencies", [])],
    ids=str,
)
def test_an_option_that_requests_the_default_behaviour_is_accepted(option: str, value: object) -> None:
    given: dict[str, Any] = {option: value}
    assert Server("s", **given).name == "s"


@pytest.mark.parametrize("value", [False, None, [], True], ids=str)
def test_a_misspelt_option_is_rejected_whatever_its_value(value: object) -> None:
    given: dict[str, Any] = {"mask_eror_details": value}
    with pytest.raises(TypeError, match="Server has no option 'mask_eror_details'; did you mean 'mask_error_details'"):
        Server("s", **given)


def test_an_unsupported_option_of_another_framework_is_rejected_with_a_hint() -> None:
    given: dict[str, Any] = {"token_verifier": object()}
    with pytest.raises(TypeError, match="option 'token_verifier': use auth= with a verifier"):
        Server("s", **given)


def test_tools_can_be_passed_to_the_constructor() -> None:
    assert text(call(Server("s", tools=[hello]), "hello")) == "hello"


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


@ERAS
async def test_any_number_of_connections_are_served_at_once(revision: str) -> None:
    server = Server("s", tools=[hello])
    async with Client(server, revision=revision) as first, Client(server, revision=revision) as second:
        found = await asyncio.gather(first.call_tool("hello"), second.call_tool("hello"))
    assert [each.data for each in found] == ["hello", "hello"]


@pytest.mark.parametrize("clock", [None, FakeClock()], ids=["own-clock", "given-clock"])
def test_a_server_outlives_its_event_loop(clock: FakeClock | None) -> None:
    async def wait() -> str:
        return "waited"

    server = Server("s", tools=[wait], clock=clock)
    assert [text(call(server, "wait")), text(call(server, "wait"))] == ["waited", "waited"]


@ERAS
async def test_serving_a_link_lasts_until_the_other_end_closes(revision: str) -> None:
    server = Server("s", tools=[hello])
    ours, theirs = memory_pair()
    serving = asyncio.ensure_future(server.serve(ours))
    async with Client(theirs, revision=revision) as client:
        assert ((await client.call_tool("hello")).data, serving.done()) == ("hello", False)
    await serving


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
