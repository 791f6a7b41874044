"""What a function returns: its schema, and its value checked and written as JSON.

It knows annotations and values, no requests. A value that its annotation does not allow never leaves: msgspec would
trust an instance without looking inside, so what was written is read back with the same type.
"""

from __future__ import annotations

import math
from collections import abc
from datetime import date, datetime, time, timedelta
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, NoReturn, Union, get_args, get_origin

import msgspec

from trunkline.server.hints import peel, survey
from trunkline.server.mismatch import ResultError, join_path
from trunkline.server.native_types import REFUSALS, NativeReader, adapt, unsupported, write_other

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.server.pydantic_types import PydanticReader

__all__ = ["NativeResult", "PydanticResult", "UntypedResult", "result_of"]

_SILENT: tuple[Any, ...] = (None, NoneType, Any, object, NoReturn, bytes, bytearray, memoryview)
_SCALARS: frozenset[Any] = frozenset({str, int, float, bool, datetime, date, time, timedelta})
_SEQUENCES = (list, tuple, set, frozenset, abc.Sequence, abc.Iterable, abc.Collection)


class UntypedResult:
    """The result of a function that promises nothing about it."""

    __slots__ = ()

    def schema(self) -> dict[str, Any] | None:
        """Give none: there is nothing to describe."""
        return None

    def encode(self, value: Any) -> bytes:
        """Write a value as JSON.

        Raises:
            ResultError: it cannot be written.
        """
        data = _written(value)
        _check_finite(value, data)
        return data


class NativeResult(UntypedResult):
    """A result whose type msgspec knows."""

    __slots__ = ("_check", "_holds_floats", "_reader")

    def __init__(self, annotation: Any) -> None:
        """Choose the cheapest check that looks inside."""
        self._reader = NativeReader(annotation)
        found = survey((annotation,))
        self._holds_floats = not found.classes.isdisjoint((float, Any, object, dict, list, tuple))
        inner, _ = peel(annotation)
        self._check: Callable[[Any], bytes]
        if inner in _SCALARS if isinstance(inner, type) else False:
            self._check = lambda value: msgspec.json.encode(msgspec.convert(value, annotation))
        else:
            self._check = self._written_and_read

    def schema(self) -> dict[str, Any] | None:
        """Make the JSON Schema of the value."""
        return self._reader.schema()

    def encode(self, value: Any) -> bytes:
        """Write a value as JSON after checking it.

        Raises:
            ResultError: it is not what the annotation says.
        """
        try:
            data = self._check(value)
        except REFUSALS as refusal:
            path, sentence = self._reader.explain(refusal)
            raise ResultError(sentence, path=path) from None
        if self._holds_floats:
            _check_finite(value, data)
        return data

    def _written_and_read(self, value: Any) -> bytes:
        data = _written(value)
        try:
            self._reader._decode(data)
        except REFUSALS:
            # A NaN was written as null; to say that a number was expected and null came would mislead.
            _check_finite(value, data)
            raise
        return data


class PydanticResult(UntypedResult):
    """A result whose type pydantic knows."""

    __slots__ = ("_reader",)

    def __init__(self, reader: PydanticReader) -> None:
        """Take the reader of the type."""
        self._reader = reader

    def schema(self) -> dict[str, Any] | None:
        """Make the JSON Schema of what is written."""
        return self._reader.result_schema()

    def encode(self, value: Any) -> bytes:
        """Write a value as JSON after checking it.

        Raises:
            ResultError: it is not what the annotation says.
        """
        try:
            data = self._reader.write(value)
        except ValueError as refusal:
            raise _result_error(refusal) from None
        if b"null" in data:
            _find_infinite(self._reader.plain(value))
        return data


def result_of(annotation: Any, *, content_types: tuple[type, ...] = ()) -> UntypedResult:
    """Choose how results of a return annotation are described and checked."""
    annotation = _awaited(annotation)
    if _is_silent(annotation, content_types):
        return UntypedResult()
    found = survey((annotation,))
    try:
        if found.from_pydantic:
            from trunkline.server.pydantic_types import PydanticReader

            return PydanticResult(PydanticReader(annotation))
        return NativeResult(adapt(annotation)) if unsupported(found) is None else UntypedResult()
    except (TypeError, RuntimeError):
        # A return type neither engine knows promises nothing; the value may still be one that can be written.
        # pydantic's own refusals are both kinds.
        return UntypedResult()


def _awaited(annotation: Any) -> Any:
    inner, _ = peel(annotation)
    if get_origin(inner) in (abc.Awaitable, abc.Coroutine):
        return _awaited(get_args(inner)[-1])
    return annotation


def _is_silent(annotation: Any, content_types: tuple[type, ...]) -> bool:
    inner, _ = peel(annotation)
    if inner in _SILENT:
        return True
    return _has_content(inner, content_types)


def _has_content(annotation: Any, content_types: tuple[type, ...]) -> bool:
    inner, _ = peel(annotation)
    origin = get_origin(inner)
    if origin in (Union, UnionType) or origin in _SEQUENCES:
        return any(_has_content(part, content_types) for part in get_args(inner))
    kind = origin or inner
    return inner in (bytes, bytearray, memoryview) or (isinstance(kind, type) and issubclass(kind, content_types))


def _written(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=write_other)
    except (TypeError, ValueError, OverflowError, RecursionError, UnicodeError) as failure:
        raise ResultError(f"cannot be written as JSON: {failure}") from failure


def _result_error(refusal: ValueError) -> ResultError:
    from trunkline.server.pydantic_types import complaint

    if not hasattr(refusal, "errors"):
        return ResultError(f"cannot be written as JSON: {refusal}")
    path, sentence = complaint(refusal)
    return ResultError(sentence, path=path)


def _check_finite(value: Any, data: bytes) -> None:
    """Refuse NaN and the infinities, which JSON cannot say and msgspec writes as null."""
    if b"null" in data:
        _find_infinite(msgspec.to_builtins(value, enc_hook=write_other, builtin_types=(), str_keys=True))


def _find_infinite(value: Any) -> None:
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while waiting:
        steps, here = waiting.pop()
        if isinstance(here, float):
            if not math.isfinite(here):
                raise ResultError("expected a finite number", path=join_path(steps))
        elif isinstance(here, dict):
            waiting.extend(((*steps, name), item) for name, item in here.items())
        elif isinstance(here, (list, tuple)):
            waiting.extend(((*steps, index), item) for index, item in enumerate(here))
