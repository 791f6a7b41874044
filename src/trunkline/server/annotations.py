"""Resolving annotations, and surveying which classes, literals and metadata a type is made of.

It knows neither msgspec nor pydantic. `resolve_hints` turns strings into types at a fraction of the cost of
`typing.get_type_hints`, which it falls back to; `survey` walks a type and everything inside it once, including the
fields of dataclasses.
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
    "handles_module",
    "is_handle",
    "is_record",
    "optional_of",
    "pydantic_module",
    "resolve_hints",
    "strip_annotated",
    "survey",
]

#: Types without members.
BUILTIN_TYPES: frozenset[Any] = frozenset(
    {str, int, float, bool, NoneType, bytes, list, dict, tuple, set, frozenset, Any}
)

_UNIONS = (Union, UnionType)


class TypeSurvey:
    """The classes, literals and metadata found in annotations."""

    __slots__ = ("classes", "literals", "metadata")

    def __init__(self) -> None:
        """Create an empty survey."""
        self.classes: set[Any] = set()
        self.literals: list[tuple[Any, ...]] = []
        self.metadata: list[Any] = []

    @property
    def from_pydantic(self) -> bool:
        """Whether any part of it needs pydantic."""
        return any(map(_is_pydantic_class, self.classes)) or any(map(_is_pydantic_metadata, self.metadata))


def pydantic_module() -> Any:
    """Return pydantic if the program has imported it, otherwise None; it is never imported here."""
    return sys.modules.get("pydantic")


def handles_module() -> Any:
    """Return the module of handles if it is already imported, otherwise None; it is never imported here."""
    return sys.modules.get("trunkline.server.handles")


def is_handle(kind: object) -> bool:
    """Return True if a class is a handle class; msgspec and pydantic both encode handles as text."""
    module = handles_module()
    return module is not None and kind in module.HANDLE_CLASSES


def _is_pydantic_class(kind: object) -> bool:
    return (
        "pydantic" in sys.modules
        and (hasattr(kind, "__pydantic_validator__") or hasattr(kind, "__get_pydantic_core_schema__"))
        and not is_handle(kind)
    )


def _is_pydantic_metadata(item: object) -> bool:
    return type(item).__module__.partition(".")[0] in ("pydantic", "pydantic_core", "annotated_types")


def resolve_hints(function: Callable[..., object]) -> dict[str, Any]:
    """Return the annotations of a function as types, with the names of the enclosing function if necessary.

    Raises:
        NameError: an annotation has a name that does not exist at run time.
    """
    scope = getattr(function, "__globals__", None)
    if scope is None or hasattr(function, "__wrapped__"):
        return typing.get_type_hints(function, include_extras=True)
    try:
        hints = {name: _evaluate(annotation, scope) for name, annotation in function.__annotations__.items()}
        if not any(_is_unresolved(annotation) for annotation in hints.values()):
            return hints
        return typing.get_type_hints(function, include_extras=True)
    except NameError:
        names = _enclosing_names(function)
        if names is None:
            raise
        return typing.get_type_hints(function, localns=names, include_extras=True)


def _evaluate(annotation: object, scope: dict[str, object]) -> Any:
    if isinstance(annotation, str):
        # Most annotations are a single name, which needs no compilation.
        annotation = (
            scope[annotation] if annotation in scope else getattr(builtins, annotation, None) or eval(annotation, scope)
        )
    return NoneType if annotation is None else annotation


def _is_unresolved(annotation: Any) -> bool:
    """Return whether an annotation contains an unresolved name."""
    if type(annotation) is type:
        return False
    if isinstance(annotation, (str, ForwardRef)):
        return True
    origin = get_origin(annotation)
    if origin is Annotated:
        return _is_unresolved(annotation.__origin__)
    return origin is not None and origin is not Literal and any(_is_unresolved(part) for part in get_args(annotation))


def _enclosing_names(function: Callable[..., object]) -> dict[str, Any] | None:
    """Return the local names of the enclosing function, if it is still running."""
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
    """Return an annotation without its metadata, and the metadata."""
    if type(annotation) is type:
        return annotation, ()
    if get_origin(annotation) is Annotated:
        return annotation.__origin__, annotation.__metadata__
    return annotation, ()


def optional_of(annotation: object) -> Any | None:
    """Return ``T`` for ``T | None``, and None for any other type."""
    if get_origin(annotation) not in _UNIONS:
        return None
    rest = [part for part in get_args(annotation) if part is not NoneType]
    return rest[0] if len(rest) == 1 and len(get_args(annotation)) == 2 else None


def survey(annotations: Iterable[Any]) -> TypeSurvey:
    """Survey annotations and everything inside them."""
    found = TypeSurvey()
    pending = list(annotations)
    while pending:
        annotation = pending.pop()
        if type(annotation) is type and annotation in BUILTIN_TYPES:
            found.classes.add(annotation)
            continue
        origin = get_origin(annotation)
        if origin is Annotated:
            found.metadata.extend(annotation.__metadata__)
            pending.append(annotation.__origin__)
        elif origin is Literal:
            found.literals.append(get_args(annotation))
        elif origin is not None:
            if not is_handle(origin):
                pending.extend(get_args(annotation))
            if origin not in _UNIONS:
                pending.append(origin)
        elif isinstance(annotation, type) or annotation is Any:
            if annotation not in found.classes:
                found.classes.add(annotation)
                pending.extend(_member_types(annotation).values())
        else:
            # NewType and the `type` statement refer to another type.
            pending.extend(getattr(annotation, attribute) for attribute in _ALIASES if hasattr(annotation, attribute))
    return found


_ALIASES = ("__supertype__", "__value__")
_MARKS = ("__struct_fields__", "__dataclass_fields__", "__attrs_attrs__", "__required_keys__")


def is_record(kind: object) -> bool:
    """Return whether a class is a record with annotated members: a struct, dataclass, TypedDict and the like."""
    named_tuple = isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")
    return named_tuple or any(hasattr(kind, mark) for mark in _MARKS)


def _member_types(kind: object) -> Mapping[str, Any]:
    if kind in BUILTIN_TYPES or _is_pydantic_class(kind) or not is_record(kind):
        return {}
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except NameError:
        # The class uses local names of a function: msgspec or pydantic will read it too, with a better error message.
        return {}
