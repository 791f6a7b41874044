"""What a decorator takes, under our names and those of other frameworks."""

from __future__ import annotations

from typing import Any

import pytest

from trunkline import Server
from trunkline.compat import CompatibilityWarning
from trunkline.server.options import prompt_options, resource_options, tool_options


def test_an_unknown_option_is_rejected_with_the_closest() -> None:
    with pytest.raises(TypeError, match="unknown option 'titel'; did you mean 'title'"):
        tool_options({"titel": "x"})


def test_an_unknown_option_without_a_similar_name_is_rejected_with_all_names() -> None:
    with pytest.raises(TypeError, match="a prompt has description, icons, meta"):
        prompt_options({"qqqq": 1})


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


def test_structured_output_true_changes_nothing() -> None:
    assert tool_options({"structured_output": True}) == tool_options({})


def test_the_mime_type_of_a_resource_has_two_spellings() -> None:
    assert resource_options({"mimeType": "text/csv"}) == resource_options({"mime_type": "text/csv"})


@pytest.mark.parametrize("name", ["version", "serializer", "security", "resource_security"])
def test_an_option_without_effect_is_accepted_with_a_warning(name: str) -> None:
    with pytest.warns(CompatibilityWarning, match=f"{name}=True has no effect: "):
        assert tool_options({name: True}) == tool_options({})


@pytest.mark.parametrize("name", ["version", "serializer", "security", "resource_security", "enabled"])
def test_an_option_without_effect_may_be_left_empty(name: str) -> None:
    assert tool_options({name: None}) == tool_options({})


def test_an_option_that_requests_the_default_behaviour_needs_no_warning() -> None:
    assert tool_options({"enabled": True}) == tool_options({})


def test_enabled_false_is_rejected() -> None:
    with pytest.raises(TypeError, match="enabled"):
        tool_options({"enabled": False})


@pytest.mark.parametrize("name", ["auth"])
def test_an_unsupported_option_is_rejected(name: str) -> None:
    with pytest.raises(TypeError, match=f"option '{name}': "):
        tool_options({name: True})


@pytest.mark.parametrize("name", ["task", "auth", "app"])
def test_an_unsupported_option_that_is_switched_off_is_accepted(name: str) -> None:
    assert tool_options({name: None}) == tool_options({})


def test_options_are_read_by_the_decorator() -> None:
    server = Server("s")
    with pytest.raises(TypeError, match="did you mean 'annotations'"):
        server.tool(annotation={})(lambda: None)  # type: ignore[call-overload]
