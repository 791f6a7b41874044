"""The runner's verdicts: what counts as passed is decided here and not by the suite."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.run import Leg, judge

LEG = Leg("client", "2026-07-28")


def check(status: str, name: str = "Name") -> dict[str, Any]:
    return {"id": "some-id", "name": name, "status": status, "errorMessage": "the reason"}


def test_a_scenario_whose_checks_all_succeeded_passes() -> None:
    verdict = judge(LEG, "tools_call", [check("SUCCESS"), check("SUCCESS")])
    assert (verdict.succeeded, verdict.total, verdict.faults) == (2, 2, ())


@pytest.mark.parametrize("status", ["FAILURE", "WARNING", "SKIPPED"])
def test_one_check_that_did_not_succeed_is_a_fault(status: str) -> None:
    verdict = judge(LEG, "tools_call", [check("SUCCESS"), check(status)])
    assert (verdict.succeeded, verdict.total) == (1, 2)
    assert verdict.faults == (f"{status} some-id (Name): the reason",)


@pytest.mark.parametrize("checks", [None, [], [check("INFO")]], ids=["no file", "empty file", "remarks alone"])
def test_a_scenario_without_checks_does_not_pass(checks: list[dict[str, Any]] | None) -> None:
    assert judge(LEG, "tools_call", checks).faults == ("no checks were recorded",)


def test_a_run_that_ended_badly_does_not_pass_however_good_its_checks() -> None:
    assert judge(LEG, "tools_call", [check("SUCCESS")], faults=["exit status 1"]).faults == ("exit status 1",)


def test_a_check_for_a_method_that_the_revision_does_not_have_is_left_out() -> None:
    impossible = check("SKIPPED", "ClientMcpMethodHeader_initialize")
    verdict = judge(LEG, "http-standard-headers", [check("SUCCESS"), impossible])
    assert (verdict.succeeded, verdict.total, verdict.faults) == (1, 1, ())


def test_such_a_check_still_counts_when_it_was_made() -> None:
    made = check("FAILURE", "ClientMcpMethodHeader_initialize")
    assert judge(LEG, "http-standard-headers", [check("SUCCESS"), made]).faults


def test_a_scenario_that_the_suite_has_still_to_write_is_neither_passed_nor_failed() -> None:
    verdict = judge(LEG, "tasks-status-notifications", [check("SKIPPED")])
    assert (verdict.succeeded, verdict.total, verdict.faults) == (0, 0, ())


def test_such_a_scenario_counts_as_soon_as_it_is_written() -> None:
    assert judge(LEG, "tasks-status-notifications", [check("SUCCESS")]).total == 1
    assert judge(LEG, "tasks-status-notifications", [check("SUCCESS"), check("SKIPPED")]).faults
    assert judge(LEG, "tasks-status-notifications", None).faults == ("no checks were recorded",)


def test_such_a_scenario_fails_if_its_run_ended_badly() -> None:
    assert judge(LEG, "tasks-status-notifications", [check("SKIPPED")], faults=["exit status 1"]).faults
