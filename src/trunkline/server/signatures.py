"""The signature of a user's function, read once at registration, and the binding of arguments in every call.

It knows functions and types, but no requests. The context, the dependencies and the excluded parameters are filled by
the server; the rest are the arguments, read by msgspec, or by pydantic if an annotation or default comes from it. A
parameter that neither can read is a TypeError at registration. The return annotation decides whether results have a
schema and are checked. Schemas and descriptions are built on first use.
"""

from __future__ import annotations

from collections import abc
from functools import lru_cache
from types import FunctionType, MethodType, NoneType, UnionType
from typing import TYPE_CHECKING, Any, NoReturn, Union, get_args, get_origin

import msgspec

from trunkline.server.annotations import (
    BUILTIN_TYPES,
    handles_module,
    optional_of,
    pydantic_module,
    resolve_hints,
    strip_annotated,
    survey,
)
from trunkline.server.dependencies import find_depends, is_context, plan_dependency
from trunkline.server.msgspec_types import (
    MsgspecArguments,
    UntypedResult,
    adapt,
    find_unsupported,
    msgspec_result,
    reject_non_finite,
)
from trunkline.server.validation_errors import InvalidArguments, InvalidResult
from trunkline.types import CallToolResult, ContentBlock, ResourceContents

__all__ = ["InvalidArguments", "InvalidResult", "Parameter", "PydanticResult", "Signature", "result_of"]

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from trunkline.server.dependencies import Dependency
    from trunkline.server.handles import HandleParameter
    from trunkline.server.pydantic_types import PydanticArguments, PydanticReader


_UNDESCRIBED: tuple[Any, ...] = (None, NoneType, Any, object, NoReturn, bytes, bytearray, memoryview)
_SEQUENCES = (list, tuple, set, frozenset, abc.Sequence, abc.Iterable, abc.Collection)


class PydanticResult(UntypedResult):
    """A result whose type pydantic supports."""

    __slots__ = ("_reader",)

    described = True

    def __init__(self, reader: PydanticReader) -> None:
        """Use the given reader of the type."""
        self._reader = reader

    def schema(self) -> dict[str, Any] | None:
        """Return the JSON Schema of the encoded value."""
        return self._reader.result_schema()

    def encode(self, value: object) -> bytes:
        """Check a value and encode it as JSON.

        Raises:
            InvalidResult: it does not match the annotation.
        """
        try:
            data = self._reader.write(value)
        except ValueError as error:
            raise _result_error(error) from None
        if data.find(b"null") >= 0:
            reject_non_finite(self._reader.plain(value))
        return data


def result_of(annotation: object, *, content_types: tuple[type, ...] = ()) -> UntypedResult:
    """Return how results with a return annotation are described and checked."""
    if _is_builtin(annotation):
        # Cached by the repr, too: `int | str` equals `str | int`, but their schemas list the types in different orders.
        return _builtin_result(annotation, "" if type(annotation) is type else repr(annotation), content_types)
    return _make_result(annotation, content_types)


def _is_builtin(annotation: object) -> bool:
    """Return whether an annotation is made of built-in types alone."""
    if type(annotation) is type or annotation is Any:
        return annotation in BUILTIN_TYPES
    parts = get_args(annotation)
    return get_origin(annotation) in (list, dict, Union, UnionType) and all(map(_is_builtin, parts))


@lru_cache(maxsize=1024)
def _builtin_result(annotation: object, written: str, content_types: tuple[type, ...]) -> UntypedResult:
    return _make_result(annotation, content_types)


def _make_result(annotation: object, content_types: tuple[type, ...]) -> UntypedResult:
    annotation = _awaited(annotation)
    if _is_undescribed(annotation, (*content_types, *get_args(ContentBlock), CallToolResult, ResourceContents)):
        return UntypedResult()
    found = survey((annotation,))
    try:
        if found.from_pydantic:
            from trunkline.server.pydantic_types import PydanticReader

            return PydanticResult(PydanticReader(annotation))
        if find_unsupported(found) is None:
            return msgspec_result(adapt(annotation))
        return _plain_class_result(annotation)
    except (TypeError, RuntimeError):
        # Neither msgspec nor pydantic supports the return type, but its values may still have a JSON form.
        # pydantic raises both kinds of errors.
        return UntypedResult()


class _PlainClassResult(UntypedResult):
    """A result that is an object of a class with annotated attributes, written as a record of them."""

    __slots__ = ("_kind", "_result")

    described = True

    def __init__(self, kind: type, members: dict[str, Any]) -> None:
        """Make a record of the attributes."""
        self._kind = msgspec.defstruct(kind.__name__, [(name, adapt(note)) for name, note in members.items()])
        self._result = msgspec_result(self._kind)

    def schema(self) -> dict[str, Any] | None:
        """Make the JSON Schema of the record."""
        return self._result.schema()

    def encode(self, value: object) -> bytes:
        """Write the attributes as JSON.

        Raises:
            InvalidResult: one is missing, or is not what its annotation says.
        """
        try:
            record = msgspec.convert(value, self._kind, from_attributes=True)
        except msgspec.ValidationError as failure:
            raise InvalidResult(str(failure)) from failure
        return self._result.encode(record)


def _plain_class_result(annotation: object) -> UntypedResult:
    """Describe a class that is no kind of record by its annotated attributes, if it has any."""
    inner, _ = strip_annotated(annotation)
    if not isinstance(inner, type) or not getattr(inner, "__annotations__", None):
        return UntypedResult()
    from typing import get_type_hints

    members = {name: note for name, note in get_type_hints(inner).items() if not name.startswith("_")}
    if not members or find_unsupported(survey(members.values())) is not None:
        return UntypedResult()
    return _PlainClassResult(inner, members)


def _awaited(annotation: object) -> Any:
    inner, _ = strip_annotated(annotation)
    if get_origin(inner) in (abc.Awaitable, abc.Coroutine):
        return _awaited(get_args(inner)[-1])
    return annotation


def _is_undescribed(annotation: object, content_types: tuple[type, ...]) -> bool:
    inner, _ = strip_annotated(annotation)
    if inner in _UNDESCRIBED or inner in _SEQUENCES:
        return True
    # A list of anything may have content, which no schema describes.
    if get_origin(inner) in _SEQUENCES and all(part in (Any, object, ...) for part in get_args(inner)):
        return True
    return _has_content(inner, content_types)


def _has_content(annotation: object, content_types: tuple[type, ...]) -> bool:
    inner, _ = strip_annotated(annotation)
    origin = get_origin(inner)
    if origin in (Union, UnionType) or origin in _SEQUENCES:
        return any(_has_content(part, content_types) for part in get_args(inner))
    kind = origin or inner
    if inner in (bytes, bytearray, memoryview) or (isinstance(kind, type) and issubclass(kind, content_types)):
        return True
    if not hasattr(kind, "model_dump"):
        return False
    from trunkline.server.foreign_types import foreign_kind

    return foreign_kind(kind) is not None


def _result_error(error: ValueError) -> InvalidResult:
    from trunkline.server.pydantic_errors import explain_pydantic_error

    if not hasattr(error, "errors"):
        return InvalidResult(f"cannot be encoded as JSON: {error}")
    path, message = explain_pydantic_error(error)
    return InvalidResult(message, path=path)


_VARIADIC = 0x04 | 0x08  # CO_VARARGS | CO_VARKEYWORDS of CPython's code flags.
_GENERATOR = 0x20  # CO_GENERATOR.
_COROUTINE = 0x80  # CO_COROUTINE.
_ASYNC_GENERATOR = 0x200  # CO_ASYNC_GENERATOR.

_UNSET: Any = msgspec.UNSET


class Parameter:
    """One argument of a function; ``default`` is `msgspec.UNSET` if it is required."""

    __slots__ = ("annotation", "default", "description", "name", "required")

    def __init__(
        self, name: str, annotation: object, *, default: object = _UNSET, description: str | None = None
    ) -> None:
        """Create a parameter."""
        self.name: str = name
        self.annotation: object = annotation
        self.default: object = default
        self.required: bool = default is _UNSET
        self.description: str | None = description

    def __repr__(self) -> str:
        """Return the name and whether it is required."""
        return f"Parameter({self.name!r}, required={self.required})"


class Signature:
    """The parameters and the result type of a function.

    ``bind(raw)`` converts the undecoded bytes of the arguments, or None, to keyword arguments; it raises
    `InvalidArguments` if they do not match.
    """

    __slots__ = (
        "_arguments",
        "_content_types",
        "_given",
        "_input_schema",
        "_parameters",
        "_result",
        "_return_annotation",
        "_texts",
        "bind",
        "context_name",
        "dependencies",
        "function",
        "handles",
        "is_async",
        "is_async_generator",
        "is_generator",
    )

    _arguments: MsgspecArguments | PydanticArguments
    _content_types: tuple[type, ...]
    _given: list[tuple[str, Any, Any]]
    _input_schema: dict[str, Any] | None
    _parameters: tuple[Parameter, ...] | None
    _result: UntypedResult | None
    _return_annotation: Any
    _texts: tuple[str | None, dict[str, str]] | None
    function: Callable[..., Any]
    context_name: str | None
    dependencies: tuple[Dependency, ...]
    handles: tuple[HandleParameter, ...]
    is_async: bool
    is_async_generator: bool
    is_generator: bool
    bind: Callable[[bytes | msgspec.Raw | None], dict[str, Any]]

    @classmethod
    def of(
        cls,
        function: Callable[..., object],
        *,
        context_type: type | tuple[type, ...] = (),
        content_types: tuple[type, ...] = (),
        exclude: Collection[str] = (),
        name_for_errors: str | None = None,
    ) -> Signature:
        """Read the signature of a function.

        Args:
            function: a function, method or other callable; decorated functions are read through ``__wrapped__``.
            context_type: the types of a context parameter.
            content_types: return types that are content rather than a value with a schema.
            exclude: parameters that are filled elsewhere.
            name_for_errors: how a `TypeError` names the function.

        Raises:
            TypeError: it cannot be called with named JSON arguments; the message names the parameter and the remedy.
        """
        label = name_for_errors or getattr(function, "__name__", None) or type(function).__name__
        contexts = context_type if isinstance(context_type, tuple) else (context_type,)
        self = cls()
        self.function = function
        self.context_name = None
        self._content_types = content_types
        self._input_schema = self._parameters = self._texts = self._result = None
        raw, flags = _parameters_of(function, label)
        self.is_async = bool(flags & _COROUTINE)
        self.is_generator = bool(flags & _GENERATOR)
        self.is_async_generator = bool(flags & _ASYNC_GENERATOR)
        hints = _hints_of(function, label)
        self._return_annotation = hints.get("return")
        self._given = self._sort(raw, hints, contexts=contexts, exclude=exclude)
        handles = handles_module()
        self.handles = () if handles is None else handles.take_parameters(self._given, label)
        self._arguments = _arguments(self._given, label)
        self.bind = self._arguments.bind
        return self

    def _sort(
        self,
        raw: Iterable[tuple[str, object]],
        hints: dict[str, object],
        *,
        contexts: tuple[type, ...],
        exclude: Collection[str],
    ) -> list[tuple[str, Any, Any]]:
        """Separate the arguments from the parameters that the server fills."""
        given: list[tuple[str, Any, Any]] = []
        dependencies: list[Dependency] = []
        for name, default in raw:
            annotation = hints.get(name, Any)
            if contexts and self.context_name is None and is_context(annotation, contexts):
                self.context_name = name
                continue
            marker = find_depends(annotation, default)
            if marker is not None:
                dependencies.append(plan_dependency(name, marker.function, context_type=contexts))
            elif name not in exclude:
                given.append((name, annotation, default))
        self.dependencies = tuple(dependencies)
        return given

    def read_strictly(self) -> None:
        """Read arguments without coercion from now on."""
        self._arguments.strict = True

    @property
    def bind_values(self) -> Callable[[bytes | msgspec.Raw | None], tuple[Any, ...]] | None:
        """Like ``bind``, but returns positional arguments, which is cheaper; None if the function needs keywords."""
        code = getattr(self.function, "__code__", None)
        if type(self.function) is not FunctionType or code is None or not isinstance(self._arguments, MsgspecArguments):
            return None
        by_position = not code.co_kwonlyargcount and not code.co_flags & _VARIADIC
        names = tuple(name for name, _, _ in self._given)
        return self._arguments.bind_values if by_position and code.co_varnames[: code.co_argcount] == names else None

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The arguments of the function, in their order."""
        if self._parameters is None:
            texts = self._described()[1]
            self._parameters = tuple(
                Parameter(name, annotation, default=_plain_default(default), description=texts.get(name))
                for name, annotation, default in self._given
            )
        return self._parameters

    @property
    def annotations(self) -> tuple[Any, ...]:
        """The annotations of the arguments, as declared."""
        return tuple(annotation for _, annotation, _ in self._given)

    @property
    def description(self) -> str | None:
        """The docstring without its sections about parameters, returns and raises."""
        return self._described()[0]

    def _described(self) -> tuple[str | None, dict[str, str]]:
        if self._texts is None:
            from trunkline.server.docstrings import read_docstring

            description, texts = read_docstring(getattr(self.function, "__doc__", None))
            for name, annotation, default in self._given:
                own = _own_description(annotation, default)
                if own is not None:
                    texts[name] = own
            for handle in self.handles:
                texts.setdefault(handle.name, handle.description)
            self._texts = description, texts
        return self._texts

    def input_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments, built on first use; it must not be changed."""
        if self._input_schema is None:
            self._input_schema = self._arguments.arguments_schema(self._described()[1])
        return self._input_schema

    def output_schema(self) -> dict[str, Any] | None:
        """Return the JSON Schema of the result; None if the return annotation has none."""
        return self._result_type().schema()

    @property
    def promises_result(self) -> bool:
        """Whether the return annotation has an output schema."""
        return self._result_type().described

    @property
    def encode_result(self) -> Callable[[Any], bytes]:
        """The function that checks a result against the return annotation and encodes it as JSON.

        It raises `InvalidResult` if the result does not match the annotation, or has no JSON form.
        """
        return self._result_type().encode

    def _result_type(self) -> UntypedResult:
        if self._result is None:
            yields = self.is_generator or self.is_async_generator
            annotation = None if yields else self._return_annotation
            self._result = result_of(annotation, content_types=self._content_types)
        return self._result


def _parameters_of(function: Callable[..., object], label: str) -> tuple[list[tuple[str, Any]], int]:
    """Return (name, default) of each parameter, and the flags of the code object."""
    plain = function.__func__ if isinstance(function, MethodType) else function
    if not isinstance(plain, FunctionType) or hasattr(plain, "__wrapped__") or hasattr(plain, "__signature__"):
        return _inspected(function, label)
    code = plain.__code__
    if code.co_flags & _VARIADIC or code.co_posonlyargcount > (plain is not function):
        return _inspected(function, label)
    count = code.co_argcount
    defaults = dict(zip(reversed(code.co_varnames[:count]), reversed(plain.__defaults__ or ()), strict=False))
    defaults.update(plain.__kwdefaults__ or {})
    names = code.co_varnames[plain is not function : count + code.co_kwonlyargcount]
    return [(name, defaults.get(name, _UNSET)) for name in names], code.co_flags


def _inspected(function: Callable[..., object], label: str) -> tuple[list[tuple[str, Any]], int]:
    """Return the same for any other callable, with the slower `inspect`; reject parameters without a name."""
    import inspect

    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise TypeError(f"{label}: its parameters cannot be read ({error}); wrap it in your own function") from error
    found: list[tuple[str, Any]] = []
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(
                f"{label}: {parameter} accepts arguments without names or types; declare each argument by name, "
                "or use one parameter of type dict"
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise TypeError(f"{label}: parameter {parameter.name!r} is positional only; remove the '/' after it")
        found.append((parameter.name, _UNSET if parameter.default is parameter.empty else parameter.default))
    called = function
    if not inspect.isroutine(function) and not hasattr(function, "func"):
        called = type(function).__call__
    flags = _COROUTINE if inspect.iscoroutinefunction(called) else 0
    flags |= _GENERATOR if inspect.isgeneratorfunction(called) else 0
    return found, flags | (_ASYNC_GENERATOR if inspect.isasyncgenfunction(called) else 0)


def _hints_of(function: Any, label: str) -> dict[str, Any]:
    # A partial has its function in `func`, a callable object its annotations on `__call__`.
    while hasattr(function, "func") and not hasattr(function, "__annotations__"):
        function = function.func
    if not isinstance(function, (FunctionType, MethodType)) and not hasattr(function, "__wrapped__"):
        function = type(function).__call__
    function = getattr(function, "__func__", function)
    try:
        return resolve_hints(function)
    except NameError as error:
        raise TypeError(
            f"{label}: an annotation cannot be resolved ({error}); import the name at module level, "
            "outside of TYPE_CHECKING"
        ) from error


def _arguments(given: list[tuple[str, object, object]], label: str) -> MsgspecArguments | PydanticArguments:
    """Return the reader of the arguments, by msgspec or pydantic."""
    found = survey(annotation for _, annotation, _ in given)
    if found.from_pydantic or any(_is_pydantic_field(default) for _, _, default in given):
        return _pydantic_arguments(given, label)
    try:
        if found.classes <= BUILTIN_TYPES or find_unsupported(found) is None:
            return MsgspecArguments((name, adapt(note, default), default) for name, note, default in given)
    except (TypeError, NameError) as failure:
        return _fallback_arguments(given, label, failure)
    return _fallback_arguments(given, label, None)


def _fallback_arguments(
    given: list[tuple[str, object, object]], label: str, failure: Exception | None
) -> PydanticArguments:
    """Let pydantic read what msgspec cannot, if it is installed: unions of several kinds of text, mixed enums.

    Raises:
        TypeError: it cannot either; the text names the parameter.
    """
    try:
        # Loaded here and nowhere else, and found by its name from then on.
        import pydantic.fields
        import pydantic.json_schema  # noqa: F401

        if isinstance(failure, NameError) or _has_meta(given):
            raise TypeError
        arguments = _pydantic_arguments([(name, _sendable(note), default) for name, note, default in given], label)
        # What has no schema cannot be sent either.
        arguments.arguments_schema({})
        return arguments
    except ImportError:
        error = _msgspec_type_error(given, label)
        error.add_note("pydantic reads more types: with it installed this may work")
    except (TypeError, ValueError, RuntimeError):
        # What msgspec says names the parameter and the way out.
        error = _msgspec_type_error(given, label)
    raise error from failure


def _sendable(annotation: Any) -> Any:
    """Return a union without the kinds of bytes that JSON never becomes, text first; anything else as it is."""
    if get_origin(annotation) not in (Union, UnionType):
        return annotation
    parts = [part for part in get_args(annotation) if part not in (bytearray, memoryview)]
    parts.sort(key=lambda part: part is not str)
    return Union[tuple(parts)] if parts else annotation  # noqa: UP007 - made of parts that are known only now


def _has_meta(given: list[tuple[str, object, object]]) -> bool:
    return any(isinstance(item, msgspec.Meta) for item in survey(note for _, note, _ in given).metadata)


def _msgspec_type_error(given: list[tuple[str, object, object]], label: str) -> TypeError:
    """Return the error for the parameter that msgspec does not support."""
    reasons = (_msgspec_reason(name, annotation, default) for name, annotation, default in given)
    return TypeError(f"{label}: {next(filter(None, reasons), 'its parameters cannot be read together')}")


def _msgspec_reason(name: str, annotation: object, default: object) -> str | None:
    try:
        kind = find_unsupported(survey((annotation,)))
        MsgspecArguments([(name, adapt(annotation, default), default)])
    except (TypeError, NameError) as error:
        return f"parameter {name!r}: {error}; change its annotation"
    if kind is None:
        return None
    return (
        f"parameter {name!r}: {kind.__qualname__} cannot be read from JSON; use a dataclass, TypedDict, "
        "msgspec.Struct or pydantic model, or fill it with Depends(...)"
    )


def _pydantic_arguments(given: list[tuple[str, object, object]], label: str) -> PydanticArguments:
    if pydantic_module() is None:
        raise TypeError(
            f"{label}: its annotations need pydantic, which is not imported; import pydantic, or use msgspec.Meta"
        )
    from trunkline.server.pydantic_types import make_arguments

    return make_arguments(given, label)


def _is_pydantic_field(default: object) -> bool:
    return type(default).__module__ == "pydantic.fields"


def _plain_default(default: Any) -> Any:
    if not _is_pydantic_field(default):
        return default
    return _UNSET if default.is_required() else default.get_default(call_default_factory=True)


def _own_description(annotation: object, default: object) -> str | None:
    """Return the description in the annotation or default; None if there is none."""
    inner, metadata = strip_annotated(annotation)
    optional = optional_of(inner)
    if optional is not None:
        metadata = (*strip_annotated(optional)[1], *metadata)
    for item in (default, *reversed(metadata)):
        text = item if isinstance(item, str) else getattr(item, "description", None)
        if (isinstance(text, str) and item is not default) or (_is_pydantic_field(item) and text):
            return str(text)
    return None
