"""The one way to do anything: arguments are read once, and nothing is done before it is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import Raw

from tests.host.gateway.support import on_stage
from trunkline import Server
from trunkline.errors import RequestFailed
from trunkline.host.audit.trail import AuditEntry, AuditFailed, AuditTrail
from trunkline.host.authorization.authorizer import decode_arguments


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(None, {}, id="none"),
        pytest.param(b"{}", {}, id="empty"),
        pytest.param(b'{"a":1,"a":2}', {"a": 2}, id="twice"),
        pytest.param(b'{"a":{"b":1,"b":[2]}}', {"a": {"b": [2]}}, id="twice below"),
        pytest.param(b'{"\\u0061":1}', {"a": 1}, id="escaped"),
        pytest.param(b'{"a":9007199254740993}', {"a": 9007199254740993}, id="large number"),
    ],
)
def test_arguments_are_decoded(raw: bytes | None, expected: dict[str, object]) -> None:
    assert decode_arguments(None if raw is None else Raw(raw)) == expected


@pytest.mark.parametrize("raw", [b"[]", b"null", b"7", b'"a"', b"{", b'{"a":}', b'{"a":"\xff"}', b"[" * 100_000])
def test_arguments_that_are_no_object_are_refused(raw: bytes) -> None:
    with pytest.raises(RequestFailed) as refused:
        decode_arguments(Raw(raw))
    assert refused.value.code == -32602


async def test_an_act_is_recorded_before_it_is_done_and_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    record = AuditTrail.record
    made = Server("s")

    def note(self: AuditTrail, entry: AuditEntry) -> None:
        order.append(entry.stage)
        record(self, entry)

    @made.tool
    async def act() -> str:
        """Act."""
        order.append("done")
        return ""

    monkeypatch.setattr(AuditTrail, "record", note)
    async with on_stage({"s": made}, tmp_path, audit=True) as stage:
        await stage.host.call_tool("s/act")
    assert order == ["begun", "done", "ended"]


async def test_a_program_cannot_do_what_cannot_be_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    made = Server("s")

    @made.tool
    async def act() -> str:
        """Act."""
        done.append(1)
        return ""

    def full(self: AuditTrail, entry: AuditEntry) -> None:
        raise AuditFailed("the trail cannot be written")

    async with on_stage({"s": made}, tmp_path, audit=True) as stage:
        monkeypatch.setattr(AuditTrail, "record", full)
        with pytest.raises(AuditFailed):
            await stage.host.call_tool("s/act")
    assert done == []
