"""The Docker engine behind its socket: the requests of the tools, and running a container to its end.

This module knows nothing of tools. The container of a failed, cancelled or finished run is removed: however a run ends,
no container remains that the caller does not know of.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from trunkline.errors import ConfigError, ToolError
from trunkline_servers.api_client import ApiClient, ApiError, ApiResponse
from trunkline_servers.docker.container_spec import (
    RUN_LABEL,
    ContainerSpec,
    RunLimits,
    check_spec,
    container_ref,
    create_request,
)
from trunkline_servers.docker.models import (
    ContainerDetails,
    ContainerStats,
    ContainerSummary,
    ImageSummary,
    container,
    details,
    has_previous_reading,
    image,
    image_config,
    is_running,
    split_streams,
    stats,
)
from trunkline_servers.untrusted import as_dict, as_list

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["DEFAULT_HOST", "DockerEngine", "Logs", "RunResult", "socket_path"]

DEFAULT_HOST = "unix:///var/run/docker.sock"

_LOG_BYTES = 8 * 1024 * 1024
_BEAT_SECONDS = 10.0
_REMOVAL_SECONDS = 30.0
_COUNT_SECONDS = 5.0
#: A header in every response of Podman.
_PODMAN = "libpod-api-version"

ProgressCallback = Callable[[float], Awaitable[None]]


class Logs(Struct, frozen=True):
    """The output of a container, only the end if it is long."""

    stdout: str
    stderr: str
    #: Whether the beginning was cut.
    cut: bool


class RunResult(Struct, frozen=True):
    """The result of a run, or a container left running in the background."""

    id: str
    name: str
    exit_code: int | None
    timed_out: bool
    removed: bool
    logs: Logs | None


def socket_path(host: str) -> str:
    """Return the path of the engine's socket.

    Raises:
        ConfigError: the host is not a local socket.
    """
    scheme, _, path = host.partition("://")
    if scheme == "unix" and path.startswith("/"):
        return path
    raise ConfigError(
        f"The Docker host {host[:200]!r} is not used: give unix:///path/of.sock. For an engine on another machine, "
        "forward its socket: ssh -L /tmp/docker.sock:/var/run/docker.sock MACHINE"
    )


class DockerEngine:
    """Client of one engine."""

    def __init__(
        self, host: str, *, only_own: bool = False, log_bytes: int = 64 * 1024, between_readings: float = 1.0
    ) -> None:
        """Initialize with the engine's address; ``only_own`` permits changes only to containers of this server."""
        path = socket_path(host)
        self._api = ApiClient("http://docker", service="Docker", unix_socket=path, max_bytes=_LOG_BYTES)
        self._only_own = only_own
        self._log_bytes = log_bytes
        self._between_readings = between_readings
        self._removals: set[asyncio.Future[None]] = set()

    async def aclose(self) -> None:
        """Close the connections after removing the containers of interrupted runs."""
        if self._removals:
            await asyncio.wait(self._removals, timeout=_REMOVAL_SECONDS)
        await self._api.aclose()

    # --- looking ------------------------------------------------------------------------------------------------------

    async def containers(self, *, everything: bool, limit: int) -> list[ContainerSummary]:
        """List containers, newest first."""
        query = {"all": everything, "limit": limit if everything else None}
        rows = (await self._ask("GET", "/containers/json", query=query)).json()
        seen: dict[str, Any] = {}
        return [
            container(row, own=await self._is_own(as_dict(row).get("Labels"), as_dict(row).get("ImageID"), seen))
            for row in as_list(rows)[:limit]
        ]

    async def images(self, *, limit: int) -> list[ImageSummary]:
        """List images."""
        rows = (await self._ask("GET", "/images/json")).json()
        return [image(row) for row in as_list(rows)[:limit]]

    async def details(self, ref: str) -> ContainerDetails:
        """Inspect a container."""
        found = await self._inspect(ref)
        return details(found, own=await self._made_here(found))

    async def stats(self, ref: str) -> ContainerStats:
        """Return the resource usage of a running container; takes a second or two."""
        found = await self._inspect(ref)
        if not is_running(found):
            raise ToolError(f"The container {ref} is not running, so it uses nothing: start it to measure it")
        path = self._api.path("containers", _id(found), "stats")
        reading = (await self._ask("GET", path, query={"stream": False})).json()
        if isinstance(reading, dict) and not has_previous_reading(reading):
            # Podman returns one reading where Docker returns two, and usage is the difference of two.
            await asyncio.sleep(self._between_readings)
            later = (await self._ask("GET", path, query={"stream": False})).json()
            reading = {**later, "precpu_stats": reading.get("cpu_stats")} if isinstance(later, dict) else reading
        return stats(reading)

    async def logs(self, ref: str, *, tail: int | None, since: int = 0, timestamps: bool = False) -> Logs:
        """Return the last lines of a container's output, or all without ``tail``."""
        found = await self._inspect(ref)
        config = found.get("Config")
        path = self._api.path("containers", _id(found), "logs")
        query = {"stdout": True, "stderr": True, "tail": tail, "since": since or None, "timestamps": timestamps}
        content = (await self._ask("GET", path, query=query)).body
        # With a terminal there is one stream, without frames.
        is_terminal = isinstance(config, dict) and config.get("Tty") is True
        out, err = (content, b"") if is_terminal else split_streams(content)
        most = self._log_bytes
        return Logs(_tail(out, most), _tail(err, most), cut=len(out) > most or len(err) > most)

    # --- changing -----------------------------------------------------------------------------------------------------

    async def change(self, ref: str, action: str, *, seconds: int | None = None) -> ContainerDetails:
        """Start, stop or restart a container, and return its new state."""
        found = await self._inspect(ref)
        if self._only_own and not await self._made_here(found):
            raise ToolError(
                f"The container {ref} was not created by this server, which changes only its own (--only-own)"
            )
        # By id: the name may belong to another container by now.
        path = self._api.path("containers", _id(found), action)
        await self._ask("POST", path, query={"t": seconds}, seconds=30.0 + (seconds or 0), accept_status=(304,))
        return await self.details(_id(found))

    async def run(
        self,
        spec: ContainerSpec,
        limits: RunLimits,
        *,
        name: str | None,
        detach: bool,
        seconds: float,
        on_progress: ProgressCallback,
    ) -> RunResult:
        """Create and run a container; unless detached, wait for its end and remove it."""
        run = os.urandom(8).hex()
        called = container_ref(name) if name else f"trunkline-{run}"
        check_spec(spec, limits)
        volumes = await self._volumes(spec.image) if spec.read_only else []
        body = create_request(spec, run=run, volumes=volumes)
        async with self._made(called, body, run) as identity, self._counted(identity, wanted=not detach):
            await self._ask("POST", self._api.path("containers", identity.id, "start"))
            if detach:
                identity.keep = True
                return RunResult(identity.id, called, None, False, False, None)
            code = await self._wait(identity.id, seconds, on_progress)
            if code is None:
                with suppress(ApiError):  # it may have exited just now
                    await self._ask("POST", self._api.path("containers", identity.id, "kill"))
            logs = await self._output(identity)
            return RunResult(identity.id, called, code, code is None, True, logs)

    async def _output(self, identity: _RunningContainer) -> Logs:
        """Return the output of a run: the last lines if it is too long, nothing if those are too long."""
        if identity.counting is not None:
            await asyncio.wait([identity.counting], timeout=_COUNT_SECONDS)
        # Podman alters unfinished lines if asked for the last ones, so the whole output is tried first.
        for tail in (None, 10_000, 100):
            with suppress(ApiError):
                logs = await self.logs(identity.id, tail=tail)
                return Logs(logs.stdout, logs.stderr, cut=logs.cut or tail is not None or identity.written > _LOG_BYTES)
        return Logs("", "", cut=True)

    @asynccontextmanager
    async def _counted(self, identity: _RunningContainer, *, wanted: bool) -> AsyncIterator[None]:
        """Count the output of a new container on Podman, which drops a full log without saying so."""
        if not (wanted and identity.is_podman):
            yield
            return
        started = asyncio.Event()
        counting = identity.counting = asyncio.ensure_future(self._count(identity, started))
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_COUNT_SECONDS):
                    await started.wait()
            yield
        finally:
            counting.cancel()

    async def _count(self, identity: _RunningContainer, started: asyncio.Event) -> None:
        path = self._api.path("containers", identity.id, "attach")
        query = {"stream": True, "stdout": True, "stderr": True}
        try:
            with suppress(ApiError):  # a failed count must not fail the run
                await self._api.drain("POST", path, query=query, started=started.set, on_chunk=identity.wrote)
        finally:
            started.set()

    @asynccontextmanager
    async def _made(self, name: str, body: Mapping[str, Any], run: str) -> AsyncIterator[_RunningContainer]:
        """Create a container and remove it afterwards in any case, unless it is to be kept."""
        identity = _RunningContainer()
        # If cancelled, the engine might still create it after we looked for what to remove.
        making = asyncio.ensure_future(self._ask("POST", "/containers/create", query={"name": name}, body=body))
        try:
            reply = await asyncio.shield(making)
            identity.id, identity.is_podman = _id(reply.json()), _PODMAN in reply.headers
            yield identity
        except ApiError as error:
            if error.status == 404 and not identity.id:
                raise _image_missing(body["Image"]) from error
            raise
        finally:
            if not identity.keep:
                # A cancelled call leaves no container behind.
                removal = asyncio.ensure_future(self._remove(making, identity.id or name, run))
                self._removals.add(removal)
                removal.add_done_callback(self._removals.discard)
                await asyncio.shield(removal)

    async def _remove(self, making: asyncio.Future[ApiResponse], ref: str, run: str) -> None:
        with suppress(ApiError):
            await making
        with suppress(ApiError, ToolError):
            found = await self._inspect(ref)
            if _labels(found).get(RUN_LABEL) == run:
                path = self._api.path("containers", _id(found))
                await self._ask("DELETE", path, query={"force": True, "v": True})

    async def _wait(self, identity: str, seconds: float, on_progress: ProgressCallback) -> int | None:
        """Wait for a container to exit and return its exit code; None on timeout."""
        path = self._api.path("containers", identity, "wait")
        passed = 0.0
        while passed < seconds:
            slice_ = min(_BEAT_SECONDS, seconds - passed)
            try:
                async with asyncio.timeout(slice_):
                    code = (await self._ask("POST", path, seconds=slice_ * 2)).json()
                ended = code.get("StatusCode") if isinstance(code, dict) else None
                return ended if type(ended) is int else -1
            except TimeoutError:
                passed += slice_
                await on_progress(passed)
        return None

    # --- images -------------------------------------------------------------------------------------------------------

    async def _image(self, ref: str) -> dict[str, Any]:
        return image_config((await self._ask("GET", self._api.path("images", *ref.split("/"), "json"))).json())

    async def _volumes(self, ref: str) -> list[str]:
        """Return the folders that an image declares as volumes."""
        try:
            declared = (await self._image(ref)).get("Volumes")
        except ApiError as error:
            raise _image_missing(ref) if error.status == 404 else error from error
        return list(declared) if isinstance(declared, dict) else []

    async def _made_here(self, found: Mapping[str, Any]) -> bool:
        """Return True if this server created an inspected container."""
        return await self._is_own(_labels(found), found.get("Image"), {})

    async def _is_own(self, labels: Any, image: Any, seen: dict[str, Any]) -> bool:
        """Return True if this server created a container: by its run label, unless that came with the image."""
        run = as_dict(labels).get(RUN_LABEL)
        if not isinstance(run, str) or not isinstance(image, str) or not image:
            return False
        if image not in seen:
            seen[image] = await self._labels_of_image(image)
        return seen[image] is not None and seen[image].get(RUN_LABEL) != run

    async def _labels_of_image(self, ref: str) -> dict[str, Any] | None:
        """Return the labels of an image; None if it no longer exists."""
        try:
            return as_dict((await self._image(ref)).get("Labels"))
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    # --- asking -------------------------------------------------------------------------------------------------------

    async def _inspect(self, ref: str) -> dict[str, Any]:
        found = (await self._ask("GET", self._api.path("containers", container_ref(ref), "json"))).json()
        if not isinstance(found, dict):
            raise ToolError("The response of Docker is not a container")
        return found

    async def _ask(self, method: str, path: str, **options: Any) -> ApiResponse:
        try:
            return await self._api.request(method, path, **options)
        except ApiError as error:
            if error.status == 0 and "cannot be reached" in str(error):
                raise ApiError(f"{error}. Start the engine, or set DOCKER_HOST to a socket that you may use") from error
            raise


class _RunningContainer:
    """The container of a run: its id once known, whether it is kept, and its counted output."""

    def __init__(self) -> None:
        self.id = ""
        self.keep = False
        self.is_podman = False
        self.counting: asyncio.Future[None] | None = None
        self.written = 0

    def wrote(self, size: int) -> None:
        self.written += size


def _id(found: Any) -> str:
    identity = found.get("Id") if isinstance(found, dict) else None
    return container_ref(identity if isinstance(identity, str) else "")


def _image_missing(image: str) -> ToolError:
    return ToolError(f"The image {image} is not on this machine: pull it with docker pull {image}")


def _labels(found: Mapping[str, Any]) -> dict[str, Any]:
    return as_dict(as_dict(found.get("Config")).get("Labels"))


def _tail(content: bytes, most: int) -> str:
    return content[-most:].decode(errors="replace")
