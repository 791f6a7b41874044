"""Results as a model sees them: all of them once, pictures that are pictures, and nothing too long."""

from __future__ import annotations

import base64
import struct
from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from trunkline.host.chat.history import InvalidImage, image_tokens, read_image
from trunkline.host.chat.rendering import Renderer, result_limit
from trunkline.host.chat.spill import Spill
from trunkline.host.models.interface import AudioBlock, ImageBlock, TextBlock, Traits


def b64(data: bytes) -> str:
    """Write bytes as base64."""
    return base64.b64encode(data).decode()


def png(width: int = 2, height: int = 2) -> bytes:
    """Make the beginning of a PNG."""
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + b"\x08\x02\0\0\0"


JPEG = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08" + struct.pack(">HH", 30, 40) + b"\x03"
GIF = b"GIF89a" + struct.pack("<HH", 5, 6)
WEBP = b"RIFF\0\0\0\0WEBPVP8X" + b"\0" * 8 + b"\x09\0\0\x13\0\0"
WEBP_LOSSLESS = b"RIFF\0\0\0\0WEBPVP8L" + b"\0" * 4 + b"\x2f" + (9 | 19 << 14).to_bytes(4, "little")
WEBP_LOSSY = b"RIFF\0\0\0\0WEBPVP8 " + b"\0" * 10 + struct.pack("<HH", 7, 8)
SEEING = Traits(images=True, audio=True)
BLIND = Traits()


def shown(tmp_path: Path, result: t.CallToolResult, *, traits: Traits = SEEING, limit: int = 1000) -> Any:
    """Show a result to a model."""
    return Renderer(Spill(tmp_path, "0123456789abcdef"), traits).result(result, limit=limit)


def result(*content: t.ContentBlock, **more: Any) -> t.CallToolResult:
    """Make a result."""
    return t.CallToolResult(content=list(content), **more)


def text(said: str) -> t.TextContent:
    """Make a text."""
    return t.TextContent(text=said)


# --- text and structure ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(result(text("3"), structured_content={"result": 3}), "3", id="wrapped-number"),
        pytest.param(result(text("three"), structured_content={"result": "three"}), "three", id="wrapped-text"),
        pytest.param(result(text("three"), structured_content="three"), "three", id="text"),
        pytest.param(result(text('{"a": 1}'), structured_content={"a": 1}), '{"a": 1}', id="the-same-json"),
        pytest.param(
            result(text("a"), text("b"), structured_content={"result": ["a", "b"]}), "a\nb", id="a-block-each"
        ),
        pytest.param(result(text("a file"), structured_content={"content": "a file"}), "a file", id="any-wrapper"),
        pytest.param(
            result(text("a"), text("b"), structured_content={"content": "a\nb"}), "a\nb", id="blocks-in-one-text"
        ),
        pytest.param(
            result(text("a long file"), structured_content={"content": "a long file", "size": 11}),
            'a long file\nstructuredContent: {"content":"[as above]","size":11}',
            id="one-member-of-two",
        ),
        pytest.param(
            result(structured_content={"content": ""}), 'structuredContent: {"content":""}', id="only-an-empty-text"
        ),
        pytest.param(
            result(text("none"), structured_content={"items": []}),
            'none\nstructuredContent: {"items":[]}',
            id="an-empty-list",
        ),
        pytest.param(
            result(text("sunny"), structured_content={"t": 33}), 'sunny\nstructuredContent: {"t":33}', id="different"
        ),
        pytest.param(result(structured_content={"t": 33}), 'structuredContent: {"t":33}', id="only-structured"),
        pytest.param(result(), "(no output)", id="nothing"),
        pytest.param(result(text("")), "(no output)", id="an-empty-text"),
    ],
)
def test_content_and_structure_are_both_shown_and_neither_twice(
    tmp_path: Path, given: t.CallToolResult, expected: str
) -> None:
    assert shown(tmp_path, given).text == expected


def test_an_image_is_not_repeated_in_base64(tmp_path: Path) -> None:
    picture = b64(png())
    image = t.ImageContent(data=picture, mime_type="image/png")
    repeated = {"content": [{"type": "image", "data": picture, "mimeType": "image/png"}]}
    assert shown(tmp_path, result(image, structured_content=repeated)).content == (ImageBlock(picture, "image/png"),)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        pytest.param(
            t.ResourceLink(uri="memo://a", name="a", mime_type="text/plain", description="A memo."),
            "[resource a: memo://a (text/plain; A memo.)]",
            id="link",
        ),
        pytest.param(
            t.EmbeddedResource(resource=t.ResourceContents(uri="memo://a", text="hello")),
            "[resource memo://a]\nhello",
            id="embedded",
        ),
        pytest.param(
            t.EmbeddedResource(resource=t.ResourceContents(uri="memo://a")), "[resource memo://a: empty]", id="empty"
        ),
        pytest.param(
            t.EmbeddedResource(resource=t.ResourceContents(uri="memo://a", blob="%%%")),
            "[resource memo://a: invalid base64]",
            id="no-base64",
        ),
    ],
)
def test_resources_in_results_are_named(tmp_path: Path, block: t.ContentBlock, expected: str) -> None:
    assert shown(tmp_path, result(block)).text == expected


def test_a_long_text_is_kept_whole_and_its_beginning_and_end_are_shown(tmp_path: Path) -> None:
    long = "".join(f"{number}\n" for number in range(10_000))
    seen = shown(tmp_path, result(text(long), t.ImageContent(data=b64(png()), mime_type="image/png")), limit=500)
    assert Path(seen.spilled).read_text() == long
    assert seen.output == "out-1"
    assert seen.text.startswith("0\n1\n")
    assert seen.text.endswith("9999\n")
    assert len(seen.text) < 2200
    assert isinstance(seen.content[1], ImageBlock)


def test_a_result_of_countless_blocks_is_bounded(tmp_path: Path) -> None:
    seen = shown(tmp_path, result(*(text("x") for _ in range(150))))
    assert len(seen.content) == 101
    assert seen.content[-1] == TextBlock("[50 more blocks are not shown]")


def test_an_output_that_cannot_be_kept_is_still_previewed(tmp_path: Path) -> None:
    (tmp_path / "0123456789abcdef").write_text("in the way")
    seen = shown(tmp_path, result(text("x" * 10_000)), limit=100)
    assert seen.spilled is None
    assert "the rest cannot be saved" in seen.text


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        pytest.param(None, 10, id="usual"),
        pytest.param({"dev.trunkline/maxResultTokens": 40}, 40, id="more"),
        pytest.param({"dev.trunkline/maxResultTokens": 5}, 5, id="less"),
        pytest.param({"dev.trunkline/maxResultTokens": 10**9}, 100, id="under-the-ceiling"),
        pytest.param({"anthropic/maxResultSizeChars": 180}, 50, id="in-characters"),
        pytest.param({"dev.trunkline/maxResultTokens": "many"}, 10, id="no-number"),
        pytest.param({"dev.trunkline/maxResultTokens": -1}, 10, id="negative"),
    ],
)
def test_a_tool_may_ask_for_another_limit_under_the_ceiling(meta: Any, expected: int) -> None:
    tool = t.Tool(name="a", input_schema={"type": "object"}, meta=meta)
    assert result_limit(tool, usual=10, ceiling=100) == expected


# --- pictures and sound ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "kind", "size"),
    [
        pytest.param(png(3, 4), "image/png", (3, 4), id="png"),
        pytest.param(JPEG, "image/jpeg", (40, 30), id="jpeg"),
        pytest.param(GIF, "image/gif", (5, 6), id="gif"),
        pytest.param(WEBP, "image/webp", (10, 20), id="webp"),
        pytest.param(WEBP_LOSSLESS, "image/webp", (10, 20), id="webp-lossless"),
        pytest.param(WEBP_LOSSY, "image/webp", (7, 8), id="webp-lossy"),
        pytest.param(b"II*\0 a tiff", None, (0, 0), id="tiff"),
    ],
)
def test_a_picture_is_what_its_bytes_say(data: bytes, kind: str | None, size: tuple[int, int]) -> None:
    picture, content = read_image(b64(data))
    assert (picture.mime_type, (picture.width, picture.height), content) == (kind, size, data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("", id="empty"),
        pytest.param("not base64!", id="no-base64"),
        pytest.param(b64(png()[:18]), id="cut-off"),
        pytest.param(b64(png(0, 5)), id="no-pixels"),
        pytest.param(b64(png()[:12] + b"XXXX" + png()[16:]), id="no-header"),
        pytest.param(b64(JPEG[:8]), id="jpeg-cut-off"),
        pytest.param(b64(b"RIFF\0\0\0\0WEBPXXXX" + b"\0" * 20), id="webp-of-no-kind"),
    ],
)
def test_a_corrupt_picture_becomes_a_note(tmp_path: Path, data: str) -> None:
    with pytest.raises(InvalidImage):
        read_image(data)
    seen = shown(tmp_path, result(t.ImageContent(data=data, mime_type="image/png")))
    assert seen.text.startswith("[an image (image/png) cannot be shown: it ")


@pytest.mark.parametrize(
    ("data", "said", "traits", "what"),
    [
        pytest.param(b"II*\0 a tiff", "image/tiff", SEEING, "an image, image/tiff", id="type-no-model-takes"),
        pytest.param(png(), "image/png", BLIND, "an image, image/png", id="model-that-does-not-see"),
        pytest.param(png(9000, 1), "image/png", SEEING, "an image, image/png", id="too-wide"),
        pytest.param(png() + b"\0" * 4_000_000, "image/png", SEEING, "an image, image/png", id="too-large"),
    ],
)
def test_a_picture_that_cannot_be_shown_is_kept_and_named(
    tmp_path: Path, data: bytes, said: str, traits: Traits, what: str
) -> None:
    seen = shown(tmp_path, result(t.ImageContent(data=b64(data), mime_type=said)), traits=traits)
    path = Path(seen.text.rpartition("saved for the user as ")[2].rstrip("]"))
    assert what in seen.text
    assert path.read_bytes() == data


def test_pictures_beyond_the_limit_are_kept_and_the_first_is_shown(tmp_path: Path) -> None:
    pictures = [t.ImageContent(data=b64(png(1000, 1000)), mime_type="image/png") for _ in range(3)]
    seen = shown(tmp_path, result(*pictures), limit=2000)
    assert [type(block).__name__ for block in seen.content] == ["ImageBlock", "TextBlock", "TextBlock"]
    assert "one of many" in seen.text


def test_a_picture_goes_under_the_type_that_it_has(tmp_path: Path) -> None:
    seen = shown(tmp_path, result(t.ImageContent(data=b64(GIF), mime_type="image/png")))
    assert seen.content == (ImageBlock(b64(GIF), "image/gif"),)


def test_a_picture_in_a_resource_is_shown(tmp_path: Path) -> None:
    held = t.ResourceContents(uri="pic://a", mime_type="image/png", blob=b64(png()))
    seen = shown(tmp_path, result(t.EmbeddedResource(resource=held)))
    assert seen.content == (TextBlock("[resource pic://a]"), ImageBlock(b64(png()), "image/png"))


@pytest.mark.parametrize(
    ("traits", "mime_type", "heard"),
    [
        pytest.param(SEEING, "audio/wav", True, id="heard"),
        pytest.param(SEEING, "audio/flac", False, id="unknown-type"),
        pytest.param(BLIND, "audio/wav", False, id="deaf"),
    ],
)
def test_audio_is_sent_to_audio_models_and_spilled_for_others(
    tmp_path: Path, traits: Traits, mime_type: str, heard: bool
) -> None:
    seen = shown(tmp_path, result(t.AudioContent(data=b64(b"RIFF"), mime_type=mime_type)), traits=traits)
    assert isinstance(seen.content[0], AudioBlock) is heard
    assert ("saved for the user" in seen.text) is not heard


def test_sound_that_is_none_becomes_a_note(tmp_path: Path) -> None:
    seen = shown(tmp_path, result(t.AudioContent(data="", mime_type="audio/wav")))
    assert "cannot be used" in seen.text


@pytest.mark.parametrize(
    ("data", "tokens"),
    [(png(750, 10), 95), (png(4000, 4000), 1600), (b"II*\0", 1600), (b"", 1600)],
    ids=["small", "large", "unknown", "nothing"],
)
def test_pictures_are_counted(data: bytes, tokens: int) -> None:
    assert image_tokens(b64(data)) == tokens
