"""The command line of docker or podman: a container without privileges, reached only by its standard streams; pure.

Values of variables never stand on a command line: the engine takes them from its own environment by name. So a variable
that would affect the engine itself cannot be passed that way, and is rejected. Nothing from a configuration can be read
as an option: values are joined to their option by ``=``, and the image name is validated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trunkline.errors import ConfigError
from trunkline.host.entries import ServerEntry
from trunkline.host.sandbox.machine import Capabilities, Engine
from trunkline.host.sandbox.reach import Reach
from trunkline.host.sandbox.wishes import Container, Sandbox

__all__ = ["LABEL", "choose_engine", "container_words", "engine_environment"]

#: The label of every container of the host; its value is the server's name.
LABEL = "trunkline.server"

#: Variables that affect the engine's own program.
_STEERS_ENGINE = re.compile(
    r"(?:LD|DYLD|DOCKER|CONTAINERS?|PODMAN|BUILDAH|XDG|SSH|DBUS)_.*|HOME|PATH|TMPDIR|USER|LOGNAME|SHELL", re.I
)
#: Variables that the engine gets from the host's environment.
_FOR_ENGINE = re.compile(r"(?:DOCKER|CONTAINERS?|XDG)_[A-Z_]+|DBUS_SESSION_BUS_ADDRESS|SSH_AUTH_SOCK")
#: A comma or a quote would end the value of a mount option.
_UNMOUNTABLE = re.compile('[,"\\n\\r]')


def choose_engine(container: Container, able: Capabilities) -> Engine | None:
    """Return the configured engine, or the first that works; None if there is none."""
    fitting = [each for each in able.engines if container.engine in ("auto", each.name)]
    return next((each for each in fitting if each.problem is None), None)


def engine_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which an engine's program finds its daemon."""
    return {name: value for name, value in environ.items() if _FOR_ENGINE.fullmatch(name)}


def container_words(
    entry: ServerEntry, sandbox: Sandbox, reach: Reach, *, engine: Engine, env: Mapping[str, str], user: int, group: int
) -> list[str]:
    """Return the command that runs a server in a container, without the container's name.

    Raises:
        ConfigError: a variable or a path cannot be passed to the container.
    """
    container = sandbox.container
    assert container is not None
    assert entry.command is not None
    own = user if container.user is None else None
    return [
        *(engine.path, "run", "--rm", "--interactive", "--init", "--log-driver=none"),
        *("--cap-drop=ALL", "--security-opt=no-new-privileges", f"--label={LABEL}={entry.name}"),
        *(() if container.writable else ("--read-only",)),
        *("--tmpfs=/tmp:rw,nosuid,nodev,mode=1777", "--env=HOME=/tmp"),
        *(() if sandbox.network else ("--network=none",)),
        *_limits(sandbox),
        *_user(container, engine, own, group),
        *_mounts(reach),
        *(f"--env={_passed(name)}" for name in sorted(env)),
        *_folder(entry, reach),
        f"--entrypoint={entry.command[0]}",
        container.image,
        *entry.command[1:],
    ]


def _limits(sandbox: Sandbox) -> Iterator[str]:
    limits = sandbox.limits
    yield "--ulimit=core=0"
    if limits.memory is not None:
        # Memory and swap together; otherwise twice as much could be used.
        yield from (f"--memory={limits.memory}", f"--memory-swap={limits.memory}")
    if limits.processes is not None:
        yield f"--pids-limit={limits.processes}"
    if limits.files is not None:
        yield f"--ulimit=nofile={limits.files}:{limits.files}"
    if limits.cpu_seconds is not None:
        yield f"--ulimit=cpu={limits.cpu_seconds}:{limits.cpu_seconds}"


def _user(container: Container, engine: Engine, user: int | None, group: int) -> Iterator[str]:
    """Run as the host's user, so that new files in the roots belong to that user."""
    if container.user is not None:
        yield f"--user={container.user}"
    elif user:
        if engine.name == "podman":
            yield "--userns=keep-id"
        yield f"--user={user}:{group}"


def _mounts(reach: Reach) -> Iterator[str]:
    ways = dict.fromkeys(reach.read, ",readonly") | dict.fromkeys(reach.write, "")
    names = {path: path for path in ways} | dict(reach.aliases)
    for name in sorted(names, key=len):
        yield f"--mount=type=bind,source={_mountable(names[name])},target={_mountable(name)}{ways[names[name]]}"
    for place in reach.covered:
        yield f"--mount=type=tmpfs,target={_mountable(place)}"


def _mountable(path: str) -> str:
    if _UNMOUNTABLE.search(path):
        raise ConfigError(
            f"{path!r} cannot be mounted in a container: its name contains a comma, a quote or a line break"
        )
    return path


def _passed(name: str) -> str:
    if "=" in name or name.startswith("-") or _STEERS_ENGINE.fullmatch(name):
        raise ConfigError(
            f"the variable {name} would affect the container engine itself, so it cannot be passed to the container; "
            f"set it in the image"
        )
    return name


def _folder(entry: ServerEntry, reach: Reach) -> Iterator[str]:
    if entry.cwd is not None and reach.mounts(entry.cwd):
        yield f"--workdir={entry.cwd}"
