"""One member of a text is changed, and nothing else of it."""

from __future__ import annotations

import json
from functools import reduce
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.devtools.client_configs.json_edit import put_member, remove_member, span_of, walk
from trunkline.errors import ConfigError
from trunkline.host.config.jsonc import parse_jsonc, to_python

ENTRY = {"command": "x"}
WAY = ("mcpServers",)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=4)
FORMS = st.sampled_from([None, 2, 4, "\t"])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("", '{\n  "mcpServers": {\n    "a": {\n      "command": "x"\n    }\n  }\n}\n', id="nothing"),
        pytest.param("{}", '{\n  "mcpServers": {\n    "a": {\n      "command": "x"\n    }\n  }\n}', id="empty"),
        pytest.param(
            '{"mcpServers": {"b": 1}, "z": 2}', '{"mcpServers": {"b": 1, "a": {"command": "x"}}, "z": 2}', id="one-line"
        ),
        pytest.param(
            '{\n\t"mcpServers": {\n\t\t"b": 1 // why\n\t\t// more\n\t}\n}\n',
            '{\n\t"mcpServers": {\n\t\t"b": 1, // why\n\t\t"a": {\n\t\t\t"command": "x"\n\t\t}\n\t\t// more\n\t}\n}\n',
            id="comments-and-tabs",
        ),
        pytest.param(
            '{\n  "mcpServers": {\n    "b": 1,\n  },\n}',
            '{\n  "mcpServers": {\n    "b": 1,\n    "a": {\n      "command": "x"\n    },\n  },\n}',
            id="comma-at-the-end",
        ),
        pytest.param(
            '{\r\n  "mcpServers": {\r\n    "b": 1\r\n  }\r\n}',
            '{\r\n  "mcpServers": {\r\n    "b": 1,\r\n    "a": {\r\n      "command": "x"\r\n    }\r\n  }\r\n}',
            id="other-line-ends",
        ),
        pytest.param(
            '{\n  "mcpServers": {\n    "a": {"command": "old"}, // mine\n    "b": 1\n  }\n}',
            '{\n  "mcpServers": {\n    "a": {\n      "command": "x"\n    }, // mine\n    "b": 1\n  }\n}',
            id="replaced",
        ),
        pytest.param(
            '{\n  "mcpServers": {\n    // none yet\n  }\n}',
            '{\n  "mcpServers": {\n    // none yet\n    "a": {\n      "command": "x"\n    }\n  }\n}',
            id="only-a-comment",
        ),
        pytest.param(
            '{"mcpServers": {/* } */ "}": "//"}}',
            '{"mcpServers": {/* } */ "}": "//", "a": {"command": "x"}}}',
            id="braces-in-comments-and-texts",
        ),
    ],
)
def test_only_the_entry_is_put_in(before: str, after: str) -> None:
    assert put_member(before, WAY, "a", ENTRY) == after


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="not-json"),
        pytest.param("[]", id="a-list"),
        pytest.param('{"mcpServers": []}', id="no-object"),
        pytest.param('{"mcpServers": null}', id="null"),
        pytest.param('{"mcpServers": {"a": 1, "a": 2}}', id="twice"),
        pytest.param('{"mcpServers": {}, "mcpServers": {}}', id="the-way-twice"),
    ],
)
def test_what_is_not_understood_is_left_alone(text: str) -> None:
    with pytest.raises(ConfigError):
        put_member(text, WAY, "a", ENTRY)


def test_a_long_way_is_made() -> None:
    made = put_member('{"projects": {"/p": {"x": 1}}}', ("projects", "/p", "mcpServers"), "a", ENTRY)
    assert json.loads(made) == {"projects": {"/p": {"x": 1, "mcpServers": {"a": ENTRY}}}}


@given(OBJECTS, OBJECTS, TEXTS, VALUES, FORMS)
def test_any_document_is_changed_in_that_one_place(
    root: dict[str, Any], servers: dict[str, Any], name: str, value: Any, form: Any
) -> None:
    document = {**root, "mcpServers": servers}
    changed = put_member(json.dumps(document, indent=form), WAY, name, value)
    assert to_python(parse_jsonc(changed)) == {**root, "mcpServers": {**servers, name: value}}


def _inside(value: Any, step: str | int) -> Any:
    return value[step]


@given(OBJECTS, FORMS)
def test_every_value_is_found_where_it_stands(root: dict[str, Any], form: Any) -> None:
    text = json.dumps(root, indent=form, ensure_ascii=False)
    found = {key_path: json.loads(text[span.start : span.end]) for key_path, span in walk(span_of(text))}
    assert found == {key_path: reduce(_inside, key_path, cast("Any", root)) for key_path in found}


# --- taking out ------------------------------------------------------------------------------------------------------

SERVERS = """\
{
  // mine
  "mcpServers": {
    "a": {"command": "x"}, // the first
    // about b
    "b": {
      "command": "y"
    },
    /* about c */
    "c": {"command": "z"} // the last
  },
  "other": [1, 2]
}
"""


@pytest.mark.parametrize(
    ("name", "gone", "kept"),
    [
        ("a", ['"a"', "the first"], ["// about b", "/* about c */", "// the last"]),
        ("b", ['"b"', '"y"'], ["// the first", "/* about c */", "// the last"]),
        ("c", ['"c"', "the last"], ["// the first", "// about b", '"b": {\n      "command": "y"\n    }\n']),
    ],
)
def test_a_member_is_taken_out_and_nothing_else(name: str, gone: list[str], kept: list[str]) -> None:
    changed = remove_member(SERVERS, ("mcpServers",), name)
    assert [text for text in gone if text in changed] == []
    assert [text for text in (*kept, "// mine", '"other": [1, 2]') if text not in changed] == []


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{"mcpServers": {"a": 1}}', '{"mcpServers": {}}'),
        ('{"mcpServers": {"a": 1, "b": 2}}', '{"mcpServers": {"b": 2}}'),
        ('{"mcpServers": {"b": 2, "a": 1}}', '{"mcpServers": {"b": 2}}'),
        ('{"mcpServers": {"b": 2, "a": 1,}}', '{"mcpServers": {"b": 2,}}'),
        ('{\n "mcpServers": {\n  "a": 1\n }\n}\n', '{\n "mcpServers": {\n }\n}\n'),
        ('{\n "mcpServers": {\n  "b": 2,\n  "a": 1,\n }\n}\n', '{\n "mcpServers": {\n  "b": 2,\n }\n}\n'),
        ('{\n "mcpServers": {\n  "b": 2,\n  "a": 1\n }\n}\n', '{\n "mcpServers": {\n  "b": 2\n }\n}\n'),
        ('{"mcpServers": {"b": 2}}', '{"mcpServers": {"b": 2}}'),
        ("{}", "{}"),
    ],
)
def test_what_is_left_has_its_form(text: str, left: str, newline: str) -> None:
    given = text.replace("\n", newline)
    assert remove_member(given, ("mcpServers",), "a") == left.replace("\n", newline)


@given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=4), st.data(), st.sampled_from([None, 1, "\t"]))
def test_a_document_without_a_member_is_what_was_meant(document: dict[str, Any], data: Any, indent: Any) -> None:
    name = data.draw(st.sampled_from(sorted(document)))
    text = json.dumps({"mcpServers": document}, indent=indent)
    left = {key: value for key, value in document.items() if key != name}
    assert json.loads(remove_member(text, ("mcpServers",), name)) == {"mcpServers": left}


def test_a_member_that_is_written_twice_is_not_taken_out() -> None:
    with pytest.raises(ConfigError):
        remove_member('{"mcpServers": {"a": 1, "a": 2}}', ("mcpServers",), "a")
