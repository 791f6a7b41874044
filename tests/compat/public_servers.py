"""Public servers from PyPI, unchanged, under ``trunkline run --compat``: ``python -m tests.compat.public_servers``.

Each is installed with its own dependencies into an environment of its own below ``.compat``, started once with the
framework it was written for and once with ours, and the two lists of tools are compared. None of their code is kept.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from tests.compat.schema_differences import differences, literal_differences
from trunkline import Client

__all__ = ["SERVERS", "PublicServer", "main"]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".compat" / "servers"
_NO_ENV: Mapping[str, str] = MappingProxyType({})


class PublicServer(NamedTuple):
    """A server to try: the distribution, its command, and what it needs to start."""

    requirement: str
    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = _NO_ENV
    #: More that must be installed, where the newest of a dependency no longer works with the server.
    extra: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The distribution's name."""
        return self.requirement.partition("==")[0]


SERVERS = (
    PublicServer("mcp-server-time==2026.10.19", "mcp-server-time"),
    PublicServer("mcp-server-fetch==2026.10.24", "mcp-server-fetch"),
    PublicServer("mcp-server-git==2026.10.19", "mcp-server-git"),
    PublicServer(
        "mcp-server-sqlite==2025.4.25", "mcp-server-sqlite", ("--db-path", "/tmp/compat.db"), extra=("mcp<2",)
    ),
    PublicServer("arxiv-mcp-server==0.8.2", "arxiv-mcp-server"),
    PublicServer("duckduckgo-mcp-server==0.7.0", "duckduckgo-mcp-server"),
    PublicServer("wikipedia-mcp==2.0.1", "wikipedia-mcp"),
    PublicServer("mcp-server-calculator==0.2.1", "mcp-server-calculator"),
    PublicServer("awslabs.aws-documentation-mcp-server==1.2.3", "awslabs.aws-documentation-mcp-server"),
    PublicServer("office-word-mcp-server==1.1.11", "word_mcp_server"),
    PublicServer("excel-mcp-server==2.2.2", "excel-mcp-server", ("stdio",)),
    PublicServer("mcp-youtube-transcript==0.3.5", "mcp-youtube-transcript", extra=("mcp<2",)),
    PublicServer("mcp-text-editor==1.0.2", "mcp-text-editor", extra=("mcp<2",)),
    PublicServer("mcp-shell-server==1.1.14", "mcp-shell-server", env={"ALLOW_COMMANDS": "ls"}),
    PublicServer("mcp_weather_server==0.6.1", "mcp_weather_server", extra=("mcp<2",)),
    PublicServer("blender-mcp==2.0.0", "blender-mcp"),
    PublicServer("mcp-nixos==3.1.0", "mcp-nixos"),
    PublicServer("redis-mcp-server==0.5.1", "redis-mcp-server"),
    PublicServer(
        "mysql-mcp-server==0.4.4",
        "mysql_mcp_server",
        env={"MYSQL_USER": "a", "MYSQL_PASSWORD": "b", "MYSQL_DATABASE": "c"},
    ),
    PublicServer(
        "mcp-clickhouse==0.7.0",
        "mcp-clickhouse",
        env={"CLICKHOUSE_HOST": "localhost", "CLICKHOUSE_USER": "a", "CLICKHOUSE_PASSWORD": "b"},
    ),
)


def _python(server: PublicServer) -> Path:
    return FOLDER / server.name / "bin" / "python"


def _install(server: PublicServer) -> str | None:
    """Install a server beside Trunkline; return what went wrong, if something did."""
    folder = FOLDER / server.name
    stamp = folder / ".installed"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == server.requirement:
        return None
    venv.create(folder, with_pip=True, clear=True)
    command = [str(_python(server)), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    done = subprocess.run(
        [*command, server.requirement, *server.extra, "-e", f"{ROOT}[http]", "starlette"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return done.stderr.strip().rpartition("\n")[2]
    stamp.write_text(server.requirement, encoding="utf-8")
    return None


async def _listed(command: Sequence[str], server: PublicServer) -> dict[str, Any]:
    env = {**server.env, "HOME": os.environ.get("HOME", "/tmp"), "PATH": os.environ["PATH"]}
    said: list[bytes] = []
    client = Client(list(command), env=env, on_stderr=said.append, timeout=60, revision="handshake")
    try:
        async with asyncio.timeout(90), client:
            tools = await client.list_tools()
    except Exception as error:
        tail = b"".join(said).decode("utf-8", "replace").strip().splitlines()[-3:]
        raise RuntimeError(f"{error} | {' / '.join(tail)}") from error
    return {
        tool.name: {"input": tool.input_schema, "output": tool.output_schema, "description": tool.description}
        for tool in tools
    }


async def compare(server: PublicServer) -> tuple[str, str]:
    """Return the verdict on a server (ok, differs, fails, unusable) and a sentence."""
    bin_folder = FOLDER / server.name / "bin"
    try:
        theirs = await _listed([str(bin_folder / server.command), *server.args], server)
    except RuntimeError as error:
        return "unusable", f"with its own framework: {error}"
    try:
        command = [str(bin_folder / "trunkline"), "run", "--compat", "--", server.command, *server.args]
        ours = await _listed(command, server)
    except RuntimeError as error:
        return "fails", str(error)
    found = differences(theirs, ours)
    if found:
        return "differs", "; ".join(found)
    written = literal_differences(theirs, ours)
    note = f", {len(written)} schemas written otherwise: {', '.join(written)}" if written else ", schemas word for word"
    return "ok", f"{len(theirs)} tools{note}"


def main(names: Sequence[str]) -> int:
    """Try the servers and print a table; return the number that neither run nor list the same tools."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    verdicts: dict[str, tuple[str, str]] = {}
    for server in SERVERS:
        if names and server.name not in names:
            continue
        problem = _install(server)
        verdicts[server.name] = ("unusable", problem) if problem else asyncio.run(compare(server))
        kind, text = verdicts[server.name]
        sys.stdout.write(f"{kind:9} {server.requirement:50} {text[:1500]}\n")
        sys.stdout.flush()
    usable = [kind for kind, _ in verdicts.values() if kind != "unusable"]
    sys.stdout.write(f"{usable.count('ok')} of {len(usable)} run unedited and list the same tools\n")
    report = FOLDER.parent / "public_servers.json"
    report.write_bytes(msgspec.json.format(msgspec.json.encode(verdicts)))
    return len(usable) - usable.count("ok")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
