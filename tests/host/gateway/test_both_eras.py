"""A server of both eras behind the gateway: who is in front decides in which of them it is used."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.host.gateway.support import NEW, OLD, Stage, on_stage
from trunkline import Client, RequestFailed

_ROOT = str(Path(__file__).parents[3])
_COMMAND = [sys.executable, "-S", "-m", "tests.host.gateway.both_eras"]
_VARIABLES = {"PYTHONPATH": ":".join([_ROOT, *sys.path])}


def both(*arguments: str, **settings: Any) -> dict[str, Any]:
    """Give the entry of a server of both eras that can ask only in its handshake era."""
    return {"command": _COMMAND[0], "args": [*_COMMAND[1:], *arguments], "env": _VARIABLES, **settings}


def _ann(question: object) -> str:
    return "Ann"


def _shared(stage: Stage) -> int | None:
    return stage.host.status()[0].pid


async def _data(client: Client, name: str, **arguments: Any) -> Any:
    return (await client.call_tool(name, arguments)).data


async def test_a_handshake_client_is_asked_as_if_it_were_connected_directly(tmp_path: Path) -> None:
    async with Client(_COMMAND, env=_VARIABLES, revision=OLD, elicitation=_ann) as direct:
        assert await _data(direct, "ask") == "hello Ann"
    async with (
        on_stage({"b": both()}, tmp_path) as stage,
        stage.client(OLD, elicitation=_ann, sampling=lambda _: "hello", roots=[tmp_path]) as client,
    ):
        assert stage.host.status()[0].era == NEW
        assert await _data(client, "b__ask") == "hello Ann"
        assert await _data(client, "b__think") == "hello"
        assert await _data(client, "b__look") == [tmp_path.as_uri()]
        assert await _data(client, "b__era") == OLD
        # All of its calls go to one process, which is not the one that others share.
        pids = {await _data(client, "b__pid") for _ in range(3)}
        assert len(pids) == 1
        assert _shared(stage) not in pids


@pytest.mark.parametrize(
    ("channel", "asked", "settings"),
    [
        pytest.param(NEW, {"elicitation": _ann}, {}, id="a stateless client"),
        pytest.param(OLD, {}, {}, id="a client that cannot be asked"),
        pytest.param(OLD, {"elicitation": _ann}, {"era": "stateless"}, id="an entry that names the era"),
        pytest.param(OLD, {"elicitation": _ann}, {"share": "shared"}, id="an entry that shares one process"),
        pytest.param(OLD, {"elicitation": _ann}, {"asks": ["roots"]}, id="an entry that lets it ask something else"),
    ],
)
async def test_clients_without_needs_use_the_shared_connection(
    channel: str, asked: dict[str, Any], settings: dict[str, Any], tmp_path: Path
) -> None:
    async with on_stage({"b": both(**settings)}, tmp_path) as stage, stage.client(channel, **asked) as client:
        assert await _data(client, "b__era") == NEW
        assert await _data(client, "b__pid") == _shared(stage)
        assert stage.host.status()[0].dedicated == 0


async def test_a_server_without_a_handshake_is_tried_once(tmp_path: Path) -> None:
    async with (
        on_stage({"b": both("stateless")}, tmp_path) as stage,
        stage.client(OLD, elicitation=_ann) as client,
        stage.client(OLD, elicitation=_ann) as other,
    ):
        pids = {await _data(each, "b__pid") for each in (client, other, client)}
        assert pids == {_shared(stage)}
        (upstream,) = stage.host._open.core.supervisor.upstreams.values()
        assert upstream.supports_handshake is False
        assert stage.host.status()[0].dedicated == 0
        with pytest.raises(RequestFailed, match="no way to ask"):
            await client.call_tool("b__ask")


async def test_a_server_that_may_have_one_process_alone_is_used_without_a_handshake(tmp_path: Path) -> None:
    entry = both()
    entry["args"] = ["-c", _SINGLE, str(tmp_path / "lock")]
    async with on_stage({"b": entry}, tmp_path) as stage, stage.client(OLD, elicitation=_ann) as client:
        assert await _data(client, "b__pid") == _shared(stage)
        assert await _data(client, "b__pid") == _shared(stage)


_SINGLE = """
import os, sys
from tests.host.gateway.both_eras import make
from trunkline.protocol.revisions import REVISION_NAMES
os.close(os.open(sys.argv[1], os.O_CREAT | os.O_EXCL))
make(list(REVISION_NAMES)).run()
"""


async def test_the_shared_connection_keeps_its_era_after_a_restart(tmp_path: Path) -> None:
    async with on_stage({"b": both()}, tmp_path) as stage, stage.client(OLD, elicitation=_ann) as client:
        assert await _data(client, "b__era") == OLD
        await stage.host.restart("b")
        assert await _data(client, "b__ask") == "hello Ann"
        assert stage.host.status()[0].era == NEW
