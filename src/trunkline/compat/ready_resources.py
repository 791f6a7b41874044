"""Resources that need no function: texts, bytes, files, folders and pages, as each framework has them."""

from __future__ import annotations

import asyncio
import codecs
import json
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationInfo, field_validator, model_validator

from trunkline.compat.components import Resource
from trunkline.compat.exceptions import ResourceError
from trunkline.compat.official_resources import OfficialResourceObject
from trunkline.compat.results import ResourceContent, ResourceResult
from trunkline.compat.versions import STATE

__all__ = [
    "BinaryResource",
    "DirectoryResource",
    "FileResource",
    "HttpResource",
    "OfficialBinaryResource",
    "OfficialDirectoryResource",
    "OfficialFileResource",
    "OfficialHttpResource",
    "OfficialTextResource",
    "TextResource",
]


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("Path must be absolute")
    return path


class _Ready(Resource):
    """A resource of FastMCP's whose ``read`` returns a whole result."""

    def _result(self, content: str | bytes) -> ResourceResult:
        from trunkline.compat.resource_definitions import public_meta

        return ResourceResult([ResourceContent(content, self.mime_type, public_meta(self.meta))])


class TextResource(_Ready):
    """A fixed text."""

    text: str

    async def read(self) -> Any:
        """Return the text."""
        return self._result(self.text)


class BinaryResource(_Ready):
    """Fixed bytes."""

    data: bytes

    async def read(self) -> Any:
        """Return the bytes."""
        return self._result(self.data)


class FileResource(_Ready):
    """A file of this machine."""

    path: Path
    is_binary: bool = False
    encoding: str = "utf-8"

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: Path) -> Path:
        return _absolute(path)

    @model_validator(mode="after")
    def _infer_binary(self) -> FileResource:
        if "is_binary" not in self.model_fields_set and not self.mime_type.startswith("text/"):
            self.is_binary = True
        return self

    async def read(self) -> Any:
        """Return the contents of the file.

        Raises:
            ResourceError: it cannot be read.
        """
        try:
            if self.is_binary:
                return self._result(await asyncio.to_thread(self.path.read_bytes))
            return self._result(await asyncio.to_thread(self.path.read_text, self.encoding))
        except (OSError, UnicodeDecodeError) as error:
            raise ResourceError(f"Error reading file {self.path}") from error


class HttpResource(_Ready):
    """A page of the web."""

    url: str
    mime_type: str = "application/json"

    async def read(self) -> Any:
        """Fetch the page."""
        return self._result(await _fetched(self.url))


class DirectoryResource(_Ready):
    """The files of a folder."""

    path: Path
    recursive: bool = False
    pattern: str | None = None
    mime_type: str = Field(default="application/json")

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: Path) -> Path:
        return _absolute(path)

    def list_files(self) -> list[Path]:
        """Return the files."""
        return _files(self.path, self.pattern, self.recursive)

    async def read(self) -> Any:
        """Return the names of the files as JSON.

        Raises:
            ResourceError: the folder cannot be read.
        """
        try:
            return self._result(_file_names(self.path, self.list_files()))
        except OSError as error:
            raise ResourceError(f"Error reading directory {self.path}") from error


async def _fetched(url: str) -> str:
    try:
        import httpx2 as httpx
    except ImportError:
        import httpx  # type: ignore[import-not-found, no-redef, unused-ignore]

    async with httpx.AsyncClient() as client:
        response = await client.get(url)
        response.raise_for_status()
        text: str = response.text
        return text


def _files(path: Path, pattern: str | None, recursive: bool) -> list[Path]:
    if not path.exists():
        raise FileNotFoundError(f"Directory not found: {path}")
    if not path.is_dir():
        raise NotADirectoryError(f"Not a directory: {path}")
    return list(path.rglob(pattern or "*") if recursive else path.glob(pattern or "*"))


def _file_names(path: Path, files: list[Path]) -> str:
    return json.dumps({"files": [str(each.relative_to(path)) for each in files if each.is_file()]}, indent=2)


# --- the official SDK ------------------------------------------------------------------------------------------------


class OfficialTextResource(OfficialResourceObject):
    """A fixed text."""

    text: str

    async def read(self) -> Any:
        """Return the text."""
        return self.text


class OfficialBinaryResource(OfficialResourceObject):
    """Fixed bytes."""

    data: bytes

    async def read(self) -> Any:
        """Return the bytes."""
        return self.data


class OfficialFileResource(OfficialResourceObject):
    """A file of this machine: text in an encoding, or bytes if it has none."""

    path: Path
    #: Version 2: by default what the MIME type says.
    encoding: str | None = None
    #: Version 1: by default what the MIME type says.
    is_binary: bool | None = None

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: Path) -> Path:
        return _absolute(path)

    @field_validator("is_binary")
    @classmethod
    def _check_binary(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and not STATE.camel_case:
            raise ValueError("is_binary was removed: pass encoding=None for bytes")
        return value

    @field_validator("encoding")
    @classmethod
    def _check_encoding(cls, value: str | None) -> str | None:
        return None if value is None else _text_encoding(value)

    @model_validator(mode="after")
    def _infer_encoding(self) -> OfficialFileResource:
        if STATE.camel_case:
            if not self.is_binary:
                self.is_binary = not self.mime_type.startswith("text/")
            self.encoding = None if self.is_binary else "utf-8"
        elif "encoding" not in self.model_fields_set:
            self.encoding = _encoding_of(self.mime_type)
        return self

    async def read(self) -> Any:
        """Return the contents of the file.

        Raises:
            OSError: it cannot be read; in version 1 a ValueError.
        """
        try:
            if self.encoding is None:
                return await asyncio.to_thread(self.path.read_bytes)
            return await asyncio.to_thread(self.path.read_text, self.encoding)
        except OSError as error:
            if STATE.camel_case:
                raise ValueError(f"Error reading file {self.path}: {error}") from error
            raise


def _text_encoding(name: str) -> str:
    try:
        info = codecs.lookup(name)
    except LookupError:
        raise ValueError(f"unknown encoding: {name}") from None
    if not getattr(info, "_is_text_encoding", True):
        raise ValueError(f"{name} is not a text encoding")
    return name


def _encoding_of(mime_type: str) -> str | None:
    """Return the encoding that a MIME type says or lets expect, or None for bytes."""
    essence, *parameters = (part.strip() for part in mime_type.split(";"))
    for each in parameters:
        name, _, value = each.partition("=")
        if name.strip().lower() == "charset":
            return _text_encoding(value.strip().strip('"'))
    essence = essence.lower()
    is_text = essence.startswith("text/") or essence in ("application/json", "application/xml")
    return "utf-8-sig" if is_text or essence.endswith(("+json", "+xml")) else None


class OfficialHttpResource(OfficialResourceObject):
    """A page of the web."""

    url: str
    mime_type: str = "application/json"

    async def read(self) -> Any:
        """Fetch the page."""
        return await _fetched(self.url)


class OfficialDirectoryResource(OfficialResourceObject):
    """The files of a folder."""

    path: Path
    recursive: bool = False
    pattern: str | None = None
    mime_type: str = "application/json"

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: Path) -> Path:
        return _absolute(path)

    def list_files(self) -> list[Path]:
        """Return the files."""
        return _files(self.path, self.pattern, self.recursive)

    async def read(self) -> Any:
        """Return the names of the files as JSON."""
        return _file_names(self.path, await asyncio.to_thread(self.list_files))
