"""The public face of HTTP: options of ``asgi`` and ``run``, names that others give them, and what is refused."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from tests.transports.http.serving_support import (
    SessionClient,
    Workshop,
    ask,
    authenticate,
    initialize,
    modern,
    post,
    tool,
)
from trunkline import Server
from trunkline.errors import ConfigError
from trunkline.protocol.limits import Limits


async def ran(server: Server, transport: str = "http", **options: Any) -> tuple[str, int]:
    """Run a server over HTTP until it listens; give its address and the status of a GET of the old path."""
    import aiohttp

    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.ensure_future(server.run_async(transport, **{"port": 0, "started": url.set_result, **options}))
    waited: list[asyncio.Future[Any]] = [running, url]
    await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    async with aiohttp.ClientSession() as web, web.get(url.result() + "/sse") as response:
        status = response.status
    running.cancel()
    await asyncio.wait([running])
    return url.result(), status


# --- options of the application --------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["path", "sse_path", "message_path"])
def test_a_path_starts_with_a_slash(option: str) -> None:
    with pytest.raises(ConfigError, match=f"{option}='sse' is not valid: a path must start with"):
        Server("s").asgi(**{option: "sse"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "hint"), [("json_respons", "; did you mean 'json_response'?"), ("qqq", "")], ids=["near", "far"]
)
def test_an_unknown_option_is_rejected_with_the_closest(option: str, hint: str) -> None:
    with pytest.raises(TypeError) as refused:
        Server("s").asgi(**{option: 1})  # type: ignore[arg-type]
    assert str(refused.value) == f"HTTP has no option {option!r}{hint}"


@pytest.mark.parametrize("option", ["allowed_hosts", "allowed_origins", "cors_origins"])
def test_a_string_instead_of_a_list_is_rejected(option: str) -> None:
    with pytest.raises(ConfigError, match=f"{option} is a list"):
        Server("s").asgi(**{option: "https://a.example"})  # type: ignore[arg-type]


def test_options_left_at_none_keep_their_defaults() -> None:
    endpoint = Server("s").asgi(sse_path=None, message_path=None, auth=None)
    assert endpoint.path == "/mcp"


async def test_http_options_of_the_constructor_apply() -> None:
    app = Workshop(json_response=True, sse_path="/old").asgi()
    call = await modern(app, tool("steps"), meta={"io.modelcontextprotocol/logLevel": "info"}).whole()
    old = ask(app, "GET", "/old")
    assert (call.headers["content-type"], await old.head()) == ("application/json", 200)
    old.hang_up()
    await old.ended()


async def test_later_http_options_override_earlier_ones() -> None:
    app = Workshop(json_response=True).asgi(json_response=False)
    call = await modern(app, tool("steps"), meta={"io.modelcontextprotocol/logLevel": "info"}).whole()
    assert call.headers["content-type"] == "text/event-stream"


async def test_several_endpoints_serve_one_server() -> None:
    workshop = Workshop()
    apps = [workshop.asgi(), workshop.asgi(path="/other")]
    clients = [await SessionClient.open(apps[0])]
    assert (await post(apps[1], initialize(), "/other").whole()).status == 200
    await apps[1].aclose()
    assert (await clients[0].post(tool("add")).whole()).status == 200
    await apps[0].aclose()


async def test_lists_of_a_server_with_authentication_are_private() -> None:
    app = Workshop(auth=authenticate).asgi()
    call = await modern(app, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, authorization="Bearer ada").whole()
    assert call.json["result"]["cacheScope"] == "private"


# --- running ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("transport", "status"), [("http", 404), ("streamable-http", 404), ("sse", 200)])
async def test_a_server_runs_at_the_given_address_and_serves_the_paths_of_its_transport(
    transport: str, status: int
) -> None:
    url, found = await ran(Workshop().server, transport)
    assert (url.startswith("http://127.0.0.1:"), found) == (True, status)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "mcp.example.com", ""])
async def test_a_public_address_needs_authentication(host: str) -> None:
    with pytest.raises(ConfigError, match="allow_unauthenticated=True"):
        await Server("s").run_async("http", host=host, port=0)


@pytest.mark.parametrize(
    "options",
    [{"auth": authenticate}, {"allow_unauthenticated": True}],
    ids=["authenticated", "said so"],
)
async def test_a_public_address_is_bound_with_allow_unauthenticated(options: dict[str, Any]) -> None:
    url, _ = await ran(Workshop().server, host="0.0.0.0", **options)
    assert url


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
async def test_loopback_needs_no_authentication(host: str) -> None:
    assert (await ran(Workshop().server, host=host))[0]


async def test_an_unknown_option_of_run_is_rejected() -> None:
    with pytest.raises(TypeError, match="HTTP has no option 'prot'; did you mean 'port'"):
        await Server("s").run_async("http", prot=1)  # type: ignore[call-arg]


async def test_run_accepts_option_names_of_other_frameworks() -> None:
    given: Any = {"ssl_certfile": "nothing.pem", "ssl_keyfile": "nothing.key"}
    with pytest.raises(ConfigError, match=r"nothing\.pem"):
        await Server("s").run_async("http", port=0, **given)


def test_a_port_that_is_taken_is_one_sentence_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(SystemExit) as exit:
            Server("s", limits=Limits()).run("http", port=taken.getsockname()[1])
    said = capsys.readouterr().err
    assert (exit.value.code, said.startswith("error: "), said.count("\n")) == (2, True, 1)


def test_asgi_middleware_is_rejected_with_a_hint() -> None:
    with pytest.raises(TypeError, match="wrap the ASGI application"):
        Server("s").asgi(middleware=[object()])  # type: ignore[call-arg]


def test_an_empty_list_of_asgi_middleware_is_accepted() -> None:
    assert Server("s").asgi("/x", middleware=[]).path == "/x"  # type: ignore[call-arg]
