"""Completion: suggestions for an argument of a prompt or a variable of a resource template."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.errors import InvalidParams
from trunkline.server.functions import UserFunction

if TYPE_CHECKING:
    from trunkline.server.server import Server

__all__ = ["CompletionDefinition", "check_argument", "complete_otherwise"]

# 2025-11-25, server/utilities/completion: at most 100 values in an answer.
_MOST = 100


class CompletionDefinition:
    """A function that completes one argument of one prompt or template."""

    __slots__ = ("_wants_arguments", "argument", "function", "owners", "ref", "source")

    def __init__(self, ref: str, argument: str, function: Callable[..., object], *, owner: Server) -> None:
        """Take ``function(value)`` or ``function(value, arguments)``, sync or async."""
        self.ref = ref
        self.argument = argument
        self.function = UserFunction(function, owner=owner, what=f"completion of {argument!r} of {ref!r}")
        self.owners: tuple[Server, ...] = ()
        #: What this is a copy of, if it is mounted from another server.
        self.source: CompletionDefinition | None = None
        names = [each.name for each in self.function.signature.parameters]
        if not 1 <= len(names) <= 2:
            raise TypeError(f"a completion takes (value) or (value, arguments), not ({', '.join(names)})")
        self._wants_arguments = len(names) == 2

    async def complete(self, exchange: Exchange, value: str, arguments: Mapping[str, str]) -> t.CompleteResult:
        """Ask the function for values that start or contain what was typed."""
        names = [each.name for each in self.function.signature.parameters]
        kwargs: dict[str, Any] = {names[0]: value}
        if self._wants_arguments:
            kwargs[names[1]] = dict(arguments)
        return _completed(await self.function.run(exchange, kwargs))


async def complete_otherwise(
    function: UserFunction | None, exchange: Exchange, params: t.CompleteRequestParams
) -> t.CompleteResult:
    """Ask the function that completes everything, if there is one; it is given ``(ref, argument, context)``."""
    if function is None:
        return _completed(None)
    names = [each.name for each in function.signature.parameters]
    given = (params.ref, params.argument, params.context)
    return _completed(await function.run(exchange, dict(zip(names, given, strict=False))))


def _completed(found: t.Completion | Iterable[str] | None) -> t.CompleteResult:
    if isinstance(found, t.Completion):
        values, total, more = list(found.values), found.total, found.has_more
    else:
        values, total, more = [str(each) for each in found or ()], None, None
    if len(values) > _MOST:
        total, more = total or len(values), True
    completion = t.Completion(values=values[:_MOST], total=total, has_more=more)
    return t.CompleteResult(completion=completion)


def check_argument(known: Iterable[str], argument: str, ref: str) -> None:
    """Refuse an argument that the prompt or template does not have."""
    names = list(known)
    if argument not in names:
        raise InvalidParams(
            f"Invalid params: {ref!r} has no argument {argument!r}; it has {', '.join(names) or 'none'}"
        )
