"""The filesystem server: tools, files as resources, and subscriptions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from urllib.parse import quote

from trunkline import __version__
from trunkline.errors import ResourceNotFound
from trunkline.server import Context, Server
from trunkline.types import ReadResourceRequestParams, ResourceContents
from trunkline_servers.filesystem.folders import add_folder_tools
from trunkline_servers.filesystem.path_resolver import PathResolver
from trunkline_servers.filesystem.reading import add_reading_tools, read_bytes
from trunkline_servers.filesystem.subscriptions import FileSubscriptions
from trunkline_servers.filesystem.worker import FileLimits, FileWorker
from trunkline_servers.filesystem.writing import add_writing_tools
from trunkline_servers.roots import AllowedFolders

__all__ = ["make_server"]

_INSTRUCTIONS = (
    "Reads and changes files in the allowed folders only: list_allowed_directories lists them; relative paths start "
    "there. Read large files in parts (head, tail). Try edit_file with dryRun first if in doubt."
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
    allowed, limits = AllowedFolders(folders), limits or FileLimits()
    worker = FileWorker(allowed, limits=limits, submit=lambda work: server.run_in_thread(work), kernel_walk=kernel_walk)
    subscriptions = FileSubscriptions(worker.resolver, limits=limits, inotify=inotify)
    server = Server(
        "trunkline-filesystem",
        _INSTRUCTIONS,
        version=__version__,
        title="Filesystem",
        lifespan=subscriptions.lifespan,
        middleware=[subscriptions.middleware],
    )
    allowed.attach(server)
    add_reading_tools(server, worker)
    if not read_only:
        add_writing_tools(server, worker)
    add_folder_tools(server, worker)
    _add_files(server, worker)
    return server


def _add_files(server: Server, worker: FileWorker) -> None:
    """Offer files as resources."""

    @server.resource("file:///{+path}", name="file", title="File")
    async def file(ctx: Context, path: str) -> ResourceContents:
        """A file in an allowed folder, by its absolute path: text if it is UTF-8, else base64."""
        uri = ctx.params.uri if isinstance(ctx.params, ReadResourceRequestParams) else f"file:///{quote(path)}"

        def missing_or_contents(resolver: PathResolver) -> bytes | None:
            try:
                return resolver.use(f"/{path}", lambda location: read_bytes(location, worker.limits.file_bytes))
            except (FileNotFoundError, NotADirectoryError):
                return None

        data = await worker.do(ctx, f"/{path}", missing_or_contents)
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
