"""Short summaries of JSON-RPC messages, for one line of a list.

A message is parsed once, and only as far as needed: large members are skipped, not decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct

from trunkline.devtools.recording.format import MessageRedaction

__all__ = ["MessageParts", "read_parts", "summarize"]

_LONGEST = 160  # Characters of a summary: one line.
_LONGEST_READ = 1024  # Characters that are masked before they are cut, so that no secret is cut in two.
_LARGEST = 256 * 1024  # Longer content is described only by its size.
_LARGEST_SHOWN = 16 * 1024  # The same for JSON, which is masked as a whole.


class MessageParts(Struct, kw_only=True):
    """The parts of a message that a summary needs."""

    #: The name of the tool or prompt, the URI, or the like.
    label: str = ""
    #: ``requestState`` of a request or result.
    state: str | None = None
    #: The request continues a call that asked for input.
    continues: bool = False
    #: The result asks for input.
    input_required: bool = False
    #: Follows the label: raw text, or a JSON value.
    text: str = ""
    value: Raw | None = None


# Stands for an absent member: no JSON value is empty.
_ABSENT = Raw(b"")


class _Params(Struct, rename="camel"):
    name: Raw = _ABSENT
    uri: Raw = _ABSENT
    ref: Raw = _ABSENT
    arguments: Raw = _ABSENT
    argument: Raw = _ABSENT
    request_state: Raw = _ABSENT
    input_responses: Raw = _ABSENT
    message: Raw = _ABSENT
    level: Raw = _ABSENT
    data: Raw = _ABSENT
    progress: Raw = _ABSENT
    total: Raw = _ABSENT
    request_id: Raw = _ABSENT
    reason: Raw = _ABSENT
    task_id: Raw = _ABSENT
    client_info: Raw = _ABSENT


class _Result(Struct, rename="camel"):
    result_type: Raw = _ABSENT
    request_state: Raw = _ABSENT
    input_requests: Raw = _ABSENT
    is_error: Raw = _ABSENT
    content: Raw = _ABSENT
    structured_content: Raw = _ABSENT
    tools: Raw = _ABSENT
    resources: Raw = _ABSENT
    resource_templates: Raw = _ABSENT
    prompts: Raw = _ABSENT
    contents: Raw = _ABSENT
    messages: Raw = _ABSENT
    server_info: Raw = _ABSENT
    action: Raw = _ABSENT


class _Error(Struct):
    code: int | None = None
    message: str = ""


class _Envelope(Struct):
    params: _Params | None = None
    result: _Result | None = None
    error: _Error | None = None


class _Block(Struct):
    type: str = ""
    text: str = ""


_envelope = msgspec.json.Decoder(_Envelope)
_blocks = msgspec.json.Decoder(list[_Block])
_items = msgspec.json.Decoder(list[Raw])
_members = msgspec.json.Decoder(dict[str, Raw])
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_LISTS = ("tools", "resources", "resource_templates", "prompts", "contents", "messages")


def read_parts(body: bytes) -> MessageParts:
    """Parse an encoded message; members that do not match the protocol are ignored."""
    try:
        found = _envelope.decode(body)
        if found.error is not None:
            return MessageParts(text=f"{found.error.code}: {found.error.message}")
        if found.params is not None:
            return _of_params(found.params)
        return MessageParts() if found.result is None else _of_result(found.result)
    except _UNREADABLE:
        return MessageParts()


def _of_params(params: _Params) -> MessageParts:
    label = next(
        (text for member in (params.name, params.uri, params.task_id, params.level) if (text := _string(member))), ""
    )
    parts = MessageParts(
        label=label,
        state=_string(params.request_state) or None,
        continues=bool(params.request_state or params.input_responses),
    )
    if params.arguments:
        parts.value = params.arguments
    elif params.progress:
        total = f"/{bytes(params.total).decode()}" if params.total else ""
        parts.text = f"{bytes(params.progress).decode()}{total} {_string(params.message)}".rstrip()
    elif params.request_id:
        parts.text = f"request {bytes(params.request_id).decode()} {_string(params.reason)}".rstrip()
    else:
        members = (params.data, params.message, params.ref, params.argument, params.client_info)
        parts.value = next((member for member in members if member), None)
    return parts


def _of_result(result: _Result) -> MessageParts:
    parts = MessageParts(state=_string(result.request_state) or None)
    parts.input_required = _string(result.result_type) == "input_required"
    if parts.input_required:
        asked = _members.decode(result.input_requests) if result.input_requests else {}
        parts.text = f"asks for input ({len(asked)})" if asked else "asks to be called again"
    elif result.content:
        parts.text = " ".join(_of_content(result))
    elif result.server_info:
        parts.value = result.server_info
    elif result.action:
        parts.text = _string(result.action)
    else:
        parts.text = ", ".join(_counts(result))
    return parts


def _of_content(result: _Result) -> Iterator[str]:
    if bytes(result.is_error) == b"true":
        yield "error:"
    content = bytes(result.content)
    if len(content) > _LARGEST:
        yield f"{len(content)} bytes"
        return
    # The first block of a tool's result; the content of a sampling response is not a list.
    for each in _blocks.decode(content if content.startswith(b"[") else b"[" + content + b"]")[:1]:
        yield each.text[:_LONGEST_READ] if each.type == "text" else each.type


def _counts(result: _Result) -> Iterator[str]:
    for name in _LISTS:
        member: Raw = getattr(result, name)
        if bytes(memoryview(member)[:1]) == b"[":
            yield f"{len(_items.decode(member))} {name.removeprefix('resource_')}"


def _string(member: Raw) -> str:
    """Return a member that should be a string; empty if it is not."""
    if not member:
        return ""
    try:
        return msgspec.json.decode(member, type=str)
    except msgspec.ValidationError:
        return ""


def summarize(parts: MessageParts, redaction: MessageRedaction) -> str:
    """Return one masked line about a message."""
    words = [redaction.text(parts.label[:_LONGEST_READ])] if parts.label else []
    if parts.value is not None:
        words.append(_shown(parts.value, redaction))
    elif parts.text:
        words.append(redaction.text(parts.text[:_LONGEST_READ]))
    line = " ".join(" ".join(words).split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _shown(value: Raw, redaction: MessageRedaction) -> str:
    if len(value) > _LARGEST_SHOWN:
        return f"({len(value)} bytes)"
    plain: Any = redaction.apply(msgspec.json.decode(value))
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()
