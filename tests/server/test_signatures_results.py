"""The schema of what a function returns, and the check of what it returned."""

import enum
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypedDict

import msgspec
import pydantic
import pytest
from msgspec import Meta

from tests.server.kinds import First, Opaque, Pair, Second
from tests.support import case_id
from trunkline.server.signatures import InvalidResult, Signature
from trunkline.types import CallToolResult, ContentBlock, ImageContent, TextContent


class Image:
    pass


class Text(msgspec.Struct):
    text: str


class Color(enum.Enum):
    RED = "red"


@dataclass
class Forecast:
    city: str
    degrees: float


class Report(TypedDict):
    lines: list[str]


class Model(pydantic.BaseModel):
    n: int
    share: float | None = None


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
WARM: Any = "warm"
NUMBER: Any = 3


def returning(annotation: Any) -> Signature:
    def tool(): ...  # type: ignore[no-untyped-def]

    tool.__annotations__ = {"return": annotation}
    return Signature.of(tool, content_types=(Image, Text))


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (bool, {"type": "boolean"}),
        (float, {"type": "number"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict, {"type": "object"}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (str | None, {"type": ["string", "null"]}),
        (Annotated[int, Meta(ge=0)], {"type": "integer", "minimum": 0}),
        (Awaitable[int], {"type": "integer"}),
        (Coroutine[Any, Any, int], {"type": "integer"}),
        (Annotated[Awaitable[int], "later"], {"type": "integer"}),
        (Color, {"type": "string", "const": "red"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (Path, {"type": "string", "format": "path"}),
        (Report, {
            "type": "object",
            "properties": {"lines": {"type": "array", "items": {"type": "string"}}},
            "required": ["lines"],
        }),
        (Forecast, {
            "type": "object",
            "properties": {"city": {"type": "string"}, "degrees": {"type": "number"}},
            "required": ["city", "degrees"],
        }),
        (Model, {
            "type": "object",
            "properties": {"n": {"type": "integer"}, "share": {"type": ["number", "null"]}},
            "required": ["n"],
        }),
        (list[Model], {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"n": {"type": "integer"}, "share": {"type": ["number", "null"]}},
                "required": ["n"],
            },
        }),
    ],
    ids=case_id,
)  # fmt: skip
def test_a_typed_value_is_described(annotation: Any, schema: dict[str, Any]) -> None:
    signature = returning(annotation)

    assert signature.promises_result
    assert signature.output_schema() == schema


@pytest.mark.parametrize(
    "annotation",
    [
        None, type(None), Any, object, NoReturn, bytes, Image, Text, list[Image], Sequence[Image], tuple[Image, ...],
        list[str | Image], str | Image, Text | None, Annotated[Image, "shown"], Awaitable[Image],
        Awaitable[None], list[bytes], Opaque, Iterator[str],
        ContentBlock, list[ContentBlock], TextContent, str | ImageContent, CallToolResult,
        First | Second, Model | Opaque,
    ],
    ids=case_id,
)  # fmt: skip
def test_a_return_annotation_without_a_type_has_no_schema(annotation: Any) -> None:
    signature = returning(annotation)

    assert not signature.promises_result
    assert signature.output_schema() is None


def unannotated(): ...  # type: ignore[no-untyped-def]
def generator() -> Iterator[str]:
    yield ""


async def async_generator() -> AsyncIterator[str]:
    yield ""


@pytest.mark.parametrize("function", [unannotated, generator, async_generator], ids=lambda each: each.__name__)
def test_generators_and_functions_without_annotation_have_no_schema(function: Callable[..., Any]) -> None:
    assert Signature.of(function).output_schema() is None


@pytest.mark.parametrize(
    ("annotation", "value", "data"),
    [
        (str, "a", b'"a"'),
        (int, 3, b"3"),
        (float, 3, b"3.0"),
        (bool, True, b"true"),
        (Color, Color.RED, b'"red"'),
        (datetime, datetime(2025, 1, 2), b'"2025-01-02T00:00:00"'),
        (Annotated[int, Meta(ge=0)], 3, b"3"),
        (Forecast, Forecast("Oslo", 1.5), b'{"city":"Oslo","degrees":1.5}'),
        (Forecast, {"city": "Oslo", "degrees": 1.5}, b'{"city":"Oslo","degrees":1.5}'),
        (Report, {"lines": ["null"]}, b'{"lines":["null"]}'),
        (list[Forecast], [], b"[]"),
        (Pair, Pair(1, "a"), b'[1,"a"]'),
        (float | None, None, b"null"),
        (dict, {"a": [1, None, (2.5,)]}, b'{"a":[1,null,[2.5]]}'),
        (Path, Path("/tmp"), b'"/tmp"'),
        (Any, {"a": 1}, b'{"a":1}'),
        (Any, {"a": None}, b'{"a":null}'),
        (Any, {"model": Model(n=1)}, b'{"model":{"n":1,"share":null}}'),
        (None, None, b"null"),
        (Model, Model(n=1, share=0.5), b'{"n":1,"share":0.5}'),
        (Model, {"n": 1}, b'{"n":1,"share":null}'),
        (list[Model], [Model(n=1)], b'[{"n":1,"share":null}]'),
    ],
    ids=case_id,
)
def test_a_matching_result_is_encoded(annotation: Any, value: Any, data: bytes) -> None:
    assert returning(annotation).encode_result(value) == data


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (str, 3, "expected a string, got an integer"),
        (str, Opaque(), "expected a string, got Opaque"),
        (int, "3", "expected an integer, got a string"),
        (int, None, "expected an integer, got null"),
        (Annotated[int, Meta(ge=0)], -1, "expected an integer >= 0"),
        (Forecast, Forecast("Oslo", WARM), "degrees: expected a number, got a string"),
        (Forecast, None, "expected an object, got null"),
        (list[Forecast], [Forecast("Oslo", 1), Forecast(NUMBER, 1)], "1.city: expected a string, got an integer"),
        (Report, {}, "missing member 'lines'"),
        (float, float("nan"), "expected a finite number"),
        (float, float("inf"), "expected a finite number"),
        (Forecast, Forecast("Oslo", float("nan")), "degrees: expected a finite number"),
        (float | None, float("nan"), "expected a finite number"),
        (dict[str, float | None], {"a": float("inf")}, "a: expected a finite number"),
        (Any, {"a": [1.0, float("nan")]}, "a.1: expected a finite number"),
        (dict, {"a": Opaque()}, "cannot be encoded as JSON: a Opaque cannot be encoded as JSON"),
        (Any, Opaque(), "cannot be encoded as JSON: a Opaque cannot be encoded as JSON"),
        (Model, {"n": "many"}, "n: expected an integer, got a string"),
        (Model, Model(n=1, share=float("nan")), "share: expected a finite number"),
        (Model, Opaque(), "expected a dictionary or instance of Model, got a Opaque"),
        (Model, Model.model_construct(n=Opaque()), None),
        (list, ENDLESS, None),
    ],
    ids=case_id,
)
def test_a_result_that_does_not_match_is_rejected(annotation: Any, value: Any, text: str | None) -> None:
    with pytest.raises(InvalidResult) as caught:
        returning(annotation).encode_result(value)

    assert text is None or str(caught.value) == text
