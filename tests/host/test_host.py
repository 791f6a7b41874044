"""The Python face of a host: opened from files, tables and servers, used by name, changed while it runs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from tests.host.gateway.support import allow, gone, until
from trunkline import ConfigError, Context, Server, ToolError
from trunkline.errors import InvalidParams, PolicyDenied
from trunkline.host.authorization.approval import ApprovalAnswer, ApprovalRequest
from trunkline.host.authorization.policy.loader import parse_policy
from trunkline.host.events import ActCompleted, CatalogChanged, ConsentAsked, ServerStateChanged
from trunkline.host.host import Host
from trunkline.protocol.revisions import REVISION_NAMES

ROOT = Path(__file__).parents[2]


def library(name: str = "library") -> Server:
    """Make a server with one of everything."""
    made = Server(name)

    @made.tool
    async def lend(title: str, days: int = 7) -> dict[str, int]:
        """Lend a book."""
        return {title: days}

    @made.tool
    async def burn() -> str:
        """Fail."""
        raise ToolError("books do not burn")

    @made.resource("book://1")
    async def book() -> str:
        return "Emma"

    @made.resource("shelf://{number}")
    async def shelf(number: int) -> str:
        return f"shelf {number}"

    @made.prompt
    async def recommend(genre: str) -> str:
        return f"Recommend a {genre}"

    @made.completion("recommend", "genre")
    async def genres(value: str) -> list[str]:
        return [each for each in ("novel", "poem") if each.startswith(value)]

    @made.completion("shelf://{number}", "number")
    async def numbers(value: str) -> list[str]:
        return ["1"]

    return made


def process(name: str = "pid") -> dict[str, Any]:
    """Make the entry of a server process that says its pid."""
    return {
        "command": sys.executable,
        "args": ["-S", "-m", "tests.host.servers.plain"],
        "env": {"PYTHONPATH": str(ROOT), "NAME": name},
        "era": "handshake",
    }


def open_host(*sources: object, folder: Path, **options: Any) -> Host:
    """Open a host all of whose tools may be used."""
    policy = allow("a", "b", "c")
    return Host.open(*sources, **{"folder": folder / "state", "policy": policy, "audit": False, **options})


def written(folder: Path, name: str, servers: dict[str, Any]) -> Path:
    """Write a configuration."""
    path = folder / name
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


# --- opening ---------------------------------------------------------------------------------------------------------


async def test_a_host_is_opened_from_a_file(tmp_path: Path) -> None:
    path = written(tmp_path, "mcp.json", {"a": process()})
    async with open_host(path, folder=tmp_path) as host:
        assert list(host.catalog.tools) == ["a/pid"]
        assert [(each.name, each.state) for each in host.status()] == [("a", "ready")]
        assert (await host.call_tool("a/pid")).text.isdigit()


async def test_a_host_is_opened_from_a_file_a_document_and_servers(tmp_path: Path) -> None:
    one = written(tmp_path, "one.json", {"a": process()})
    async with open_host(str(one), {"mcpServers": {"b": process()}}, {"c": library()}, folder=tmp_path) as host:
        assert sorted(host.catalog.servers) == ["a", "b", "c"]


async def test_a_host_is_opened_from_a_python_file(tmp_path: Path) -> None:
    async with open_host({"hello": ROOT / "examples" / "hello" / "server.py"}, folder=tmp_path) as host:
        assert list(host.catalog.tools) == ["hello/greet"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        pytest.param("missing.json", "missing.json", id="no file"),
        pytest.param(7, "int is not a configuration", id="number"),
        pytest.param({"a": 7}, "give an mcpServers entry, a Server or a .py file", id="no entry"),
        pytest.param({"a": "none.py"}, "no Python file none.py", id="no file"),
    ],
)
async def test_what_is_no_configuration_is_refused(source: object, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        async with open_host(source, folder=tmp_path):
            pass


async def test_one_server_that_is_wrong_does_not_stop_the_others(tmp_path: Path) -> None:
    servers = {"a": library(), "b": {"command": "/nowhere/at/all"}, "c": {"nonsense": 1}}
    async with open_host(servers, folder=tmp_path, wait_seconds=1.0) as host:
        states = {each.name: each.state for each in host.status()}
        assert (await host.call_tool("a/lend", {"title": "Emma"})).data == {"Emma": 7}
        with pytest.raises(InvalidParams, match="No server has"):
            await host.call_tool("b/anything")
    assert states["a"] == "ready"
    assert states["c"] == "misconfigured"
    assert states["b"] != "ready"


async def test_a_policy_may_be_the_path_of_a_file(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rule]]\neffect = "deny"\nserver = "a"\ntool = "lend"\n')
    async with open_host({"a": library()}, folder=tmp_path, policy=policy) as host:
        with pytest.raises(PolicyDenied):
            await host.call_tool("a/lend", {"title": "x"})


async def test_a_refusal_in_a_program_names_the_options_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.host.assembly.config_folder", lambda: tmp_path)
    async with Host.open({"a": library()}, folder=tmp_path / "state", audit=False) as host:
        with pytest.raises(PolicyDenied) as refused:
            await host.call_tool("a/lend", {"title": "x"})
    assert "pass consent= to Host.open" in str(refused.value)
    assert "policy=" in str(refused.value)
    assert "--" not in str(refused.value)
    assert re.search("not trusted|untrusted", str(refused.value))


async def test_two_hosts_in_one_process_do_not_meet(tmp_path: Path) -> None:
    async with (
        open_host({"a": library()}, folder=tmp_path / "1") as one,
        open_host({"b": library()}, folder=tmp_path / "2") as two,
    ):
        assert (one.catalog.servers, two.catalog.servers) == (("a",), ("b",))
        await one.aclose()
        assert (await two.call_tool("b/lend", {"title": "x"})).data == {"x": 7}


async def test_a_host_can_be_opened_used_and_closed_by_different_tasks(tmp_path: Path) -> None:
    """As cells of a notebook do, each of which is a task of one loop."""

    async def cell(work: Callable[[], Awaitable[Any]]) -> Any:
        return await asyncio.create_task(work())  # type: ignore[arg-type]

    host = open_host({"a": library(), "b": process()}, folder=tmp_path)
    await cell(host.__aenter__)
    assert (await cell(lambda: host.call_tool("a/lend", {"title": "x"}))).data == {"x": 7}
    pid = int((await cell(lambda: host.call_tool("b/pid"))).text)
    await cell(host.aclose)
    await cell(host.aclose)
    assert gone(pid)


async def test_using_a_host_that_is_not_open_raises(tmp_path: Path) -> None:
    host = open_host({"a": library()}, folder=tmp_path)
    with pytest.raises(ConfigError, match="async with"):
        await host.call_tool("a/lend", {"title": "x"})
    async with host:
        pass
    with pytest.raises(ConfigError, match="async with"):
        host.status()


async def test_a_host_may_be_opened_again_but_not_twice_at_once(tmp_path: Path) -> None:
    host = open_host({"a": library()}, folder=tmp_path)
    async with host:
        with pytest.raises(ConfigError, match="already open"):
            await host.__aenter__()
        assert host.catalog.servers == ("a",)
    async with host:
        assert (await host.call_tool("a/lend", {"title": "x"})).data == {"x": 7}


# --- using -----------------------------------------------------------------------------------------------------------


async def test_everything_is_used_by_its_id(tmp_path: Path) -> None:
    async with open_host({"a": library()}, folder=tmp_path) as host:
        lent = await host.call_tool("a/lend", {"title": "Emma", "days": 3})
        (by_id,) = await host.read_resource("a/book://1")
        (by_uri,) = await host.read_resource("book://1")
        (made,) = await host.read_resource("a/shelf://7")
        prompt = await host.get_prompt("a/recommend", {"genre": "novel"})
        genres = await host.complete("a/recommend", "genre", "n")
        numbers = await host.complete("a/shelf://{number}", "number", "")
    assert lent.data == {"Emma": 3}
    assert (by_id.text, by_uri.text, made.text) == ("Emma", "Emma", "shelf 7")
    assert "novel" in str(prompt.messages[0].content)
    assert (genres.values, numbers.values) == (["novel"], ["1"])


@pytest.mark.parametrize(
    ("use", "words"),
    [
        pytest.param(lambda host: host.call_tool("a/lent", {}), "did you mean 'a/lend'", id="tool"),
        pytest.param(lambda host: host.get_prompt("a/recomend"), "did you mean 'a/recommend'", id="prompt"),
        pytest.param(lambda host: host.read_resource("film://1"), "No server has", id="resource"),
        pytest.param(lambda host: host.complete("a/x", "y", ""), "No server has", id="completion"),
    ],
)
async def test_a_name_that_is_none_is_refused_with_the_nearest(use: Any, words: str, tmp_path: Path) -> None:
    async with open_host({"a": library()}, folder=tmp_path) as host:
        with pytest.raises(InvalidParams, match=words):
            await use(host)


async def test_a_tool_that_fails_raises_unless_its_answer_is_wanted(tmp_path: Path) -> None:
    async with open_host({"a": library()}, folder=tmp_path) as host:
        with pytest.raises(ToolError, match="do not burn"):
            await host.call_tool("a/burn")
        assert (await host.call_tool("a/burn", raise_on_error=False)).is_error


# --- consent ---------------------------------------------------------------------------------------------------------

ASK = parse_policy('[[rule]]\nname = "careful"\neffect = "ask"\nserver = "a"\ntool = "*"\n', file="policy.toml")


async def test_consent_for_a_session_is_that_sessions(tmp_path: Path) -> None:
    seen: list[str | None] = []

    async def consent(question: ApprovalRequest) -> ApprovalAnswer:
        seen.append(question.act.session)
        return ApprovalAnswer(allow=True, remember="session")

    async with open_host({"a": library()}, folder=tmp_path, policy=ASK, consent=consent) as host:
        mine = host.session()
        await host.call_tool("a/lend", {"title": "x"}, session=mine)
        await host.call_tool("a/lend", {"title": "x"}, session=mine)
        await host.call_tool("a/lend", {"title": "x"})
    assert (len(seen), seen[0]) == (2, mine.id)


async def test_consent_for_always_outlives_the_host(tmp_path: Path) -> None:
    seen: list[ApprovalRequest] = []

    async def consent(question: ApprovalRequest) -> ApprovalAnswer:
        seen.append(question)
        return ApprovalAnswer(allow=True, remember="always")

    async with open_host({"a": library()}, folder=tmp_path, policy=ASK, consent=consent) as host:
        await host.call_tool("a/lend", {"title": "x"})
    async with open_host({"a": library()}, folder=tmp_path, policy=ASK) as host:
        assert (await host.call_tool("a/lend", {"title": "x"})).data == {"x": 7}
    assert len(seen) == 1


# --- while it runs ---------------------------------------------------------------------------------------------------


async def test_servers_come_and_go_while_others_work(tmp_path: Path) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()
    busy = Server("busy")

    @busy.tool
    async def work() -> str:
        """Work."""
        began.set()
        await go_on.wait()
        return "done"

    async with open_host({"a": busy}, folder=tmp_path) as host:
        call = asyncio.create_task(host.call_tool("a/work"))
        await began.wait()
        await host.add_server("b", library())
        await until(lambda: "b/lend" in host.catalog.tools)
        await host.remove_server("b")
        assert host.catalog.servers == ("a",)
        go_on.set()
        assert (await call).data == "done"
        with pytest.raises(KeyError, match="'b'"):
            await host.remove_server("b")


async def test_a_server_put_in_anothers_place_is_used_from_then_on(tmp_path: Path) -> None:
    async with open_host({"a": library()}, folder=tmp_path) as host:
        other = Server("other")
        other.add_tool(hello)
        await host.add_server("a", other)
        await until(lambda: list(host.catalog.tools) == ["a/hello"])
        assert (await host.call_tool("a/hello")).data == "hello"


async def hello() -> str:
    """Greet."""
    return "hello"


async def test_a_reload_touches_only_what_changed(tmp_path: Path) -> None:
    path = written(tmp_path, "mcp.json", {"a": process("one"), "b": process("two")})
    async with open_host(path, folder=tmp_path) as host:
        before = {name: (await host.call_tool(f"{name}/pid")).text for name in "ab"}
        written(tmp_path, "mcp.json", {"a": process("one"), "b": process("other"), "c": process("three")})
        changes = await host.reload()
        await until(lambda: {"b/pid", "c/pid"} <= set(host.catalog.tools))
        after = {name: (await host.call_tool(f"{name}/pid")).text for name in "abc"}
    assert (changes.kept, changes.added) == (("a",), ("c",))
    assert after["a"] == before["a"]
    assert after["b"] != before["b"]


async def test_a_reload_of_a_broken_file_changes_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, "mcp.json", {"a": process()})
    async with open_host(path, folder=tmp_path) as host:
        before = (await host.call_tool("a/pid")).text
        path.write_text("{ not json")
        with pytest.raises(ConfigError, match=r"mcp\.json"):
            await host.reload()
        assert (await host.call_tool("a/pid")).text == before


async def test_a_reload_keeps_what_was_added_by_hand(tmp_path: Path) -> None:
    path = written(tmp_path, "mcp.json", {"a": process()})
    async with open_host(path, folder=tmp_path) as host:
        await host.add_server("b", library())
        await host.reload()
        await until(lambda: "b/lend" in host.catalog.tools)
        assert host.catalog.servers == ("a", "b")


async def test_changes_are_published_as_events(tmp_path: Path) -> None:
    async def consent(question: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer(allow=True)

    async with open_host({"a": library()}, folder=tmp_path, policy=ASK, consent=consent) as host:
        events = host.events()
        await host.call_tool("a/lend", {"title": "x"})
        await host.add_server("b", library())
        await until(lambda: "b/lend" in host.catalog.tools)
    told = [event async for event in events]
    assert [(each.server, each.name, each.allowed) for each in told if isinstance(each, ConsentAsked)] == [
        ("a", "lend", True)
    ]
    assert [(each.server, each.name, each.outcome) for each in told if isinstance(each, ActCompleted)] == [
        ("a", "lend", "ok")
    ]
    assert ("b", "ready") in [(each.server, each.state) for each in told if isinstance(each, ServerStateChanged)]
    assert any("tools" in each.kinds for each in told if isinstance(each, CatalogChanged))


async def test_a_host_that_is_lazy_starts_what_is_used(tmp_path: Path) -> None:
    source = {"a": process("lazy")}
    async with open_host(source, folder=tmp_path):
        pass
    async with open_host(source, folder=tmp_path, lazy=True) as host:
        assert [each.state for each in host.status()] == ["known"]
        assert list(host.catalog.tools) == ["a/pid"]
        assert (await host.call_tool("a/pid")).text != str(os.getpid())
        assert [each.state for each in host.status()] == ["ready"]


async def test_a_host_waits_no_longer_than_configured(tmp_path: Path) -> None:
    slow = {
        "command": sys.executable,
        "args": ["-c", "import sys; sys.stdin.read()"],
    }
    async with open_host({"a": library(), "b": slow}, folder=tmp_path, wait_seconds=0.2) as host:
        assert (await host.call_tool("a/lend", {"title": "x"})).data == {"x": 7}
        assert [each.state for each in host.status()] == ["ready", "starting"]


async def test_rules_see_whether_a_user_or_a_model_acts(tmp_path: Path) -> None:
    rule = '[[rule]]\nname = "people only"\neffect = "deny"\nserver = "a"\ntool = "lend"\ncaller = "model"\n'
    policy = allow("a", more=rule)
    async with open_host({"a": library()}, folder=tmp_path, policy=policy) as host:
        assert (await host.call_tool("a/lend", {"title": "x"})).data == {"x": 7}
    async with open_host({"a": library()}, folder=tmp_path, policy=policy, caller="model") as host:
        with pytest.raises(PolicyDenied, match="people only"):
            await host.call_tool("a/lend", {"title": "x"})


async def test_a_server_sees_its_own_calls_and_nothing_of_the_session(tmp_path: Path) -> None:
    seen: list[Any] = []
    nosy = Server("nosy")

    @nosy.tool
    async def look(ctx: Context) -> str:
        """Look around."""
        seen.append((ctx.client.name, dict(ctx.client.capabilities)))
        return "looked"

    async with open_host({"a": library(), "b": nosy}, folder=tmp_path) as host:
        await host.call_tool("a/lend", {"title": "private"})
        await host.call_tool("b/look", session=host.session())
    assert "private" not in str(seen)
    assert host._session is not None
    assert host._session.id not in str(seen)


async def test_servers_get_the_client_info_of_the_host(tmp_path: Path) -> None:
    seen: list[str | None] = []
    made = Server("s")

    @made.tool
    async def look(ctx: Context) -> str:
        """Look who calls."""
        seen.append(ctx.client.name)
        return ""

    info = t.Implementation(name="code-review-tool", version="1.0.0")
    async with Host.open({"s": made}, folder=tmp_path, policy=allow("s"), client_info=info) as host:
        await host.call_tool("s/look")

    assert seen == ["code-review-tool"]


async def test_a_server_is_stopped_until_it_is_started_again(tmp_path: Path) -> None:
    made = Server("shop")

    @made.tool
    async def buy(what: str) -> str:
        """Buy something."""
        return what

    async with Host.open({"shop": made}, folder=tmp_path, typed=True) as host:
        await host.stop("shop")
        [stopped] = host.status()
        assert (stopped.state, stopped.tools) == ("stopped", 0)
        await host.start("shop")
        [started] = host.status()
        assert (started.state, started.tools) == ("ready", 1)
        await host.start("shop")
        assert host.status()[0].restarts == started.restarts


@pytest.mark.parametrize("revision", REVISION_NAMES)
async def test_a_value_is_the_same_whatever_the_revision_of_its_server(revision: str, tmp_path: Path) -> None:
    server = Server("s", revisions=[revision])

    @server.tool
    def lend(title: str) -> dict[str, int]:
        return {title: 7}

    async with Host.open({"s": server}, folder=tmp_path, policy=allow("s"), audit=False) as host:
        assert (await host.call_tool("s/lend", {"title": "Emma"})).data == {"Emma": 7}
