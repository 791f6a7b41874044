"""Reads the results of requests: the typed answer, the question that came instead, or why it is neither.

The kind of a result is looked at after it was decoded as the answer it nearly always is, so that the common answer is
read once and never searched.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from msgspec import Raw

from trunkline.errors import RemoteProtocolError
from trunkline.protocol.methods import Method, decode_result
from trunkline.protocol.revisions import Feature, Revision
from trunkline.protocol.rounds import check_kind
from trunkline.types import InputRequiredResult

__all__ = ["UNREADABLE", "read_result"]

#: What a decoder raises for bytes that are not what was wanted.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def read_result(row: Method, raw: Raw, revision: Revision) -> Any:
    """Decode the result of a method, or the ``InputRequiredResult`` that came instead.

    Raises:
        RemoteProtocolError: it cannot be read, or is of a kind that there is not in this revision.
    """
    try:
        result = _decoder(row.result).decode(raw)
    except UNREADABLE:
        # A question lacks what the answer must have.
        return _read_other(row, raw, revision)
    kind = result.result_type
    if kind is None or kind == "complete":
        return result
    return _read_other(row, raw, revision)


def _read_other(row: Method, raw: Raw, revision: Revision) -> Any:
    try:
        result = decode_result(row, raw)
    except UNREADABLE as error:
        raise RemoteProtocolError(f"The answer to {row.name} cannot be read: {error}") from error
    if isinstance(result, InputRequiredResult):
        if Feature.INPUT_REQUIRED not in revision.features:
            raise RemoteProtocolError(f"{revision.name} has no result that asks for input, but one came.")
        return result
    # Where results have no kinds the member is somebody's own.
    return check_kind(result) if revision.result_type else result
