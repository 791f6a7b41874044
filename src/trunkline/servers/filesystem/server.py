"""The filesystem server: tools, files as resources, and subscriptions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from urllib.parse import quote

from trunkline import __version__
from trunkline.errors import ResourceNotFound
from trunkline.server import Context, Server
from trunkline.servers.filesystem.desk import Desk
from trunkline.servers.filesystem.limits import FileLimits
from trunkline.servers.filesystem.reading import read_bytes
from trunkline.servers.filesystem.subscribing import Subscriptions
from trunkline.servers.filesystem.tools_folders import add_folder_tools
from trunkline.servers.filesystem.tools_reading import add_reading_tools
from trunkline.servers.filesystem.tools_writing import add_writing_tools
from trunkline.servers.filesystem.walking import Ground
from trunkline.servers.roots import Allowed
from trunkline.types import ReadResourceRequestParams, ResourceContents

__all__ = ["make_server"]

_INSTRUCTIONS = (
    "Reads and changes files in some folders only: list_allowed_directories names them; relative paths begin there. "
    "Read large files in pieces (head, tail). Try edit_file with dryRun first if in doubt."
)


def make_server(
    folders: Sequence[str | os.PathLike[str]] = (),
    *,
    limits: FileLimits | None = None,
    read_only: bool = False,
    kernel_walk: bool = True,
    inotify: bool = True,
) -> Server:
    """Make a filesystem server.

    Args:
        folders: The allowed folders; a client's roots replace them.
        limits: How much one call may read, write and visit.
        read_only: Offer only tools that read.
        kernel_walk: Use ``openat2`` where the system has it.
        inotify: Use inotify where the system has it, instead of polling.

    Raises:
        ConfigError: folders are given, and none of them exists.
    """
    allowed, limits = Allowed(folders), limits or FileLimits()
    desk = Desk(allowed, limits=limits, submit=lambda work: server.pool.submit(work, {}), kernel_walk=kernel_walk)
    subscriptions = Subscriptions(desk.ground, limits=limits, inotify=inotify)
    server = Server(
        "trunkline-filesystem",
        _INSTRUCTIONS,
        version=__version__,
        title="Filesystem",
        lifespan=subscriptions.lifespan,
        middleware=[subscriptions.around],
    )
    allowed.attach(server)
    add_reading_tools(server, desk)
    if not read_only:
        add_writing_tools(server, desk)
    add_folder_tools(server, desk)
    _add_files(server, desk)
    return server


def _add_files(server: Server, desk: Desk) -> None:
    """Offer files as resources."""

    @server.resource("file:///{+path}", name="file", title="File")
    async def file(ctx: Context, path: str) -> ResourceContents:
        """A file in an allowed folder, by its absolute path: text if it is UTF-8, else base64."""
        uri = ctx.params.uri if isinstance(ctx.params, ReadResourceRequestParams) else f"file:///{quote(path)}"

        def missing_or_contents(ground: Ground) -> bytes | None:
            try:
                return ground.use(f"/{path}", lambda place: read_bytes(place, desk.limits.file_bytes))
            except (FileNotFoundError, NotADirectoryError):
                return None

        data = await desk.do(ctx, f"/{path}", missing_or_contents)
        if data is None:
            raise ResourceNotFound(f"Resource not found: {uri}")
        return _contents(uri, path, data)


def _contents(uri: str, path: str, data: bytes) -> ResourceContents:
    import base64
    from mimetypes import guess_type

    kind = guess_type(path)[0]
    try:
        text = None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None:
        return ResourceContents(uri=uri, mime_type=kind or "text/plain", text=text)
    return ResourceContents(uri=uri, mime_type=kind or "application/octet-stream", blob=base64.b64encode(data).decode())
