"""Where the seeds and the specification differ, a table says what we do; each row of it is a test here.

What the seeds say as the specification does is shown by ``tests/interaction``. The other side is played by hand, so
that it can send what no peer of ours would.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.interaction.script import Script
from tests.interaction.web import served
from tests.interaction.wire import Wire
from tests.recordings.seed_files import BROKEN, seed
from trunkline import Client, Server
from trunkline.protocol.jsonrpc import Notification, decode
from trunkline.protocol.sse import EventReader

WIRE = Wire("memory", "2025-06-18")
LOOSE = [("sampling/complete", "sampling/createMessage"), ("elicitation/request", "elicitation/create")]


# --- `sampling/complete`, `elicitation/request` ----------------------------------------------------------------------


@pytest.mark.parametrize(("loose", "right"), LOOSE)
async def test_a_server_answers_a_loose_name_with_the_right_one(loose: str, right: str) -> None:
    async with WIRE.open(Server("s")) as peer:
        error = await peer.error(loose)
    assert (error["code"], error["data"]["method"], right in error["message"]) == (-32601, loose, True)


@pytest.mark.parametrize(("loose", "right"), LOOSE)
async def test_a_client_answers_a_loose_name_with_the_right_one(loose: str, right: str) -> None:
    script = WIRE.script()
    async with script.client(sampling=lambda _: "Paris", elicitation=lambda _: {}):
        error = (await script.ask(loose, {}))["error"]
    assert (error["code"], error["data"]["method"], right in error["message"]) == (-32601, loose, True)


# --- `shutdown()` answered by `bye` ----------------------------------------------------------------------------------


async def test_there_is_no_shutdown_method_and_the_connection_lives_on() -> None:
    async with WIRE.open(Server("s")) as peer:
        refused, alive = await peer.error("shutdown"), await peer.result("ping")
    assert (refused["code"], refused["data"], alive) == (-32601, {"method": "shutdown"}, {})


# --- client capability `tools: {}`; `sampling: {"maxTokens": 8192}` --------------------------------------------------


async def test_our_client_sends_no_capability_the_specification_lacks() -> None:
    script = WIRE.script()
    async with script.client(sampling=lambda _: "x", elicitation=lambda _: {}, roots=[]):
        declared = script.declared
    assert declared.keys() <= {"sampling", "elicitation", "roots", "tasks", "extensions"}
    assert "maxTokens" not in declared["sampling"]


# --- `url` without path or `type` in the config ----------------------------------------------------------------------


async def test_the_transport_of_a_config_entry_is_guessed_from_its_url() -> None:
    server = Server("found-by-url", version="1")
    async with served(server, path="/") as (url, _):
        entry = {"url": url.removesuffix("/mcp"), "headers": {"Authorization": "Bearer x"}}
        async with Client(entry) as client:
            assert client.server_info is not None
            assert client.server_info.name == "found-by-url"


# --- `event: notification` -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["notification", "message", "response"])
def test_a_client_takes_any_event_whose_data_is_a_message(name: str) -> None:
    reader = EventReader(max_event=1000)
    [event] = reader.feed(f'event: {name}\ndata: {{"jsonrpc":"2.0","method":"x"}}\n\n'.encode())
    assert decode(event.data) == Notification("x")


# --- examples that lack `jsonrpc` or `id`, or hold `{...}` -----------------------------------------------------------


@pytest.mark.parametrize("row", BROKEN, ids=lambda row: row["text"])
async def test_a_fragment_is_answered_with_an_error_unless_it_is_an_answer_and_the_connection_lives_on(
    row: dict[str, Any],
) -> None:
    async with WIRE.open(Server("s")) as peer:
        await peer.say(row["text"])
        alive = await peer.result("ping")
        refused = [message["error"]["code"] for message in peer.aside]
    assert (refused, alive) == ([] if row.get("answer") else [row["code"]], {})


# --- the sampling request of the first seed --------------------------------------------------------------------------


async def test_the_seeds_sampling_request_is_answered_by_our_client() -> None:
    question = seed("000-initialize-and-sampling").entries[2].json
    asked: list[Any] = []

    def answer(params: Any) -> str:
        asked.append(params)
        return "Paris"

    script: Script = Wire("memory", "2024-11-05").script()
    async with script.client(sampling=answer):
        reply = await script.ask(question["method"], question["params"], id=question["id"])
    assert (reply["id"], reply["result"]["role"]) == (question["id"], "assistant")
    assert reply["result"]["content"] == {"type": "text", "text": "Paris"}
    assert asked[0].system_prompt == "You are a helpful assistant."
