"""The sandbox settings of an entry, parsed and validated; they know neither files nor the machine."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

__all__ = ["NO_QUOTAS", "Container", "Kind", "Quotas", "Sandbox"]

#: ``auto`` is bubblewrap where it works, else Landlock.
Kind: TypeAlias = Literal["auto", "landlock", "bwrap", "container"]


class Quotas(Struct, frozen=True, kw_only=True):
    """Resource limits of a server; None: no limit beyond the user's."""

    #: Bytes of memory per process; in a container for all processes together.
    memory: int | None = None
    #: Concurrent processes and threads.
    processes: int | None = None
    #: Open files per process.
    files: int | None = None
    #: Seconds of CPU time per process.
    cpu_seconds: int | None = None


NO_QUOTAS = Quotas()


class Container(Struct, frozen=True, kw_only=True):
    """The container a server runs in."""

    image: str
    engine: Literal["auto", "docker", "podman"] = "auto"
    #: The image's files may be changed; the changes are discarded with the container.
    writable: bool = False
    #: ``uid`` or ``uid:gid`` inside the container; None: the host's user.
    user: str | None = None


class Sandbox(Struct, frozen=True, kw_only=True):
    """The restrictions of a server."""

    kind: Kind = "auto"
    #: If the sandbox is not available, do not start the server; otherwise start it, and report that in its status.
    required: bool = True
    #: Folders and files it may read or write, in addition to the roots.
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    #: The roots are read-only; None: the default, which is yes in a container and no otherwise.
    read_only: bool | None = None
    network: bool = True
    #: It may use named Unix sockets, through which other programs of the user can be reached.
    sockets: bool = False
    #: It may watch files (inotify); under Landlock this includes folders outside the sandbox.
    watch: bool = True
    #: Variables it inherits in addition to its entry's own and a few harmless ones; a trailing * matches any ending.
    env: tuple[str, ...] = ()
    limits: Quotas = NO_QUOTAS
    container: Container | None = None

    @property
    def roots_writable(self) -> bool:
        """Whether the server may write to its roots."""
        return self.kind != "container" if self.read_only is None else not self.read_only
