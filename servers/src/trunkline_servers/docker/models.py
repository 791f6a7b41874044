"""The parts of the engine's responses that are returned: plain records, with long texts truncated and secrets hidden.

Pure functions over decoded JSON. Names of images, labels and variables are untrusted, so only members of the expected
type are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from trunkline.server import holds_secret, looks_secret, names_secret
from trunkline_servers.untrusted import as_dict, as_list, as_text

__all__ = [
    "ContainerDetails",
    "ContainerList",
    "ContainerStats",
    "ContainerSummary",
    "ImageList",
    "ImageSummary",
    "container",
    "details",
    "has_previous_reading",
    "hide_arguments",
    "hide_variables",
    "image",
    "image_config",
    "is_running",
    "split_streams",
    "stats",
]

HIDDEN = "(hidden)"
_TEXT_CHARS = 500
_MOST_MEMBERS = 100
_FRAME_HEAD = 8
#: The tag of an unnamed image in older engines.
_NO_TAG = "<none>:<none>"
_NOT_ENDED = frozenset({"created", "initialized", "paused", "restarting", "running"})


class ContainerSummary(Struct, frozen=True):
    """A container in a list."""

    id: str
    names: list[str]
    image: str
    state: str
    status: str
    created: int
    ports: list[str]
    own: bool


class ImageSummary(Struct, frozen=True):
    """An image in a list."""

    id: str
    tags: list[str]
    size: int
    created: int


class ContainerList(Struct, frozen=True):
    """Some containers."""

    containers: list[ContainerSummary]


class ImageList(Struct, frozen=True):
    """Some images."""

    images: list[ImageSummary]


class ContainerDetails(Struct, frozen=True):
    """One container; variables and arguments that look secret are hidden."""

    id: str
    name: str
    image: str
    status: str
    exit_code: int | None
    error: str
    oom_killed: bool
    health: str
    started_at: str
    finished_at: str
    restarts: int
    command: list[str]
    environment: dict[str, str]
    labels: dict[str, str]
    mounts: list[str]
    networks: dict[str, str]
    ports: list[str]
    user: str
    privileged: bool
    read_only: bool
    memory: int
    nano_cpus: int
    pids: int
    own: bool


class ContainerStats(Struct, frozen=True):
    """The current resource usage of a container."""

    cpu_percent: float
    memory_bytes: int
    memory_limit: int
    network_received: int
    network_sent: int
    disk_read: int
    disk_written: int
    pids: int


# --- hiding ----------------------------------------------------------------------------------------------------------


def hide_variables(pairs: Iterable[Any]) -> dict[str, str]:
    """Parse ``NAME=value`` entries, hiding values that look secret by name or form."""
    shown: dict[str, str] = {}
    for pair in pairs:
        name, _, value = pair.partition("=") if isinstance(pair, str) else ("", "", "")
        if name and len(shown) < _MOST_MEMBERS:
            shown[name[:_TEXT_CHARS]] = _shown(name, value)
    return shown


def hide_arguments(arguments: Sequence[str]) -> list[str]:
    """Hide the values of options with secret-looking names, and values that look secret themselves."""
    shown: list[str] = []
    follows = False
    for argument in arguments[:_MOST_MEMBERS]:
        name, equals, value = argument.partition("=")
        secret = name.startswith("-") and names_secret(name, setting=True)
        if (follows and not argument.startswith("--")) or (" " in argument and _mentions_secret(argument)):
            # A shell command line is hidden completely: where its secret ends is unknown.
            shown.append(HIDDEN)
        elif equals and names_secret(name, setting=True):
            shown.append(f"{name[:_TEXT_CHARS]}={HIDDEN if value else ''}")
        else:
            shown.append(HIDDEN if holds_secret(argument) else argument[:_TEXT_CHARS])
        follows = secret and not equals
    return shown


def _mentions_secret(line: str) -> bool:
    return any(names_secret(word, setting=True) for word in line.split())


def _shown(name: str, value: str) -> str:
    return HIDDEN if looks_secret(name, value) else value[:_TEXT_CHARS]


# --- records ---------------------------------------------------------------------------------------------------------


def container(row: Any, *, own: bool) -> ContainerSummary:
    """Convert a row of the container list."""
    found = as_dict(row)
    return ContainerSummary(
        id=as_text(found.get("Id"))[:12],
        names=[as_text(name).lstrip("/") for name in as_list(found.get("Names"))[:10]],
        image=as_text(found.get("Image")),
        state=as_text(found.get("State")),
        status=as_text(found.get("Status")),
        created=_number(found.get("Created")),
        ports=[_port(as_dict(port)) for port in as_list(found.get("Ports"))[:50]],
        own=own,
    )


def image(row: Any) -> ImageSummary:
    """Convert a row of the image list."""
    found = as_dict(row)
    return ImageSummary(
        id=as_text(found.get("Id")),
        tags=[as_text(tag) for tag in as_list(found.get("RepoTags"))[:20] if tag != _NO_TAG],
        size=_number(found.get("Size")),
        created=_number(found.get("Created")),
    )


def details(row: Any, *, own: bool) -> ContainerDetails:
    """Convert an inspect response."""
    found = as_dict(row)
    state, config, host = (as_dict(found.get(name)) for name in ("State", "Config", "HostConfig"))
    arguments = [each for name in ("Entrypoint", "Cmd") for each in _words(config.get(name))]
    settings = as_dict(found.get("NetworkSettings"))
    return ContainerDetails(
        id=as_text(found.get("Id")),
        name=as_text(found.get("Name")).lstrip("/"),
        image=as_text(config.get("Image")),
        status=as_text(state.get("Status")),
        exit_code=_exit_code(state),
        error=as_text(state.get("Error")),
        oom_killed=state.get("OOMKilled") is True,
        health=as_text(as_dict(state.get("Health")).get("Status")),
        started_at=as_text(state.get("StartedAt")),
        finished_at=as_text(state.get("FinishedAt")),
        restarts=_number(found.get("RestartCount")),
        command=hide_arguments(arguments),
        environment=hide_variables(as_list(config.get("Env"))),
        labels=hide_variables(f"{name}={value}" for name, value in as_dict(config.get("Labels")).items()),
        mounts=[_mount(as_dict(each)) for each in as_list(found.get("Mounts"))[:50]],
        networks={name: as_text(as_dict(each).get("IPAddress")) for name, each in _pairs(settings.get("Networks"))},
        ports=[name for name, _ in _pairs(settings.get("Ports"))],
        user=as_text(config.get("User")),
        privileged=host.get("Privileged") is True,
        read_only=host.get("ReadonlyRootfs") is True,
        memory=_number(host.get("Memory")),
        nano_cpus=_number(host.get("NanoCpus")),
        pids=_number(host.get("PidsLimit")),
        own=own,
    )


def _exit_code(state: Mapping[str, Any]) -> int | None:
    """Return the exit code of a container; None if it has not exited, where the engine reports 0."""
    code = state.get("ExitCode")
    return code if type(code) is int and state.get("Status") not in _NOT_ENDED else None


def is_running(row: Any) -> bool:
    """Return True if an inspected container is running or paused."""
    return as_dict(as_dict(row).get("State")).get("Status") in ("paused", "running")


def image_config(row: Any) -> dict[str, Any]:
    """Return the container configuration of an inspected image."""
    return as_dict(as_dict(row).get("Config"))


def has_previous_reading(row: Any) -> bool:
    """Return True if a stats response includes the previous reading."""
    return _number(as_dict(as_dict(row).get("precpu_stats")).get("system_cpu_usage")) > 0


def stats(row: Any) -> ContainerStats:
    """Convert a stats response, comparing it with the previous reading it includes."""
    found = as_dict(row)
    memory = as_dict(found.get("memory_stats"))
    cache = as_dict(memory.get("stats"))
    # Cgroups v1 report the totals including children separately.
    idle = cache.get("total_inactive_file", cache.get("inactive_file"))
    networks = [as_dict(each) for _, each in _pairs(found.get("networks"))]
    blocks = [as_dict(each) for each in as_list(as_dict(found.get("blkio_stats")).get("io_service_bytes_recursive"))]
    return ContainerStats(
        cpu_percent=_cpu_percent(as_dict(found.get("cpu_stats")), as_dict(found.get("precpu_stats"))),
        memory_bytes=max(0, _number(memory.get("usage")) - _number(idle)),
        memory_limit=_number(memory.get("limit")),
        network_received=sum(_number(each.get("rx_bytes")) for each in networks),
        network_sent=sum(_number(each.get("tx_bytes")) for each in networks),
        disk_read=_blocks(blocks, "read"),
        disk_written=_blocks(blocks, "write"),
        pids=_number(as_dict(found.get("pids_stats")).get("current")),
    )


def _cpu_percent(now: Mapping[str, Any], before: Mapping[str, Any]) -> float:
    def used(reading: Mapping[str, Any]) -> int:
        return _number(as_dict(reading.get("cpu_usage")).get("total_usage"))

    spent = used(now) - used(before)
    earlier = _number(before.get("system_cpu_usage"))
    passed = _number(now.get("system_cpu_usage")) - earlier if earlier else 0
    cores = _number(now.get("online_cpus")) or 1
    return round(spent / passed * cores * 100, 2) if spent > 0 and passed > 0 else 0.0


def _blocks(rows: Sequence[Mapping[str, Any]], kind: str) -> int:
    return sum(_number(each.get("value")) for each in rows if as_text(each.get("op")).lower() == kind)


def split_streams(content: bytes) -> tuple[bytes, bytes]:
    """Split multiplexed output into stdout and stderr; each frame has a kind, a length and data."""
    streams = {1: bytearray(), 2: bytearray()}
    place = 0
    while place + _FRAME_HEAD <= len(content):
        kind = content[place]
        size = int.from_bytes(content[place + 4 : place + _FRAME_HEAD])
        start = place + _FRAME_HEAD
        streams[2 if kind == 2 else 1] += content[start : start + size]
        place = start + size
    return bytes(streams[1]), bytes(streams[2])


# --- untrusted JSON --------------------------------------------------------------------------------------------------


def _pairs(value: Any) -> list[tuple[str, Any]]:
    return list(as_dict(value).items())[:_MOST_MEMBERS]


def _words(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [each for each in as_list(value) if isinstance(each, str)]


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _port(port: Mapping[str, Any]) -> str:
    inside = f"{_number(port.get('PrivatePort'))}/{as_text(port.get('Type')) or 'tcp'}"
    outside = _number(port.get("PublicPort"))
    return f"{as_text(port.get('IP'))}:{outside}->{inside}" if outside else inside


def _mount(mount: Mapping[str, Any]) -> str:
    source = as_text(mount.get("Name")) or as_text(mount.get("Source"))
    access = "" if mount.get("RW") else " (ro)"
    return f"{as_text(mount.get('Type'))} {source} -> {as_text(mount.get('Destination'))}{access}"
