"""Adapts neutral results and params to one revision.

Fields that a revision lacks are left out, and a content block it does not know becomes text that describes it; what an
extension adds to ``_meta`` stays. Where the revision requires it, a result gets its kind, its cache hints and the
server's name. The given object is not changed: it may be cached, and returned again to a client of another era. A plan,
created once for each type and revision, says what is to be done; for most there is nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from operator import is_
from types import MappingProxyType
from typing import Any, get_args, get_type_hints

from msgspec import UNSET, Raw, Struct
from msgspec.json import decode, encode
from msgspec.structs import replace

import trunkline.types as t
from trunkline.protocol.fields import MULTIPLE_BLOCKS, hidden_fields, lacks_content_type
from trunkline.protocol.revisions import Revision

__all__ = ["WRAP_MARK", "adapt_params", "adapt_result", "needs_wrapping", "wrap_schema", "wrap_structured_content"]

#: The mark on the output schema of wrapped results. FastMCP introduced it, and its client unwraps only marked results.
WRAP_MARK = "x-fastmcp-wrap-result"

# Keywords of JSON Schema: where definitions are, what refers, what holds values and what names schemas.
_DEFINITIONS = ("$defs", "definitions")
_REFERENCES = frozenset({"$ref", "$dynamicRef"})
_VALUES = frozenset({"const", "default", "enum", "examples"})
_NAMES_TO_SCHEMAS = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})

# What distinguishes a record from a scalar, for the classes that become JSON objects.
_RECORD_MARKS = ("__dataclass_fields__", "__attrs_attrs__", "__pydantic_fields__")
_STRUCTURED = frozenset({t.CallToolResult, t.ToolResultContent})
# The objects with a ``_meta.ui`` (MCP Apps), which is sent only to clients that declared the extension.
_WITH_PAGES = frozenset({t.Tool, t.Resource, t.ResourceContents})


class _Plan(Struct, frozen=True):
    """What is to be done with a value of one type in one revision."""

    #: Nothing, whatever the value holds.
    done: bool
    #: Attributes to leave out, with the value that means absence.
    dropped: tuple[tuple[str, Any], ...] = ()
    #: Attributes whose values may have to be adapted.
    nested: tuple[str, ...] = ()
    #: Converts the whole value before its parts are adapted.
    rewrite: Callable[[Any], Any] | None = None
    #: Its structured content must be an object.
    objects_only: bool = False
    #: It states the kind of the result.
    stamped: bool = False
    #: It states how long it may be cached.
    cached: bool = False
    #: It is not one of our types.
    foreign: bool = False


def adapt_result(result: Any, revision: Revision, server_info: Raw | None = None, *, wrap: bool | None = None) -> Any:
    """Return a result as a revision may see it.

    ``wrap`` says whether structured content must be wrapped in ``{"result": …}`` where a revision requires an object:
    the value of ``needs_wrapping`` for the tool's output schema, or None to decide by the value. A result of a custom
    type is stamped like the others; one that is encoded already is left unchanged.
    """
    kind: type = type(result)
    plan = _plan(kind, revision)
    if not plan.done:
        # A tool's value is nearly always a dictionary, and may stay unless its schema says otherwise.
        if plan.objects_only:
            content = result.structured_content
            if content is not UNSET and (wrap or type(content) is not dict):
                result = wrap_structured_content(result, wrap)
        if plan.nested or plan.rewrite:
            result = _fit(result, revision)
        else:
            for name, absent in plan.dropped:
                if getattr(result, name) is not absent:
                    result = _fit(result, revision)
                    break
    if plan.stamped:
        meta = result.meta
        if server_info is not None:
            meta = {t.META_SERVER_INFO: server_info} if meta is None else {**meta, t.META_SERVER_INFO: server_info}
        if plan.cached:
            ttl_ms, scope = result.ttl_ms, result.cache_scope
            return replace(
                result,
                result_type=result.result_type or "complete",
                meta=meta,
                ttl_ms=0 if ttl_ms is None else ttl_ms,
                cache_scope=scope or "private",
            )
        return replace(result, result_type=result.result_type or "complete", meta=meta)
    if plan.foreign and revision.result_type:
        return _stamped_object(result, server_info)
    return result


def adapt_params(params: Any, revision: Revision) -> Any:
    """Return params, or an answer that travels inside params, as a revision may see them."""
    return _fit(params, revision)


def needs_wrapping(output_schema: Mapping[str, Any]) -> bool:
    """Return True if revisions that require an object accept neither this output schema nor its values."""
    return output_schema.get("type") != "object"


def wrap_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object whose only member, ``result``, is described by the given schema.

    References keep resolving: definitions move to the root, and pointers to other places follow their targets. A schema
    with an ``$id`` is a document of its own, wherever it is, and stays unchanged. The object has the ``WRAP_MARK``.
    """
    inner = dict(schema)
    outer: dict[str, Any] = {"$schema": inner.pop("$schema")} if "$schema" in inner else {}
    outer |= {"type": "object", "properties": {"result": inner}, "required": ["result"], WRAP_MARK: True}
    if "$id" in inner:
        return outer
    inner = _with_moved_pointers(inner)
    for name in _DEFINITIONS:
        if name in inner:
            outer[name] = inner.pop(name)
    outer["properties"] = {"result": inner}
    return outer


# --- Plans


@cache
def _plan(kind: type, revision: Revision) -> _Plan:
    if not issubclass(kind, t.Wire):
        return _Plan(done=True, foreign=kind is not Raw)
    hints = get_type_hints(kind)
    absent = hidden_fields(kind, revision)
    nested = tuple(name for name, hint in hints.items() if name not in absent and any(_needs_work(hint, revision)))
    dropped = tuple((name, UNSET if hints[name] is Any else None) for name in sorted(absent))
    rewrite = _rewrite(kind, revision)
    objects_only = kind in _STRUCTURED and revision.structured_content and not revision.any_structured_content
    return _Plan(
        done=not (nested or dropped or rewrite or objects_only),
        dropped=dropped,
        nested=nested,
        rewrite=rewrite,
        objects_only=objects_only,
        stamped=revision.result_type and issubclass(kind, t.Result),
        cached=revision.cache_hints and issubclass(kind, t.CacheableResult),
    )


def _needs_work(hint: Any, revision: Revision) -> Iterator[bool]:
    """Yield for each struct type in an annotation whether it needs adapting in this revision."""
    if isinstance(hint, type) and issubclass(hint, t.Wire):
        yield not _plan(hint, revision).done
    for part in get_args(hint):
        yield from _needs_work(part, revision)


def _rewrite(kind: type, revision: Revision) -> Callable[[Any], Any] | None:
    if lacks_content_type(kind, revision):
        return _AS_TEXT[kind]
    if kind is t.Tool and revision.structured_content and not revision.any_structured_content:
        return _with_object_schema
    if not MULTIPLE_BLOCKS.covers(revision):
        return _ONE_BLOCK.get(kind)
    return None


# --- Adapting


def _fit(value: Any, revision: Revision) -> Any:
    """Return a copy of a value without what the revision lacks; the value itself if nothing is to be removed."""
    kind: type = type(value)
    if kind is list:
        items = [_fit(item, revision) for item in value]
        return value if all(map(is_, items, value)) else items
    plan = _plan(kind, revision)
    if plan.done:
        return value
    if plan.rewrite is not None:
        value = plan.rewrite(value)
        if type(value) is not kind:
            return _fit(value, revision)
    if plan.objects_only:
        value = wrap_structured_content(value, None)
    changes = {name: absent for name, absent in plan.dropped if getattr(value, name) is not absent}
    if "meta" in changes and kind in _WITH_PAGES and "ui" in value.meta:
        # Extensions exist in every revision, also in those whose tools and resources have no ``_meta``.
        changes["meta"] = {"ui": value.meta["ui"]}
    for name in plan.nested:
        part = getattr(value, name)
        if part is not None:
            fitted = _fit(part, revision)
            if fitted is not part:
                changes[name] = fitted
    return replace(value, **changes) if changes else value


def _stamped_object(result: Any, server_info: Raw | None) -> dict[str, Any]:
    members = result if type(result) is dict else decode(encode(result), type=dict[str, Any])
    stamped = {"resultType": "complete", **members}
    if server_info is not None:
        stamped["_meta"] = {**(members.get("_meta") or {}), t.META_SERVER_INFO: server_info}
    return stamped


# --- Structured content that must be an object


def wrap_structured_content(value: Any, wrap: bool | None = None) -> Any:
    """Return a tool's result with its structured content in ``{"result": …}``; None: only if it is not an object."""
    content = value.structured_content
    if content is not UNSET and (not _is_object(content) if wrap is None else wrap):
        return replace(value, structured_content={"result": content})
    return value


def _is_object(value: Any) -> bool:
    """Return True if a value becomes a JSON object."""
    if isinstance(value, Raw):
        return bytes(memoryview(value)[:1]) == b"{"
    return isinstance(value, (Mapping, Struct)) or any(hasattr(value, mark) for mark in _RECORD_MARKS)


def _with_object_schema(tool: t.Tool) -> t.Tool:
    schema = tool.output_schema
    if schema is None or not needs_wrapping(schema):
        return tool
    return replace(tool, output_schema=wrap_schema(schema))


def _with_moved_pointers(schema: Any, *, names: bool = False) -> Any:
    """Copy a schema with its local pointers moved below ``result``; ``names``: it maps names to schemas."""
    if isinstance(schema, list):
        return [_with_moved_pointers(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    if names:
        return {name: _with_moved_pointers(part) for name, part in schema.items()}
    return {word: _with_moved_pointers_in(word, part) for word, part in schema.items()}


def _with_moved_pointers_in(word: str, part: Any) -> Any:
    if word in _VALUES:
        return part
    if word in _REFERENCES and isinstance(part, str):
        return _moved_pointer(part)
    return _with_moved_pointers(part, names=word in _NAMES_TO_SCHEMAS)


def _moved_pointer(reference: str) -> str:
    if reference == "#" or (reference.startswith("#/") and reference.split("/")[1] not in _DEFINITIONS):
        return "#/properties/result" + reference[1:]
    return reference


# --- Content that a revision does not know


def _text_of(block: Any) -> str:
    match block:
        case t.TextContent():
            return block.text
        case t.ResourceLink():
            return f"[resource link: {block.name} {block.uri}]"
        case t.ToolUseContent():
            return f"[tool call omitted: {block.name}]"
        case t.ToolResultContent():
            return "\n".join(map(_text_of, block.content)) or "[tool result omitted]"
        case t.EmbeddedResource():
            return block.resource.text or f"[resource omitted: {block.resource.uri}]"
        case t.AudioContent():
            return f"[audio omitted: {block.mime_type}]"
        case _:
            return f"[image omitted: {block.mime_type}]"


def _annotated_text(block: t.AudioContent | t.ResourceLink) -> t.TextContent:
    return t.TextContent(text=_text_of(block), annotations=block.annotations)


def _plain_text(block: t.ToolUseContent | t.ToolResultContent) -> t.TextContent:
    return t.TextContent(text=_text_of(block))


def _one_block_each(params: t.CreateMessageRequestParams) -> t.CreateMessageRequestParams:
    messages = [
        replace(message, content=block)
        for message in params.messages
        for block in (message.content if isinstance(message.content, list) else [message.content])
    ]
    return replace(params, messages=messages)


def _one_block(result: t.CreateMessageResult) -> t.CreateMessageResult:
    blocks = result.content
    if not isinstance(blocks, list):
        return result
    only = blocks[0] if len(blocks) == 1 else t.TextContent(text="\n".join(map(_text_of, blocks)))
    return replace(result, content=only)


_AS_TEXT: Mapping[type, Callable[[Any], t.TextContent]] = MappingProxyType(
    {
        t.AudioContent: _annotated_text,
        t.ResourceLink: _annotated_text,
        t.ToolUseContent: _plain_text,
        t.ToolResultContent: _plain_text,
    }
)

_ONE_BLOCK: Mapping[type, Callable[[Any], Any]] = MappingProxyType(
    {t.CreateMessageRequestParams: _one_block_each, t.CreateMessageResult: _one_block}
)
