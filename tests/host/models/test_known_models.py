"""The known models, and their prices."""

from __future__ import annotations

import pytest

from trunkline.host.models.interface import Traits, Usage
from trunkline.host.models.selection import is_known, known_models, traits_of


def test_a_date_at_the_end_of_a_name_changes_nothing() -> None:
    assert traits_of("anthropic:claude-haiku-4-5-20251001") == known_models()["anthropic:claude-haiku-4-5"]
    assert traits_of("openai:gpt-4.1-2025-04-14") == known_models()["openai:gpt-4.1"]


@pytest.mark.parametrize("name", ["openai:gpt-6-sol-mini", "anthropic:claude-sonnet-9", "ollama:gpt-4.1"])
def test_a_name_that_only_begins_alike_is_another_model(name: str) -> None:
    assert not is_known(name)


def test_what_a_user_gives_replaces_what_is_known() -> None:
    traits = traits_of("anthropic:claude-sonnet-5", {"input_price": 9.0})
    assert traits.input_price == 9.0
    assert traits.output_price == known_models()["anthropic:claude-sonnet-5"].output_price


def test_every_row_of_the_table_is_within_its_bounds() -> None:
    odd = [
        name
        for name, traits in known_models().items()
        if not (
            0 <= traits.speed <= 1 and 0 <= traits.intelligence <= 1 and traits.output_tokens < traits.window_tokens
        )
    ]
    assert odd == []


@pytest.mark.parametrize(
    ("usage", "dollars"),
    [
        pytest.param(Usage(1_000_000, 0), 2.0, id="input"),
        pytest.param(Usage(0, 1_000_000), 10.0, id="output"),
        pytest.param(Usage(1_000_000, 0, 1_000_000), 0.2, id="read-from-a-cache"),
        pytest.param(Usage(1_000_000, 0, 0, 1_000_000), 2.5, id="written-to-a-cache"),
        pytest.param(Usage(1_000_000, 100_000, 500_000, 100_000), 2.15, id="all-of-it"),
    ],
)
def test_a_turn_costs_what_its_tokens_cost(usage: Usage, dollars: float) -> None:
    assert traits_of("anthropic:claude-sonnet-5").cost(usage) == pytest.approx(dollars)


def test_a_long_turn_is_dearer_as_a_whole() -> None:
    traits = Traits(input_price=1.0, output_price=2.0, long_tokens=100, long_input_factor=2.0, long_output_factor=1.5)
    assert traits.cost(Usage(100, 100)) == pytest.approx(300e-6)
    assert traits.cost(Usage(101, 100)) == pytest.approx(502e-6)
