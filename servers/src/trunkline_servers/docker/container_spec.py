"""The specification of containers that this server creates: the create request is built here and nowhere else.

A caller chooses an image, a command and resource limits. Everything that would reach the host (privileges, mounts,
devices, host namespaces, capabilities, published ports) is not an argument, and is set to its most restrictive value
here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from posixpath import normpath
from typing import Any

from msgspec import Struct

from trunkline.errors import ToolError

__all__ = [
    "LABEL",
    "RUN_LABEL",
    "ContainerSpec",
    "RunLimits",
    "check_image",
    "check_spec",
    "container_ref",
    "create_request",
]

#: Label of every container created by this server.
LABEL = "dev.trunkline.server"
#: Label with the id of a run: identifies the container of a request whose response was lost.
RUN_LABEL = "dev.trunkline.run"

_MIB = 1024 * 1024
#: The engine's minimum, a value that does not round to zero (which would mean no limit), and init plus command.
_LEAST_MEMORY_MB, _LEAST_CPUS, _LEAST_PIDS = 6, 0.01, 2
_REF = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_WORD = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d{1,5})?/)?"
_IMAGE = re.compile(rf"{_HOST}{_WORD}(?:/{_WORD})*(?::[\w][\w.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?", re.ASCII)
_IMAGE_CHARS = 300
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,31})?")
_MOST_WORDS = 100
_WORD_CHARS = 8192


class RunLimits(Struct, frozen=True, kw_only=True):
    """The limits for one container."""

    memory_mb: int = 2048
    cpus: float = 2.0
    pids: int = 512
    seconds: int = 600
    #: Patterns of allowed images; any image if empty.
    images: tuple[str, ...] = ()
    #: Whether a container may have network access.
    network: bool = True


class ContainerSpec(Struct, frozen=True, kw_only=True):
    """A container as requested by a caller."""

    image: str
    command: Sequence[str]
    environment: Mapping[str, str]
    user: str | None
    workdir: str | None
    memory_mb: int
    cpus: float
    pids: int
    network: bool
    read_only: bool


def container_ref(text: str) -> str:
    """Return the name or id of a container if it is valid.

    Raises:
        ToolError: it is not.
    """
    if not _REF.fullmatch(text):
        raise ToolError(f"{text[:100]!r} is not the name or id of a container: look with list_containers")
    return text


def check_image(text: str, limits: RunLimits) -> None:
    """Check that a text is a plain reference to an allowed image.

    Raises:
        ToolError: it is invalid or not allowed.
    """
    if len(text) > _IMAGE_CHARS or not _IMAGE.fullmatch(text):
        raise ToolError(f"{text[:100]!r} is not an image name: give one such as alpine:3.20 or ghcr.io/owner/name:1.0")
    if limits.images and not any(_matches_image(text, pattern) for pattern in limits.images):
        raise ToolError(f"The image {text} is not among those that may be run here: {', '.join(limits.images[:10])}")


def _matches_image(image: str, pattern: str) -> bool:
    """Match an image against a pattern; a tag in the pattern never matches the port of a registry."""
    repository, colon = _repository(pattern)
    same = not colon or fnmatchcase(_repository(image.partition("@")[0])[0], repository)
    return same and fnmatchcase(image, pattern)


def _repository(text: str) -> tuple[str, str]:
    """Return the part before the tag, and the colon if there is a tag."""
    folder, slash, last = text.rpartition("/")
    name, colon, _ = last.partition(":")
    return folder + slash + name, colon


def check_spec(spec: ContainerSpec, limits: RunLimits) -> None:
    """Check a container specification against the limits.

    Raises:
        ToolError: it exceeds a limit or is invalid.
    """
    check_image(spec.image, limits)
    _check_limits(spec, limits)


def create_request(spec: ContainerSpec, *, run: str, volumes: Iterable[str] = ()) -> dict[str, Any]:
    """Build the create request for a checked specification; ``volumes`` are those declared by the image."""
    body: dict[str, Any] = {
        "Image": spec.image,
        "Env": [f"{name}={value}" for name, value in spec.environment.items()],
        "Labels": {LABEL: "docker", RUN_LABEL: run},
        "AttachStdin": False,
        "OpenStdin": False,
        "Tty": False,
        "NetworkDisabled": not spec.network,
        "HostConfig": _host_config(spec, volumes),
    }
    if spec.command:
        body["Cmd"] = list(spec.command)
    if spec.user:
        body["User"] = spec.user
    if spec.workdir:
        body["WorkingDir"] = spec.workdir
    return body


def _host_config(spec: ContainerSpec, volumes: Iterable[str]) -> dict[str, Any]:
    memory = spec.memory_mb * _MIB
    # The engine would mount a writable folder for every volume that an image declares.
    closed = dict.fromkeys(map(_folder, volumes), "ro,noexec,nosuid,nodev,size=64k")
    return {
        "Privileged": False,
        "Binds": [],
        "Mounts": [],
        "VolumesFrom": [],
        "Devices": [],
        "DeviceRequests": [],
        "PortBindings": {},
        "PublishAllPorts": False,
        "NetworkMode": "bridge" if spec.network else "none",
        "IpcMode": "private",
        "PidMode": "",
        "UTSMode": "",
        "CgroupnsMode": "private",
        "CapAdd": [],
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges:true"],
        "ReadonlyRootfs": spec.read_only,
        "Tmpfs": {**closed, "/tmp": "rw,noexec,nosuid,nodev,size=64m"} if spec.read_only else {},
        "Memory": memory,
        "MemorySwap": memory,
        "NanoCpus": int(spec.cpus * 1_000_000_000),
        "PidsLimit": spec.pids,
        "OomKillDisable": False,
        "RestartPolicy": {"Name": "no"},
        # Rotation discards the previous file, so two are kept.
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "2"}},
        "AutoRemove": False,
        "Init": True,
    }


def _folder(declared: str) -> str:
    """Normalize a folder, relative to the root as for the engine."""
    return normpath("/" + declared.lstrip("/"))


def _check_limits(spec: ContainerSpec, limits: RunLimits) -> None:
    for what, asked, least, most in (
        ("memory_mb", spec.memory_mb, _LEAST_MEMORY_MB, limits.memory_mb),
        ("cpus", spec.cpus, _LEAST_CPUS, limits.cpus),
        ("pids", spec.pids, _LEAST_PIDS, limits.pids),
    ):
        if not least <= asked <= most:
            raise ToolError(f"{what} must be from {least:g} to {most:g}")
    if spec.network and not limits.network:
        raise ToolError("Containers have no network here: leave network out")
    if spec.user and not _USER.fullmatch(spec.user):
        raise ToolError(f"{spec.user[:100]!r} is not a user: give a name or number, or user:group")
    if spec.workdir and (not spec.workdir.startswith("/") or not _is_plain(spec.workdir)):
        raise ToolError("workdir must be an absolute path inside the container")
    for name, value in spec.environment.items():
        if not _VARIABLE.fullmatch(name) or not _is_plain(value):
            raise ToolError(f"{name[:100]!r} cannot be a variable, or its value holds a NUL or is too long")
    if max(len(spec.command), len(spec.environment)) > _MOST_WORDS or not all(map(_is_plain, spec.command)):
        raise ToolError(f"Give at most {_MOST_WORDS} words and variables, each of at most {_WORD_CHARS} characters")


def _is_plain(text: str) -> bool:
    return "\0" not in text and len(text) <= _WORD_CHARS
