"""The one strict reader and the one writer: what they accept, what they reject and with which error."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trunkline.protocol.jsonrpc import (
    _MARK,
    Batch,
    ErrorResponse,
    Incoming,
    InvalidMessage,
    Message,
    Notification,
    Request,
    Response,
    decode,
    encode,
)
from trunkline.protocol.limits import Limits
from trunkline.types import ErrorObject

# A member that makes a message larger than the reader's fast path, and one that holds every name of the envelope.
LONG = b'"pad":"' + b"x" * 5000 + b'"'
NAMES = b'{"jsonrpc":0,"id":1,"method":2,"params":3,"result":4,"error":5,"again":{"id":1,"method":2,"params":3}}'


def plain(incoming: Incoming) -> Any:
    """Return a message as plain values, raw parts decoded, so that it can be compared."""
    fields = msgspec.structs.asdict(incoming)
    raw = {name: json.loads(bytes(part)) for name, part in fields.items() if isinstance(part, msgspec.Raw)}
    return type(incoming), {**fields, **raw}


def refused(data: bytes, limits: Limits | None = None) -> InvalidMessage:
    """Decode bytes that must be rejected."""
    incoming = decode(data) if limits is None else decode(data, limits)
    assert isinstance(incoming, InvalidMessage)
    return incoming


# --- what is taken ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"m"}', Request(1, "m"), id="request"),
        pytest.param(b'{"jsonrpc":"2.0","id":"a","method":"m","params":[2]}', Request("a", "m", [2]), id="text id"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"m","params":null}', Request(1, "m", None), id="null params"),
        pytest.param(b'{"jsonrpc":"2.0","method":"m","params":[1]}', Notification("m", [1]), id="notification"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"result":{}}', Response(1, {}), id="result"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"result":null}', Response(1, None), id="null result"),
        pytest.param(
            b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no","data":[1]}}',
            ErrorResponse(1, ErrorObject(code=-1, message="no", data=[1])),
            id="error",
        ),
        pytest.param(
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no"}}',
            ErrorResponse(None, ErrorObject(code=-1, message="no")),
            id="error without a known request",
        ),
        pytest.param(
            b'{"jsonrpc":"2.0","error":{"code":-1,"message":"no"}}',
            ErrorResponse(None, ErrorObject(code=-1, message="no")),
            id="error without an id",
        ),
        pytest.param(b' \t\r\n{"jsonrpc":"2.0","id":1,"method":"m"}\r\n', Request(1, "m"), id="white space around"),
        pytest.param(b'{ "method" : "m" , "id" : 1 , "jsonrpc" : "2.0" }', Request(1, "m"), id="any order"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"tools\\/call"}', Request(1, "tools/call"), id="escaped slash"),
        pytest.param('{"jsonrpc":"2.0","id":"é","method":"日本"}'.encode(), Request("é", "日本"), id="UTF-8"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"\\ud83d\\ude00"}', Request(1, "😀"), id="surrogate pair"),
        pytest.param(b'{"jsonrpc":"2.0","\\u0069d":1,"method":"m"}', Request(1, "m"), id="escaped name, once"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"m","x":[1e5]}', Request(1, "m"), id="unknown member"),
        pytest.param(b'{"jsonrpc":"2.0","ID":7,"id":1,"method":"m"}', Request(1, "m"), id="names are not folded"),
        pytest.param(b'{"jsonrpc":"2.0","id":-7,"method":"m"}', Request(-7, "m"), id="negative id"),
        pytest.param(b'{"jsonrpc":"2.0","id":18446744073709551616,"method":"m"}', Request(2**64, "m"), id="large id"),
        pytest.param(b'{"jsonrpc":"2.0","id":"","method":"m"}', Request("", "m"), id="empty text id"),
    ],
)  # fmt: skip
def test_a_well_formed_message_is_read(data: bytes, message: Message) -> None:
    assert plain(decode(data)) == plain(message)


@pytest.mark.parametrize("id", [0, 1, 9, 10, 99, 100, -1, -10, 10**16 - 1, 10**16, 10**17, 10**18, 2**63, 2**64])
def test_an_id_of_any_length_is_read_and_a_second_one_is_noticed(id: int) -> None:
    request = b'{"jsonrpc":"2.0","id":%d,"method":"m","params":{}}' % id
    assert decode(request) == Request(id, "m", msgspec.Raw(b"{}"))
    for twice in (request[:-1] + b',"id":%d}' % id, request[:-1] + b',"params":{}}', b'{"id":1,' + request[1:]):
        assert isinstance(decode(twice), InvalidMessage)


def test_a_response_as_long_as_a_request_is_a_response() -> None:
    responses = [decode(b'{"jsonrpc":"2.0","id":1,"result":"%s"}' % (b"x" * size)) for size in range(40)]
    assert {type(response) for response in responses} == {Response}


def test_params_stay_the_bytes_that_came() -> None:
    incoming = decode(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{ "b" : 1.50, "a":[ ] }}')
    assert isinstance(incoming, Request)
    assert bytes(incoming.params) == b'{ "b" : 1.50, "a":[ ] }'


# --- not JSON --------------------------------------------------------------------------------------------------------

IN_PLACES = [
    pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":%b}}', id="params"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"m","x":[%b]}', id="unknown member"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"result":%b}', id="result"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"","data":%b}}', id="error data"),
    pytest.param(b'[{"jsonrpc":"2.0","id":1,"method":"m","params":[%b]}]', id="batch"),
    pytest.param(b'{"jsonrpc":"1.0","id":1,"method":"m","params":[%b]}', id="behind another error"),
]


@pytest.mark.parametrize("place", IN_PLACES)
def test_invalid_json_in_any_place_is_a_parse_error(place: bytes) -> None:
    assert {refused(place % value).code for value in (b"NaN", b'"\\ud800"', b'"\xff"', b"[1,]")} == {-32700}


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"NaN", id="NaN"),
        pytest.param(b"Infinity", id="Infinity"),
        pytest.param(b"-Infinity", id="minus Infinity"),
        pytest.param(b"01", id="leading zero"),
        pytest.param(b"-01", id="leading zero after minus"),
        pytest.param(b"+1", id="plus"),
        pytest.param(b"1.", id="no digits after the point"),
        pytest.param(b".5", id="no digits before the point"),
        pytest.param(b"0x10", id="hexadecimal"),
        pytest.param(b"'a'", id="single quotes"),
        pytest.param(b'"a\nb"', id="newline in text"),
        pytest.param(b'"\x00"', id="NUL in text"),
        pytest.param(b'"\x1f"', id="control character in text"),
        pytest.param(b'"\\x41"', id="unknown escape"),
        pytest.param(b'"\\u00g0"', id="bad hexadecimal escape"),
        pytest.param(b'"\\ud800"', id="lone high surrogate"),
        pytest.param(b'"\\udc00"', id="lone low surrogate"),
        pytest.param(b'"\\ud800\\ud800"', id="two high surrogates"),
        pytest.param(b'"\xff"', id="byte FF"),
        pytest.param(b'"\xc3"', id="cut character"),
        pytest.param(b'"\xc0\xaf"', id="overlong slash"),
        pytest.param(b'"\xed\xa0\x80"', id="surrogate as UTF-8"),
        pytest.param(b'"\xf4\x90\x80\x80"', id="beyond Unicode"),
        pytest.param(b"[1,]", id="trailing comma"),
        pytest.param(b"{a:1}", id="bare name"),
        pytest.param(b"/**/1", id="comment"),
    ],
)
def test_invalid_json_is_a_parse_error(value: bytes) -> None:
    assert refused(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":%b}}' % value).code == -32700


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"  \n", id="white space"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"m"} x', id="trailing text"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"m"}{}', id="two messages"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"m"', id="cut short"),
        pytest.param(b"5 x", id="a number and trailing text"),
        pytest.param(b'[{"jsonrpc":"2.0","method":"m"}', id="batch cut short"),
        pytest.param(b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"m"}', id="byte order mark"),
        pytest.param('{"jsonrpc":"2.0","id":1,"method":"m"}'.encode("utf-16"), id="UTF-16"),
        pytest.param('{"jsonrpc":"2.0","id":1,"method":"m"}'.encode("utf-16-le"), id="UTF-16 without mark"),
        pytest.param('{"jsonrpc":"2.0","id":1,"method":"m"}'.encode("utf-32-be"), id="UTF-32"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"m","\xff":1}', id="bad byte in an unknown name"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"m","\\ud800":1}', id="lone surrogate in an unknown name"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}', id="lone surrogate in the method"),
        pytest.param(b"[" * 200_000, id="open brackets only"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
                     id="deeper than any parser goes"),
        pytest.param(b'{"jsonrpc":"1.0","id":' + b"[" * 100_000 + b"]" * 100_000 + b"}", id="deep id"),
        pytest.param(b"[" * 100_000 + b"]" * 100_000, id="deep batch"),
    ],
)  # fmt: skip
def test_bytes_that_are_not_json_text_are_a_parse_error(data: bytes) -> None:
    assert refused(data).code == -32700


def test_a_parse_error_says_where_the_bytes_stop_being_utf8() -> None:
    assert refused(b'{"jsonrpc":"2.0","id":"\xff"}').message == "Parse error: not UTF-8 at byte 23"


@pytest.mark.parametrize("number", [pytest.param(b"1e999", id="1e999"), pytest.param(b"9" * 5000, id="5000 digits")])
def test_a_number_out_of_range_is_rejected_when_the_params_are_decoded(number: bytes) -> None:
    incoming = decode(b'{"jsonrpc":"2.0","id":1,"method":"m","params":[%b]}' % number)
    assert isinstance(incoming, Request)
    with pytest.raises(msgspec.DecodeError, match="out of range"):
        msgspec.json.decode(incoming.params)


@pytest.mark.parametrize("number", [pytest.param(b"1e999", id="1e999"), pytest.param(b"9" * 5000, id="5000 digits")])
@pytest.mark.parametrize(
    "place",
    [
        pytest.param(b'{"jsonrpc":"2.0","id":%b,"method":"m"}', id="id"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"error":{"code":%b,"message":""}}', id="code"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"","data":%b}}', id="error data"),
    ],
)
def test_a_number_out_of_range_in_the_envelope_is_rejected(place: bytes, number: bytes) -> None:
    assert refused(place % number).code == -32600


def test_a_long_number_beside_a_suspicious_name_is_read_all_the_same() -> None:
    data = b'{"jsonrpc":"2.0","id":1,"method":"m","x":%b,"y":{"id":2}}' % (b"9" * 5000)
    assert decode(data) == Request(1, "m")


# --- no message ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "id"),
    [
        pytest.param(b"5", None, id="number"),
        pytest.param(b"null", None, id="null"),
        pytest.param(b'"text"', None, id="text"),
        pytest.param(b"{}", None, id="empty object"),
        pytest.param(b'{"id":1,"method":"m"}', 1, id="no jsonrpc"),
        pytest.param(b'{"jsonrpc":"1.0","id":1,"method":"m"}', 1, id="jsonrpc 1.0"),
        pytest.param(b'{"jsonrpc":2.0,"id":"x","method":"m"}', "x", id="jsonrpc as a number"),
        pytest.param(b'{"jsonrpc":"2.0","id":1}', 1, id="neither method nor result"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"params":{}}', 1, id="params alone"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":5}', 1, id="method a number"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":null}', 1, id="method null"),
        pytest.param(b'{"jsonrpc":"2.0","id":null,"method":"m"}', None, id="id null"),
        pytest.param(b'{"jsonrpc":"2.0","id":true,"method":"m"}', None, id="id true"),
        pytest.param(b'{"jsonrpc":"2.0","id":1.5,"method":"m"}', None, id="id a fraction"),
        pytest.param(b'{"jsonrpc":"2.0","id":1.0,"method":"m"}', None, id="id 1.0"),
        pytest.param(b'{"jsonrpc":"2.0","id":1e2,"method":"m"}', None, id="id 1e2"),
        pytest.param(b'{"jsonrpc":"2.0","id":[1],"method":"m"}', None, id="id a list"),
        pytest.param(b'{"jsonrpc":"2.0","id":{},"method":"m"}', None, id="id an object"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"m","result":{}}', 1, id="method and result"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"m","error":{"code":1,"message":""}}', 1, id="and error"),
        pytest.param(b'{"jsonrpc":"2.0","method":"m","result":{}}', None, id="notification and result"),
    ],
)  # fmt: skip
def test_json_that_is_not_a_message_is_an_invalid_request(data: bytes, id: int | str | None) -> None:
    malformed = refused(data)
    assert (malformed.code, malformed.id, malformed.response) == (-32600, id, False)


@pytest.mark.parametrize(
    ("data", "id"),
    [
        pytest.param(b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}', 1, id="both"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"result":{},"error":null}', 1, id="result and null error"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"error":{"message":""}}', 1, id="error without code"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":""}}', 1, id="code a fraction"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"error":{"code":1}}', 1, id="error without message"),
        pytest.param(b'{"jsonrpc":"2.0","id":"a","error":"no"}', "a", id="error as text"),
        pytest.param(b'{"jsonrpc":"1.0","id":1,"result":{}}', 1, id="jsonrpc 1.0"),
        pytest.param(b'{"jsonrpc":"2.0","id":null,"result":{}}', None, id="result without known id"),
        pytest.param(b'{"jsonrpc":"2.0","result":{}}', None, id="result without id"),
        pytest.param(b'{"jsonrpc":"2.0","id":1.0,"result":{}}', None, id="result with id 1.0"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"result":1,"result":2}', 1, id="result twice"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"id":1,"result":1}', None, id="id twice"),
    ],
)
def test_a_bad_answer_is_known_as_an_answer_and_names_its_request(data: bytes, id: int | str | None) -> None:
    malformed = refused(data)
    assert (malformed.code, malformed.id, malformed.response) == (-32600, id, True)


# --- members given twice ---------------------------------------------------------------------------------------------

TWICE = [
    pytest.param(b'"id":1,"id":1,"method":"m"', None, id="id"),
    pytest.param(b'"id":1,"\\u0069d":2,"method":"m"', None, id="id, the second escaped"),
    pytest.param(b'"\\u0069d":1,"i\\u0064":2,"method":"m"', None, id="id, both escaped"),
    pytest.param(b'"id":1,"method":"a","method":"b"', 1, id="method"),
    pytest.param(b'"id":1,"method":"a","\\u006d\\u0065thod":"b"', 1, id="method, escaped"),
    pytest.param(b'"id":1,"method":"m","params":{"a":1},"params":{"a":2}', 1, id="params"),
    pytest.param(b'"id":1,"method":"m","params":{},"\\u0070arams":{}', 1, id="params, escaped, equal"),
    pytest.param(b'"id":1,"jsonrpc":"2.0","method":"m"', 1, id="jsonrpc"),
    pytest.param(b'"id":1,"method":"m","params":%b,"method":"n"' % NAMES, 1, id="method around all the names"),
    # The value of params also stands across the quotes of two names: cut out there, it would hide the second of them.
    pytest.param(b'"method":"m","x":{"params":0}, "a ":1,"id":5,"id":6,"params":":1,"', None, id="hidden by params"),
    pytest.param(b'"method":"m","id":1,"params":0, "z ":1,"params":":1,"', 1, id="params hidden by params"),
    pytest.param(b'"id":1,"method":"m","params":%b, "z ":1,"params":":1,"' % _MARK, 1, id="hidden by the mark"),
    pytest.param(b'"id":1,"id":2,"method":"m","x":{"params": 7},"params":7', None, id="value of params elsewhere too"),
    pytest.param(b'"id":1,"id":2,"method":"m","x":{"params":0,"a" : "b"},"params":" : "', None, id="across a name"),
    pytest.param(b'"id":1,"id":2,"method":"m","params": 12', None, id="params a number"),
    pytest.param(b'"id":1,"id":2,"method":"m","params":{%b}' % LONG, None, id="large params"),
    pytest.param(b'"id":1,"method":"m","params":{%b},"params":{%b}' % (LONG, LONG), 1, id="large params twice"),
    pytest.param(b'"id":1,"method":"m","params":{%b},"\\u0069d":2' % LONG, None, id="behind large params"),
    pytest.param(b'"id":1,"\\u0070arams":{%b},"id":2,"method":"m"' % LONG, None, id="around large params, escaped"),
]


@pytest.mark.parametrize(("members", "id"), TWICE)
@pytest.mark.parametrize("pad", [pytest.param(b'"pad":0', id="small"), pytest.param(LONG, id="large")])
def test_a_member_of_the_envelope_given_twice_is_rejected(pad: bytes, members: bytes, id: int | None) -> None:
    malformed = refused(b'{"jsonrpc":"2.0",%b,%b}' % (pad, members))
    assert (malformed.code, malformed.id) == (-32600, id)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"m","params":%b}', id="params"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"m","params": %b , "x":0}', id="params, spaced"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"result":%b}', id="result"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"","data":%b}}', id="error data"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"m","x":%b}', id="unknown member"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"m","x":0,"x":%b}', id="unknown member, twice"),
    ],
)
@pytest.mark.parametrize(
    "value",
    [
        pytest.param(NAMES, id="all names"),
        pytest.param(b'{"id":1,"id":2}', id="a name twice"),
        pytest.param(b'{"\\u0069d":1,"id":2}', id="a name twice, escaped"),
        pytest.param(b'"\\"id\\" \\"id\\""', id="names in text"),
        pytest.param(b'["id","id",%b,"%b"]' % (NAMES, b"x" * 5000), id="large"),
    ],
)
def test_the_same_names_inside_values_are_ignored(data: bytes, value: bytes) -> None:
    assert not isinstance(decode(data % value), InvalidMessage)


# --- depth -----------------------------------------------------------------------------------------------------------


def nested(levels: int) -> bytes:
    """Return params with this many levels: brackets of both kinds mixed with text full of brackets and quotes."""
    return b'{"[\\"{":[' * (levels // 2) + b'"]}\\\\"' + b"]}" * (levels // 2)


@pytest.mark.parametrize("limit", [4, 16, 18, 64, 128])
def test_nesting_is_read_up_to_the_limit_and_an_error_beyond_it_names_the_request(limit: int) -> None:
    data = b'{"jsonrpc":"2.0","id":1,"method":"m","params":[%b]}' % nested(limit - 2)
    assert isinstance(decode(data, Limits(depth=limit)), Request)
    data = b'{"jsonrpc":"2.0","id":"a","method":"m","params":[%b]}' % nested(limit)
    malformed = refused(data, Limits(depth=limit))
    assert (malformed.code, malformed.id, malformed.response) == (-32700, "a", False)


def test_an_answer_nested_too_deeply_is_known_as_an_answer() -> None:
    malformed = refused(b'{"jsonrpc":"2.0","id":7,"result":%b}' % nested(300))
    assert (malformed.code, malformed.id, malformed.response) == (-32700, 7, True)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"[" + b"[]," * 5000 + b"[]]", id="many side by side"),
        pytest.param(b'"' + b"[" * 5000 + b'"', id="in text"),
        pytest.param(b'"\\"' + b"[" * 5000 + b'"', id="in text behind an escaped quote"),
        pytest.param(b'["\\\\","' + b"[" * 5000 + b'"]', id="in text behind a backslash"),
        pytest.param(b"[" + b'"[","{",' * 5000 + b'""]', id="in many texts"),
    ],
)
def test_brackets_that_do_not_nest_do_not_count(value: bytes) -> None:
    assert isinstance(decode(b'{"jsonrpc":"2.0","id":1,"method":"m","params":%b}' % value), Request)


trees = st.recursive(
    st.sampled_from(["", "[", '"', "\\", '\\"]', 0]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "{", '"']), inner, max_size=3),
    max_leaves=40,
)


def height(tree: Any) -> int:
    """Return the nesting depth of a value."""
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else None
    return 0 if inner is None else 1 + max(map(height, inner), default=0)


@given(tree=trees, limit=st.integers(1, 12))
def test_depth_is_counted_exactly(tree: Any, limit: int) -> None:
    data = encode(Request(1, "m", tree))
    assert isinstance(decode(data, Limits(depth=limit)), InvalidMessage) == (1 + height(tree) > limit)


@given(chain=st.integers(1, 60), limit=st.integers(1, 60))
def test_depth_of_a_chain_is_counted_exactly(chain: int, limit: int) -> None:
    data = b'{"jsonrpc":"2.0","id":1,"method":"m","params":%b}' % (b"[" * chain + b"]" * chain)
    assert isinstance(decode(data, Limits(depth=limit)), InvalidMessage) == (1 + chain > limit)


# --- batches ---------------------------------------------------------------------------------------------------------


def test_an_array_is_split_into_messages_and_invalid_items() -> None:
    incoming = decode(
        b' [{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"b"},5,[],'
        b'{"jsonrpc":"2.0","id":2,"result":{},"error":{"code":1,"message":""}}]'
    )
    assert isinstance(incoming, Batch)
    assert incoming.items[:2] == (Request(1, "a"), Notification("b"))
    assert [(item.code, item.id, item.response) for item in incoming.items[2:] if isinstance(item, InvalidMessage)] == [
        (-32600, None, False),
        (-32600, None, False),
        (-32600, 2, True),
    ]


def test_a_batch_inside_a_batch_is_rejected_where_it_stands() -> None:
    incoming = decode(b'[[{"jsonrpc":"2.0","id":1,"method":"a"}]]')
    assert incoming == Batch((InvalidMessage(-32600, "Invalid request: a batch inside a batch"),))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"[]", "an empty batch", id="empty"),
        pytest.param(b" [ ] ", "an empty batch", id="empty, spaced"),
        pytest.param(b"[" + b"1," * 3 + b"1]", "a batch of 4 messages; the limit is 3", id="too many"),
    ],
)
def test_an_array_that_is_not_a_batch_is_one_invalid_request(data: bytes, words: str) -> None:
    assert refused(data, Limits(batch=3)) == InvalidMessage(-32600, f"Invalid request: {words}")
    assert isinstance(decode(b"[1,1,1]", Limits(batch=3)), Batch)


def test_each_message_of_a_batch_is_read_as_strictly_as_alone() -> None:
    twice, deep = (
        b'{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}',
        b'{"jsonrpc":"2.0","id":3,"method":"m","params":[[[]]]}',
    )
    incoming = decode(b"[%b,%b]" % (twice, deep), Limits(depth=3))
    assert isinstance(incoming, Batch)
    assert [(item.code, item.id) for item in incoming.items if isinstance(item, InvalidMessage)] == [
        (-32600, None),
        (-32700, 3),
    ]


# --- writing ---------------------------------------------------------------------------------------------------------

ids = st.integers(-(2**70), 2**70) | st.text(max_size=20)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["id", "params", '"id"', "\\u0069d", "jsonrpc", "\n"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=8) | st.sampled_from(["id", "method", "params"]), inner, max_size=4)
    ),
    max_leaves=12,
)
errors = st.builds(ErrorObject, code=st.integers(-(2**31), 2**31), message=st.text(max_size=20), data=values)
messages = (
    st.builds(Request, ids, st.text(max_size=20), values)
    | st.builds(Notification, st.text(max_size=20), values)
    | st.builds(Response, ids, values)
    | st.builds(ErrorResponse, ids | st.none(), errors)
)


@given(message=messages)
@example(message=Request(1, "m", {"id": 1, "params": {"id": "\\u0069d"}}))
@example(message=Request(1, "m", "x" * 5000))
@example(message=Response(1, [{"id": 1}, {"id": 2}, "x" * 5000]))
def test_an_encoded_message_is_decoded_unchanged(message: Message) -> None:
    assert plain(decode(encode(message))) == plain(message)


@given(batch=st.lists(messages, min_size=1, max_size=5).map(tuple))
def test_the_answers_to_a_batch_are_read_back_the_same(batch: tuple[Message, ...]) -> None:
    incoming = decode(encode(batch))
    assert isinstance(incoming, Batch)
    assert list(map(plain, incoming.items)) == list(map(plain, batch))


@given(message=messages, space=st.sampled_from(["\n", "\r", "\r\n", "\n\n  "]), value=values)
def test_a_message_is_one_line_even_if_a_raw_part_of_it_is_not(message: Message, space: str, value: Any) -> None:
    raw = msgspec.Raw(json.dumps(value, indent=2).replace("\n", space).encode() + space.encode())
    line = encode((message, Notification("m", raw)))
    assert not {b"\n"[0], b"\r"[0]} & set(line)
    assert json.loads(line)[1] == {"jsonrpc": "2.0", "method": "m", "params": value}


def test_absent_params_and_error_data_are_not_written() -> None:
    line = encode((Request(1, "m"), Notification("m"), ErrorResponse(None, ErrorObject(code=1, message="no"))))
    assert json.loads(line) == [
        {"jsonrpc": "2.0", "id": 1, "method": "m"},
        {"jsonrpc": "2.0", "method": "m"},
        {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "no"}},
    ]


# --- against another parser ------------------------------------------------------------------------------------------

SCRAPS = (
    rb'{"jsonrpc":"2.0", `"id": `"method": `"params": `"result": `"error": `"jsonrpc":"2.0"'
    rb'`{"code":1,"message":"m"}`{`}`[`]`,`:`"m"`1`1.0`null`true` `"\u0069d":`"\u0070arams":`"`\`NaN`1e999`":1,"'
    rb'`"a ":1,`' + _MARK
)
scraps = st.lists(
    st.sampled_from([*SCRAPS.split(b"`"), b"\xc3\xa9", b"\xff", b'"pad":"%b"' % (b"x" * 5000)]), max_size=14
).map(b"".join)
NAMED = ["id", "method", "params", "result", "error", "x", "\\u0069d", "\\u0070arams", "m\\u0065thod"]
VALUES = ["1", '"m"', "null", "{}", '{"id":1,"params":2}', '":1,"', " [1]", '{"code":1,"message":""}', "7"]
members = st.lists(st.tuples(st.sampled_from(NAMED), st.sampled_from(VALUES)), max_size=6)
envelopes = members.map(lambda pairs: "".join(f', "{name}":{value}' for name, value in pairs)).map(
    lambda text: f'{{"jsonrpc":"2.0"{text}}}'.encode()
)


@given(data=st.binary(max_size=60) | scraps)
def test_no_bytes_make_the_reader_raise(data: bytes) -> None:
    assert isinstance(decode(data), Request | Notification | Response | ErrorResponse | InvalidMessage | Batch)


@given(data=scraps | envelopes | messages.map(encode))
def test_another_parser_reads_accepted_messages_alike(data: bytes) -> None:
    incoming = decode(data)
    items = incoming.items if isinstance(incoming, Batch) else (incoming,)
    seen = [] if isinstance(incoming, InvalidMessage) else json.loads(data)
    each = seen if isinstance(seen, list) else [seen]
    assert all(alike(item, theirs) for item, theirs in zip(items, each, strict=False))


def alike(ours: Message | InvalidMessage, theirs: dict[str, Any]) -> bool:
    """Compare id and method of a message with the result of the other parser."""
    if isinstance(ours, InvalidMessage):
        return True
    mine = (getattr(ours, "id", None), getattr(ours, "method", None))
    return mine == (theirs.get("id"), theirs.get("method"))


@given(data=envelopes)
def test_an_accepted_message_has_no_duplicate_envelope_members(data: bytes) -> None:
    names = [name for name, _ in json.loads(data, object_pairs_hook=list)]
    counted = [name for name in names if name in {"jsonrpc", "id", "method", "params", "result", "error"}]
    assert isinstance(decode(data), InvalidMessage) or len(counted) == len(set(counted))


DEEPER_THAN_ANY_PARSER = b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}"


@pytest.mark.parametrize(
    ("data", "id", "response"),
    [
        pytest.param(b'{"jsonrpc":"2.0","id":7,"result":%s}', 7, True, id="an answer"),
        pytest.param(b'{"result":%s,"jsonrpc":"2.0","id":7}', 7, True, id="an answer, its id last"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"method":"x","params":%s}', None, False, id="a request"),
        pytest.param(b"[%s]", None, False, id="a list"),
        pytest.param(b'{"jsonrpc":"2.0","result":%s,"id":007}', None, True, id="an id that is no number"),
    ],
)
def test_the_id_of_a_response_nested_too_deeply_is_reported(data: bytes, id: int | None, response: bool) -> None:
    refused = decode(data % DEEPER_THAN_ANY_PARSER)
    assert refused == InvalidMessage(-32700, "Parse error: nested too deeply", id, response=response)
