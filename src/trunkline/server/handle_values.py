"""The values behind handles: their types, their JSON, and whether they can change.

It knows types, but neither requests nor stores. A type is identified by its module and name, which stay the same when
the program is restarted.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, time, timedelta
from enum import Enum
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Generic, TypeVar, Union, get_args, get_origin

from msgspec import Raw, Struct

from trunkline.server.annotations import strip_annotated, survey
from trunkline.server.msgspec_types import MsgspecReader, MsgspecResult, adapt, find_unsupported
from trunkline.server.validation_errors import InvalidResult

__all__ = ["PREFIX_CHARACTERS", "ValueCodec", "codec_of", "is_immutable"]

T = TypeVar("T")

PREFIX_CHARACTERS = 24  # Characters of the type name in a handle: short, since models have to repeat them.
_SCALARS = (str, int, float, bytes, NoneType, date, time, timedelta, Enum)


class ValueCodec(Generic[T]):
    """Reads and writes the values of one type as JSON, with msgspec or pydantic."""

    __slots__ = ("_read", "_write", "kind", "name", "prefix")

    def __init__(self, kind: Any) -> None:
        """Create the codec.

        Raises:
            TypeError: neither msgspec nor pydantic supports the type.
        """
        #: The identifier of the type, and its display name. The arguments of a generic type are omitted: they cannot be
        #: derived from a value.
        self.kind: str
        self.name: str
        self.kind, self.name = _names(kind)
        #: The prefix of its handles, so that a model can distinguish them.
        self.prefix: str = "".join(filter(_is_letter, self.name.lower()))[:PREFIX_CHARACTERS] or "handle"
        found = survey((kind,))
        if found.from_pydantic:
            from trunkline.server.pydantic_types import PydanticReader
            from trunkline.server.signatures import PydanticResult

            reader = PydanticReader(kind)
            self._read: Callable[[Raw], Any] = reader.read
            self._write: Callable[[object], bytes] = PydanticResult(reader).encode
            return
        if (unsupported := find_unsupported(found)) is not None:
            raise TypeError(
                f"{unsupported.__qualname__} cannot be stored as JSON; use a dataclass, TypedDict, msgspec.Struct or "
                "pydantic model"
            )
        self._read = MsgspecReader(adapt(kind)).read
        self._write = MsgspecResult(adapt(kind)).encode

    def read(self, data: Raw) -> T:
        """Decode a value.

        Raises:
            InvalidArguments: it does not match the type, which has changed since the value was written.
        """
        value: T = self._read(data)
        return value

    def write(self, value: T) -> bytes:
        """Encode a value as JSON.

        Raises:
            TypeError: it does not match the type.
        """
        try:
            return self._write(value)
        except InvalidResult as error:
            raise TypeError(f"the value of the handle does not match {self.name}: {error}") from error


def codec_of(kind: Any) -> ValueCodec[Any]:
    """Return the codec of a type, cached if possible.

    Raises:
        TypeError: the type is not supported.
    """
    try:
        hash(kind)
    except TypeError:
        # Some pydantic metadata is not hashable.
        return ValueCodec(kind)
    return _cached_codec(kind)


@lru_cache(maxsize=1024)
def _cached_codec(kind: Any) -> ValueCodec[Any]:
    return ValueCodec(kind)


def _is_letter(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")


def _names(kind: Any) -> tuple[str, str]:
    """Return the identifier of a type, and its display name."""
    inner, _ = strip_annotated(kind)
    origin = get_origin(inner)
    if origin in (Union, UnionType):
        parts = sorted(map(_names, get_args(inner)))
        return " | ".join(whole for whole, _ in parts), " or ".join(short for _, short in parts)
    inner = inner if origin is None else origin
    name = getattr(inner, "__qualname__", None) or getattr(inner, "__name__", None) or repr(inner)
    return f"{getattr(inner, '__module__', '')}.{name}", name.rpartition(".")[2]


def is_immutable(value: object) -> bool:
    """Return True if a value and everything in it is immutable."""
    if isinstance(value, _SCALARS):
        return True
    kind: Any = type(value)
    if isinstance(value, tuple | frozenset):
        return all(map(is_immutable, value))
    if isinstance(value, Struct):
        names, frozen = kind.__struct_fields__, kind.__struct_config__.frozen
    elif hasattr(kind, "__dataclass_params__"):
        names, frozen = kind.__dataclass_fields__, kind.__dataclass_params__.frozen
    elif hasattr(kind, "model_fields"):
        names, frozen = kind.model_fields, kind.model_config.get("frozen", False)
    else:
        return False
    return frozen and all(is_immutable(getattr(value, name)) for name in names)
