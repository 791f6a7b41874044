"""Decodes the results of requests: the typed answer, the request for input that came instead, or why it is neither.

The kind of a result is checked after it was decoded as the answer it nearly always is, so that the common answer is
decoded once and never searched.
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

#: The exceptions of a decoder for bytes that do not have the expected form.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def read_result(row: Method, raw: Raw, revision: Revision) -> Any:
    """Decode the result of a method, or the ``InputRequiredResult`` that came instead.

    Raises:
        RemoteProtocolError: it cannot be decoded, or its kind does not exist in this revision.
    """
    try:
        result = _decoder(row.result).decode(raw)
    except UNREADABLE:
        # A request for input lacks members that the answer must have.
        return _read_other(row, raw, revision)
    kind = result.result_type
    if kind is None or kind == "complete":
        return result
    return _read_other(row, raw, revision)


def _read_other(row: Method, raw: Raw, revision: Revision) -> Any:
    try:
        result = decode_result(row, raw)
    except UNREADABLE as error:
        raise RemoteProtocolError(f"The result of {row.name} cannot be decoded: {error}") from error
    if isinstance(result, InputRequiredResult):
        if Feature.INPUT_REQUIRED not in revision.features:
            raise RemoteProtocolError(f"The server asked for input, but {revision.name} has no such result.")
        return result
    # Where results have no kinds, the member is a custom one.
    return check_kind(result) if revision.result_type else result
