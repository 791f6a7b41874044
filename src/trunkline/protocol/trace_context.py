"""W3C trace context in the ``_meta`` of requests (SEP-414).

``traceparent``, ``tracestate`` and ``baggage`` are the only members of ``_meta`` without a prefix; their values have
the formats of the HTTP headers of the same names.
"""

from __future__ import annotations

from msgspec import Raw

from trunkline.protocol.methods import read_meta

__all__ = ["TRACE_KEYS", "trace_members"]

TRACE_KEYS = ("traceparent", "tracestate", "baggage")
_PARENT = b'"traceparent"'
_MOST_CHARACTERS = 8192  # W3C Baggage: a platform must pass on at least so many.


def trace_members(params: Raw | None) -> dict[str, str]:
    """Return the trace context of undecoded params; values that cannot be one are left out."""
    # Searching the bytes is much cheaper than decoding them twice.
    if params is None or _PARENT not in bytes(params):
        return {}
    meta = read_meta(params)
    return {
        key: value
        for key in TRACE_KEYS
        if isinstance(value := meta.get(key), str) and len(value) <= _MOST_CHARACTERS and value.isprintable()
    }
