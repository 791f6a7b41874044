"""How foreign clients come in at the gateway: over stdio and HTTP, with and without its token, and the Inspector."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import mcp
import mcp_types as theirs
import pytest
from mcp.client.streamable_http import streamable_http_client

from tests.interop.gateway_stage import (
    FRONTS,
    Served,
    configured,
    entry,
    environment,
    gateway_client,
    served,
    stdio_command,
)
from tests.interop.peers import ALL, is_handshake, program
from tests.interop.test_official_client import only_text
from tests.interop.test_official_client_asked import accept, folders, model
from tests.interop.web import Inspector
from tests.support import run_async
from trunkline import Client

pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")

SERVERS = pytest.mark.parametrize("server", ["old", "new"])


class Doors(NamedTuple):
    """A gateway over HTTP, and the configuration it serves."""

    gateway: Served
    file: Path


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """A gateway to one server of the official SDK for each era."""
    servers = {
        "old": entry(program("official.py"), era="handshake"),
        "new": entry(program("official.py"), era="stateless"),
    }
    file = configured(servers, tmp_path_factory.mktemp("doors"))
    with served(file, servers) as gateway:
        yield Doors(gateway, file)


# --- stdio -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def started(file: Path, revision: str, **options: Any) -> AsyncIterator[mcp.Client]:
    """Let the official client start the gateway."""
    command = stdio_command(file)
    parameters = mcp.StdioServerParameters(command=command[0], args=command[1:], env=environment(file))
    mode = "legacy" if is_handshake(revision) else "auto"
    with open(os.devnull, "w") as nowhere:  # noqa: ASYNC230 - a device that never blocks
        transport = mcp.stdio_client(parameters, errlog=nowhere)
        async with mcp.Client(transport, mode=mode, read_timeout_seconds=30, **options) as client:
            yield client


def over_stdio(file: Path, revision: str, work: Callable[[mcp.Client], Any], **options: Any) -> Any:
    async def main() -> Any:
        async with started(file, revision, **options) as client:
            return await work(client)

    return run_async(main(), seconds=45)


@FRONTS
def test_the_official_client_starts_a_gateway(doors: Doors, front: str) -> None:
    async def work(client: mcp.Client) -> tuple[str, list[str], list[str]]:
        sums = [only_text(await client.call_tool(f"{server}__add", {"a": 1, "b": 2})) for server in ("old", "new")]
        notes = [only_text(await client.read_resource(f"note://{server}/fixed")) for server in ("old", "new")]
        return client.protocol_version, sums, notes

    assert over_stdio(doors.file, front, work) == (front, ["3", "3"], ["as it was", "as it was"])


@FRONTS
def test_the_official_client_that_started_a_gateway_is_asked(doors: Doors, front: str) -> None:
    async def work(client: mcp.Client) -> list[str]:
        return [only_text(await client.call_tool(f"{server}__ask_all")) for server in ("old", "new")]

    callbacks = {"elicitation_callback": accept, "sampling_callback": model, "list_roots_callback": folders}
    assert over_stdio(doors.file, front, work, **callbacks) == ["you? parrot 1", "you? parrot 1"]


# --- our own client, in every revision -------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ALL[1:])
@SERVERS
async def test_our_client_calls_in_every_revision(doors: Doors, revision: str, server: str) -> None:
    headers = {"Authorization": doors.gateway.authorization}
    async with Client(doors.gateway.url, headers=headers, revision=revision) as client:
        assert (client.revision, (await client.call_tool(f"{server}__add", {"a": 19, "b": 23})).text) == (
            revision,
            "42",
        )


# --- who is kept out -------------------------------------------------------------------------------------------------


class Refused(NamedTuple):
    """What a client was answered."""

    statuses: set[int]
    challenges: set[str]


async def knock(url: str, front: str, headers: dict[str, str]) -> Refused:
    """Have the official client try to connect, and note what it was answered."""
    statuses: set[int] = set()
    challenges: set[str] = set()

    async def note(response: httpx2.Response) -> None:
        statuses.add(response.status_code)
        challenges.add(response.headers.get("WWW-Authenticate", ""))

    mode = "legacy" if is_handshake(front) else "auto"
    async with httpx2.AsyncClient(headers=headers, event_hooks={"response": [note]}) as web:
        transport: Any = streamable_http_client(url, http_client=web)
        with pytest.RaisesGroup(
            pytest.RaisesExc((mcp.MCPError, httpx2.HTTPStatusError)), allow_unwrapped=True, flatten_subgroups=True
        ):
            async with mcp.Client(transport, mode=mode, read_timeout_seconds=5):
                pytest.fail("it was let in")
    return Refused(statuses, challenges)


@FRONTS
@pytest.mark.parametrize(
    ("headers", "says"),
    [
        pytest.param({}, "Bearer", id="no token"),
        pytest.param({"Authorization": "Bearer wrong"}, "invalid_token", id="wrong token"),
        pytest.param({"Authorization": "Basic dXNlcjp1c2Vy"}, "Bearer", id="another scheme"),
    ],
)
def test_who_does_not_have_the_token_gets_401(doors: Doors, front: str, headers: dict[str, str], says: str) -> None:
    refused = run_async(knock(doors.gateway.url, front, headers))
    assert refused.statuses == {401}
    assert all(says in challenge for challenge in refused.challenges)


# --- the Inspector ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def inspect(doors: Doors, tmp_path_factory: pytest.TempPathFactory) -> Inspector:
    """The Inspector, if it is here."""
    url, authorization = doors.gateway.url, doors.gateway.authorization
    over_http = [url, "--transport", "http"]
    own = ["-e", f"TRUNKLINE_HOME={doors.file.parent / 'home'}"]
    targets = {
        "stdio": [*stdio_command(doors.file), *own],
        "http": [*over_http, "--header", f"Authorization: {authorization}", *own],
        "http-without-token": over_http,
    }
    return Inspector(targets, environment(doors.file), tmp_path_factory.mktemp("inspector"))


@pytest.mark.parametrize("transport", ["stdio", "http"])
@SERVERS
def test_the_inspector_calls_tools(inspect: Inspector, transport: str, server: str) -> None:
    arguments = ["--tool-name", f"{server}__add", "--tool-arg", "a=19", "--tool-arg", "b=23"]
    called = inspect(transport, "tools/call", *arguments)
    assert (called["content"][0]["text"], called["structuredContent"]) == ("42", {"result": 42})


def test_the_inspector_without_the_token_is_kept_out(inspect: Inspector) -> None:
    done = inspect.run("http-without-token", "tools/list")
    assert done.returncode != 0
    assert "auth_required" in done.stderr


# --- what the official client may not do -----------------------------------------------------------------------------


@FRONTS
def test_a_tool_that_no_rule_allows_needs_consent_which_the_client_is_asked_for(tmp_path: Path, front: str) -> None:
    servers = {"old": entry(program("official.py"))}
    file = configured(servers, tmp_path)
    (tmp_path / "home" / "policy.toml").write_text("")
    asked: list[str] = []

    async def consent(context: Any, params: theirs.ElicitRequestParams) -> theirs.ElicitResult:
        asked.append(params.message)
        return theirs.ElicitResult(action="accept", content={"decision": "allow once"})

    async def main(gateway: Served) -> list[str]:
        async with gateway_client(gateway, front, elicitation_callback=consent) as able:
            first = only_text(await able.call_tool("old__add", {"a": 1, "b": 2}))
        async with gateway_client(gateway, front) as unable:
            second = await unable.call_tool("old__add", {"a": 1, "b": 2})
        return [first, str(second.is_error)]

    with served(file, servers, flags=["--approval", "ask"]) as gateway:
        assert run_async(main(gateway)) == ["3", "True"]
    assert len(asked) == 1
    assert "'add'" in asked[0]
