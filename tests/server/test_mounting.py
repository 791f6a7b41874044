"""Composition: a server inside another, live and flat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.server.talk import ERAS, FORMS, HANDSHAKE, STATELESS, accept, call, reach, text
from trunkline import Context, Server
from trunkline.server.registry import namespaced, namespaced_uri

TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
UPDATED = "notifications/resources/updated"


def child_server(name: str = "child", **options: Any) -> Server:
    child = Server(name, **options)

    @child.tool
    async def where(ctx: Context) -> str:
        return f"{ctx.server.name} {ctx.lifespan_context}"

    child.add_prompt(lambda city="x": f"prompt {city}", name="p")
    child.add_resource("x://fixed", "fixed")
    child.add_resource("x://of/{name}", lambda name: f"of {name}")
    child.completion("p", "city")(lambda value: ["Oslo"])
    child.completion("x://of/{name}", "name")(lambda value: ["ada"])
    return child


def parent_of(child: Server, namespace: str | None = "geo", **options: Any) -> Server:
    parent = Server("parent", **options)
    parent.mount(child, namespace)
    return parent


# --- names -----------------------------------------------------------------------------------------------------------


def test_mounted_definitions_have_names_in_the_namespace() -> None:
    registry = parent_of(child_server()).registry
    assert (list(registry.tools), list(registry.prompts)) == (["geo_where"], ["geo_p"])
    assert (list(registry.resources), list(registry.templates)) == (["x://geo/fixed"], ["x://geo/of/{name}"])
    assert set(registry.completions) == {("geo_p", "city"), ("x://geo/of/{name}", "name")}


@pytest.mark.parametrize(
    "mount",
    [
        pytest.param(lambda parent, child: parent.mount(child, namespace="a"), id="namespace"),
        pytest.param(lambda parent, child: parent.mount(child, prefix="a"), id="prefix"),
        pytest.param(lambda parent, child: parent.mount("a", child), id="the-other-way-round"),
    ],
)
def test_a_namespace_can_be_given_as_in_other_frameworks(mount: Callable[[Server, Server], None]) -> None:
    parent = Server("parent")
    mount(parent, child_server())
    assert list(parent.registry.tools) == ["a_where"]
    with pytest.raises(TypeError, match="mount takes a Server"):
        parent.mount("name", "other")


@pytest.mark.parametrize(
    ("space", "uri", "told"),
    [("a", "x://y/z", "x://a/y/z"), ("a", "plain", "a/plain"), (None, "x://y", "x://y")],
)
def test_a_uri_gets_the_namespace_as_its_first_segment(space: str | None, uri: str, told: str) -> None:
    assert (namespaced_uri(space, uri), namespaced(None, "n")) == (told, "n")


# --- collisions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "register"),
    [
        pytest.param("tools", lambda parent: parent.add_tool(lambda: 1, name="where"), id="tools"),
        pytest.param("prompts", lambda parent: parent.add_prompt(lambda: "x", name="p"), id="prompts"),
        pytest.param("resources", lambda parent: parent.add_resource("x://fixed", "x"), id="resources"),
    ],
)
def test_a_name_that_exists_is_an_error_at_mount(kind: str, register: Callable[[Server], None]) -> None:
    parent = Server("parent")
    register(parent)
    before = parent.registry
    with pytest.raises(ValueError, match=f"mounting would give two {kind} the name"):
        parent.mount(child_server())
    assert parent.registry is before


def test_a_name_that_is_mounted_cannot_be_registered() -> None:
    parent = parent_of(child_server())
    with pytest.raises(ValueError, match="two tools the name 'geo_where'"):
        parent.add_tool(lambda: 1, name="geo_where")
    assert text(call(parent, "geo_where")) == "child None"


def test_a_child_cannot_take_a_name_of_its_parent_but_any_other() -> None:
    child, others = child_server(), Server("others")
    parent = parent_of(child)
    others.mount(child, "also")
    parent.add_tool(lambda: 1, name="geo_new")
    with pytest.raises(ValueError, match="two tools the name 'geo_new'"):
        child.add_tool(lambda: 2, name="new")
    assert [list(each.registry.tools) for each in (child, parent, others)] == [
        ["where"],
        ["geo_new", "geo_where"],
        ["also_where"],
    ]
    child.add_tool(lambda: 3, name="newer")
    assert text(call(parent, "geo_newer")) == "3"


@pytest.mark.parametrize("depth", [0, 1])
def test_a_server_cannot_be_mounted_in_itself(depth: int) -> None:
    inner = Server("inner")
    outer = [inner, parent_of(inner)][depth]
    with pytest.raises(ValueError, match="a server cannot be mounted in itself"):
        inner.mount(outer)


# --- using what is mounted -------------------------------------------------------------------------------------------


@ERAS
async def test_everything_mounted_is_served(revision: str) -> None:
    async with reach(parent_of(child_server()), revision) as peer:
        tool = text(await peer.call("geo_where"))
        prompt = await peer.result("prompts/get", {"name": "geo_p", "arguments": {"city": "Oslo"}})
        fixed = await peer.result("resources/read", {"uri": "x://geo/fixed"})
        family = await peer.result("resources/read", {"uri": "x://geo/of/ada"})
        ref = {"type": "ref/resource", "uri": "x://geo/of/{name}"}
        completion = await peer.result("completion/complete", {"ref": ref, "argument": {"name": "name", "value": ""}})
    assert (tool, prompt["messages"][0]["content"]["text"]) == ("child None", "prompt Oslo")
    assert [(each["contents"][0]["uri"], each["contents"][0]["text"]) for each in (fixed, family)] == [
        ("x://geo/fixed", "fixed"),
        ("x://geo/of/ada", "of ada"),
    ]
    assert completion["completion"]["values"] == ["ada"]


@ERAS
async def test_a_mounted_handler_sends_requests_to_its_caller(revision: str) -> None:
    child = Server("child")

    @child.tool
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("a", str)).data)

    async with reach(parent_of(parent_of(child)), revision, FORMS) as peer:
        talk = await peer.converse_tool("geo_geo_ask", {"elicitation/create": accept("x")})
    assert talk.text == "x"


@ERAS
def test_a_mounted_handler_reads_its_own_servers_resources(revision: str) -> None:
    child = child_server()

    @child.tool
    async def read(ctx: Context) -> str:
        return str((await ctx.read_resource("x://fixed"))[0].text)

    assert text(call(parent_of(child), "geo_read", revision)) == "fixed"


# --- live ------------------------------------------------------------------------------------------------------------


@ERAS
async def test_changes_of_a_mounted_server_are_seen_at_once(revision: str) -> None:
    child = child_server()
    async with reach(parent_of(parent_of(child)), revision) as peer:
        child.add_tool(lambda: "new", name="new")
        child.remove_tool("where")
        names = [tool["name"] for tool in (await peer.result("tools/list"))["tools"]]
        assert (names, text(await peer.call("geo_geo_new"))) == (["geo_geo_new"], "new")


async def test_only_changed_lists_are_notified() -> None:
    child = child_server()
    parent = parent_of(child)
    async with reach(parent, HANDSHAKE) as peer:
        child.add_prompt(lambda: "x", name="new")
        parent.add_prompt(lambda: "x", name="own")
        await peer.settle()
    assert (peer.notices(PROMPTS), peer.notices(TOOLS)) == ([None], [])


async def test_a_replaced_tool_is_notified() -> None:
    child = child_server(on_duplicate="replace")
    async with reach(parent_of(child), HANDSHAKE) as peer:
        child.add_tool(lambda: "other", name="where")
        await peer.notice(TOOLS)


async def test_a_resource_update_is_notified_under_every_mounted_uri() -> None:
    child = child_server()
    parent = parent_of(child)
    parent.mount(child, "again")
    async with reach(parent, HANDSHAKE) as peer:
        await peer.result("resources/subscribe", {"uri": "x://geo/fixed"})
        await peer.result("resources/subscribe", {"uri": "x://again/fixed"})
        child.changed("x://fixed")
        child.changed("tools")
        await peer.settle()
    assert (peer.notices(UPDATED), peer.notices(TOOLS)) == (
        [{"uri": "x://geo/fixed"}, {"uri": "x://again/fixed"}],
        [None],
    )


# --- what a child keeps ----------------------------------------------------------------------------------------------


def noting(log: list[str], name: str) -> Any:
    async def middleware(request: Any, call_next: Any) -> Any:
        log.append(f"{name} {request.method}")
        return await call_next(request)

    return middleware


@ERAS
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "b_c_where"}),
        ("prompts/get", {"name": "b_c_p"}),
        ("resources/read", {"uri": "x://b/c/fixed"}),
        ("resources/read", {"uri": "x://b/c/of/ada"}),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "b_c_p"}, "argument": {"name": "city", "value": ""}},
        ),
    ],
    ids=["tool", "prompt", "resource", "template", "completion"],
)
async def test_middleware_runs_from_the_outside_in(revision: str, method: str, params: dict[str, Any]) -> None:
    log: list[str] = []
    inner = child_server(middleware=[noting(log, "c")])
    middle = parent_of(inner, "c", middleware=[noting(log, "b")])
    outer = parent_of(middle, "b", middleware=[noting(log, "a")])
    async with reach(outer, revision) as peer:
        log.clear()
        await peer.result(method, params)
    assert log == [f"a {method}", f"b {method}", f"c {method}"]


def spanning(log: list[str], name: str) -> Any:
    @asynccontextmanager
    async def lifespan(server: Any) -> AsyncIterator[str]:
        log.append(f"enter {name}")
        yield f"value of {name}"
        log.append(f"leave {name}")

    return lifespan


@ERAS
async def test_the_parent_enters_the_lifespans_of_its_children(revision: str) -> None:
    log: list[str] = []
    child = child_server(lifespan=spanning(log, "child"))
    async with reach(parent_of(child, lifespan=spanning(log, "parent")), revision) as peer:
        assert text(await peer.call("geo_where")) == "child value of child"
    assert log == ["enter parent", "enter child", "leave child", "leave parent"]


@ERAS
async def test_the_lifespan_of_a_server_mounted_later_is_entered(revision: str) -> None:
    log: list[str] = []
    parent = Server("parent")
    parent.add_tool(lambda: "x", name="x")
    async with reach(parent, revision) as peer:
        parent.mount(child_server(lifespan=spanning(log, "child")), "geo")
        assert text(await peer.call("geo_where")) == "child value of child"
    assert log == ["enter child", "leave child"]


@ERAS
async def test_definitions_hidden_by_a_mounted_server_stay_hidden(revision: str) -> None:
    child = child_server(visible=lambda caller, definition: definition.name != "where")
    child.add_tool(lambda: "open", name="open")
    middle = Server("middle")
    outer = parent_of(middle, "out")
    middle.mount(child, "in")
    async with reach(outer, revision) as peer:
        listed = await peer.result("tools/list")
        refused = await peer.error("tools/call", {"name": "out_in_where"})
        assert text(await peer.call("out_in_open")) == "open"
    assert ([tool["name"] for tool in listed["tools"]], refused["code"]) == (["out_in_open"], -32602)


async def test_a_list_with_a_childs_filter_is_private() -> None:
    child = child_server(visible=lambda caller, definition: True)
    async with reach(parent_of(parent_of(child)), STATELESS) as peer:
        assert (await peer.result("tools/list"))["cacheScope"] == "private"


@ERAS
async def test_a_child_may_be_served_on_its_own_as_well(revision: str) -> None:
    log: list[str] = []
    child = child_server(lifespan=spanning(log, "child"))
    async with reach(parent_of(child), revision) as peer, reach(child, revision) as own:
        found = await asyncio.gather(peer.call("geo_where"), own.call("where"))
    assert ([text(each) for each in found], log) == (["child value of child"] * 2, ["enter child", "leave child"])
