"""A conversation in a file: the messages, their servers, and the cost; readable by its owner only."""

from __future__ import annotations

import os

import msgspec
from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.host.chat.history import Kept, consistent
from trunkline.host.models.interface import Usage
from trunkline.host.state_files import write_private

__all__ = ["Saved", "read_saved", "write_saved"]

_FORMAT = 1
_MOST_BYTES = 256 * 1024 * 1024


class Saved(Struct, frozen=True, kw_only=True):
    """A saved conversation."""

    format: int = _FORMAT
    #: The model that was used last, as ``provider:model``.
    model: str
    #: The name of the folder with its spilled outputs.
    outputs: str
    messages: tuple[Kept, ...] = ()
    usage: Usage = Usage()
    cost: float | None = None
    #: How many of the oldest messages are no longer sent to the model.
    left_out: int = 0
    #: The ids of outputs with whole results, by the id of the call.
    kept_as: dict[str, str] = {}


def write_saved(saved: Saved, path: str | os.PathLike[str]) -> None:
    """Save a conversation to a file, atomically."""
    write_private(os.path.abspath(path), msgspec.json.format(msgspec.json.encode(saved), indent=1))


def read_saved(path: str | os.PathLike[str]) -> Saved:
    """Load a conversation; one that ends within a turn is completed, so that it can continue.

    Raises:
        ConfigError: the file cannot be read, or is not a saved conversation.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES)
        saved = msgspec.json.decode(content, type=Saved)
    except OSError as error:
        raise ConfigError(f"{os.fspath(path)}: the conversation cannot be read: {error.strerror}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{os.fspath(path)}: not a saved conversation: {error}") from error
    if saved.format != _FORMAT:
        raise ConfigError(f"{os.fspath(path)}: saved in format {saved.format}; this version reads format {_FORMAT}.")
    messages = tuple(consistent(saved.messages))
    return msgspec.structs.replace(saved, messages=messages, left_out=_within(saved.left_out, messages))


def _within(left_out: int, messages: tuple[Kept, ...]) -> int:
    """Return ``left_out`` if it is at a message of the person, as every request must begin; otherwise 0."""
    fits = 0 <= left_out < len(messages) and messages[left_out].message.role == "user"
    return left_out if fits else 0
