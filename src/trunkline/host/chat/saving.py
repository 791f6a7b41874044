"""A conversation in a file: what was said, where it came from, what it cost; readable by its owner alone."""

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
    """What is kept of a conversation."""

    format: int = _FORMAT
    #: The model that was used last, as ``provider:model``.
    model: str
    #: Names the folder of its outputs.
    outputs: str
    messages: tuple[Kept, ...] = ()
    usage: Usage = Usage()
    cost: float | None = None
    #: How many of the oldest messages are not sent to the model any more.
    left_out: int = 0
    #: The outputs in which results are kept whole, by the id of the call.
    kept_as: dict[str, str] = {}


def write_saved(saved: Saved, path: str | os.PathLike[str]) -> None:
    """Write a conversation to a file, whole or not at all."""
    write_private(os.path.abspath(path), msgspec.json.format(msgspec.json.encode(saved), indent=1))


def read_saved(path: str | os.PathLike[str]) -> Saved:
    """Read a conversation; one that ends within a turn is completed, so that it can go on.

    Raises:
        ConfigError: the file cannot be read, or holds no conversation.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES)
        saved = msgspec.json.decode(content, type=Saved)
    except OSError as error:
        raise ConfigError(f"{os.fspath(path)}: the conversation cannot be read: {error.strerror}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{os.fspath(path)}: this is no saved conversation: {error}") from error
    if saved.format != _FORMAT:
        raise ConfigError(f"{os.fspath(path)}: saved in format {saved.format}, and format {_FORMAT} is read here.")
    messages = tuple(consistent(saved.messages))
    return msgspec.structs.replace(saved, messages=messages, left_out=_within(saved.left_out, messages))


def _within(left_out: int, messages: tuple[Kept, ...]) -> int:
    """Begin at a message of the person's, as every request must."""
    fits = 0 <= left_out < len(messages) and messages[left_out].message.role == "user"
    return left_out if fits else 0
