"""The configuration files of other MCP applications.

Where each operating system keeps them, how they are read, and how they are rewritten atomically with a backup. A
backup's name holds the time and a digest of what was written, so that a later change by someone else is never undone
together with ours. A symbolic link stays a link.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from trunkline.devtools.client_configs.formats import parse_document, put_server, remove_server
from trunkline.errors import ConfigError
from trunkline.host.state_files import write_staged

__all__ = [
    "APPS",
    "AppDocument",
    "AppFile",
    "AppScope",
    "Backup",
    "Machine",
    "backups_of",
    "current_machine",
    "files_of",
    "read_app_file",
    "read_bytes",
    "read_own_file",
    "restore_backup",
    "write_with_backup",
]

#: ``local``: the user's own, for one project only.
AppScope: TypeAlias = Literal["user", "local", "project"]

#: The applications, by their names on the command line.
APPS: Mapping[str, str] = MappingProxyType(
    {
        "claude-desktop": "Claude Desktop",
        "claude-code": "Claude Code",
        "cursor": "Cursor",
        "vscode": "VS Code",
        "gemini-cli": "Gemini CLI",
        "codex": "Codex",
        "goose": "Goose",
        "windsurf": "Windsurf",
        "zed": "Zed",
    }
)


class Machine(Struct, frozen=True, kw_only=True):
    """The properties of a machine that decide where files are."""

    #: The value of ``sys.platform``.
    system: str
    home: Path
    environ: Mapping[str, str]
    #: The directory of the current project.
    project: Path

    def __repr__(self) -> str:
        """Leave out the environment, which may hold secrets."""
        return f"Machine({self.system!r}, {str(self.home)!r})"

    @property
    def settings(self) -> Path:
        """The directory in which applications keep their settings."""
        if self.system == "darwin":
            return self.home / "Library" / "Application Support"
        if self.system == "win32":
            return Path(self.environ.get("APPDATA") or self.home / "AppData" / "Roaming")
        return self.dot_config

    @property
    def dot_config(self) -> Path:
        """The directory of XDG, which some applications use on macOS too."""
        return Path(self.environ.get("XDG_CONFIG_HOME") or self.home / ".config")


class AppFile(Struct, frozen=True, kw_only=True):
    """A file of an application, and the object in it that holds servers."""

    app: str
    scope: AppScope
    path: Path
    #: The key path of the object whose members are the servers.
    key_path: tuple[str, ...] = ("mcpServers",)
    #: The project directory that paths are relative to.
    folder: Path | None = None

    @property
    def title(self) -> str:
        """The name of the application, and the scope of the servers."""
        kind = {"user": "", "local": ", for this project", "project": ", shared by the project"}[self.scope]
        return f"{APPS[self.app]}{kind}"


def current_machine() -> Machine:
    """Return the properties of the current machine."""
    return Machine(system=sys.platform, home=Path.home(), environ=os.environ, project=Path.cwd())


def files_of(app: str, machine: Machine) -> tuple[AppFile, ...]:
    """Return the files of an application, the user's own first."""
    return _FILES[app](machine)


def _claude_desktop(machine: Machine) -> tuple[AppFile, ...]:
    path = machine.settings / "Claude" / "claude_desktop_config.json"
    return (AppFile(app="claude-desktop", scope="user", path=path),)


def _claude_code(machine: Machine) -> tuple[AppFile, ...]:
    own = Path(machine.environ.get("CLAUDE_CONFIG_DIR") or machine.home) / ".claude.json"
    project = machine.project
    local = ("projects", str(project), "mcpServers")
    return (
        AppFile(app="claude-code", scope="user", path=own),
        AppFile(app="claude-code", scope="local", path=own, key_path=local, folder=project),
        AppFile(app="claude-code", scope="project", path=project / ".mcp.json", folder=project),
    )


def _cursor(machine: Machine) -> tuple[AppFile, ...]:
    project = machine.project
    return (
        AppFile(app="cursor", scope="user", path=machine.home / ".cursor" / "mcp.json"),
        AppFile(app="cursor", scope="project", path=project / ".cursor" / "mcp.json", folder=project),
    )


def _vscode(machine: Machine) -> tuple[AppFile, ...]:
    own, project = machine.settings / "Code" / "User" / "mcp.json", machine.project
    return (
        AppFile(app="vscode", scope="user", path=own, key_path=("servers",)),
        AppFile(
            app="vscode", scope="project", path=project / ".vscode" / "mcp.json", key_path=("servers",), folder=project
        ),
    )


def _gemini_cli(machine: Machine) -> tuple[AppFile, ...]:
    project = machine.project
    return (
        AppFile(app="gemini-cli", scope="user", path=machine.home / ".gemini" / "settings.json"),
        AppFile(app="gemini-cli", scope="project", path=project / ".gemini" / "settings.json", folder=project),
    )


def _codex(machine: Machine) -> tuple[AppFile, ...]:
    own = Path(machine.environ.get("CODEX_HOME") or machine.home / ".codex") / "config.toml"
    project, servers = machine.project, ("mcp_servers",)
    return (
        AppFile(app="codex", scope="user", path=own, key_path=servers),
        # Codex reads it only in a project that its user trusts.
        AppFile(
            app="codex", scope="project", path=project / ".codex" / "config.toml", key_path=servers, folder=project
        ),
    )


def _goose(machine: Machine) -> tuple[AppFile, ...]:
    windows = machine.settings / "Block" / "goose" / "config"
    folder = windows if machine.system == "win32" else machine.dot_config / "goose"
    return (AppFile(app="goose", scope="user", path=folder / "config.yaml", key_path=("extensions",)),)


def _windsurf(machine: Machine) -> tuple[AppFile, ...]:
    path = machine.home / ".codeium" / "windsurf" / "mcp_config.json"
    return (AppFile(app="windsurf", scope="user", path=path),)


def _zed(machine: Machine) -> tuple[AppFile, ...]:
    folder = machine.settings / "Zed" if machine.system == "win32" else machine.dot_config / "zed"
    project, servers = machine.project, ("context_servers",)
    return (
        AppFile(app="zed", scope="user", path=folder / "settings.json", key_path=servers),
        AppFile(app="zed", scope="project", path=project / ".zed" / "settings.json", key_path=servers, folder=project),
    )


_FILES = MappingProxyType(
    {
        "claude-desktop": _claude_desktop,
        "claude-code": _claude_code,
        "cursor": _cursor,
        "vscode": _vscode,
        "gemini-cli": _gemini_cli,
        "codex": _codex,
        "goose": _goose,
        "windsurf": _windsurf,
        "zed": _zed,
    }
)


# Some applications keep the history of conversations in the same file.
_MOST_BYTES = 64 * 1024 * 1024
_NAME = re.compile(r"\.trunkline-(\d{8}T\d{6})-(\d+)-([0-9a-f]{16})(?:-([A-Za-z0-9_-]+))?\.(bak|absent)")


class Backup(Struct, frozen=True, kw_only=True):
    """The contents of a file before it was rewritten."""

    path: Path
    at: str
    #: Orders backups made within the same second.
    number: int
    #: A digest of what was written.
    digest: str
    #: True if the file did not exist before.
    absent: bool
    #: The one server that was written; None if the change was another.
    server: str | None = None


def read_bytes(path: Path) -> bytes | None:
    """Return the contents of a file; None if it does not exist.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"{path}: the file is larger than {_MOST_BYTES // 1024**2} MiB; is it the right file?")
    return content


def write_with_backup(
    path: Path,
    content: bytes,
    *,
    before: bytes | None,
    server: str | None = None,
    clock: Callable[[], float] = time.time,
) -> Backup:
    """Replace the contents of a file that was read as ``before``; return the backup.

    If the change is that of one server, its name lets the change be undone after others have changed the file.

    Raises:
        ConfigError: the file has changed since it was read, or cannot be written.
    """
    real = Path(os.path.realpath(path))
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        backup = _write_backup(real, before, _digest(content), clock, server)
        try:
            _replace(real, content, before=before)
        except BaseException:
            with suppress(OSError):
                backup.path.unlink()
            raise
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error
    return backup


def _write_backup(
    real: Path, before: bytes | None, digest: str, clock: Callable[[], float], server: str | None
) -> Backup:
    stamp = time.strftime("%Y%m%dT%H%M%S", time.localtime(clock()))
    number = max((each.number + 1 for each in backups_of(real) if each.at == stamp), default=0)
    kind, suffix = "absent" if before is None else "bak", "" if server is None else f"-{server}"
    path = real.with_name(f"{real.name}.trunkline-{stamp}-{number}-{digest}{suffix}.{kind}")
    os.replace(write_staged(str(path), before or b""), path)
    return Backup(path=path, at=stamp, number=number, digest=digest, absent=before is None, server=server)


def _replace(real: Path, content: bytes, *, before: bytes | None) -> None:
    other = write_staged(str(real), content)
    try:
        if before is not None:
            os.chmod(other, real.stat().st_mode & 0o7777)
        if read_bytes(real) != before:
            raise ConfigError(f"{real}: another program has just changed it; nothing was written, try again")
        os.replace(other, real)
    except BaseException:
        with suppress(OSError):
            os.unlink(other)
        raise


def backups_of(path: Path) -> list[Backup]:
    """Return the backups of a file, the oldest first."""
    real = Path(os.path.realpath(path))
    found = []
    for name in os.listdir(real.parent) if real.parent.is_dir() else ():
        match = _NAME.fullmatch(name[len(real.name) :]) if name.startswith(real.name) else None
        if match is not None:
            at, number, digest, server, kind = match.groups()
            found.append(
                Backup(
                    path=real.with_name(name),
                    at=at,
                    number=int(number),
                    digest=digest,
                    absent=kind == "absent",
                    server=server,
                )
            )
    return sorted(found, key=lambda backup: (backup.at, backup.number))


def restore_backup(
    path: Path, *, file: AppFile | None = None, dry_run: bool = False
) -> tuple[Backup, bytes | None, bytes | None]:
    """Restore the last backup; return the backup, and the contents before and after.

    If the file was changed since, and the backup is that of one server in a given file, only this server is put back
    as it was, or removed.

    Raises:
        ConfigError: there is no backup, or the file was changed since and the change cannot be undone alone.
    """
    real = Path(os.path.realpath(path))
    kept = backups_of(real)
    if not kept:
        raise ConfigError(f"{path}: there is no backup by trunkline beside it, so nothing can be undone")
    backup, now = kept[-1], read_bytes(real)
    old = None if backup.absent else read_bytes(backup.path)
    if now is None or _digest(now) != backup.digest:
        if now is None or file is None or backup.server is None:
            raise ConfigError(
                f"{path}: the file was changed since, and restoring the backup would undo that too; remove the entry "
                f"by hand, or compare the file with {backup.path.name}"
            )
        old = _undone_alone(file, now, old, backup.server)
    if not dry_run:
        _restore(real, old, now, backup)
    return backup, now, old


def _undone_alone(file: AppFile, now: bytes, old: bytes | None, server: str) -> bytes:
    """Return the contents of a file with one server as it was before, or without it."""
    document, before = _document(file, now), _document(file, old)
    if server not in document.servers:
        raise ConfigError(f"{file.path}: the file was changed since, and {server} is no longer in it; nothing to undo")
    path = str(file.path)
    if server in before.servers:
        text = put_server(document.text, path, file.key_path, server, before.servers[server])
    else:
        text = remove_server(document.text, path, file.key_path, server)
    return document.encoded(text)


def _restore(real: Path, old: bytes | None, now: bytes, backup: Backup) -> None:
    try:
        if old is None:
            real.unlink()
        else:
            _replace(real, old, before=now)
        backup.path.unlink()
    except OSError as error:
        raise ConfigError(f"{real}: cannot be written: {error.strerror or error}") from error


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


_BYTE_ORDER_MARK = "\ufeff"


class AppDocument(Struct, frozen=True, kw_only=True):
    """The contents of a file: its exact text, and the parsed servers."""

    file: AppFile
    #: The bytes of the file; None if it does not exist.
    content: bytes | None = None
    #: Without the byte order mark.
    text: str = ""
    servers: Mapping[str, Any] = MappingProxyType({})
    #: The inputs that entries of VS Code may refer to.
    inputs: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        """Return the path only: the contents may hold secrets."""
        return f"AppDocument({str(self.file.path)!r})"

    def encoded(self, text: str) -> bytes:
        """Encode a text like this file, with its byte order mark if it has one."""
        marked = self.content is not None and self.content.startswith(_BYTE_ORDER_MARK.encode())
        try:
            return (_BYTE_ORDER_MARK + text if marked else text).encode()
        except UnicodeEncodeError as error:
            raise ConfigError("a value has characters that cannot be encoded as UTF-8") from error


def read_app_file(file: AppFile) -> AppDocument:
    """Read a file; one that does not exist has no servers.

    Raises:
        ConfigError: it cannot be read or parsed; it should then be left unchanged.
    """
    return _document(file, read_bytes(file.path))


def read_own_file(path: Path) -> AppDocument:
    """Read a configuration file of Trunkline, with ``mcpServers`` or ``servers`` as its key.

    Raises:
        ConfigError: it cannot be read or parsed.
    """
    file = AppFile(app="claude-code", scope="user", path=path)
    document = read_app_file(file)
    if not document.servers and '"servers"' in document.text:
        other = read_app_file(replace(file, key_path=("servers",)))
        return other if other.servers else document
    return document


def _document(file: AppFile, content: bytes | None) -> AppDocument:
    if content is None:
        return AppDocument(file=file)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file.path}: the file is not encoded as UTF-8; save it as UTF-8") from error
    root = parse_document(text, str(file.path), file.key_path)
    if not isinstance(root, dict):
        raise ConfigError(f"{file.path}: expected an object at the top")
    found: Any = root
    for name in file.key_path:
        found = found.get(name, {}) if isinstance(found, dict) else None
        if found is None:
            found = {}
    if not isinstance(found, dict):
        raise ConfigError(f"{file.path}: {'.'.join(file.key_path)}: expected an object with an entry for each server")
    inputs = root.get("inputs")
    return AppDocument(
        file=file,
        content=content,
        text=text,
        servers=MappingProxyType(found),
        inputs=tuple(inputs) if isinstance(inputs, list) else (),
    )
