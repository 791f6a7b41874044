"""Prompts: a function that makes messages, as the protocol sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.errors import InvalidParams
from trunkline.server.functions import UserFunction
from trunkline.server.mismatch import ArgumentError
from trunkline.server.results import to_messages

if TYPE_CHECKING:
    from trunkline.server.server import Server

__all__ = ["PromptDefinition", "PromptOptions"]


class PromptOptions(Struct, frozen=True, kw_only=True):
    """What may be said about a prompt beside its function."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    icons: Sequence[t.Icon] | None = None
    tags: frozenset[str] = frozenset()
    meta: Mapping[str, Any] | None = None
    thread: bool = True
    #: What a caller's token must allow; over HTTP who lacks it neither sees nor gets the prompt.
    scopes: tuple[str, ...] = ()


class PromptDefinition:
    """A prompt of a server: how it is listed and how it is made."""

    __slots__ = ("_listed", "function", "name", "options", "owners", "scopes", "source")

    def __init__(self, function: Callable[..., object], options: PromptOptions, *, owner: Server) -> None:
        """Make a prompt of a function."""
        name = options.name or getattr(function, "__name__", "")
        if not name or name == "<lambda>":
            raise TypeError("a prompt needs a name: give name= for a lambda or a callable object")
        self.name = name
        self.options = options
        self.scopes = options.scopes
        self.function = UserFunction(function, owner=owner, what=f"prompt {name!r}", thread=options.thread)
        self.owners: tuple[Server, ...] = ()
        #: What this is a copy of, if it is mounted from another server.
        self.source: PromptDefinition | None = None
        self._listed: t.Prompt | None = None

    def listed(self) -> t.Prompt:
        """Describe the prompt; made when first wanted."""
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
        """Make the messages; arguments are text on the wire and become what the signature says."""
        function = self.function
        try:
            kwargs = function.signature.bind(msgspec.json.encode(arguments or {}))
        except ArgumentError as error:
            raise InvalidParams(f"Invalid params: prompt {self.name!r}: {error}") from error
        made = await function.run(exchange, kwargs)
        if isinstance(made, t.GetPromptResult):
            return made
        return t.GetPromptResult(description=self.listed().description, messages=to_messages(made))
