"""The pin of a definition: a digest that changes whenever the definition does.

What a user approves is a definition, not a name, so approvals, grants and the audit trail name a pin. It is the
SHA-256 of the definition's canonical JSON: members sorted by name, no white space, UTF-8, every member the protocol
knows (name, title, description, schemas, annotations, icons, ``_meta``). Unknown members are dropped when a definition
is decoded, so they reach no client and are in no pin.

Canonical JSON is close to RFC 8785: the order of members never matters, and ``1``, ``1.0`` and ``1e0`` are the same
number, as for JSON Schema and for most programs that re-encode. It differs in two points, where the RFC would lose
information or cost much: an integer beyond 2**53 is written with all its digits, and members are sorted by code point
rather than by UTF-16 unit. Unicode is not normalised: two texts that look alike are two texts.

Before that, a tool is converted to its *normal form*, in which the same tool is equal in every revision and at every
start of its server. Each step removes a difference that carries no text and does not change which values are valid:

- ``required``, ``enum`` and ``type`` lists are sets to JSON Schema, so they are sorted, but only where a schema stands:
  a ``default``, ``const`` or ``examples`` is a value, and a property may be called "required".
- ``execution`` is left out: it exists in 2025-11-25 only, and its one member has one of three values of that revision.
- ``$schema`` is left out if it names the default dialect.
- An output schema of anything but an object is wrapped into ``{"result": ...}``, as it is in revisions before
  2026-07-28, and the marker that FastMCP adds to a wrapped schema is left out.

All other lists keep their order, which may mean something.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

import trunkline.types as t
from trunkline.protocol.shaping import needs_wrapping, wrap_schema

__all__ = ["canonical", "exact_pin", "is_pin", "normal_form", "pin_of"]

_encoder = msgspec.json.Encoder(order="sorted")
# How the encoder writes a float with an integer value; a match inside a string costs time only.
_WHOLE_FLOAT = re.compile(rb"\d\.0(?!\d)|\de\d")

# JSON Schema keywords whose order means nothing, and those that hold a schema, a list of schemas, or schemas by name.
_SETS = frozenset({"enum", "required", "type"})
_ONE_OR_MORE = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "allOf",
        "anyOf",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "oneOf",
        "prefixItems",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_BY_NAME = frozenset({"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"})
# The dialect of a schema that names none (specification, basic, JSON Schema usage).
_USUAL_DIALECTS = frozenset(
    {"https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2020-12/schema#"}
)
_WRAP_MARK = "x-fastmcp-wrap-result"


def pin_of(definition: t.Tool | t.Prompt | t.Resource | t.ResourceTemplate, *, most_bytes: int | None = None) -> str:
    """Return the pin of a definition: 64 hexadecimal digits.

    Raises:
        ValueError: it has a string that is not valid Unicode, or takes more bytes than ``most_bytes``.
        RecursionError: it is nested too deeply.
        TypeError: it has a value that JSON cannot hold.
    """
    written = canonical(_normal_tool(definition) if isinstance(definition, t.Tool) else definition)
    if most_bytes is not None and len(written) > most_bytes:
        raise ValueError(f"the definition takes {len(written)} bytes; {most_bytes} are allowed")
    return sha256(written).hexdigest()


def exact_pin(definition: Any) -> str:
    """Return the digest of a definition as it is, which was its pin before there was a normal form."""
    return sha256(canonical(definition)).hexdigest()


def is_pin(digest: str, pin: str, definition: Any) -> bool:
    """Return True if a digest is a definition's pin, or was its pin before there was a normal form.

    The second is the stricter of the two: it is equal only for the identical definition. ``definition`` is None if it
    is not known.
    """
    return digest == pin or (definition is not None and digest == exact_pin(definition))


def normal_form(document: Any) -> Any:
    """Return the normal form of a definition that is given as JSON; only tools have one."""
    if not isinstance(document, dict) or not isinstance(document.get("inputSchema"), dict):
        return document
    normal = {name: value for name, value in document.items() if name != "execution"}
    normal["inputSchema"] = _normal_root(document["inputSchema"])
    if isinstance(document.get("outputSchema"), dict):
        normal["outputSchema"] = _normal_output(document["outputSchema"])
    return normal


def canonical(value: Any) -> bytes:
    """Encode a value so that equal JSON gives equal bytes; raises as ``pin_of``."""
    written = _encoder.encode(value)
    if _WHOLE_FLOAT.search(written):
        # Decoding keeps integers of any size; only the encoder's own output is decoded.
        written = _encoder.encode(_whole(msgspec.json.decode(written)))
    return written


def _whole(value: Any) -> Any:
    """Convert every float with an integer value to an integer."""
    if isinstance(value, dict):
        return {name: _whole(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_whole(member) for member in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


# --- the normal form -------------------------------------------------------------------------------------------------


def _normal_tool(tool: t.Tool) -> t.Tool:
    output = tool.output_schema
    return msgspec.structs.replace(
        tool,
        input_schema=_normal_root(tool.input_schema),
        output_schema=None if output is None else _normal_output(output),
        execution=None,
    )


def _normal_root(schema: Mapping[str, Any]) -> dict[str, Any]:
    normal: dict[str, Any] = _normal_schema(schema)
    if normal.get("$schema") in _USUAL_DIALECTS:
        del normal["$schema"]
    return normal


def _normal_output(schema: Mapping[str, Any]) -> dict[str, Any]:
    normal = _normal_root(wrap_schema(schema) if needs_wrapping(schema) else schema)
    wrapped = normal.get("properties")
    if normal.get(_WRAP_MARK) is True and isinstance(wrapped, dict) and set(wrapped) == {"result"}:
        del normal[_WRAP_MARK]
    return normal


def _normal_schema(schema: Any) -> Any:
    """Return a schema with its sets sorted, at every depth; anything that is not a schema is returned unchanged."""
    if isinstance(schema, list):
        return [_normal_schema(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {word: _normal_part(word, part) for word, part in schema.items()}


def _normal_part(word: str, part: Any) -> Any:
    if word in _SETS:
        return _sorted(part) if isinstance(part, list) else part
    if word in _ONE_OR_MORE:
        return _normal_schema(part)
    if word in _BY_NAME and isinstance(part, Mapping):
        # A list here holds names ("dependencies" of older drafts), not schemas.
        return {name: each if isinstance(each, list) else _normal_schema(each) for name, each in part.items()}
    return part


def _sorted(values: list[Any]) -> list[Any]:
    if all(type(each) is str for each in values):
        return sorted(values)
    return sorted(values, key=canonical)
