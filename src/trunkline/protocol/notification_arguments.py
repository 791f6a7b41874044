"""The arguments of the function that an extension has for a notification: members of params with the annotated types.

Both sides use it: the server and the client each call the functions of the notifications that they receive.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from trunkline.errors import InvalidParams
from trunkline.protocol.printable import printable

__all__ = ["NotificationFunction"]

_LONGEST_REASON = 300  # Characters of an error, which may quote what the other side sent; enough to see the cause.


class NotificationFunction:
    """A function that is called with the params of a notification."""

    __slots__ = ("_hints", "_parameters", "_whole", "function")

    def __init__(self, function: Callable[..., Any], *, what: str) -> None:
        """Read the signature; ``what`` names the function in errors.

        Raises:
            NameError: an annotation has a name that does not exist at run time.
            TypeError: no JSON value can be converted to an annotation.
        """
        self.function = function
        self._parameters = list(inspect.signature(function).parameters.values())
        #: Whether its only parameter is ``params``: all members as a dictionary.
        self._whole = [each.name for each in self._parameters] == ["params"]
        try:
            self._hints = typing.get_type_hints(_annotated(function), include_extras=True)
            for each in self._parameters:
                msgspec.json.Decoder(self._hints.get(each.name, Any), dec_hook=_foreign)
        except (NameError, TypeError) as error:
            error.add_note(f"in the annotations of the function for {what}")
            raise

    def bind(self, params: Mapping[str, Any]) -> Callable[[], Any]:
        """Return the call with these params, which may be awaitable; members that it does not name are left out.

        Raises:
            InvalidParams: a member is missing, or does not match its annotation.
        """
        members = {name: value for name, value in params.items() if name != "_meta"}
        if self._whole:
            return lambda: self.function(members)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for each in self._parameters:
            if each.kind is each.VAR_KEYWORD:
                kwargs.update(members)
            elif each.kind is not each.VAR_POSITIONAL and each.name in members:
                value = self._convert(each.name, members.pop(each.name))
                if each.kind is each.POSITIONAL_ONLY:
                    args.append(value)
                else:
                    kwargs[each.name] = value
            elif each.kind is not each.VAR_POSITIONAL and each.default is each.empty:
                raise InvalidParams(f"{each.name} is missing")
            elif each.kind is each.POSITIONAL_ONLY:
                args.append(each.default)
        return lambda: self.function(*args, **kwargs)

    def _convert(self, name: str, value: Any) -> Any:
        try:
            return msgspec.convert(value, self._hints.get(name, Any), str_keys=True, dec_hook=_foreign)
        except Exception as error:  # Validators of pydantic are code of the user, and may raise anything.
            reason = printable(" ".join(str(error).split()))
            raise InvalidParams(f"{name}: {reason[:_LONGEST_REASON]}") from error


def _annotated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what has the annotations: the function of a partial one, or the ``__call__`` of an object."""
    while isinstance(function, partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _foreign(kind: type, value: Any) -> Any:
    """Convert to a type that msgspec does not have: a model of pydantic."""
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        raise TypeError(f"{kind.__name__} cannot be read from JSON")
    return validate(value)
