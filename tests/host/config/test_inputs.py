"""Values that a person is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.host.config.support import given, write
from trunkline.host.config.loading import load_configuration
from trunkline.host.config.model import InputVariable

_KEY = {"type": "promptString", "id": "api-key", "description": "The key", "password": True}


def _document(*inputs: object, **servers: dict[str, Any]) -> dict[str, Any]:
    return {"inputs": list(inputs), "servers": servers}


def _uses(id: str = "api-key", **more: Any) -> dict[str, Any]:
    return {"command": "x", "env": {"NAME": f"${{input:{id}}}"}, **more}


class _Person:
    """Answers, and remembers what was asked."""

    def __init__(self, answer: str | None) -> None:
        self.asked: list[InputVariable] = []
        self._answer = answer

    def __call__(self, declared: InputVariable) -> str | None:
        self.asked.append(declared)
        return self._answer


def test_an_input_is_asked_for_once_however_many_entries_use_it(tmp_path: Path) -> None:
    person = _Person("answered")
    entries = given(tmp_path, _document(_KEY, a=_uses(), b=_uses()), inputs=person).entries
    assert [dict(each.env) for each in entries.values()] == [{"NAME": "answered"}] * 2
    assert person.asked == [
        InputVariable(id="api-key", description="The key", password=True, file=str(tmp_path / "mcp.json"))
    ]
    assert entries["a"].secrets == {"answered"}


def test_an_answer_in_the_environment_spares_the_question(tmp_path: Path) -> None:
    person = _Person("answered")
    configuration = given(tmp_path, _document(_KEY, a=_uses()), {"TRUNKLINE_INPUT_API_KEY": "there"}, inputs=person)
    assert (dict(configuration.entries["a"].env), person.asked) == ({"NAME": "there"}, [])


@pytest.mark.parametrize("person", [pytest.param(None, id="nobody"), pytest.param(_Person(None), id="no answer")])
def test_without_an_answer_only_the_entries_that_need_it_have_a_problem(tmp_path: Path, person: Any) -> None:
    entries = given(tmp_path, _document(_KEY, a=_uses(), b={"command": "x"}), inputs=person).entries
    assert "the input 'api-key' has no answer; run in a terminal, or set TRUNKLINE_INPUT_API_KEY" in str(
        entries["a"].problem
    )
    assert entries["b"].problem is None


def test_without_a_person_the_default_of_an_input_holds(tmp_path: Path) -> None:
    declared = {"id": "region", "type": "promptString", "default": "north"}
    found = given(tmp_path, _document(declared, a=_uses("region"))).entries["a"]
    assert (dict(found.env), found.secrets) == ({"NAME": "north"}, frozenset())


def test_a_choice_has_its_options(tmp_path: Path) -> None:
    person = _Person("b")
    declared = {"id": "c", "type": "pickString", "options": ["a", {"label": "B", "value": "b"}]}
    assert dict(given(tmp_path, _document(declared, a=_uses("c")), inputs=person).entries["a"].env) == {"NAME": "b"}
    assert person.asked[0].options == ("a", "b")


def test_an_answer_that_is_no_option_is_a_problem(tmp_path: Path) -> None:
    declared = {"id": "c", "type": "pickString", "options": ["a"]}
    found = given(tmp_path, _document(declared, a=_uses("c")), {"TRUNKLINE_INPUT_C": "z"}).entries["a"]
    assert "none of its options" in str(found.problem)


def test_a_disabled_entry_prompts_for_no_input(tmp_path: Path) -> None:
    person = _Person("answered")
    given(tmp_path, _document(_KEY, a=_uses(disabled=True), b=_uses(enabled=False)), inputs=person)
    assert person.asked == []


def test_a_hidden_entry_prompts_for_no_input(tmp_path: Path) -> None:
    person = _Person("answered")
    user = write(tmp_path / "user.json", _document(_KEY, a=_uses()))
    project = write(tmp_path / "mcp.json", {"mcpServers": {"a": {"command": "x"}}})
    assert load_configuration(project=project, user=user, environ={}, inputs=person).entries["a"].problem is None
    assert person.asked == []


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        pytest.param(7, 'expected an object with an "id"', id="no object"),
        pytest.param({"type": "promptString"}, 'expected an object with an "id"', id="no id"),
        pytest.param({"id": "api-key", "type": "pickString", "options": 5}, 'a list of "options"', id="no options"),
        pytest.param({"id": "api-key", "type": "command"}, "inputs of type 'command' are not supported", id="command"),
    ],
)
def test_an_input_that_cannot_be_asked_is_told(tmp_path: Path, declared: object, said: str) -> None:
    configuration = given(tmp_path, _document(declared, a=_uses()), inputs=_Person("answered"))
    assert [said in str(each) for each in configuration.problems] == [True]
    assert "no input 'api-key' is declared" in str(configuration.entries["a"].problem)


def test_of_two_inputs_with_one_id_the_first_holds(tmp_path: Path) -> None:
    person = _Person("answered")
    configuration = given(tmp_path, _document(_KEY, {"id": "api-key"}, a=_uses()), inputs=person)
    assert ["declared twice" in str(each) for each in configuration.problems] == [True]
    assert person.asked[0].password is True


def test_inputs_that_are_no_list_are_told(tmp_path: Path) -> None:
    configuration = given(tmp_path, {"inputs": {}, "servers": {}})
    assert [
        str(each).endswith("inputs: expected a list, found an object; nothing is asked")
        for each in configuration.problems
    ] == [True]
