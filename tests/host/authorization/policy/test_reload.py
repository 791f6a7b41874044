"""Policies are read again with the configuration: all of it counts from then on, or nothing does."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.host.gateway.support import CELLS, on_stage, over_http, server
from trunkline import Client, ConfigError, Server
from trunkline.errors import PolicyDenied, RequestFailed
from trunkline.host.authorization.policy.loader import parse_policy
from trunkline.host.authorization.policy.policy import LivePolicy, Policy
from trunkline.host.gateway.app import Profile
from trunkline.host.host import Host

ALLOW = '[[rule]]\neffect = "allow"\nserver = "a"\ntool = "*"\n'
DENY = '[[rule]]\nname = "closed"\neffect = "deny"\nserver = "*"\ntool = "danger"\n'
BROKEN = '[[rule]]\neffect = "perhaps"\nserver = "*"\ntool = 7\n'


def shop() -> Server:
    """Make a server with a tool that is good and one that is not."""
    made = Server("shop")

    @made.tool
    async def danger() -> str:
        return "harm"

    @made.tool
    async def buy() -> str:
        return "bought"

    return made


def rules(folder: Path, text: str, name: str = "policy.toml") -> Path:
    """Write a policy."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def open_host(folder: Path, *sources: object, **options: Any) -> Host:
    """Open a host under the policy of a file."""
    given = {"folder": folder / "state", "policy": folder / "policy.toml", "audit": False, **options}
    return Host.open(*(sources or ({"a": shop()},)), **given)


async def test_rules_that_were_written_since_hold_after_a_reload(tmp_path: Path) -> None:
    path = rules(tmp_path, ALLOW)
    async with open_host(tmp_path) as host:
        assert (await host.call_tool("a/danger")).text == "harm"
        rules(tmp_path, ALLOW + DENY)
        changes = await host.reload()
        with pytest.raises(PolicyDenied, match="closed"):
            await host.call_tool("a/danger")
    assert (changes.policy, path.name) == (True, "policy.toml")


async def test_a_policy_that_became_wrong_leaves_the_old_rules_and_servers(tmp_path: Path) -> None:
    rules(tmp_path, ALLOW + DENY)
    config = tmp_path / "mcp.json"
    config.write_text('{"mcpServers": {}}', encoding="utf-8")
    async with open_host(tmp_path, config, {"a": shop()}) as host:
        rules(tmp_path, BROKEN)
        config.write_text('{"mcpServers": {"b": {"command": "nothing-of-that-name"}}}', encoding="utf-8")
        with pytest.raises(ConfigError, match=r"policy\.toml"):
            await host.reload()
        with pytest.raises(PolicyDenied, match="closed"):
            await host.call_tool("a/danger")
        assert [each.name for each in host.status()] == ["a"]
        assert list(host.configuration.entries) == []


async def test_a_policy_that_was_given_in_code_stays(tmp_path: Path) -> None:
    given = parse_policy(ALLOW, file="given")
    async with open_host(tmp_path, policy=given) as host:
        assert not (await host.reload()).policy
        assert host.policy is given


async def test_reloads_at_once_come_one_after_another(tmp_path: Path) -> None:
    rules(tmp_path, ALLOW)
    async with open_host(tmp_path) as host:
        rules(tmp_path, ALLOW + DENY)
        changes = await asyncio.gather(*(host.reload() for _ in range(4)))
    assert [each.policy for each in changes] == [True, False, False, False]


async def test_a_conversation_that_is_open_is_judged_by_the_new_rules(tmp_path: Path) -> None:
    rules(tmp_path, ALLOW)
    async with open_host(tmp_path) as host:
        held = host._parties(None).policy
        rules(tmp_path, ALLOW + DENY)
        await host.reload()
        assert [rule.name for rule in held.rules][-1] == "closed"


# --- at the gateway ---------------------------------------------------------------------------------------------------


async def _names(client: Client) -> list[str]:
    return sorted(tool.name for tool in await client.list_tools())


@CELLS
async def test_what_the_new_rules_deny_is_gone_from_the_gateway(channel: str, upstream: str, tmp_path: Path) -> None:
    path = rules(tmp_path, ALLOW)
    made = server("shop", upstream)
    made.add_tool(_danger, name="danger")
    made.add_tool(_buy, name="buy")
    options: dict[str, Any] = {"policy": path}
    async with on_stage({"a": made}, tmp_path, **options) as stage, stage.client(channel, cache=False) as client:
        assert await _names(client) == ["a__buy", "a__danger"]
        rules(tmp_path, ALLOW + DENY)
        await stage.host.reload()
        assert await _names(client) == ["a__buy"]
        with pytest.raises(RequestFailed):
            await client.call_tool("a__danger")


async def _danger() -> str:
    return "harm"


async def _buy() -> str:
    return "bought"


@CELLS
async def test_clients_are_notified_when_rules_change_their_lists(channel: str, upstream: str, tmp_path: Path) -> None:
    path = rules(tmp_path, ALLOW)
    made = server("shop", upstream)
    made.add_tool(_danger, name="danger")
    options: dict[str, Any] = {"policy": path}
    async with (
        on_stage({"a": made}, tmp_path, **options) as stage,
        stage.client(channel) as client,
        client.listen(tools=True) as changes,
    ):
        rules(tmp_path, ALLOW + DENY)
        await stage.host.reload()
        change = await anext(changes)
    assert change.kind == "tools"


async def test_the_policy_of_a_profile_is_read_again_too(tmp_path: Path) -> None:
    rules(tmp_path, ALLOW)
    own = rules(tmp_path, ALLOW, "small.toml")
    profiles = {"small": Profile(policy=str(own))}
    async with open_host(tmp_path) as host, over_http(host, profiles=profiles) as web:
        rules(tmp_path, ALLOW + DENY, "small.toml")
        changes = await host.reload()
        async with web.client() as whole, web.client(path="/small") as small:
            assert (await _names(whole), await _names(small)) == (["a__buy", "a__danger"], ["a__buy"])
    assert changes.policy


async def test_a_profile_whose_policy_became_wrong_leaves_all_policies_as_they_were(tmp_path: Path) -> None:
    rules(tmp_path, ALLOW)
    own = rules(tmp_path, ALLOW, "small.toml")
    profiles = {"small": Profile(policy=str(own))}
    async with open_host(tmp_path) as host, over_http(host, profiles=profiles) as web:
        rules(tmp_path, ALLOW + DENY)
        rules(tmp_path, BROKEN, "small.toml")
        with pytest.raises(ConfigError, match=r"small\.toml"):
            await host.reload()
        async with web.client() as whole:
            assert await _names(whole) == ["a__buy", "a__danger"]


# --- what paths mean --------------------------------------------------------------------------------------------------


async def test_rules_about_paths_know_the_folders_of_servers_that_came_later(tmp_path: Path) -> None:
    rules(tmp_path, ALLOW)
    config = tmp_path / "mcp.json"
    config.write_text('{"mcpServers": {}}', encoding="utf-8")
    async with open_host(tmp_path, config, wait="none") as host:
        entry = {"command": sys.executable, "args": ["-c", ""], "cwd": str(tmp_path)}
        config.write_text(json.dumps({"mcpServers": {"late": entry}}), encoding="utf-8")
        changes = await host.reload()
        assert dict(host.policy.path_context.folders) == {"late": str(tmp_path)}
    assert changes.policy


async def test_the_policy_of_a_profile_knows_the_folders_of_servers(tmp_path: Path) -> None:
    rules(tmp_path, ALLOW)
    own = rules(tmp_path, ALLOW, "small.toml")
    config = tmp_path / "mcp.json"
    entry = {"command": sys.executable, "args": ["-c", ""], "cwd": str(tmp_path)}
    config.write_text(json.dumps({"mcpServers": {"late": entry}}), encoding="utf-8")
    async with open_host(tmp_path, config, wait="none") as host:
        app = host.asgi(profiles={"small": Profile(policy=str(own))}, no_auth=True)
        folders = {gateway.options.profile: dict(gateway.policy.path_context.folders) for gateway in app.gateways}
        await app.aclose()
    assert folders == {None: {"late": str(tmp_path)}, "small": {"late": str(tmp_path)}}


# --- the policy itself ------------------------------------------------------------------------------------------------


def test_a_live_policy_has_all_that_the_policy_it_became_has() -> None:
    now = parse_policy(ALLOW + DENY, file="policy.toml")
    live = LivePolicy(Policy(()))
    assert live.replace_with(now)
    assert [getattr(live, name) is getattr(now, name) for name in Policy.__slots__] == [True] * len(Policy.__slots__)
