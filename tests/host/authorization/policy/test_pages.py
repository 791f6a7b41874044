"""The pages about policy say what is so: every policy on them can be read, and the table of defaults is ours."""

from __future__ import annotations

import pytest

from tests.docs.pages import ROOT, Block, blocks
from tests.host.authorization.policy.support import policy
from trunkline.host.authorization.policy import DEFAULT_RULES
from trunkline.host.authorization.policy.loader import key_parsers
from trunkline.host.authorization.policy.policy import DefaultRule
from trunkline.host.authorization.policy.policy_tests import parse_policy_tests, run_policy_tests
from trunkline.host.authorization.policy.predicates import TESTS

REFERENCE = ROOT / "docs" / "reference" / "policy.md"
PAGES = [REFERENCE, ROOT / "docs" / "how-to" / "write-a-policy.md"]
POLICIES = [pytest.param(block, id=block.name) for page in PAGES for block in blocks(page) if block.language == "toml"]


@pytest.mark.parametrize("block", POLICIES)
def test_a_policy_of_a_page_can_be_read_and_passes_its_tests(block: Block) -> None:
    cases = parse_policy_tests(block.text, file="p.toml", with_policy=True)
    outcomes = run_policy_tests(policy(block.text), cases, now=0.0)
    assert [outcome.failure for outcome in outcomes] == [None] * len(cases)


def _word(value: bool | None) -> str:
    return "-" if value is None else "yes" if value else "no"


def _row(row: DefaultRule) -> str:
    conditions = (row.trusted, row.read_only, row.destructive, row.open_world, row.tainted)
    cells = [", ".join(row.kinds), *map(_word, conditions), row.decision.effect, row.decision.rule]
    return f"| {' | '.join(cells)} |"


def test_the_table_of_defaults_is_the_one_that_decides() -> None:
    assert "\n".join(map(_row, DEFAULT_RULES)) in REFERENCE.read_text(encoding="utf-8")


@pytest.mark.parametrize("table", ["rule", "redact", "test"])
def test_every_member_of_a_table_is_on_the_page(table: str) -> None:
    page = REFERENCE.read_text(encoding="utf-8")
    assert [name for name in key_parsers(table) if f"`{name}`" not in page] == []


def test_every_test_of_a_predicate_is_on_the_page() -> None:
    page = REFERENCE.read_text(encoding="utf-8")
    assert [name for name in TESTS if name != "range" and f"| `{name}` |" not in page] == []
