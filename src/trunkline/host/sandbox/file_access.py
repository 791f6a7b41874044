"""The files that a server can access: its roots, the listed paths, and what its own and any program needs.

Links and the existence of files are checked; nothing is changed. A server with write access to a folder may create
links in it; so a link inside a writable folder is followed only to targets that are writable anyway. Otherwise the
server could choose what the next start gives access to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from trunkline.host.config.model import ServerEntry
from trunkline.host.integrity.fingerprints import executed_code, find_interpreter
from trunkline.host.sandbox.settings import SandboxSettings

__all__ = [
    "DEVICES",
    "SYSTEM",
    "FileAccess",
    "SandboxLocations",
    "find_file_access",
    "is_within",
    "root_path",
]

#: The parts of the system that programs need, as far as they exist: programs, libraries, certificates, name services,
#: facts about the machine. None of it belongs to the user.
SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store", "/snap"),
    *("/etc/alternatives", "/etc/ca-certificates", "/etc/ca-certificates.conf", "/etc/crypto-policies"),
    *("/etc/fonts", "/etc/gai.conf", "/etc/group", "/etc/host.conf", "/etc/hosts", "/etc/inputrc", "/etc/ld.so.cache"),
    *("/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/locale.alias", "/etc/localtime", "/etc/magic", "/etc/mime.types"),
    *("/etc/nsswitch.conf", "/etc/os-release", "/etc/passwd", "/etc/pki", "/etc/protocols", "/etc/resolv.conf"),
    *("/etc/rpc", "/etc/services", "/etc/ssl", "/etc/terminfo", "/etc/timezone"),
    *("/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm/transparent_hugepage"),
)
#: The parts of /proc that are accessible without a separate process namespace: the server itself, and the machine.
PROC = tuple(
    f"/proc/{name}"
    for name in ("self", "cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "sys", "uptime", "version", "vmstat")
)
DEVICES = tuple(f"/dev/{name}" for name in ("full", "null", "random", "urandom", "zero"))

_BESIDE_BIN = ("bin", "lib", "lib32", "lib64", "libexec", "pyvenv.cfg")
#: A folder with one of these belongs to a package, whose scripts load further files from it.
_PACKAGE_MARKS = ("package.json", "pyproject.toml")
#: Variables of an entry that name the location of code.
_CODE_PATHS = ("NODE_PATH", "PYTHONPATH")
_MOST_LINKS = 40  # MAXSYMLINKS of Linux.
_MOST_LEVELS = 4  # Folders above a script that are searched for the mark of its package.


class SandboxLocations(Struct, frozen=True, kw_only=True):
    """The locations that matter for one launch."""

    #: The private folder of this server: its home and its temporary files.
    private: str
    #: The host's own folders, which no server may see, with links resolved.
    protected: tuple[str, ...]
    home: str
    cwd: str
    environ: Mapping[str, str]


class FileAccess(Struct, frozen=True, kw_only=True):
    """The files that a server can access; a folder includes everything in it."""

    system: tuple[str, ...]
    read: tuple[str, ...]
    write: tuple[str, ...]
    devices: tuple[str, ...] = DEVICES
    #: Configured paths that are links, with their targets.
    aliases: tuple[tuple[str, str], ...] = ()
    #: Folders of the host inside these paths, which must be hidden.
    covered: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def covers(self, path: str) -> bool:
        """Return True if a path can be read, including the system's own."""
        return self.mounts(path) or _in_any(path, self.system)

    def mounts(self, path: str) -> bool:
        """Return True if a path is within the granted paths, not counting the system's."""
        return _in_any(path, (*self.read, *self.write))


def _in_any(path: str, folders: Iterable[str]) -> bool:
    real = os.path.realpath(path)
    return any(is_within(real, os.path.realpath(each)) for each in folders)


def find_file_access(
    entry: ServerEntry,
    sandbox: SandboxSettings,
    roots: Sequence[str],
    *,
    program: str | None,
    locations: SandboxLocations,
) -> FileAccess:
    """Determine what a server can access; ``program`` is its executable, None in a container, which has its own."""
    notes: list[str] = []
    paths = [path for root in roots if (path := root_path(root, notes)) is not None]
    write, read = [*sandbox.write], [*sandbox.read]
    (write if sandbox.roots_writable else read).extend(paths)
    writable: dict[str, str] = {}
    for path in _shortest_first(write):
        writable |= _accept(path, writable.values(), locations=locations, notes=notes)
    readable: dict[str, str] = {}
    for path in _shortest_first(read):
        readable |= _accept(path, writable.values(), locations=locations, notes=notes)
    given = {**readable, **writable}
    own: tuple[str, ...] = ()
    if program is not None:
        own = tuple(_program_files(entry, program, writable=tuple(writable.values()), locations=locations, notes=notes))
    seen = (*given.values(), *(() if program is None else SYSTEM))
    return FileAccess(
        system=SYSTEM,
        read=tuple(dict.fromkeys((*readable.values(), *own))),
        write=tuple(dict.fromkeys(writable.values())),
        aliases=tuple((path, real) for path, real in given.items() if path != real),
        covered=tuple(place for place in locations.protected if any(is_within(place, each) for each in seen)),
        notes=tuple(notes),
    )


def _program_files(
    entry: ServerEntry, program: str, *, writable: Sequence[str], locations: SandboxLocations, notes: list[str]
) -> Iterator[str]:
    """Yield the paths that the server's own program needs, each also with links resolved."""
    programs = [path for each in _programs(entry, program, locations) for path in _of_program(each, locations)]
    code = _of_code(entry, writable, locations=locations, notes=notes)
    sources = _editable_sources(programs, writable, locations, notes)
    for path in dict.fromkeys((*programs, *code, *sources)):
        real = os.path.realpath(path)
        # These were not configured explicitly, so they are left out if they overlap the host's own folders.
        overlaps = any(is_within(real, place) or is_within(place, real) for place in locations.protected)
        if not (overlaps or _in_any(path, writable) or _planted(path, writable)) and os.path.exists(real):
            yield from (path, real)


def root_path(root: str, notes: list[str]) -> str | None:
    """Return the folder of a root; a root on another machine is noted and left out."""
    if not root.startswith("file:"):
        return os.path.abspath(root)
    parts = urlsplit(root)
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or not path.startswith("/") or "\0" in path:
        notes.append(f"the root {root} is not on this machine and is left out of the sandbox")
        return None
    return os.path.normpath(path)


def is_within(path: str, folder: str) -> bool:
    """Return True if a path equals a folder or is inside it, comparing the texts."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


# --- configured paths ------------------------------------------------------------------------------------------------


def _shortest_first(paths: Iterable[str]) -> list[str]:
    """Sort paths so that a folder comes before its contents."""
    return sorted(dict.fromkeys(paths), key=len)


def _accept(path: str, writable: Iterable[str], *, locations: SandboxLocations, notes: list[str]) -> dict[str, str]:
    """Return an existing path with its real path; a link that the server may have planted is left out."""
    real = os.path.realpath(path)
    if not os.path.exists(path):
        notes.append(f"{path} does not exist and is left out of the sandbox")
    elif _planted(path, tuple(writable)):
        notes.append(f"{path} is left out of the sandbox: a link that the server can change leads outside its folders")
    elif any(is_within(real, place) for place in locations.protected):
        notes.append(f"{path} is left out of the sandbox: the host keeps its own files there")
    else:
        return {path: real}
    return {}


def _planted(path: str, writable: Sequence[str]) -> bool:
    """Return True if a path goes through a link in a writable folder to a target outside the writable folders."""
    real = os.path.realpath(path)
    if any(is_within(real, folder) for folder in writable):
        return False
    return any(is_within(link, folder) for link in _links(path) for folder in writable)


def _links(path: str) -> Iterator[str]:
    """Yield the links that a path goes through, each by its real location."""
    done, ahead, count = "/", [part for part in os.path.abspath(path).split("/") if part], 0
    while ahead:
        part = ahead.pop(0)
        here = os.path.normpath(os.path.join(done, part))
        if not os.path.islink(here) or count == _MOST_LINKS:
            done = here
            continue
        count += 1
        yield here
        target = os.readlink(here)
        done = "/" if target.startswith("/") else done
        ahead = [each for each in target.split("/") if each and each != "."] + ahead


# --- what the program needs ------------------------------------------------------------------------------------------


def _programs(entry: ServerEntry, program: str, locations: SandboxLocations) -> Iterator[str]:
    """Yield the program, and the one that a wrapper such as ``env`` starts."""
    from shutil import which

    yield program
    words = entry.command or ("",)
    kind = find_interpreter(words[0])
    for word in words[1:] if kind is not None and kind.wraps else ():
        name = os.path.join(entry.cwd or locations.cwd, word) if "/" in word else word
        if (wrapped := which(name, path=locations.environ.get("PATH"))) is not None:
            yield wrapped
            return


def _of_program(program: str, locations: SandboxLocations) -> Iterator[str]:
    """Yield the program, what is installed with it, and its interpreter if it is a script."""
    for hop in _hops(program):
        yield hop
        folder = os.path.dirname(hop)
        if os.path.basename(folder) == "bin" and os.path.dirname(folder) != locations.home:
            yield from (os.path.join(os.path.dirname(folder), name) for name in _BESIDE_BIN)
    interpreter = _interpreter_of(program, locations)
    if interpreter is not None and interpreter != program:
        script = os.path.realpath(program)
        if os.path.basename(os.path.dirname(script)) != "bin":
            # A script of a Node package, started by its link in ``node_modules/.bin``.
            yield from _of_script(script, locations, [])
        yield from _of_program(interpreter, locations)


def _editable_sources(
    programs: Iterable[str], writable: Sequence[str], locations: SandboxLocations, notes: list[str]
) -> Iterator[str]:
    """Yield the folders that a Python environment adds to its path: those of editable installs (``pip install -e``)."""
    from glob import escape, glob

    installations = dict.fromkeys(
        os.path.dirname(folder)
        for folder, name in map(os.path.split, programs)
        if os.path.basename(folder) == "bin" and name.startswith(("python", "pypy"))
    )
    # Debian's Python has a second folder of packages, in /usr/local.
    libraries = [f"{escape(prefix)}{beside}/lib" for prefix in installations for beside in ("", "/local")]
    for file in (file for library in libraries for file in sorted(glob(f"{library}/py*/*-packages/*.pth"))):
        for path in _paths_of_pth(file):
            if _in_any(file, writable) or _planted(file, writable):
                notes.append(f'{path} is left out of the sandbox: the server can change {file}; list it under "read"')
            elif is_within(locations.home, os.path.realpath(path)):
                notes.append(f"{path}, which {file} names, is left out of the sandbox: it contains your home folder")
            else:
                yield path


def _paths_of_pth(file: str) -> Iterator[str]:
    """Yield the existing paths in a ``.pth`` file, and those in the import finders that it installs."""
    packages = os.path.dirname(file)
    for line in _source_text(file).splitlines():
        if line.startswith(("import ", "import\t")):
            for module in re.findall(r"\b(\w*editable\w*)\b", line):
                yield from _paths_of_finder(os.path.join(packages, f"{module}.py"))
        elif line.strip() and not line.startswith("#") and os.path.exists(path := os.path.join(packages, line.strip())):
            yield path


def _paths_of_finder(file: str) -> Iterator[str]:
    """Yield the existing absolute paths among the constants of an import finder, such as those of setuptools."""
    import ast

    try:
        tree = ast.parse(_source_text(file))
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and os.path.isabs(node.value):
            # A single module is named without its ending.
            yield from (path for path in (node.value, f"{node.value}.py") if os.path.exists(path))


def _source_text(file: str) -> str:
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as source:
            return source.read()
    except OSError:
        return ""


def _hops(path: str) -> Iterator[str]:
    """Yield the steps of a chain of links."""
    for _ in range(_MOST_LINKS):
        yield path
        if not os.path.islink(path):
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
    yield os.path.realpath(path)


def _interpreter_of(program: str, locations: SandboxLocations) -> str | None:
    from shutil import which

    try:
        with open(program, "rb") as file:
            first, second = file.readline(512), file.readline(512)
    except OSError:
        return None
    if not first.startswith(b"#!"):
        return None
    if second.startswith(b"'''exec' "):
        # How installers name an interpreter whose path is too long for the first line: it is beside the script.
        return os.path.join(os.path.dirname(os.path.realpath(program)), "python")
    words = [word for word in os.fsdecode(first[2:]).split() if word != "-S"]
    if words and os.path.basename(words[0]) == "env":
        return which(words[1], path=locations.environ.get("PATH")) if len(words) > 1 else None
    return words[0] if words and os.path.isabs(words[0]) else None


def _of_code(
    entry: ServerEntry, writable: Sequence[str], *, locations: SandboxLocations, notes: list[str]
) -> Iterator[str]:
    """Yield the scripts that are run with their folders, the code paths of variables, and the working directory."""
    cwd = entry.cwd or locations.cwd
    words = entry.command or ("",)
    for kind, file in executed_code(words, cwd):
        if kind == "file":
            named = [path for path in _named(words, cwd) if os.path.realpath(path) == file]
            if named and not any(_planted(path, writable) for path in named):
                yield from named
                yield from _of_script(file, locations, notes)
    for name in _CODE_PATHS:
        for path in filter(None, entry.env.get(name, "").split(os.pathsep)):
            yield os.path.join(cwd, path)
    if entry.cwd is not None and not is_within(locations.home, os.path.realpath(entry.cwd)):
        yield entry.cwd


def _named(words: Sequence[str], cwd: str) -> Iterator[str]:
    """Yield every path that the words of a command may refer to."""
    values = [value for word in words[1:] for value in (word, word.partition("=")[2], word.rpartition(":")[0]) if value]
    folders = [cwd, *(path for value in values if os.path.isdir(path := os.path.join(cwd, value)))]
    yield from (os.path.join(folder, value) for folder in folders for value in values)


def _of_script(file: str, locations: SandboxLocations, notes: list[str]) -> Iterator[str]:
    """Yield a script, its folder, the folder of its package and its Node modules; never a whole home directory."""
    yield file
    if not file.endswith(".py"):
        yield from _node_modules(file, locations)
    above = os.path.dirname(file)
    if is_within(locations.home, above):
        notes.append(
            f'only {os.path.basename(file)} itself is readable in {above}: list what else it needs under "read"'
        )
        return
    yield above
    for _ in range(_MOST_LEVELS):
        if is_within(locations.home, above) or _is_world_writable(above):
            return
        if any(os.path.exists(os.path.join(above, mark)) for mark in _PACKAGE_MARKS):
            yield above
            return
        above = os.path.dirname(above)


def _node_modules(file: str, locations: SandboxLocations) -> Iterator[str]:
    """Yield the folders above a script in which Node looks for modules, and the packages that are linked there."""
    from glob import escape, glob

    above = os.path.dirname(file)
    while above != os.path.dirname(above) and not _is_world_writable(above):
        modules = os.path.join(above, "node_modules")
        if os.path.isdir(modules):
            yield modules
            # Links lead to the packages of a workspace, and to those of ``npm link``.
            for package in (*glob(f"{escape(modules)}/*"), *glob(f"{escape(modules)}/@*/*")):
                if os.path.islink(package) and not is_within(locations.home, os.path.realpath(package)):
                    yield package
        above = os.path.dirname(above)


def _is_world_writable(folder: str) -> bool:
    """Return True if a folder is world-writable, so that any user could make it look like a package."""
    return bool(os.stat(folder).st_mode & 0o002)
