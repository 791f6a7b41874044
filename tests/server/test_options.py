"""What a decorator takes, under our names and those of other frameworks."""

from __future__ import annotations

from typing import Any

import pytest

from trunkline import Server
from trunkline.server import CompatibilityWarning
from trunkline.server.options import prompt_options, resource_options, tool_options


@pytest.mark.parametrize(
    ("read", "option", "words"),
    [
        (tool_options, "titel", "unknown option 'titel'; did you mean 'title'"),
        (prompt_options, "qqqq", "a prompt has description, icons, meta"),
        (tool_options, "enabled", "enabled"),
        (tool_options, "auth", "option 'auth': "),
        (prompt_options, "task", "option 'task': only tools run as tasks"),
        (resource_options, "app", "option 'app': only tools have pages"),
    ],
    ids=["misspelt", "unlike any other", "not to be switched off", "not supported", "task", "app"],
)
def test_an_option_that_a_definition_does_not_have_is_rejected(read: Any, option: str, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        read({option: option in ("app", "auth", "task")})


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        pytest.param({"run_in_thread": False}, "thread", False, id="run_in_thread"),
        pytest.param({"inputSchema": {"type": "object"}}, "input_schema", {"type": "object"}, id="inputSchema"),
        pytest.param({"outputSchema": {"type": "object"}}, "output_schema", {"type": "object"}, id="outputSchema"),
        pytest.param({"structured_output": False}, "output_schema", None, id="structured_output"),
        pytest.param({"tags": {"a", "b"}}, "tags", frozenset({"a", "b"}), id="tags-as-a-set"),
        pytest.param({"tags": None}, "tags", frozenset(), id="tags-left-out"),
    ],
)
def test_other_names_of_an_option_are_understood(given: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(tool_options(given), field) == value


def test_the_mime_type_of_a_resource_has_two_spellings() -> None:
    assert resource_options({"mimeType": "text/csv"}) == resource_options({"mime_type": "text/csv"})


@pytest.mark.parametrize("name", ["version", "serializer", "security", "resource_security"])
def test_an_option_without_effect_is_accepted_with_a_warning(name: str) -> None:
    with pytest.warns(CompatibilityWarning, match=f"{name}=True has no effect: "):
        assert tool_options({name: True}) == tool_options({})


@pytest.mark.parametrize(
    "given",
    [
        {"structured_output": True, "enabled": True},
        dict.fromkeys(["version", "serializer", "security", "resource_security", "enabled", "task", "auth", "app"]),
    ],
    ids=["the default", "left empty"],
)
def test_an_option_that_asks_for_nothing_changes_nothing(given: dict[str, Any]) -> None:
    assert tool_options(given) == tool_options({})


def test_options_are_read_by_the_decorator() -> None:
    server = Server("s")
    with pytest.raises(TypeError, match="did you mean 'annotations'"):
        server.tool(annotation={})(lambda: None)  # type: ignore[call-overload]
