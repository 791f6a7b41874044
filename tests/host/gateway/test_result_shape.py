"""Through the gateway a tool has one shape, whatever the era and the form its server answers in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host.gateway.support import CELLS, NEW, OLD, on_stage, revisions_of
from trunkline import Server
from trunkline.host.host import Host

BARE = pytest.mark.parametrize("wraps", [True, False], ids=["wrapped", "bare"])


def server(revision: str, *, wraps: bool) -> Server:
    made = Server("s", revisions=revisions_of(revision), wrap_results=wraps)

    @made.tool
    async def count() -> int:
        return 3

    @made.tool
    async def find(there: bool) -> dict[str, int] | None:
        return {"n": 1} if there else None

    return made


@CELLS
@BARE
async def test_a_value_that_is_no_object_is_wrapped_for_every_client(
    channel: str, upstream: str, tmp_path: Path, *, wraps: bool
) -> None:
    async with on_stage({"s": server(upstream, wraps=wraps)}, tmp_path) as stage, stage.client(channel) as client:
        schemas = {tool.name: tool.output_schema or {} for tool in await client.list_tools()}
        assert {schema.get("type") for schema in schemas.values()} == {"object"}
        for arguments, value in (({"there": True}, {"n": 1}), ({"there": False}, None)):
            result = await client.call_tool("s__find", arguments)
            assert (result.structured_content, result.data) == ({"result": value}, value)
        assert (await client.call_tool("s__count")).structured_content == {"result": 3}


async def test_the_pin_of_a_tool_is_the_same_in_both_eras_and_forms(tmp_path: Path) -> None:
    pins = set()
    for number, (revision, wraps) in enumerate([(OLD, True), (NEW, True), (NEW, False)]):
        async with Host.open({"s": server(revision, wraps=wraps)}, folder=tmp_path / str(number)) as host:
            pins.add(tuple(item.pin for item in host.catalog.tools.values()))
    assert len(pins) == 1


@pytest.mark.parametrize("revision", [OLD, NEW])
@BARE
async def test_a_program_reads_the_value_itself(revision: str, tmp_path: Path, *, wraps: bool) -> None:
    async with on_stage({"s": server(revision, wraps=wraps)}, tmp_path) as stage:
        assert (await stage.host.call_tool("s/count")).data == 3
        assert (await stage.host.call_tool("s/find", {"there": True})).data == {"n": 1}
