"""Annotations, resolved and looked through: which classes, literals and metadata a type is made of.

It knows no engine. `resolve_hints` turns strings into types at a fraction of the cost of `typing.get_type_hints`, which
it falls back to; `survey` walks a type with everything inside it, dataclass fields too, once.
"""

from __future__ import annotations

import builtins
import sys
import typing
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, ForwardRef, Literal, Union, get_args, get_origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "BUILTIN_TYPES",
    "TypeSurvey",
    "is_record",
    "optional_of",
    "pydantic_module",
    "resolve_hints",
    "strip_annotated",
    "survey",
]

#: What needs no look inside.
BUILTIN_TYPES: frozenset[Any] = frozenset(
    {str, int, float, bool, NoneType, bytes, list, dict, tuple, set, frozenset, Any}
)

_UNIONS = (Union, UnionType)


class TypeSurvey:
    """Everything found inside some annotations."""

    __slots__ = ("classes", "literals", "metadata")

    def __init__(self) -> None:
        """Start with nothing found."""
        self.classes: set[Any] = set()
        self.literals: list[tuple[Any, ...]] = []
        self.metadata: list[Any] = []

    @property
    def from_pydantic(self) -> bool:
        """Whether something of it only pydantic understands."""
        return any(map(_is_pydantic_class, self.classes)) or any(map(_is_pydantic_metadata, self.metadata))


def pydantic_module() -> Any:
    """Give pydantic if the program has imported it, else none; it is never imported here."""
    return sys.modules.get("pydantic")


def _is_pydantic_class(kind: object) -> bool:
    return "pydantic" in sys.modules and (
        hasattr(kind, "__pydantic_validator__") or hasattr(kind, "__get_pydantic_core_schema__")
    )


def _is_pydantic_metadata(item: object) -> bool:
    return type(item).__module__.partition(".")[0] in ("pydantic", "pydantic_core", "annotated_types")


def resolve_hints(function: Callable[..., object]) -> dict[str, Any]:
    """Give the annotations of a function as types, looking into the enclosing function's names if need be.

    Raises:
        NameError: an annotation names what cannot be found at run time.
    """
    scope = getattr(function, "__globals__", None)
    if scope is None or hasattr(function, "__wrapped__"):
        return typing.get_type_hints(function, include_extras=True)
    try:
        hints = {name: _evaluate(note, scope) for name, note in function.__annotations__.items()}
        if not any(_is_unresolved(note) for note in hints.values()):
            return hints
        return typing.get_type_hints(function, include_extras=True)
    except NameError:
        names = _enclosing_names(function)
        if names is None:
            raise
        return typing.get_type_hints(function, localns=names, include_extras=True)


def _evaluate(note: object, scope: dict[str, object]) -> Any:
    if isinstance(note, str):
        # Most annotations are one name, which needs no compiling.
        note = scope[note] if note in scope else getattr(builtins, note, None) or eval(note, scope)
    return NoneType if note is None else note


def _is_unresolved(note: Any) -> bool:
    """Whether a name is still unresolved somewhere inside."""
    if type(note) is type:
        return False
    if isinstance(note, (str, ForwardRef)):
        return True
    origin = get_origin(note)
    if origin is Annotated:
        return _is_unresolved(note.__origin__)
    return origin is not None and origin is not Literal and any(_is_unresolved(part) for part in get_args(note))


def _enclosing_names(function: Callable[..., object]) -> dict[str, Any] | None:
    """Find the local names of the function a function is defined in, while that one still runs."""
    outer, nested, _ = function.__qualname__.rpartition(".<locals>.")
    if not nested:
        return None
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_qualname == outer and frame.f_globals is function.__globals__:
            return dict(frame.f_locals)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def strip_annotated(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """Take the metadata off an annotation."""
    if type(annotation) is type:
        return annotation, ()
    if get_origin(annotation) is Annotated:
        return annotation.__origin__, annotation.__metadata__
    return annotation, ()


def optional_of(annotation: object) -> Any | None:
    """Give ``T`` of ``T | None``, or none for any other type."""
    if get_origin(annotation) not in _UNIONS:
        return None
    rest = [part for part in get_args(annotation) if part is not NoneType]
    return rest[0] if len(rest) == 1 and len(get_args(annotation)) == 2 else None


def survey(annotations: Iterable[Any]) -> TypeSurvey:
    """Walk annotations and everything inside them."""
    found = TypeSurvey()
    waiting = list(annotations)
    while waiting:
        note = waiting.pop()
        if type(note) is type and note in BUILTIN_TYPES:
            found.classes.add(note)
            continue
        origin = get_origin(note)
        if origin is Annotated:
            found.metadata.extend(note.__metadata__)
            waiting.append(note.__origin__)
        elif origin is Literal:
            found.literals.append(get_args(note))
        elif origin is not None:
            waiting.extend(get_args(note))
            if origin not in _UNIONS:
                waiting.append(origin)
        elif isinstance(note, type) or note is Any:
            if note not in found.classes:
                found.classes.add(note)
                waiting.extend(_member_types(note).values())
        else:
            # NewType and the `type` statement name another type.
            waiting.extend(getattr(note, attribute) for attribute in _ALIASES if hasattr(note, attribute))
    return found


_ALIASES = ("__supertype__", "__value__")
_MARKS = ("__struct_fields__", "__dataclass_fields__", "__attrs_attrs__", "__required_keys__")


def is_record(kind: object) -> bool:
    """Whether a class is one of the kinds of record whose members are annotated."""
    named_tuple = isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")
    return named_tuple or any(hasattr(kind, mark) for mark in _MARKS)


def _member_types(kind: object) -> Mapping[str, Any]:
    if kind in BUILTIN_TYPES or _is_pydantic_class(kind) or not is_record(kind):
        return {}
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except NameError:
        # A class of a function's own names: the engine, which reads it too, has the better complaint.
        return {}
