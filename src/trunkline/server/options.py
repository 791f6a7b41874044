"""Reading keyword arguments into an options record; unknown names are rejected with the closest known one.

Keywords of other frameworks are translated by ``trunkline.keywords``, which is imported on first use.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

from msgspec import Struct, UnsetType

from trunkline.protocol.caller import parse_scopes
from trunkline.server.tools import ToolOptions
from trunkline.server.validation_errors import did_you_mean

if TYPE_CHECKING:
    import trunkline.types as t
    from trunkline.keywords import Place
    from trunkline.server.prompts import PromptOptions
    from trunkline.server.resources import ResourceOptions
    from trunkline.server.task_options import TaskDeclaration

__all__ = [
    "ComponentKeywords",
    "PromptKeywords",
    "ResourceKeywords",
    "ToolKeywords",
    "own_options",
    "prompt_options",
    "resource_options",
    "tool_options",
]

T = TypeVar("T", bound=Struct)


class ComponentKeywords(TypedDict, total=False):
    """The keywords that tools, prompts and resources share; None is the same as leaving one out."""

    name: str | None
    title: str | None
    description: str | None
    icons: Sequence[t.Icon] | None
    tags: Iterable[str] | None
    meta: Mapping[str, object] | None
    thread: bool | None
    scopes: str | Iterable[str] | None


class PromptKeywords(ComponentKeywords, total=False):
    """The keywords of a prompt, as in ``PromptOptions``."""


class ResourceKeywords(ComponentKeywords, total=False):
    """The keywords of a resource, as in ``ResourceOptions``."""

    mime_type: str | None
    size: int | None
    annotations: t.Annotations | Mapping[str, object] | None
    ttl_ms: int | None
    cache_scope: Literal["public", "private"] | None


class ToolKeywords(ComponentKeywords, total=False):
    """The keywords of a tool, as in ``ToolOptions``; an ``output_schema`` of None means no structured result."""

    annotations: t.ToolAnnotations | Mapping[str, object] | None
    input_schema: Mapping[str, object] | None
    output_schema: Mapping[str, object] | UnsetType | None
    checked: bool | None
    exclude_args: Sequence[str] | None
    timeout: float | None
    single_use: bool | None
    wrap_result: bool | None
    task: TaskDeclaration | None
    app: str | None
    visibility: Sequence[str] | None


def tool_options(given: Mapping[str, object]) -> ToolOptions:
    """Read the options of a tool."""
    if "task" in given:
        from trunkline.server.task_options import task_options

        given = {**given, "task": task_options(given["task"])}
    return _read(ToolOptions, given, "tool")


def prompt_options(given: Mapping[str, object]) -> PromptOptions:
    """Read the options of a prompt."""
    from trunkline.server.prompts import PromptOptions

    return _read(PromptOptions, given, "prompt")


def resource_options(given: Mapping[str, object]) -> ResourceOptions:
    """Read the options of a resource."""
    from trunkline.server.resources import ResourceOptions

    return _read(ResourceOptions, given, "resource")


def own_options(place: Place, given: Mapping[str, object], known: Container[str]) -> dict[str, Any]:
    """Return the options under our names, translated if one of them is not ours."""
    if all(name in known for name in given):
        return dict(given)
    from trunkline.keywords import translate

    return translate(place, given, known)


def _read(kind: type[T], given: Mapping[str, object], what: Literal["tool", "prompt", "resource"]) -> T:
    known = kind.__struct_fields__
    options = own_options(what, given, known)
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known) or f"; a {what} has {', '.join(sorted(known))}"
            raise TypeError(f"unknown option {name!r}{hint}")
    if options.get("icons") or hasattr(options.get("annotations"), "model_dump"):
        from trunkline.server.foreign_types import recognise

        options["icons"] = [recognise(icon) for icon in options.get("icons") or ()] or None
        options["annotations"] = recognise(options.get("annotations"))
    if options.get("tags") is not None:
        options["tags"] = frozenset(options["tags"])
    if options.get("scopes") is not None:
        options["scopes"] = parse_scopes(options["scopes"], "scopes")
    return kind(**{name: value for name, value in options.items() if value is not None or name == "output_schema"})
