"""What an entry asks of its sandbox, read and checked; it knows neither files nor the machine."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

__all__ = ["NO_QUOTAS", "Container", "Kind", "Quotas", "Sandbox"]

#: ``auto`` is bubblewrap where it works, else Landlock.
Kind: TypeAlias = Literal["auto", "landlock", "bwrap", "container"]


class Quotas(Struct, frozen=True, kw_only=True):
    """How much a server may use; None: as much as its user."""

    #: Bytes of memory: of each process, in a container of all together.
    memory: int | None = None
    #: Processes and threads at once.
    processes: int | None = None
    #: Files open at once, in each process.
    files: int | None = None
    #: Seconds of computing, of each process.
    cpu_seconds: int | None = None


NO_QUOTAS = Quotas()


class Container(Struct, frozen=True, kw_only=True):
    """The container a server runs in."""

    image: str
    engine: Literal["auto", "docker", "podman"] = "auto"
    #: The image's own files may be changed; what was changed ends with the container.
    writable: bool = False
    #: ``uid`` or ``uid:gid`` inside; None: whoever runs the host.
    user: str | None = None


class Sandbox(Struct, frozen=True, kw_only=True):
    """What a server is kept to."""

    kind: Kind = "auto"
    #: Without what was asked for the server is not started; else it is, and its status says what is missing.
    required: bool = True
    #: Folders and files it may read, and such it may write, besides the roots.
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    #: The roots are not written; None: as is usual, which is yes in a container and no elsewhere.
    read_only: bool | None = None
    network: bool = True
    #: It may use named Unix sockets, by which other programs of the user can be reached.
    sockets: bool = False
    #: It may watch files (inotify); in Landlock alone, folders outside too.
    watch: bool = True
    #: Variables it gets besides its entry's own and a few harmless ones; a star at the end stands for any ending.
    env: tuple[str, ...] = ()
    limits: Quotas = NO_QUOTAS
    container: Container | None = None

    @property
    def roots_writable(self) -> bool:
        """Whether the server may write where its roots are."""
        return self.kind != "container" if self.read_only is None else not self.read_only
