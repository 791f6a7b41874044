"""A model that says what a script says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host.models.providers import cut_short
from tests.support import run_async
from trunkline.errors import ConfigError
from trunkline.host.models.interface import (
    Finished,
    ModelError,
    ModelMessage,
    ModelRequest,
    TextBlock,
    TextDelta,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
)
from trunkline.host.models.scripted import ScriptedCall, ScriptedModel, ScriptedTurn, read_script


def _said(*texts: str) -> ModelRequest:
    return ModelRequest(messages=tuple(ModelMessage("user", (TextBlock(text),)) for text in texts))


def _turns(model: ScriptedModel, *requests: ModelRequest) -> list[Finished]:
    async def main() -> list[Finished]:
        found: list[Finished] = []
        for request in requests:
            found += [event async for event in model.stream(request) if isinstance(event, Finished)]
        return found

    return run_async(main())


def _texts(model: ScriptedModel, *said: str) -> list[str]:
    return [finished.message.text for finished in _turns(model, *map(_said, said))]


def test_turns_are_made_in_order() -> None:
    assert _texts(ScriptedModel(["One.", {"says": "Two."}, ScriptedTurn(says="Three.")]), "a", "b", "c") == [
        *("One.", "Two.", "Three.")
    ]


async def test_text_comes_in_pieces() -> None:
    events = [event async for event in ScriptedModel(["One two."], piece=3).stream(_said("a"))]
    assert events[:-1] == [TextDelta("One"), TextDelta(" tw"), TextDelta("o.")]


def test_a_turn_that_waits_for_something_is_made_when_it_is_said() -> None:
    script = [
        ScriptedTurn(when="weather", says="Rain."),
        ScriptedTurn(says="Hello."),
        ScriptedTurn(when="bye", says="Bye.", again=True),
    ]
    assert _texts(ScriptedModel(script), "hi", "the weather?", "bye", "bye") == ["Hello.", "Rain.", "Bye.", "Bye."]


def test_a_turn_that_expects_something_else_says_what() -> None:
    with pytest.raises(ModelError, match=r"Turn 1 .* expects 'an apple', .* 'a pear'"):
        _texts(ScriptedModel([ScriptedTurn(expects="an apple")]), "a pear")


def test_a_script_without_further_turns_raises() -> None:
    with pytest.raises(ModelError, match="no turn"):
        _texts(ScriptedModel(["One."]), "a", "b")


def test_calls_are_made_by_whole_names_or_their_ends() -> None:
    offered = tuple(ToolSpec(name, "", {}) for name in ("files__look", "files__list", "web__list"))
    script = [ScriptedTurn(calls=tuple(ScriptedCall(tool=name) for name in ("look", "files__list", "list", "fly")))]
    (finished,) = _turns(ScriptedModel(script), ModelRequest(messages=_said("a").messages, tools=offered))
    assert [use.name for use in finished.message.tool_uses] == ["files__look", "files__list", "list", "fly"]
    assert finished.stop_reason == "tools"
    assert len({use.id for use in finished.message.tool_uses}) == 4


def test_a_turn_can_repeat_what_was_said_and_what_a_tool_answered() -> None:
    messages = (
        ModelMessage("user", (TextBlock("the {result}?"),)),
        ModelMessage("assistant", (ToolUseBlock("c1", "look", {}),)),
        ModelMessage("user", (ToolResultBlock("c1", (TextBlock("{said} apple"),)),)),
    )
    model = ScriptedModel([ScriptedTurn(expects="apple", says="{said} - {result}!")])
    (finished,) = _turns(model, ModelRequest(messages=messages))
    assert finished.message.text == "the {result}? - {said} apple!"


def test_a_turn_can_fail_after_its_text() -> None:
    model = ScriptedModel([ScriptedTurn(says="One", fails="cut off")])
    events, error = run_async(cut_short(model, _said("a")))
    assert events == [TextDelta("One")]
    assert error is not None
    assert error.fault == "cut off"


async def test_a_turn_that_hangs_is_stopped_by_closing_it() -> None:
    model = ScriptedModel([ScriptedTurn(says="One", hangs=True)])
    events = model.stream(_said("a"))
    assert await anext(events) == TextDelta("One")
    await events.aclose()
    assert model.stopped == 1


TOML = """
piece = 4

[traits]
images = false

[[turn]]
expects = "look"
says = "Let me see."
calls = [{ tool = "look", arguments = { path = "/a" } }]

[[turn]]
says = "It is: {result}"
"""


def test_a_script_is_read_from_toml(tmp_path: Path) -> None:
    file = tmp_path / "script.toml"
    file.write_text(TOML)
    model = read_script(file)
    (finished,) = _turns(model, _said("look!"))
    assert finished.message.tool_uses[0].arguments == {"path": "/a"}
    assert not model.traits.images


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("a.toml", "[[turn]]\nsay = 'x'", "say"),
        ("a.toml", "turns = []", "turns"),
        ("a.toml", "", "no turns"),
        ("a.toml", "[[turn]", "is invalid"),
        ("a.json", "[1]", "not a table"),
        ("a.toml", "piece = 0\n[[turn]]\nsays = 'x'", "piece"),
        ("a.toml", "[[turn]]\nfails = 'loudly'", "loudly|fails"),
    ],
)
def test_a_file_that_is_no_script_is_reported(tmp_path: Path, name: str, text: str, word: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=word):
        read_script(tmp_path / name)


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_script(tmp_path / "none.toml")
