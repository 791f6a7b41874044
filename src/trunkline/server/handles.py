"""Handles: references to typed values that outlive a call; the model passes them back as text arguments.

Handlers use ``Handle``, and sync functions in worker threads ``BlockingHandle``. A parameter annotated with either is
text on the wire; this module finds such parameters in a signature. Handles are created, opened and stored by
``handle_service``, which is imported on first use.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, get_args, get_origin

from trunkline.server.annotations import optional_of, strip_annotated, survey

if TYPE_CHECKING:
    from trunkline.server.blocking_context import BlockingContext
    from trunkline.server.handle_service import OpenHandle
    from trunkline.server.handle_values import ValueCodec

__all__ = ["HANDLE_CLASSES", "BlockingHandle", "Handle", "HandleParameter", "take_parameters"]

T = TypeVar("T")

#: The description in the schema of a result, where the type of the value is not known.
RESULT_DESCRIPTION = "A handle: pass this text unchanged to the tools that accept it."


class _BaseHandle(Generic[T]):
    """The non-blocking members of both handle classes."""

    __slots__ = ("_opened",)

    def __init__(self, opened: OpenHandle[T]) -> None:
        """Wrap an open handle; internal: handlers get handles from ``ctx.handle`` and as arguments."""
        self._opened = opened

    @property
    def id(self) -> str:
        """The text for the model. Anyone who may call the server as the same principal can use it."""
        return self._opened.id

    @property
    def value(self) -> T:
        """The last value that this call has seen; only ``edit`` and ``set`` save changes."""
        return self._opened.value

    def __str__(self) -> str:
        """Return the text for the model."""
        return self._opened.id

    def __repr__(self) -> str:
        """Return the class and the type, without the text, which must not appear in logs."""
        return f"{type(self).__name__}[{self._opened.codec.name}]"

    def __protocol_result__(self) -> str:
        """Return the text, as the result of a handler that returns a handle."""
        return self._opened.id

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> Any:
        """Return the core schema for a handle in a result: its text."""
        from pydantic_core import core_schema

        return core_schema.is_instance_schema(_BaseHandle, serialization=core_schema.to_string_ser_schema())

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: object, handler: object) -> dict[str, Any]:
        """Return the JSON Schema of a handle in a result."""
        return {"type": "string", "description": RESULT_DESCRIPTION}


class Handle(_BaseHandle[T]):
    """A value that outlives the call; created by ``await ctx.handle(value)``, accepted by a parameter ``Handle[T]``."""

    __slots__ = ()

    def edit(self) -> AbstractAsyncContextManager[T]:
        """Change the value: ``async with cart.edit() as value``.

        The block gets the currently stored value, and other calls that change it wait. The value is saved at the end of
        the block, unless the block raises.

        Raises:
            InvalidHandle: it has expired or was deleted.
            HandleConflict: another process changed it meanwhile, or waiting for other calls timed out.
            TypeError: the value is immutable.
        """
        return self._edit()

    @asynccontextmanager
    async def _edit(self) -> AsyncIterator[T]:
        value = await self._opened.begin_edit()
        try:
            yield value
            await self._opened.save_edit(value)
        finally:
            self._opened.end_edit()

    async def set(self, value: T) -> None:
        """Replace the value, if it has not changed since this call has seen it.

        Raises:
            InvalidHandle: it has expired or was deleted.
            HandleConflict: another call has changed it since.
            TypeError: the handle cannot be changed.
        """
        await self._opened.set(value)

    async def delete(self) -> None:
        """Delete the value; the handle becomes invalid.

        Raises:
            TypeError: the handle cannot be deleted.
        """
        await self._opened.delete()


class BlockingHandle(_BaseHandle[T]):
    """The handle of a sync function in a worker thread: the same methods, as blocking calls."""

    __slots__ = ("_context",)

    def __init__(self, opened: OpenHandle[T], context: BlockingContext) -> None:
        """Wrap an open handle."""
        super().__init__(opened)
        self._context = context

    def edit(self) -> AbstractContextManager[T]:
        """Change the value: ``with cart.edit() as value``; see ``Handle.edit``."""
        return self._edit()

    @contextmanager
    def _edit(self) -> Iterator[T]:
        wait = self._context._wait
        value = wait(self._opened.begin_edit())
        try:
            yield value
            wait(self._opened.save_edit(value))
        finally:
            # Not awaited: even if the request has ended, other calls must be able to continue.
            with suppress(RuntimeError):
                self._context._loop.call_soon_threadsafe(self._opened.end_edit)

    def set(self, value: T) -> None:
        """Replace the value, if it has not changed since this call has seen it; see ``Handle.set``."""
        self._context._wait(self._opened.set(value))

    def delete(self) -> None:
        """Delete the value; see ``Handle.delete``."""
        self._context._wait(self._opened.delete())


HANDLE_CLASSES = frozenset({Handle, BlockingHandle})


class HandleParameter:
    """A parameter of a function that is a handle."""

    __slots__ = ("codec", "name")

    def __init__(self, name: str, codec: ValueCodec[Any]) -> None:
        """Create a parameter; the codec decodes its values."""
        self.name: str = name
        self.codec: ValueCodec[Any] = codec

    @property
    def description(self) -> str:
        """The default description of the parameter."""
        return f"A handle of type {self.codec.name}: the text from an earlier result, unchanged."


def read_result(kind: Any, value: object) -> _BaseHandle[Any]:
    """Return an empty handle for a text, to validate a result that contains a handle.

    Raises:
        ValueError: it is not text.
    """
    if not isinstance(value, str):
        raise ValueError("expected a handle")
    handle: _BaseHandle[Any] = object.__new__(get_origin(kind) or kind)
    return handle


def take_parameters(given: list[tuple[str, Any, Any]], label: str) -> tuple[HandleParameter, ...]:
    """Return the parameters that are handles, and replace their annotations by ``str``.

    Raises:
        TypeError: a value has a type that cannot be stored, or a handle is inside another type.
    """
    found: list[HandleParameter] = []
    for index, (name, annotation, default) in enumerate(given):
        kind = _value_type(annotation)
        if kind is not None:
            from trunkline.server.handle_values import codec_of

            try:
                found.append(HandleParameter(name, codec_of(kind)))
            except TypeError as error:
                raise TypeError(f"{label}: parameter {name!r}: {error}") from error
            given[index] = name, _as_text(annotation), default
        elif not HANDLE_CLASSES.isdisjoint(survey((annotation,)).classes):
            raise TypeError(
                f"{label}: parameter {name!r}: a handle needs the type of its value and cannot be inside another type; "
                "use Handle[T] or Handle[T] | None"
            )
    return tuple(found)


def _value_type(annotation: Any) -> Any | None:
    """Return ``T`` for ``Handle[T]`` and ``Handle[T] | None``, with or without metadata; None for any other."""
    inner, _ = strip_annotated(annotation)
    optional = optional_of(inner)
    if optional is not None:
        return _value_type(optional)
    return get_args(inner)[0] if get_origin(inner) in HANDLE_CLASSES else None


def _as_text(annotation: Any) -> Any:
    """Return the annotation with ``str`` in place of the handle."""
    inner, metadata = strip_annotated(annotation)
    optional = optional_of(inner)
    text: Any = str if optional is None else _as_text(optional) | None
    for item in metadata:
        text = Annotated[text, item]
    return text
