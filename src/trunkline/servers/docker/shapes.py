"""What is passed on of the engine's answers: plain records, long texts cut, values that look secret left out.

Pure functions over decoded JSON. Names of images, labels and variables were chosen by others, so only members of the
right type are taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

__all__ = [
    "Container",
    "ContainerList",
    "Details",
    "Image",
    "ImageList",
    "Stats",
    "container",
    "demultiplexed",
    "details",
    "hide_arguments",
    "hide_variables",
    "image",
    "stats",
]

HIDDEN = "(hidden)"
_TEXT_CHARS = 500
_MOST_MEMBERS = 100
_SECRET_NAME = re.compile(
    r"pass|pwd|secret|token|credential|private|apikey|api[_-]key|access[_-]?key|auth|cookie|session|dsn|salt|signature"
    r"|(?:^|[_-])key(?:$|[_-])",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"://[^\s@]+@|-----BEGIN|\b(?:gh[pousr]_|github_pat_|glpat-|xox[abpr]-|sk-|AKIA|npm_|eyJ[\w-]+\.eyJ)[\w-]{6,}"
)
_FRAME_HEAD = 8


class Container(Struct, frozen=True):
    """A container in a list."""

    id: str
    names: list[str]
    image: str
    state: str
    status: str
    created: int
    ports: list[str]
    own: bool


class Image(Struct, frozen=True):
    """An image in a list."""

    id: str
    tags: list[str]
    size: int
    created: int


class ContainerList(Struct, frozen=True):
    """Some containers."""

    containers: list[Container]


class ImageList(Struct, frozen=True):
    """Some images."""

    images: list[Image]


class Details(Struct, frozen=True):
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


class Stats(Struct, frozen=True):
    """What a container uses at the moment."""

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
    """Read ``NAME=value`` entries, hiding values whose name or form says that they are secret."""
    shown: dict[str, str] = {}
    for pair in pairs:
        name, _, value = pair.partition("=") if isinstance(pair, str) else ("", "", "")
        if name and len(shown) < _MOST_MEMBERS:
            shown[name[:_TEXT_CHARS]] = _shown(name, value)
    return shown


def hide_arguments(arguments: Sequence[str]) -> list[str]:
    """Hide what follows an option whose name says that it is secret, beside values that look so themselves."""
    shown: list[str] = []
    follows = False
    for argument in arguments[:_MOST_MEMBERS]:
        name, equals, value = argument.partition("=")
        secret = name.startswith("-") and bool(_SECRET_NAME.search(name))
        if (follows and not argument.startswith("--")) or (" " in argument and _SECRET_NAME.search(argument)):
            # A line for a shell is hidden whole: nobody can tell where its secret ends.
            shown.append(HIDDEN)
        elif equals and (secret or _SECRET_NAME.search(name)):
            shown.append(f"{name[:_TEXT_CHARS]}={HIDDEN if value else ''}")
        else:
            shown.append(HIDDEN if _SECRET_VALUE.search(argument) else argument[:_TEXT_CHARS])
        follows = secret and not equals
    return shown


def _shown(name: str, value: str) -> str:
    secret = value and (_SECRET_NAME.search(name) or _SECRET_VALUE.search(value))
    return HIDDEN if secret else value[:_TEXT_CHARS]


# --- records ---------------------------------------------------------------------------------------------------------


def container(row: Any, *, label: str) -> Container:
    """Take a row of the list of containers."""
    found = _record(row)
    return Container(
        id=_text(found.get("Id"))[:12],
        names=[_text(name).lstrip("/") for name in _rows(found.get("Names"))[:10]],
        image=_text(found.get("Image")),
        state=_text(found.get("State")),
        status=_text(found.get("Status")),
        created=_number(found.get("Created")),
        ports=[_port(_record(port)) for port in _rows(found.get("Ports"))[:50]],
        own=label in _record(found.get("Labels")),
    )


def image(row: Any) -> Image:
    """Take a row of the list of images."""
    found = _record(row)
    return Image(
        id=_text(found.get("Id")),
        tags=[_text(tag) for tag in _rows(found.get("RepoTags"))[:20]],
        size=_number(found.get("Size")),
        created=_number(found.get("Created")),
    )


def details(row: Any, *, label: str) -> Details:
    """Take the answer of an inspection."""
    found = _record(row)
    state, config, host = (_record(found.get(name)) for name in ("State", "Config", "HostConfig"))
    labels = _record(config.get("Labels"))
    arguments = [each for name in ("Entrypoint", "Cmd") for each in _words(config.get(name))]
    settings = _record(found.get("NetworkSettings"))
    return Details(
        id=_text(found.get("Id")),
        name=_text(found.get("Name")).lstrip("/"),
        image=_text(config.get("Image")),
        status=_text(state.get("Status")),
        exit_code=state["ExitCode"] if type(state.get("ExitCode")) is int else None,
        error=_text(state.get("Error")),
        oom_killed=state.get("OOMKilled") is True,
        health=_text(_record(state.get("Health")).get("Status")),
        started_at=_text(state.get("StartedAt")),
        finished_at=_text(state.get("FinishedAt")),
        restarts=_number(found.get("RestartCount")),
        command=hide_arguments(arguments),
        environment=hide_variables(_rows(config.get("Env"))),
        labels=hide_variables(f"{name}={value}" for name, value in labels.items()),
        mounts=[_mount(_record(each)) for each in _rows(found.get("Mounts"))[:50]],
        networks={name: _text(_record(each).get("IPAddress")) for name, each in _pairs(settings.get("Networks"))},
        ports=[name for name, _ in _pairs(settings.get("Ports"))],
        user=_text(config.get("User")),
        privileged=host.get("Privileged") is True,
        read_only=host.get("ReadonlyRootfs") is True,
        memory=_number(host.get("Memory")),
        nano_cpus=_number(host.get("NanoCpus")),
        pids=_number(host.get("PidsLimit")),
        own=label in labels,
    )


def stats(row: Any) -> Stats:
    """Take one reading, and compare it with the one before that comes with it."""
    found = _record(row)
    memory = _record(found.get("memory_stats"))
    cache = _record(memory.get("stats"))
    networks = [_record(each) for _, each in _pairs(found.get("networks"))]
    blocks = [_record(each) for each in _rows(_record(found.get("blkio_stats")).get("io_service_bytes_recursive"))]
    return Stats(
        cpu_percent=_cpu_percent(_record(found.get("cpu_stats")), _record(found.get("precpu_stats"))),
        memory_bytes=max(0, _number(memory.get("usage")) - _number(cache.get("inactive_file"))),
        memory_limit=_number(memory.get("limit")),
        network_received=sum(_number(each.get("rx_bytes")) for each in networks),
        network_sent=sum(_number(each.get("tx_bytes")) for each in networks),
        disk_read=_blocks(blocks, "read"),
        disk_written=_blocks(blocks, "write"),
        pids=_number(_record(found.get("pids_stats")).get("current")),
    )


def _cpu_percent(now: Mapping[str, Any], before: Mapping[str, Any]) -> float:
    def used(reading: Mapping[str, Any]) -> int:
        return _number(_record(reading.get("cpu_usage")).get("total_usage"))

    spent = used(now) - used(before)
    passed = _number(now.get("system_cpu_usage")) - _number(before.get("system_cpu_usage"))
    cores = _number(now.get("online_cpus")) or 1
    return round(spent / passed * cores * 100, 2) if spent > 0 and passed > 0 else 0.0


def _blocks(rows: Sequence[Mapping[str, Any]], kind: str) -> int:
    return sum(_number(each.get("value")) for each in rows if _text(each.get("op")).lower() == kind)


def demultiplexed(content: bytes) -> tuple[bytes, bytes]:
    """Take standard output and error apart: frames of a kind, a length and as many bytes; a cut frame counts too."""
    streams = {1: bytearray(), 2: bytearray()}
    place = 0
    while place + _FRAME_HEAD <= len(content):
        kind = content[place]
        size = int.from_bytes(content[place + 4 : place + _FRAME_HEAD])
        start = place + _FRAME_HEAD
        streams[2 if kind == 2 else 1] += content[start : start + size]
        place = start + size
    return bytes(streams[1]), bytes(streams[2])


# --- out of strangers' JSON ------------------------------------------------------------------------------------------


def _record(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _rows(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _pairs(value: Any) -> list[tuple[str, Any]]:
    return list(_record(value).items())[:_MOST_MEMBERS]


def _text(value: Any) -> str:
    return value[:_TEXT_CHARS] if isinstance(value, str) else ""


def _words(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [each for each in _rows(value) if isinstance(each, str)]


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _port(port: Mapping[str, Any]) -> str:
    inside = f"{_number(port.get('PrivatePort'))}/{_text(port.get('Type')) or 'tcp'}"
    outside = _number(port.get("PublicPort"))
    return f"{_text(port.get('IP'))}:{outside}->{inside}" if outside else inside


def _mount(mount: Mapping[str, Any]) -> str:
    source = _text(mount.get("Name")) or _text(mount.get("Source"))
    return (
        f"{_text(mount.get('Type'))} {source} -> {_text(mount.get('Destination'))}{'' if mount.get('RW') else ' (ro)'}"
    )
