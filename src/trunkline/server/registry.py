"""What a server offers, as one immutable snapshot that is replaced whole on every change.

A call looks things up in the snapshot it finds; encoded lists are kept under the snapshot's counter. Nothing here knows
the protocol or who asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from trunkline.server.completion import CompletionDefinition
    from trunkline.server.prompts import PromptDefinition
    from trunkline.server.resources import ResourceDefinition, TemplateDefinition
    from trunkline.server.tools import ToolDefinition

__all__ = ["EMPTY", "Definition", "Key", "Kind", "Listed", "Registry"]

Kind = str
#: What a definition is found by: its name or URI, or for a completion the reference and the argument.
Key: TypeAlias = str | tuple[str, str]
#: Something that is listed: a visibility filter decides about it.
Listed: TypeAlias = "ToolDefinition | PromptDefinition | ResourceDefinition | TemplateDefinition"
#: Something that is registered.
Definition: TypeAlias = "Listed | CompletionDefinition"
_NOTHING: Mapping[Any, Any] = MappingProxyType({})


class Registry(Struct, frozen=True):
    """The tools, prompts, resources and completions of a server at one moment."""

    counter: int = 0
    tools: Mapping[str, ToolDefinition] = _NOTHING
    prompts: Mapping[str, PromptDefinition] = _NOTHING
    resources: Mapping[str, ResourceDefinition] = _NOTHING
    templates: Mapping[str, TemplateDefinition] = _NOTHING
    completions: Mapping[tuple[str, str], CompletionDefinition] = _NOTHING
    #: Whether something may need scopes; once so, it stays so.
    guarded: bool = False

    def adding(self, kind: Kind, key: Key, definition: Definition) -> Registry:
        """Give a registry with one more entry.

        Raises:
            ValueError: the name is taken.
        """
        shelf: Mapping[Any, Any] = getattr(self, kind)
        if key in shelf:
            raise ValueError(f"{kind[:-1]} {key!r} exists already; remove it first or choose another name")
        added = self._with(kind, {**shelf, key: definition})
        return replace(added, guarded=True) if getattr(definition, "scopes", ()) and not self.guarded else added

    def removing(self, kind: Kind, key: Key) -> Registry:
        """Give a registry without one entry.

        Raises:
            KeyError: there is none of that name.
        """
        shelf: Mapping[Any, Any] = getattr(self, kind)
        if key not in shelf:
            raise KeyError(f"no {kind[:-1]} is called {key!r}")
        return self._with(kind, {name: each for name, each in shelf.items() if name != key})

    def _with(self, kind: Kind, shelf: Mapping[Key, Definition]) -> Registry:
        return replace(self, counter=self.counter + 1, **{kind: shelf})


EMPTY = Registry()
