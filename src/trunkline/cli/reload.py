"""``trunkline run --reload``: runs a server, and replaces it when one of its source files changes.

The process and its transport stay; only the user's modules are executed again. A server process that is restarted would
lose the pipe of a stdio client and the sessions of HTTP clients, and a second process that keeps them would have to
replay each handshake, subscription and log level. Here a new definition takes over the open connections
(``server/replacement``), and running calls finish with the old one.

Modules are executed in a worker thread, so that a slow import delays no call. If they raise, the modules and the server
that were loaded before are kept, and the traceback is printed.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING

from trunkline.cli.exit_codes import CommandError, Exit
from trunkline.cli.ui.output import one_line, print_notice

if TYPE_CHECKING:
    from trunkline.server.replacement import ListChange, ReplaceableServer
    from trunkline.server.server import Server

__all__ = ["ProjectModules", "run_reloading"]

#: Seconds between two looks at the files; longer if looking is slow, so that it costs at most a twentieth of the time.
_INTERVAL = 0.25
#: Even on a slow network file system, an edit is noticed within seconds.
_LONGEST_INTERVAL = 5.0
#: A file that is being written is read only after it has stayed the same for this many seconds.
_SETTLED = 0.05

#: The state of the watched files: modification time, size and inode by path. Editors replace files, which changes the
#: inode alone if the old modification time is kept.
_Stamps = Mapping[str, tuple[int, int, int]]


class ProjectModules:
    """The modules of the user's project: executed again together, and put back if that fails."""

    def __init__(self, load: Callable[[], Server], roots: Iterable[str]) -> None:
        """Create the loader; modules from files below the roots belong to the project, except installed packages."""
        self._load = load
        self._roots = tuple(os.path.join(os.path.realpath(root), "") for root in roots)
        self._foreign = tuple(
            prefix
            for prefix in {os.path.join(os.path.realpath(each), "") for each in (sys.prefix, sys.base_prefix)}
            if not any(root.startswith(prefix) for root in self._roots)
        )
        #: Modules that were loaded before the project, such as those of this program.
        self._before = frozenset(sys.modules)
        self._path = list(sys.path)

    def load(self) -> Server:
        """Execute the project's modules and return its server.

        Raises:
            CommandError: they cannot be executed, or there is no server; the previous modules are back in place.
        """
        old = self._loaded()
        path = list(sys.path)
        for name in old:
            del sys.modules[name]
        sys.path[:] = self._path
        importlib.invalidate_caches()
        try:
            return self._load()
        except BaseException:
            for name in self._loaded():
                del sys.modules[name]
            sys.modules.update(old)
            sys.path[:] = path
            raise

    def stamps(self) -> _Stamps:
        """Return the state of every Python file in the directories of the project's modules."""
        found: dict[str, tuple[int, int, int]] = {}
        folders = {os.path.dirname(_file(module)) for module in self._loaded().values()}
        for folder in folders:
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if entry.name.endswith(".py"):
                            stat = entry.stat()
                            found[entry.path] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            except OSError:
                # Removed, or being replaced: the next look sees what came of it.
                continue
        return found

    def _loaded(self) -> dict[str, ModuleType]:
        return {name: module for name, module in tuple(sys.modules.items()) if self._is_own(name, module)}

    def _is_own(self, name: str, module: ModuleType) -> bool:
        if name in self._before or name.partition(".")[0] == "trunkline":
            return False
        file = _file(module)
        return (
            # Compiled modules cannot be executed twice in a process.
            file.endswith(".py")
            and file.startswith(self._roots)
            and not file.startswith(self._foreign)
            and f"{os.sep}site-packages{os.sep}" not in file
        )


def _file(module: ModuleType) -> str:
    file = getattr(module, "__file__", None)
    return os.path.realpath(file) if isinstance(file, str) else ""


def run_reloading(modules: ProjectModules, run: Callable[[Server], Awaitable[None]]) -> None:
    """Load a server and run it until the transport ends, replacing it whenever its files change.

    ``run`` returns the coroutine that serves it.
    """
    from trunkline.server.run import run_loop

    # A cache of byte code is told apart by seconds and size; two quick edits may have both in common.
    sys.dont_write_bytecode = True
    server = modules.load()
    if not modules.stamps():
        print_notice(
            "nothing is reloaded: the server has no source file in this folder; run it in its project's folder"
        )
    run_loop(_run(server, modules, run))


async def _run(server: Server, modules: ProjectModules, run: Callable[[Server], Awaitable[None]]) -> None:
    from trunkline.server.replacement import ReplaceableServer

    running = ReplaceableServer(server)
    watching = asyncio.get_running_loop().create_task(_watch(running, modules))
    try:
        await run(server)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await running.aclose()


async def _watch(running: ReplaceableServer, modules: ProjectModules) -> None:
    known = modules.stamps()
    interval = _INTERVAL
    while True:
        await asyncio.sleep(interval)
        started = time.monotonic()
        now = await asyncio.to_thread(modules.stamps)
        interval = min(max(_INTERVAL, 20 * (time.monotonic() - started)), _LONGEST_INTERVAL)
        if now == known:
            continue
        while True:
            await asyncio.sleep(_SETTLED)
            later = await asyncio.to_thread(modules.stamps)
            if later == now:
                break
            now = later
        names = sorted(os.path.basename(path) for path in {*known, *now} if known.get(path) != now.get(path))
        await _reload(running, modules, ", ".join(names))
        # A file that changed while the modules were executed is noticed at the next look.
        known = {path: now.get(path, stamp) for path, stamp in modules.stamps().items()}


async def _reload(running: ReplaceableServer, modules: ProjectModules, what: str) -> None:
    """Execute the modules and replace the server; on a failure, print it and keep the server."""
    import linecache

    linecache.checkcache()
    try:
        server = await asyncio.to_thread(_load_guarded, modules)
        before = running.server
        changes = await running.replace(server)
    except asyncio.CancelledError:
        raise
    except CommandError as error:
        print_notice(str(error))
        print_notice(f"{one_line(what)} changed, and cannot be loaded; the previous version keeps running")
    except Exception:  # noqa: BLE001 - the user's lifespan; the session must survive it
        import traceback

        print_notice(traceback.format_exc().rstrip())
        print_notice(f"{one_line(what)} changed, and its lifespan failed; the previous version keeps running")
    else:
        print_notice(f"{one_line(what)} changed; reloaded{_summary(changes)}")
        if (before.auth is None) != (server.auth is None) or before.http_options != server.http_options:
            print_notice("options of the HTTP endpoint and auth= apply after a restart")


def _load_guarded(modules: ProjectModules) -> Server:
    try:
        return modules.load()
    except Exception:
        raise
    except BaseException as error:
        # sys.exit() at import time must not end the process that keeps the session.
        raise CommandError(f"{type(error).__name__}: {error}", Exit.CONFIG) from error


def _summary(changes: Iterable[ListChange]) -> str:
    parts = []
    for change in changes:
        marked = (("+", change.added), ("-", change.removed), ("~", change.changed))
        names = " ".join(f"{mark}{one_line(name)}" for mark, each in marked for name in each)
        parts.append(f"{change.kind} {names or 'in another order'}")
    return f": {'; '.join(parts)}" if parts else "; no list changed"
