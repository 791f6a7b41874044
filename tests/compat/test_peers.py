"""How the peers' tests are counted: every one that does not pass has a reason."""

from collections import Counter
from pathlib import Path

import pytest

from tests.compat.peers import CLASSES, Outcome, Reason, load_reasons, sort_out, table


def test_every_test_that_does_not_pass_needs_one_reason() -> None:
    reasons = [
        Reason("deliberate difference", "Ours is stricter.", ("mcp-2.3.0/tests/a.py::*",)),
        Reason("part not there", "No tasks.", ("*/b.py::TestTasks::test_run[x*", "*/b.py::TestTasks::*")),
    ]
    outcomes = [
        Outcome("mcp-2.3.0/tests/a.py::test_one", "passed"),
        Outcome("mcp-2.3.0/tests/a.py::test_two", "failed"),
        Outcome("mcp-2.3.0/tests/b.py::TestTasks::test_run[x]", "missing"),
        Outcome("mcp-2.3.0/tests/c.py::test_three", "failed"),
        Outcome("mcp-2.3.0/tests/c.py::test_four", "skipped"),
    ]

    found = sort_out(outcomes, reasons)

    assert found.counts == Counter(collected=5, passed=1, deliberate=1, missing=1, unexplained=1, skipped=1)
    assert (found.unexplained, found.ambiguous) == (["mcp-2.3.0/tests/c.py::test_three"], [])
    text = table({"a": found.counts}, found.by_reason)
    assert "| a | 5 | 1 (20 %) | 1 | 1 | 1 | 1 |" in text
    assert "- No tasks. (1)" in text


def test_the_reasons_that_are_kept_are_valid() -> None:
    assert {reason.kind for reason in load_reasons()} <= set(CLASSES)


def test_an_entry_that_is_not_valid_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('[[reason]]\nclass = "other"\nwhy = "x"\ntests = ["*"]\n')

    with pytest.raises(ValueError, match=r"bad\.toml"):
        load_reasons(tmp_path)
