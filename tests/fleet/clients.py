"""The third-party clients of the fleet: which driver runs in which environment, and what each makes of the gateway.

Each client lists and calls the reference server ``everything`` directly, over stdio and over HTTP. What it sees there
it must also see through a gateway as it comes out of the box.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from tests.faults.casting import MARK
from tests.fleet.gateway import Home, over_stdio, running
from tests.fleet.install import FLEET, folder_of
from tests.fleet.packages import ENVIRONMENTS
from tests.fleet.servers import SERVERS, fill_in
from tests.fleet.sides import Target

__all__ = ["AT_ONCE", "CLIENTS", "REFERENCE", "ClientRow", "ThirdPartyClient", "try_clients"]

#: The server that all clients call.
REFERENCE = "everything"
DRIVERS = Path(__file__).parent / "drivers"
_CALLS: tuple[tuple[str, dict[str, Any]], ...] = (("echo", {"message": "hello"}), ("get-sum", {"a": 2, "b": 3}))
#: What the text of each answer has in it, however a client shows it.
_ANSWERS = ("hello", "5")
#: Directly it has to be called as a task, and some clients leave it out; through the gateway any client can call it.
_TASK_ONLY = "simulate-research-query"
_MARKED = "FLEET "
#: Seconds for all looks of one client, on however busy a machine.
_SECONDS = 400.0
#: Clients that run at the same time, and servers that are looked at.
AT_ONCE = 2
_LISTEN_SECONDS = 60.0


class ThirdPartyClient(Struct, frozen=True):
    """A client, the driver program for it, and the environment it is installed in."""

    name: str
    driver: str
    #: The environment, or none for the one that runs the fleet.
    environment: str = ""
    mode: str = ""

    @property
    def package(self) -> str:
        """The package with its version."""
        return ENVIRONMENTS[self.environment].subject if self.environment else _own_sdk()


def _own_sdk() -> str:
    requirements = (Path(__file__).parents[2] / "requirements-dev.txt").read_text().splitlines()
    return next(line for line in requirements if line.startswith("mcp=="))


CLIENTS = (
    ThirdPartyClient("Python SDK 2, stateless", "sdk_2.py", mode="auto"),
    ThirdPartyClient("Python SDK 2, handshake", "sdk_2.py", mode="legacy"),
    ThirdPartyClient("Python SDK 1", "sdk_1.py", "sdk-1"),
    ThirdPartyClient("FastMCP", "fastmcp_client.py", "fastmcp"),
    ThirdPartyClient("LangChain", "langchain_client.py", "langchain"),
    ThirdPartyClient("LlamaIndex", "llama_index_client.py", "llama-index"),
    ThirdPartyClient("Pydantic AI", "pydantic_ai_client.py", "pydantic-ai"),
    ThirdPartyClient("OpenAI Agents", "openai_agents_client.py", "openai-agents"),
    ThirdPartyClient("smolagents", "smolagents_client.py", "smolagents"),
    ThirdPartyClient("Strands Agents", "strands_client.py", "strands"),
    ThirdPartyClient("AutoGen", "autogen_client.py", "autogen"),
    ThirdPartyClient("Agno", "agno_client.py", "agno"),
    ThirdPartyClient("mcp-use", "mcp_use_client.py", "mcp-use"),
    ThirdPartyClient("Google ADK", "google_adk_client.py", "google-adk"),
    ThirdPartyClient("Semantic Kernel", "semantic_kernel_client.py", "semantic-kernel"),
    ThirdPartyClient("Agent Framework", "agent_framework_client.py", "agent-framework"),
    ThirdPartyClient("Haystack", "haystack_client.py", "haystack"),
    ThirdPartyClient("CrewAI", "crewai_client.py", "crewai"),
    ThirdPartyClient("BeeAI", "beeai_client.py", "beeai"),
    ThirdPartyClient("DSPy", "dspy_client.py", "dspy"),
    ThirdPartyClient("CAMEL", "camel_client.py", "camel"),
    ThirdPartyClient("TypeScript SDK 1", "typescript_1.mjs", "typescript-1"),
    ThirdPartyClient("TypeScript SDK 2, stateless", "typescript_2.mjs", "typescript-2", mode="auto"),
    ThirdPartyClient("TypeScript SDK 2, handshake", "typescript_2.mjs", "typescript-2", mode="legacy"),
    ThirdPartyClient("Vercel AI SDK", "ai_sdk.mjs", "ai-sdk"),
    ThirdPartyClient("LangChain for JavaScript", "langchain_js.mjs", "langchain-js"),
    ThirdPartyClient("OpenAI Agents for JavaScript", "openai_agents_js.mjs", "openai-agents-js"),
    ThirdPartyClient("Mastra", "mastra.mjs", "mastra"),
    ThirdPartyClient("LlamaIndex for TypeScript", "llama_index_js.mjs", "llama-index-js"),
)


class ClientRow(Struct, kw_only=True):
    """What became of one client."""

    name: str
    package: str
    #: For each door, "stdio" and "http": why it failed; an empty text if it did not.
    doors: dict[str, str] = field(default_factory=dict)
    #: For each door that the client cannot use directly either: why.
    not_directly: dict[str, str] = field(default_factory=dict)
    skipped: str = ""

    @property
    def passed(self) -> bool:
        """Whether everything that works directly works through the gateway."""
        return not any(self.doors.values())


def try_clients(
    clients: list[ThirdPartyClient], missing: Mapping[str, str], *, mark: str, tell: Callable[[str], None]
) -> list[ClientRow]:
    """Run each client directly and through a gateway in its default mode, over stdio and HTTP."""
    server = next(each for each in SERVERS if each.name == REFERENCE)
    work = FLEET / "work" / "clients"
    work.mkdir(parents=True, exist_ok=True)
    command = fill_in(server.command, server, work)
    reference = Target(command=command, env={**os.environ, MARK: mark}, cwd=str(work))
    folder = FLEET / "homes" / "clients"
    shutil.rmtree(folder, ignore_errors=True)
    home = Home(folder, {REFERENCE: Target(command=command, cwd=str(work))}, mark)
    rows = []
    with (
        _listening(command, mark) as direct,
        running(home) as gateway,
        ThreadPoolExecutor(AT_ONCE) as threads,
    ):
        doors = {"stdio": (reference, over_stdio(home)), "http": (direct, gateway.target)}
        for row in threads.map(lambda client: _tried(client, missing, doors), clients):
            _tell(row, tell)
            rows.append(row)
    return rows


def _tried(
    client: ThirdPartyClient, missing: Mapping[str, str], doors: Mapping[str, tuple[Target, Target]]
) -> ClientRow:
    row = ClientRow(name=client.name, package=client.package)
    if client.environment in missing:
        row.skipped = missing[client.environment]
        return row
    targets = [
        (target, through) for pair in doors.values() for target, through in zip(pair, (False, True), strict=True)
    ]
    seen = iter(_driven(client, targets))
    for door in doors:
        wanted, got = next(seen), next(seen)
        if reason := wanted.get("failed") or _wrong(wanted):
            row.not_directly[door] = reason
        else:
            row.doors[door] = got.get("failed") or _compared(wanted, got)
    return row


def _driven(client: ThirdPartyClient, targets: Sequence[tuple[Target, bool]]) -> list[dict[str, Any]]:
    """Run a driver; return for each target what it saw, or ``failed`` and the reason."""
    command = [*_program(client), json.dumps([_told(client, target, through) for target, through in targets])]
    variables = {**os.environ, "MCP_USE_ANONYMIZED_TELEMETRY": "false", "AGNO_TELEMETRY": "false"}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            env=variables,
            cwd=FLEET,
            stdin=subprocess.DEVNULL,
        )
        written, reason = done.stdout, _last_error(done.stderr) or f"status {done.returncode}"
    except subprocess.TimeoutExpired as late:
        written = late.stdout.decode() if isinstance(late.stdout, bytes) else ""
        reason = f"no end after {_SECONDS:g} s"
    lines = [line.removeprefix(_MARKED) for line in written.splitlines() if line.startswith(_MARKED)]
    seen: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [*seen, *({"failed": reason} for _ in targets[len(seen) :])]


def _told(client: ThirdPartyClient, target: Target, through: bool) -> dict[str, Any]:
    """Return what a driver is told about one target."""
    prefix = f"{REFERENCE}__" if through else ""
    calls = [[f"{prefix}{name}", arguments] for name, arguments in _CALLS]
    where = (
        {"url": target.url, "headers": target.headers} if target.url else {"command": target.command, "env": target.env}
    )
    return {"calls": calls, "mode": client.mode, **where}


def _program(client: ThirdPartyClient) -> list[str]:
    folder = folder_of(ENVIRONMENTS[client.environment]) if client.environment else None
    if client.driver.endswith(".py"):
        return [sys.executable if folder is None else str(folder / "bin" / "python"), str(DRIVERS / client.driver)]
    assert folder is not None
    # Node looks for packages beside the program, wherever it is run.
    for name in ("driving.mjs", client.driver):
        shutil.copyfile(DRIVERS / name, folder / name)
    return [shutil.which("node") or "node", str(folder / client.driver)]


def _last_error(stderr: str) -> str:
    """Return the line of a traceback that says what went wrong, in Python or in JavaScript."""
    lines = [line.strip(" |+-") for line in stderr.splitlines()]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Group)\b.*:", line)]
    return (named[-1] if named else stderr.strip()[-200:])[:300]


def _wrong(seen: dict[str, Any]) -> str:
    """Return what is wrong with the results of a client that is connected directly."""
    for (name, _), right, result in zip(_CALLS, _ANSWERS, seen["results"], strict=True):
        if right not in result:
            return f"{name} returns {result[:200]!r}"
    return ""


def _compared(wanted: dict[str, Any], seen: dict[str, Any]) -> str:
    """Compare names and results, without the prefix of the server; return what differs."""
    found = []
    # CrewAI writes one underscore for two.
    names = [re.sub(f"{REFERENCE}_+", "", name) for name in seen["tools"]]
    if absent := sorted(set(wanted["tools"]) - set(names)):
        found.append(f"tools are missing: {', '.join(absent)}")
    if more := sorted(set(names) - set(wanted["tools"]) - {_TASK_ONLY}):
        found.append(f"tools are listed that are not listed directly: {', '.join(more)}")
    for (name, _), right, result in zip(_CALLS, wanted["results"], seen["results"], strict=True):
        if right != result:
            found.append(f"{name} returns {result[:200]!r} instead of {right[:100]!r}")
    return "; ".join(found)


def _tell(row: ClientRow, tell: Callable[[str], None]) -> None:
    for door, reason in row.doors.items():
        tell(f"  MISS {row.name}, {door}: {reason}" if reason else f"  {row.name}, {door}: passes")
    for door, reason in row.not_directly.items():
        tell(f"  {row.name}, {door}: does not work directly either ({reason})")


@contextmanager
def _listening(command: tuple[str, ...], mark: str) -> Iterator[Target]:
    """Run the reference server over HTTP, without a gateway."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    env = {**os.environ, "PORT": str(port), MARK: mark}
    process = subprocess.Popen(
        [*command, "streamableHttp"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env
    )
    try:
        _wait_for(port)
        yield Target(url=f"http://127.0.0.1:{port}/mcp")
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int) -> None:
    end = time.monotonic() + _LISTEN_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return
