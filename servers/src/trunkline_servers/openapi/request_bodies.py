"""Request bodies: which media type is used, which arguments make up the body, and how it is encoded.

An object whose members are known is spread over the tool's arguments; any other body is a single argument. The caller
passes a file as text or base64: nothing is ever read from disk here.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from trunkline.errors import ToolError
from trunkline_servers.api_client import RawBody
from trunkline_servers.openapi.document import Document, clean_text
from trunkline_servers.openapi.parameters import (
    ApiParameter,
    argument_name,
    check_no_overlap,
    json_text,
    plain_text,
    query_pairs,
)
from trunkline_servers.openapi.schemas import SchemaTranslator
from trunkline_servers.untrusted import as_dict, as_list

__all__ = ["RequestBody", "body_schemas", "encode_body", "read_body"]

_JSON = re.compile(r"application/(?:json|[\w.+-]+\+json)\b", re.IGNORECASE)
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_MIME = re.compile(r"[\w.+-]+/[\w.+-]+(?:; ?[\w-]+=[\w.-]+)*", re.ASCII)
#: Largest body that is sent.
_MOST_BYTES = 16 * 1024 * 1024
#: In order of preference.
_KINDS = (
    ("json", _JSON),
    ("form", re.compile(r"application/x-www-form-urlencoded\b", re.IGNORECASE)),
    ("multipart", re.compile(r"multipart/form-data\b", re.IGNORECASE)),
    ("text", re.compile(r"text/|application/(?:xml|[\w.+-]+\+xml|yaml|graphql)\b", re.IGNORECASE)),
    ("binary", re.compile(r"")),
)
_FILE_SCHEMA = MappingProxyType(
    {
        "type": "object",
        "description": "A file: its content as text or as base64.",
        "properties": {
            "text": {"type": "string"},
            "base64": {"type": "string", "contentEncoding": "base64"},
            "filename": {"type": "string"},
            "mimeType": {"type": "string"},
        },
        "oneOf": [{"required": ["text"]}, {"required": ["base64"]}],
        "additionalProperties": False,
    }
)
#: Keywords that constrain an object as a whole, so that spreading its members would lose them.
_COMPOSED = (
    "anyOf",
    "oneOf",
    "not",
    "if",
    "patternProperties",
    "discriminator",
    "minProperties",
    "maxProperties",
    "propertyNames",
    "dependentRequired",
    "dependentSchemas",
    "enum",
    "const",
    "$ref",
)
#: Keywords that may stand beside a reference without constraining the members.
_BESIDE = frozenset({"$ref", "title", "summary", "description", "deprecated", "example", "examples", "default"})
#: Most arguments that a body is spread over; no model could handle more.
_MOST_SPREAD = 200


class RequestBody(Struct, frozen=True, kw_only=True):
    """The request body of an operation."""

    kind: str
    content_type: str
    required: bool
    schema: Any
    description: str = ""
    #: The argument that is the whole body; empty if the body is spread.
    argument: str = ""
    #: Argument name to member name, if the body is spread.
    members: Mapping[str, str] = MappingProxyType({})
    #: Member name to schema, if the body is an object.
    properties: Mapping[str, Any] = MappingProxyType({})
    needed: frozenset[str] = frozenset()
    #: Members that are files or lists of files.
    files: frozenset[str] = frozenset()
    encodings: Mapping[str, Any] = MappingProxyType({})

    @property
    def arguments(self) -> list[str]:
        """The names of its arguments."""
        return [self.argument] if self.argument else list(self.members)


# --- reading ---------------------------------------------------------------------------------------------------------


def read_body(document: Document, given: Any, *, taken: set[str], what: str) -> RequestBody | None:
    """Read the request body of an operation, if it has one; argument names avoid those in ``taken``.

    Raises:
        ConfigError: a reference in it cannot be resolved.
    """
    if given is None:
        return None
    node = document.follow(given, f"the body of {what}")
    found = _choose_media_type(as_dict(node.get("content")))
    if found is None:
        return None
    kind, content_type, media = found
    schema = media.get("schema", {})
    members = _members(document, schema, set()) if kind in ("json", "form", "multipart") else None
    hidden = SchemaTranslator(document, inputs=True).hides
    properties, needed = members or ({}, frozenset())
    properties = {name: each for name, each in properties.items() if not hidden(each)}
    required = node.get("required") is True
    spread = _spread(properties, taken) if required and len(properties) <= _MOST_SPREAD else {}
    return RequestBody(
        kind=kind,
        content_type=content_type,
        required=required,
        schema=schema,
        description=clean_text(node.get("description"), 500),
        argument="" if spread else argument_name("body", "content", taken=taken),
        members=spread,
        properties=properties,
        needed=needed & properties.keys(),
        files=frozenset(
            name for name, each in properties.items() if kind == "multipart" and _holds_file(document, each)
        ),
        encodings=as_dict(media.get("encoding")),
    )


def _choose_media_type(content: dict[str, Any]) -> tuple[str, str, dict[str, Any]] | None:
    for kind, pattern in _KINDS:
        for name, media in content.items():
            if "*" in name or not _MIME.fullmatch(name):
                # A media range cannot be sent as a type; anything but a string is most likely meant as JSON.
                is_text = as_dict(as_dict(media).get("schema")).get("type") == "string"
                sent = "application/octet-stream" if is_text else "application/json"
                if kind == ("binary" if is_text else "json"):
                    return kind, sent, as_dict(media)
            elif pattern.match(name):
                return kind, name, as_dict(media)
    return None


def _spread(properties: Mapping[str, Any], taken: set[str]) -> dict[str, str]:
    names: dict[str, str] = {}
    used = set(taken)
    for member in properties:
        name = argument_name(member, "body", taken=used)
        used.add(name)
        names[name] = member
    return names


def _members(document: Document, node: Any, seen: set[int]) -> tuple[dict[str, Any], frozenset[str]] | None:
    """Return the members of an object and the required ones, if every allowed member is known by name.

    A part that was ``seen`` before is a cycle, or part of an exponential expansion.
    """
    if not isinstance(node, dict) or ("$ref" in node and not document.is_3_0 and node.keys() - _BESIDE):
        return None
    schema = document.follow(node, "a body")
    is_whole = not seen
    if id(schema) in seen:
        return None
    seen.add(id(schema))
    is_object = schema.get("type", "object") in ("object", ["object"]) and schema.get("nullable") is not True
    if not is_object or any(word in schema for word in _COMPOSED):
        return None
    if any(schema.get(word) not in (None, False) for word in ("additionalProperties", "unevaluatedProperties")):
        return None
    properties = dict(as_dict(schema.get("properties")))
    needed = {name for name in as_list(schema.get("required")) if isinstance(name, str)}
    for part in as_list(schema.get("allOf")):
        inner = _members(document, part, seen)
        if inner is None or any(name in properties for name in inner[0]):
            return None
        properties.update(inner[0])
        needed |= inner[1]
    return (properties, frozenset(needed)) if properties or schema.get("allOf") or not is_whole else None


def body_schemas(
    body: RequestBody, translation: SchemaTranslator, document: Document
) -> tuple[dict[str, Any], list[str]]:
    """Return the schema of each argument of a body, and the required arguments.

    Raises:
        ConfigError: a schema cannot be used.
    """
    if body.argument:
        schema = _whole(body, translation, document)
        if body.description and isinstance(schema, dict):
            schema = {"description": body.description, **schema}
        return {body.argument: schema}, [body.argument] if body.required else []
    schemas = {name: _member(body, member, translation, document) for name, member in body.members.items()}
    return schemas, [name for name, member in body.members.items() if member in body.needed]


def _whole(body: RequestBody, translation: SchemaTranslator, document: Document) -> Any:
    if body.kind == "binary":
        return dict(_FILE_SCHEMA)
    if body.kind == "text":
        return {"type": "string"}
    if body.kind == "multipart" and body.properties:
        members = {name: _member(body, name, translation, document) for name in body.properties}
        return {"type": "object", "properties": members, "required": sorted(body.needed), "additionalProperties": False}
    schema = translation.schema(body.schema)
    return {"type": "object", **schema} if body.kind != "json" and "$ref" not in schema else schema


def _member(body: RequestBody, name: str, translation: SchemaTranslator, document: Document) -> Any:
    node = body.properties[name]
    if name not in body.files:
        return translation.schema(node)
    schema = document.follow(node, "a part of a form")
    text = clean_text(schema.get("description"), 500)
    file = {**_FILE_SCHEMA, **({"description": f"{text} (a file: text or base64)"} if text else {})}
    return {"type": "array", "items": file} if schema.get("type") == "array" else file


def _holds_file(document: Document, node: Any) -> bool:
    """Return True if a part of a form is a file or a list of files."""
    schema = document.follow(node, "a part of a form") if isinstance(node, dict) else {}
    items = schema.get("items") if schema.get("type") == "array" else None
    return _is_file(document.follow(items, "a part of a form") if isinstance(items, dict) else schema)


def _is_file(schema: dict[str, Any]) -> bool:
    return schema.get("format") == "binary" or "contentMediaType" in schema or schema.get("contentEncoding") is not None


# --- writing ---------------------------------------------------------------------------------------------------------


def encode_body(body: RequestBody, arguments: Mapping[str, Any]) -> RawBody | None:
    """Encode the body from a tool's arguments; None if it is optional and absent.

    Raises:
        ToolError: a file is not valid base64, a form holds an unsupported value, or the body is too large.
    """
    if body.argument:
        if body.argument not in arguments:
            return None
        value = arguments[body.argument]
    else:
        value = {member: arguments[name] for name, member in body.members.items() if name in arguments}
    upload = _encode(body, value)
    if len(upload.content) > _MOST_BYTES:
        raise ToolError(f"The body is larger than {_MOST_BYTES} bytes")
    return upload


def _encode(body: RequestBody, value: Any) -> RawBody:
    if body.kind == "json":
        return RawBody(msgspec.json.encode(value), body.content_type)
    if body.kind in ("form", "multipart") and not isinstance(value, dict):
        raise ToolError("A form is given as an object")
    if body.kind == "form":
        return RawBody(_form(body, value).encode(), "application/x-www-form-urlencoded")
    if body.kind == "multipart":
        return _multipart(body, value)
    if body.kind == "text":
        kind = body.content_type
        return RawBody(_utf8(plain_text(value)), kind if "charset" in kind else f"{kind}; charset=utf-8")
    content, _, mime_type = _file(value, "the body")
    return RawBody(content, mime_type or body.content_type)


def _form(body: RequestBody, value: Mapping[str, Any]) -> str:
    names = body.properties.keys() | value.keys()
    pairs = [pair for name, item in value.items() for pair in _form_pairs(body, name, item, names)]
    return "&".join(f"{name}={text}" for name, text in pairs)


def _form_pairs(body: RequestBody, name: str, value: Any, names: Collection[str]) -> list[tuple[str, str]]:
    encoding = as_dict(body.encodings.get(name))
    styled = "style" in encoding or "explode" in encoding
    nested = isinstance(value, dict) or (isinstance(value, list) and any(isinstance(i, dict | list) for i in value))
    style = str(encoding.get("style", "form"))
    parameter = ApiParameter(
        name=name,
        where="body",
        argument=name,
        schema={},
        style=style,
        explode=encoding.get("explode", style == "form") is True,
        reserved=encoding.get("allowReserved") is True,
        # Without a style, JSON is the only encoding of an object that all servers read alike.
        as_json=(nested and not styled) or bool(_JSON.match(str(encoding.get("contentType", "")))),
    )
    pairs = query_pairs(parameter, value)
    check_no_overlap(parameter, pairs, others=names)
    return pairs


def _multipart(body: RequestBody, value: Mapping[str, Any]) -> RawBody:
    import secrets

    boundary = f"trunkline-{secrets.token_hex(16)}"
    pieces: list[bytes] = []
    for name, item in value.items():
        for each in item if isinstance(item, list) else [item]:
            content, filename, kind = _part(body, name, each)
            head = f'Content-Disposition: form-data; name="{_parameter_text(name)}"'
            head += f'; filename="{_parameter_text(filename)}"' if filename is not None else ""
            head += f"\r\nContent-Type: {kind}" if kind else ""
            pieces += [f"--{boundary}\r\n{head}\r\n\r\n".encode(), content, b"\r\n"]
    return RawBody(b"".join([*pieces, f"--{boundary}--\r\n".encode()]), f"multipart/form-data; boundary={boundary}")


def _part(body: RequestBody, name: str, value: Any) -> tuple[bytes, str | None, str | None]:
    said = as_dict(body.encodings.get(name)).get("contentType")
    wanted = said if isinstance(said, str) and _MIME.fullmatch(said) else None
    if name in body.files:
        content, filename, kind = _file(value, name)
        return content, filename or name, kind or wanted or "application/octet-stream"
    if isinstance(value, dict | list):
        return json_text(value).encode(), None, wanted or "application/json"
    return _utf8("" if value is None else plain_text(value)), None, wanted


def _file(value: Any, what: str) -> tuple[bytes, str | None, str | None]:
    """Return the content, name and MIME type of a file."""
    kind = value.get("mimeType")
    if kind is not None and not _MIME.fullmatch(kind):
        raise ToolError(f"{kind[:100]!r} is not a MIME type")
    if "text" in value:
        return _utf8(value["text"]), value.get("filename"), kind
    try:
        return b64decode(value["base64"], validate=True), value.get("filename"), kind
    except (Base64Error, ValueError) as error:
        raise ToolError(f"The base64 of {what} is invalid: {error}") from error


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolError("The text is not valid Unicode") from error


def _parameter_text(text: str) -> str:
    if _CONTROLS.search(text):
        raise ToolError("The name of a file or a part must not hold control characters")
    return text.replace("\\", "_").replace('"', "%22")
