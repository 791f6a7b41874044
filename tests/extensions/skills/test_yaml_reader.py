"""The YAML of frontmatter: what is read, what is refused with its line, and that hostile text takes no time."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import ConfigError
from trunkline.extensions.skills import yaml_reader
from trunkline.extensions.skills.yaml_reader import YamlError, read_yaml


def nested(depth: int) -> list[Any]:
    """Empty lists in each other."""
    return [nested(depth - 1)] if depth > 1 else []


READ: dict[str, tuple[str, Any]] = {
    "nothing": ("\n# a comment\n", None),
    "a mapping": ("a: 1\nb: two words\n", {"a": 1, "b": "two words"}),
    "nested mappings": ("a:\n  b:\n    c: d\n  e: f\n", {"a": {"b": {"c": "d"}, "e": "f"}}),
    "a list below its key": ("a:\n- 1\n- 2\nb: 3\n", {"a": [1, 2], "b": 3}),
    "a list of mappings": ("a:\n  - x: 1\n    y: 2\n  - z: 3\n", {"a": [{"x": 1, "y": 2}, {"z": 3}]}),
    "a list in a list": ("a:\n  - - 1\n    - 2\n  -\n    - 3\n", {"a": [[1, 2], [3]]}),
    "empty values": ("a:\nb: ~\nc:\n  - \n  - null\n", {"a": None, "b": None, "c": [None, None]}),
    "flow collections": (
        "a: [1, two, 'x, y', {k: v, 'j':2}]\nb: {}\nc: []\n",
        {"a": [1, "two", "x, y", {"k": "v", "j": 2}], "b": {}, "c": []},
    ),
    "flow over several lines": (
        "a: [x, # c\n  y z\n  w,\n\n  ]\nb: {\n  k: v,\n}\n",
        {"a": ["x", "y z w"], "b": {"k": "v"}},
    ),
    "a flow key without a value": ("a: {b, c: , d: 1}\n", {"a": {"b": None, "c": None, "d": 1}}),
    "a blank line in flow text": ("a: [x\n\n  y]\n", {"a": ["x\ny"]}),
    "plain text over lines": ("a: one\n  two\n\n  three\nb: 1\n", {"a": "one two\nthree", "b": 1}),
    "plain text below its key": ("a:\n  one\n  two\n", {"a": "one two"}),
    "colons and hashes in text": ("a: http://x.y/z#w\nb: c#d:e\n", {"a": "http://x.y/z#w", "b": "c#d:e"}),
    "comments": ("# first\na: 1 # last\n  # between\nb: x#y # z\n", {"a": 1, "b": "x#y"}),
    "double quotes": ('a: "x\\ty\\n\\u00e9\\x41\\U0001F600 \\"q\\""\n', {"a": 'x\ty\né\x41😀 "q"'}),
    "double quotes over lines": (
        'a: "one  \n  two\n\n  three\\\n  four\\n\n  five"\n',
        {"a": "one two\nthreefour\n five"},
    ),
    "single quotes": ("a: 'it''s \\n'\nb: 'one\n  two'\n", {"a": "it's \\n", "b": "one two"}),
    "quoted keys": ("'a b': 1\n\"c\": 2\n", {"a b": 1, "c": 2}),
    "a space before the colon": ("a : 1\n", {"a": 1}),
    "keys stay text": ("1: a\ntrue: b\n", {"1": "a", "true": "b"}),
    "literal text": ("a: |\n  x\n   y\n\n  z\nb: 1\n", {"a": "x\n y\n\nz\n", "b": 1}),
    "literal text without its end": ("a: |-\n  x\n\n\nb: 1\n", {"a": "x", "b": 1}),
    "literal text with all of its end": ("a: |+\n  x\n\n\nb: 1\n", {"a": "x\n\n\n", "b": 1}),
    "literal text with an indentation": ("a: |2\n   x\n  y\n", {"a": " x\ny\n"}),
    "literal text with both": ("a: |1-\n  x\nb: >+1\n y\n", {"a": " x", "b": "y\n"}),
    "literal text that is empty": ("a: |\nb: |+\n\nc: >-\n", {"a": "", "b": "\n", "c": ""}),
    "literal text at the end": ("a: |\n  x", {"a": "x"}),
    "literal text in a list": ("a:\n  - |\n    x\n  - y\n", {"a": ["x\n", "y"]}),
    "folded text": ("a: >\n  x\n  y\n\n  z\n    more\n  w\n", {"a": "x y\nz\n  more\nw\n"}),
    "folded text after blank lines": ("a: >-\n\n  x\n", {"a": "\nx"}),
    "numbers": (
        "a: -1\nb: 0o17\nc: 0x1F\nd: 1.5e3\ne: .5\nf: 012\ng: +7\n",
        {"a": -1, "b": 15, "c": 31, "d": 1500.0, "e": 0.5, "f": 12, "g": 7},
    ),
    "booleans of YAML 1.2 alone": (
        "a: true\nb: FALSE\nc: yes\nd: on\n",
        {"a": True, "b": False, "c": "yes", "d": "on"},
    ),
    "a date is text": ("a: 1999-12-31\n", {"a": "1999-12-31"}),
    "other line ends": ("a: 1\r\nb: |\r\n  x\r\n", {"a": 1, "b": "x\n"}),
    "a bare scalar": ("hello\n", "hello"),
    "a pair in a list": ("a: [b: c]\n", {"a": [{"b": "c"}]}),
    "a key after a question mark": ("? a\n: b\n", {"a": "b"}),
    "quotes and brackets that are not indented": ("a: 'b\nc'\nd: [e,\nf]\n", {"a": "b c", "d": ["e", "f"]}),
    "tabs between": ("a:\tb\t# c\nd: [e,\tf]\t\n", {"a": "b", "d": ["e", "f"]}),
    "a quoted key that would merge": ("'<<': 1\n", {"<<": 1}),
    "other words of YAML 1.1": (
        "a: 12:30:45\nb: 1_000\nc: 0b1\nd: n\ne: 2001-12-14t21:59:43.10-05:00\n",
        {"a": "12:30:45", "b": "1_000", "c": "0b1", "d": "n", "e": "2001-12-14t21:59:43.10-05:00"},
    ),
    "as deep as permitted": ("a: " + "[" * 31 + "]" * 31, {"a": nested(31)}),
    "as many values as permitted": ("[" + "1," * 4095 + "]", [1] * 4095),
}

REFUSED: dict[str, tuple[str, str]] = {
    "an anchor": ("a: &x 1\n", "line 1: anchors are not supported"),
    "an alias": ("b: 1\na: *x\n", "line 2: aliases are not supported"),
    "a tag": ("a: !!python/object:x {}\n", "tags are not supported"),
    "a tag in flow": ("a: [!x 1]\n", "tags are not supported"),
    "an alias as key": ("*x : 1\n", "aliases are not supported"),
    "a merge key": ("a:\n  <<: {}\n", "line 2: merge keys"),
    "a merge key in flow": ("a: {<<: {}}\n", "merge keys"),
    "a second document": ("a: 1\n---\nb: 2\n", "line 2: only one document"),
    "an end of a document": ("a: 1\n...\n", "only one document"),
    "a marker inside quotes": ("a: 'x\n---\n  y'\n", "only one document"),
    "a directive": ("%YAML 1.2\n", "directives"),
    "a duplicate key": ("a: 1\nb: 2\na: 3\n", "line 3: the key 'a' occurs twice"),
    "a duplicate key in flow": ("a: {b: 1, b: 2}\n", "twice"),
    "a complex key": ("? [a]\n: b\n", "complex keys"),
    "a complex key in flow": ("a: {[x]: 1}\n", "complex keys"),
    "a tab": ("a:\n\tb: 1\n", "line 2: a tab cannot indent"),
    "a tab after a dash": ("a:\n  -\tb: 1\n    c: 2\n", "line 2: "),
    "a colon in text": ("a: b: c\n", "must be in quotes"),
    "a colon in a continued text": ("a: b\n  c: d\n", 'line 2: a value that contains ": " must be in quotes'),
    "a list on the line of its key": ("a: - b\n", "a list begins on its own line"),
    "a deeper line": ("a: 'x'\n  b: 1\n", "line 2: "),
    "a deeper item": ("a:\n  - 'x'\n    - y\n", "line 3: expected another item of the list; check the indentation"),
    "a line between": ("a:\n    b: 1\n  c: 2\n", "line 3"),
    "a list beside keys": ("a: 1\n- b\n", 'expected "key: value"'),
    "text beside keys": ("a: 1\nb\n", 'expected "key: value"'),
    "an anchor beside keys": ("a: 1\n&b c: 1\n", "anchors"),
    "an empty key": (": a\n", 'expected "key: value"'),
    "no key after a question mark": ("?\n: b\n", "the key before the colon is missing"),
    "a key that is too long": (f"? {'k' * 1025}\n: 1\n", "1024 characters"),
    "a key that is too long for its line": (f"{'k' * 1025}: 1\n", "line 1: "),
    "a reserved character": ("a: @b\n", "cannot begin with '@'"),
    "a percent sign": ("a: %b\n", "cannot begin with '%'"),
    "an open quote": ("a: 'b\n", "line 1: the closing quote is missing"),
    "an open quote in a list": ('a:\n  - "b\n', "line 2: the closing quote is missing"),
    "text after a quote": ("a: 'b' c\n", 'line 1: expected "key: value"'),
    "an open bracket": ("a: [b,\n  c\n", "a closing bracket is missing"),
    "an open brace": ("a: {b: c\n", "line 1: a closing bracket is missing"),
    "an open brace after a comma": ("a: {b: c,\n", "a closing bracket is missing"),
    "no value in a list": ("a: [b,,c]\n", "expected a value"),
    "the wrong bracket": ("a: [b}\n", "expected a comma or ]"),
    "no comma": ("a: ['b' 'c']\n", "expected a comma or ]"),
    "an unknown escape": ('a: "\\q"\n', "is not an escape sequence"),
    "a short escape": ('a: "\\u12"\n', "is not an escape sequence"),
    "half of a pair": ('a: "\\ud83d"\n', "is not a character"),
    "a bad block header": ("a: |x\n", "line 1: "),
    "blank lines that are too long": ("a: |\n    \n  x\n", "line 3: "),
    "infinity": ("a: .inf\n", "line 1: .inf cannot be written in JSON"),
    "not a number": ("b: 1\na: .NaN\nc: 1\n", "line 2: .NaN cannot be written in JSON"),
    "a number that is too large": ("a: 9223372036854775808\n", "is too large"),
    "digits without end": (f"a: {'9' * 5000}\n", "is too large"),
    "hexadecimal digits without end": (f"a: 0x{'f' * 5000}\n", "is too large"),
    "octal digits without end": (f"a: 0o{'7' * 5000}\n", "is too large"),
    "a float that is too large": ("a: 1e999\n", "is too large"),
    "a control character": ("a: 1\nb: \x07\n", "line 2: the character U+0007"),
    "a NUL": ("a: b\0c\n", "U+0000"),
    "half of a pair as it is": ("a: \ud800\n", "U+D800"),
    "a byte order mark": ("a: b\ufeff\n", "U+FEFF"),
    "both halves of a pair": ('a: "\\ud83d\\ude00"\n', "is not a character"),
    "a line separator": ("a: x\u2028y\n", "U+2028"),
    "too much text": ("a: " + "b" * 70_000, "characters"),
    "too deep blocks": ("".join(f"{' ' * depth}a:\n" for depth in range(40)), "levels deep"),
    "too deep brackets": ("a: " + "[" * 40, "levels deep"),
    "a level too many": ("a: " + "[" * 32 + "]" * 32, "levels deep"),
    "a value too many": ("[" + "1," * 4096 + "]", "more than 4096 keys and values"),
    "a key twice, in quotes and without": ("1: a\n'1': b\n", "line 2: the key '1' occurs twice"),
    "an anchor on a list": ("a: &x [1]\n", "anchors are not supported"),
    "a tag alone": ("a: !\n", "tags are not supported"),
    "a tag that names no type": ("a: !!str 1\n", "tags are not supported"),
    "a tag on a key": ("!!str a: 1\n", "tags are not supported"),
    "laughs": ("a: &a [b, b]\nc: &c [*a, *a]\nd: [*c, *c]\n", "line 1: anchors are not supported"),
    "a directive of tags": ("%TAG ! tag:x,2000:\n---\na: 1\n", "directives"),
}


@pytest.mark.parametrize(("text", "value"), READ.values(), ids=READ)
def test_what_frontmatter_uses_is_read(text: str, value: object) -> None:
    assert read_yaml(text) == value


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_dangerous_or_broken_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(YamlError, match=re.escape(message)):
        read_yaml(text)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\u2028\u2029\ufeff\ufffe\uffff")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc'\" :#-é", max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text("abc d", min_size=1, max_size=5), VALUES, max_size=4))
def test_json_is_read_as_it_is(value: dict[str, object]) -> None:
    assert read_yaml(json.dumps(value, ensure_ascii=False)) == value


@given(st.dictionaries(st.text("abc", min_size=1, max_size=5), VALUES, max_size=4))
def test_what_another_writer_writes_is_read(value: dict[str, object]) -> None:
    text = yaml.dump(value, allow_unicode=True, sort_keys=False, width=60)
    # That writer is of YAML 1.1: it leaves out the dot of "1e+16", and writes keys and long texts in forms of its own.
    assert read_yaml(text) == yaml.load(text, Loader=core_loader())


TOKENS = [
    "a",
    "b: ",
    "c:",
    "- ",
    "\n",
    "\n ",
    "\n  ",
    "[",
    "]",
    "{",
    "}",
    ",",
    '"',
    "'",
    "#",
    " # c",
    "|",
    ">",
    "|-\n",
    ">+\n",
    "x y",
    " ",
    "\\n",
    ":",
    "1",
    "1.5",
    "true",
    "~",
    "-",
    "?",
    "k: v",
    "''",
    "|2\n",
]


@given(st.lists(st.sampled_from(TOKENS), max_size=14).map("".join))
def test_a_text_means_the_same_to_the_parser_in_python(text: str) -> None:
    text = f"k: {text}\n"
    try:
        ours = read_yaml(text)
        theirs = yaml.load(text, Loader=core_loader())
    except (YamlError, yaml.YAMLError):
        return
    assert ours == keys_as_text(theirs)


def core_loader() -> Any:
    """The full reader with the scalars of YAML 1.2 instead of 1.1, and keys as text."""

    class Core(yaml.SafeLoader):  # type: ignore[misc]
        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - the library's own form

    Core.add_implicit_resolver("core", re.compile(r".*", re.DOTALL), None)
    Core.add_constructor("core", lambda loader, node: read_yaml(node.value) if is_scalar(node.value) else node.value)
    return Core


SCALAR = re.compile(
    r"(?:~|null|Null|NULL||true|True|TRUE|false|False|FALSE|0o[0-7]+|0x[0-9a-fA-F]+"
    r"|[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)\Z"
)


def is_scalar(text: str) -> bool:
    return SCALAR.match(text) is not None


def keys_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key_text(key): keys_as_text(each) for key, each in value.items()}
    return [keys_as_text(each) for each in value] if isinstance(value, list) else value


def key_text(key: object) -> str:
    return {None: "~", True: "true"}[key] if key is None or key is True else str(key)


# --- hostile text -----------------------------------------------------------------------------------------------------

SIZE = 64 * 1024


def fill(unit: str, before: str = "", after: str = "") -> str:
    """A text of the permitted size that repeats a unit."""
    return before + unit * ((SIZE - len(before) - len(after)) // len(unit)) + after


def numbered(pattern: str, before: str = "", after: str = "") -> str:
    """The same with a number in each unit."""
    return (before + "".join(pattern % n for n in range(SIZE // len(pattern))))[: SIZE - len(after)] + after


HOSTILE: dict[str, str] = {
    "one word": fill("b", "a: "),
    "words": fill("b ", "a: "),
    "lines of text": fill("b\n ", "a: "),
    "blank lines in text": fill("\n", "a: b", "\n c"),
    "double quotes": fill("b", 'a: "', '"'),
    "escapes": fill("\\x41", 'a: "', '"'),
    "lines in quotes": fill("b\n ", 'a: "', '"'),
    "an open quote": fill("b", 'a: "'),
    "open quotes": fill('"a\n'),
    "single quotes": fill("''", "a: '", "'"),
    "literal lines": fill(" b\n", "a: |\n"),
    "folded lines": fill("  b\n c\n", "a: >\n b\n"),
    "spaces in a literal": fill(" ", "a: |\n"),
    "text blocks": fill("- |\n"),
    "comments": fill("#\n", "a: 1\n"),
    "a comment": fill("#", "a: 1 "),
    "spaces": fill(" ", "a:", "b"),
    "line ends": fill("\r\n", "", "a: 1"),
    "a list in one line": fill("b,", "a: [", "]"),
    "numbers in one line": fill("1,", "a: [", "]"),
    "pairs in one line": numbered("k%d: v,", "a: {", "}"),
    "pairs in a list": fill("b: c,", "a: [", "]"),
    "empty lists": fill("[],", "a: [", "]"),
    "open brackets": fill("["),
    "open brackets on lines": fill("[\n"),
    "open braces": fill("{a: "),
    "open keys": fill("[? "),
    "a wide and deep list": fill("b,", "a: " + "[" * 30, "]" * 30),
    "deep lists": fill("[" * 28 + "]" * 28 + ",", "a: [", "]"),
    "keys": numbered("k%d:\n"),
    "long keys": numbered("k%01000d: v\n"),
    "a key": fill("k", "", ": 1"),
    "a key in quotes": fill("k", '"', '": 1'),
    "the same key": fill("a: 1\n"),
    "keys of keys": fill("? "),
    "lists as keys": fill("[a]: b\n"),
    "dashes": fill("- "),
    "lists in lists": fill("- - - - b\n"),
    "deeper and deeper": "".join(f"{' ' * depth}a:\n" for depth in range(350)),
    "colons": fill(":", "a: b"),
    "an integer": fill("9", "a: "),
    "a hexadecimal integer": fill("f", "a: 0x"),
    "a float": fill("9", "a: 1.", "e1"),
    "almost a float": fill("9", "a: 1.", "x"),
    "parts of sixty": fill(":59", "a: 1"),
    "anchors": numbered("a%d: &x 1\n"),
    "an anchor": fill("x", "a: &", " 1"),
    "an alias": fill("x", "a: *"),
    "a tag": fill("%41", "a: !<", "> 1"),
    "directives": numbered("%%TAG !a%d! tag:x\n"),
    "documents": fill("---\n"),
    "ends of documents": fill("...\n"),
    "merge keys": numbered("k%d: {<<: {}}\n"),
    "NUL at the end": fill("b", "a: ", "\0"),
    "tabs": fill("\t", "a: "),
    "lines of tabs": fill("\t\n", "a: 1\n"),
    "other line breaks": fill("b", "a: ", "\u2028"),
    "wide characters": fill("😀", "a: "),
    "combined characters": fill("e\u0301", "a: "),
    "characters from right to left": fill("\u202e", "a: "),
    "escaped halves": fill("\\ud83d\\ude00", 'a: "', '"'),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_text_of_the_permitted_size_is_read_or_refused_after_few_events(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parser_class, events = yaml_reader.import_parser(), 0

    class CountingParser(parser_class):  # type: ignore[misc, valid-type]
        def get_event(self) -> Any:
            nonlocal events
            events += 1
            return super().get_event()

    monkeypatch.setattr(yaml_reader, "import_parser", lambda: CountingParser)
    assert len(text) <= SIZE
    try:
        value = read_yaml(text)
    except YamlError as error:
        assert len(str(error)) < 250  # noqa: PT017 - most are refused, and none is quoted at length
    else:
        assert count_values(value) <= 4096
    # A start and an end for each value: libyaml takes quadratic time only for what follows.
    assert events <= 2 * 4096 + 8


def count_values(value: Any) -> int:
    inner: Iterable[Any] = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(count_values(each) for each in inner)


@given(st.text(st.sampled_from("ab1 :-?#|>&*!%@`'\"\\[]{},.~<=\t\n\r\0\x85\u2028\ufeff\ud800é😀"), max_size=60))
def test_any_text_is_read_or_refused_with_its_line(text: str) -> None:
    try:
        json.dumps(read_yaml(text), allow_nan=False)
    except YamlError as error:
        assert re.match(r"line [0-9]+: .", str(error))  # noqa: PT017 - most are refused


# --- what it needs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "command"),
    [("yaml", "pip install 'trunkline[skills]'"), ("yaml._yaml", "pip install --force-reinstall --only-binary")],
    ids=["PyYAML", "libyaml"],
)
def test_what_is_not_installed_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch, missing: str, command: str
) -> None:
    monkeypatch.delitem(sys.modules, "yaml.cyaml")
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ConfigError, match=re.escape(command)):
        read_yaml("a: 1\n")
