"""The reader of frontmatter's YAML: what it reads, what it refuses, and that it agrees with a full YAML reader."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.extensions.skills.yaml_reader import YamlError, read_yaml

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
    "a complex key": ("? a\n: b\n", "complex keys"),
    "a complex key in flow": ("a: {[x]: 1}\n", "complex keys"),
    "a tab": ("a:\n\tb: 1\n", "line 2: a tab cannot indent"),
    "a tab after a dash": ("a:\n  -\tb\n", "a tab cannot indent"),
    "a colon in text": ("a: b: c\n", "must be in quotes"),
    "a colon in a continued text": ("a: b\n  c: d\n", 'line 2: a value that contains ": " must be in quotes'),
    "a list on the line of its key": ("a: - b\n", "a list begins on its own line"),
    "a deeper line": ("a: 'x'\n  b: 1\n", "indented more"),
    "a deeper item": ("a:\n  - 'x'\n    - y\n", "indented more"),
    "a line between": ("a:\n    b: 1\n  c: 2\n", "line 3"),
    "a list beside keys": ("a: 1\n- b\n", 'expected "key: value"'),
    "text beside keys": ("a: 1\nb\n", 'expected "key: value"'),
    "an anchor beside keys": ("a: 1\n&b c: 1\n", "anchors"),
    "an empty key": (": a\n", "the key before the colon is missing"),
    "a key that is too long": (f"{'k' * 1025}: 1\n", "1024 characters"),
    "a reserved character": ("a: @b\n", "cannot begin with '@'"),
    "a percent sign": ("a: %b\n", "cannot begin with '%'"),
    "an open quote": ("a: 'b\n", "line 1: the closing quote is missing"),
    "an open quote in a list": ('a:\n  - "b\n', "line 2: the closing quote is missing"),
    "text after a quote": ("a: 'b' c\n", "unexpected 'c'"),
    "a quote that is not indented": ("a: 'b\nc'\n", "must be indented more"),
    "an open bracket": ("a: [b,\n  c\n", "a closing bracket is missing"),
    "a bracket that is not indented": ("a: [b,\nc]\n", "closing bracket missing?"),
    "flow text that is not indented": ("a: [b\nc]\n", "closing bracket missing?"),
    "no value in a list": ("a: [b,,c]\n", "expected a value before ','"),
    "the wrong bracket": ("a: [b}\n", "expected a comma or ]"),
    "no comma": ("a: ['b' 'c']\n", "expected a comma or ]"),
    "a pair in a list": ("a: [b: c]\n", "needs braces"),
    "a dash in flow": ("a: [-]\n", "cannot begin with '-'"),
    "an unknown escape": ('a: "\\q"\n', "is not an escape sequence"),
    "a short escape": ('a: "\\u12"\n', "is not an escape sequence"),
    "half of a pair": ('a: "\\ud83d"\n', "is not a character"),
    "a bad block header": ("a: |x\n", "does not begin a text block"),
    "blank lines that are too long": ("a: |\n    \n  x\n", "more spaces than its text"),
    "infinity": ("a: .inf\n", "line 1: .inf cannot be written in JSON"),
    "not a number": ("b: 1\na: .NaN\nc: 1\n", "line 2: .NaN cannot be written in JSON"),
    "a number that is too large": ("a: 9223372036854775808\n", "is too large"),
    "digits without end": (f"a: {'9' * 5000}\n", "is too large"),
    "hexadecimal digits without end": (f"a: 0x{'f' * 5000}\n", "is too large"),
    "octal digits without end": (f"a: 0o{'7' * 5000}\n", "is too large"),
    "a float that is too large": ("a: 1e999\n", "is too large"),
    "a control character": ("a: 1\nb: \x07\n", "line 2: the character U+0007"),
    "a line separator": ("a: x\u2028y\n", "U+2028"),
    "too much text": ("a: " + "b" * 70_000, "characters"),
    "too deep blocks": ("".join(f"{' ' * depth}a:\n" for depth in range(40)), "levels deep"),
    "too deep brackets": ("a: " + "[" * 40, "levels deep"),
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
    yaml = pytest.importorskip("yaml")
    text = yaml.dump(value, allow_unicode=True, sort_keys=False, width=60)
    # That writer is of YAML 1.1: it leaves out the dot of "1e+16", and writes keys and long texts in forms of its own.
    again = yaml.load(text, Loader=core_loader(yaml))
    try:
        ours = read_yaml(text)
    except YamlError as error:
        assert "complex keys" in str(error)  # noqa: PT017 - it writes long keys so
    else:
        assert ours == again


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
def test_a_text_that_both_readers_accept_means_the_same_to_both(text: str) -> None:
    yaml = pytest.importorskip("yaml")
    text = f"k: {text}\n"
    try:
        ours = read_yaml(text)
        theirs = yaml.load(text, Loader=core_loader(yaml))
    except (YamlError, yaml.YAMLError):
        return
    assert ours == keys_as_text(theirs)


def core_loader(yaml: Any) -> Any:
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


LONG: dict[str, str] = {
    "a list in one line": "a: [" + "b," * 30_000 + "]",
    "pairs in one line": "a: {" + ",".join(f"k{n}: v" for n in range(6_000)) + "}",
    "text blocks": "- |\n" * 16_000,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_no_text_takes_more_than_linear_time(text: str) -> None:
    began = time.process_time()
    read_yaml(text)
    # In quadratic time the first takes a minute.
    assert time.process_time() - began < 5
