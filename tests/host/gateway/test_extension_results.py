"""Kinds of results of extensions through the gateway: only clients that declared the extension get them.

A server of a handshake revision hears one declaration for all clients of the gateway, so it may answer any of them with
such a result.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from tests.host.gateway.poll_program import POLLS as LISTED
from tests.host.gateway.poll_program import polls, server
from tests.host.gateway.support import FRONTS, NEW, OLD, PAIRS, fronted, on_stage, revisions_of
from tests.host.supervised import scripted
from trunkline import Extension, Server
from trunkline.errors import MissingClientCapability, RequestFailed
from trunkline.host.config.model import ServerEntry, ServerSettings, Source
from trunkline.server import CallNext, ServerRequest

POLLS, TICKETS = "com.example/polls", "com.example/tickets"
METHODS = ("tools/call", "prompts/get", "resources/read", "completion/complete")
SENT: dict[str, Any] = {
    "tools/call": {"name": "v__work", "arguments": {}},
    "prompts/get": {"name": "v__work"},
    "resources/read": {"uri": "note://v/1"},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "v__work"},
        "argument": {"name": "topic", "value": "a"},
    },
}
known = pytest.mark.parametrize("objects", [True, False], ids=["known", "listed"])


def extensions() -> list[Extension]:
    """Define two extensions; the second has a kind of result for every method."""
    polls, tickets = Extension(POLLS), Extension(TICKETS)
    polls.result_kind("poll")(print)
    # One name for several methods is a row for each.
    for method in METHODS:
        tickets.result_kind(f"ticket-{method.partition('/')[0]}", method=method)(print)
    return [polls, tickets]


def answering(revision: str = OLD) -> Server:
    """Return a server, of a handshake revision by default, that answers every caller with a ticket."""

    async def tickets(request: ServerRequest, call_next: CallNext) -> Any:
        if request.method in METHODS:
            return {"resultType": f"ticket-{request.method.partition('/')[0]}", "number": 7}
        return await call_next(request)

    server = Server("v", revisions=revisions_of(revision), extensions=extensions(), middleware=[tickets])

    @server.tool
    def work() -> str:
        return "worked"

    @server.prompt(name="work")
    def prompt(topic: str) -> str:
        return topic

    @server.resource("note://1")
    def note() -> str:
        return "note"

    @server.completion("work", "topic")
    def topics(value: str) -> list[str]:
        return ["a"]

    return server


def entry(server: Server, objects: bool) -> Any:
    """Return the server, whose entry lists the extensions unless the host knows them."""
    if objects:
        return server
    settings = ServerSettings(extensions={POLLS: (), TICKETS: ()})
    return ServerEntry(name="v", target=server, settings=settings, source=Source("given"))


def hosted(objects: bool) -> dict[str, Any]:
    """Return the options of a host that knows the extensions, or not."""
    return {"extensions": extensions()} if objects else {}


@FRONTS
@known
async def test_a_client_without_the_extension_is_told_that_it_is_missing(
    channel: str, objects: bool, tmp_path: Path
) -> None:
    refusals: dict[tuple[str, int], MissingClientCapability] = {}
    extensions: list[dict[str, Any]] = [{}, {POLLS: {}}]
    async with on_stage({"v": entry(answering(), objects)}, tmp_path, **hosted(objects)) as stage:
        for declared in extensions:
            async with stage.client(channel, extensions=declared) as client:
                for method in METHODS:
                    with pytest.raises(MissingClientCapability) as refused:
                        await client.request(method, SENT[method])
                    refusals[method, len(declared)] = refused.value
    assert {refusal.code for refusal in refusals.values()} == {-32021}
    required = {key: refusal.data["requiredCapabilities"]["extensions"] for key, refusal in refusals.items()}
    assert {key: names for key, names in required.items() if TICKETS not in names} == {}


@FRONTS
@known
async def test_a_client_with_the_extension_gets_the_result_unchanged(
    channel: str, objects: bool, tmp_path: Path
) -> None:
    # Without the definitions it cannot be told which of the two a kind belongs to.
    declared: dict[str, Any] = {TICKETS: {}} if objects else {POLLS: {}, TICKETS: {}}
    async with (
        on_stage({"v": entry(answering(), objects)}, tmp_path, **hosted(objects)) as stage,
        stage.client(channel, extensions=declared) as client,
    ):
        results = {method: await client.request(method, SENT[method]) for method in METHODS}
    for result in results.values():
        result.pop("_meta", None)
    assert results == {method: {"resultType": f"ticket-{method.partition('/')[0]}", "number": 7} for method in METHODS}


async def test_a_stateless_server_knows_what_each_client_declared(tmp_path: Path) -> None:
    async with fronted({"v": entry(answering(NEW), False)}, tmp_path, extensions={TICKETS: {}}) as client:
        result = await client.request("tools/call", SENT["tools/call"])
    assert result["resultType"] == "ticket-tools"


async def test_a_kind_that_no_forwarded_extension_has_does_not_pass(tmp_path: Path) -> None:
    made = scripted("v", answering())
    polls, _ = extensions()
    async with (
        # The host declares both; the definition that it knows of the second has no such kind.
        on_stage({"v": made}, tmp_path, extensions=[polls, Extension(TICKETS)]) as stage,
        stage.client(extensions={POLLS: {}, TICKETS: {}}) as client,
    ):
        with pytest.raises(RequestFailed) as refused:
            await client.request("tools/call", SENT["tools/call"])
    assert "ticket-tools" not in str(refused.value)


@PAIRS
@known
async def test_the_result_of_a_method_has_the_members_of_the_clients_revision(
    channel: str, upstream: str, objects: bool, tmp_path: Path
) -> None:
    made = server(revisions=revisions_of(upstream))
    options: dict[str, Any] = {"extensions": [polls()]} if objects else {}
    settings = ServerSettings(extensions={} if objects else {LISTED: ("polls/vote",)})
    target = ServerEntry(name="v", target=made, settings=settings, source=Source("given"))
    async with (
        on_stage({"v": target}, tmp_path, **options) as stage,
        stage.client(channel, extensions=[polls()]) as client,
    ):
        result = await client.request("polls/vote", {"question": "Tea?"})
    if channel == OLD:
        assert result == {"voted": "Tea?"}
    else:
        # The identity is that of the gateway.
        assert result.pop("_meta")[t.META_SERVER_INFO]["name"] != "polls"
        assert result == {"resultType": "complete", "voted": "Tea?"}


@PAIRS
async def test_the_metadata_of_a_methods_result_is_kept(channel: str, upstream: str, tmp_path: Path) -> None:
    notes = Extension(POLLS)

    @notes.method("notes/one", act="tool")
    async def one() -> dict[str, Any]:
        return {"_meta": {"com.example/page": 1}}

    made = Server("v", revisions=revisions_of(upstream), extensions=[notes])
    async with fronted({"v": made}, tmp_path, channel, hosted={"extensions": [notes]}, extensions=[notes]) as client:
        result = await client.request("notes/one")
    assert result["_meta"].pop("com.example/page") == 1
    assert set(result["_meta"]) == (set() if channel == OLD else {t.META_SERVER_INFO})
