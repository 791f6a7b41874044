"""How a function is read: its parameters, its kind, its context, and what is refused at registration."""

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Generic, Optional, TypeVar

import msgspec
import pytest

from tests.server import annotated_as_text
from tests.server.kinds import Opaque
from trunkline.server.signatures import Signature

if TYPE_CHECKING:
    from decimal import Decimal

T = TypeVar("T")


class Context:
    pass


class SpecialContext(Context):
    pass


class GenericContext(Generic[T]):
    pass


def names(signature: Signature) -> list[str]:
    return [parameter.name for parameter in signature.parameters]


def test_parameters_are_listed_in_the_order_of_the_function() -> None:
    def tool(city: str, days: int = 3, *, unit: str, flag: bool = False) -> None: ...

    found = [(each.name, each.required, each.default) for each in Signature.of(tool).parameters]

    assert found == [
        ("city", True, msgspec.UNSET),
        ("days", False, 3),
        ("unit", True, msgspec.UNSET),
        ("flag", False, False),
    ]


def context_plain(city: str, ctx: Context) -> None: ...
def context_first(ctx: Context, city: str) -> None: ...
def context_keyword(city: str, *, ctx: Context) -> None: ...
def context_optional(city: str, ctx: Context | None = None) -> None: ...
def context_old_optional(city: str, ctx: Optional[Context] = None) -> None: ...  # noqa: UP045
def context_annotated(city: str, ctx: Annotated[Context, "the context"]) -> None: ...
def context_annotated_optional(city: str, ctx: Annotated[Context | None, "the context"] = None) -> None: ...
def context_subclass(city: str, ctx: SpecialContext) -> None: ...
def context_text(city: str, ctx: "Context") -> None: ...
def context_text_inside(city: str, ctx: Optional["Context"] = None) -> None: ...
def context_generic(city: str, ctx: GenericContext[int]) -> None: ...


@pytest.mark.parametrize(
    "function",
    [
        context_plain,
        context_first,
        context_keyword,
        context_optional,
        context_old_optional,
        context_annotated,
        context_annotated_optional,
        context_subclass,
        context_text,
        context_text_inside,
        context_generic,
        annotated_as_text.with_context,
    ],
    ids=lambda function: function.__name__,
)
def test_the_context_is_found_by_its_type_and_hidden(function: Callable[..., Any]) -> None:
    signature = Signature.of(function, context_type=(Context, GenericContext, annotated_as_text.TextContext))

    assert signature.context_name == "ctx"
    assert names(signature) == ["city"]
    assert list(signature.input_schema()["properties"]) == ["city"]


def test_excluded_parameters_are_hidden() -> None:
    def tool(city: str, secret: Opaque) -> None: ...

    signature = Signature.of(tool, exclude={"secret"})

    assert names(signature) == ["city"]
    assert signature.bind(b'{"city": "Oslo"}') == {"city": "Oslo"}


def sync_function() -> None: ...
async def async_function() -> None: ...
def generator() -> Iterator[str]:
    yield ""


async def async_generator() -> AsyncIterator[str]:
    yield ""


class CallableObject:
    """Stands for a function."""

    async def __call__(self, city: str) -> int:
        return 1

    def sync_method(self, city: str, days: int = 1) -> int:
        return days

    async def async_method(self, city: str) -> int:
        return 1


@functools.wraps(async_function)
async def wrapping(*args: Any, **kwargs: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        pytest.param(sync_function, (False, False, False), id="function"),
        pytest.param(async_function, (True, False, False), id="async"),
        pytest.param(generator, (False, True, False), id="generator"),
        pytest.param(async_generator, (False, False, True), id="async generator"),
        pytest.param(CallableObject(), (True, False, False), id="callable object"),
        pytest.param(CallableObject().sync_method, (False, False, False), id="method"),
        pytest.param(CallableObject().async_method, (True, False, False), id="async method"),
        pytest.param(wrapping, (True, False, False), id="wrapped"),
        pytest.param(functools.partial(async_function), (True, False, False), id="partial of async"),
        pytest.param(functools.partial(generator), (False, True, False), id="partial of generator"),
        pytest.param(functools.partial(async_generator), (False, False, True), id="partial of async generator"),
    ],
)
def test_the_kind_of_a_function_is_known(function: Callable[..., Any], kind: tuple[bool, bool, bool]) -> None:
    signature = Signature.of(function)

    assert (signature.is_async, signature.is_generator, signature.is_async_generator) == kind


def with_secret(secret: int, city: str, days: int = 3) -> int:
    return secret


@functools.wraps(CallableObject().sync_method)
def wrapper(*args: Any, **kwargs: Any) -> Any: ...


@pytest.mark.parametrize(
    ("function", "bound"),
    [
        pytest.param(CallableObject().sync_method, {"city": "Oslo", "days": 1}, id="a method without its object"),
        pytest.param(CallableObject(), {"city": "Oslo"}, id="a callable object through its call"),
        pytest.param(
            functools.partial(with_secret, 5, days=4), {"city": "Oslo", "days": 4}, id="the rest of a partial"
        ),
        pytest.param(wrapper, {"city": "Oslo", "days": 1}, id="a decorated function through its wrapper"),
    ],
)
def test_a_function_is_read_as_its_author_wrote_it(function: Callable[..., Any], bound: dict[str, Any]) -> None:
    signature = Signature.of(function)

    assert signature.bind(b'{"city": "Oslo"}') == bound
    assert signature.output_schema() == {"type": "integer"}


def test_a_callable_object_is_described_by_its_class() -> None:
    assert Signature.of(CallableObject()).description == "Stands for a function."


def test_annotations_written_as_text_are_resolved() -> None:
    signature = Signature.of(annotated_as_text.tool)

    assert signature.bind(b'{"city": "Oslo", "place": {"x": 1}}') == {
        "city": "Oslo",
        "days": 3,
        "place": annotated_as_text.Place(1),
        "places": None,
    }
    assert signature.output_schema() == {"type": "array", "items": {"type": "string"}}


def test_annotations_can_use_names_of_an_enclosing_function() -> None:
    tool, place = annotated_as_text.define_locally(lambda function: Signature.of(function))

    assert tool.bind(b'{"place": {"x": 1}}') == {"place": place(1)}


def bad_variadic(*cities: str) -> None: ...
def bad_keywords(**options: str) -> None: ...
def bad_positional(city: str, /) -> None: ...
def bad_class(city: str, thing: Opaque) -> None: ...
def bad_nested_class(things: dict[str, list[Opaque]]) -> None: ...
def bad_module(thing: ModuleType) -> None: ...
def bad_meta(days: Annotated[str, msgspec.Meta(ge=1)]) -> None: ...
def bad_name(price: "Decimal") -> None: ...
def bad_function(callback: Callable[[], None]) -> None: ...


@dataclass
class Unresolvable:
    price: "Decimal"


def bad_member(thing: Unresolvable) -> None: ...


@pytest.mark.parametrize(
    ("function", "parts"),
    [
        (bad_variadic, ["bad_variadic", "*cities", "by name"]),
        (bad_keywords, ["bad_keywords", "**options", "type dict"]),
        (bad_positional, ["bad_positional", "'city'", "remove the '/'"]),
        (bad_class, ["bad_class", "'thing'", "Opaque", "dataclass"]),
        (bad_nested_class, ["bad_nested_class", "'things'", "Opaque"]),
        (bad_module, ["bad_module", "'thing'", "Depends"]),
        (bad_meta, ["bad_meta", "'days'", "numeric"]),
        (bad_name, ["bad_name", "Decimal", "TYPE_CHECKING"]),
        (bad_function, ["bad_function", "'callback'", "Callable"]),
        (bad_member, ["bad_member", "'thing'", "Decimal"]),
        (dict.update, ["update", "wrap it in your own function"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_function_that_cannot_be_called_is_rejected_with_its_name_and_the_fix(
    function: Callable[..., Any], parts: list[str]
) -> None:
    with pytest.raises(TypeError) as caught:
        Signature.of(function)

    assert [part for part in parts if part not in str(caught.value)] == []


def test_the_name_for_errors_replaces_the_functions_own() -> None:
    with pytest.raises(TypeError, match=r"^tool 'x': \*cities"):
        Signature.of(bad_variadic, name_for_errors="tool 'x'")


def test_a_local_name_that_no_running_function_has_is_rejected() -> None:
    with pytest.raises(TypeError, match="Nowhere"):
        Signature.of(annotated_as_text.lost)
    with pytest.raises(TypeError, match="Nowhere"):
        Signature.of(annotated_as_text.make_lost())
