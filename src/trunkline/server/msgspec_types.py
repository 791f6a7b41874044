"""Reading and writing JSON with msgspec, for every function that uses nothing from pydantic.

It knows types, not functions. A `MsgspecReader` reads one type; `MsgspecArguments` reads a struct made of a function's
parameters, directly from the bytes on the wire. The normal case is one strict decode; only if that fails are the bytes
decoded again, coerced, and the error explained. If a member occurs twice in an object, the last one counts. Results
are checked before they are sent, and a NaN, which msgspec would write as null, is rejected.
"""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta
from enum import EnumMeta
from functools import lru_cache
from os import PathLike, fspath
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_args, get_origin

import msgspec
from msgspec.structs import asdict, astuple

from trunkline.server.annotations import (
    BUILTIN_TYPES,
    handles_module,
    is_handle,
    is_record,
    optional_of,
    strip_annotated,
    survey,
)
from trunkline.server.validation_errors import (
    MOST_PROBLEMS,
    InvalidArguments,
    InvalidResult,
    describe_choices,
    explain_msgspec_error,
    join_path,
    name_problems,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trunkline.server.annotations import TypeSurvey

__all__ = [
    "DECODE_ERRORS",
    "MsgspecArguments",
    "MsgspecReader",
    "MsgspecResult",
    "ScalarResult",
    "UntypedResult",
    "adapt",
    "encode_hook",
    "find_unsupported",
    "json_default",
    "msgspec_result",
    "reject_non_finite",
]

#: The exceptions of the decoder for bytes that do not match the type.
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_STATIC = frozenset({int, str, float, bool, type(None), bytes, tuple, frozenset})
_STATIC_SCALARS = frozenset({int, str, float, bool, type(None), bytes})
_MISSING: Any = msgspec.UNSET
#: Bytes of arguments that are searched for all their problems; of larger ones the first is told.
_LARGEST_SEARCHED = 100_000
_SCALARS: frozenset[Any] = frozenset({str, int, float, bool, datetime, date, time, timedelta})
_UNWRITABLE = (TypeError, ValueError, OverflowError, RecursionError)


_encode = msgspec.json.Encoder().encode
_JSON_SCALARS = frozenset({int, bool, type(None)})  # They are their own JSON form; a float may have none.


class MsgspecReader:
    """Reads JSON into one type: strictly first, then with coercion."""

    __slots__ = ("_decode", "_kind", "_tree", "shows_values", "strict")

    def __init__(
        self, kind: object, *, store_defaults: bool = True, strict: bool = False, shows_values: bool = False
    ) -> None:
        """Create the decoder; msgspec raises TypeError here for types that it does not support.

        ``store_defaults`` is not needed if the type contains no dataclass, or if values are read only to be checked.
        ``strict`` reads values as they are, without coercion; ``shows_values`` repeats rejected values in errors.
        """
        self._kind = kind
        self.strict = strict
        self.shows_values = shows_values
        decode: Callable[[bytes | msgspec.Raw], Any] = msgspec.json.Decoder(kind, dec_hook=_decode_hook).decode
        self._decode = _with_defaults(decode, survey((kind,))) if store_defaults else decode
        self._tree: Any = None

    def read(self, raw: bytes | msgspec.Raw) -> Any:
        """Read bytes.

        Raises:
            InvalidArguments: they do not match the type, even with coercion.
        """
        try:
            return self._decode(raw)
        except DECODE_ERRORS as error:
            return self._read_again(raw, error)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the type; treat it as read-only."""
        return _self_contained(self._kind) or self._schema(None)

    def explain(self, error: Exception) -> tuple[str, str]:
        """Return the path and the message for a decoding error."""
        if not isinstance(error, msgspec.ValidationError):
            return "", "nested too deeply" if isinstance(error, RecursionError) else "not JSON"
        steps, message = explain_msgspec_error(str(error))
        if not message:
            from trunkline.server.schemas import declared_order
            from trunkline.server.validation_errors import choices_at

            choices = declared_order(choices_at(self._description(), steps), self._orders())
            message = f"expected {describe_choices(choices)}"
        return join_path(steps), message

    def _schema(self, finish: Callable[[dict[str, object]], None] | None) -> dict[str, Any]:
        from trunkline.server.schemas import tidy

        schema, definitions = _schema_and_definitions(self._kind)
        if finish is not None:
            finish(definitions[schema["$ref"].rpartition("/")[2]])
        return tidy(schema, definitions, orders=self._orders())

    def _orders(self) -> Any:
        from trunkline.server.schemas import declared_orders

        return declared_orders(survey((self._kind,)))

    def _description(self) -> Any:
        if self._tree is None:
            self._tree = msgspec.inspect.type_info(self._kind)
        return self._tree

    def _read_again(self, raw: bytes | msgspec.Raw, error: Exception) -> Any:
        from trunkline.server.validation_errors import coerce

        try:
            value = msgspec.json.decode(raw)
        except DECODE_ERRORS:
            raise self._error(error) from None
        try:
            if not self.strict:
                value = coerce(value, self._description())
            return self._decode(msgspec.json.encode(value))
        except DECODE_ERRORS as second:
            raise self._error(second, value if len(bytes(raw)) <= _LARGEST_SEARCHED else None) from None

    def _error(self, error: Exception, value: Any = None) -> InvalidArguments:
        """Return the error with all problems of a value, or the first if it is not known or large."""
        from trunkline.server.argument_problems import find_problems

        problems = self._name_problems(value)
        if value is not None:
            found = find_problems(
                value, self._description(), hook=_decode_hook, orders=self._orders(), are_arguments=problems is not None
            )
            problems = [*(problems or ()), *(problem.explained(shows_value=self.shows_values) for problem in found)]
        return InvalidArguments.of((problems or [self.explain(error)])[:MOST_PROBLEMS])

    def _name_problems(self, value: object) -> list[tuple[str, str]] | None:
        """Return the unknown and missing arguments; None if the value is no arguments."""
        return None


class MsgspecArguments(MsgspecReader):
    """Reads the arguments of a call into keyword arguments."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Iterable[tuple[str, object, object]]) -> None:
        """Create the reader from (name, adapted annotation, default); without a default, it is `msgspec.UNSET`.

        Creating the struct is half the cost of registration, so it is left to the first call if it cannot fail.
        """
        self._fields = tuple(fields)
        self._kind = self._tree = None
        self.strict, self.shows_values = False, True
        self._decode = self._decode_first
        if not all(_is_always_supported(annotation) for _, annotation, _ in self._fields):
            self._build(store_defaults=True)

    def _build(self, *, store_defaults: bool = False) -> None:
        super().__init__(
            msgspec.defstruct("Arguments", map(_field, self._fields), kw_only=True, forbid_unknown_fields=True),
            store_defaults=store_defaults,
            strict=self.strict,
            shows_values=self.shows_values,
        )

    def _decode_first(self, raw: bytes | msgspec.Raw) -> Any:
        self._build()
        return self._decode(raw)

    def bind(self, raw: bytes | msgspec.Raw | None) -> dict[str, Any]:
        """Read arguments into keyword arguments, with defaults.

        Raises:
            InvalidArguments: they do not match the type, even with coercion.
        """
        try:
            return asdict(self._decode(b"{}" if raw is None else raw))
        except DECODE_ERRORS as error:
            return asdict(self._read_again(b"{}" if raw is None or bytes(raw) == b"null" else raw, error))

    def bind_values(self, raw: bytes | msgspec.Raw | None) -> tuple[Any, ...]:
        """Read arguments into values in the order of the parameters, with defaults.

        Raises:
            InvalidArguments: they do not match the type, even with coercion.
        """
        try:
            return astuple(self._decode(b"{}" if raw is None else raw))
        except DECODE_ERRORS as error:
            return astuple(self._read_again(b"{}" if raw is None or bytes(raw) == b"null" else raw, error))

    def arguments_schema(self, descriptions: dict[str, str]) -> dict[str, Any]:
        """Return the schema of the arguments, with a description for each parameter; treat it as read-only."""
        properties: dict[str, Any] = {}
        for name, annotation, default in self._fields:
            known = _self_contained(annotation)
            if known is None:
                return self._whole_schema(descriptions)
            property_ = properties[name] = {**known}
            if name in descriptions:
                property_["description"] = descriptions[name]
            if default is not _MISSING and (value := json_default(default)) is not None:
                property_["default"] = value
        required = [name for name, _, default in self._fields if default is _MISSING]
        return {"type": "object", "properties": properties, **({"required": required} if required else {})}

    def _whole_schema(self, descriptions: dict[str, str]) -> dict[str, Any]:
        """Build the schema from the struct: definitions may be shared by parameters, or refer to themselves."""

        def finish(struct: dict[str, Any]) -> None:
            struct.pop("title", None)
            # Unknown arguments are rejected anyway; the keyword would make every list longer, and confuses some models.
            struct.pop("additionalProperties", None)
            for name, _, default in self._fields:
                field = struct["properties"][name]
                if name in descriptions:
                    field["description"] = descriptions[name]
                field.pop("default", None)
                if default is not _MISSING and (known := json_default(default)) is not None:
                    field["default"] = known

        if self._kind is None:
            self._build()
        return self._schema(finish)

    def _name_problems(self, value: object) -> list[tuple[str, str]] | None:
        if not isinstance(value, dict):
            return []
        required = [name for name, _, default in self._fields if default is _MISSING]
        problems = name_problems(value, [name for name, _, _ in self._fields], required=required)
        return [("", problem) for problem in problems]


def _with_defaults(
    decode: Callable[[bytes | msgspec.Raw], Any], found: TypeSurvey
) -> Callable[[bytes | msgspec.Raw], Any]:
    """Return a decoder that stores the defaults of dataclasses in their instances, as ``__init__`` does.

    msgspec leaves a default to the attribute of the class. The encoder and ``vars`` look only into the instance, so an
    argument that a function returns would lose its members.
    """
    defaults = {kind: plain for kind in found.classes if (plain := _plain_defaults(kind))}
    if not defaults:
        return decode

    def decode_complete(raw: bytes | msgspec.Raw) -> Any:
        value = decode(raw)
        _store_defaults(value, defaults)
        return value

    return decode_complete


def _plain_defaults(kind: Any) -> dict[str, Any]:
    """Return the defaults that are attributes of a dataclass; with slots there are none, and msgspec stores them."""
    if not hasattr(kind, "__dataclass_fields__") or not kind.__dictoffset__:
        return {}
    from dataclasses import MISSING, fields

    return {field.name: field.default for field in fields(kind) if field.default is not MISSING}


def _store_defaults(value: object, defaults: dict[Any, dict[str, Any]]) -> None:
    pending, seen = [value], set()
    while pending:
        here: Any = pending.pop()
        if type(here) in _STATIC_SCALARS or id(here) in seen:
            continue
        # A `__post_init__` may have made the value refer to itself.
        seen.add(id(here))
        if isinstance(here, (list, tuple, set, frozenset)):
            pending.extend(here)
        elif isinstance(here, dict):
            pending.extend(here.values())
        elif isinstance(here, msgspec.Struct):
            pending.extend(astuple(here))
        elif is_record(type(here)):
            names = getattr(here, "__dataclass_fields__", None) or [each.name for each in type(here).__attrs_attrs__]
            pending.extend(getattr(here, name, None) for name in names)
            for name, default in defaults.get(type(here), {}).items():
                # Also in a frozen instance.
                here.__dict__.setdefault(name, default)


def _self_contained(annotation: Any) -> dict[str, Any] | None:
    """Return the schema of an annotation that can stand by itself, or None for any other.

    Tools share few annotations, and msgspec takes a tenth of a millisecond for each, so that the first list of a large
    server would be slow.
    """
    try:
        # Unions are equal in any order of their parts, and a schema shows that order.
        return _cached_schema(annotation, "" if type(annotation) is type else repr(annotation))
    except TypeError:  # not hashable, or not supported; the second is reported with the whole schema
        return None


@lru_cache(maxsize=1024)
def _cached_schema(annotation: Any, written: str) -> dict[str, Any] | None:
    found = survey((annotation,))
    if found.metadata:
        # A description in the metadata merges with one of the parameter.
        return None
    from trunkline.server.schemas import declared_orders, tidy

    schema, definitions = _schema_and_definitions(annotation)
    tidied = tidy(schema, definitions, orders=declared_orders(found))
    return None if "$defs" in tidied else tidied


def _schema_and_definitions(annotation: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    from trunkline.server.schemas import add_formats

    (schema,), definitions = msgspec.json.schema_components((annotation,), schema_hook=_schema_hook)
    if not survey((annotation,)).classes.isdisjoint((datetime, time)):
        add_formats(schema, definitions, msgspec.inspect.type_info(annotation))
    return schema, definitions


def _is_always_supported(annotation: object) -> bool:
    """Return whether msgspec certainly supports a type."""
    if type(annotation) is type:
        return annotation in BUILTIN_TYPES
    parts = get_args(annotation)
    inner = parts[0] if get_origin(annotation) is list and parts else optional_of(annotation)
    return annotation is Any or (inner is not None and _is_always_supported(inner))


def _field(field: tuple[str, object, object]) -> Any:
    name, annotation, default = field
    if default is _MISSING:
        return name, annotation
    if type(default) in _STATIC:
        return name, annotation, default
    # The function's own default object, shared between calls as in Python.
    return name, annotation, msgspec.field(default_factory=lambda: default)


def adapt(annotation: Any, default: Any = _MISSING) -> Any:
    """Return a parameter's annotation in the form that msgspec needs."""
    if annotation in BUILTIN_TYPES if isinstance(annotation, type) else annotation is Any:
        return annotation | None if default is None else annotation
    inner, metadata = strip_annotated(annotation)
    meta = tuple(item for item in metadata if isinstance(item, msgspec.Meta))
    optional = optional_of(inner)
    if optional is not None:
        # msgspec rejects constraints on a union; on its only member that is not None they mean the same.
        return _annotated(adapt(optional), meta) | None
    adapted = _annotated(inner, meta)
    return adapted | None if default is None else adapted


def _annotated(inner: object, metadata: tuple[object, ...]) -> Any:
    for item in metadata:
        inner = Annotated[inner, item]
    return inner


def find_unsupported(found: TypeSurvey) -> Any | None:
    """Return a class that msgspec can neither read nor describe; None if there is none."""
    for kind in found.classes:
        if (
            kind in BUILTIN_TYPES
            or kind is object
            or is_record(kind)
            or isinstance(kind, EnumMeta)
            or issubclass(kind, PathLike)
            or is_handle(kind)
        ):
            continue
        if isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType):
            return kind
    return None


def json_default(value: object) -> Any:
    """Return a default as JSON; None if it has no JSON form."""
    if type(value) in _JSON_SCALARS or (type(value) is str and value.isascii()):
        return value
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=encode_hook))
    except (TypeError, ValueError, RecursionError):
        return None


def encode_hook(value: object) -> Any:
    """Encode what msgspec does not support: paths, handles, and pydantic models inside other values.

    Raises:
        TypeError: the value is of any other type.
    """
    if isinstance(value, PathLike):
        return fspath(value)
    if is_handle(type(value)):
        return str(value)
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"a {type(value).__name__} cannot be encoded as JSON")
    return dump(mode="json", by_alias=True)


def _decode_hook(kind: Any, value: Any) -> Any:
    if is_handle(get_origin(kind) or kind):
        # Handles are decoded only to validate results; the decoded value is not used.
        return handles_module().read_result(kind, value)
    if isinstance(value, str) and issubclass(kind, PathLike):
        return kind(value)
    return value


def _schema_hook(kind: object) -> dict[str, Any]:
    if is_handle(kind):
        return {"type": "string", "description": handles_module().RESULT_DESCRIPTION}
    # msgspec does not accept an empty schema here; `tidy` drops a default of None.
    return {"default": None} if kind is object else {"type": "string", "format": "path"}


# --- writing ---------------------------------------------------------------------------------------------------------


class UntypedResult:
    """The result of a function without a useful return annotation."""

    __slots__ = ()

    #: Whether there is a schema.
    described: ClassVar[bool] = False

    def schema(self) -> dict[str, Any] | None:
        """Return None: the type of the result is unknown."""
        return None

    def encode(self, value: object) -> bytes:
        """Encode a value as JSON.

        Raises:
            InvalidResult: it has no JSON form.
        """
        try:
            data = msgspec.json.encode(value, enc_hook=encode_hook)
        except _UNWRITABLE as error:
            raise InvalidResult(f"cannot be encoded as JSON: {error}") from error
        if data.find(b"null") >= 0:
            reject_non_finite(_plain(value))
        return data


class MsgspecResult(UntypedResult):
    """A result of a type that msgspec supports; it is decoded again, since msgspec encodes instances unchecked."""

    __slots__ = ("_decode", "_holds_floats", "_reader")

    described = True

    def __init__(self, annotation: object) -> None:
        """Create the reader of the type."""
        self._reader = MsgspecReader(annotation, store_defaults=False)
        self._decode = self._reader._decode
        self._holds_floats = not survey((annotation,)).classes.isdisjoint((float, Any, object, dict, list, tuple))

    def schema(self) -> dict[str, Any] | None:
        """Return the JSON Schema of the value."""
        return self._reader.schema()

    def encode(self, value: object) -> bytes:
        """Check a value and encode it as JSON.

        Raises:
            InvalidResult: it does not match the annotation.
        """
        try:
            data = _write(value)
            self._decode(data)
        except (msgspec.DecodeError, *_UNWRITABLE) as error:
            raise self._error(value, error) from error
        # msgspec writes NaN and infinity as null.
        if self._holds_floats and data.find(b"null") >= 0:
            reject_non_finite(_plain(value))
        return data

    def _error(self, value: object, error: Exception) -> InvalidResult:
        if not isinstance(error, msgspec.DecodeError):
            return InvalidResult(f"cannot be encoded as JSON: {error}")
        # A NaN was encoded as null; an error about null would be misleading.
        reject_non_finite(_plain(value))
        path, message = self._reader.explain(error)
        return InvalidResult(message, path=path)


class ScalarResult(MsgspecResult):
    """A result without members, for which a conversion is the cheaper check."""

    __slots__ = ("_annotation",)

    def __init__(self, annotation: object) -> None:
        """Create the result for a scalar type."""
        super().__init__(annotation)
        self._annotation = annotation

    def encode(self, value: object) -> bytes:
        """Check a value and encode it as JSON.

        Raises:
            InvalidResult: it does not match the annotation.
        """
        annotation = self._annotation
        if type(value) is annotation and annotation is not float:
            # Exactly the annotated class, without constraints.
            return _encode(value)
        try:
            data = _encode(msgspec.convert(value, annotation))
        except msgspec.ValidationError as error:
            path, message = self._reader.explain(error)
            raise InvalidResult(message, path=path) from None
        if data == b"null":
            raise InvalidResult("expected a finite number")
        return data


def msgspec_result(annotation: object) -> MsgspecResult:
    """Return the cheapest check for a return annotation."""
    inner, _ = strip_annotated(annotation)
    return ScalarResult(annotation) if type(inner) is type and inner in _SCALARS else MsgspecResult(annotation)


def _write(value: object) -> bytes:
    """Write a value as JSON; keys that are no text become text."""
    try:
        return msgspec.json.encode(value, enc_hook=encode_hook)
    except TypeError:
        from trunkline.server.results import with_text_keys

        keyed = with_text_keys(value)
        if keyed is None:
            raise
        return msgspec.json.encode(keyed, enc_hook=encode_hook)


def _plain(value: object) -> Any:
    return msgspec.to_builtins(value, enc_hook=encode_hook, str_keys=True)


def reject_non_finite(value: object) -> None:
    """Reject NaN and the infinities, which JSON does not have and msgspec encodes as null.

    Raises:
        InvalidResult: the value has one.
    """
    pending: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while pending:
        steps, here = pending.pop()
        if isinstance(here, float):
            if not math.isfinite(here):
                raise InvalidResult("expected a finite number", path=join_path(steps))
        elif isinstance(here, dict):
            pending.extend(((*steps, name), item) for name, item in here.items())
        elif isinstance(here, (list, tuple)):
            pending.extend(((*steps, index), item) for index, item in enumerate(here))
