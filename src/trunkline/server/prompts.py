"""Prompts, and completions: suggestions for an argument of a prompt or a variable of a resource template."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.errors import InvalidParams
from trunkline.server.handler_functions import HandlerFunction
from trunkline.server.results import to_messages
from trunkline.server.validation_errors import InvalidArguments

__all__ = ["CompletionDefinition", "PromptDefinition", "PromptOptions", "check_argument", "complete_with_fallback"]

if TYPE_CHECKING:
    from trunkline.server.server import Server


# 2025-11-25, server/utilities/completion: at most 100 values in an answer.
_MAX_VALUES = 100


class CompletionDefinition:
    """A function that completes one argument of one prompt or template."""

    __slots__ = ("_wants_arguments", "argument", "function", "mounted_by", "ref", "source")

    def __init__(self, ref: str, argument: str, function: Callable[..., object], *, owner: Server) -> None:
        """Create a completion from ``function(value)`` or ``function(value, arguments)``, sync or async."""
        self.ref: str = ref
        self.argument: str = argument
        self.function: HandlerFunction = HandlerFunction(
            function, owner=owner, what=f"completion of {argument!r} of {ref!r}"
        )
        self.mounted_by: tuple[Server, ...] = ()
        #: The original of this copy, if it is mounted from another server.
        self.source: CompletionDefinition | None = None
        names = [each.name for each in self.function.signature.parameters]
        if not 1 <= len(names) <= 2:
            raise TypeError(f"a completion takes (value) or (value, arguments), not ({', '.join(names)})")
        self._wants_arguments = len(names) == 2

    async def complete(self, exchange: Exchange, value: str, arguments: Mapping[str, str]) -> t.CompleteResult:
        """Call the function with what the user has typed, and return its suggestions."""
        names = [each.name for each in self.function.signature.parameters]
        kwargs: dict[str, Any] = {names[0]: value}
        if self._wants_arguments:
            kwargs[names[1]] = dict(arguments)
        return _complete_result(await self.function.run(exchange, kwargs))


async def complete_with_fallback(
    function: HandlerFunction | None, exchange: Exchange, params: t.CompleteRequestParams
) -> t.CompleteResult:
    """Call the fallback completion with ``(ref, argument, context)``; without one, return no suggestions."""
    if function is None:
        return _complete_result(None)
    names = [each.name for each in function.signature.parameters]
    given = (params.ref, params.argument, params.context)
    return _complete_result(await function.run(exchange, dict(zip(names, given, strict=False))))


def _complete_result(found: t.Completion | Iterable[str] | None) -> t.CompleteResult:
    if hasattr(found, "values"):
        from trunkline.server.foreign_types import recognise

        found = recognise(found)
    if isinstance(found, t.Completion):
        values, total, more = list(found.values), found.total, found.has_more
    else:
        values, total, more = [str(each) for each in found or ()], None, None
    if len(values) > _MAX_VALUES:
        total, more = total or len(values), True
    completion = t.Completion(values=values[:_MAX_VALUES], total=total, has_more=more)
    return t.CompleteResult(completion=completion)


def check_argument(known: Iterable[str], argument: str, ref: str) -> None:
    """Raise InvalidParams if a prompt or template does not have an argument."""
    names = list(known)
    if argument not in names:
        raise InvalidParams(
            f"Invalid params: {ref!r} has no argument {argument!r}; it has {', '.join(names) or 'none'}"
        )


class PromptOptions(Struct, frozen=True, kw_only=True):
    """The options of a prompt."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    icons: Sequence[t.Icon] | None = None
    tags: frozenset[str] = frozenset()
    meta: Mapping[str, Any] | None = None
    thread: bool = True
    #: The scopes that a caller's token needs; over HTTP, the prompt is hidden from other callers.
    scopes: tuple[str, ...] = ()


class PromptDefinition:
    """A prompt of a server: how it is listed and rendered."""

    __slots__ = ("_listed", "function", "mounted_by", "name", "options", "scopes", "source")

    def __init__(self, function: Callable[..., object], options: PromptOptions, *, owner: Server) -> None:
        """Create a prompt from a function."""
        name = options.name or getattr(function, "__name__", "")
        if not name or name == "<lambda>":
            raise TypeError("a prompt needs a name: pass name= for a lambda or a callable object")
        self.name: str = name
        self.options: PromptOptions = options
        self.scopes: tuple[str, ...] = options.scopes
        self.function: HandlerFunction = HandlerFunction(
            function, owner=owner, what=f"prompt {name!r}", thread=options.thread
        )
        self.mounted_by: tuple[Server, ...] = ()
        #: The original of this copy, if it is mounted from another server.
        self.source: PromptDefinition | None = None
        self._listed: t.Prompt | None = None

    def listed(self) -> t.Prompt:
        """Return the prompt as it is listed; built on first use."""
        if self._listed is None:
            options, signature = self.options, self.function.signature
            arguments = [
                t.PromptArgument(name=each.name, description=each.description, required=each.required or None)
                for each in signature.parameters
            ]
            self._listed = t.Prompt(
                name=self.name,
                title=options.title,
                description=options.description or signature.description,
                arguments=arguments or None,
                icons=list(options.icons) if options.icons else None,
                meta=dict(options.meta) if options.meta else None,
            )
        return self._listed

    async def get(self, exchange: Exchange, arguments: Mapping[str, str] | None) -> t.GetPromptResult:
        """Render the prompt; arguments are strings on the wire and are converted to the types of the signature."""
        function = self.function
        try:
            kwargs = function.signature.bind(msgspec.json.encode(arguments or {}))
        except InvalidArguments as error:
            raise InvalidParams(f"Invalid params: prompt {self.name!r}: {error}") from error
        value = await function.run(exchange, kwargs)
        if hasattr(value, "messages"):
            from trunkline.server.foreign_types import recognise

            value = recognise(value)
        if isinstance(value, t.GetPromptResult):
            return value
        return t.GetPromptResult(description=self.listed().description, messages=to_messages(value))
