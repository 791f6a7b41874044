"""The Docker server's tools: inspecting containers and images, starting and stopping, and running within limits."""

from __future__ import annotations

from contextlib import aclosing
from types import MappingProxyType
from typing import Annotated

from msgspec import Meta

from trunkline import Context, Server, __version__
from trunkline_servers.docker.container_spec import ContainerSpec, RunLimits
from trunkline_servers.docker.engine import DEFAULT_HOST, DockerEngine, Logs, RunResult
from trunkline_servers.docker.models import ContainerDetails, ContainerList, ContainerStats, ImageList

__all__ = ["make_server"]

_INSTRUCTIONS = (
    "Containers and images of one Docker engine. Containers that you run have no privileges, no mounts and, unless "
    "requested, no network; images must be on the machine already."
)
_READS = MappingProxyType({"readOnlyHint": True, "openWorldHint": False})
_STARTS = MappingProxyType(
    {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
)
_STOPS = MappingProxyType(
    {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True, "openWorldHint": False}
)
_RESTARTS = MappingProxyType(
    {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": False}
)
_RUNS = MappingProxyType(
    {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}
)

_Ref = Annotated[str, Meta(description="The name or id of a container")]
_Grace = Annotated[int, Meta(ge=0, le=300, description="Seconds to wait for it to exit before it is killed")]


def make_server(
    host: str = DEFAULT_HOST, *, read_only: bool = False, only_own: bool = False, limits: RunLimits | None = None
) -> Server:
    """Make the server for the engine behind a socket; ``only_own`` protects containers of others.

    Raises:
        ConfigError: the engine's address is not a local socket.
    """
    engine = DockerEngine(host, only_own=only_own)
    server = Server(
        "docker", _INSTRUCTIONS, version=__version__, title="Docker", lifespan=lambda _server: aclosing(engine)
    )
    _add_looking(server, engine)
    if not read_only:
        _add_changing(server, engine)
        _add_running(server, engine, limits or RunLimits())
    return server


def _add_looking(server: Server, engine: DockerEngine) -> None:
    """Add the read-only tools."""

    @server.tool(annotations=dict(_READS))
    async def list_containers(
        all: Annotated[bool, Meta(description="Include stopped containers")] = False,
        limit: Annotated[int, Meta(ge=1, le=500)] = 100,
    ) -> ContainerList:
        """List containers, newest first."""
        return ContainerList(await engine.containers(everything=all, limit=limit))

    @server.tool(annotations=dict(_READS))
    async def inspect(container: _Ref) -> ContainerDetails:
        """Show the state and settings of a container; values that look secret are hidden."""
        return await engine.details(container)

    @server.tool(annotations=dict(_READS))
    async def logs(
        container: _Ref,
        tail: Annotated[int, Meta(ge=1, le=10_000, description="The number of last lines")] = 100,
        since: Annotated[int, Meta(ge=0, description="Only output since this Unix time")] = 0,
        timestamps: bool = False,
    ) -> Logs:
        """Read the last lines of a container's output."""
        return await engine.logs(container, tail=tail, since=since, timestamps=timestamps)

    @server.tool(annotations=dict(_READS))
    async def stats(container: _Ref) -> ContainerStats:
        """Measure the processor, memory, network and disk usage of a container."""
        return await engine.stats(container)

    @server.tool(annotations=dict(_READS))
    async def list_images(limit: Annotated[int, Meta(ge=1, le=500)] = 100) -> ImageList:
        """List the images on the machine."""
        return ImageList(await engine.images(limit=limit))


def _add_changing(server: Server, engine: DockerEngine) -> None:
    """Add the tools that start and stop existing containers."""

    @server.tool(annotations=dict(_STARTS))
    async def start(container: _Ref) -> ContainerDetails:
        """Start a stopped container."""
        return await engine.change(container, "start")

    @server.tool(annotations=dict(_STOPS))
    async def stop(container: _Ref, seconds: _Grace = 10) -> ContainerDetails:
        """Stop a running container."""
        return await engine.change(container, "stop", seconds=seconds)

    @server.tool(annotations=dict(_RESTARTS))
    async def restart(container: _Ref, seconds: _Grace = 10) -> ContainerDetails:
        """Stop a container and start it again."""
        return await engine.change(container, "restart", seconds=seconds)


def _add_running(server: Server, engine: DockerEngine, limits: RunLimits) -> None:
    """Add the tool that creates containers."""

    @server.tool(annotations=dict(_RUNS))
    async def run(
        ctx: Context,
        image: Annotated[str, Meta(description="An image on the machine, such as alpine:3.20")],
        command: Annotated[list[str], Meta(description="Replaces the image's command; not run in a shell")] = [],  # noqa: B006
        environment: Annotated[dict[str, str], Meta(description="Environment variables")] = {},  # noqa: B006
        name: Annotated[str | None, Meta(description="A name for the container")] = None,
        user: Annotated[str | None, Meta(description="The user inside the container, such as 1000:1000")] = None,
        workdir: Annotated[str | None, Meta(description="The working directory inside the container")] = None,
        memory_mb: int = min(512, limits.memory_mb),
        cpus: float = min(1.0, limits.cpus),
        pids: int = min(256, limits.pids),
        network: Annotated[bool, Meta(description="Allow network access")] = False,
        read_only: Annotated[
            bool, Meta(description="Make its file system read-only; only memory such as /tmp is writable")
        ] = False,
        detach: Annotated[bool, Meta(description="Leave it running in the background and return at once")] = False,
        seconds: Annotated[
            int, Meta(ge=1, le=limits.seconds, description="Time limit in seconds, unless detached")
        ] = min(60, limits.seconds),
    ) -> RunResult:
        """Run a command in a new container within tight limits; return its exit code and output, then remove it."""
        spec = ContainerSpec(
            image=image,
            command=command,
            environment=environment,
            user=user,
            workdir=workdir,
            memory_mb=memory_mb,
            cpus=cpus,
            pids=pids,
            network=network,
            read_only=read_only,
        )

        async def on_progress(passed: float) -> None:
            await ctx.report_progress(passed, float(seconds), "the container is running")

        return await engine.run(spec, limits, name=name, detach=detach, seconds=float(seconds), on_progress=on_progress)
