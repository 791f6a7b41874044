"""Reads the configuration file of another application: its exact text, and the servers in it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.host.apps.places import AppFile
from trunkline.host.apps.rewriting import read_whole
from trunkline.host.config.positions import NotJson, plain, read_json

__all__ = ["AppDocument", "read_app_file"]

_MARK = "\ufeff"


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
        marked = self.content is not None and self.content.startswith(_MARK.encode())
        try:
            return (_MARK + text if marked else text).encode()
        except UnicodeEncodeError as error:
            raise ConfigError("a value has characters that cannot be encoded as UTF-8") from error


def read_app_file(file: AppFile) -> AppDocument:
    """Read a file; one that does not exist has no servers.

    Raises:
        ConfigError: it cannot be read or parsed, and should not be changed then.
    """
    content = read_whole(file.path)
    if content is None:
        return AppDocument(file=file)
    try:
        text = content.decode("utf-8-sig")
        root = plain(read_json(text)) if text.strip() else {}
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file.path}: the file is not encoded as UTF-8; save it as UTF-8") from error
    except NotJson as error:
        raise ConfigError(f"{file.path}:{error.line}:{error.column}: the file is not JSON: {error}") from error
    if not isinstance(root, dict):
        raise ConfigError(f"{file.path}: expected an object at the top")
    found: Any = root
    for name in file.way:
        found = found.get(name, {}) if isinstance(found, dict) else None
        if found is None:
            found = {}
    if not isinstance(found, dict):
        raise ConfigError(f"{file.path}: {'.'.join(file.way)}: expected an object with an entry for each server")
    inputs = root.get("inputs")
    return AppDocument(
        file=file,
        content=content,
        text=text,
        servers=MappingProxyType(found),
        inputs=tuple(inputs) if isinstance(inputs, list) else (),
    )
