"""Functions whose annotations are text, as `from __future__ import annotations` makes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional


class TextContext:
    pass


@dataclass
class Place:
    x: int


def with_context(city: str, ctx: TextContext) -> None: ...


def tool(city: str, days: int = 3, *, place: Place, places: Optional[list["Place"]] = None) -> list[str]: ...  # type: ignore[empty-body]  # noqa: UP037, UP045


def lost(place: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def make_lost() -> Callable[..., Any]:
    def inner(place: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    return inner


def define_locally(register: Callable[[Callable[..., Any]], Any]) -> tuple[Any, Any]:
    @dataclass
    class Inner:
        x: int

    def local(place: Inner) -> None: ...

    return register(local), Inner
