"""The machine of a host: one catalog that is made anew when something changed, and followers who are told of it."""

from __future__ import annotations

from pathlib import Path

from tests.host.gateway.support import NEW, UPSTREAMS, on_stage, quiet, revisions_of, until
from trunkline import Server
from trunkline.host.upstreams.routing.channels import GATEWAYS


def server(*names: str, revision: str = NEW) -> Server:
    """Make a server with tools of these names."""
    made = Server("s", capabilities=["tools"], revisions=revisions_of(revision))
    for name in names:
        made.add_tool(_nothing, name=name)
    return made


async def _nothing() -> str:
    """Do nothing."""
    return ""


async def test_followers_get_the_changed_lists_once_per_loop_iteration(tmp_path: Path) -> None:
    told: list[tuple[str, ...]] = []
    made = server("one")
    async with on_stage({"a": made, "b": server("two")}, tmp_path) as stage:
        core = stage.gateway.core
        unfollow = core.follow_catalog(told.append)
        await until(made.subscribers)
        made.add_tool(_nothing, name="three")
        made.add_tool(_nothing, name="four")
        await until(lambda: told)
        unfollow()
        unfollow()
        made.remove_tool("three")
        await until(lambda: "a/three" not in core.catalog.tools)
    assert told == [("tools",)]


async def test_a_list_that_is_the_same_again_is_no_change(tmp_path: Path) -> None:
    told: list[tuple[str, ...]] = []
    made = server("one")
    async with on_stage({"a": made}, tmp_path) as stage:
        stage.gateway.core.follow_catalog(told.append)
        await until(made.subscribers)
        made.changed("tools")
        await quiet()
    assert told == []


@UPSTREAMS
async def test_a_change_right_after_the_start_is_not_missed(upstream: str, tmp_path: Path) -> None:
    made = server("one", revision=upstream)
    async with on_stage({"a": made}, tmp_path) as stage:
        made.add_tool(_nothing, name="two")
        await until(lambda: len(stage.host.catalog.tools) == 2)


async def test_what_leads_back_to_the_host_is_not_in_its_catalog(tmp_path: Path) -> None:
    async with on_stage({"a": server("one")}, tmp_path) as stage:
        mirror = server("one", "two")
        mirror.settings.experimental = {GATEWAYS: {"ids": ["other", stage.gateway.core.id]}}
        await stage.host.add_server("b", mirror)
        await until(lambda: stage.host.status()[1].state == "ready")
        assert list(stage.host.catalog.tools) == ["a/one"]
        mirror.settings.experimental = {GATEWAYS: {"ids": ["other"]}}
        await stage.host.restart("b")
        await until(lambda: len(stage.host.catalog.tools) == 3)
