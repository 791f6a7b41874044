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
import re
import select
import stat
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from trunkline.cli.exit_codes import CommandError, Exit
from trunkline.cli.ui.output import one_line, print_notice

if TYPE_CHECKING:
    from trunkline.server.replacement import ListChange, Reloader
    from trunkline.server.server import Server

__all__ = ["ProjectModules", "ReloadListener", "load_first", "reason_of", "run_reloading", "watch"]

#: Seconds between two looks at the files; longer if looking is slow, so that it costs at most a twentieth of the time.
_INTERVAL = 0.25
#: Even on a slow network file system, an edit is noticed within seconds.
_LONGEST_INTERVAL = 5.0
#: A file that is being written is read only after it has stayed the same for this many seconds.
_SETTLED = 0.05
#: A lifespan that is not entered within this many seconds has failed; one that loads a large model is slow.
_LIFESPAN_SECONDS = 120.0

#: The state of the watched files: modification time, size and inode by path. Editors replace files, which changes the
#: inode alone if the old modification time is kept.
_Stamps: TypeAlias = Mapping[str, tuple[int, int, int]]

#: Called after each reload with a message, and the traceback if the reload failed; both are also printed.
ReloadListener: TypeAlias = Callable[[str, str | None], object]


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
        #: Whether an attempt has succeeded.
        self.has_loaded = False
        #: The folders of the modules that failed in the last attempt; empty if it succeeded.
        self._failed_folders: frozenset[str] = frozenset()

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
            server = self._load()
        except BaseException as error:
            attempted = self._loaded()
            files = {*map(_file, attempted.values()), *filter(self._is_own_file, _files_of(error))}
            self._failed_folders = frozenset(map(os.path.dirname, files))
            for name in attempted:
                del sys.modules[name]
            sys.modules.update(old)
            sys.path[:] = path
            raise
        self._failed_folders = frozenset()
        self.has_loaded = True
        return server

    def stamps(self) -> _Stamps:
        """Return the state of every Python file in the directories of the project's modules.

        After a failed attempt, these include the directories of the modules that failed, where the mistake is mended,
        and those directly below, where a missing package may be created.
        """
        found: dict[str, tuple[int, int, int]] = {}
        failed = self._failed_folders
        folders = {os.path.dirname(_file(module)) for module in self._loaded().values()}
        for folder in folders | failed | {inner for each in failed for inner in _package_folders(each)}:
            for entry in _scan(folder):
                if entry.name.endswith(".py"):
                    # Removed, being replaced, or a link to nothing, by which Emacs marks a file that is being edited.
                    with suppress(OSError):
                        now = entry.stat()
                        found[entry.path] = (now.st_mtime_ns, now.st_size, now.st_ino)
        return found

    def _loaded(self) -> dict[str, ModuleType]:
        return {name: module for name, module in tuple(sys.modules.items()) if self._is_own(name, module)}

    def _is_own(self, name: str, module: ModuleType) -> bool:
        if name in self._before or name.partition(".")[0] == "trunkline":
            return False
        return self._is_own_file(_file(module))

    def _is_own_file(self, file: str) -> bool:
        return (
            # Compiled modules cannot be executed twice in a process.
            file.endswith(".py")
            and file.startswith(self._roots)
            and not file.startswith(self._foreign)
            and f"{os.sep}site-packages{os.sep}" not in file
        )


def _file(module: ModuleType) -> str:
    try:
        file = getattr(module, "__file__", None)
    except Exception:  # noqa: BLE001 - the attributes of a lazy module may raise anything
        return ""
    return os.path.realpath(file) if isinstance(file, str) else ""


def _files_of(error: BaseException) -> Iterator[str]:
    """Yield the source files that an exception and its causes passed through."""
    raised: BaseException | None = error
    while raised is not None:
        if isinstance(raised, SyntaxError) and raised.filename:
            yield os.path.realpath(raised.filename)
        frames = raised.__traceback__
        while frames is not None:
            yield os.path.realpath(frames.tb_frame.f_code.co_filename)
            frames = frames.tb_next
        raised = raised.__cause__


def _scan(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _package_folders(folder: str) -> list[str]:
    return [entry.path for entry in _scan(folder) if entry.name.isidentifier() and entry.is_dir()]


def run_reloading(modules: ProjectModules, run: Callable[[Server], Awaitable[None]], *, stdio: bool = False) -> None:
    """Load a server and run it until the transport ends, replacing it whenever its files change.

    ``run`` returns the coroutine that serves it. If it cannot be loaded at first, this waits until its files change;
    over stdio only as long as there is a client.

    Raises:
        CommandError: it cannot be loaded, and nothing is to be waited for.
    """
    from trunkline.server.run import run_loop

    server, known = _load_patiently(modules, _has_client if stdio else lambda: True)
    run_loop(_run(server, modules, known, run))


def _load_patiently(modules: ProjectModules, is_wanted: Callable[[], bool]) -> tuple[Server, _Stamps]:
    while True:
        try:
            return load_first(modules)
        except CommandError as error:
            known = modules.stamps()
            # Without a file there is none to be mended.
            if not known or not is_wanted():
                raise
            print_notice(str(error))
            print_notice("the server cannot be loaded; it is started once its files have changed (Ctrl-C ends)")
            while modules.stamps() == known:
                if not is_wanted():
                    raise
                time.sleep(_INTERVAL)
        time.sleep(_SETTLED)


def _has_client() -> bool:
    """Return whether something may still be sent on standard input: it is a terminal, or an open pipe or socket."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return os.isatty(0)
    poll = select.poll()
    # Errors and the end of the other side are reported without being asked for.
    poll.register(0, 0)
    return not poll.poll(0)


def load_first(modules: ProjectModules) -> tuple[Server, _Stamps]:
    """Load a server for the first time; return it with the state of its files.

    Raises:
        CommandError: it cannot be loaded.
    """
    # A cache of byte code is told apart by seconds and size; two quick edits may have both in common.
    sys.dont_write_bytecode = True
    server = modules.load()
    # Before the server starts: a change from now on is noticed.
    known = modules.stamps()
    if not known:
        print_notice(
            "nothing is reloaded: the server has no source file in this folder; run it in its project's folder"
        )
    return server, known


async def _run(
    server: Server, modules: ProjectModules, known: _Stamps, run: Callable[[Server], Awaitable[None]]
) -> None:
    from trunkline.server.replacement import Reloader

    running = Reloader(server)
    try:
        async with watch(running, modules, known):
            await run(server)
    finally:
        await running.aclose()


def _ignore(sentence: str, traceback: str | None) -> None:
    """Do nothing; the default listener."""


@asynccontextmanager
async def watch(
    running: Reloader, modules: ProjectModules, known: _Stamps, on_reload: ReloadListener = _ignore
) -> AsyncIterator[None]:
    """Replace a server whenever its files change, while the context is active."""
    watching = asyncio.get_running_loop().create_task(_watch(running, modules, known, on_reload))
    watching.add_done_callback(_report_failure)
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def _report_failure(watching: asyncio.Task[None]) -> None:
    """Called when the watch has ended; it fails only if the loader has a mistake."""
    if not watching.cancelled() and (error := watching.exception()) is not None:
        print_notice(f"changes are no longer reloaded: {type(error).__name__}: {one_line(str(error))}")


async def _watch(running: Reloader, modules: ProjectModules, known: _Stamps, on_reload: ReloadListener) -> None:
    interval = _INTERVAL
    while True:
        await asyncio.sleep(interval)
        started = time.monotonic()
        now = await asyncio.to_thread(modules.stamps)
        interval = min(max(_INTERVAL, 20 * (time.monotonic() - started)), _LONGEST_INTERVAL)
        if now == known:
            continue
        # If a file is written all the time, the others are not kept waiting for it.
        while time.monotonic() - started < _LONGEST_INTERVAL:
            await asyncio.sleep(_SETTLED)
            later = await asyncio.to_thread(modules.stamps)
            if later == now:
                break
            now = later
        names = sorted(os.path.basename(path) for path in {*known, *now} if known.get(path) != now.get(path))
        await _reload(running, modules, ", ".join(names), on_reload)
        after = await asyncio.to_thread(modules.stamps)
        # A file that changed while the modules were executed is noticed at the next look.
        known = {path: now.get(path, stamp) for path, stamp in after.items()}


async def _reload(running: Reloader, modules: ProjectModules, what: str, on_reload: ReloadListener = _ignore) -> None:
    """Execute the modules and replace the server; on a failure, print it and keep the server."""
    import linecache

    linecache.checkcache()
    what = one_line(what)
    try:
        server = await asyncio.to_thread(_load_guarded, modules)
        before = running.server
        changes = await running.replace(server, seconds=_LIFESPAN_SECONDS)
    except asyncio.CancelledError:
        raise
    except CommandError as error:
        print_notice(str(error))
        consequence = "the previous version keeps running" if modules.has_loaded else "nothing is served until it can"
        print_notice(f"{what} changed, and cannot be loaded; {consequence}")
        on_reload(f"{what} cannot be loaded, {consequence}: {reason_of(error)}", str(error))
    except Exception as error:  # noqa: BLE001 - the user's lifespan; the session must survive it
        import traceback

        trace = traceback.format_exc().rstrip()
        print_notice(trace)
        print_notice(f"{what} changed, and its lifespan failed; the previous version keeps running")
        why = one_line(f"{type(error).__name__}: {error}")
        on_reload(f"the lifespan of {what} failed, the previous version keeps running: {why}{_place(trace)}", trace)
    else:
        sentence = f"{what} changed; reloaded{_summary(changes)}"
        print_notice(sentence)
        on_reload(sentence, None)
        # Most verifiers cannot be compared. A token revoked in the source must not seem to be rejected already.
        if before.settings.auth != server.settings.auth or before.settings.http != server.settings.http:
            print_notice("changes of auth= and of the options of the HTTP endpoint apply after a restart")


def reason_of(error: CommandError) -> str:
    """Return the last line of the message, such as a traceback, with the file and the line of its last frame."""
    return f"{_last_line(str(error))}{_place(str(error))}"


def _place(trace: str) -> str:
    """Return the file and the line of the last frame of a traceback, in parentheses; empty if it has none."""
    frames = re.findall(r'^ *File "(.+)", line (\d+)', trace, re.MULTILINE)
    return f" ({one_line(os.path.basename(frames[-1][0]))}, line {frames[-1][1]})" if frames else ""


def _last_line(text: str) -> str:
    return one_line(text.rstrip().rpartition("\n")[2].strip())


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
