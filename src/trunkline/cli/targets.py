"""Resolves TARGET: a URL, a command, a Python file, or the name of a configured server. Loads the server of a file.

Resolving starts nothing and uses no shell. A file is imported, not run as a program, so code under ``if
__name__ == "__main__"`` does not run; exceptions it raises are shown with its own traceback.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Container, Sequence
from contextlib import redirect_stdout
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, NamedTuple

from trunkline.cli.exit_codes import CommandError, Exit, debugging
from trunkline.transports.python_files import USUAL_NAMES, launch_python_file, library_of_server, split_spec

__all__ = [
    "CommandTarget",
    "ConfiguredTarget",
    "UrlTarget",
    "load_installed_server",
    "load_server",
    "resolve_target",
]

if TYPE_CHECKING:
    from traceback import TracebackException

    from trunkline.host.config.model import Configuration
    from trunkline.server.server import Server


_IMPORTLIB = os.path.join(os.path.dirname(os.__file__), "importlib", "")
_USUAL_FILES = tuple(f"{name}.py" for name in USUAL_NAMES)
#: The folder of this package.
_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")


def load_server(spec: str) -> Server:
    """Load ``FILE[:object]`` and return its server.

    Raises:
        CommandError: there is no such file, or it is not clear which object is the server.
    """
    path, name = split_spec(spec)
    if os.path.isdir(path):
        raise CommandError(f"{path} is a folder; give the file of the server in it{_server_file(path)}", Exit.CONFIG)
    if not os.path.isfile(path):
        raise CommandError(f"there is no file {path}{_similar_file(path)}", Exit.CONFIG)
    _check_own_library(path)
    module = _load_module(os.path.abspath(path))
    return _find_server(module, path) if name is None else _named_server(module, path, name)


def _similar_file(path: str) -> str:
    from trunkline.cli.suggestions import suggestion

    folder, name = os.path.split(path)
    return suggestion(name, _python_files(folder or os.curdir))


def _server_file(folder: str) -> str:
    """Return an example: the usual file of a server, or the only one in a folder."""
    files = sorted(_python_files(folder))
    usual = next((name for name in files if name in _USUAL_FILES), files[0] if len(files) == 1 else None)
    return "" if usual is None else f", such as {os.path.join(folder, usual)}"


def _python_files(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.endswith(".py")]
    except OSError:
        return []


def _check_own_library(path: str) -> None:
    """Raise if a file creates a server of another library, which can be started but not loaded. The file does not run.

    Raises:
        CommandError: it does; the message has the command that starts it.
    """
    library = library_of_server(path)
    if library is not None:
        import shlex

        command = shlex.join(["trunkline", "run", "--compat", path])
        raise CommandError(
            f"{path} is a server of another library ({library}): run it as a program, or with ours: {command}",
            Exit.CONFIG,
        )


def _load_module(path: str) -> ModuleType:
    from importlib.machinery import SourceFileLoader
    from importlib.util import module_from_spec, spec_from_loader

    name = os.path.splitext(os.path.basename(path))[0]
    if name in sys.modules:
        # A file may have the name of a module that is already loaded: json.py, server.py.
        name = f"{name} (file)"
    loader = SourceFileLoader(name, path)
    spec = spec_from_loader(name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    # Annotations are resolved by the name of the module, and a file that imports this one must get the same server.
    sys.modules[name] = module
    sys.path.insert(0, os.path.dirname(path))
    sys.argv = [path]
    try:
        # What a file prints when it is imported must not get into the protocol stream.
        with redirect_stdout(sys.stderr):
            loader.exec_module(module)
    except Exception as error:
        raise CommandError(_users_traceback(error, path), Exit.CONFIG) from error
    return module


def _users_traceback(error: Exception, path: str | None, name: str | None = None) -> str:
    """Format an exception of a file, from the file's own first frame on; of a module, from after the import system."""
    import traceback

    frames: TracebackType | None = error.__traceback__
    while frames is not None and (
        frames.tb_frame.f_code.co_filename.startswith(("<frozen importlib", __file__, _IMPORTLIB))
        if path is None
        else frames.tb_frame.f_code.co_filename != path
    ):
        frames = frames.tb_next
    shown = traceback.TracebackException(type(error), error, frames)
    if not debugging():
        _cut_own_frames(shown)
    text = "".join(shown.format()).rstrip()
    return f"{name or path} cannot be loaded:\n{text}"


def _cut_own_frames(shown: TracebackException) -> None:
    """Remove the frames of this package at the end, so that the user's last line is next to the message.

    A decorator that rejects a function raises some calls deep. Their lines mean nothing to the author of the function,
    and would fill the few lines of stderr that a client shows.
    """
    import traceback

    kept = len(shown.stack)
    while kept and shown.stack[kept - 1].filename.startswith(_PACKAGE):
        kept -= 1
    if 0 < kept < len(shown.stack):
        shown.stack = traceback.StackSummary.from_list(shown.stack[:kept])
        # What this package caught before it raised.
        shown.__cause__ = shown.__context__ = None


def load_installed_server(spec: str) -> Server:
    """Import ``MODULE[:object]``, from the current directory or the installed packages, and return its server.

    Raises:
        CommandError: there is no such module, or it is not clear which object is the server.
    """
    from importlib import import_module

    name, _, wanted = spec.partition(":")
    if not all(part.isidentifier() for part in name.split(".")):
        raise CommandError(f"{name!r} is not the name of a module, such as package.server", Exit.USAGE)
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        with redirect_stdout(sys.stderr):
            module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise CommandError(_users_traceback(error, None, name), Exit.CONFIG) from error
        raise CommandError(
            f"there is no module {error.name}; run this in the folder of its package, or install the package",
            Exit.CONFIG,
        ) from error
    except Exception as error:
        raise CommandError(_users_traceback(error, None, name), Exit.CONFIG) from error
    return _find_server(module, name) if not wanted else _named_server(module, name, wanted)


def _find_server(module: ModuleType, path: str) -> Server:
    servers = _servers(module)
    for name in USUAL_NAMES:
        if name in servers:
            return servers[name]
    distinct = {id(server): server for server in servers.values()}
    if not distinct:
        raise CommandError(f"{path} has no Server; create one: server = Server(...)", Exit.CONFIG)
    if len(distinct) > 1:
        names = ", ".join(sorted(servers))
        raise CommandError(
            f"{path} has several servers ({names}); choose one, such as {path}:{min(servers)}", Exit.CONFIG
        )
    return next(iter(distinct.values()))


def _named_server(module: ModuleType, path: str, name: str) -> Server:
    from trunkline import Server

    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = ", ".join(sorted(_servers(module))) or "none"
            raise CommandError(f"{path} has no object {name} (servers: {known})", Exit.CONFIG)
        found = getattr(found, part)
    if not isinstance(found, Server):
        raise CommandError(f"{path}:{name} is not a Server but a {type(found).__name__}", Exit.CONFIG)
    return found


def _servers(module: ModuleType) -> dict[str, Server]:
    from trunkline import Server

    return {name: value for name, value in vars(module).items() if isinstance(value, Server)}


_EXPECTED = "expected a .py file, FILE:OBJECT, a quoted command, a URL, or the name of a configured server"


class CommandTarget(NamedTuple):
    """A server to start: its command, and environment variables it needs besides those the user gives."""

    command: list[str]
    env: dict[str, str]
    #: For a Python file that ``trunkline run`` serves: FILE[:OBJECT] with the absolute path.
    spec: str | None = None


class UrlTarget(NamedTuple):
    """A server that is already running at a URL."""

    url: str


class ConfiguredTarget(NamedTuple):
    """A configured server, run by the host under the user's policy."""

    #: None: all configured servers.
    server: str | None
    #: The files given with ``--config``; empty: those that are found.
    files: tuple[str, ...]
    #: What was loaded from the files.
    configuration: Configuration
    #: The item of the server, if TARGET was ``SERVER/ITEM``.
    rest: str | None = None


def resolve_target(text: str | None, files: Sequence[str] = ()) -> CommandTarget | UrlTarget | ConfiguredTarget:
    """Resolve a TARGET; with files, it is the name of a server in them, and None means all their servers.

    Raises:
        CommandError: TARGET cannot be resolved.
        ConfigError: a given file cannot be used.
    """
    if files or text is None:
        return _in_files(text, files)
    if text.lower().startswith(("http://", "https://")):
        return UrlTarget(text)
    path, name = split_spec(text)
    if os.path.isfile(path) and path.endswith(".py"):
        return CommandTarget(*launch_python_file(path, name))
    if path.endswith(".json") and os.path.isfile(path):
        raise CommandError(
            f"{path} is a configuration file: give it with -c {path}, and one of its servers as TARGET", Exit.USAGE
        )
    words = _words(text)
    if len(words) > 1:
        return CommandTarget(words, {})
    if path.endswith(".py"):
        raise CommandError(f"there is no file {path}{_similar_file(path)}", Exit.CONFIG)
    return _one_word(words[0] if words else "")


def _words(text: str) -> list[str]:
    import shlex

    try:
        return shlex.split(text)
    except ValueError as error:
        raise CommandError(f"cannot parse the command {text!r}: {error}", Exit.USAGE) from error


def _program(word: str) -> CommandTarget | None:
    import shutil

    if os.sep in word:
        return CommandTarget([os.path.abspath(word)], {}) if os.path.isfile(word) else None
    return CommandTarget([word], {}) if word and shutil.which(word) is not None else None


# --- names -----------------------------------------------------------------------------------------------------------


def _one_word(word: str) -> CommandTarget | ConfiguredTarget:
    """Resolve a word as the name of a configured server, otherwise as a program.

    A server of a project's file runs only after approval, so no project can silently take the place of a program.
    """
    program = _program(word)
    if program is not None and os.sep in word:
        return program
    from trunkline.cli.host_session import load_cli_configuration

    configuration = load_cli_configuration()
    server, rest = _split(word, configuration.entries)
    if server is not None:
        return ConfiguredTarget(server, (), configuration, rest)
    if program is not None:
        return program
    for problem in configuration.problems:
        if problem.severity == "error":
            raise CommandError(str(problem), Exit.CONFIG)
    from trunkline.cli.suggestions import suggestion

    address = re.fullmatch(r"([\w.-]+:\d+)(/.*)?", word)
    if address is not None:
        url = f"http://{address[1]}{address[2] or '/mcp'}"
        raise CommandError(f'{word!r} is not a URL; did you mean "{url}"?', Exit.USAGE)
    name = word.partition("/")[0]
    if os.sep in word:
        near = suggestion(name, configuration.entries) if name else ""
        raise CommandError(f"there is no file {word}{f' and no server {name!r}{near}' if near else ''}", Exit.CONFIG)
    near = suggestion(name, [*configuration.entries, *_python_files(os.curdir)])
    raise CommandError(f"{word!r} is neither a configured server nor a program{near or f': {_EXPECTED}'}", Exit.USAGE)


def _in_files(text: str | None, files: Sequence[str]) -> ConfiguredTarget:
    """Resolve a name in the given files; without a name, all servers."""
    from trunkline.cli.host_session import load_cli_configuration, name_hint

    configuration = load_cli_configuration(files)
    if text is None:
        if not files and not configuration.files:
            raise CommandError(f"no configuration found: {_EXPECTED}", Exit.USAGE)
        return ConfiguredTarget(None, tuple(files), configuration)
    server, rest = _split(text, configuration.entries)
    if server is None:
        name = text if "://" in text else text.partition("/")[0]
        hint = name_hint(name, configuration.entries)
        raise CommandError(f"there is no server {name!r} in {', '.join(files)}; {hint}", Exit.CONFIG)
    return ConfiguredTarget(server, tuple(files), configuration, rest)


def _split(text: str, names: Container[str]) -> tuple[str | None, str | None]:
    """Split NAME or NAME/REST; a name itself has no slash."""
    if text in names:
        return text, None
    name, slash, rest = text.partition("/")
    return (name, rest) if slash and rest and name in names else (None, None)
