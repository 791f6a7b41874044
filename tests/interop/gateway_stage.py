"""Gateways for the tests: a configuration of foreign servers, the gateway that serves them, foreign clients of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import mcp
import pytest
from mcp.client.streamable_http import streamable_http_client

from tests.interop.peers import HANDSHAKE, NEWEST, NEWEST_HANDSHAKE, Visits, is_handshake, program
from tests.interop.web import INTEROP, listening, node
from tests.support import run_async

__all__ = [
    "FRONTS",
    "Fronts",
    "Served",
    "configured",
    "entry",
    "fleet",
    "gateway_client",
    "python_server",
    "served",
    "stdio_command",
    "visit_gateway",
]

_AT = "is served at "
_PROPOSAL = "for others: "
PYTHON_SERVERS = INTEROP / "python-servers" / "bin"
FRONTS = pytest.mark.parametrize("front", [NEWEST_HANDSHAKE, NEWEST], ids=["handshake-front", "stateless-front"])


# --- the servers behind ----------------------------------------------------------------------------------------------


def entry(command: list[str], **more: Any) -> dict[str, Any]:
    """Write a command as an entry of a configuration."""
    return {"command": command[0], "args": command[1:], **more}


def python_server(name: str, *arguments: str) -> list[str]:
    """Give the command of a reference server from PyPI; skip the test where it is not installed."""
    command = PYTHON_SERVERS / f"mcp-server-{name}"
    if not command.exists():
        pytest.skip(f"mcp-server-{name} is not installed: `make interop` does that")
    return [str(command), *arguments]


@contextmanager
def fleet() -> Iterator[dict[str, Any]]:
    """Give entries for servers of the SDKs, in both eras, over stdio and HTTP; those for Node where that is here."""
    with ExitStack() as stack:
        official = json.loads(stack.enter_context(listening(program("official_http.py"))))
        yield {
            "py-old": entry(program("official.py"), era="handshake"),
            "py-new": entry(program("official.py"), era="stateless"),
            "py-web-old": {"url": official["http"], "era": "handshake"},
            "py-web-new": {"url": official["http"], "era": "stateless"},
            "py-both": entry(program("official_asking.py")),
            "low-old": entry(program("official_low.py"), era="handshake"),
            "low-new": entry(program("official_low.py"), era="stateless"),
            "our-old": entry(program("ours.py", *HANDSHAKE)),
            "our-new": entry(program("ours.py", NEWEST)),
            **_node_fleet(stack),
        }


def _node_fleet(stack: ExitStack) -> dict[str, Any]:
    try:
        commands = node("ts1_server_http.mjs"), node("ts2_server_http.mjs")
    except pytest.skip.Exception:
        return {}
    first, second = (json.loads(stack.enter_context(listening(command))) for command in commands)
    return {
        "ts1": {"url": first["http"]},
        "ts1-sse": {"type": "sse", "url": first["sse"]},
        "ts2-old": {"url": second["http"], "era": "handshake"},
        "ts2-new": {"url": second["http"], "era": "stateless"},
    }


# --- the gateway -----------------------------------------------------------------------------------------------------


class Served(NamedTuple):
    """A gateway that listens, and the names of the servers behind it."""

    url: str
    #: What the header ``Authorization`` says.
    authorization: str
    servers: tuple[str, ...]

    def needs(self, server: str) -> None:
        """Skip a test whose server could not be had."""
        if server not in self.servers:
            pytest.skip(f"{server} is not here: `make interop` installs it")


def configured(servers: Mapping[str, Any], folder: Path) -> Path:
    """Write a configuration, and a policy that allows all tools of its servers."""
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    allow_tools(servers, folder)
    return file


def allow_tools(servers: Mapping[str, Any], folder: Path) -> None:
    """Write a policy that allows all tools of these servers."""
    home = folder / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    rule = f'[[rule]]\neffect = "allow"\nserver = {json.dumps(list(servers))}\ntool = "*"\n'
    rule += f"{rule}tainted = true\n"
    (home / "policy.toml").write_text(rule)


def environment(file: Path, **more: str) -> dict[str, str]:
    """Give the environment of a gateway that keeps its files beside its configuration."""
    return {**os.environ, "TRUNKLINE_HOME": str(file.parent / "home"), **more}


def stdio_command(file: Path) -> list[str]:
    """Give the command of a gateway over stdio."""
    return [sys.executable, "-m", "trunkline", "serve", "-c", str(file), "--search", "off", "--wait", "40"]


@contextmanager
def served(
    file: Path, servers: Iterable[str], *, token: str | None = None, flags: Iterable[str] = (), **variables: str
) -> Iterator[Served]:
    """Run a gateway over HTTP; where it is, and the token it made up, is read from the entry it proposes to clients."""
    command = [*stdio_command(file), "--http", "0", *flags]
    if token is not None:
        variables["TRUNKLINE_GATEWAY_TOKEN"] = token
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment(file, **variables)
    )
    assert process.stderr is not None
    try:
        told = _AT if token is not None else _PROPOSAL
        line = next((line for line in process.stderr if told in line), "")
        assert line, f"the gateway ended with status {process.wait(5)}"
        said = line.partition(told)[2]
        yield Served(*(_proposed(said) if token is None else (said.partition(";")[0], f"Bearer {token}")), (*servers,))
    finally:
        process.terminate()
        try:
            process.wait(20)
        finally:
            process.kill()
            process.stderr.close()


def _proposed(entry: str) -> tuple[str, str]:
    """Read the entry that is proposed to clients."""
    [proposed] = json.loads(entry)["mcpServers"].values()
    return proposed["url"], proposed["headers"]["Authorization"]


# --- official clients in front ---------------------------------------------------------------------------------------


@asynccontextmanager
async def gateway_client(gateway: Served, revision: str, **options: Any) -> AsyncIterator[mcp.Client]:
    """Connect the official client over HTTP, with the gateway's token."""
    headers = {"Authorization": gateway.authorization}
    mode = "legacy" if is_handshake(revision) else "auto"
    async with httpx2.AsyncClient(headers=headers, timeout=30.0) as web:
        transport: Any = streamable_http_client(gateway.url, http_client=web)
        async with mcp.Client(transport, mode=mode, read_timeout_seconds=20, **options) as client:
            yield client


def visit_gateway(gateway: Served, revision: str, work: Callable[[mcp.Client], Awaitable[Any]], **options: Any) -> Any:
    """Do something with a client of its own."""

    async def main() -> Any:
        async with gateway_client(gateway, revision, **options) as client:
            return await work(client)

    return run_async(main())


class Fronts(Visits):
    """Official clients of one gateway that many tests share."""

    def __init__(self, gateway: Served, **options: Any) -> None:
        """Say with which options they are made."""
        super().__init__(lambda revision: gateway_client(gateway, revision, **options))
        self.gateway = gateway
