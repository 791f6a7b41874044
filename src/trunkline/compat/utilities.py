"""Small helpers of both frameworks: media, loggers, settings, ready-made resources."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from trunkline.compat.types import to_model
from trunkline.server.results import Audio as OwnAudio
from trunkline.server.results import File as OwnFile
from trunkline.server.results import Image as OwnImage

__all__ = [
    "Audio",
    "File",
    "Image",
    "configure_logging",
    "get_logger",
    "settings",
    "temporary_settings",
]


class Image(OwnImage):
    """A picture."""

    def to_image_content(self, mime_type: str | None = None, annotations: Any = None) -> Any:
        """Return the picture as a model."""
        block = super().to_image_content()
        return to_model(block).model_copy(update=_changes(mime_type, annotations))

    @property
    def _mime_type(self) -> str:
        return self.mime_type


class Audio(OwnAudio):
    """A sound."""

    def _type_of_data(self) -> str:
        """Return the type of a file with an unknown ending: both frameworks guess no further."""
        return super()._type_of_data() if self.path is None else "application/octet-stream"

    def to_audio_content(self, mime_type: str | None = None, annotations: Any = None) -> Any:
        """Return the sound as a model."""
        block = super().to_audio_content()
        return to_model(block).model_copy(update=_changes(mime_type, annotations))


class File(OwnFile):
    """A file."""

    def __init__(
        self, path: Any = None, data: Any = None, format: str | None = None, name: str | None = None, **options: Any
    ) -> None:
        """Initialize with a path or bytes; the name of bytes ends with their format."""
        if path is None and name is None:
            name = f"resource.{format}" if format else "resource"
        super().__init__(path, data, format, name=name, **options)

    def to_resource_content(self, mime_type: str | None = None, annotations: Any = None) -> Any:
        """Return the file as a model."""
        return to_model(super().to_resource_content()).model_copy(update=_changes(None, annotations))


def _changes(mime_type: str | None, annotations: Any) -> dict[str, Any]:
    changes = {"mime_type": mime_type, "annotations": annotations}
    return {name: value for name, value in changes.items() if value is not None}


def get_logger(name: str = "fastmcp") -> logging.Logger:
    """Return a logger under the framework's name."""
    return logging.getLogger(name if name.startswith("fastmcp") else f"fastmcp.{name}")


def configure_logging(level: Any = "INFO", logger: logging.Logger | None = None, **_: Any) -> None:
    """Log what the framework and its middleware log to stderr, from a level on."""
    log = logger or logging.getLogger("fastmcp")
    log.setLevel(level)
    log.propagate = False
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-8s %(name)s: %(message)s"))
        log.addHandler(handler)


# --- settings --------------------------------------------------------------------------------------------------------


class _Settings(SimpleNamespace):
    """The process's settings: from ``FASTMCP_...`` variables, or set by hand."""

    def __getattr__(self, name: str) -> Any:
        """Read a variable, or the default."""
        if name.startswith("_"):
            raise AttributeError(name)
        value = os.environ.get(f"FASTMCP_{name.upper()}")
        return _DEFAULTS.get(name) if value is None else value

    def set_setting(self, name: str, value: Any) -> None:
        """Set one."""
        setattr(self, name, value)

    def get_setting(self, name: str) -> Any:
        """Return one."""
        return getattr(self, name)


class _Defaults(dict[str, Any]):
    """The defaults of settings."""


def _defaults() -> dict[str, Any]:
    return _Defaults(
        host="127.0.0.1",
        port=8000,
        log_level="INFO",
        log_enabled=True,
        test_mode=False,
        sse_path="/sse",
        message_path="/messages/",
        streamable_http_path="/mcp",
        mask_error_details=False,
        stateless_http=False,
        json_response=False,
        home=Path.home() / ".local" / "share" / "fastmcp",
        ssrf_trust_proxy=False,
        show_server_banner=True,
        telemetry_mode="native",
    )


_DEFAULTS = _defaults()
settings = _Settings()


@contextmanager
def temporary_settings(**changes: Any) -> Iterator[None]:
    """Change settings for a while."""
    before = {name: settings.__dict__.get(name) for name in changes}
    for name, value in changes.items():
        setattr(settings, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                settings.__dict__.pop(name, None)
            else:
                setattr(settings, name, value)
