"""Scopes of tools, resources and prompts: lists show what a caller may use, and nothing else can be used."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.auth.resource_support import token as signed
from tests.auth.resource_support import verifier
from tests.server.talk import call as call_in_memory
from tests.transports.http.serving_support import (
    BATCHING,
    HANDSHAKE,
    STATELESS,
    Call,
    SessionClient,
    ask,
    initialize,
    modern,
    request,
    tool,
)
from trunkline import Client, Context, Principal, Server, StaticTokens, StreamLink
from trunkline.errors import InsufficientScope
from trunkline.protocol.caller import Origin

#: Who has what.
TOKENS = StaticTokens(
    {
        "all": {"subject": "all", "scopes": "read write"},
        "reader": {"subject": "reader", "scopes": "read"},
        "none": "none",
        "admin": {"subject": "admin", "scopes": "admin"},
    }
)
IMPLIED = {"admin": ["write"], "write": ["read"]}


class Library:
    """A server some of whose offer needs scopes, and what was used of it."""

    def __init__(self, **options: Any) -> None:
        self.used: list[str] = []
        self.server = Server("library", **{"auth": TOKENS, "implied_scopes": IMPLIED, **options})
        self.fill(self.server)

    def fill(self, server: Server) -> None:
        server.add_tool(self.use("free"), name="free")
        server.add_tool(self.use("look"), name="look", scopes=["read"])
        server.add_tool(self.use("change"), name="change", scopes=["read", "write"])
        server.add_prompt(self.use("hello"), name="hello")
        server.add_prompt(self.ask, name="draft", scopes=["write"])
        server.add_resource("note://free", self.use("note"), name="free")
        server.add_resource("note://secret", self.use("secret"), name="secret", scopes=["write"])
        server.add_resource("log://{day}", self.log, name="log", scopes=["write"])
        server.completion("draft", "about")(self.complete)
        server.completion("log://{day}", "day")(self.complete)

    def use(self, name: str) -> Callable[[], Awaitable[str]]:
        async def used() -> str:
            self.used.append(name)
            return name

        return used

    async def ask(self, about: str = "") -> str:
        self.used.append("draft")
        return about

    async def log(self, day: str) -> str:
        self.used.append("log")
        return day

    async def complete(self, value: str) -> list[str]:
        self.used.append("complete")
        return [value]


async def send(app: Any, era: str, message: dict[str, Any], who: str) -> Call:
    """Send a request with a named principal's token, in an era."""
    if era == STATELESS:
        return await modern(app, message, authorization=f"Bearer {who}").whole()
    client = await SessionClient.open(app, era, token=who)
    return await client.post(message).whole()


ERAS = pytest.mark.parametrize("era", [STATELESS, HANDSHAKE, BATCHING], ids=["stateless", "handshake", "older"])
#: Each era, and each place of a library: itself, or inside another server.
CELLS = pytest.mark.parametrize(
    ("prefix", "era"),
    [("", STATELESS), ("shelf", HANDSHAKE), ("shelf", STATELESS), ("", BATCHING)],
    ids=["own-stateless", "mounted-handshake", "mounted-stateless", "own-older"],
)


def placed(prefix: str, **options: Any) -> tuple[Library, Server]:
    """A library, itself or inside another server."""
    library = Library(**options)
    if not prefix:
        return library, library.server
    library = Library(auth=None, implied_scopes={})
    outer = Server("outer", **{"auth": TOKENS, "implied_scopes": IMPLIED, **options})
    outer.mount(library.server, prefix)
    return library, outer


def named(prefix: str, name: str) -> str:
    """The name of something, or its URI, under which it is known inside another server."""
    if not prefix:
        return name
    scheme, separator, rest = name.partition("://")
    return f"{scheme}://{prefix}/{rest}" if separator else f"{prefix}_{name}"


# --- lists -----------------------------------------------------------------------------------------------------------


#: What everybody sees, and what a reader or a writer sees besides.
LISTS = {
    "tools/list": ("tools", "name", ["free"], ["look"], ["change"]),
    "prompts/list": ("prompts", "name", ["hello"], [], ["draft"]),
    "resources/list": ("resources", "uri", ["note://free"], [], ["note://secret"]),
    "resources/templates/list": ("resourceTemplates", "uriTemplate", [], [], ["log://{day}"]),
}


@pytest.mark.parametrize("method", LISTS)
@CELLS
async def test_a_list_shows_what_a_caller_may_use(prefix: str, era: str, method: str) -> None:
    member, by, everybody, reader, writer = LISTS[method]
    _, server = placed(prefix)
    app, lists = server.asgi(), {}
    for who in ("none", "reader", "all", "admin"):
        listed = (await send(app, era, request(method), who)).json["result"][member]
        lists[who] = [each[by] for each in listed]
    everything = [*everybody, *reader, *writer]
    names = {"none": everybody, "reader": [*everybody, *reader], "all": everything, "admin": everything}
    assert lists == {who: [named(prefix, name) for name in found] for who, found in names.items()}


# --- uses ------------------------------------------------------------------------------------------------------------


def uses(prefix: str) -> dict[str, tuple[dict[str, Any], str]]:
    """Every way to use something that needs scopes, and which it needs."""
    day = {"name": "day", "value": "m"}
    draft = {"type": "ref/prompt", "name": named(prefix, "draft")}
    log = {"type": "ref/resource", "uri": named(prefix, "log://{day}")}
    return {
        "call": (tool(named(prefix, "change")), "read write"),
        "get": (request("prompts/get", {"name": named(prefix, "draft")}), "write"),
        "read": (request("resources/read", {"uri": named(prefix, "note://secret")}), "write"),
        "read of a family": (request("resources/read", {"uri": named(prefix, "log://monday")}), "write"),
        "complete a prompt": (
            request("completion/complete", {"ref": draft, "argument": {"name": "about", "value": "m"}}),
            "write",
        ),
        "complete a template": (request("completion/complete", {"ref": log, "argument": day}), "write"),
    }


@pytest.mark.parametrize("way", list(uses("")))
@CELLS
async def test_a_request_without_the_needed_scopes_is_refused_with_all_of_them(prefix: str, era: str, way: str) -> None:
    library, server = placed(prefix)
    message, scope = uses(prefix)[way]
    call = await send(server.asgi(), era, message, "reader" if prefix else "none")
    assert call.error == (403, 403)
    assert call.json["error"]["data"] == {"scopes": scope.split()}
    assert call.headers["www-authenticate"] == (
        f'Bearer error="insufficient_scope", error_description="Insufficient scope: this needs {scope}", '
        f'scope="{scope}"'
    )
    assert library.used == []


@pytest.mark.parametrize("way", list(uses("")))
@CELLS
async def test_a_caller_with_the_scopes_is_served(prefix: str, era: str, way: str) -> None:
    library, server = placed(prefix)
    call = await send(server.asgi(), era, uses(prefix)[way][0], "all" if prefix else "admin")
    assert (call.status, "result" in call.json, len(library.used)) == (200, True, 1)


async def test_the_challenge_includes_the_required_scopes() -> None:
    library = Library(auth=verifier(required_scopes=["files:read"]))
    call = await modern(library.server.asgi(), tool("change"), authorization=f"Bearer {signed()}").whole()
    assert call.status == 403
    assert 'scope="files:read read write"' in call.headers["www-authenticate"]
    assert 'resource_metadata="https://mcp.example.com/.well-known/' in call.headers["www-authenticate"]


async def test_a_hidden_tool_is_unknown_whatever_the_scopes() -> None:
    library = Library(visible=lambda caller, definition: False)
    call = await send(library.server.asgi(), STATELESS, tool("change"), "none")
    assert call.error == (400, -32602)


async def test_a_resource_template_does_not_bypass_the_scopes_of_a_resource() -> None:
    library = Library()
    library.server.add_resource("note://{day}", library.log, name="any")
    call = await send(library.server.asgi(), STATELESS, request("resources/read", {"uri": "note://secret"}), "none")
    assert (call.status, library.used) == (403, [])


# --- other ways to reach a resource ----------------------------------------------------------------------------------


async def test_in_a_batch_only_permitted_requests_run() -> None:
    library = Library()
    client = await SessionClient.open(library.server.asgi(), BATCHING, token="reader")
    call = await client.post([tool("change", id=1), tool("look", id=2), tool("free", id=3)]).whole()
    found = {each["id"]: each.get("error", {}).get("code") for each in call.json}
    assert (call.status, found, sorted(library.used)) == (200, {1: 403, 2: None, 3: None}, ["free", "look"])


async def test_over_http_sse_insufficient_scope_is_reported_in_the_stream() -> None:
    library = Library(auth=verifier(), implied_scopes={})
    app = library.server.asgi()
    bearer = {"authorization": f"Bearer {signed(scope='read')}"}
    stream = ask(app, "GET", "/mcp/sse", headers={**bearer, "accept": "text/event-stream", "content-type": None})
    path, _, query = (await stream.event()).data.decode().partition("?")

    async def tell(message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        sent = await ask(app, "POST", path, body=body, headers=bearer, query=query.encode()).whole()
        assert sent.status == 202

    await tell(initialize())
    await stream.message()
    await tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
    await tell(tool("change"))
    assert (await stream.message())["error"]["code"] == 403
    await tell(tool("look"))
    assert "result" in await stream.message()
    # The same principal with a token that allows more.
    bearer["authorization"] = f"Bearer {signed(scope='read write')}"
    await tell(tool("change"))
    assert "result" in await stream.message()
    stream.hang_up()
    await stream.ended()


async def test_an_answer_does_not_resume_a_call_that_the_token_no_longer_allows() -> None:
    server = Server("s", auth=verifier())

    @server.tool(scopes=["files:write"])
    async def rename(ctx: Context) -> str:
        return str((await ctx.elicit("To what?", str)).data)

    app = server.asgi()
    forms: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    first = await modern(app, tool("rename"), meta=forms, authorization=f"Bearer {signed()}").whole()
    asked = first.json["result"]
    answers = {key: {"action": "accept", "content": {"value": "x"}} for key in asked["inputRequests"]}
    retry = tool("rename", id=2)
    retry["params"] |= {"requestState": asked["requestState"], "inputResponses": answers}
    less = await modern(app, retry, meta=forms, authorization=f"Bearer {signed(scope='files:read')}").whole()
    good = await modern(app, retry, meta=forms, authorization=f"Bearer {signed()}").whole()
    assert (less.status, good.status) == (403, 200)


async def test_a_subscription_needs_the_scopes_of_what_is_read() -> None:
    library = Library()
    message = request("resources/subscribe", {"uri": "note://secret"})
    assert (await send(library.server.asgi(), HANDSHAKE, message, "reader")).status == 403


async def test_a_listener_gets_no_updates_of_resources_it_may_not_read() -> None:
    library = Library()
    wanted = {"notifications": {"resourceSubscriptions": ["note://free", "note://secret"]}}
    call = modern(library.server.asgi(), request("subscriptions/listen", wanted), authorization="Bearer reader")
    said = await call.message()
    call.hang_up()
    await call.ended()
    assert said["params"]["notifications"]["resourceSubscriptions"] == ["note://free"]


async def test_a_handler_reads_no_more_than_its_caller_may() -> None:
    library = Library()

    @library.server.tool
    async def peek(ctx: Context) -> str:
        return str(await ctx.read_resource("note://secret"))

    call = await send(library.server.asgi(), STATELESS, tool("peek"), "reader")
    assert (call.status, library.used) == (403, [])


# --- inside a handler ------------------------------------------------------------------------------------------------


def deleting() -> Server:
    server = Server("s", auth=TOKENS, implied_scopes=IMPLIED)

    @server.tool
    async def delete(path: str, ctx: Context, say: str = "") -> str:
        if say:
            await ctx.info(say)
        if path.startswith("/etc"):
            ctx.require_scopes("write", "system")
        return "deleted"

    @server.tool
    def delete_in_thread(ctx: Context) -> str:
        ctx.require_scopes("write")
        return "deleted"

    return server


@pytest.mark.parametrize(("path", "status"), [("/tmp/x", 200), ("/etc/x", 403)], ids=["allowed", "not allowed"])
@ERAS
async def test_a_handler_can_require_scopes_by_its_arguments(era: str, path: str, status: int) -> None:
    call = await send(deleting().asgi(), era, tool("delete", path=path), "all")
    assert (call.status, "www-authenticate" in call.headers) == (status, status == 403)


@pytest.mark.parametrize(("who", "status"), [("all", 200), ("admin", 200), ("reader", 403)])
async def test_a_handler_in_a_thread_can_require_scopes(who: str, status: int) -> None:
    assert (await send(deleting().asgi(), STATELESS, tool("delete_in_thread"), who)).status == status


async def test_insufficient_scope_after_the_stream_began_is_a_jsonrpc_error() -> None:
    meta = {"io.modelcontextprotocol/logLevel": "info"}
    message = tool("delete", path="/etc/x", say="wait")
    call = await modern(deleting().asgi(), message, meta=meta, authorization="Bearer all").whole()
    assert (call.status, call.messages[-1]["error"]["code"]) == (200, 403)


# --- without authentication ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", [STATELESS, HANDSHAKE])
def test_an_in_memory_client_has_all_scopes(revision: str) -> None:
    library = Library()
    assert call_in_memory(library.server, "change", revision)["content"][0]["text"] == "change"


async def test_an_http_caller_without_authentication_has_no_scopes(caplog: pytest.LogCaptureFixture) -> None:
    app = Library(auth=None).server.asgi()
    call = await modern(app, tool("change")).whole()
    listed = await modern(app, request("tools/list")).whole()
    assert (call.status, "www-authenticate" in call.headers) == (403, False)
    assert [each["name"] for each in listed.json["result"]["tools"]] == ["free"]
    assert "requires scopes" in caplog.text


@pytest.mark.parametrize(
    ("scopes", "names"), [("read", ["free", "look"]), ("", ["free"]), ("admin", ["free", "look", "change"])]
)
async def test_a_custom_transport_can_set_the_principal(scopes: str, names: list[str]) -> None:
    import asyncio

    library = Library()
    principal = Principal(subject="unix user", scopes=frozenset(scopes.split()))

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await library.server.serve(StreamLink(reader, writer, origin=Origin("unix", principal)))

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with listening, Client(StreamLink(*await asyncio.open_connection("127.0.0.1", port))) as client:
        assert [each.name for each in await client.list_tools()] == names


async def test_a_tool_that_needs_scopes_may_be_added_later() -> None:
    library = Library()
    app = library.server.asgi()
    library.server.remove_tool("change")
    assert (await send(app, STATELESS, tool("change"), "all")).error == (400, -32602)
    library.server.add_tool(library.use("change"), name="change", scopes="system")
    assert (await send(app, STATELESS, tool("change"), "all")).status == 403


# --- the client's side of it -----------------------------------------------------------------------------------------


def test_the_error_has_the_scopes() -> None:
    assert InsufficientScope("no", scopes=["a", "b"]).scopes == ("a", "b")


@pytest.mark.parametrize("data", [None, {"scopes": "a"}, {"scopes": [1]}, []])
def test_insufficient_scope_with_invalid_data_has_no_scopes(data: Any) -> None:
    assert InsufficientScope("no", data=data).scopes == ()


@pytest.mark.parametrize("options", [{"scopes": ["two words"]}, {"auth": object()}], ids=["no scope", "auth="])
def test_an_invalid_scope_is_refused_when_registered(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="scope"):
        Server("s").add_tool(lambda: "", name="t", **options)
