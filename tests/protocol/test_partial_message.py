"""What is reported of a message that is too long to be read: its kind and its id, where they are certain."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.protocol.jsonrpc import InvalidMessage, Response, decode
from trunkline.protocol.partial_message import PartialMessage, inspect_partial

LONG = "x" * 200


def seen(message: Any, *, head: int = 150, tail: int = 100, **layout: Any) -> PartialMessage:
    data = json.dumps(message, **layout).encode()
    return inspect_partial(data[:head], data[-tail:])


@pytest.mark.parametrize("id", [0, 7, -3, "a-1", "ä", 'with "quotes"', ""], ids=repr)
def test_an_id_before_what_is_long_is_reported(id: int | str) -> None:
    message = {"jsonrpc": "2.0", "id": id, "result": {"text": LONG}}
    assert seen(message) == seen(message, separators=(",", ":")) == PartialMessage("answer", id)


@pytest.mark.parametrize("id", [0, 7, -3, "a-1"], ids=repr)
@pytest.mark.parametrize(
    "envelope",
    [
        pytest.param(lambda result, id: {"result": result, "jsonrpc": "2.0", "id": id}, id="last"),
        pytest.param(lambda result, id: {"jsonrpc": "2.0", "result": result, "id": id}, id="after the result"),
        pytest.param(lambda result, id: {"result": result, "id": id, "jsonrpc": "2.0"}, id="last but one"),
    ],
)
def test_an_id_after_what_is_long_is_reported(id: int | str, envelope: Any) -> None:
    assert seen(envelope({"text": LONG}, id)) == PartialMessage("answer", id)
    assert seen(envelope({"text": LONG}, id), indent=1) == PartialMessage("answer", id)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param({"jsonrpc": "2.0", "id": 1, "method": LONG}, PartialMessage("call", 1), id="a request"),
        pytest.param(
            {"params": {"a": LONG}, "method": "x", "id": 4}, PartialMessage("call", 4), id="a request, id last"
        ),
        pytest.param({"id": 2, "error": {"message": LONG}}, PartialMessage("answer", 2), id="an error"),
        pytest.param({"method": "x", "params": LONG}, PartialMessage("call", open=True), id="a notification"),
    ],
)
def test_the_kind_of_a_message_is_reported(message: Any, expected: PartialMessage) -> None:
    assert seen(message) == expected


@pytest.mark.parametrize(
    ("head", "tail"),
    [
        pytest.param(b'{"jsonrpc":"2.0","id":12', b"", id="a number that may go on"),
        pytest.param(b"debug: " + b"x" * 100, b'"id":1}', id="no message"),
        pytest.param(b'[{"id":1,"result":{}},', b'{"id":2,"result":{}}]', id="a batch"),
        pytest.param(b'{"id":1,"method":"x","result":', b"", id="neither one nor the other"),
        pytest.param(b'{"id":1,"res', b'"}', id="a name that is cut"),
        pytest.param(b"", b"", id="nothing"),
        pytest.param(b"\xff\xfe{", b"", id="other bytes"),
        pytest.param(b'{"a":' + b"[" * 4000, b"", id="deep"),
        pytest.param(b'{"id":007,"result":"', b"", id="a number with zeros before it"),
        pytest.param(b'{"id":1,"m\\u0065thod":"x","result":"', b"", id="both, one in disguise"),
    ],
)
def test_nothing_is_reported_of_an_ambiguous_message(head: bytes, tail: bytes) -> None:
    assert inspect_partial(head, tail) == PartialMessage()


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b'{"id":null,"result":"', id="null"),
        pytest.param(b'{"id":true,"result":"', id="a truth"),
        pytest.param(b'{"id":1.5,"result":"', id="a fraction"),
        pytest.param(b'{"id":1,"id":2,"result":"', id="two"),
        pytest.param(b'{"id":1,"\\u0069d":2,"result":"', id="two, one in disguise"),
        pytest.param(b'{"id":1e3,"result":"', id="an exponent"),
        pytest.param(b'{"id":NaN,"result":"', id="no number"),
        pytest.param(b'{"id":"\xff","result":"', id="no UTF-8"),
        pytest.param(b'{"id":"\\ud800","result":"', id="half a pair of surrogates"),
        pytest.param(b'{"result":"x","id":"' + b"y" * 100, id="one that is cut"),
    ],
)
def test_an_invalid_id_is_not_searched_at_the_end(head: bytes) -> None:
    assert inspect_partial(head, b'","id":9}') == PartialMessage("answer")


@pytest.mark.parametrize(
    "tail",
    [
        pytest.param(b'{"id":9}}', id="of the result"),
        pytest.param(b',"id":9}]}', id="inside a list"),
        pytest.param(b'\\"id\\":9}"}', id="in a text"),
        pytest.param(b'"id":9', id="no end"),
        pytest.param(b'\\",\\"id\\":9}', id="escaped"),
        pytest.param(b',"id":"\\u0031"}', id="with an escape"),
        pytest.param(b',"id":9,"x":{}}', id="before something else"),
        pytest.param(b',"id":9,"method":"x"}', id="of a call"),
        pytest.param(b'{"id":9}', id="of an object that begins there"),
        pytest.param(b',"id":009}', id="zeros before it"),
        pytest.param(b',"id":-09}', id="a zero before it, below zero"),
        pytest.param(b',"id":-}', id="a sign alone"),
        pytest.param(b',"id":1e3}', id="an exponent"),
        pytest.param(b',"id":9.0}', id="a fraction"),
        pytest.param(b',"id":9}{', id="before another brace"),
        pytest.param(b',"\\u0069d":9}', id="in disguise"),
        pytest.param(b',"id":"a\tb"}', id="with a control character"),
    ],
)
def test_an_id_of_something_inside_is_not_taken_for_the_messages_own(tail: bytes) -> None:
    assert inspect_partial(b'{"jsonrpc":"2.0","result":{"x":[', tail) == PartialMessage("answer", open=True)


_VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='ab"\\{}[],: id', max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["id", "result", "a"]), inner),
    max_leaves=12,
)


@given(_VALUES, st.permutations(["jsonrpc", "id", "result"]), st.integers(0, 120), st.integers(0, 120))
def test_a_found_id_is_the_id_of_the_message(value: Any, order: list[str], head: int, tail: int) -> None:
    members = {"jsonrpc": "2.0", "id": 77, "result": value}
    found = seen({name: members[name] for name in order}, head=head, tail=tail or 1)
    assert found.id in (None, 77)
    assert found.kind in (None, "answer")


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes_can_be_looked_at(head: bytes, tail: bytes) -> None:
    assert isinstance(inspect_partial(head, tail), PartialMessage)


# --- against the parser ----------------------------------------------------------------------------------------------

_NAMES = [
    f'"{name}"' for name in ("id", "i\\u0064", "result", "error", "method", "jsonrpc", "Id", "id ", '\\"id\\"', "ä")
]
_WRITTEN = [
    *("1", "77", "-0", "0", "007", "1e3", "1.0", "-5", "9" * 40, "true", "null", "NaN"),
    *('"a"', '"\\u0061"', '"\\ud83d\\ude00"', '"\\ud800"', '"😀"', '"2.0"', '"\\\\"', '"' + "ü" * 30 + '"'),
    *(
        '{"id":5}',
        '{"a":{"id":6},"id":7}',
        '[{"id":8}]',
        '",\\"id\\":9}"',
        '{"x":",\\"id\\":10}"}',
        "[" * 40 + "]" * 40,
    ),
]
_MEMBERS = st.lists(st.tuples(st.sampled_from(_NAMES), st.sampled_from(_WRITTEN)), min_size=1, max_size=7)
_SPACES = st.sampled_from(["", " ", "\t", "  \r"])


def _own_ids(data: bytes) -> list[Any]:
    """Return the ids of the outermost object with a parser that shows all of them; none if it is not JSON."""
    try:
        pairs = json.loads(data, object_pairs_hook=list)
    except ValueError:
        return []
    return [value for name, value in pairs if name == "id"]


@given(_MEMBERS, _SPACES, st.integers(0, 120), st.integers(1, 120))
def test_no_id_is_found_that_a_parser_would_not_find(
    members: list[tuple[str, str]], space: str, head: int, tail: int
) -> None:
    inside = f"{space},{space}".join(f"{name}{space}:{space}{value}" for name, value in members)
    data = f"{space}{{{inside}{space}}}{space}".encode()
    found = inspect_partial(data[:head], data[-tail:])
    ids = _own_ids(data)
    # If the whole is not JSON, what is reported must stand in the part that was read.
    assert found.id is None or not ids or (found.id in ids and not isinstance(found.id, bool | float))


@given(st.sampled_from(_WRITTEN), st.sampled_from(_WRITTEN), st.permutations(["jsonrpc", "id", "result"]))
def test_kind_and_id_of_a_partial_message_equal_those_of_the_whole(id: str, result: str, order: list[str]) -> None:
    written = {"jsonrpc": '"2.0"', "id": id, "result": result}
    data = ("{" + ",".join(f'"{name}":{written[name]}' for name in order) + "}").encode()
    read = decode(data)
    told = {inspect_partial(data[:at], data).id for at in range(len(data))} - {None}
    assert isinstance(read, InvalidMessage) or (isinstance(read, Response) and told <= {read.id})


@given(st.binary(max_size=40), st.integers(0, 60))
def test_a_found_id_can_be_encoded_again(id: bytes, cut: int) -> None:
    head = b'{"id":"' + id + b'","method":"x","params":"'
    told = inspect_partial(head[: cut + len(head) - 60]).id
    assert told is None or str(told).encode().decode() == told
