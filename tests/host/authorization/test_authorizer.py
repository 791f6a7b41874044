"""The one way to do anything: one act for one item, arguments read once, nothing done before it is recorded."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Raw
from msgspec.structs import replace

import trunkline
import trunkline.types as t
from tests.host.chat.support import traits
from tests.host.gateway.support import Stage, allow, on_stage
from trunkline import Server
from trunkline.cli.chat.completion import visible_items
from trunkline.errors import RequestFailed
from trunkline.host.audit.trail import AuditEntry, AuditFailed, AuditTrail
from trunkline.host.authorization.authorizer import act_for_item, act_for_unlisted, decode_arguments
from trunkline.host.authorization.policy.decisions import Act, ToolHints
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.models.scripted import ScriptedModel, ScriptedTurn
from trunkline.host.session import HostSession
from trunkline.host.upstreams.catalog.items import CatalogItem

KINDS = pytest.mark.parametrize("kind", ["tool", "prompt", "resource", "template"])


def shop() -> Server:
    """Make a server with an item of each kind."""
    made = Server("s")

    @made.tool(annotations=t.ToolAnnotations(read_only_hint=False, open_world_hint=True))
    async def act(n: int = 0) -> str:
        """Act."""
        return str(n)

    @made.prompt
    async def greet(name: str = "") -> str:
        """Greet."""
        return name

    @made.resource("note://1")
    async def note() -> str:
        """Read a note."""
        return "note"

    @made.resource("page://{number}")
    async def page(number: str) -> str:
        """Read a page."""
        return number

    return made


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[Act]:
    """Collect the acts that any policy is asked about."""
    acts: list[Act] = []
    judge = Policy._judge

    def note(self: Policy, act: Act, *rest: object) -> object:
        acts.append(act)
        return judge(self, act, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Policy, "_judge", note)
    return acts


def about(acts: list[Act], item: CatalogItem) -> Act:
    """Return what all the acts say about one item, apart from who asks and with which arguments."""
    kind = "resource" if item.kind == "template" else item.kind
    found = [each for each in acts if (each.kind, each.name) == (kind, item.name)]
    plain = {repr(replace(each, caller="", session=None, arguments=None)): each for each in found}
    assert len(plain) == 1
    acts.clear()
    return replace(found[0], caller="", session=None, arguments=None)


def item_of(stage: Stage, kind: str) -> CatalogItem:
    """Return the only item of a kind."""
    (item,) = stage.host.catalog.of(kind).values()  # type: ignore[arg-type]
    return item


def session() -> HostSession:
    """Make an untainted session."""
    return HostSession(now=lambda: 0.0)


@KINDS
async def test_the_status_the_chat_and_the_gateway_judge_the_same_act(
    kind: str, tmp_path: Path, judged: list[Act]
) -> None:
    async with on_stage({"s": shop()}, tmp_path, policy=allow("s")) as stage:
        item = item_of(stage, kind)
        judged.clear()
        stage.host.status()
        counted = about(judged, item)
        visible_items(stage.host, item.kind, session())
        completed = about(judged, item)
        async with stage.client() as client:
            await client.list_tools()
            await client.list_prompts()
            await client.list_resources()
            await client.list_resource_templates()
            listed = about(judged, item)
    assert counted == completed == listed
    assert counted.pin == item.pin
    assert counted.annotations == item.annotations


async def test_a_call_is_judged_by_the_act_that_the_lists_are_judged_by(tmp_path: Path, judged: list[Act]) -> None:
    async with on_stage({"s": shop()}, tmp_path, policy=allow("s")) as stage:
        item = item_of(stage, "tool")
        judged.clear()
        stage.host.status()
        counted = about(judged, item)
        conversation = stage.host.conversation(ScriptedModel([ScriptedTurn(says="Hello.")], traits=traits()))
        [event async for event in conversation.say("Hello.")]
        offered = about(judged, item)
        await stage.host.call_tool("s/act", {"n": 1})
        called = about(judged, item)
        async with stage.client() as client:
            await client.call_tool("s__act", {"n": 1})
            forwarded = about(judged, item)
    assert counted == offered == called == forwarded
    assert counted.annotations == ToolHints(read_only=False, open_world=True)


async def test_an_item_in_a_tainted_session_is_a_tainted_act(tmp_path: Path) -> None:
    async with on_stage({"s": shop()}, tmp_path, policy=allow("s")) as stage:
        item, own = item_of(stage, "tool"), session()
        own.taint.add_source("other", "read", trusted=False)
        assert act_for_item(item, caller="user", session=own).tainted
        assert act_for_unlisted("tool", "s", "act", caller="user", trusted=True, session=own).tainted
        assert not act_for_item(item, caller="gateway", principal="ann", profile="work").tainted


def test_without_a_session_the_principal_and_the_profile_are_given() -> None:
    act = act_for_unlisted("resource", "s", "a://1", caller="gateway", trusted=False, principal="ann", profile="work")
    assert (act.principal, act.profile, act.session, act.pin) == ("ann", "work", None, None)


def _builders() -> Iterator[str]:
    root = Path(trunkline.__file__).parent
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        # Parsing every module takes seconds.
        calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)) if "Act(" in text else ()
        if any(isinstance(call.func, ast.Name) and call.func.id == "Act" for call in calls):
            yield path.relative_to(root).as_posix()


def test_an_act_is_built_in_one_module_or_described_by_hand() -> None:
    assert set(_builders()) == {
        "host/authorization/authorizer.py",
        # Described by hand: nothing real is judged.
        "cli/commands/grants.py",
        "cli/commands/policy.py",
        "host/authorization/deferred_grants.py",
        "host/authorization/policy/policy_tests.py",
    }


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
