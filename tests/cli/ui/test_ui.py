"""The parts that have rules of their own: escapes, JSON, tables, sizes, arguments, fields, the screen."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import trunkline.types as t
from tests.support import run_async
from trunkline.cli.exit_codes import CommandError
from trunkline.cli.options import read_value, typed_arguments
from trunkline.cli.ui.elicitation import display_host, fill_form
from trunkline.cli.ui.output import block_text, clip, one_line, result_text, size_text, table, wire_json, wrap_lines
from trunkline.cli.ui.terminal import EndOfInput, Screen, Terminal
from trunkline.protocol.printable import printable

# --- output ----------------------------------------------------------------------------------------------------------

UNSAFE = [*map(chr, range(9)), *map(chr, range(11, 32)), *map(chr, range(127, 160)), *"\u061c\u200e\u200f\u2028\u2029"]
UNSAFE += [*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A)), "\U000e0041", "\ud800"]


@pytest.mark.parametrize("character", UNSAFE, ids=ascii)
def test_a_character_that_could_control_a_terminal_is_shown_as_an_escape(character: str) -> None:
    assert printable(f"a{character}b") == f"a{ascii(character)[1:-1]}b".replace("\\r", "\\x0d")


def test_lines_and_tabs_stay_as_they_are() -> None:
    assert printable("a\r\nb\n\tc") == "a\nb\n\tc"


def test_one_line_has_one_line() -> None:
    assert one_line("  a\n b\t\rc ") == "a b \\x0dc"


@pytest.mark.parametrize("mark", ["  | ", "[stderr] ", "[note] "])
@given(text=st.text(alphabet="a 界\t", min_size=1).map(str.strip))
def test_a_wrapped_line_keeps_its_mark_and_all_its_letters(mark: str, text: str) -> None:
    pieces = wrap_lines(f"{mark}{text}", 30).split("\n")
    assert all(piece.startswith(mark) and len(piece) + piece.count("界") <= 30 for piece in pieces)
    assert "".join(piece[len(mark) :] for piece in pieces).replace(" ", "") == "".join(text.split())


def test_a_line_without_a_mark_goes_on_indented_and_a_url_stays_whole() -> None:
    url = f"  https://example.com/{'a' * 40}"
    assert wrap_lines(f"one two three\n{url}\nabcdefghijklmno", 14) == f"one two three\n{url}\nabcdefghijklmn\n    o"


@given(st.text())
def test_json_means_the_same_whatever_is_escaped(text: str) -> None:
    assert json.loads(wire_json([text])) == [text]


@pytest.mark.parametrize(
    ("size", "text"), [(999, "999 bytes"), (1500, "1.5 kB"), (2_000_000, "2.0 MB"), (3 * 10**9, "3.0 GB")]
)
def test_a_size_is_told_for_people(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("text", "width", "cut"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abc..."),
        ("\u4e2d\u6587\u5b57\u7b26", 7, "\u4e2d\u6587..."),
        ("abc", 2, ".."),
    ],
    ids=["fits", "cut", "wide", "tiny"],
)
def test_a_line_is_cut_by_columns(text: str, width: int, cut: str) -> None:
    assert clip(text, width) == cut


def test_wide_and_combining_characters_keep_the_columns() -> None:
    rows = table(("A", "B"), [("\u4e2d", "x"), ("e\u0301", "y")]).splitlines()
    assert rows == ["A   B", "\u4e2d  x", "e\u0301   y"]


# --- blocks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        pytest.param(t.AudioContent(data="AAAA", mime_type="audio/wav"), "[audio: audio/wav, 3 bytes]", id="audio"),
        pytest.param(t.EmbeddedResource(resource=t.ResourceContents(uri="a:b", text="in it")), "in it", id="embedded"),
        pytest.param(
            t.EmbeddedResource(resource=t.ResourceContents(uri="a:b", blob="AA==")),
            "[binary: a:b, unknown type, 1 bytes]",
            id="embedded blob",
        ),
        pytest.param(
            t.ToolUseContent(id="1", name="add", input={"a": 1}), '[wants to call add with {"a":1}]', id="use"
        ),
        pytest.param(t.ToolResultContent(tool_use_id="1", content=[t.TextContent(text="3")]), "3", id="result"),
        pytest.param(object(), "[object]", id="unknown"),
    ],
)
def test_a_block_is_shown(block: object, shown: str) -> None:
    assert block_text(block) == shown


def test_a_result_without_content_shows_its_structured_value() -> None:
    assert json.loads(result_text([], {"a": 1})) == {"a": 1}


# --- arguments -------------------------------------------------------------------------------------------------------

SCHEMA: dict[str, Any] = {
    "$defs": {"Size": {"type": "integer"}, "Loop": {"$ref": "#/$defs/Loop"}, "a/b": {"type": "boolean"}},
    "properties": {
        "text": {"type": "string"},
        "number": {"type": "number"},
        "list": {"type": "array"},
        "maybe": {"type": ["string", "null"]},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "whole": {"allOf": [{"type": ["integer", "string"]}, {"type": "integer"}]},
        "size": {"$ref": "#/$defs/Size"},
        "escaped": {"$ref": "#/$defs/a~1b"},
        "lost": {"$ref": "#/nowhere/else"},
        "loop": {"$ref": "#/$defs/Loop"},
        "words": {"enum": ["1", "2"]},
        "levels": {"enum": [1, 2]},
        "fixed": {"const": "1"},
        "free": {},
        "any": True,
    },
}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("text", "1", "1"),
        ("text", '"quoted"', '"quoted"'),
        ("number", "1.5", 1.5),
        ("number", "many", "many"),
        ("list", "[1]", [1]),
        ("maybe", "null", None),
        ("maybe", "1", "1"),
        ("either", "1", 1),
        ("either", "true", "true"),
        ("either", "x", "x"),
        ("whole", "1", 1),
        ("size", "1", 1),
        ("escaped", "true", True),
        ("lost", "1", 1),
        ("loop", "1", 1),
        ("words", "1", "1"),
        ("levels", "1", 1),
        ("fixed", "1", "1"),
        ("free", "1", 1),
        ("free", '{"a": 1}', {"a": 1}),
        ("free", "x", "x"),
        ("any", "false", False),
        ("unknown", "1", 1),
    ],
)
def test_the_schema_decides_how_a_text_is_read(name: str, text: str, value: Any) -> None:
    assert typed_arguments({name: text}, SCHEMA) == {name: value}


def test_a_file_for_base64_is_encoded(tmp_path: Any) -> None:
    (tmp_path / "data").write_bytes(b"\xff\x00")
    schema = {"properties": {"data": {"type": "string", "contentEncoding": "base64"}}}
    assert typed_arguments({"data": f"@{tmp_path / 'data'}"}, schema) == {"data": "/wA="}


def test_a_file_that_is_no_text_is_refused(tmp_path: Any) -> None:
    (tmp_path / "data").write_bytes(b"\xff")
    with pytest.raises(CommandError, match="not UTF-8 text"):
        read_value(f"@{tmp_path / 'data'}")


def test_a_file_that_is_not_there_is_told() -> None:
    with pytest.raises(CommandError, match="/no/such/file cannot be read: No such file"):
        read_value("@/no/such/file")


# --- forms -----------------------------------------------------------------------------------------------------------


class Typist(Terminal):
    """A terminal where everything is typed already."""

    def __init__(self, *lines: str) -> None:
        """Take the lines that will be typed."""
        super().__init__(Screen(verbose=False))
        self._lines = list(lines)
        self.seen = ""

    def show(self, text: str) -> None:
        """Keep what is shown."""
        self.seen += text + "\n"

    async def ask(self, prompt: str) -> str:
        """Give the next line."""
        self.seen += prompt
        if not self._lines:
            raise EndOfInput
        return self._lines.pop(0)


def filled(field: Any, *lines: str, required: bool = True) -> tuple[dict[str, Any], str]:
    """Fill in a form of one field; give the content and what was to be seen."""
    typist = Typist(*lines)
    schema = {"properties": {"it": field}, "required": ["it"] if required else []}
    return run_async(fill_form(typist, schema, {})), typist.seen


TITLED = [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]


@pytest.mark.parametrize(
    ("field", "lines", "value"),
    [
        pytest.param({"type": "string"}, ["5"], "5", id="text"),
        pytest.param({"type": "string"}, ["", '""'], "", id="empty text"),
        pytest.param({"type": "string", "minLength": 2}, ["", '""'], '""', id="quotes where no empty text fits"),
        pytest.param({"type": "string", "minLength": 3}, ["ab", "abc"], "abc", id="text too short"),
        pytest.param({"type": "string", "format": "email"}, ["x", "a@b"], "a@b", id="email"),
        pytest.param({"type": "string", "format": "uri"}, ["x", "a:b"], "a:b", id="uri"),
        pytest.param({"type": "string", "format": "date"}, ["1.1.", "2001-02-03"], "2001-02-03", id="date"),
        pytest.param(
            {"type": "string", "format": "date-time"},
            ["2001-02-03", "noonish, then", "2001-02-03T04:05:06Z"],
            "2001-02-03T04:05:06Z",
            id="time",
        ),
        pytest.param({"type": "integer", "minimum": 1}, ["0", "1.5", "2"], 2, id="integer"),
        pytest.param({"type": "number"}, ["inf", "x", "-2"], -2, id="number"),
        pytest.param({"type": "number"}, ["2.5"], 2.5, id="fraction"),
        pytest.param({"type": "boolean"}, ["x", "no"], False, id="no"),
        pytest.param({"type": "boolean"}, ["TRUE"], True, id="yes"),
        pytest.param({"type": "string", "enum": ["2", "1"]}, ["1"], "1", id="choice before number"),
        pytest.param({"type": "string", "enum": ["a", "b"]}, ["0", "3", "2"], "b", id="number of a choice"),
        pytest.param({"type": "string", "oneOf": TITLED}, ["Green"], "g", id="title"),
        pytest.param({"type": "string", "enum": ["a"], "enumNames": ["Ay"]}, ["Ay"], "a", id="older titles"),
        pytest.param({"type": "array", "items": {"anyOf": TITLED}}, ["Red, 2"], ["r", "g"], id="several"),
        pytest.param(
            {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2}, ["a", "a,b"], ["a", "b"], id="too few"
        ),
        pytest.param({"type": "integer", "default": 5}, [""], 5, id="default"),
        pytest.param({"type": "integer", "default": "five"}, ["", "5"], 5, id="default that does not fit"),
        pytest.param({"type": "string", "pattern": "(?=x)"}, ["y"], "y", id="schema that cannot be used"),
        pytest.param("nonsense", ["x"], "x", id="field that is no schema"),
    ],
)
def test_a_field_is_read_as_its_schema_wants(field: Any, lines: list[str], value: Any) -> None:
    assert filled(field, *lines)[0] == {"it": value}


def test_a_field_that_may_be_left_out_is() -> None:
    assert filled({"type": "string"}, "", required=False) == ({}, "it (optional): ")


def test_a_field_shows_its_title_description_and_format() -> None:
    field = {"type": "string", "title": "The\x1b[1m\nunit", "description": "Of it.", "oneOf": TITLED}
    assert filled(field, "r")[1] == "  | The\\x1b[1m unit\n  | Of it.\n  1. Red (r)\n  2. Green (g)\nit: "


# --- pages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        pytest.param("https://ex\u0430mple.com/", "xn--exmple-4nf.com (its letters may look like", id="letters"),
        pytest.param("https://xn--exmple-4nf.com/", "xn--exmple-4nf.com (its letters may look like", id="punycode"),
        pytest.param("https:///path", "no valid host: do not trust it", id="no host"),
        pytest.param("https://[bad/", "no valid host: do not trust it", id="bad host"),
        pytest.param("https://" + "\u0430" * 70 + ".com/", "'\\u0430", id="no name at all"),
    ],
)
def test_a_host_that_may_mislead_is_told(url: str, shown: str) -> None:
    assert display_host(url).startswith(shown)


# --- the screen ------------------------------------------------------------------------------------------------------


class Tty(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Draw progress at given times, and give what was written."""

    def drawn(*reports: tuple[float, float, float | None]) -> str:
        stream = Tty()
        monkeypatch.setattr("sys.stderr", stream)
        times = [time for time, _, _ in reports for _ in range(2)]
        screen = Screen(verbose=False, clock=lambda: times.pop(0))
        for _, done, total in reports:
            screen.progress(done, total, None)
        return stream.getvalue()

    return drawn


def test_progress_is_not_drawn_more_often_than_is_seen(draw: Callable[..., str]) -> None:
    assert draw((0, 1, None), (0.001, 2, None), (0.002, 3, None)).count("...") == 1


def test_the_last_progress_is_always_drawn(draw: Callable[..., str]) -> None:
    assert draw((0, 1, 2), (0.001, 2, 2)).endswith(f"[{'#' * 24}] 100%")


@pytest.mark.parametrize(
    ("done", "total", "shown"),
    [
        pytest.param(-1, 4, f"[{'-' * 24}]   0%", id="below"),
        pytest.param(9, 4, f"[{'#' * 24}] 100%", id="above"),
        pytest.param(1, 0, "... 1", id="no total"),
    ],
)
def test_odd_progress_is_drawn_within_the_bar(done: float, total: float, shown: str, draw: Callable[..., str]) -> None:
    assert draw((0, done, total)) == shown
