"""Everything that is done through the gateway stands in the trail, and what cannot be recorded is not done."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.host.gateway.support import (
    CELLS,
    NEW,
    OLD,
    PAIRS,
    Stage,
    allow,
    audit_entries,
    fronted,
    on_stage,
    server,
    until,
)
from trunkline import Context, RequestFailed, Server
from trunkline.host.audit.reader import verify
from trunkline.host.authorization.policy.loader import parse_policy
from trunkline.host.config.model import ServerEntry, Source

RULES = """
[[rule]]
name = "no danger"
effect = "deny"
server = "a"
tool = "danger"
when = [{ arg = "/level", min = 5 }]

[[redact]]
server = "a"
tool = "login"
arg = "/pin"
"""


def vault(revision: str) -> Server:
    """Make a server with something of every outcome."""
    made = server("vault", revision)

    @made.tool
    async def login(user: str, pin: str, password: str = "") -> str:
        """Log in."""
        return f"welcome {user}"

    @made.tool
    async def danger(level: int) -> str:
        """Do harm."""
        raise ValueError("harm")

    @made.tool
    async def ask(ctx: Context) -> str:
        """Ask."""
        return str((await ctx.elicit("Name?", str)).data)

    @made.tool
    async def wait() -> str:
        """Wait."""
        await asyncio.Event().wait()
        return ""

    @made.resource("note://1")
    async def note() -> str:
        return "note"

    @made.prompt
    async def greet(name: str) -> str:
        return f"hi {name}"

    return made


@asynccontextmanager
async def recorded(revision: str, folder: Path, **more: Any) -> AsyncIterator[tuple[Stage, Path]]:
    """Open a host that keeps a trail."""
    trail = folder / "audit.jsonl"
    policy = allow("a", more=RULES)
    entry = ServerEntry(name="a", source=Source("given"), target=vault(revision), secrets=frozenset({"s3cret-value"}))
    async with on_stage({"a": entry}, folder, policy=policy, audit=trail, **more) as stage:
        yield stage, trail


def _outcomes(trail: Path) -> list[str]:
    return [each["outcome"] for each in audit_entries(trail) if each["stage"] in ("ended", "denied")]


@PAIRS
async def test_what_is_begun_is_ended_with_a_digest(channel: str, upstream: str, tmp_path: Path) -> None:
    async with recorded(upstream, tmp_path) as (stage, trail), stage.client(channel) as client:
        await client.call_tool("a__login", {"user": "ada", "pin": "1"})
        await client.read_resource("note://a/1")
        await client.get_prompt("a__greet", {"name": "Ada"})
    entries = audit_entries(trail)
    begun = [each for each in entries if each["stage"] == "begun"]
    ended = {each["act_id"]: each for each in entries if each["stage"] == "ended"}
    assert [(each["kind"], each["name"], each["caller"]) for each in begun] == [
        ("tool", "login", "gateway"),
        ("resource", "note://1", "gateway"),
        ("prompt", "greet", "gateway"),
    ]
    assert [ended[each["act_id"]]["outcome"] for each in begun] == ["ok"] * 3
    assert all(each["digest"].startswith("sha256:") and each["latency_ms"] >= 0 for each in ended.values())
    assert verify(trail).ok


@PAIRS
async def test_secrets_among_the_arguments_are_not_written(channel: str, upstream: str, tmp_path: Path) -> None:
    async with recorded(upstream, tmp_path) as (stage, trail), stage.client(channel) as client:
        await client.call_tool("a__login", {"user": "s3cret-value", "pin": "4711", "password": "hunter2"})
    text = trail.read_text()
    assert not [secret for secret in ("4711", "hunter2", "s3cret-value") if secret in text]


@PAIRS
async def test_a_denial_names_its_rule(channel: str, upstream: str, tmp_path: Path) -> None:
    async with recorded(upstream, tmp_path) as (stage, trail), stage.client(channel) as client:
        refused = await client.call_tool("a__danger", {"level": 9}, raise_on_error=False)
    (entry,) = audit_entries(trail)
    assert refused.is_error
    assert (entry["stage"], entry["effect"], entry["rule"], entry["by"]) == ("denied", "deny", "no danger", "policy")
    assert entry["arguments"] == {"level": 9}


@PAIRS
async def test_failure_and_cancellation_are_told_apart(channel: str, upstream: str, tmp_path: Path) -> None:
    async with recorded(upstream, tmp_path) as (stage, trail), stage.client(channel) as client:
        await client.call_tool("a__danger", {"level": 1}, raise_on_error=False)
        waiting = asyncio.create_task(client.call_tool("a__wait"))
        await until(lambda: len(audit_entries(trail)) == 3)
        waiting.cancel()
        await until(lambda: len(audit_entries(trail)) == 4)
    assert _outcomes(trail) == ["tool-error", "cancelled"]


@CELLS
async def test_a_call_that_asks_is_recorded_with_what_was_asked_and_every_round(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    async with (
        recorded(upstream, tmp_path) as (stage, trail),
        stage.client(channel, elicitation=lambda _: "Ada") as client,
    ):
        await client.call_tool("a__ask")
    entries = audit_entries(trail)
    stages = Counter(each["stage"] for each in entries)
    assert stages["begun"] == stages["ended"]
    assert {each["name"] for each in entries if each["stage"] == "note"} == {"elicitation/create"}
    assert _outcomes(trail) == ["asked"] * (stages["ended"] - 1) + ["ok"]


@PAIRS
async def test_what_cannot_be_recorded_is_not_done(
    channel: str, upstream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trunkline.host.audit.trail import AuditFailed, AuditTrail

    def full(self: AuditTrail, entry: object) -> None:
        raise AuditFailed("audit.jsonl cannot be written: No space left on device")

    async with recorded(upstream, tmp_path) as (stage, _), stage.client(channel) as client:
        monkeypatch.setattr(AuditTrail, "record", full)
        with pytest.raises(RequestFailed, match="cannot write its audit trail"):
            await client.call_tool("a__login", {"user": "ada", "pin": "1"})
        monkeypatch.undo()
        assert (await client.call_tool("a__login", {"user": "ada", "pin": "1"})).data == "welcome ada"


async def test_a_denied_call_answered_as_unknown_is_in_the_trail(tmp_path: Path) -> None:
    policy = parse_policy('[[rule]]\neffect = "deny"\nserver = "a"\ntool = "danger"\n', file="policy.toml")
    async with fronted({"a": vault(NEW)}, tmp_path, OLD, policy=policy, audit=True) as client:
        for name in ("a__danger", "a__nothing"):
            with pytest.raises(RequestFailed, match="Unknown tool"):
                await client.call_tool(name, {"level": 1})
    (entry,) = [line for line in audit_entries(tmp_path / "audit.jsonl") if line.get("kind")]
    assert (entry["stage"], entry["server"], entry["name"], entry["effect"], entry["rule"], entry["outcome"]) == (
        "denied", "a", "danger", "deny", "policy.toml:1", "denied",
    )  # fmt: skip
