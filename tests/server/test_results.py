"""What handlers return, and what becomes of it."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import enum
import sys
from collections import deque
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
import msgspec
import pydantic
import pytest
from msgspec import UNSET, Raw, Struct

from trunkline.server.results import (
    AssistantMessage,
    Audio,
    File,
    Image,
    Message,
    ResourceContent,
    ToolResult,
    UserMessage,
    encode_json,
    to_contents,
    to_messages,
    to_tool_result,
)
from trunkline.types import (
    Annotations,
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    ResourceContents,
    ResourceLink,
    TextContent,
)

PNG = b"\x89PNG\r\n\x1a\n0000"
JPEG = b"\xff\xd8\xff\xe0"
WAV = b"RIFF0000WAVEfmt "


class Point(Struct):
    x: int
    y: int


@dataclasses.dataclass
class DataPoint:
    x: int
    y: int


@attrs.define
class AttrsPoint:
    x: int
    y: int


class ModelPoint(pydantic.BaseModel):
    x: int
    y: int


class Aliased(pydantic.BaseModel):
    city_name: str = pydantic.Field(alias="cityName")


class Colour(enum.StrEnum):
    RED = "red"


POINT = b'{"x":1,"y":2}'


OTHER = ResourceContents(uri="city://bergen", text="rain")


def text(value: str) -> TextContent:
    return TextContent(text=value)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# --- Tools with an output schema


@pytest.mark.parametrize(
    ("value", "json", "shown"),
    [
        pytest.param(Point(1, 2), POINT, POINT.decode(), id="struct"),
        pytest.param(3, b"3", "3", id="number"),
        pytest.param([1, 2], b"[1,2]", "[1,2]", id="list"),
        pytest.param(None, b"null", "null", id="none"),
        pytest.param('say "hi"', b'"say \\"hi\\""', 'say "hi"', id="text"),
        pytest.param(Colour.RED, b'"red"', "red", id="text enum"),
        pytest.param("größe", '"größe"'.encode(), "größe", id="text beyond ascii"),
    ],
)
def test_a_typed_value_is_structured_content_and_one_text(value: Any, json: bytes, shown: str) -> None:
    result = to_tool_result(value, encode=msgspec.json.encode)

    assert bytes(result.structured_content) == json
    assert result == CallToolResult(content=[text(shown)], structured_content=result.structured_content)
    assert [type(block.text) for block in result.content if isinstance(block, TextContent)] == [str]


def test_a_tool_may_return_a_whole_result_instead() -> None:
    whole = CallToolResult(content=[text("whole")], is_error=True)

    assert to_tool_result(whole) is whole
    assert to_tool_result(whole, encode=msgspec.json.encode) is whole
    assert to_tool_result(ToolResult("made"), encode=msgspec.json.encode).content == [text("made")]


# --- Tools without one


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param("hello", "hello", id="text"),
        pytest.param("", "", id="empty text"),
        pytest.param(3, "3", id="number"),
        pytest.param(True, "true", id="bool"),
        pytest.param([1, {"a": 2}], '[1,{"a":2}]', id="list"),
        pytest.param(["a", "b"], '["a","b"]', id="list of texts"),
        pytest.param([], "[]", id="empty list"),
        pytest.param((1, 2), "[1,2]", id="tuple"),
        pytest.param({3}, "[3]", id="set"),
        pytest.param(datetime.date(2031, 1, 2), '"2031-01-02"', id="date"),
    ],
)
def test_a_value_that_is_not_an_object_is_one_text(value: Any, shown: str) -> None:
    assert to_tool_result(value) == CallToolResult(content=[text(shown)])


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"x": 1, "y": 2}, id="dictionary"),
        pytest.param(MappingProxyType({"x": 1, "y": 2}), id="other mapping"),
        pytest.param(Point(1, 2), id="struct"),
        pytest.param(DataPoint(1, 2), id="dataclass"),
        pytest.param(AttrsPoint(1, 2), id="attrs"),
        pytest.param(ModelPoint(x=1, y=2), id="pydantic"),
    ],
)
def test_an_object_is_text_and_structured_content(value: Any) -> None:
    result = to_tool_result(value)

    assert result.content == [text(POINT.decode())]
    assert bytes(result.structured_content) == POINT


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(text("hi"), id="text"),
        pytest.param(ImageContent(data="AA==", mime_type="image/png"), id="image"),
        pytest.param(AudioContent(data="AA==", mime_type="audio/wav"), id="audio"),
        pytest.param(ResourceLink(uri="a:b", name="b"), id="link"),
        pytest.param(EmbeddedResource(resource=ResourceContents(uri="a:b", text="x")), id="resource"),
    ],
)
def test_a_content_block_stays_as_it_is_alone_and_in_a_list(block: Any) -> None:
    assert to_tool_result(block) == CallToolResult(content=[block])
    assert to_tool_result([block, block]) == CallToolResult(content=[block, block])


BYTES = EmbeddedResource(
    resource=ResourceContents(uri="file:///resource", mime_type="application/octet-stream", blob="AAE=")
)


@pytest.mark.parametrize(
    ("value", "content"),
    [
        pytest.param(None, [], id="nothing"),
        pytest.param(b"\x00\x01", [BYTES], id="bytes"),
        pytest.param(bytearray(b"\x00\x01"), [BYTES], id="bytearray"),
        pytest.param(OTHER, [EmbeddedResource(resource=OTHER)], id="contents of a resource"),
        pytest.param(Audio(data=WAV), [AudioContent(data=b64(WAV), mime_type="audio/wav")], id="audio"),
        pytest.param(
            Image(data=memoryview(PNG), annotations=Annotations(priority=1)),
            [ImageContent(data=b64(PNG), mime_type="image/png", annotations=Annotations(priority=1))],
            id="image",
        ),
        pytest.param(ToolResult(), [], id="empty result"),
        pytest.param(
            ToolResult([Image(data=PNG), "a picture"]),
            [ImageContent(data=b64(PNG), mime_type="image/png"), text("a picture")],
            id="result of content",
        ),
    ],
)
def test_a_value_becomes_content_alone(value: Any, content: list[Any]) -> None:
    assert to_tool_result(value) == CallToolResult(content=content)


def test_a_list_with_content_is_taken_item_by_item() -> None:
    result = to_tool_result(["look:", Image(data=PNG), {"x": 1}, Point(1, 2), None])

    assert result.content == [
        text("look:"),
        ImageContent(data=b64(PNG), mime_type="image/png"),
        text('{"x":1}'),
        text(POINT.decode()),
        text("null"),
    ]
    assert result.structured_content is UNSET


class Named:
    def __str__(self) -> str:
        return "named"


class Opaque:
    pass


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        pytest.param(Opaque(), "test_results.Opaque", id="object"),
        pytest.param({"deep": [Opaque()]}, "test_results.Opaque", id="object inside"),
        pytest.param([Image(data=PNG), Opaque()], "test_results.Opaque", id="object beside content"),
        pytest.param(["\ud800"], "type list has no JSON form", id="half a character"),
        pytest.param(ENDLESS, "type list has no JSON form", id="a list that holds itself"),
        pytest.param(len, "builtin_function_or_method", id="function"),
    ],
)
def test_a_value_without_a_json_form_is_a_type_error_that_names_the_type(value: Any, named: str) -> None:
    with pytest.raises(TypeError, match=named):
        to_tool_result(value)


# --- ToolResult


@pytest.mark.parametrize(
    ("value", "content", "json"),
    [
        pytest.param(ToolResult(structured_content=Point(1, 2)), [text(POINT.decode())], POINT, id="shown as text"),
        pytest.param(ToolResult([], structured_content={}), [], b"{}", id="without text"),
        pytest.param(ToolResult(structured_content=None), [text("null")], b"null", id="null"),
        pytest.param(ToolResult("boom", structured_content={"x": 1}), [text("boom")], b'{"x":1}', id="both"),
    ],
)
def test_a_tool_result_may_have_structured_content(value: ToolResult, content: list[Any], json: bytes) -> None:
    result = to_tool_result(value)

    assert (result.content, bytes(result.structured_content)) == (content, json)


def test_a_tool_result_may_have_meta_and_be_an_error() -> None:
    result = to_tool_result(ToolResult("boom", meta={"a": 1}, is_error=True))

    assert (result.content, result.meta, result.is_error) == ([text("boom")], {"a": 1}, True)


# --- Image, Audio, File


@pytest.mark.parametrize(
    ("media", "mime_type"),
    [
        pytest.param(Image(data=b"?"), "image/png", id="image default"),
        pytest.param(Image(data=JPEG), "image/jpeg", id="image by its first bytes"),
        pytest.param(Image(data=b"RIFF0000WEBP"), "image/webp", id="image by later bytes"),
        pytest.param(Image(data=WAV), "image/png", id="no image"),
        pytest.param(Image(data=PNG, format="jpg"), "image/jpeg", id="image format"),
        pytest.param(Image(data=PNG, format=".SVG"), "image/svg+xml", id="image format as a suffix"),
        pytest.param(Image(data=PNG, format="avif"), "image/avif", id="unknown image format"),
        pytest.param(Image(data=PNG, format="jpg", mime_type="image/x"), "image/x", id="image type given"),
        pytest.param(Audio(data=b"?"), "audio/wav", id="audio default"),
        pytest.param(Audio(data=b"OggS"), "audio/ogg", id="audio by its first bytes"),
        pytest.param(Audio(data=WAV, format="mp3"), "audio/mpeg", id="audio format"),
        pytest.param(File(data=b"?"), "application/octet-stream", id="file default"),
        pytest.param(File(data=b"%PDF-1.7"), "application/pdf", id="file by its first bytes"),
        pytest.param(File(data=b"?", format="zip"), "application/zip", id="file format"),
        pytest.param(File(data=b"?", format="txt"), "text/plain", id="text format"),
    ],
)
def test_the_type_of_bytes_is_given_or_detected(media: Image | Audio | File, mime_type: str) -> None:
    assert media.mime_type == mime_type


@pytest.mark.parametrize(
    ("name", "mime_type"),
    [
        pytest.param("a.webp", "image/webp", id="common"),
        pytest.param("a.PNG", "image/png", id="upper case"),
        pytest.param("a.tiff", "image/tiff", id="less common"),
        pytest.param("a.nosuchtype", "image/jpeg", id="unknown suffix, known bytes"),
        pytest.param("a", "image/jpeg", id="no suffix, known bytes"),
    ],
)
def test_the_type_of_a_file_is_detected_by_its_name_then_its_bytes(name: str, mime_type: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(JPEG)

    assert Image(path).mime_type == mime_type


@pytest.mark.parametrize("path", ["{folder}/a.png", "~/a.png"], ids=["absolute", "home folder"])
def test_a_file_is_read_when_it_is_created(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.png").write_bytes(PNG)
    image = Image(path.format(folder=tmp_path))
    (tmp_path / "a.png").unlink()

    assert image.to_block().data == b64(PNG)
    with pytest.raises(FileNotFoundError):
        Image(path.format(folder=tmp_path))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, ValueError("Audio needs either path or data")),
        ({"path": "a", "data": b"b"}, ValueError("Audio needs either path or data")),
        ({"data": "iVBORw0KGgo="}, TypeError("Audio needs bytes as data, not str")),
    ],
    ids=["neither", "both", "text"],
)
def test_media_has_one_source_of_bytes(arguments: dict[str, Any], error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        Audio(**arguments)


@pytest.mark.parametrize(
    ("file", "contents"),
    [
        pytest.param(
            File(data=b"gr\xf6\xdfe", format="txt", name="a.txt"),
            ResourceContents(uri="file:///a.txt", mime_type="text/plain", blob=b64(b"gr\xf6\xdfe")),
            id="text that is not UTF-8",
        ),
        pytest.param(
            File(data=b"", name="../etc/passwd"),
            ResourceContents(uri="file:///..%2Fetc%2Fpasswd", mime_type="application/octet-stream", blob=""),
            id="a name with slashes",
        ),
    ],
)
def test_a_file_becomes_contents_under_its_name(file: File, contents: ResourceContents) -> None:
    assert file.to_block().resource == contents


def test_a_text_file_is_sent_as_text_under_its_name(tmp_path: Path) -> None:
    path = tmp_path / "my notes.md"
    path.write_text("# größe", encoding="utf-8")

    resource = File(path).to_block().resource

    assert resource == ResourceContents(uri="file:///my%20notes.md", mime_type="text/markdown", text="# größe")


# --- Prompts


def said(role: Any, value: str) -> PromptMessage:
    return PromptMessage(role=role, content=text(value))


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        pytest.param("hi", [said("user", "hi")], id="text"),
        pytest.param(said("assistant", "hi"), [said("assistant", "hi")], id="message of the protocol"),
        pytest.param(Message("hi"), [said("user", "hi")], id="message"),
        pytest.param(Message("hi", role="assistant"), [said("assistant", "hi")], id="message with a role"),
        pytest.param(UserMessage("hi"), [said("user", "hi")], id="user message"),
        pytest.param(AssistantMessage("hi"), [said("assistant", "hi")], id="assistant message"),
        pytest.param(text("hi"), [said("user", "hi")], id="content"),
        pytest.param({"a": 1}, [said("user", '{"a":1}')], id="json"),
        pytest.param(
            Image(data=PNG),
            [PromptMessage(role="user", content=ImageContent(data=b64(PNG), mime_type="image/png"))],
            id="image",
        ),
        pytest.param(Message({"a": 1}), [said("user", '{"a":1}')], id="message of json"),
        pytest.param(Message([text("a"), "b"]), [said("user", "a"), said("user", "b")], id="message of blocks"),
        pytest.param({"role": "assistant", "content": "hi"}, [said("assistant", "hi")], id="dictionary"),
        pytest.param(
            {"role": "user", "content": {"type": "text", "text": "hi"}}, [said("user", "hi")], id="dictionaries"
        ),
        pytest.param({"role": "user", "content": text("hi")}, [said("user", "hi")], id="dictionary with a block"),
        pytest.param({"role": "user", "content": {"a": 1}}, [said("user", '{"a":1}')], id="dictionary with json"),
        pytest.param(
            ["a", AssistantMessage("b"), (said("user", "c"),), {"role": "assistant", "content": "d"}],
            [said("user", "a"), said("assistant", "b"), said("user", "c"), said("assistant", "d")],
            id="list",
        ),
        pytest.param([], [], id="empty list"),
    ],
)
def test_the_value_of_a_prompt_becomes_messages(value: Any, messages: list[PromptMessage]) -> None:
    assert to_messages(value) == messages


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        pytest.param(None, "a prompt must return messages, not None", id="nothing"),
        pytest.param({"role": "system", "content": "x"}, "not 'system'", id="role"),
        pytest.param({"role": [], "content": "x"}, r"not \[\]", id="no role"),
        pytest.param({"role": "user", "content": {"type": "video"}}, "not a valid content block: .*video", id="block"),
        pytest.param(Opaque(), "test_results.Opaque has no JSON form", id="object"),
    ],
)
def test_an_invalid_prompt_value_is_a_type_error(value: Any, complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        to_messages(value)


# --- Resources

URI = "city://oslo"


def contents(mime_type: str | None, **members: Any) -> ResourceContents:
    return ResourceContents(uri=URI, mime_type=mime_type, **members)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("hi", [contents("text/plain", text="hi")], id="text"),
        pytest.param(Colour.RED, [contents("text/plain", text="red")], id="text enum"),
        pytest.param(b"\x00", [contents("application/octet-stream", blob="AA==")], id="bytes"),
        pytest.param({"a": 1}, [contents("application/json", text='{"a":1}')], id="dictionary"),
        pytest.param([1, "a"], [contents("application/json", text='[1,"a"]')], id="list"),
        pytest.param(Point(1, 2), [contents("application/json", text=POINT.decode())], id="struct"),
        pytest.param(ModelPoint(x=1, y=2), [contents("application/json", text=POINT.decode())], id="pydantic"),
        pytest.param(3, [contents("application/json", text="3")], id="number"),
        pytest.param(OTHER, [OTHER], id="contents"),
        pytest.param([OTHER, "hi"], [OTHER, contents("text/plain", text="hi")], id="list of contents"),
        pytest.param(
            ResourceContent("<p>", "text/html", {"a": 1}),
            [contents("text/html", text="<p>", meta={"a": 1})],
            id="content with a type",
        ),
        pytest.param(
            [ResourceContent({"a": 1}), ResourceContent(b"\x00")],
            [contents("application/json", text='{"a":1}'), contents("application/octet-stream", blob="AA==")],
            id="list of contents without types",
        ),
        pytest.param(Image(data=PNG), [contents("image/png", blob=b64(PNG))], id="image"),
        pytest.param(File(data=b"a,b", format="csv"), [contents("text/csv", text="a,b")], id="text file"),
    ],
)
def test_the_value_of_a_resource_becomes_contents(value: Any, expected: list[ResourceContents]) -> None:
    assert to_contents(value, URI) == expected


@pytest.mark.parametrize(
    ("value", "mime_type"),
    [
        pytest.param("<p>", "text/x-own", id="text"),
        pytest.param(b"\x00", "text/x-own", id="bytes"),
        pytest.param({"a": 1}, "text/x-own", id="json"),
        pytest.param(ResourceContent("<p>"), "text/x-own", id="content without a type"),
        pytest.param(ResourceContent("a", "text/csv"), "text/csv", id="content with a type"),
    ],
)
def test_the_type_of_the_resource_is_kept_unless_the_content_has_one(value: Any, mime_type: str) -> None:
    assert to_contents(value, URI, "text/x-own")[0].mime_type == mime_type


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        pytest.param(None, "city://oslo must return its contents, not None", id="nothing"),
        pytest.param(Opaque(), "test_results.Opaque has no JSON form", id="object"),
    ],
)
def test_an_invalid_resource_value_is_a_type_error(value: Any, complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        to_contents(value, URI)


# --- JSON


@pytest.mark.parametrize(
    ("value", "json"),
    [
        pytest.param(Aliased(cityName="Oslo"), b'{"cityName":"Oslo"}', id="pydantic alias"),
        pytest.param([ModelPoint(x=1, y=2)], b'[{"x":1,"y":2}]', id="pydantic inside"),
        pytest.param(Path("a/b"), b'"a/b"', id="path"),
        pytest.param(deque([1]), b"[1]", id="deque"),
        pytest.param(range(3), b"[0,1,2]", id="range"),
        pytest.param({"a": 1}.keys(), b'["a"]', id="keys"),
        pytest.param({(1, 2): {3.5: 4}}, b'{"1,2":{"3.5":4}}', id="keys that are not text"),
        pytest.param([Named()], b'["named"]', id="an object with a text of its own"),
        pytest.param(Raw(b'{"a": 1}'), b'{"a": 1}', id="encoded already"),
    ],
)
def test_paths_mappings_and_sequences_are_encoded_as_json(value: Any, json: bytes) -> None:
    assert encode_json(value) == json


def test_pydantic_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pydantic")

    with pytest.raises(TypeError, match="ModelPoint has no JSON form"):
        encode_json(ModelPoint(x=1, y=2))
