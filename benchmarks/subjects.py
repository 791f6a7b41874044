"""Who is measured: ours, the peers and the floor, and how each is installed.

A subject is a row of `SUBJECTS`. Python subjects get a virtual environment of their own below `.venvs`, made with the
interpreter that runs the bench and in a folder of its version, so that all of them share one Python; the TypeScript
ones share `node_modules`. A subject that cannot be installed stays in the report with the reason. Nothing here knows
what is measured.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.driver import complaint

__all__ = [
    "GROWTH",
    "HERE",
    "HOST",
    "HTTP",
    "INSTRUCTIONS",
    "ROOT",
    "SHOP",
    "STDIO",
    "SUBJECTS",
    "Installed",
    "Subject",
    "install",
]

STDIO = ("stdio", "large", "start", "client", "packages")
HTTP = ("http", "http auth", "http client", "http streams", "http events")
HOST = ("gateway", "host")
#: Counted under callgrind, once: the count does not depend on what else the machine does.
INSTRUCTIONS = "instructions"
GROWTH = "growth"
#: What a server costs in use, in short sessions over Redis and an HTTP API.
SHOP = "shop"
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
INSTALL_SECONDS = 900
NOT_COUNTED = frozenset({"pip", "setuptools", "wheel"})

# Asks an environment which distributions it holds; the answer is JSON so that one process is enough.
INVENTORY = (
    "import json, importlib.metadata as m; "
    "print(json.dumps({d.metadata['Name'].lower(): d.version for d in m.distributions()}))"
)


@dataclass(frozen=True, slots=True)
class Subject:
    """One measured implementation: its name in the tables, its programs, where its packages live, what it takes."""

    name: str
    server: str
    package: str
    environment: str
    arguments: tuple[str, ...] = ()
    client: str | None = None
    token: str | None = None
    floor: str | None = None
    revisions: tuple[str, ...] = ("2025-11-25", "2026-07-28")
    sync_tool: bool = True
    plain_install: bool = True
    sections: tuple[str, ...] = STDIO
    #: What a gateway can stand before; empty for what is none.
    fronts: tuple[str, ...] = ()
    #: How many requests a server needs before it is as fast as it gets, if its code is compiled while it runs.
    warm_requests: int = 0

    @property
    def gateway(self) -> bool:
        """Whether it passes calls on."""
        return bool(self.fronts)

    @property
    def ours(self) -> bool:
        """Whether this is Trunkline, on whichever loop."""
        return self.package == "trunkline"


def _shop(name: str, server: str, package: str, environment: str, *arguments: str, warm_requests: int = 0) -> Subject:
    """Return a subject of the section `shop`, whose users speak one revision."""
    return Subject(
        name,
        server,
        package,
        environment,
        arguments=arguments,
        revisions=("2024-11-05",),
        plain_install=False,
        sections=(SHOP,),
        warm_requests=warm_requests,
    )


SUBJECTS = (
    Subject("floor", "servers/floor_server.py", "msgspec", "floor", sync_tool=False, plain_install=False),
    Subject(
        "floor uv",
        "servers/floor_server.py",
        "msgspec",
        "floor",
        arguments=("uvloop",),
        sync_tool=False,
        plain_install=False,
        sections=(*STDIO, INSTRUCTIONS),
    ),
    Subject(
        "ours",
        "servers/trunkline_server.py",
        "trunkline",
        "trunkline",
        client="clients/trunkline_client.py",
        floor="floor",
    ),
    Subject(
        "ours uv",
        "servers/trunkline_server.py",
        "trunkline",
        "trunkline-uvloop",
        client="clients/trunkline_client.py",
        floor="floor uv",
        plain_install=False,
        sections=(*STDIO, GROWTH, INSTRUCTIONS),
    ),
    Subject("mcp", "peers/mcp_server.py", "mcp", "mcp", client="peers/mcp_client.py"),
    Subject("fastmcp", "peers/fastmcp_server.py", "fastmcp", "fastmcp", client="peers/fastmcp_client.py"),
    Subject("ts 1", "peers/ts1_server.mjs", "@modelcontextprotocol/sdk", "node", revisions=("2025-11-25",)),
    Subject("ts 2", "peers/ts2_server.mjs", "@modelcontextprotocol/server", "node", revisions=("2026-07-28",)),
    Subject(
        "asgi",
        "servers/asgi_floor.py",
        "uvicorn",
        "floor-http",
        sync_tool=False,
        plain_install=False,
        sections=("http", "http client", "http streams", INSTRUCTIONS),
    ),
    Subject(
        "ours http",
        "servers/trunkline_http.py",
        "trunkline",
        "trunkline-http",
        client="clients/trunkline_client.py",
        plain_install=False,
        sections=(*HTTP, "gateway", INSTRUCTIONS),
    ),
    Subject(
        "ours auth",
        "servers/trunkline_http.py",
        "trunkline",
        "trunkline-auth",
        token="servers/sign_token.py",
        plain_install=False,
        sections=("http auth",),
    ),
    Subject(
        "mcp http",
        "peers/mcp_http.py",
        "mcp",
        "mcp-http",
        client="peers/mcp_client.py",
        plain_install=False,
        sections=("http", "http client", "http events", "gateway", INSTRUCTIONS),
    ),
    Subject(
        "fastmcp http",
        "peers/fastmcp_http.py",
        "fastmcp",
        "fastmcp-http",
        client="peers/fastmcp_client.py",
        plain_install=False,
        sections=("http", "http client", "http events"),
    ),
    Subject(
        "our gateway",
        "servers/gateway.py",
        "trunkline",
        "trunkline-host",
        plain_install=False,
        sections=HOST,
        fronts=("stdio", "http"),
    ),
    Subject(
        "bare proxy",
        "servers/floor_proxy.py",
        "uvicorn",
        "floor-proxy",
        plain_install=False,
        sections=("gateway",),
        fronts=("stdio", "http"),
    ),
    Subject(
        "fastmcp proxy",
        "peers/fastmcp_proxy.py",
        "fastmcp",
        "fastmcp-http",
        plain_install=False,
        sections=("gateway",),
        fronts=("stdio", "http"),
    ),
    Subject(
        "mcp-proxy",
        "peers/stdio_proxy.py",
        "mcp-proxy",
        "mcp-proxy",
        plain_install=False,
        revisions=("2025-11-25",),
        sections=("gateway",),
        fronts=("stdio",),
    ),
    _shop("bare shop", "servers/asgi_shop.py", "uvicorn", "floor-http"),
    _shop("our shop", "servers/trunkline_shop.py", "trunkline", "trunkline-http", "1"),
    _shop("our shop, 2 workers", "servers/trunkline_shop.py", "trunkline", "trunkline-http", "2"),
    _shop("mcp shop", "peers/mcp_shop.py", "mcp", "mcp-http"),
    _shop("fastmcp shop", "peers/fastmcp_shop.py", "fastmcp", "fastmcp-http"),
    _shop("node shop", "peers/node_shop.mjs", "@modelcontextprotocol/server", "node", warm_requests=6_000),
)


@dataclass(frozen=True, slots=True)
class Installed:
    """What an attempt to install a subject gave: how to start it, or the problem."""

    subject: Subject
    interpreter: str = ""
    version: str = ""
    packages: int | None = None
    problem: str | None = None

    def server_command(self, *extra: str) -> list[str]:
        """Give the command that starts the subject's server."""
        return [self.interpreter, str(HERE / self.subject.server), *self.subject.arguments, *extra]

    def client_command(self, *extra: str) -> list[str]:
        """Give the command that starts the subject's client program."""
        return [self.interpreter, str(HERE / str(self.subject.client)), *extra]

    def token_command(self) -> list[str]:
        """Give the command that prints what the subject's server is called with: a key and a token it has signed."""
        return [self.interpreter, str(HERE / str(self.subject.token))]

    def environ(self, **more: str) -> dict[str, str]:
        """Give the small environment every program is run in."""
        return {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ} | more


class InstallFailed(Exception):
    """A subject's packages could not be had."""


def install(subject: Subject) -> Installed:
    """Install a subject unless it is there already; a failure is part of the answer, not raised."""
    try:
        if subject.environment == "node":
            return _install_node(subject)
        return _install_python(subject)
    except InstallFailed as failure:
        return Installed(subject, problem=str(failure))


def _install_python(subject: Subject) -> Installed:
    home = HERE / ".venvs" / f"{sys.version_info.major}.{sys.version_info.minor}" / subject.environment
    python = home / "bin" / "python"
    requirements = HERE / "requirements" / f"{subject.environment}.txt"
    wanted = requirements.read_text(encoding="utf-8") + _our_dependencies(subject)
    stamp = home / "installed.txt"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(home, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(home)])
        _run([str(python), "-m", "pip", "install", "--quiet", "-r", str(requirements)])
        stamp.write_text(wanted, encoding="utf-8")
    found = json.loads(_run([str(python), "-c", INVENTORY]))
    return Installed(
        subject,
        interpreter=str(python),
        version=_python_version(subject, found),
        packages=len(found.keys() - NOT_COUNTED) if subject.plain_install else None,
    )


def _python_version(subject: Subject, found: dict[str, str]) -> str:
    beside = ["uvicorn", "httptools", "uvloop"] if set(subject.sections) & {*HTTP, *HOST, SHOP} else []
    if subject.token is not None:
        beside.append("joserfc")
    if "uv" in subject.name.split():
        beside = ["uvloop"]
    names = dict.fromkeys((subject.package, *beside))
    return " + ".join(f"{name} {found.get(name, '?')}" for name in names)


def _our_dependencies(subject: Subject) -> str:
    """Give the text that makes an environment of ours stale: the project file that lists what we depend on."""
    project = ROOT / "pyproject.toml"
    return project.read_text(encoding="utf-8") if subject.ours and project.exists() else ""


def _install_node(subject: Subject) -> Installed:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise InstallFailed("node and npm were not found")
    manifest = HERE / "node_modules" / subject.package / "package.json"
    stamp = HERE / "node_modules" / "installed.json"
    wanted = (HERE / "package.json").read_text(encoding="utf-8")
    if not manifest.exists() or not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        _run([npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--silent"], cwd=HERE)
        stamp.write_text(wanted, encoding="utf-8")
    if not manifest.exists():
        raise InstallFailed(f"npm did not install {subject.package}")
    version = json.loads(manifest.read_text(encoding="utf-8"))["version"]
    return Installed(subject, interpreter=node, version=f"{subject.package} {version}")


def _run(command: list[str], cwd: Path = ROOT) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallFailed(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        raise InstallFailed(f"not installed: {complaint(done.stderr)}")
    return done.stdout
