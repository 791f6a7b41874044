"""Every part of the host describes the same item to the policy by the same act."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

import trunkline
import trunkline.types as t
from tests.host.chat.support import traits
from tests.host.gateway.support import Stage, allow, on_stage
from trunkline import Server
from trunkline.cli.chat.completion import visible_items
from trunkline.host.authorization.authorizer import act_for_item, act_for_unlisted
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


async def test_a_completion_is_judged_by_the_act_of_its_prompt(tmp_path: Path, judged: list[Act]) -> None:
    made = shop()

    @made.completion("greet", "name")
    async def names(value: str) -> list[str]:
        return [value]

    async with on_stage({"s": made}, tmp_path, policy=allow("s")) as stage:
        item = item_of(stage, "prompt")
        judged.clear()
        stage.host.status()
        counted = about(judged, item)
        async with stage.client() as client:
            await client.complete(t.PromptReference(name="s__greet"), {"name": "name", "value": "a"})
        assert about(judged, item) == counted


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
        calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
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
