"""An extension of one's own: what each side declares, its methods, notifications and kinds of results."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from tests.host.gateway.support import allow, on_stage
from trunkline import Client, Context, Extension, Host, MissingCapability, Server
from trunkline.errors import MethodNotFound, MissingClientCapability, RemoteProtocolError
from trunkline.host.config.model import ServerEntry, ServerSettings, Source
from trunkline.host.gateway.sessions import GatewayOptions
from trunkline.server import CallNext, ServerRequest

REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
POLLS = "com.example/polls"
each_revision = pytest.mark.parametrize("revision", REVISIONS)


def polls(**options: Any) -> Extension:
    """Define an extension with a method and a notification."""
    extension = Extension(POLLS, server_settings={"most": 8}, client_settings={"votes": True}, **options)

    @extension.method("polls/create", act="tool")
    async def create(ctx: Context, question: str, options: list[str]) -> dict[str, Any]:
        await ctx.notify("notifications/polls/opened", {"question": question})
        return {"question": question, "options": options, "client": ctx.client.extension(POLLS)}

    @extension.notification("notifications/polls/opened")
    def opened(params: dict[str, Any]) -> None:
        """Do nothing: tests look at what arrives."""

    return extension


def voting(extension: Extension | None = None, **options: Any) -> Server:
    """Create a server with the extension."""
    server = Server("voting", extensions=[extension or polls()], **options)

    @server.tool
    async def settings(ctx: Context) -> dict[str, Any]:
        """Return what the client declared."""
        return {"declared": ctx.client.extension(POLLS)}

    return server


@each_revision
async def test_both_sides_declare_their_settings_and_the_method_is_served(revision: str) -> None:
    async with Client(voting(), revision=revision, extensions=[polls()]) as client:
        assert client.server_capabilities["extensions"][POLLS] == {"most": 8}
        made = await client.request("polls/create", {"question": "Tea?", "options": ["yes", "no"]})
    assert made["options"] == ["yes", "no"]
    assert made["client"] == {"votes": True}


@each_revision
async def test_a_client_that_did_not_declare_it_is_told_which_extension_is_missing(revision: str) -> None:
    async with Client(voting(), revision=revision) as client:
        with pytest.raises(MissingClientCapability) as refused:
            await client.request("polls/create", {"question": "Tea?", "options": []})
    assert refused.value.code == -32021
    assert refused.value.data == {"requiredCapabilities": {"extensions": {POLLS: {}}}}


@each_revision
async def test_a_server_that_did_not_declare_it_is_sent_nothing_of_it(revision: str) -> None:
    heard: list[str] = []
    extension = polls()
    extension.notification("notifications/polls/closed", receiver="server")(lambda: None)
    server = Server("plain")
    server.method("polls/create")(lambda: heard.append("polls/create") or {})  # type: ignore[func-returns-value]
    server.notification("notifications/polls/closed")(lambda: heard.append("closed"))
    async with Client(server, revision=revision, extensions=[extension]) as client:
        with pytest.raises(MissingCapability, match=r"com\.example/polls, so polls/create was not sent"):
            await client.request("polls/create")
        with pytest.raises(MissingCapability, match=r"so notifications/polls/closed was not sent"):
            await client.notify("notifications/polls/closed")
        await client.ping()
    assert heard == []
    async with Client(server, revision=revision) as client:
        await client.request("polls/create")
        await client.notify("notifications/polls/closed")
        await client.ping()
    assert heard == ["polls/create", "closed"]


@each_revision
async def test_a_tool_that_cannot_serve_without_it_names_what_is_missing(revision: str) -> None:
    server = Server("voting", extensions=[polls()])

    @server.tool
    async def votes(ctx: Context) -> bool:
        """Return whether the client votes."""
        return bool(ctx.client.require_extension(POLLS)["votes"])

    async with Client(server, revision=revision, extensions=[polls()]) as client:
        assert (await client.call_tool("votes")).text == "true"
    async with Client(server, revision=revision) as client:
        with pytest.raises(MissingClientCapability) as refused:
            await client.call_tool("votes")
    assert refused.value.code == -32021
    assert refused.value.data == {"requiredCapabilities": {"extensions": {POLLS: {}}}}


@each_revision
async def test_its_notifications_reach_only_clients_that_declared_it(revision: str) -> None:
    heard: list[str] = []
    extension = Extension(POLLS)

    @extension.method("polls/open", needs_client=False)
    async def open_poll(ctx: Context) -> dict[str, Any]:
        await ctx.notify("notifications/polls/opened", {})
        return {}

    @extension.notification("notifications/polls/opened")
    def opened() -> None:
        """Do nothing: the test looks at what arrives."""

    server = Server("voting", extensions=[extension])
    hear = {"on_notification": lambda method, params: heard.append(method)}
    async with Client(server, revision=revision, **hear) as client:  # type: ignore[arg-type]
        await client.request("polls/open")
    assert "notifications/polls/opened" not in heard
    async with Client(server, revision=revision, extensions=[extension], **hear) as client:  # type: ignore[arg-type]
        await client.request("polls/open")
    assert "notifications/polls/opened" in heard


async def test_a_server_notifies_only_sessions_that_declared_it() -> None:
    heard: list[str] = []
    server = voting()
    hear: dict[str, Any] = {"on_notification": lambda method, params: heard.append(method), "revision": "2025-11-25"}
    async with Client(server, **hear) as without, Client(server, **hear, extensions=[polls()]) as with_it:
        await asyncio.gather(without.ping(), with_it.ping())
        server.notify("notifications/polls/opened", {"question": "?"})
        await asyncio.gather(without.ping(), with_it.ping())
    assert heard == ["notifications/polls/opened"]


@pytest.mark.parametrize("id", ["polls", "/polls", "com.example/", "com example/polls", "1com/x", "com./x"])
def test_an_identifier_needs_a_vendor_prefix_and_a_name(id: str) -> None:
    with pytest.raises(ValueError, match=r"com\.example/polls"):
        Extension(id)


@each_revision
async def test_an_extension_is_declared_and_served_only_since_its_first_revision(revision: str) -> None:
    extension = polls(since="2025-11-25")
    async with Client(voting(extension), revision=revision, extensions=[extension]) as client:
        declared = (await client.call_tool("settings")).data
        if revision < "2025-11-25":
            assert POLLS not in client.server_capabilities.get("extensions", {})
            assert "votes" not in str(declared)
            with pytest.raises((MethodNotFound, MissingCapability)):
                await client.request("polls/create", {"question": "Tea?", "options": []})
        else:
            assert declared == {"declared": {"votes": True}}
            assert (await client.request("polls/create", {"question": "Tea?", "options": []}))["options"] == []


def test_an_unknown_first_revision_is_named() -> None:
    with pytest.raises(ValueError, match=r"2025-12-01.*2026-07-28"):
        polls(since="2025-12-01")


def test_a_method_cannot_be_added_twice_or_replace_one_of_the_protocol() -> None:
    extension = polls()
    with pytest.raises(ValueError, match="polls/create"):
        extension.method("polls/create")(print)
    other = Extension("com.example/other")
    other.method("tools/call")(print)
    with pytest.raises(ValueError, match="tools/call"):
        Server("s", extensions=[other])


@pytest.mark.parametrize("given", [["not an extension"], 5])
def test_what_is_no_extension_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="list of Extension objects"):
        Server("s", extensions=given)


async def test_a_notification_of_a_client_calls_the_servers_function() -> None:
    heard: list[Any] = []
    extension = Extension(POLLS)
    extension.notification("notifications/polls/closed", receiver="server")(lambda question: heard.append(question))
    async with Client(Server("s", extensions=[extension]), extensions=[extension]) as client:
        await client.notify("notifications/polls/closed", {"question": "Tea?"})
        await client.ping()
    assert heard == ["Tea?"]


# --- kinds of results ------------------------------------------------------------------------------------------------


def ticketed(extension: Extension, **options: Any) -> Server:
    """Create a server whose tool answers with a ticket if the client knows tickets."""

    async def tickets(request: ServerRequest, call_next: CallNext) -> Any:
        if request.method != "tools/call" or request.context.client.extension(extension.id) is None:
            return await call_next(request)
        return {"resultType": "ticket", "number": 7, "_meta": {"com.example/kept": True}}

    server = Server("counter", extensions=[extension], middleware=[tickets], **options)

    @server.tool
    async def serve() -> str:
        """Serve at once."""
        return "served"

    return server


def tickets() -> Extension:
    """Define an extension with a kind of result that a client turns into the final one."""
    extension = Extension("com.example/tickets")

    @extension.result_kind("ticket")
    async def wait(client: Client, result: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": f"served with ticket {result['number']}"}]}

    return extension


@each_revision
async def test_a_kind_of_result_is_turned_into_the_final_one(revision: str) -> None:
    extension = tickets()
    async with Client(ticketed(extension), revision=revision, extensions=[extension]) as client:
        assert (await client.call_tool("serve")).text == "served with ticket 7"
    async with Client(ticketed(extension), revision=revision) as client:
        assert (await client.call_tool("serve")).text == "served"


async def test_a_kind_that_nothing_reads_is_an_error_and_a_request_returns_it() -> None:
    extension = tickets()
    async with Client(ticketed(extension), extensions={extension.id: {}}) as client:
        with pytest.raises(RemoteProtocolError, match="ticket"):
            await client.call_tool("serve")
        raw = await client.request("tools/call", {"name": "serve"})
    assert raw["resultType"] == "ticket"


#: The final result of each method with kinds of results.
FINAL: dict[str, dict[str, Any]] = {
    "tools/call": {"content": [{"type": "text", "text": "final"}]},
    "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": "final"}}]},
    "resources/read": {"contents": [{"uri": "note://1", "text": "final"}]},
    "completion/complete": {"completion": {"values": ["final"]}},
}
methods = pytest.mark.parametrize("method", [*FINAL, "tools/list", "prompts/list"])


async def asked(client: Client, method: str) -> str:
    """Call a method of the client; return what it answered."""
    match method:
        case "tools/call":
            return (await client.call_tool("work")).text
        case "prompts/get":
            return (await client.get_prompt("work")).messages[0].content.text  # type: ignore[union-attr]
        case "resources/read":
            return (await client.read_resource("note://1"))[0].text or ""
        case "completion/complete":
            return (await client.complete({"type": "ref/prompt", "name": "work"}, {"name": "a", "value": ""})).values[0]
        case "tools/list":
            return str(await client.list_tools())
    return str(await client.list_prompts())


def odd(method: str, kind: str, extension: Extension) -> Server:
    """Create a server that answers a method with a kind of result."""
    state = {"taskId": "t", "status": "working", "createdAt": "", "lastUpdatedAt": "", "ttlMs": None}

    async def answer(request: ServerRequest, call_next: CallNext) -> Any:
        return {"resultType": kind, **state} if request.method == method else await call_next(request)

    server = Server("odd", extensions=[extension], middleware=[answer])

    @server.tool
    def work() -> str:
        return "worked"

    @server.prompt(name="work")
    def prompt(a: str = "") -> str:
        return a

    @server.completion("work", "a")
    def complete_a(value: str) -> list[str]:
        return ["a"]

    @server.resource("note://1")
    def note() -> str:
        return "note"

    return server


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("method", FINAL)
async def test_every_method_may_have_kinds_of_results(method: str, revision: str) -> None:
    extension = tickets()
    extension.result_kind("other", method=method)(lambda client, result: FINAL[method])
    async with Client(odd(method, "other", extension), revision=revision, extensions=[extension]) as client:
        assert await asked(client, method) == "final"


@methods
@pytest.mark.parametrize("kind", ["other", "task"])
async def test_a_kind_that_a_method_does_not_have_is_the_servers_fault(method: str, kind: str) -> None:
    extension = tickets()
    # Declared by its identifier alone: its kinds are not known to the client.
    async with Client(odd(method, kind, extension), extensions={extension.id: {}}) as client:
        with pytest.raises(RemoteProtocolError):
            await asked(client, method)
    other = "prompts/get" if method != "prompts/get" else "tools/call"
    extension.result_kind("other", method=other)(lambda client, result: FINAL[other])
    async with Client(odd(method, kind, extension), extensions=[extension]) as client:
        with pytest.raises(RemoteProtocolError):
            await asked(client, method)


async def test_a_list_has_no_kinds_of_results() -> None:
    extension = tickets()
    extension.result_kind("other", method="tools/list")(lambda client, result: {"tools": []})
    async with Client(odd("tools/list", "other", extension), extensions=[extension]) as client:
        with pytest.raises(RemoteProtocolError, match="other"):
            await client.list_tools()


# --- through the gateway ---------------------------------------------------------------------------------------------


#: Runs a test with a client and a server of different eras.
across_eras = pytest.mark.parametrize(
    ("front", "upstream"), [("2025-11-25", "2026-07-28"), ("2026-07-28", "2025-11-25")]
)


def entry(server: Server, name: str = "v", **settings: Any) -> ServerEntry:
    """Return the entry of a server in a configuration."""
    return ServerEntry(name=name, source=Source("given"), target=server, settings=ServerSettings(**settings))


@across_eras
async def test_an_extension_that_says_how_it_is_judged_passes(front: str, upstream: str, tmp_path: Path) -> None:
    options = GatewayOptions(extensions=(polls(),))
    made = entry(voting(revisions=[upstream]), extensions={POLLS: ()})
    async with (
        on_stage({"v": made}, tmp_path, gateway=options) as stage,
        stage.client(front, extensions=[polls()]) as client,
    ):
        await client.list_tools()
        assert stage.gateway.settings.extensions == {POLLS: {"most": 8}}
        created = await client.request("polls/create", {"question": "Tea?", "options": ["yes"]})
        assert created["question"] == "Tea?"
        assert t.META_SERVER_INFO not in created.get("_meta", {}) or front == "2026-07-28"


@across_eras
async def test_an_extension_that_a_host_knows_passes_from_every_server(
    front: str, upstream: str, tmp_path: Path
) -> None:
    servers = {"v": voting(revisions=[upstream]), "plain": Server("plain")}
    async with Host.open(servers, folder=tmp_path, policy=allow("v"), extensions=[polls()]) as host:
        gateway = host.gateway()
        try:
            async with Client(gateway, revision=front, extensions=[polls()]) as client:
                created = await client.request("polls/create", {"question": "Tea?", "options": ["yes"]})
        finally:
            await gateway.aclose()
    assert (created["question"], created["client"]) == ("Tea?", {"votes": True})


async def test_what_is_no_extension_is_refused_by_a_host(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="list of Extension objects"):
        await Host.open({}, folder=tmp_path, extensions=["polls"]).__aenter__()  # type: ignore[list-item]


async def test_an_extension_is_not_advertised_unless_the_entry_lists_it(tmp_path: Path) -> None:
    async with on_stage({"v": entry(voting())}, tmp_path) as stage, stage.client(extensions=[polls()]) as client:
        await client.list_tools()
        assert POLLS not in client.server_capabilities.get("extensions", {})
        with pytest.raises((MethodNotFound, MissingCapability)):
            await client.request("polls/create", {"question": "Tea?", "options": []})


async def test_an_entry_lists_the_methods_of_an_extension_that_the_gateway_does_not_know(tmp_path: Path) -> None:
    made = entry(voting(), extensions={POLLS: ("polls/create",)})
    async with on_stage({"v": made}, tmp_path) as stage, stage.client(extensions={POLLS: {}}) as client:
        await client.list_tools()
        assert (await client.request("polls/create", {"question": "Tea?", "options": []}))["question"] == "Tea?"
    async with on_stage({"v": made}, tmp_path / "two") as stage, stage.client() as client:
        await client.list_tools()
        with pytest.raises(MissingClientCapability):
            await client.request("polls/create", {"question": "Tea?", "options": []})


async def test_a_tool_that_cannot_serve_without_it_names_it_through_the_gateway(tmp_path: Path) -> None:
    server = Server("s")

    @server.tool
    async def votes(ctx: Context) -> str:
        """Return how the client votes."""
        return str(ctx.client.require_extension(POLLS))

    async with on_stage({"v": server}, tmp_path) as stage, stage.client() as client:
        with pytest.raises(MissingClientCapability, match=POLLS):
            await client.call_tool("v__votes")


async def test_the_policy_judges_a_method_like_a_tool(tmp_path: Path) -> None:
    made = entry(voting(), extensions={POLLS: ("polls/create",)})
    async with (
        on_stage({"v": made}, tmp_path, policy=allow("other")) as stage,
        stage.client(extensions={POLLS: {}}) as client,
    ):
        await client.list_tools()
        with pytest.raises(Exception, match=r"approval|allowed|policy|denied"):
            await client.request("polls/create", {"question": "Tea?", "options": []})


async def test_a_method_that_two_servers_have_must_say_which(tmp_path: Path) -> None:
    table = {name: entry(voting(), name, extensions={POLLS: ("polls/create",)}) for name in ("one", "two")}
    async with on_stage(table, tmp_path) as stage, stage.client(extensions={POLLS: {}}) as client:
        await client.list_tools()
        with pytest.raises(Exception, match="one, two"):
            await client.request("polls/create", {"question": "Tea?", "options": []})


@each_revision
async def test_a_client_that_only_names_an_extension_is_still_asked(revision: str) -> None:
    server = voting()

    @server.tool
    async def color(ctx: Context) -> str:
        answer = await ctx.elicit("Which color?", str)
        return str(answer.data)

    async with Client(server, revision=revision, extensions={POLLS: {}}, elicitation=lambda _: "red") as client:
        result = await client.call_tool("color", raise_on_error=False)
    # Older revisions cannot ask.
    assert (result.is_error, result.text == "red") == ((False, True) if revision >= "2025-06-18" else (True, False))
