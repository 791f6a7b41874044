"""The official TypeScript clients, both versions, in front of the gateway: over HTTP and stdio, to either era."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.interop.gateway_stage import Served, configured, environment, fleet, served, stdio_command
from tests.interop.peers import NEWEST, NEWEST_HANDSHAKE
from tests.interop.web import node, program_json

#: What every client sees of every server.
SEEN = {
    "listed": True,
    "resources": True,
    "templates": True,
    "prompts": True,
    "sum": "42",
    "failed": [True, True],
    "forecast": {"city": "Oslo", "degrees": 21.5},
    "note": "as it was",
    "map": "the map of Oslo",
    "prompt": "Greet Ann in a kind tone.",
    "completed": ["kind", "keen"],
    "unknown": -32602,
    "many": [str(number + 1) for number in range(20)],
    "stopped": "true",
}
ASKS = ("ask_person", "ask_model", "ask_roots")

CLIENTS = pytest.mark.parametrize(
    ("client", "agreed"),
    [
        (("gateway_ts1_client.mjs", "legacy"), NEWEST_HANDSHAKE),
        (("gateway_ts2_client.mjs", "legacy"), NEWEST_HANDSHAKE),
        (("gateway_ts2_client.mjs", "auto"), NEWEST),
        (("gateway_ts2_client.mjs", NEWEST), NEWEST),
    ],
    ids=["first", "second-handshake", "second-auto", "second-pinned"],
)
#: Those that are not told which revision to use.
FOUND_CLIENTS = pytest.mark.parametrize(
    "client",
    [("gateway_ts1_client.mjs", "legacy"), ("gateway_ts2_client.mjs", "legacy"), ("gateway_ts2_client.mjs", "auto")],
    ids=["first", "second-handshake", "second-auto"],
)
SERVERS = pytest.mark.parametrize("server", ["py-old", "py-new", "py-web-old", "py-web-new", "our-old", "our-new"])


class Stage(NamedTuple):
    """A gateway over HTTP, and what starts the same over stdio."""

    gateway: Served
    file: Path

    def look(self, client: tuple[str, str], server: str, *, authorization: str | None = None) -> Any:
        """Have a client look at a server over HTTP."""
        program, mode = client
        token = self.gateway.authorization if authorization is None else authorization
        return program_json([*node(program), self.gateway.url, token, server, json.dumps(ASKS), mode], seconds=50)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One gateway, with servers of both eras behind it."""
    node("gateway_ts1_client.mjs")
    with fleet() as servers:
        file = configured(servers, tmp_path_factory.mktemp("gateway"))
        with served(file, servers) as gateway:
            yield Stage(gateway, file)


def same(seen: dict[str, Any]) -> dict[str, Any]:
    return {name: seen.get(name, seen.get("said")) for name in SEEN}


@CLIENTS
@SERVERS
def test_a_client_sees_a_server_and_is_asked(stage: Stage, client: tuple[str, str], agreed: str, server: str) -> None:
    seen = stage.look(client, server)
    assert (same(seen), seen.get("version")) == (SEEN, agreed), seen
    # The SDK's client reports a round of questions as progress of its own, and is asked for its folders in one.
    assert seen["progress"][-3:] == [1, 2, 3]
    person, model, roots = seen["asked"]
    assert (person, model) == ("you?, 7", "parrot: Say hello.")
    assert "file:///home/ann" in roots


@FOUND_CLIENTS
@pytest.mark.parametrize("token", ["", "Bearer wrong"], ids=["none", "wrong"])
def test_a_client_without_the_token_is_kept_out(stage: Stage, client: tuple[str, str], token: str) -> None:
    assert stage.look(client, "py-old", authorization=token)["refused"] == 401


@FOUND_CLIENTS
@pytest.mark.parametrize("server", ["our-old", "our-new"])
def test_a_client_starts_a_gateway(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, client: tuple[str, str], server: str
) -> None:
    program, mode = client
    with fleet() as servers:
        file = configured({server: servers[server]}, tmp_path)
    monkeypatch.setenv("TRUNKLINE_HOME", environment(file)["TRUNKLINE_HOME"])
    command = json.dumps(stdio_command(file))
    seen = program_json([*node(program), command, "", server, json.dumps(ASKS), mode], seconds=50)
    assert same(seen) == SEEN
