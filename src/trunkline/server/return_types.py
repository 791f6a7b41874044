"""What a return annotation promises: nothing, a value msgspec knows, or one pydantic knows.

It knows annotations, no requests. Content (text blocks, images, whole results) and what neither engine can describe
promise nothing, and have no schema.
"""

from __future__ import annotations

from collections import abc
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, NoReturn, Union, get_args, get_origin

from trunkline.server.hints import peel, survey
from trunkline.server.mismatch import ResultError
from trunkline.server.native_types import UntypedResult, adapt, find_infinite, native_result, unsupported
from trunkline.types import CallToolResult, ContentBlock, ResourceContents

if TYPE_CHECKING:
    from trunkline.server.pydantic_types import PydanticReader

__all__ = ["PydanticResult", "result_of"]

_SILENT: tuple[Any, ...] = (None, NoneType, Any, object, NoReturn, bytes, bytearray, memoryview)
_SEQUENCES = (list, tuple, set, frozenset, abc.Sequence, abc.Iterable, abc.Collection)


class PydanticResult(UntypedResult):
    """A result whose type pydantic knows."""

    __slots__ = ("_reader",)

    described = True

    def __init__(self, reader: PydanticReader) -> None:
        """Take the reader of the type."""
        self._reader = reader

    def schema(self) -> dict[str, Any] | None:
        """Make the JSON Schema of what is written."""
        return self._reader.result_schema()

    def encode(self, value: object) -> bytes:
        """Write a value as JSON after checking it.

        Raises:
            ResultError: it is not what the annotation says.
        """
        try:
            data = self._reader.write(value)
        except ValueError as refusal:
            raise _result_error(refusal) from None
        if b"null" in data:
            find_infinite(self._reader.plain(value))
        return data


def result_of(annotation: object, *, content_types: tuple[type, ...] = ()) -> UntypedResult:
    """Choose how results of a return annotation are described and checked."""
    annotation = _awaited(annotation)
    if _is_silent(annotation, (*content_types, *get_args(ContentBlock), CallToolResult, ResourceContents)):
        return UntypedResult()
    found = survey((annotation,))
    try:
        if found.from_pydantic:
            from trunkline.server.pydantic_types import PydanticReader

            return PydanticResult(PydanticReader(annotation))
        return native_result(adapt(annotation)) if unsupported(found) is None else UntypedResult()
    except (TypeError, RuntimeError):
        # A return type neither engine knows promises nothing; the value may still be one that can be written.
        # pydantic's own refusals are both kinds.
        return UntypedResult()


def _awaited(annotation: object) -> Any:
    inner, _ = peel(annotation)
    if get_origin(inner) in (abc.Awaitable, abc.Coroutine):
        return _awaited(get_args(inner)[-1])
    return annotation


def _is_silent(annotation: object, content_types: tuple[type, ...]) -> bool:
    inner, _ = peel(annotation)
    if inner in _SILENT or inner in _SEQUENCES:
        return True
    # A list of anything may hold content, which no schema describes.
    if get_origin(inner) in _SEQUENCES and all(part in (Any, object, ...) for part in get_args(inner)):
        return True
    return _has_content(inner, content_types)


def _has_content(annotation: object, content_types: tuple[type, ...]) -> bool:
    inner, _ = peel(annotation)
    origin = get_origin(inner)
    if origin in (Union, UnionType) or origin in _SEQUENCES:
        return any(_has_content(part, content_types) for part in get_args(inner))
    kind = origin or inner
    return inner in (bytes, bytearray, memoryview) or (isinstance(kind, type) and issubclass(kind, content_types))


def _result_error(refusal: ValueError) -> ResultError:
    from trunkline.server.pydantic_types import complaint

    if not hasattr(refusal, "errors"):
        return ResultError(f"cannot be written as JSON: {refusal}")
    path, sentence = complaint(refusal)
    return ResultError(sentence, path=path)
