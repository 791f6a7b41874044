"""Rows as JSON: letter for letter what the encoder of the standard library makes of a list of rows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline_servers.postgres.values import TUPLE_DECODERS, RowWriter
from trunkline_servers.sql import to_json

_SIMPLE = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
_VALUES = st.recursive(
    _SIMPLE, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=10
)


@given(st.lists(st.dictionaries(st.text(max_size=10), _VALUES, max_size=5), min_size=1, max_size=3))
def test_rows_are_written_as_the_encoder_writes_them(rows: list[dict[str, Any]]) -> None:
    writer = RowWriter()
    made = "[\n" + ",\n".join(map(writer.write, rows)) + "\n]"
    assert made == to_json(rows)
    assert json.loads(made) == rows


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(10**30, "1" + "0" * 30, id="long-number"),
        pytest.param("a\x1b\u202e\n", '"a\\u001b\\u202e\\n"', id="cannot-be-seen"),
        pytest.param([[], {}], "[\n      [],\n      {}\n    ]", id="empty"),
        pytest.param(b"x", '"x"', id="bytes"),
    ],
)
def test_a_value_is_written(value: Any, expected: str) -> None:
    assert RowWriter().write({"a": value}) == f'  {{\n    "a": {expected}\n  }}'


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((2**31 - 1, 2**31 - 1, 2**63 - 1), "infinity"),
        ((-(2**31), -(2**31), -(2**63)), "-infinity"),
        ((-13, 0, 0), {"years": -1, "months": -1}),
    ],
    ids=["infinity", "minus-infinity", "months"],
)
def test_an_interval_without_an_end_is_a_word(parts: tuple[int, int, int], expected: Any) -> None:
    assert TUPLE_DECODERS["interval"](parts) == expected


def test_a_row_without_columns_is_empty() -> None:
    assert RowWriter().write({}) == "  {}"
