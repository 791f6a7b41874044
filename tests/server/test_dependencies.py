"""Values a function is given by other functions."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from tests.support import run_async
from trunkline.server.dependencies import DependencyResolver, Depends
from trunkline.server.signatures import Signature

if TYPE_CHECKING:
    from decimal import Decimal


class Context:
    user = "ada"


def resolve(function: Callable[..., Any], *, during: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Resolve the dependencies of a function around a call that runs ``during``."""

    async def main() -> dict[str, Any]:
        signature = Signature.of(function, context_type=Context)
        async with DependencyResolver(signature, Context()) as given:
            during()
            return given

    return run_async(main())


def number() -> int:
    return 7


async def async_number() -> int:
    await asyncio.sleep(0)
    return 7


def generated() -> Iterator[int]:
    yield 7


async def async_generated() -> AsyncIterator[int]:
    yield 7


@contextmanager
def managed() -> Iterator[int]:
    yield 7


@asynccontextmanager
async def async_managed() -> AsyncIterator[int]:
    yield 7


class Seven:
    def __enter__(self) -> int:
        return 7

    def __exit__(self, *error: object) -> None: ...


class AsyncSeven:
    async def __aenter__(self) -> int:
        return 7

    async def __aexit__(self, *error: object) -> None: ...


class CallableSeven:
    def __call__(self) -> int:
        return 7


def loose(*args: int, **more: int) -> int:
    return 7 + len(args) + len(more)


@pytest.mark.parametrize(
    "function",
    [
        number, async_number, generated, async_generated, managed, async_managed, Seven, AsyncSeven, CallableSeven(),
        functools.partial(max, 7, 3), functools.partial(async_number), loose,
    ],
    ids=[
        "function", "async function", "generator", "async generator", "context manager", "async context manager",
        "class", "async class", "object", "partial", "async partial", "variadic",
    ],
)  # fmt: skip
def test_a_dependency_can_be_any_kind_of_function(function: Callable[..., Any]) -> None:
    def tool(n: Annotated[int, Depends(function)]) -> None: ...

    assert resolve(tool) == {"n": 7}


def test_dependencies_are_hidden_from_the_schema_and_from_binding() -> None:
    def tool(city: str, n: Annotated[int, Depends(number)], m: int = Depends(number)) -> None: ...  # type: ignore[assignment]

    signature = Signature.of(tool)

    assert [each.name for each in signature.dependencies] == ["n", "m"]
    assert [each.name for each in signature.parameters] == ["city"]
    assert list(signature.input_schema()["properties"]) == ["city"]
    assert signature.bind(b'{"city": "Oslo"}') == {"city": "Oslo"}


def test_a_dependency_is_given_the_context_and_its_own_dependencies() -> None:
    def user(ctx: Context, limit: int = 3) -> str:
        return f"{ctx.user}{limit}"

    async def greeting(name: Annotated[str, Depends(user)], *, context: Context | None = None) -> str:
        return f"hello {name}, {context is not None}"

    def tool(text: Annotated[str, Depends(greeting)]) -> None: ...

    assert resolve(tool) == {"text": "hello ada3, True"}


def test_a_dependency_is_evaluated_once_a_call() -> None:
    calls: list[int] = []

    def counted() -> int:
        calls.append(1)
        return len(calls)

    def other(n: Annotated[int, Depends(counted)]) -> int:
        return n

    def tool(a: Annotated[int, Depends(counted)], b: Annotated[int, Depends(other)]) -> None: ...

    assert resolve(tool) == {"a": 1, "b": 1}
    assert resolve(tool) == {"a": 2, "b": 2}


def test_a_class_gets_its_constructor_parameters() -> None:
    class Store:
        def __init__(self, ctx: Context, n: Annotated[int, Depends(number)]) -> None:
            self.found = ctx.user, n

    def tool(store: Annotated[Store, Depends(Store)]) -> None: ...

    assert resolve(tool)["store"].found == ("ada", 7)


def test_opened_dependencies_are_closed_in_reverse_order() -> None:
    seen: list[str] = []

    def first() -> Iterator[str]:
        seen.append("open first")
        yield "first"
        seen.append("close first")

    @asynccontextmanager
    async def second(name: Annotated[str, Depends(first)]) -> AsyncIterator[str]:
        seen.append("open second")
        yield name
        seen.append("close second")

    def tool(name: Annotated[str, Depends(second)]) -> None: ...

    resolve(tool, during=lambda: seen.append("call"))

    assert seen == ["open first", "open second", "call", "close second", "close first"]


def test_an_object_returned_by_a_plain_function_is_not_closed() -> None:
    shared = Seven()

    def tool(thing: Annotated[Seven, Depends(lambda: shared)]) -> None: ...

    assert resolve(tool) == {"thing": shared}


def test_a_dependency_sees_the_error_of_the_call_but_cannot_suppress_it() -> None:
    seen: list[str] = []

    def hiding() -> Iterator[int]:
        try:
            yield 1
        except KeyError:
            seen.append("rolled back")

    def tool(n: Annotated[int, Depends(hiding)]) -> None: ...

    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        resolve(tool, during=fail)
    assert seen == ["rolled back"]


def test_a_dependency_that_fails_closes_those_opened_before_it() -> None:
    seen: list[str] = []

    def opened() -> Iterator[int]:
        try:
            yield 1
        finally:
            seen.append("closed")

    async def failing() -> int:
        raise KeyError("x")

    def tool(a: Annotated[int, Depends(opened)], b: Annotated[int, Depends(failing)]) -> None: ...

    with pytest.raises(KeyError):
        resolve(tool)
    assert seen == ["closed"]


def circular(n: Annotated[int, Depends(lambda: circular)]) -> int:
    return n


circular.__annotations__["n"] = Annotated[int, Depends(circular)]


def unresolvable(price: "Decimal | None" = None) -> int:
    return 1


def needy(city: str) -> str:
    return city


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (needy, "needy: nothing fills its parameter 'city'; annotate it with Context"),
        (circular, "circular depends on itself"),
        (unresolvable, "unresolvable: name 'Decimal' is not defined"),
    ],
    ids=["unfillable", "circular", "unresolvable"],
)
def test_a_dependency_that_cannot_be_called_is_rejected_at_registration(
    function: Callable[..., Any], words: str
) -> None:
    def tool(value: Annotated[Any, Depends(function)]) -> None: ...

    with pytest.raises(TypeError, match=words):
        Signature.of(tool)


def test_depends_rejects_a_value_that_is_not_callable() -> None:
    with pytest.raises(TypeError, match=r"not Depends\(make\(\)\)"):
        Depends(number())  # type: ignore[arg-type]
