"""Who asks a person before a call: the client in front, the gateway itself, or no one."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import trunkline.types as t
from tests.host.gateway.support import (
    FRONTS,
    NEW,
    OLD,
    PAIRS,
    Stage,
    allow,
    audit_entries,
    fronted,
    on_stage,
    over_http,
    server,
)
from trunkline import Client, Context, Server
from trunkline.errors import ConfigError
from trunkline.host.authorization.approval import ApprovalMode
from trunkline.host.authorization.policy.loader import parse_policy
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.gateway.app import Profile
from trunkline.host.gateway.sessions import GatewayOptions

CLIENT = GatewayOptions(approval="client")
SEARCHED = GatewayOptions(approval="client", search="on")
ASK = '[[rule]]\nname = "careful"\neffect = "ask"\nserver = "s"\ntool = "write"\n'
DENY = '[[rule]]\nname = "no"\neffect = "deny"\nserver = "s"\ntool = "write"\nwhen = [{ arg = "/to", equals = "x" }]\n'
DENY_ALL = '[[rule]]\neffect = "deny"\nserver = "s"\ntool = "write"\n'


class Desk:
    """A server that writes down what it did."""

    def __init__(self, revision: str = NEW) -> None:
        self.done: list[str] = []
        self.server: Server = server("desk", revision)
        hints = t.ToolAnnotations(title="Write it", read_only_hint=False, destructive_hint=True, open_world_hint=True)
        self.server.tool(annotations=hints)(self.write)
        self.server.tool(annotations=t.ToolAnnotations(read_only_hint=True))(self.look)
        self.server.add_tool(self.ask)

    async def write(self, to: str = "a") -> str:
        """Write a letter."""
        self.done.append(to)
        return f"wrote {to}"

    async def look(self) -> str:
        """Look around."""
        return "seen"

    async def ask(self, ctx: Context) -> str:
        """Ask for a name."""
        return f"{(await ctx.elicit('Your password?', str)).action}"


def rules(text: str = "") -> Policy:
    return parse_policy(text, file="policy.toml")


def trail(folder: Path) -> list[dict[str, Any]]:
    return audit_entries(folder / "audit.jsonl")


def front(desk: Desk, folder: Path, revision: str = NEW, **options: Any) -> AbstractAsyncContextManager[Client]:
    """Open a client that asks its own user, in front of the gateway of this server; no rule unless one is given."""
    return fronted({"s": desk.server}, folder, revision, **{"policy": rules(), "gateway": CLIENT, **options})


async def _call(client: Client, tool: str = "s__write", /, **arguments: Any) -> tuple[bool, str]:
    result = await client.call_tool(tool, arguments, raise_on_error=False)
    return result.is_error, result.text


# --- client ----------------------------------------------------------------------------------------------------------


@FRONTS
async def test_a_client_that_cannot_be_asked_gets_its_calls_through(channel: str, tmp_path: Path) -> None:
    desk = Desk()
    async with front(desk, tmp_path, channel, audit=True) as client:
        assert await _call(client, to="b") == (False, "wrote b")
    assert [(each["rule"], each["effect"], each["by"], each["caller"]) for each in trail(tmp_path) if "by" in each] == [
        ("default: untrusted server", "ask", "client", "gateway")
    ]


@FRONTS
async def test_a_client_that_can_be_asked_is_not_asked_either(channel: str, tmp_path: Path) -> None:
    desk = Desk(OLD)
    async with front(desk, tmp_path, channel, elicitation=lambda _: pytest.fail("asked")) as client:
        assert await _call(client) == (False, "wrote a")


@FRONTS
async def test_a_rule_that_asks_is_refused_to_a_client_that_cannot_be_asked(channel: str, tmp_path: Path) -> None:
    desk = Desk(OLD)
    async with front(desk, tmp_path, channel, policy=rules(ASK), audit=True) as client:
        refused, text = await _call(client)
    assert refused
    assert text.startswith("s/write needs approval (rule 'careful' (policy.toml:1) requires approval), and ")
    assert (desk.done, [(each["stage"], each["by"]) for each in trail(tmp_path)]) == (
        [],
        [("denied", "policy")],
    )


@PAIRS
async def test_a_rule_that_asks_is_asked_about_where_the_client_can_be(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    desk, asked = Desk(upstream), list[str]()

    def answer(question: t.ElicitRequestParams) -> Any:
        asked.append(question.message)
        return {"decision": "allow once"}

    async with front(desk, tmp_path, channel, policy=rules(ASK), audit=True, elicitation=answer) as client:
        assert await _call(client) == (False, "wrote a")
    assert len(asked) == 1
    assert {each["by"] for each in trail(tmp_path) if each["stage"] == "begun"} == {"client"}


def _mark(stage: Stage, **changes: Any) -> None:
    """Have the catalog say something of ``s/write``, as the inspector does."""
    core = stage.host._open.core
    item = core.catalog.tools["s/write"]
    core.catalog = replace(core.catalog, tools={**core.catalog.tools, "s/write": replace(item, **changes)})
    core.rules_changed()


@pytest.mark.parametrize("why", ["flagged", "changed"])
async def test_a_flagged_or_changed_definition_is_refused_with_the_command_that_accepts_it(
    why: str, tmp_path: Path
) -> None:
    desk = Desk()
    async with on_stage({"s": desk.server}, tmp_path, policy=allow("s"), gateway=CLIENT) as stage:
        _mark(stage, **{why: ("it says something else",)})
        async with stage.client(NEW) as client:
            refused, said = await _call(client)
    assert (refused, desk.done) == (True, [])
    assert said.endswith("Allow it: trunkline pins accept s/write")


# --- never weaker than a direct connection ---------------------------------------------------------------------------


@PAIRS
async def test_names_show_the_server_and_annotations_pass_unchanged(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    desk = Desk(upstream)
    async with Client(desk.server, revision=upstream) as direct:
        there = {tool.name: tool for tool in await direct.list_tools()}
    async with front(desk, tmp_path, channel) as client:
        here = {tool.name: tool for tool in await client.list_tools()}
    assert set(here) == {f"s__{name}" for name in there}
    assert {name: here[f"s__{name}"].annotations for name in there} == {
        name: tool.annotations for name, tool in there.items()
    }


# --- search ----------------------------------------------------------------------------------------------------------


@PAIRS
async def test_a_call_through_call_tool_is_refused_with_the_name_to_call(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    desk = Desk(upstream)
    async with front(desk, tmp_path, channel, gateway=SEARCHED) as client:
        refused, text = await _call(client, "call_tool", name="s__write", arguments={"to": "b"})
        assert (refused, desk.done) == (True, [])
        assert "s/write needs approval" in text
        assert "Allow it: call the tool by its own name, s__write; or add this to the policy" in text
        assert await _call(client, "s__write", to="c") == (False, "wrote c")


async def test_a_call_through_call_tool_does_not_pass_by_the_default_for_trusted_servers(tmp_path: Path) -> None:
    servers, settings = {"s": Desk().server}, {"trusted": True}
    async with fronted(servers, tmp_path, OLD, policy=rules(), gateway=SEARCHED, settings=settings) as client:
        refused, text = await _call(client, "call_tool", name="s__look", arguments={})
        assert (refused, "called through call_tool" in text, "by its own name, s__look" in text) == (True, True, True)
        assert await _call(client, "s__look") == (False, "seen")


@PAIRS
async def test_a_call_through_call_tool_is_asked_about_where_the_client_can_be(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    desk, asked = Desk(upstream), list[str]()

    def answer(question: t.ElicitRequestParams) -> Any:
        asked.append(question.message)
        return {"decision": "allow for this session"}

    async with front(desk, tmp_path, channel, gateway=SEARCHED, elicitation=answer) as client:
        for to in ("b", "c"):
            called = await _call(client, "call_tool", name="s__write", arguments={"to": to})
            assert called == (False, f"wrote {to}")
    # The second is allowed by what was answered to the first.
    assert len(asked) == 1
    assert "'write'" in asked[0]


@pytest.mark.parametrize("name", ["call_tool", "search_tools", "s__call_tool"])
async def test_call_tool_does_not_call_itself(name: str, tmp_path: Path) -> None:
    desk = Desk()
    async with front(desk, tmp_path, gateway=SEARCHED) as client:
        inner = {"name": "s__write", "arguments": {}}
        refused, _ = await _call(client, "call_tool", name=name, arguments=inner)
    assert (refused, desk.done) == (True, [])


@FRONTS
async def test_what_was_found_is_listed_from_then_on_with_its_annotations(channel: str, tmp_path: Path) -> None:
    changes: asyncio.Queue[object] = asyncio.Queue()
    async with front(Desk(), tmp_path, channel, gateway=SEARCHED, on_change=changes.put_nowait) as client:
        assert [tool.name for tool in await client.list_tools()] == ["search_tools", "call_tool"]
        await client.call_tool("search_tools", {"query": "write a letter", "limit": 1})
        await changes.get()
        listed = {tool.name: tool for tool in await client.list_tools()}
    assert list(listed) == ["search_tools", "call_tool", "s__write"]
    annotations = listed["s__write"].annotations
    assert annotations is not None
    assert (annotations.title, annotations.destructive_hint) == ("Write it", True)


async def test_what_one_session_found_is_not_listed_to_another(tmp_path: Path) -> None:
    async with (
        on_stage({"s": Desk().server}, tmp_path, policy=rules(), gateway=SEARCHED) as stage,
        stage.client(OLD) as one,
        stage.client(OLD) as other,
    ):
        await one.call_tool("search_tools", {"query": "write a letter"})
        assert "s__write" in [tool.name for tool in await one.list_tools()]
        assert "s__write" not in [tool.name for tool in await other.list_tools()]


async def test_only_so_many_found_tools_are_listed_and_the_latest_stay(tmp_path: Path) -> None:
    made = Server("many")
    for number in range(100):
        made.add_tool(lambda: "", name=f"tool_{number:03}", description=f"Do thing number{number:03}.")
    async with fronted({"m": made}, tmp_path, policy=rules(), gateway=SEARCHED) as client:
        for number in range(100):
            await client.call_tool("search_tools", {"query": f"number{number:03}", "limit": 1})
        names = [tool.name for tool in await client.list_tools()]
    assert len(names) == 2 + 64
    assert names[-1] == "m__tool_099"


# --- ask and deny ----------------------------------------------------------------------------------------------------


async def test_in_code_the_mode_is_ask_unless_said(tmp_path: Path) -> None:
    desk = Desk()
    async with on_stage({"s": desk.server}, tmp_path, policy=rules()) as stage:
        gateway = stage.host.gateway()
        async with Client(gateway) as client:
            refused, text = await _call(client)
        await gateway.aclose()
    assert (gateway.options.approval, refused, desk.done) == ("ask", True, [])
    step = 'serve with --approval client (in code: approval="client") if that client asks its own user before it calls'
    assert f"Allow it: {step}; or add this to the policy" in text


@pytest.mark.parametrize(("approval", "passes"), [(None, False), ("client", True), ("ask", False), ("deny", False)])
async def test_a_host_that_serves_itself_asks_unless_client_is_chosen(
    approval: ApprovalMode | None, passes: bool, tmp_path: Path
) -> None:
    options: dict[str, Any] = {} if approval is None else {"approval": approval}
    async with (
        on_stage({"s": Desk().server}, tmp_path, policy=rules()) as stage,
        over_http(stage.host, **options) as web,
        web.client() as client,
    ):
        assert (await _call(client))[0] is not passes


async def test_a_profile_has_a_mode_of_its_own(tmp_path: Path) -> None:
    profiles = {"own": Profile(approval="client"), "strict": Profile(approval="deny"), "same": Profile()}
    async with (
        on_stage({"s": Desk().server}, tmp_path, policy=rules()) as stage,
        over_http(stage.host, profiles=profiles) as web,
    ):
        outcomes = {}
        for name in ("", "/own", "/strict", "/same"):
            async with web.client(path=name) as client:
                outcomes[name] = await _call(client)
    assert {name: refused for name, (refused, _) in outcomes.items()} == {
        "": True,
        "/own": False,
        "/strict": True,
        "/same": True,
    }
    assert "this gateway never asks (approval mode deny)" in outcomes["/strict"][1]


async def test_a_mode_that_there_is_not_is_refused(tmp_path: Path) -> None:
    wrong: Any = "user"
    async with on_stage({"s": Desk().server}, tmp_path) as stage:
        with pytest.raises(ConfigError, match="'user' is not an approval mode: use client, ask, deny"):
            stage.host.asgi(no_auth=True, approval=wrong)


@PAIRS
async def test_mode_deny_never_asks_and_passes_what_a_rule_allows(channel: str, upstream: str, tmp_path: Path) -> None:
    desk = Desk(upstream)
    policy = rules('[[rule]]\neffect = "allow"\nserver = "s"\ntool = ["look", "ask"]\n')
    async with front(
        desk,
        tmp_path,
        channel,
        policy=policy,
        gateway=GatewayOptions(approval="deny"),
        elicitation=lambda _: pytest.fail("asked"),
    ) as client:
        refused, text = await _call(client)
        assert await _call(client, "s__look") == (False, "seen")
        # What a server asks is declined unless a rule allows it.
        assert await _call(client, "s__ask") == (False, "decline")
    assert (refused, desk.done) == (True, [])
    assert "this gateway never asks (approval mode deny)" in text


# --- taint -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "passes"), [("client", True), ("ask", False)])
async def test_taint_is_recorded_and_refuses_nothing_that_the_client_asks_about(
    mode: ApprovalMode, passes: bool, tmp_path: Path
) -> None:
    desk, web = Desk(), Desk()
    policy = rules("".join(f'[[rule]]\neffect = "allow"\nserver = "{name}"\ntool = "*"\n' for name in ("s", "web")))
    async with fronted(
        {"s": desk.server, "web": web.server},
        tmp_path,
        OLD,
        policy=policy,
        gateway=GatewayOptions(approval=mode),
        audit=True,
    ) as client:
        await _call(client, "web__look")
        refused, text = await _call(client)
    assert refused is not passes
    assert ("The untrusted text came from web." in text) is not passes
    begun = [each for each in trail(tmp_path) if each["stage"] == "begun" and each["server"] == "s"]
    expected = [("client", "untrusted text came into the session from web")] if passes else []
    assert [(each["by"], each["note"]) for each in begun] == expected


async def test_the_form_says_where_untrusted_text_came_from(tmp_path: Path) -> None:
    policy = rules("".join(f'[[rule]]\neffect = "allow"\nserver = "{name}"\ntool = "*"\n' for name in ("s", "web")))
    forms: list[str] = []

    def decline(question: t.ElicitRequestParams) -> t.ElicitResult:
        forms.append(question.message)
        return t.ElicitResult(action="decline")

    async with fronted(
        {"s": Desk().server, "web": Desk().server}, tmp_path, OLD, policy=policy, elicitation=decline
    ) as client:
        await _call(client, "web__look")
        await _call(client)
    assert ["The untrusted text came from: web" in form.splitlines() for form in forms] == [True]
