"""Results of tools, resources and prompts, rendered for a model.

Content blocks and the structured value are both shown, neither twice. A text that is too long is spilled to a file, and
its beginning and end are shown. Images are shown if the model supports them and they are valid; anything that cannot be
shown is spilled and mentioned. The caller passes the spill, and runs this in a thread, since it may write files.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Struct

import trunkline.types as t
from trunkline.host.chat.history import MAX_IMAGE_BYTES, InvalidImage, block_tokens, read_image
from trunkline.host.chat.spill import Spill
from trunkline.host.models.interface import AudioBlock, ImageBlock, TextBlock, Traits
from trunkline.host.upstreams.catalog.items import estimate_tokens

__all__ = ["Rendered", "RenderedBlock", "Renderer", "result_limit"]

RenderedBlock: TypeAlias = TextBlock | ImageBlock | AudioBlock

#: The ``_meta`` keys by which a tool sets the size of its results, with the factor to convert it to tokens.
_LIMITS = (("dev.trunkline/maxResultTokens", 1.0), ("anthropic/maxResultSizeChars", 1 / 3.6))
_HEAD_SHARE = 0.7  # The beginning says what a text is; the end often has the error or the summary.
_CHARACTERS_A_TOKEN = 3.6  # A rule of thumb for JSON with English text.
_PREVIEW_TOKENS = 2000  # The rest can be read with the tools for spilled outputs.
_MOST_BLOCKS = 100  # More blocks than a model needs from one result.
_REPEATED = "[as above]"
_SOUNDS = MappingProxyType({"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"})


class Rendered(Struct, frozen=True):
    """The rendered blocks, and the file with the whole content, if it was spilled."""

    content: tuple[RenderedBlock, ...]
    spilled: str | None = None
    #: The id of the spilled output, for the model.
    output: str | None = None

    @property
    def text(self) -> str:
        """The text of the blocks."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextBlock))


def result_limit(definition: t.Tool | None, *, usual: int, ceiling: int) -> int:
    """Return the maximum tokens of a tool's result: what the tool asks for, up to the ceiling, else the default."""
    meta = (definition.meta if definition is not None else None) or {}
    for name, tokens in _LIMITS:
        wanted = meta.get(name)
        if isinstance(wanted, int | float) and not isinstance(wanted, bool) and wanted >= 1:
            return int(min(wanted * tokens, ceiling))
    return min(usual, ceiling)


class Renderer:
    """Renders content for one model."""

    def __init__(self, spill: Spill, traits: Traits) -> None:
        """Spill large outputs to ``spill``; ``traits`` say which media the model supports."""
        self._spill = spill
        self._traits = traits

    def result(self, result: t.CallToolResult, *, limit: int) -> Rendered:
        """Render the result of a tool."""
        blocks = [shown for block in result.content[:_MOST_BLOCKS] for shown in self._block(block)]
        if len(result.content) > _MOST_BLOCKS:
            blocks.append(TextBlock(f"[{len(result.content) - _MOST_BLOCKS} more blocks are not shown]"))
        structured = _without_repeats(result.structured_content, result.content)
        if structured is not UNSET and structured is not None:
            blocks.append(TextBlock(f"structuredContent: {msgspec.json.encode(structured).decode()}"))
        return self._bounded(blocks or [TextBlock("(no output)")], limit)

    def resource(self, contents: Iterable[t.ResourceContents], *, limit: int) -> Rendered:
        """Render the contents of a resource."""
        blocks = [shown for each in contents for shown in self._contents(each)]
        return self._bounded(blocks or [TextBlock("(empty)")], limit)

    def block(self, block: t.ContentBlock, *, limit: int) -> Rendered:
        """Render one block, such as a message of a prompt."""
        return self._bounded(self._block(block), limit)

    def text(self, text: str, *, limit: int) -> Rendered:
        """Render a text."""
        return self._bounded([TextBlock(text)], limit)

    # --- one block ---------------------------------------------------------------------------------------------------

    def _block(self, block: t.ContentBlock) -> list[RenderedBlock]:
        if isinstance(block, t.TextContent):
            return [TextBlock(block.text)] if block.text else []
        if isinstance(block, t.ImageContent):
            return [self._picture(block.data, block.mime_type)]
        if isinstance(block, t.AudioContent):
            return [self._sound(block.data, block.mime_type)]
        if isinstance(block, t.EmbeddedResource):
            return self._contents(block.resource)
        about = "; ".join(part for part in (block.mime_type, block.description) if part)
        return [TextBlock(f"[resource {block.title or block.name}: {block.uri}" + (f" ({about})]" if about else "]"))]

    def _contents(self, contents: t.ResourceContents) -> list[RenderedBlock]:
        kind = contents.mime_type or ""
        if contents.text is not None:
            return [TextBlock(f"[resource {contents.uri}]\n{contents.text}")]
        if contents.blob is None:
            return [TextBlock(f"[resource {contents.uri}: empty]")]
        if kind.startswith("image/"):
            return [TextBlock(f"[resource {contents.uri}]"), self._picture(contents.blob, kind)]
        if kind.startswith("audio/"):
            return [TextBlock(f"[resource {contents.uri}]"), self._sound(contents.blob, kind)]
        try:
            data = b64decode(contents.blob, validate=True)
        except (binascii.Error, ValueError):
            return [TextBlock(f"[resource {contents.uri}: invalid base64]")]
        return [self._spill_content(data, f"resource {contents.uri}, {kind or 'binary'}", "bin")]

    def _picture(self, data: str, mime_type: str) -> RenderedBlock:
        try:
            picture, content = read_image(data)
        except InvalidImage as problem:
            return TextBlock(f"[an image ({_word(mime_type)}) cannot be shown: {problem}]")
        kind = picture.mime_type
        if self._traits.images and picture.fits and kind is not None and len(content) <= MAX_IMAGE_BYTES:
            return ImageBlock(data, kind)
        return self._spill_content(
            content, f"an image, {kind or _word(mime_type)}", "bin" if kind is None else kind[6:]
        )

    def _sound(self, data: str, mime_type: str) -> RenderedBlock:
        try:
            content = b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            content = b""
        if not content:
            return TextBlock(f"[audio ({_word(mime_type)}) cannot be used: it is empty or invalid base64]")
        if self._traits.audio and mime_type in _SOUNDS and len(content) <= MAX_IMAGE_BYTES:
            return AudioBlock(data, mime_type)
        return self._spill_content(content, f"audio, {_word(mime_type)}", _SOUNDS.get(mime_type, "bin"))

    def _spill_content(self, content: bytes, what: str, suffix: str) -> TextBlock:
        """Spill what cannot be shown; the text tells the model that it exists, and the person where it is."""
        try:
            output = self._spill.keep(content, suffix=suffix)
        except OSError as error:
            return TextBlock(f"[{what}, {_size(len(content))}: not shown, and not saved: {error.strerror}]")
        return TextBlock(f"[{what}, {_size(len(content))}: not shown; saved for the user as {output.path}]")

    # --- bounds ------------------------------------------------------------------------------------------------------

    def _fewer(self, blocks: list[RenderedBlock], limit: int) -> list[RenderedBlock]:
        """Spill images and audio beyond the limit; the first is always shown."""
        shown: list[RenderedBlock] = []
        left = limit
        for block in blocks:
            if isinstance(block, TextBlock):
                shown.append(block)
                continue
            cost = block_tokens(block)
            if cost <= left or left == limit:
                shown.append(block)
            else:
                what = "an image" if isinstance(block, ImageBlock) else "audio"
                suffix = block.mime_type.partition("/")[2]
                shown.append(
                    self._spill_content(b64decode(block.data), f"{what}, {block.mime_type}, one of many", suffix)
                )
            left -= cost
        return shown

    def _bounded(self, blocks: list[RenderedBlock], limit: int) -> Rendered:
        """Spill the text if it is too long, and show its beginning and end."""
        blocks = self._fewer(blocks, limit)
        text = "\n".join(block.text for block in blocks if isinstance(block, TextBlock))
        tokens = estimate_tokens(text)
        if tokens <= limit:
            return Rendered(tuple(blocks))
        room = int(min(limit, _PREVIEW_TOKENS) * _CHARACTERS_A_TOKEN)
        head = int(room * _HEAD_SHARE)
        # Characters of some scripts are several tokens each; the shown part is reduced accordingly.
        ratio = min(1.0, len(text) / (tokens * _CHARACTERS_A_TOKEN))
        first, last = text[: int(head * ratio)], text[-max(1, int((room - head) * ratio)) :]
        try:
            output = self._spill.keep(text)
        except OSError as error:
            way, path, name = f"the rest cannot be saved: {error.strerror}", None, None
        else:
            way, path, name = (
                f"the whole output is {output.id}: use read_output or search_output",
                output.path,
                output.id,
            )
        between = f"\n[… {len(text) - len(first) - len(last)} of {len(text)} characters are not shown; {way} …]\n"
        others = [block for block in blocks if not isinstance(block, TextBlock)]
        return Rendered((TextBlock(first + between + last), *others), path, name)


def _without_repeats(structured: Any, content: Sequence[t.ContentBlock]) -> Any:
    """Return a structured value without what the content blocks show; UNSET if they show all of it.

    Objects around the value that have no other member are ignored: ``{"result": …}`` of wrapped results, and the
    ``{"content": …}`` of the official filesystem server, which repeats a file of any size, or an image in base64.
    """
    texts = [block.text for block in content if isinstance(block, t.TextContent)]
    decoded_texts = [value for value in map(_decoded, texts) if value is not UNSET]
    blocks = [msgspec.to_builtins(block) for block in content]
    visible = [*texts, *decoded_texts, *blocks]
    visible += [items for items in ("\n".join(texts), texts, decoded_texts, blocks) if items]
    value = structured
    while value not in visible:
        if not isinstance(value, dict) or len(value) != 1:
            break
        [value] = value.values()
    else:
        return UNSET
    if not isinstance(structured, dict):
        return structured
    return {name: _REPEATED if _is_long(part) and part in visible else part for name, part in structured.items()}


def _is_long(value: Any) -> bool:
    """Return True if a note that a value is repeated may be shorter than the value."""
    return len(value) > len(_REPEATED) if isinstance(value, str) else isinstance(value, list | dict) and bool(value)


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return UNSET


def _word(text: str) -> str:
    return "".join(character for character in text[:60] if character.isprintable()) or "no type"


def _size(count: int) -> str:
    return f"{count} bytes" if count < 10_240 else f"{count // 1024} KB"
